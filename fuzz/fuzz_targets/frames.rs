#![no_main]
//! `rallypoint::fuzzing::frames` tells what must hold.

libfuzzer_sys::fuzz_target!(|data: &[u8]| rallypoint::fuzzing::frames(data));
