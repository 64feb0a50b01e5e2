//! Servers that stand in for members that have finished.
//!
//! A session of TensorFlow 1 that was opened without device filters waits for every member of its cluster, also for
//! those who have finished: a worker that comes late hangs for ever. So `rallypoint serve` is started at the
//! finished member's address, with its variables, and answers until the job is over. It is no member: its end
//! changes nothing, and what it says is not shown.
//!
//! Who is stood in for is decided in `job`; here it is done, by the agent that has run the member.

use super::member::{Happened, Launch};
use crate::devices::MASKS;
use crate::process::calls;
use crate::process::limits::DescriptorLimit;
use crate::process::spawn::{self, Program, Streams};
use crate::serve::find::NOT_FOUND;
use crate::serve::{self, mapped};
use crate::variables as var;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Others often end a moment later, and then nobody is needed.
const PAUSE: Duration = Duration::from_secs(2);
/// How often a port that is still in use is looked at: a child of the finished member may listen there.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// How long that may last.
const PATIENCE: Duration = Duration::from_secs(60);
/// A server that has run for so long did serve. If it is killed, another is started.
const SERVED: Duration = Duration::from_secs(30);
/// A process that was killed is gone after this time, whatever its memory.
const LEAVING: Duration = Duration::from_secs(2);
/// The most that is read of what a server said before it ended.
const MAX_WORDS: u64 = 4000;

/// How a server that stands in is started: `rallypoint serve OPTIONS --tensorflow DIR -- COMMAND`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StandInCommand {
    /// `rallypoint serve OPTIONS`
    pub(crate) serve: Vec<OsString>,
    /// Where the user says that TensorFlow is.
    pub(crate) tensorflow: Option<PathBuf>,
    /// The members' own, by which TensorFlow is looked for where nothing else is known.
    pub(crate) command: Vec<OsString>,
}

impl StandInCommand {
    fn words(&self) -> Vec<OsString> {
        let mut words = self.serve.clone();
        words.extend(self.tensorflow.iter().flat_map(|folder| ["--tensorflow".into(), folder.into()]));
        words.push("--".into());
        words.extend(self.command.iter().cloned());
        words
    }
}

/// The servers of this agent's members.
#[derive(Debug, Default)]
pub(super) struct StandIns {
    /// None where nobody is stood in for.
    command: Option<StandInCommand>,
    /// Where they write.
    folder: PathBuf,
    states: BTreeMap<u32, State>,
    /// Those that were ended, and have not been waited for.
    leaving: Vec<u32>,
    /// What is to be told.
    told: Vec<Happened>,
}

/// One of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// To be started as soon as its port is free.
    Wanted {
        since: Instant,
        look_at: Instant,
    },
    Running {
        pid: u32,
        since: Instant,
    },
    GivenUp,
}

impl State {
    fn wanted(now: Instant) -> State {
        State::Wanted { since: now, look_at: now + PAUSE }
    }

    /// Somebody else still has the port of one that is wanted.
    fn in_use(since: Instant, now: Instant) -> State {
        if now.saturating_duration_since(since) < PATIENCE {
            State::Wanted { since, look_at: now + LOOK_AGAIN }
        } else {
            State::GivenUp
        }
    }

    /// One that ran has ended by itself.
    fn ended(since: Instant, now: Instant) -> State {
        if now.saturating_duration_since(since) >= SERVED { State::wanted(now) } else { State::GivenUp }
    }
}

impl StandIns {
    pub(super) fn new(command: Option<StandInCommand>, folder: &Path) -> StandIns {
        StandIns { command, folder: folder.to_owned(), ..StandIns::default() }
    }

    /// Looks which TensorFlow these programs have loaded, if nobody knows yet where it is. While they run: a program
    /// that was started by a script tells nothing by its command, and one that has ended has nothing mapped.
    pub(super) fn learn_from(&mut self, programs: &[u32]) {
        if let Some(command) = self.command.as_mut().filter(|command| command.tensorflow.is_none()) {
            command.tensorflow = mapped::mapped_by(programs);
        }
    }

    /// A server is to stand in for this member, which has finished.
    pub(super) fn want(&mut self, rank: u32, now: Instant) {
        if self.command.is_some() {
            self.states.entry(rank).or_insert_with(|| State::wanted(now));
        }
    }

    /// When [`StandIns::poll`] wants to be called.
    pub(super) fn next_poll(&self) -> Option<Instant> {
        let look_at = |state: &State| match state {
            State::Wanted { look_at, .. } => Some(*look_at),
            _ => None,
        };
        self.states.values().filter_map(look_at).min()
    }

    /// Starts those that are due; tells of those that cannot be.
    pub(super) fn poll(
        &mut self,
        launches: &mut BTreeMap<u32, Launch>,
        descriptors: DescriptorLimit,
        now: Instant,
    ) -> Vec<Happened> {
        for (&rank, state) in &mut self.states {
            let (State::Wanted { since, look_at }, Some(command)) = (*state, &self.command) else { continue };
            let Some(launch) = launches.get_mut(&rank).filter(|_| look_at <= now) else { continue };
            let why = match spawn(&command.words(), launch, &self.folder, descriptors) {
                Ok(pid) => {
                    *state = State::Running { pid, since: now };
                    continue;
                }
                Err(NotStarted::PortInUse(why)) => {
                    *state = State::in_use(since, now);
                    why
                }
                Err(NotStarted::Other(error)) => {
                    *state = State::GivenUp;
                    error.to_string()
                }
            };
            if *state == State::GivenUp {
                self.told.push(Happened::NoStandIn { rank, why });
            }
        }
        std::mem::take(&mut self.told)
    }

