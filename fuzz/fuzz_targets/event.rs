#![no_main]
//! `rallypoint::fuzzing::event` tells what must hold.

libfuzzer_sys::fuzz_target!(|data: &[u8]| rallypoint::fuzzing::event(data));
