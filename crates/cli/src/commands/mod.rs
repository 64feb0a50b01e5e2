//! One file a command.

mod check;
mod completions;
mod doctor;
mod env;
mod hostlist;
mod plan;
mod run;
mod serve;
mod submit;

use crate::args::{Args, Command};
use crate::exit::{Exit, Failure};
use clap::ArgMatches;
use std::io::Write;

/// `matches` is what `args` was made from, for those who want to know what was typed.
pub(crate) fn run(args: Args, matches: &ArgMatches) -> Result<Exit, Failure> {
    match args.command {
        Command::Run(args) => run::run(&args),
        Command::Submit(command) => submit::run(&command, innermost(matches)),
        Command::Serve(args) => serve::run(&args),
        Command::Plan(args) => plan::run(&args),
        Command::Env(args) => env::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Hostlist(command) => hostlist::run(&command),
        Command::Completions { shell } => completions::run(shell),
    }
}

/// What belongs to the subcommand itself.
fn innermost(mut matches: &ArgMatches) -> &ArgMatches {
    while let Some((_, below)) = matches.subcommand() {
        matches = below;
    }
    matches
}

/// Everything at once, after all that can fail has succeeded: an error leaves stdout empty.
fn print(output: &[u8]) -> Result<Exit, Failure> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(output)?;
    stdout.flush()?;
    Ok(Exit::Success)
}

fn print_json<T: serde::Serialize>(value: &T) -> Result<Exit, Failure> {
    // What is serialized here cannot fail, so it may go out in pieces.
    let mut stdout = std::io::BufWriter::with_capacity(1 << 16, std::io::stdout().lock());
    serde_json::to_writer(&mut stdout, value).map_err(std::io::Error::from)?;
    stdout.write_all(b"\n")?;
    stdout.flush()?;
    Ok(Exit::Success)
}
