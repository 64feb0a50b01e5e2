//! How every member ended, what came first, and the exit code that follows.

use crate::names::Name;
use crate::plan::Member;
use serde::{Deserialize, Serialize, Serializer};

/// How a member's process ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    /// By itself, with this exit code.
    Exited(u8),
    /// By this signal.
    Killed(i32),
    /// It could not be started; why.
    NotStarted(String),
    /// Its agent failed before it could be started.
    AgentFailed {
        /// That agent's exit code.
        code: u8,
        /// Its error.
        why: String,
    },
    /// Its agent is gone, and with it all knowledge; why.
    Lost(String),
}

/// How a member's process ended, with what may explain it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ended {
    /// How.
    pub end: End,
    /// How long it ran; 0 without a process.
    pub seconds: f64,
    /// The most memory that it had, or one of the children it waited for; 0 if unknown.
    pub peak_kib: u64,
    /// Its last lines on stderr.
    pub tail: Vec<String>,
    /// What it wrote to `RALLYPOINT_ERROR_FILE`.
    pub reason: Option<String>,
}

impl Ended {
    /// An end without a process: nothing ran, or nobody knows how it went.
    pub(crate) fn without_process(end: End) -> Ended {
        Ended { end, seconds: 0.0, peak_kib: 0, tail: Vec::new(), reason: None }
    }
}

/// Exit codes of rallypoint itself, so that a script can tell them from a member's: above what a shell says of
/// signals (128 to 192), and far from `sysexits.h` (64 to 78), which programs use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnCode {
    /// The members did not all meet in time, or one was refused.
    MeetingFailed,
    /// The leader was lost, and this member was stopped.
    LeaderLost,
    /// Another member's agent was lost.
    MemberLost,
    /// A signal to rallypoint has ended the job.
    Interrupted,
    /// A member's program could not be started, or its port could not be had.
    NotStarted,
    /// The agent itself was killed, and its guard has ended the members.
    AgentLost,
    /// All members succeeded, but output could not be written.
    OutputLost,
}

/// What the job came to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// All who decide have ended with 0.
    Success,
    /// The first failure, by time.
    Failed(Failure),
    /// A signal ended it.
    Interrupted(i32),
    /// All went well, but output is lost.
    OutputLost,
}

/// Output that could not be written, by file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostOutput {
    /// A file, or `standard output`; with its host, where another agent has told.
    pub path: String,
    /// How many bytes are lost; 0 if nobody knows.
    pub bytes: u64,
    /// What the system says.
    pub why: String,
}

/// What a leader tells everyone at the end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Farewell {
    /// How the job went; the member whose failure it is, and its host.
    Over {
        /// What it came to.
        verdict: Verdict,
        /// Whose failure it is.
        first: Option<Name>,
        /// Where that one ran.
        host: Option<String>,
        /// What could not be written.
        lost: Vec<LostOutput>,
    },
    /// It did not come to a job: the leader's own error.
    Error(String),
}

/// How a job ended, as far as an agent knows: what running it returns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// This agent has decided for all members.
    Whole(Whole),
    /// Another agent has decided.
    Part {
        /// The exit code that it told, or what became of this agent without it.
        code: u8,
        /// What it said, if it could.
        farewell: Option<Farewell>,
    },
}

/// How all members of a job ended.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Whole {
    /// The scheduler's attempt, from 0.
    pub attempt: u32,
    /// How every member ended, by rank.
    pub members: Vec<MemberOutcome>,
    /// What it came to.
    pub verdict: Verdict,
    /// What could not be written.
    pub lost: Vec<LostOutput>,
    /// Processes that members had left behind, and that were ended.
    pub left_behind: usize,
}

impl Outcome {
    /// True if the job has succeeded.
    pub fn is_success(&self) -> bool {
        self.code() == 0
    }

    /// The exit code that follows.
    pub fn code(&self) -> u8 {
        match self {
            Outcome::Whole(whole) => whole.verdict.code(),
            Outcome::Part { code, .. } => *code,
        }
    }
}

