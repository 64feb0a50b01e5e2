#![no_main]
//! `rallypoint::fuzzing::contact` tells what must hold.

libfuzzer_sys::fuzz_target!(|data: &[u8]| rallypoint::fuzzing::contact(data));
