#![no_main]
//! `rallypoint::fuzzing::user_log` tells what must hold.

libfuzzer_sys::fuzz_target!(|data: &[u8]| rallypoint::fuzzing::user_log(data));
