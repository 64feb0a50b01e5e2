#![no_main]
//! `rallypoint::fuzzing::to_member` tells what must hold.

libfuzzer_sys::fuzz_target!(|data: &[u8]| rallypoint::fuzzing::to_member(data));
