//! Runs a job with the library alone: `run_job ROLES PROGRAM [ARGUMENTS]`, such as `run_job ps,worker*2 python train.py`.
//!
//! Prints every event as it comes, then the outcome, both as JSON, and ends as the job did.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program that prints")]

use rallypoint::supervise::OutputStyle;
use rallypoint::{Hinted, Run, RunError};
use std::process::ExitCode;
use std::time::Duration;

fn main() -> ExitCode {
    match run() {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("error: {error}");
            if let Some(hint) = error.hint() {
                eprintln!("hint: {}", hint.typed());
            }
            ExitCode::from(error.code())
        }
    }
}

fn run() -> Result<u8, RunError> {
    let mut words = std::env::args().skip(1);
    let roles = words.next().unwrap_or_else(|| "worker".to_owned()).parse()?;
    let outcome = Run::new(words)
        .roles(roles)
        .grace(Duration::from_secs(2))
        .output(OutputStyle { terminal: true, prefix: "{role} {index}: ".to_owned(), colour: false })
        .start(|event| println!("{}", serde_json::to_string(&event).unwrap_or_default()))?;
    println!("{}", serde_json::to_string(&outcome).unwrap_or_default());
    Ok(outcome.code())
}
