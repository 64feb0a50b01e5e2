#![no_main]
//! `rallypoint::fuzzing::handshake` tells what must hold.

libfuzzer_sys::fuzz_target!(|data: &[u8]| rallypoint::fuzzing::handshake(data));
