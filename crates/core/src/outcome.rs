//! How every member ended, what came first, and the exit code that follows.

use crate::plan::{Member, Plan};
use crate::rendezvous::message::Ended;
use crate::roles::Role;
use crate::signal;
use serde::{Deserialize, Serialize};
use std::fmt;

/// How a member's process ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    Exited(u8),
    Killed(i32),
    /// It could not be started; why.
    NotStarted(String),
    /// Its agent is gone, and with it all knowledge; why.
    Lost(String),
}

/// Exit codes of rallypoint itself, so that a script can tell them from a member's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnCode {
    MeetingFailed,
    LeaderLost,
    MemberLost,
    Interrupted,
    NotStarted,
    AgentLost,
}

/// What the job came to.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    Success,
    /// The first failure, by time.
    Failed(Failure),
    /// A signal ended it.
    Interrupted(i32),
}

/// The first failure and what may explain it.
#[derive(Debug, Clone, PartialEq)]
pub struct Failure {
    pub rank: u32,
    pub pid: Option<u32>,
    pub ended: Ended,
}

/// One member's row in the closing table.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MemberOutcome {
    pub pid: Option<u32>,
    pub ended: Option<Ended>,
    /// rallypoint asked it to end.
    pub stopped: bool,
    /// It was a server without Python.
    pub served: bool,
    pub restarts: u32,
}

impl End {
    pub fn is_success(&self) -> bool {
        *self == End::Exited(0)
    }

    /// What a shell would say: the code, or 128 + n for a signal.
    pub fn code(&self) -> u8 {
        match self {
            End::Exited(code) => *code,
            End::Killed(signal) => 128u8.saturating_add(u8::try_from(*signal).unwrap_or(0)),
            End::NotStarted(_) => OwnCode::NotStarted.code(),
            End::Lost(_) => OwnCode::MemberLost.code(),
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::Exited(code) => write!(f, "exit code {code}"),
            End::Killed(signal) => write!(f, "killed by {}", signal::name(*signal)),
            End::NotStarted(why) => write!(f, "not started: {why}"),
            End::Lost(why) => write!(f, "lost: {why}"),
        }
    }
}

impl OwnCode {
    pub const ALL: [OwnCode; 6] = [
        OwnCode::MeetingFailed,
        OwnCode::LeaderLost,
        OwnCode::MemberLost,
        OwnCode::Interrupted,
        OwnCode::NotStarted,
        OwnCode::AgentLost,
    ];

    pub fn code(self) -> u8 {
        match self {
            OwnCode::MeetingFailed => 64,
            OwnCode::LeaderLost => 65,
            OwnCode::MemberLost => 66,
            OwnCode::Interrupted => 67,
            OwnCode::NotStarted => 68,
            OwnCode::AgentLost => 69,
        }
    }

    pub fn meaning(self) -> &'static str {
        match self {
            OwnCode::MeetingFailed => "`run`: the members did not all meet in time, or one was refused",
            OwnCode::LeaderLost => "`run`: the leader was lost; this member was stopped",
            OwnCode::MemberLost => "`run`: another member's agent was lost",
            OwnCode::Interrupted => "`run`: ended by a signal to rallypoint, Ctrl-C included",
            OwnCode::NotStarted => {
                "`run`, `serve`: a member's program or TensorFlow's server could not be started, or its port could not be had"
            }
            OwnCode::AgentLost => "`run`: the agent itself was killed; its members were ended",
        }
    }
}

impl Verdict {
    pub fn code(&self) -> u8 {
        match self {
            Verdict::Success => 0,
            Verdict::Failed(failure) => failure.ended.end.code(),
            Verdict::Interrupted(_) => OwnCode::Interrupted.code(),
        }
    }

    /// First failure first: a line that says who and how, then what may explain it.
    pub fn lines(&self, plan: &Plan) -> Vec<String> {
        match self {
            Verdict::Success => Vec::new(),
            Verdict::Interrupted(number) => vec![format!("interrupted by {}", signal::name(*number))],
            Verdict::Failed(failure) => {
                let member = &plan.members[failure.rank as usize];
                let host = plan.host(member).map(|host| format!(" on {host}")).unwrap_or_default();
                let pid = failure.pid.map(|pid| format!(", pid {pid}")).unwrap_or_default();
                let mut lines =
                    vec![format!("first failure: {}{host}{pid}: {}", name(member), failure.ended.end)];
                if let Some(reason) = &failure.ended.reason {
                    lines.push(format!("  its reason: {reason}"));
                }
                if !failure.ended.tail.is_empty() {
                    lines.push("  its last lines on stderr:".to_owned());
                    lines.extend(failure.ended.tail.iter().map(|line| format!("  | {line}")));
                }
                lines
            }
        }
    }
}

/// `worker 1`
pub fn name(member: &Member) -> String {
    role_name(&member.role, member.index)
}

pub fn role_name(role: &Role, index: u32) -> String {
    format!("{role} {index}")
}
