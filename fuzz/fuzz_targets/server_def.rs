#![no_main]
//! `rallypoint::fuzzing::server_def` tells what must hold.

libfuzzer_sys::fuzz_target!(|data: &[u8]| rallypoint::fuzzing::server_def(data));
