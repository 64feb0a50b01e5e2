#![no_main]
//! `rallypoint::fuzzing::leader_ad` tells what must hold.

libfuzzer_sys::fuzz_target!(|data: &[u8]| rallypoint::fuzzing::leader_ad(data));
