//! What is said and written of a job while it runs: its beginning, and its members' ends.

use crate::events::{JobEvent, RosterEntry};
use crate::outcome::{MemberOutcome, Verdict};
use crate::plan::{Member, Plan};
use crate::rendezvous::describe;
use crate::roster::Roster;
use std::time::{Duration, SystemTime};

/// Everyone's address.
pub(super) fn roster(roster: &Roster) -> JobEvent<'_> {
    let plan = roster.plan();
    let members = plan.members().iter().map(|member| RosterEntry {
        rank: member.rank,
        role: member.role.as_str(),
        index: member.index,
        host: plan.host(member).unwrap_or("?"),
        address: roster.endpoint(member).to_string(),
    });
    JobEvent::Roster { members: members.collect() }
}

/// `3 members on 2 hosts; 17 min left until the time limit`
pub(super) fn start_line(plan: &Plan, now: SystemTime) -> String {
    let plural = |count: usize| if count == 1 { "" } else { "s" };
    let (world, hosts) = (plan.members().len(), plan.hosts().len());
    let line = format!("{world} member{} on {hosts} host{}", plural(world), plural(hosts));
    match plan.deadline().and_then(|end| end.duration_since(now).ok()) {
        Some(left) => format!("{line}; {} left until the time limit", hours(left)),
        None => line,
    }
}

/// How a member ended.
pub(super) fn end<'a>(member: &'a Member, outcome: &'a MemberOutcome) -> Option<JobEvent<'a>> {
    let (rank, role, index) = (member.rank, member.role.as_str(), member.index);
    let ended = outcome.ended.as_ref()?;
    let (end, seconds, peak_kib) = (&ended.end, ended.seconds, ended.peak_kib);
    Some(if end.is_success() {
        JobEvent::Finished { rank, role, index, seconds, peak_kib }
    } else if outcome.stopped {
        JobEvent::Stopped { rank, role, index, end, seconds, peak_kib }
    } else {
        JobEvent::Failed { rank, role, index, end, code: end.code(), seconds, peak_kib }
    })
}

/// `still ending: ps 0; SIGKILL in 8 s, or now by another Ctrl-C`
pub(super) fn still_ending(
    plan: &Plan,
    lingering: &[u32],
    left: Duration,
    verdict: Option<&Verdict>,
) -> String {
    let again = match verdict {
        Some(Verdict::Interrupted(_)) => "another Ctrl-C",
        _ => "Ctrl-C twice",
    };
    let (names, left) = (describe(plan, lingering), left.as_secs_f64().ceil());
    format!("still ending: {names}; SIGKILL in {left} s, or now by {again}")
}

/// `2:05 h`, `17 min`, `40 s`
fn hours(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds / 60),
        seconds => format!("{}:{:02} h", seconds / 3600, seconds % 3600 / 60),
    }
}
