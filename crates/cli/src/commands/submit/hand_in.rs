//! A job script, given to the scheduler's own program; it answers with the job's id.

use super::say;
use rallypoint::allocation::Scheduler;
use std::io::Write;
use std::process::{Command, Output, Stdio};
use thiserror::Error;

#[derive(Debug, Error)]
pub(super) enum NotHandedIn {
    #[error(
        "{program} cannot be started: {source}; hint: submit from a machine that has {scheduler}'s commands, or look at it with --dry-run"
    )]
    NoProgram { program: &'static str, scheduler: Scheduler, source: std::io::Error },
    #[error("{program} refuses the job: {reason}")]
    Refused { program: &'static str, reason: String },
    #[error("{program} did not answer with a job's id but {answer:?}")]
    NoId { program: &'static str, answer: String },
    #[error("{program} broke off: {source}")]
    BrokenOff { program: &'static str, source: std::io::Error },
}

/// Runs `program` with the script as its standard input. `id_of` finds the id in the answer.
pub(super) fn hand_in(
    scheduler: Scheduler,
    program: &'static str,
    options: &[&str],
    script: &str,
    id_of: fn(&str) -> Option<&str>,
) -> Result<String, NotHandedIn> {
    let mut running = Command::new(program)
        .args(options)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|source| NotHandedIn::NoProgram { program, scheduler, source })?;
    if let Some(mut stdin) = running.stdin.take() {
        // If it does not want to read, it says why.
        _ = stdin.write_all(script.as_bytes());
    }
    let Output { status, stdout, stderr } =
        running.wait_with_output().map_err(|source| NotHandedIn::BrokenOff { program, source })?;
    let talk = String::from_utf8_lossy(&stderr).trim().to_owned();
    if !status.success() {
        return Err(NotHandedIn::Refused { program, reason: talk });
    }
    if !talk.is_empty() {
        say(&talk);
    }
    let answer = String::from_utf8_lossy(&stdout).trim().to_owned();
    match id_of(&answer).filter(|id| !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit())) {
        Some(id) => Ok(id.to_owned()),
        None => Err(NotHandedIn::NoId { program, answer }),
    }
}
