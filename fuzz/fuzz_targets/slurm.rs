#![no_main]
//! `rallypoint::fuzzing::slurm` tells what must hold.

libfuzzer_sys::fuzz_target!(|data: &[u8]| rallypoint::fuzzing::slurm(data));
