#![no_main]
//! `rallypoint::fuzzing::htcondor` tells what must hold.

libfuzzer_sys::fuzz_target!(|data: &[u8]| rallypoint::fuzzing::htcondor(data));
