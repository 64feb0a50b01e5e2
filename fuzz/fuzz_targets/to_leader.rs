#![no_main]
//! `rallypoint::fuzzing::to_leader` tells what must hold.

libfuzzer_sys::fuzz_target!(|data: &[u8]| rallypoint::fuzzing::to_leader(data));
