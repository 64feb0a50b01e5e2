//! How every member ended, what came first, and the exit code that follows.

use crate::advice;
use crate::plan::Plan;
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
    /// Its agent failed before it could be started: that agent's exit code, and why.
    AgentFailed {
        code: u8,
        why: String,
    },
    /// Its agent is gone, and with it all knowledge; why.
    Lost(String),
}

/// How a member's process ended, with what may explain it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ended {
    pub end: End,
    pub seconds: f64,
    pub peak_kib: u64,
    /// Its last lines on stderr.
    pub tail: Vec<String>,
    /// What it wrote to `RALLYPOINT_ERROR_FILE`.
    pub reason: Option<String>,
}

impl Ended {
    /// An end without a process: nothing ran, or nobody knows how it went.
    pub fn without_process(end: End) -> Ended {
        Ended { end, seconds: 0.0, peak_kib: 0, tail: Vec::new(), reason: None }
    }
}

/// Exit codes of rallypoint itself, so that a script can tell them from a member's: above what a shell says of
/// signals (128 to 192), and far from `sysexits.h` (64 to 78), which programs use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnCode {
    MeetingFailed,
    LeaderLost,
    MemberLost,
    Interrupted,
    NotStarted,
    AgentLost,
    OutputLost,
}

/// What the job came to.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    Success,
    /// The first failure, by time.
    Failed(Failure),
    /// A signal ended it.
    Interrupted(i32),
    /// All went well, but output is lost: which.
    OutputLost(Vec<String>),
}

/// How a job ended, as far as an agent knows: what running it returns.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// This agent has decided for all members.
    Whole {
        attempt: u32,
        /// How every member ended, by rank.
        members: Vec<MemberOutcome>,
        verdict: Verdict,
        /// Processes that members had left behind, and that were ended.
        left_behind: usize,
    },
    /// Another agent has decided; the exit code that it told, or what became of this agent without it.
    Part { code: u8 },
}

impl Outcome {
    /// The exit code that follows.
    pub fn code(&self) -> u8 {
        match self {
            Outcome::Whole { verdict, .. } => verdict.code(),
            Outcome::Part { code } => *code,
        }
    }
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
            End::AgentFailed { code, .. } => *code,
            End::Lost(_) => OwnCode::MemberLost.code(),
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::Exited(code) => write!(f, "exit code {code}"),
            End::Killed(signal) => write!(f, "killed by {}", signal::name(*signal)),
            End::NotStarted(why) | End::AgentFailed { why, .. } => write!(f, "not started: {why}"),
            End::Lost(why) => write!(f, "lost: {why}"),
        }
    }
}

impl OwnCode {
    pub const ALL: [OwnCode; 7] = [
        OwnCode::MeetingFailed,
        OwnCode::LeaderLost,
        OwnCode::MemberLost,
        OwnCode::Interrupted,
        OwnCode::NotStarted,
        OwnCode::AgentLost,
        OwnCode::OutputLost,
    ];

    pub fn code(self) -> u8 {
        match self {
            OwnCode::MeetingFailed => 193,
            OwnCode::LeaderLost => 194,
            OwnCode::MemberLost => 195,
            OwnCode::Interrupted => 196,
            OwnCode::NotStarted => 197,
            OwnCode::AgentLost => 198,
            OwnCode::OutputLost => 199,
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
            OwnCode::OutputLost => {
                "`run`: all members succeeded, but output could not be written; `--log-errors ignore` makes it 0"
            }
        }
    }
}

impl Verdict {
    pub fn code(&self) -> u8 {
        match self {
            Verdict::Success => 0,
            Verdict::Failed(failure) => failure.ended.end.code(),
            Verdict::Interrupted(_) => OwnCode::Interrupted.code(),
            Verdict::OutputLost(_) => OwnCode::OutputLost.code(),
        }
    }

    /// True if the exit code is one of rallypoint's own, not a member's.
    pub fn is_own_code(&self) -> bool {
        match self {
            Verdict::Success => false,
            Verdict::Failed(failure) => !matches!(failure.ended.end, End::Exited(_) | End::Killed(_)),
            Verdict::Interrupted(_) | Verdict::OutputLost(_) => true,
        }
    }

    /// `exit code 3, of worker 1`, or `exit code 196, rallypoint's own`: which of the two a script has seen.
    fn code_line(&self, plan: &Plan) -> Option<String> {
        let code = self.code();
        match self {
            Verdict::Success => None,
            Verdict::Failed(failure) if !self.is_own_code() => {
                let member = &plan.members()[failure.rank as usize];
                Some(format!("the job ends with exit code {code}, that of {member}"))
            }
            _ => Some(format!("the job ends with exit code {code}, one of rallypoint's own")),
        }
    }

    /// First failure first: a line that says who and how, then what may explain it.
    pub fn lines(&self, plan: &Plan) -> Vec<String> {
        let mut lines = self.reasons(plan);
        lines.extend(self.code_line(plan));
        lines
    }

    fn reasons(&self, plan: &Plan) -> Vec<String> {
        match self {
            Verdict::Success => Vec::new(),
            Verdict::OutputLost(lost) => {
                let hint = "the members succeeded, but not all output, log files and events were kept; --log-errors ignore ends such a job with 0";
                lost.iter().cloned().chain([hint.to_owned()]).collect()
            }
            Verdict::Interrupted(number) => vec![format!("interrupted by {}", signal::name(*number))],
            Verdict::Failed(failure) => {
                let member = &plan.members()[failure.rank as usize];
                let host = plan.host(member).map(|host| format!(" on {host}")).unwrap_or_default();
                let pid = failure.pid.map(|pid| format!(", pid {pid}")).unwrap_or_default();
                let mut lines = vec![format!("first failure: {}{host}{pid}: {}", member, failure.ended.end)];
                if let Some(reason) = &failure.ended.reason {
                    lines.push(format!("  its reason: {reason}"));
                }
                if !failure.ended.tail.is_empty() {
                    lines.push("  its last lines on stderr:".to_owned());
                    lines.extend(failure.ended.tail.iter().map(|line| format!("  | {line}")));
                }
                if let Some(advice) = advice::for_last_lines(&failure.ended.tail) {
                    lines.push(format!("  hint: {advice}"));
                }
                lines
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::OwnCode;

    #[test]
    fn no_program_and_no_signal_has_a_code_of_ours() {
        let mut codes = OwnCode::ALL.map(OwnCode::code);
        for code in codes {
            assert!(!(64..=78).contains(&code), "{code} is one of sysexits.h");
            assert!(!(128..=192).contains(&code), "{code} is what a shell says of a signal");
            assert!(code > 2 && !(124..=127).contains(&code) && code != 255, "{code} is in common use");
        }
        codes.sort_unstable();
        assert!(codes.windows(2).all(|pair| pair[0] != pair[1]), "{codes:?}");
    }
}
