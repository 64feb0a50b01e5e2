//! `rallypoint completions`

use super::print;
use crate::args::{Args, Shell};
use crate::exit::{Exit, Failure};
use clap::CommandFactory;
use clap_complete::generate;
use clap_complete::shells;

pub(super) fn run(shell: Shell) -> Result<Exit, Failure> {
    let mut command = Args::command();
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    match shell {
        Shell::Bash => generate(shells::Bash, &mut command, name, &mut script),
        Shell::Zsh => generate(shells::Zsh, &mut command, name, &mut script),
        Shell::Fish => generate(shells::Fish, &mut command, name, &mut script),
    }
    print(&script)
}
