//! The options of `run` that `submit` takes too, handed on as they were typed.

use crate::args::JobArgs;
use crate::exit::Failure;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args as _, Command};
use std::ffi::OsStr;

/// `--ps 1 --grace 60s`: what was typed, and nothing else.
pub(super) fn options(matches: &ArgMatches) -> Result<Vec<String>, Failure> {
    let mut words = Vec::new();
    let command = JobArgs::augment_args(Command::new("run"));
    for argument in command.get_arguments() {
        let id = argument.get_id().as_str();
        let Some(long) = argument.get_long() else { continue };
        if matches.value_source(id) != Some(ValueSource::CommandLine) {
            continue;
        }
        let flag = format!("--{long}");
        if !argument.get_action().takes_values() {
            words.push(flag);
            continue;
        }
        for occurrence in matches.get_raw_occurrences(id).into_iter().flatten() {
            words.push(flag.clone());
            words.extend(occurrence.map(OsStr::to_string_lossy).map(String::from));
        }
    }
    // A value may look like an option: --host-suffix -ib.
    Ok(join_dashed(words))
}

/// `--host-suffix`, `-ib` as one word, `--host-suffix=-ib`.
fn join_dashed(words: Vec<String>) -> Vec<String> {
    let mut joined: Vec<String> = Vec::with_capacity(words.len());
    for word in words {
        match joined.last_mut() {
            Some(flag) if word.starts_with('-') && !word.starts_with("--") => {
                flag.push('=');
                flag.push_str(&word);
            }
            _ => joined.push(word),
        }
    }
    joined
}
