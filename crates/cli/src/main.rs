//! The `rallypoint` command: arguments as typed, settings as meant, then the library.

mod args;
mod commands;
mod exit;
mod meeting;
#[cfg(test)]
mod reference;
mod settings;
mod table;
mod talk;

use clap::Parser;

fn main() -> std::process::ExitCode {
    exit::report(commands::run(args::Args::parse())).into()
}
