//! Everything that happens in a run, as it happens: facts with ranks and numbers, never a sentence.
//!
//! There is one stream. The terminal's talk, `--events FILE`, Python's callbacks and every view subscribe to it; the
//! words that people read are theirs. `docs/reference/events.md` describes the JSON of each.

mod obstacle;
pub mod samples;
mod seconds;
mod silent;

pub use obstacle::Obstacle;
pub use silent::{LastWriter, Silent, Suspicion};

use crate::names::{Name, Names};
use crate::outcome::{End, Ended, Farewell, MemberOutcome, Whole};
use crate::rehearsal::{Deed, Planned};
use crate::roster::Roster;
use seconds::{in_seconds, maybe_in_seconds};
use serde::{Deserialize, Serialize};
use std::time::{Duration, SystemTime};

/// Something that has happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum RunEvent {
    /// This agent looks for the others.
    Meeting {
        /// The way to meet, such as `directory /scratch/meet`.
        way: String,
    },
    /// The scheduler has started this member before, and would not start the others again.
    RanBefore {
        /// How often.
        runs: u32,
    },
    /// No leader was found so far.
    Searching {
        /// Why not.
        obstacle: Obstacle,
        /// How much of the whole wait is over.
        #[serde(flatten)]
        waited: Waited,
    },
    /// The leader is gone before all have come, and this agent takes its place.
    LeaderGone {
        /// Who it was.
        leader: String,
        /// How that is known.
        why: String,
    },
    /// Some have come, and others have not.
    Waiting {
        /// How many have come.
        come: u32,
        /// How many there will be.
        world: u32,
        /// Who has not; nothing while not even the first of a step has come.
        missing: Option<Names>,
        /// How much of the whole wait is over.
        #[serde(flatten)]
        waited: Waited,
    },
    /// A member has come.
    Came {
        /// Who.
        #[serde(flatten)]
        member: Name,
    },
    /// One that had come is lost before all have.
    LostWhileWaiting {
        /// Who.
        #[serde(flatten)]
        member: Name,
        /// How that is known.
        why: String,
    },
    /// Somebody who is none of ours was turned away.
    Stranger {
        /// From where it came.
        peer: String,
        /// What was wrong with it.
        why: String,
    },
    /// Many of them were.
    Strangers {
        /// How many since the last such event.
        count: u64,
        /// How many for which reason; no reason stands for all further ones.
        reasons: Vec<(Option<String>, u64)>,
        /// From where the last one came.
        last_peer: String,
    },
    /// One of ours does not fit.
    Refused {
        /// From where it came.
        peer: String,
        /// What does not fit.
        why: String,
    },
    /// The leader that has taken our offer says nothing.
    LeaderSilent {
        /// Who it is.
        leader: String,
        /// For how long.
        #[serde(with = "in_seconds")]
        silent: Duration,
        /// How much of the whole wait is over.
        #[serde(flatten)]
        waited: Waited,
    },
    /// The leader is lost before all had come, and those that have come meet again.
    LeaderLost {
        /// How that is known.
        why: String,
    },
    /// The attempt that ran when this agent came has ended without it.
    AttemptOver {
        /// With which exit code.
        code: u8,
        /// What its leader said.
        farewell: Farewell,
        /// This agent meets the others for the next one.
        meets_again: bool,
    },
    /// The step of a launcher is being started.
    StepStarting {
        /// The launcher's command, without that of the members.
        command: Vec<String>,
    },
    /// All members have come.
    Gathered {
        /// How many there are.
        world: u32,
        /// How long the leader waited.
        #[serde(with = "in_seconds")]
        seconds: Duration,
    },
    /// Everyone's address.
    Roster {
        /// By rank.
        members: Vec<RosterEntry>,
    },
    /// Something that a person should know about the members' variables.
    Note {
        /// What it is.
        text: String,
    },
    /// All have come, and the members start.
    Begun {
        /// How many.
        world: u32,
        /// On how many hosts.
        hosts: u32,
        /// Until the scheduler's time limit.
        #[serde(with = "maybe_in_seconds")]
        left: Option<Duration>,
    },
    /// All have come, and this agent's own member starts; another agent leads.
    Joined {
        /// Which member it is.
        #[serde(flatten)]
        member: Name,
    },
    /// A member's process runs.
    Started {
        /// Who.
        #[serde(flatten)]
        member: Name,
        /// Where.
        host: String,
        /// Its process there.
        pid: u32,
        /// It is a server without Python.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        served: bool,
    },
    /// A member listens on its port.
    Listening {
        /// Who.
        #[serde(flatten)]
        member: Name,
    },
    /// A member has ended with 0.
    Finished {
        /// Who.
        #[serde(flatten)]
        member: Name,
        /// How.
        #[serde(flatten)]
        ended: Figures,
    },
    /// A member has ended otherwise, by itself.
    Failed {
        /// Who.
        #[serde(flatten)]
        member: Name,
        /// How.
        end: End,
        /// What a shell would say.
        code: u8,
        /// What it took.
        #[serde(flatten)]
        ended: Figures,
    },
    /// A member has ended because it was asked to.
    Stopped {
        /// Who.
        #[serde(flatten)]
        member: Name,
        /// How.
        end: End,
        /// What it took.
        #[serde(flatten)]
        ended: Figures,
    },
    /// A member has failed and is started again.
    Restarted {
        /// Who.
        #[serde(flatten)]
        member: Name,
    },
    /// A fault was done on purpose.
    Rehearsed {
        /// To whom.
        #[serde(flatten)]
        member: Name,
        /// What.
        deed: Deed,
        /// So long after the member's first start.
        #[serde(with = "in_seconds")]
        after: Duration,
        /// To which process: the member's first, or its agent.
        pid: u32,
    },
    /// A fault on purpose was never done.
    NotRehearsed {
        /// To whom.
        members: Names,
        /// What.
        deed: Deed,
        /// So long after the first start.
        #[serde(with = "in_seconds")]
        after: Duration,
        /// The job was over before; otherwise the member did not run.
        over: bool,
    },
    /// The scheduler has started a member a second time, while its job runs.
    StartedElsewhere {
        /// Who.
        #[serde(flatten)]
        member: Name,
        /// Where.
        host: String,
    },
    /// A signal asks this agent to end the job.
    Signal {
        /// Its number.
        signal: i32,
        /// It is the second one: everyone is killed.
        again: bool,
    },
    /// A signal has asked another member's agent.
    SignalElsewhere {
        /// Whose agent.
        #[serde(flatten)]
        member: Name,
        /// Its number.
        signal: i32,
    },
    /// The launcher has ended while its members were running.
    StepEnded {
        /// Which, such as `srun`.
        launcher: String,
        /// How.
        end: End,
    },
    /// The leader is lost while the job runs: this agent stops its member.
    LeaderLostWhileRunning {
        /// How that is known.
        why: String,
    },
    /// Some of those that decide have finished, and others run on; told every minute.
    RollCall {
        /// Who has finished.
        finished: Names,
        /// Who runs.
        running: Names,
    },
    /// Nobody has written anything for a while.
    Silent(Box<Silent>),
    /// All were asked to end, and some have not.
    Lingering {
        /// Who.
        members: Names,
        /// When they are killed.
        #[serde(with = "in_seconds")]
        kill_in: Duration,
        /// The job ends because of a signal.
        interrupted: bool,
    },
    /// Bytes that were to be written are lost.
    OutputLost {
        /// Of which file.
        path: String,
        /// How many so far.
        bytes: u64,
        /// What the system says.
        why: String,
        /// It was told before, of fewer bytes.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        again: bool,
    },
    /// The end of what members wrote could not be shown.
    NotShown,
    /// No server keeps the address of a member alive that has finished.
    NoStandIn {
        /// Whose.
        #[serde(flatten)]
        member: Name,
        /// What is in the way.
        why: String,
        /// It is that TensorFlow was not found.
        not_found: bool,
    },
    /// Processes that members had left behind were ended.
    LeftBehind {
        /// How many.
        count: usize,
    },
    /// A member asks that the whole job be run again.
    Requeued {
        /// Who.
        #[serde(flatten)]
        member: Name,
        /// The scheduler's id of the job.
        job: String,
    },
    /// The scheduler does not run the job again.
    NotRequeued {
        /// The scheduler's id of the job.
        job: String,
        /// What it says.
        why: String,
    },
    /// Nobody is left, and this is how it went. The last event of the agent that has decided.
    Over(Box<Whole>),
    /// The leader has told how it went. The last event of an agent that has followed.
    Told {
        /// The exit code for all.
        code: u8,
        /// What the leader said.
        farewell: Farewell,
    },
}

