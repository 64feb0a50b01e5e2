//! What was typed and cannot be: clap's words, fit for a terminal, with a hint where we know the slip.

use crate::exit::Exit;
use crate::printable::printable;
use crate::voice;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::ffi::OsString;
use std::io::Write;

/// Prints help, the version or what is wrong, and gives the exit code.
pub(crate) fn explain(error: &clap::Error, typed: &[OsString]) -> Exit {
    let text = error.render().to_string();
    if !error.use_stderr() {
        // Whoever reads our help has enough: `rallypoint run --help | head`.
        _ = std::io::stdout().lock().write_all(text.as_bytes());
        return Exit::Success;
    }
    let hint = forgotten_dashes(error, typed).map(|hint| format!("hint: {hint}\n")).unwrap_or_default();
    voice::say_last(format!("{}{}", printable(&text), printable(&hint)));
    Exit::BadInput
}

/// `put -- before the program: rallypoint run --ps 1 -- python train.py`
fn forgotten_dashes(error: &clap::Error, typed: &[OsString]) -> Option<String> {
    let Some(ContextValue::String(found)) = error.get(ContextKind::InvalidArg) else { return None };
    let words: Vec<String> = typed.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let takes_program = match words.get(1).map(String::as_str) {
        Some("run") => true,
        Some("submit") => matches!(words.get(2).map(String::as_str), Some("slurm" | "htcondor")),
        _ => false,
    };
    let is_program = error.kind() == ErrorKind::UnknownArgument && !found.starts_with('-');
    if !takes_program || !is_program {
        return None;
    }
    let mut words = words;
    // Dashes in the middle of the program's own words.
    if let Some(dashes) = words.iter().position(|word| word == "--") {
        words.remove(dashes);
    }
    let mut at = words.iter().skip(2).position(|word| word == found)? + 2;
    // What that option has taken for its code is the program.
    if words[at - 1].parse::<u8>().is_err() && words[at - 2] == "--requeue-on" {
        at -= 1;
    }
    let (before, program) = words.split_at(at);
    let quoted = |words: &[String]| {
        words.iter().map(|word| rallypoint::shell::quote(word)).collect::<Vec<_>>().join(" ")
    };
    let before = quoted(&before[1..]);
    Some(format!("put -- before the program: rallypoint {before} -- {}", quoted(program)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Args;
    use clap::CommandFactory;

    #[test]
    fn a_forgotten_pair_of_dashes_is_told() {
        let hint = |typed: &str| {
            let typed: Vec<OsString> = typed.split(' ').map(OsString::from).collect();
            let error = Args::command().try_get_matches_from(&typed).unwrap_err();
            forgotten_dashes(&error, &typed).unwrap_or_default()
        };
        assert_eq!(
            hint("/opt/rallypoint run --ps 1 python train.py --ps 2"),
            "put -- before the program: rallypoint run --ps 1 -- python train.py --ps 2"
        );
        assert_eq!(
            hint("rallypoint submit slurm -n 4 ./a$b"),
            "put -- before the program: rallypoint submit slurm -n 4 -- './a$b'"
        );
        assert_eq!(hint("rallypoint run run"), "put -- before the program: rallypoint run -- run");
        assert_eq!(
            hint("rallypoint run --ps 1 python train.py -- --steps 3"),
            "put -- before the program: rallypoint run --ps 1 -- python train.py --steps 3"
        );
        assert_eq!(
            hint("rallypoint run --requeue-on python train.py"),
            "put -- before the program: rallypoint run --requeue-on -- python train.py"
        );
        assert_eq!(
            hint("rallypoint run --requeue-on 17 python train.py"),
            "put -- before the program: rallypoint run --requeue-on 17 -- python train.py"
        );
        for other in ["rallypoint run --nope", "rallypoint run --ps x", "rallypoint plan x"] {
            assert_eq!(hint(other), "", "{other}");
        }
    }
}
