//! What Slurm says of a job after it was handed in.

use crate::hint;
use crate::hint::{Hint, Hinted};
use crate::scheduler::submit::{SubmitError, Told};
use std::io::{Read, Seek, SeekFrom};
use std::process::{Command, Stdio};
use std::time::Duration;
use thiserror::Error;

/// How often Slurm is asked: a controller serves thousands of users.
const BETWEEN_QUESTIONS: Duration = Duration::from_secs(2);
/// How many questions in a row may stay without an answer.
const UNANSWERED: u32 = 30;

#[derive(Debug, Error)]
enum NotKnown {
    #[error("scontrol cannot be started: {source}")]
    NoScontrol { job: String, source: std::io::Error },
    #[error("Slurm does not tell how job {job} is: {reason}")]
    Unknown { job: String, reason: String },
}

impl Hinted for NotKnown {
    fn hint(&self) -> Option<Hint> {
        match self {
            NotKnown::NoScontrol { job, .. } => {
                Some(hint!(format!("job {job} goes on without; squeue tells how it is")))
            }
            NotKnown::Unknown { .. } => None,
        }
    }
}

/// Tells the job's state when it changes, and what it writes, until it is over. Ctrl-C leaves it running.
pub(super) fn follow(job: &str, tell: &mut dyn FnMut(Told<'_>)) -> Result<u8, SubmitError> {
    let mut told = String::new();
    let mut log = Log { position: 0 };
    let mut unanswered = 0;
    loop {
        let statuses = match ask(job) {
            Ok(statuses) => statuses,
            Err(error) if unanswered < UNANSWERED => {
                unanswered += 1;
                if unanswered == 1 {
                    tell(Told::Line(format!("{error}; asking again")));
                }
                std::thread::sleep(BETWEEN_QUESTIONS);
                continue;
            }
            Err(error) => return Err(error),
        };
        unanswered = 0;
        let state = describe(job, &statuses);
        let over = statuses.iter().all(JobStatus::is_over);
        // What it wrote comes before how it ended.
        if let [status] = statuses.as_slice() {
            log.show(status, tell)?;
        }
        if state != told {
            tell(Told::Line(state.clone()));
            told = state;
        }
        if over {
            let code = statuses.iter().map(JobStatus::code).find(|&code| code != 0).unwrap_or(0);
            return Ok(code);
        }
        std::thread::sleep(BETWEEN_QUESTIONS);
    }
}

/// One status, or several for an array.
fn ask(job: &str) -> Result<Vec<JobStatus>, SubmitError> {
    let answer = Command::new("scontrol")
        .args(["--oneliner", "show", "job", job])
        .stdin(Stdio::null())
        .output()
        .map_err(|source| NotKnown::NoScontrol { job: job.to_owned(), source })?;
    let text = String::from_utf8_lossy(&answer.stdout);
    let statuses: Vec<JobStatus> = text.lines().filter_map(JobStatus::parse).collect();
    match statuses.is_empty() {
        true => {
            let reason = String::from_utf8_lossy(&answer.stderr).trim().to_owned();
            Err(NotKnown::Unknown { job: job.to_owned(), reason }.into())
        }
        false => Ok(statuses),
    }
}

/// `job 7: RUNNING on n[01-02]`
fn describe(job: &str, statuses: &[JobStatus]) -> String {
    let [status] = statuses else {
        let over = statuses.iter().filter(|status| status.is_over()).count();
        return format!("job {job}: {over} of {} tasks of the array are over", statuses.len());
    };
    let why = match status.state.as_str() {
        "PENDING" => format!(" ({})", status.reason),
        _ if status.is_over() => format!(", exit code {}:{}", status.exit.0, status.exit.1),
        _ if !status.nodes.is_empty() => format!(" on {}", status.nodes),
        _ => String::new(),
    };
    format!("job {job}: {}{why}", status.state)
}

/// How much of the job's output has been shown.
struct Log {
    position: u64,
}

impl Log {
    fn show(&mut self, status: &JobStatus, tell: &mut dyn FnMut(Told<'_>)) -> std::io::Result<()> {
        let Some(path) = &status.log else { return Ok(()) };
        // It appears when the job starts, and on another machine a little later.
        let Ok(mut file) = std::fs::File::open(path) else { return Ok(()) };
        if file.metadata()?.len() < self.position {
            // A requeued job begins its output anew.
            self.position = 0;
        }
        file.seek(SeekFrom::Start(self.position))?;
        let mut piece = vec![0; 64 << 10];
        loop {
            match file.read(&mut piece)? {
                0 => return Ok(()),
                count => {
                    self.position += count as u64;
                    tell(Told::Output(&piece[..count]));
                }
            }
        }
    }
}

/// A job as `scontrol show job --oneliner` tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct JobStatus {
    id: String,
    /// `PENDING`, `RUNNING`, `COMPLETED`, ...
    state: String,
    /// Why it waits, or how it ended: `Resources`, `NonZeroExitCode`.
    reason: String,
    nodes: String,
    exit: (u8, u8),
    /// Where it writes.
    log: Option<String>,
}

impl JobStatus {
    /// One line per job, `Name=value` with blanks between: `JobId=7 JobName=train ... JobState=RUNNING ...`
    fn parse(line: &str) -> Option<JobStatus> {
        let field = |name: &str| {
            line.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('=')).map(str::to_owned)
        };
        let exit = field("ExitCode")?;
        let (code, signal) = exit.split_once(':')?;
        Some(JobStatus {
            id: field("JobId")?,
            state: field("JobState")?,
            reason: field("Reason").unwrap_or_default(),
            nodes: field("NodeList").filter(|nodes| nodes != "(null)").unwrap_or_default(),
            // 256 and more are Slurm's own; what matters is that it is not 0.
            exit: (code.parse::<u32>().ok()?.min(255) as u8, signal.parse::<u32>().ok()?.min(127) as u8),
            log: field("StdOut").filter(|log| log.starts_with('/')),
        })
    }

    /// True if nothing more will happen to it, unless somebody requeues it.
    fn is_over(&self) -> bool {
        // COMPLETING is the way there; a requeued job is PENDING or REQUEUED again.
        const OVER: [&str; 10] = [
            "BOOT_FAIL",
            "CANCELLED",
            "COMPLETED",
            "DEADLINE",
            "FAILED",
            "NODE_FAIL",
            "OUT_OF_MEMORY",
            "PREEMPTED",
            "REVOKED",
            "TIMEOUT",
        ];
        OVER.contains(&self.state.as_str())
    }

    /// 0 for success alone: the job's own code, 128 and more for a signal, 1 where Slurm knows neither.
    fn code(&self) -> u8 {
        match (self.state.as_str(), self.exit) {
            ("COMPLETED", _) => 0,
            (_, (0, 0)) => 1,
            (_, (0, signal)) => 128 + signal,
            (_, (code, _)) => code,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_slurm_says_of_a_job() {
        let line = "JobId=7 JobName=train UserId=me(1000) JobState=FAILED Reason=NonZeroExitCode Dependency=(null) Requeue=1 ExitCode=3:0 NodeList=n[01-02] BatchHost=n01 StdOut=/home/me/slurm-7.out Power=";
        let status = JobStatus::parse(line).unwrap();
        assert_eq!((status.id.as_str(), status.state.as_str(), status.code()), ("7", "FAILED", 3));
        assert_eq!(
            (status.nodes.as_str(), status.log.as_deref()),
            ("n[01-02]", Some("/home/me/slurm-7.out"))
        );
        assert!(status.is_over());
        let code = |state: &str, exit: &str| {
            let line = format!("JobId=1 JobState={state} ExitCode={exit}");
            JobStatus::parse(&line).map(|status| (status.is_over(), status.code()))
        };
        assert_eq!(code("COMPLETED", "0:0"), Some((true, 0)));
        assert_eq!(code("CANCELLED", "0:15"), Some((true, 143)));
        assert_eq!(code("TIMEOUT", "0:0"), Some((true, 1)));
        assert_eq!(code("RUNNING", "0:0"), Some((false, 1)));
        assert_eq!(code("NODE_FAIL", "300:0"), Some((true, 255)));
        for rubbish in ["", "JobId=1", "JobId=1 JobState=X ExitCode=x", "JobId=1 JobState=X ExitCode=a:b"] {
            assert_eq!(JobStatus::parse(rubbish), None, "{rubbish}");
        }
    }
}
