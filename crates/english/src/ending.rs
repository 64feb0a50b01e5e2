//! How it ended: the verdict, the closing table, exit codes.

use crate::{English, advice};
use rallypoint::hint;
use rallypoint::hint::Setting;
use rallypoint::names::Name;
use rallypoint::outcome::{End, Failure, Farewell, LostOutput, MemberOutcome, OwnCode, Verdict, Whole};
use rallypoint::signal;
use rallypoint::supervise::guard::Watched;

/// A row of the closing table.
#[derive(Debug, Clone, PartialEq)]
pub struct ClosingRow {
    /// `worker 1`
    pub member: String,
    /// `?` where nobody knows.
    pub host: String,
    /// Its last process.
    pub pid: Option<u32>,
    /// `failed (exit code 3), restarted once`
    pub end: String,
    /// How long its process ran.
    pub seconds: Option<f64>,
    /// The most memory that it had.
    pub peak_kib: Option<u64>,
}

impl ClosingRow {
    /// How one member ended.
    pub fn of(outcome: &MemberOutcome) -> ClosingRow {
        let served = if outcome.served { "served, " } else { "" };
        let how = match &outcome.ended {
            None => "not started".to_owned(),
            Some(ended) if ended.end.is_success() && outcome.served => "served until stopped".to_owned(),
            Some(ended) if ended.end.is_success() => "finished".to_owned(),
            Some(ended) if outcome.stopped => format!("{served}stopped ({})", end(&ended.end)),
            Some(ended) => format!("{served}failed ({})", end(&ended.end)),
        };
        let restarts = match outcome.restarts {
            0 => String::new(),
            1 => ", restarted once".to_owned(),
            n => format!(", restarted {n} times"),
        };
        ClosingRow {
            member: outcome.member.to_string(),
            host: outcome.host.clone().unwrap_or_else(|| "?".to_owned()),
            pid: outcome.pid,
            end: format!("{how}{restarts}"),
            seconds: outcome.ended.as_ref().map(|ended| ended.seconds),
            peak_kib: outcome.ended.as_ref().map(|ended| ended.peak_kib),
        }
    }
}

/// `exit code 3`, `killed by SIGTERM`
pub fn end(end: &End) -> String {
    match end {
        End::Exited(code) => format!("exit code {code}"),
        End::Killed(number) => format!("killed by {}", signal::name(*number)),
        End::NotStarted(why) | End::AgentFailed { why, .. } => format!("not started: {why}"),
        End::Lost(why) => format!("lost: {why}"),
    }
}

/// What each of rallypoint's own exit codes means, for the page about them.
pub fn meaning(code: OwnCode) -> &'static str {
    match code {
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

/// What a guard has to say of its agent; nothing if that ended by itself.
pub fn watched(watched: &Watched) -> Option<String> {
    match watched {
        Watched::Ended(_) => None,
        Watched::Killed { agent, signal, left } => {
            let also = match left {
                0 => String::new(),
                1 => ", and 1 more process of the job was ended".to_owned(),
                left => format!(", and {left} more processes of the job were ended"),
            };
            let signal = signal::name(*signal);
            Some(format!("the agent (pid {agent}) was ended by {signal}; its members died with it{also}"))
        }
        Watched::Overdue { agent, limit } => Some(format!(
            "the agent (pid {agent}) did not end within {} s of being asked to; it was ended, and all of the job",
            limit.as_secs()
        )),
    }
}

/// Output that is lost.
pub(crate) fn lost(lost: &LostOutput) -> String {
    let LostOutput { path, bytes, why } = lost;
    match bytes {
        0 => format!("output is lost: {path}: {why}"),
        1 => format!("1 byte of output is lost: {path}: {why}"),
        bytes => format!("{bytes} bytes of output are lost: {path}: {why}"),
    }
}

/// What a verdict is told with.
struct Told<'a> {
    verdict: &'a Verdict,
    first: Option<&'a Name>,
    host: Option<&'a str>,
    lost: &'a [LostOutput],
}

impl English {
    /// First failure first: a line that says who and how, then what may explain it, and whose the exit code is.
    pub(crate) fn verdict(&self, whole: &Whole) -> Vec<String> {
        let first = whole.first_failure().map(|(member, _)| member);
        let told = Told {
            verdict: &whole.verdict,
            first: first.map(|member| &member.member),
            host: first.and_then(|member| member.host.as_deref()),
            lost: &whole.lost,
        };
        self.told(&told)
    }

    /// What a leader said, on one line: it says all of it itself, and of many agents everyone would.
    pub(crate) fn farewell(&self, farewell: &Farewell) -> Option<String> {
        let (verdict, first, host, lost) = match farewell {
            Farewell::Error(error) => return Some(error.clone()),
            Farewell::Over { verdict, first, host, lost } => (verdict, first, host, lost),
        };
        let told = Told { verdict, first: first.as_ref(), host: host.as_deref(), lost };
        let lines = self.told(&told);
        let first = lines.first()?;
        Some(if lines.len() == 1 { first.clone() } else { format!("{first}; see the leader's lines") })
    }

    fn told(&self, told: &Told<'_>) -> Vec<String> {
        let mut lines = match told.verdict {
            Verdict::Success => Vec::new(),
            Verdict::OutputLost => Vec::new(),
            Verdict::Interrupted(number) => vec![format!("interrupted by {}", signal::name(*number))],
            Verdict::Failed(failure) => self.failure(failure, told),
        };
        lines.extend(told.lost.iter().map(lost));
        if *told.verdict == Verdict::OutputLost {
            let hint = hint!(Setting::LogErrors.with("ignore"), " ends such a job with 0");
            let kept = "the members succeeded, but not all output, log files and events were kept";
            lines.push(format!("{kept}; {}", self.hint(&hint)));
        }
        lines.extend(code_line(told));
        lines
    }

    fn failure(&self, failure: &Failure, told: &Told<'_>) -> Vec<String> {
        let who = told.first.map_or_else(|| format!("rank {}", failure.rank), Name::to_string);
        let host = told.host.map(|host| format!(" on {host}")).unwrap_or_default();
        let pid = failure.pid.map(|pid| format!(", pid {pid}")).unwrap_or_default();
        let mut lines = vec![format!("first failure: {who}{host}{pid}: {}", end(&failure.ended.end))];
        if let Some(reason) = &failure.ended.reason {
            lines.push(format!("  its reason: {reason}"));
        }
        if !failure.ended.tail.is_empty() {
            lines.push("  its last lines on stderr:".to_owned());
            lines.extend(failure.ended.tail.iter().map(|line| format!("  | {line}")));
        }
        if let Some(advice) = advice::for_last_lines(&failure.ended.tail) {
            lines.push(format!("  {}", self.hint(&advice)));
        }
        lines
    }
}

/// `the job ends with exit code 3, that of worker 1`: which of the two a script has seen.
fn code_line(told: &Told<'_>) -> Option<String> {
    let code = told.verdict.code();
    match (told.verdict, told.first) {
        (Verdict::Success, _) => None,
        (verdict @ Verdict::Failed(_), Some(first)) if !verdict.is_own_code() => {
            Some(format!("the job ends with exit code {code}, that of {first}"))
        }
        _ => Some(format!("the job ends with exit code {code}, one of rallypoint's own")),
    }
}
