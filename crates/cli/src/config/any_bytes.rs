//! What must hold for any bytes in place of a `rallypoint.toml`: they are a file, whose values are all there, or an error
//! with a line that exists. Run by the fuzzer, and by a test over the fuzzer's inputs.

use super::file::{Defaults, parse};

/// Panics where it does not hold.
pub(super) fn hold(data: &[u8]) {
    // As the command reads it: what is no text is an error before.
    let Ok(text) = std::str::from_utf8(data) else { return };
    match parse(text) {
        Ok(file) => {
            let tables = [&file.run].into_iter().chain(file.submit.values());
            let said: usize = tables.map(length).sum();
            let lines = file.env.iter().map(|(name, env)| name.len() + env.setup.concat().len());
            assert!(said + lines.sum::<usize>() <= text.len());
        }
        Err(reason) => {
            let line = reason.strip_prefix("line ").and_then(|rest| rest.split_once(": ")?.0.parse().ok());
            let lines = text.matches('\n').count() + 1;
            assert!(line.is_none_or(|line: usize| (1..=lines).contains(&line)), "{reason}");
            assert!(!reason.is_empty());
        }
    }
}

/// The bytes of all names and texts: no table makes more of them than it was given.
fn length(defaults: &Defaults) -> usize {
    defaults.iter().map(|(key, value)| key.len() + value.as_str().map_or(0, str::len)).sum()
}

#[test]
fn every_input_of_the_fuzzer_holds() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/rallypoint_toml");
    let inputs = std::fs::read_dir(folder).expect("the fuzzer's inputs");
    let read = inputs.map(|input| hold(&std::fs::read(input.expect("an input").path()).expect("an input")));
    assert!(read.count() > 0);
}