/// How much of a wait is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waited {
    /// So far.
    #[serde(with = "in_seconds")]
    pub waited: Duration,
    /// In all.
    #[serde(with = "in_seconds")]
    pub limit: Duration,
}

/// One member's address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RosterEntry {
    /// Who.
    #[serde(flatten)]
    pub member: Name,
    /// Its host, `?` if unknown.
    pub host: String,
    /// Where it listens, or may.
    pub address: String,
}

/// What a member's process took.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// How long it ran.
    pub seconds: f64,
    /// The most memory that it had.
    pub peak_kib: u64,
}

/// A line of a file of events.
#[derive(Serialize)]
struct Line<'a> {
    time: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    attempt: Option<u32>,
    #[serde(flatten)]
    event: &'a RunEvent,
}

impl RunEvent {
    /// As `--events` writes it: a JSON object on one line, with the time and the scheduler's attempt.
    pub fn line(&self, time: SystemTime, attempt: u32) -> serde_json::Result<String> {
        let time = time.duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64());
        // The last one tells the attempt itself.
        let attempt = (!matches!(self, RunEvent::Over(_))).then_some(attempt);
        serde_json::to_string(&Line { time, attempt, event: self })
    }

    /// Everyone's address.
    pub(crate) fn of_roster(roster: &Roster) -> RunEvent {
        let plan = roster.plan();
        let members = plan.members().iter().map(|member| RosterEntry {
            member: Name::of(member),
            host: plan.host(member).unwrap_or("?").to_owned(),
            address: roster.endpoint(member).to_string(),
        });
        RunEvent::Roster { members: members.collect() }
    }

    /// A fault on purpose whose time has come, and the process that it was done to.
    pub(crate) fn of_fault(member: Name, fault: &Planned, pid: Option<u32>) -> RunEvent {
        let Planned { deed, after, .. } = *fault;
        match pid {
            Some(pid) => RunEvent::Rehearsed { member, deed, after, pid },
            None => RunEvent::NotRehearsed { members: member.into(), deed, after, over: false },
        }
    }

    /// How a member ended; nothing while it has not.
    pub(crate) fn of_end(outcome: &MemberOutcome) -> Option<RunEvent> {
        let Ended { end, seconds, peak_kib, .. } = outcome.ended.as_ref()?;
        let (member, end) = (outcome.member.clone(), end.clone());
        let ended = Figures { seconds: *seconds, peak_kib: *peak_kib };
        Some(if end.is_success() {
            RunEvent::Finished { member, ended }
        } else if outcome.stopped {
            RunEvent::Stopped { member, end, ended }
        } else {
            RunEvent::Failed { member, code: end.code(), end, ended }
        })
    }
}