impl Whole {
    /// The member that has failed first, with how.
    pub fn first_failure(&self) -> Option<(&MemberOutcome, &Failure)> {
        match &self.verdict {
            Verdict::Failed(failure) => Some((self.members.get(failure.rank as usize)?, failure)),
            Verdict::Success | Verdict::Interrupted(_) | Verdict::OutputLost => None,
        }
    }

    /// What everyone is told.
    pub(crate) fn farewell(&self) -> Farewell {
        let first = self.first_failure().map(|(member, _)| member);
        Farewell::Over {
            verdict: self.verdict.clone(),
            first: first.map(|member| member.member.clone()),
            host: first.and_then(|member| member.host.clone()),
            lost: self.lost.clone(),
        }
    }
}

/// With the exit code and whose it is, for those who read no more.
impl Serialize for Whole {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Shown<'a> {
            code: u8,
            from: &'static str,
            attempt: u32,
            verdict: &'a Verdict,
            members: &'a [MemberOutcome],
            lost: &'a [LostOutput],
            left_behind: usize,
        }
        Shown {
            code: self.verdict.code(),
            from: if self.verdict.is_own_code() { "rallypoint" } else { "member" },
            attempt: self.attempt,
            verdict: &self.verdict,
            members: &self.members,
            lost: &self.lost,
            left_behind: self.left_behind,
        }
        .serialize(serializer)
    }
}

/// The first failure and what may explain it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// Whose it is.
    pub rank: u32,
    /// Its process, if it had one.
    pub pid: Option<u32>,
    /// How it ended.
    pub ended: Ended,
}

/// How one member ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MemberOutcome {
    /// Who.
    #[serde(flatten)]
    pub member: Name,
    /// Where, if that is known.
    pub host: Option<String>,
    /// Its last process, if it had one.
    pub pid: Option<u32>,
    /// How it ended; nothing if it was never started.
    pub ended: Option<Ended>,
    /// rallypoint asked it to end.
    pub stopped: bool,
    /// It was a server without Python.
    pub served: bool,
    /// How often it was started again.
    pub restarts: u32,
}

impl MemberOutcome {
    /// One that is about to start.
    pub(crate) fn of(member: &Member, host: Option<&str>) -> MemberOutcome {
        MemberOutcome {
            member: Name::of(member),
            host: host.map(str::to_owned),
            pid: None,
            ended: None,
            stopped: false,
            served: false,
            restarts: 0,
        }
    }
}

impl End {
    /// True for exit code 0.
    pub fn is_success(&self) -> bool {
        *self == End::Exited(0)
    }

    /// What a shell would say: the code, or 128 + n for a signal.
    pub(crate) fn code(&self) -> u8 {
        match self {
            End::Exited(code) => *code,
            End::Killed(signal) => 128u8.saturating_add(u8::try_from(*signal).unwrap_or(0)),
            End::NotStarted(_) => OwnCode::NotStarted.code(),
            End::AgentFailed { code, .. } => *code,
            End::Lost(_) => OwnCode::MemberLost.code(),
        }
    }
}

impl OwnCode {
    /// All of them, by number.
    pub const ALL: [OwnCode; 7] = [
        OwnCode::MeetingFailed,
        OwnCode::LeaderLost,
        OwnCode::MemberLost,
        OwnCode::Interrupted,
        OwnCode::NotStarted,
        OwnCode::AgentLost,
        OwnCode::OutputLost,
    ];

    /// The number, 193 to 199.
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
}

impl Verdict {
    /// The exit code that follows.
    pub fn code(&self) -> u8 {
        match self {
            Verdict::Success => 0,
            Verdict::Failed(failure) => failure.ended.end.code(),
            Verdict::Interrupted(_) => OwnCode::Interrupted.code(),
            Verdict::OutputLost => OwnCode::OutputLost.code(),
        }
    }

    /// True if the exit code is one of rallypoint's own, not a member's.
    pub fn is_own_code(&self) -> bool {
        match self {
            Verdict::Success => false,
            Verdict::Failed(failure) => !matches!(failure.ended.end, End::Exited(_) | End::Killed(_)),
            Verdict::Interrupted(_) | Verdict::OutputLost => true,
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
