//! `rallypoint submit`: a job script from what one would type, submitted. What is the scheduler's own is in its room.

mod handed_on;

use crate::args::{SubmitCommand, SubmitJobArgs};
use crate::commands::print;
use crate::config::Config;
use crate::exit::{Exit, Failure, say};
use crate::settings;
use clap::ArgMatches;
use rallypoint::hint;
use rallypoint::hint::{Hint, Hinted, Setting};
use rallypoint::process::find_on_path;
use rallypoint::run::{NoProgram, must_exist};
use rallypoint::scheduler::submit::{HandedIn, Order, Told, Work, script_of};
use std::path::PathBuf;
use thiserror::Error;

#[derive(Debug, Error)]
enum CannotSubmit {
    #[error("{program} is not on PATH")]
    NotOnPath { program: String },
    #[error("{} does not exist in {}", script.display(), folder.display())]
    NoScript { script: PathBuf, folder: PathBuf },
    #[error("{argument} is not text, and a job script is")]
    NotText { argument: String },
}

impl Hinted for CannotSubmit {
    fn hint(&self) -> Option<Hint> {
        match self {
            CannotSubmit::NotOnPath { .. } => {
                Some(hint!("give its path, or name an ", Setting::Env, " that brings it"))
            }
            CannotSubmit::NoScript { .. } => {
                Some(hint!("the job starts in the directory that it is submitted from"))
            }
            CannotSubmit::NotText { .. } => Some(hint!("rename it")),
        }
    }
}

pub(super) fn run(args: &SubmitCommand, matches: &ArgMatches) -> Result<Exit, Failure> {
    let config = Config::read()?;
    let work = work(&args.job, matches, &config)?;
    let command: Vec<String> =
        args.job.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let order = Order {
        given: args.given.clone(),
        roles: settings::role_request(&args.job.handed_on.roles)?,
        grace: args.job.handed_on.ending.grace,
        work,
        command: &command,
        own: &std::env::current_exe()?,
    };
    let submission = args.to.prepare(order)?;
    if args.job.dry_run {
        return print(submission.script().as_bytes());
    }
    let HandedIn { id, said } = submission.hand_in()?;
    said.iter().for_each(|line| say(line));
    print(format!("{id}\n").as_bytes())?;
    if !args.job.wait {
        return Ok(Exit::Success);
    }
    // Ctrl-C leaves the job running.
    let mut failed = None;
    let code = submission.follow(&id, &mut |told| match told {
        Told::Line(line) => say(&line),
        Told::Output(bytes) => failed = failed.take().or(print(bytes).err()),
    })?;
    failed.map_or(Ok(Exit::Run(code)), Err)
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
    // An environment may bring what is not on this PATH.
    if setup.is_none() || program.contains('/') {
        must_exist(&program, &folder, path.as_deref()).map_err(|why| match why {
            NoProgram::NotOnPath { program } => Failure::from(CannotSubmit::NotOnPath { program }),
            other => other.into(),
        })?;
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
    words.extend(handed_on::options(matches));
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
