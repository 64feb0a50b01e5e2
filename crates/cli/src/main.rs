//! The `rallypoint` command: arguments as typed, settings as meant, then the library.

mod args;
mod caller;
mod commands;
mod config;
mod exit;
mod here;
mod log;
mod printable;
#[cfg(test)]
mod reference;
mod settings;
mod table;
mod talk;
mod usage;
mod voice;

use clap::{CommandFactory, FromArgMatches};
use std::ffi::OsString;

fn main() -> std::process::ExitCode {
    exit::report(run()).into()
}

fn run() -> Result<exit::Exit, exit::Failure> {
    let (typed, caller): (Vec<OsString>, _) = caller::split(std::env::args_os().collect());
    caller.map(caller::take).transpose()?;
    let parse = |words: &[OsString]| {
        let matches = args::Args::command().try_get_matches_from(words)?;
        Ok((args::Args::from_arg_matches(&matches)?, matches))
    };
    match parse(&config::complete(typed.clone())?) {
        Ok((args, matches)) => {
            log::begin(args.is_verbose());
            commands::run(args, &matches)
        }
        Err(error) => Ok(usage::explain(&error, &typed)),
    }
}
