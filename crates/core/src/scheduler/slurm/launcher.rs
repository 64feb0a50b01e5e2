//! The `srun` that launcher mode starts: this very command line again, once per task.

use crate::environ::Environ;
use crate::hint;
use crate::hint::{Hint, Hinted, Setting};
use crate::process::find_on_path;
use crate::scheduler::LaunchRequest;
use crate::shell;
use crate::supervise::Launcher;
use crate::variables as var;
use std::ffi::OsString;
use std::time::Duration;
use thiserror::Error;

#[derive(Debug, Error)]
pub(super) enum CannotLaunch {
    #[error("inside a Slurm allocation, but srun is not on PATH, so no step can be started")]
    NoSrun,
    #[error("options of srun {text:?}: a quote is not closed")]
    OpenQuote { text: String },
}

impl Hinted for CannotLaunch {
    fn hint(&self) -> Option<Hint> {
        match self {
            CannotLaunch::NoSrun => {
                Some(hint!(Setting::On.with("local"), " runs all members on this machine"))
            }
            CannotLaunch::OpenQuote { .. } => None,
        }
    }
}

/// Seconds beyond the grace that the last task may take to end after the first.
const AFTER_FIRST_END: u64 = 30;

pub(super) fn srun(request: &LaunchRequest<'_>) -> Result<Launcher, CannotLaunch> {
    let srun = find_on_path("srun", request.environ.get(var::PATH)).ok_or(CannotLaunch::NoSrun)?;
    let mut command = vec![srun.into_os_string()];
    command.extend(options(request.environ, request.grace).into_iter().map(OsString::from));
    for text in request.more {
        let words = shell::words(text).ok_or_else(|| CannotLaunch::OpenQuote { text: text.clone() })?;
        command.extend(words.into_iter().map(OsString::from));
    }
    command.push(request.command.into());
    command.extend_from_slice(request.arguments);
    Ok(Launcher { name: "srun", command, variables: variables(request.environ) })
}

/// What the user may overrule by --srun-args, which stands behind.
fn options(environ: &Environ, grace: Duration) -> Vec<String> {
    let mut options = vec![
        // The line that names the leader goes to all tasks, whatever SLURM_INPUT says. By its name, since each
        // group of a het job opens it for itself.
        "--input=/proc/self/fd/0".to_owned(),
        // A task that ends before the members have met must not keep the others waiting. Later, all end at
        // the same time, but for the grace.
        format!("--wait={}", grace.as_secs() + AFTER_FIRST_END),
        // The members' environment is this one, even in a job that was submitted with --export=NONE.
        "--export=ALL".to_owned(),
    ];
    let groups = environ.get_nonempty(var::SLURM_HET_SIZE).and_then(|size| size.parse::<u32>().ok());
    if let Some(groups) = groups.filter(|&groups| groups > 1) {
        // Else it would be the first group alone.
        options.push(format!("--het-group=0-{}", groups - 1));
    }
    options
}

/// Since 22.05 `srun` does not take the job's --cpus-per-task from the job any more.
fn variables(environ: &Environ) -> Vec<(OsString, OsString)> {
    let cpus = environ
        .get_nonempty(var::SLURM_CPUS_PER_TASK)
        .filter(|_| environ.get(var::SRUN_CPUS_PER_TASK).is_none());
    cpus.map(|cpus| (var::SRUN_CPUS_PER_TASK.into(), cpus.into())).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_srun_would_not_do_by_itself() {
        let plain = Environ::from_variables([("SLURM_JOB_ID", "1"), ("SLURM_CPUS_PER_TASK", "3")]);
        let grace = Duration::from_secs(60);
        assert_eq!(options(&plain, grace), ["--input=/proc/self/fd/0", "--wait=90", "--export=ALL"]);
        assert_eq!(variables(&plain), [("SRUN_CPUS_PER_TASK".into(), "3".into())]);
        let het = Environ::from_variables([
            ("SLURM_HET_SIZE", "2"),
            ("SLURM_CPUS_PER_TASK", "3"),
            ("SRUN_CPUS_PER_TASK", "2"),
        ]);
        assert_eq!(options(&het, grace).last().map(String::as_str), Some("--het-group=0-1"));
        assert_eq!(variables(&het), []);
    }
}
