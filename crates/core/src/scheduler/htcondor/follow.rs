//! What happens to a job after it was handed in, and why it failed.

use super::description::{Request, Universe};
use super::failure::{self, Words};
use super::user_log::{Change, State, UserLog};
use crate::hint;
use crate::hint::{Hint, Hinted};
use crate::plan::Plan;
use crate::scheduler::submit::{SubmitError, Told};
use std::io::{Read, Seek, SeekFrom};
use std::time::{Duration, Instant};
use thiserror::Error;

/// How often the user log is looked at. It is a file of this machine.
const BETWEEN_LOOKS: Duration = Duration::from_millis(500);
/// The log is made with the job.
const LOG_APPEARS: Duration = Duration::from_secs(30);
/// How often one that waits is told that nothing has changed.
const REMINDER: Duration = Duration::from_secs(300);
/// How much of a member's stderr is looked through for the reason of a failure.
const LAST_BYTES: u64 = 256 << 10;

#[derive(Debug, Error)]
#[error("{log} cannot be read: {source}")]
struct NoLog {
    log: String,
    cluster: String,
    source: std::io::Error,
}

impl Hinted for NoLog {
    fn hint(&self) -> Option<Hint> {
        Some(hint!(format!("condor_q tells how cluster {} is", self.cluster)))
    }
}

/// Tells what happens to each member, until all have ended. Ctrl-C leaves the job running.
pub(super) fn follow(
    cluster: &str,
    request: &Request,
    plan: &Plan,
    tell: &mut dyn FnMut(Told<'_>),
) -> Result<u8, SubmitError> {
    let mut say = |line: String| tell(Told::Line(line));
    let parallel = request.universe == Universe::Parallel;
    let path = request.log(cluster);
    let mut log = UserLog::new(request.members, parallel);
    let who = |number: u32| {
        // A log may tell of more than were submitted.
        let member = plan.member(number).map_or_else(|| "an unknown member".to_owned(), ToString::to_string);
        match parallel {
            true => format!("{member} (node {number})"),
            false => format!("{member} ({cluster}.{number})"),
        }
    };
    let started = Instant::now();
    let mut position = 0;
    let mut told = Instant::now();
    say(summary(&log, &who));
    loop {
        let changes = match read_from(&path, &mut position) {
            Ok(text) => log.read(&text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && started.elapsed() < LOG_APPEARS => {
                Vec::new()
            }
            Err(source) => {
                return Err(NoLog { log: path, cluster: cluster.to_owned(), source }.into());
            }
        };
        for change in &changes {
            say(line(change, &who));
        }
        if !changes.is_empty() || told.elapsed() > REMINDER {
            say(summary(&log, &who));
            told = Instant::now();
        }
        if log.is_over() {
            if log.code() != 0 {
                tell_why(cluster, request, &log, &who, &mut say);
            }
            return Ok(log.code());
        }
        std::thread::sleep(BETWEEN_LOOKS);
    }
}

/// The first failure with its lines, as far as an agent has written them, and where the rest stands.
fn tell_why(
    cluster: &str,
    request: &Request,
    log: &UserLog,
    who: &dyn Fn(u32) -> String,
    say: &mut dyn FnMut(String),
) {
    let told = log.states.iter().map(|(&member, state)| {
        let code = match state {
            State::Ended(code) => Some(*code),
            _ => None,
        };
        (member, code, failure::words_of(&end_of(&request.output(cluster, member, "err"))))
    });
    if let Some((member, told)) = failure::best(told.collect()) {
        let (headline, lines) = match told {
            Words::Failure(lines) => (None, lines),
            Words::Error(lines) => (Some(format!("{} says:", who(member))), lines),
            Words::Last(lines) => (Some(format!("the last lines of {}:", who(member))), lines),
        };
        let indent = if headline.is_some() { "  | " } else { "" };
        headline.into_iter().for_each(&mut *say);
        lines.iter().for_each(|line| say(format!("{indent}{line}")));
    }
    let (errors, output) = (request.output(cluster, "*", "err"), request.output(cluster, "*", "out"));
    say(format!(
        "what the members wrote: {output} and {errors}; what HTCondor did: {}",
        request.log(cluster)
    ));
}

/// The last part of a file; nothing if it cannot be read.
fn end_of(path: &str) -> String {
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file = std::fs::File::open(path)?;
        let from = file.metadata()?.len().saturating_sub(LAST_BYTES);
        file.seek(SeekFrom::Start(from))?;
        let mut bytes = Vec::new();
        file.take(LAST_BYTES).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    String::from_utf8_lossy(&read().unwrap_or_default()).into_owned()
}

/// What was written since the last time.
fn read_from(path: &str, position: &mut u64) -> std::io::Result<String> {
    let mut file = std::fs::File::open(path)?;
    file.seek(SeekFrom::Start(*position))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    *position += bytes.len() as u64;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// `worker 0 (12.1) has landed on ex2.lab`
fn line(change: &Change, who: &dyn Fn(u32) -> String) -> String {
    let member = who(change.member);
    match &change.state {
        State::Idle if change.evicted => format!("{member} was evicted, and waits for a host again"),
        State::Idle => format!("{member} waits for a host"),
        State::Running(host) => format!("{member} has landed on {host}"),
        State::Held(why) => format!("{member} is held: {why}"),
        State::Disconnected => format!("{member} does not answer; HTCondor tries to reach its host"),
        State::Ended(code) => format!("{member} has ended with {code}"),
        State::Removed => format!("{member} was removed"),
    }
}

/// `1 idle (worker 1 (12.2)), 2 landed, 0 ended`
fn summary(log: &UserLog, who: &dyn Fn(u32) -> String) -> String {
    let count = |matches: fn(&State) -> bool| log.states.values().filter(|state| matches(state)).count();
    let idle: Vec<String> = log
        .states
        .iter()
        .filter(|(_, state)| matches!(state, State::Idle | State::Held(_)))
        .map(|(member, _)| who(*member))
        .collect();
    let named = match idle.len() {
        0 => String::new(),
        1..=8 => format!(": {}", idle.join(", ")),
        more => format!(": {}, and {} more", idle[..8].join(", "), more - 8),
    };
    let landed = count(|state| matches!(state, State::Running(_) | State::Disconnected));
    let ended = count(|state| matches!(state, State::Ended(_) | State::Removed));
    format!("{landed} landed, {ended} ended, {} not on a host{named}", idle.len())
}
