//! The `rallypoint` command: arguments as typed, settings as meant, then the library.

mod args;
mod commands;
mod company;
mod config;
mod exit;
mod private;
#[cfg(test)]
mod reference;
mod settings;
mod srun;
mod table;
mod talk;

use clap::{CommandFactory, FromArgMatches};

fn main() -> std::process::ExitCode {
    exit::report(run()).into()
}

fn run() -> Result<exit::Exit, exit::Failure> {
    let mut command = args::Args::command();
    command.build();
    let typed = config::Config::read()?.complete(std::env::args_os().collect(), &command)?;
    let matches = command.get_matches_from(typed);
    let args = args::Args::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    commands::run(args, &matches)
}
