//! `rallypoint submit`: a job script from what one would type, submitted. One file a scheduler.

mod hand_in;
mod handed_on;
mod htcondor;
mod slurm;

use crate::args::{SubmitCommand, SubmitJobArgs};
use crate::config::Config;
use crate::exit::{Exit, Failure};
use clap::ArgMatches;
use rallypoint::machine::{find_on_path, is_executable};
use rallypoint::submit::Work;
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use thiserror::Error;

#[derive(Debug, Error)]
enum CannotSubmit {
    #[error(
        "{program} is not a program that can be run; hint: give its path, put it on PATH, or name an --env that brings it"
    )]
    NoProgram { program: String },
    #[error("{} does not exist in {}; hint: the job starts in the directory that it is submitted from", script.display(), folder.display())]
    NoScript { script: PathBuf, folder: PathBuf },
    #[error("{argument} is not text, and a job script is; hint: rename it")]
    NotText { argument: String },
}

pub(super) fn run(command: &SubmitCommand, matches: &ArgMatches) -> Result<Exit, Failure> {
    let config = Config::read()?;
    match command {
        SubmitCommand::Slurm(args) => slurm::run(args, matches, &config),
        SubmitCommand::Htcondor(args) => htcondor::run(args, matches, &config),
    }
}

/// What the job does, once it has its allocation. Whatever can be found wrong now is found now: a job may
/// wait for hours before it fails.
fn work(args: &SubmitJobArgs, matches: &ArgMatches, config: &Config) -> Result<Work, Failure> {
    let program = text(&args.command[0].to_string_lossy(), args.command[0].to_str())?;
    let command: Vec<String> = args
        .command
        .iter()
        .map(|word| text(&word.to_string_lossy(), word.to_str()))
        .collect::<Result<_, _>>()?;
    let setup = args.env.as_deref().map(|name| config.environment(name)).transpose()?;
    let folder = std::env::current_dir()?;
    let path = std::env::var("PATH").ok();
    let found = match program.contains('/') {
        true => is_executable(&folder.join(&program)),
        false => setup.is_some() || find_on_path(&program, path.as_deref()).is_some(),
    };
    if !found {
        return Err(CannotSubmit::NoProgram { program }.into());
    }
    if let Some(script) = script_of(&command).filter(|script| !folder.join(script).exists()) {
        return Err(CannotSubmit::NoScript { script: PathBuf::from(script), folder }.into());
    }
    let own = std::env::current_exe()?;
    let on_path = find_on_path("rallypoint", path.as_deref()).and_then(|found| found.canonicalize().ok());
    let own = match on_path == own.canonicalize().ok() && on_path.is_some() {
        true => "rallypoint".to_owned(),
        false => text(&own.to_string_lossy(), own.to_str())?,
    };
    let mut words = vec![own, "run".to_owned()];
    words.extend(handed_on::options(matches)?);
    words.push("--".to_owned());
    words.extend(command);
    let made_by = std::env::args_os()
        .enumerate()
        .map(|(number, word)| match number {
            0 => "rallypoint".to_owned(),
            _ => word.to_string_lossy().into_owned(),
        })
        .collect();
    Ok(Work { setup, command: words, made_by })
}

fn text(shown: &str, text: Option<&str>) -> Result<String, CannotSubmit> {
    text.map(str::to_owned).ok_or_else(|| CannotSubmit::NotText { argument: shown.to_owned() })
}

/// The script's name says more than its interpreter's.
fn job_name(command: &[OsString]) -> Option<String> {
    let script = command.iter().find(|word| word.to_string_lossy().ends_with(".py"));
    Some(Path::new(script.or(command.first())?).file_stem()?.to_string_lossy().into_owned())
}

fn say(line: &str) {
    _ = writeln!(std::io::stderr(), "rallypoint: {line}");
}

/// The file that an interpreter is to run: `train.py` of `python -u train.py`.
fn script_of(command: &[String]) -> Option<&str> {
    let program = Path::new(&command[0]).file_name()?.to_str()?;
    let is_python = program.starts_with("python");
    if !is_python && !["sh", "bash", "zsh", "perl", "ruby", "julia"].contains(&program) {
        return None;
    }
    let mut words = command[1..].iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            // Options of Python that take a value of their own.
            "-W" | "-X" | "--check-hash-based-pycs" if is_python => _ = words.next(),
            // Code or a module instead of a file, or something we do not know.
            option
                if option.starts_with('-')
                    && (!is_python || option.len() > 2 || "-c-m-".contains(option)) =>
            {
                return None;
            }
            option if option.starts_with('-') => {}
            file => return Some(file),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::script_of;

    #[test]
    fn the_script_of_an_interpreter() {
        let script = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            script_of(&words).map(str::to_owned)
        };
        let found = |line: &str| script(line).unwrap_or_else(|| "-".to_owned());
        assert_eq!(found("python train.py"), "train.py");
        assert_eq!(found("/opt/bin/python3.11 -u -W ignore train.py -c x"), "train.py");
        assert_eq!(found("bash job.sh"), "job.sh");
        for none in [
            "python -m train",
            "python -c code",
            "python -",
            "python",
            "bash -c x",
            "bash -x job.sh",
            "./train",
            "env python x.py",
        ] {
            assert_eq!(found(none), "-", "{none}");
        }
    }
}