    /// True if it is one of these that has ended.
    pub(super) fn note(&mut self, reaped: &calls::Reaped, now: Instant) -> bool {
        let is_it = |state: &State| matches!(state, State::Running { pid, .. } if *pid == reaped.pid);
        let Some((&rank, state)) = self.states.iter_mut().find(|(_, state)| is_it(state)) else {
            let before = self.leaving.len();
            self.leaving.retain(|pid| *pid != reaped.pid);
            return self.leaving.len() < before;
        };
        if let State::Running { since, .. } = *state {
            *state = State::ended(since, now);
        }
        if *state == State::GivenUp {
            let why = last_words(&words_file(&self.folder, rank));
            self.told.push(Happened::NoStandIn { rank, why });
        }
        true
    }

    /// Ends all of them at once, for good: they have nothing to save.
    pub(super) fn end(&mut self) {
        self.command = None;
        for state in std::mem::take(&mut self.states).into_values() {
            if let State::Running { pid, .. } = state {
                calls::kill(pid, libc::SIGKILL, true);
                self.leaving.push(pid);
            }
        }
    }

    /// Waits until they are gone, when nobody else is waited for any more: they are none of a member's leftovers.
    pub(super) async fn see_out(&mut self) {
        self.end();
        let until = Instant::now() + LEAVING;
        while !self.leaving.is_empty() && Instant::now() < until {
            match calls::reap() {
                Some(reaped) => _ = self.note(&reaped, until),
                None => tokio::time::sleep(Duration::from_millis(1)).await,
            }
        }
    }
}

enum NotStarted {
    PortInUse(String),
    Other(std::io::Error),
}

impl From<std::io::Error> for NotStarted {
    fn from(error: std::io::Error) -> NotStarted {
        NotStarted::Other(error)
    }
}

fn words_file(folder: &Path, rank: u32) -> PathBuf {
    folder.join(format!("stand-in-{rank}"))
}

fn spawn(
    words: &[OsString],
    launch: &mut Launch,
    folder: &Path,
    descriptors: DescriptorLimit,
) -> Result<u32, NotStarted> {
    let reuse_port = launch.variables.iter().any(|(name, _)| name == var::TF_GRPC_REUSE_PORT);
    if let Some(port) = &mut launch.port {
        port.open()?;
        if let Some(why) = serve::port_in_use(port.port(), reuse_port) {
            port.close();
            return Err(NotStarted::PortInUse(why));
        }
    }
    let file = File::create(words_file(folder, launch.rank))?;
    let program = Program::new(words)
        .without(launch.withheld)
        .variables(launch.variables.iter().map(|(name, value)| (name, value)))
        // The devices are free for others, now that the member is done.
        .variables(MASKS.map(|mask| (mask, "")));
    let nothing = File::options().read(true).write(true).open("/dev/null")?;
    let streams = Streams { stdin: nothing.as_fd(), stdout: nothing.as_fd(), stderr: file.as_fd() };
    let spawned = spawn::spawn(&program, streams, descriptors);
    if let (Err(_), Some(port)) = (&spawned, &mut launch.port) {
        port.close();
    }
    Ok(spawned?)
}

/// Whether nobody can stand in because TensorFlow was not found.
pub(super) fn is_not_found(why: &str) -> bool {
    why.starts_with(NOT_FOUND)
}

/// The error that a server ended with, in a line.
fn last_words(file: &Path) -> String {
    let mut bytes = Vec::new();
    if let Ok(file) = File::open(file) {
        _ = file.take(MAX_WORDS).read_to_end(&mut bytes);
    }
    let text = String::from_utf8_lossy(&bytes);
    let lines = || text.lines().map(str::trim).filter(|line| !line.is_empty());
    let error = lines().find_map(|line| line.strip_prefix("error: ")).or_else(|| lines().next_back());
    error.unwrap_or("it has ended without a word").chars().filter(|c| !c.is_control()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_is_still_in_use_is_waited_for() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(State::wanted(start), State::Wanted { since: start, look_at: after(2) });
        assert_eq!(State::in_use(start, after(2)), State::Wanted { since: start, look_at: after(3) });
        assert_eq!(State::in_use(start, after(59)), State::Wanted { since: start, look_at: after(60) });
        assert_eq!(State::in_use(start, after(60)), State::GivenUp);
    }

    #[test]
    fn a_server_that_has_served_is_replaced_and_one_that_cannot_is_not() {
        let start = Instant::now();
        assert_eq!(State::ended(start, start + Duration::from_secs(1)), State::GivenUp);
        let later = start + Duration::from_secs(90);
        assert_eq!(State::ended(start, later), State::wanted(later));
    }

    #[test]
    fn nobody_is_wanted_where_nobody_can_be_started() {
        let mut none = StandIns::new(None, Path::new("/no/such"));
        none.want(1, Instant::now());
        assert_eq!(none.next_poll(), None);
        let command =
            StandInCommand { serve: vec!["true".into()], tensorflow: None, command: vec!["x".into()] };
        assert_eq!(command.words(), ["true", "--", "x"]);
        let found = StandInCommand { tensorflow: Some("/tf".into()), ..command.clone() };
        assert_eq!(found.words(), ["true", "--tensorflow", "/tf", "--", "x"]);
        let mut ended = StandIns::new(Some(command), Path::new("/no/such"));
        ended.want(1, Instant::now());
        assert!(ended.next_poll().is_some());
        ended.end();
        ended.want(2, Instant::now());
        assert_eq!(ended.next_poll(), None, "the job is over");
    }
}
