#![no_main]
//! `rallypoint::fuzzing::chirp` tells what must hold.

libfuzzer_sys::fuzz_target!(|data: &[u8]| rallypoint::fuzzing::chirp(data));
