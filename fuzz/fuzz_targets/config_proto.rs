#![no_main]
//! `rallypoint::fuzzing::config_proto` tells what must hold.

libfuzzer_sys::fuzz_target!(|data: &[u8]| rallypoint::fuzzing::config_proto(data));
