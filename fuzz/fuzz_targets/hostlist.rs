#![no_main]
//! `rallypoint::fuzzing::hostlist` tells what must hold.

libfuzzer_sys::fuzz_target!(|data: &[u8]| rallypoint::fuzzing::hostlist(data));
