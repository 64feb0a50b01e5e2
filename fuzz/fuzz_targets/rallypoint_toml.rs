#![no_main]
//! `any_bytes.rs` tells what must hold of a `rallypoint.toml`; both files are the command's own.

#[path = "../../crates/cli/src/config/any_bytes.rs"]
mod any_bytes;
#[path = "../../crates/cli/src/config/file.rs"]
mod file;

libfuzzer_sys::fuzz_target!(|data: &[u8]| any_bytes::hold(data));
