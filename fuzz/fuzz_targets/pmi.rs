#![no_main]
//! `rallypoint::fuzzing::pmi` tells what must hold.

libfuzzer_sys::fuzz_target!(|data: &[u8]| rallypoint::fuzzing::pmi(data));
