#![no_main]
//! `rallypoint::fuzzing::tf_config` tells what must hold.

libfuzzer_sys::fuzz_target!(|data: &[u8]| rallypoint::fuzzing::tf_config(data));
