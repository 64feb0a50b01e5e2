//! Every event as lines.

use crate::English;
use crate::ending::{end, lost};
use crate::time::{ago, left, since, so_far};
use rallypoint::event::{LastWriter, Obstacle, RunEvent, Silent, Suspicion, Waited};
use rallypoint::hint;
use rallypoint::hint::{Hint, Setting};
use rallypoint::names::{Name, Names};
use rallypoint::outcome::LostOutput;
use rallypoint::rehearsal::Deed;
use rallypoint::signal;
use std::time::Duration;

const PAGE: &str = "docs/guides/it-hangs.md";

/// How much an event matters to somebody who wants to hear little.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weight {
    /// How it goes on.
    Progress,
    /// How the job ended.
    Verdict,
    /// What went wrong here.
    Failure,
}

impl Weight {
    /// That of an event.
    pub fn of(event: &RunEvent) -> Weight {
        match event {
            RunEvent::OutputLost { .. }
            | RunEvent::NotShown
            | RunEvent::NoStandIn { .. }
            | RunEvent::LeaderLostWhileRunning { .. }
            | RunEvent::NotRequeued { .. }
            | RunEvent::AttemptOver { .. } => Weight::Failure,
            RunEvent::Over(_) | RunEvent::Told { .. } => Weight::Verdict,
            _ => Weight::Progress,
        }
    }
}

impl English {
    /// What to say of an event; nothing of those that nobody waits to hear of. The closing table is not among it.
    pub fn lines(&self, event: &RunEvent) -> Vec<String> {
        match event {
            RunEvent::Silent(silent) => self.silent(silent),
            RunEvent::Over(whole) => self.verdict(whole),
            RunEvent::Told { farewell, .. } => self.farewell(farewell).into_iter().collect(),
            RunEvent::AttemptOver { code, farewell, meets_again } => {
                let after = match meets_again {
                    true => format!("that attempt has ended with {code}: meeting for the next one"),
                    false => format!("the job has ended with {code}, without this member"),
                };
                self.farewell(farewell).into_iter().chain([after]).collect()
            }
            other => self.line(other).into_iter().collect(),
        }
    }

    fn line(&self, event: &RunEvent) -> Option<String> {
        self.while_meeting(event).or_else(|| self.while_running(event))
    }

    fn while_meeting(&self, event: &RunEvent) -> Option<String> {
        Some(match event {
            RunEvent::Meeting { way } => format!("meeting: {way}"),
            RunEvent::RanBefore { .. } => {
                "this member has run before; if the job has failed since, nobody starts the others again (max_retries)".to_owned()
            }
            RunEvent::Searching { obstacle, waited } => self.searching(obstacle, waited),
            RunEvent::LeaderGone { leader, why } => format!("{leader} is gone: {why}"),
            RunEvent::Waiting { come, world, missing, waited } => {
                let (so_far, missing) = (so_far(waited), self.missing(missing.as_ref()));
                format!("{come} of {world} members have come ({so_far}); missing: {missing}")
            }
            RunEvent::LostWhileWaiting { member, why } => format!("{member} was lost while waiting: {why}"),
            RunEvent::Stranger { peer, why } => format!("a stranger at {peer} was turned away: {why}"),
            RunEvent::Strangers { count, reasons, last_peer } => strangers(*count, reasons, last_peer),
            RunEvent::Refused { peer, why } => format!("the member at {peer} was refused: {why}"),
            RunEvent::LeaderSilent { leader, silent, waited } => {
                let (silent, so_far) = (silent.as_secs(), so_far(waited));
                format!("nothing was heard of the leader ({leader}) for {silent} s ({so_far})")
            }
            RunEvent::LeaderLost { why } => format!("the leader was lost before all had come: {why}"),
            RunEvent::StepStarting { command } => format!("starting the step: {}", command.join(" ")),
            RunEvent::Note { text } => text.clone(),
            RunEvent::Begun { world, hosts, left } => begun(*world, *hosts, *left),
            RunEvent::Joined { member } => format!("this is {member}"),
            _ => return None,
        })
    }

    fn while_running(&self, event: &RunEvent) -> Option<String> {
        Some(match event {
            RunEvent::Failed { member, end: how, .. } => format!("{member} has failed: {}", end(how)),
            RunEvent::Restarted { member } => format!("{member} failed and is started again"),
            RunEvent::Rehearsed { member, deed, after, pid } => rehearsed(member, *deed, *after, *pid),
            RunEvent::NotRehearsed { members, deed, after, over } => {
                let why = if *over { "the job was over before" } else { "it does not run" };
                format!("not rehearsed: {} {members}, {} after the start: {why}", deed.name(), since(*after))
            }
            RunEvent::StartedElsewhere { member, host } => {
                format!("{member} was started again on {host} while its job runs")
            }
            RunEvent::Signal { signal: number, again } => {
                let what = if *again { "came again: killing" } else { "came: stopping" };
                format!("{} {what}", signal::name(*number))
            }
            RunEvent::SignalElsewhere { member, signal: number } => {
                format!("{} came to {member}: stopping", signal::name(*number))
            }
            RunEvent::StepEnded { launcher, end: how } => {
                format!("{launcher} ended ({}) while members were running: stopping", end(how))
            }
            RunEvent::LeaderLostWhileRunning { why } => format!("the leader is lost ({why}): stopping"),
            RunEvent::RollCall { finished, running } => {
                format!("finished: {finished}; still running: {running}")
            }
            RunEvent::Lingering { members, kill_in, interrupted } => {
                let again = if *interrupted { "another Ctrl-C" } else { "Ctrl-C twice" };
                let seconds = kill_in.as_secs_f64().ceil();
                format!("still ending: {members}; SIGKILL in {seconds} s, or now by {again}")
            }
            RunEvent::OutputLost { path, bytes, why, again } => {
                let text = lost(&LostOutput { path: path.clone(), bytes: *bytes, why: why.clone() });
                format!("{text}{}; still trying", if *again { " in all" } else { "" })
            }
            RunEvent::NotShown => {
                "the end of what members wrote is not shown: whoever reads it has stopped, or is too slow"
                    .to_owned()
            }
            RunEvent::NoStandIn { member, why, not_found } => {
                let hint = self.hint(&no_stand_in(*not_found));
                format!("{member} has finished, and no server keeps its address alive: {why}; {hint}")
            }
            RunEvent::LeftBehind { count: 1 } => "1 process left behind by members: ended".to_owned(),
            RunEvent::LeftBehind { count } => format!("{count} processes left behind by members: ended"),
            RunEvent::Requeued { member, job } => {
                format!("{member} asks for another run: job {job} goes back into the queue")
            }
            RunEvent::NotRequeued { job, why } => format!("job {job} cannot be requeued: {why}"),
            _ => return None,
        })
    }

    /// Who is missing, for a line or a bar.
    pub fn missing(&self, missing: Option<&Names>) -> String {
        missing.map_or_else(|| "all; the step has not come up yet".to_owned(), Names::to_string)
    }

    fn searching(&self, obstacle: &Obstacle, waited: &Waited) -> String {
        let what = match obstacle {
            Obstacle::Nobody => "waiting for a leader".to_owned(),
            Obstacle::PlaceSilent { place } => format!("waiting for an answer of {place}"),
            Obstacle::Awaited { awaited } => format!("waiting for {awaited}"),
            Obstacle::LeaderUnanswered { leader } => format!("waiting for {leader}"),
            Obstacle::LeaderMute { .. } => format!("waiting for {obstacle}"),
            Obstacle::LeaderUnreachable { leader, why } => format!("{leader} cannot be reached: {why}"),
            Obstacle::EarlierAttempt => format!("{obstacle}; waiting for its end"),
            Obstacle::SomebodyElse { .. } => format!("{obstacle}; {}", self.hint(&obstacle.hint())),
            Obstacle::PlaceUnsteady { .. } => obstacle.to_string(),
        };
        format!("{what} ({})", so_far(waited))
    }

    /// What is known, what it may be, and where to read on.
    fn silent(&self, silent: &Silent) -> Vec<String> {
        let mut lines = vec![format!("no member has written anything for {}", ago(silent.silent))];
        let mut know = |what: &str, who: &Names| {
            if who.count() == silent.world as usize {
                lines.push(format!("  {what}: all members"));
            } else if !who.is_empty() {
                lines.push(format!("  {what}: {who}"));
            }
        };
        know("not started", &silent.not_started);
        know("ended", &silent.ended);
        know("never wrote anything", &silent.never_wrote);
        silent.listening.iter().for_each(|who| know("listening at their addresses", who));
        silent.not_listening.iter().for_each(|who| know("running, and not listening", who));
        if let Some(LastWriter { member, ago: time }) = &silent.last {
            lines.push(format!("  last to write: {member}, {} ago", ago(*time)));
        }
        let may_be = silent.suspicions.iter().map(|suspicion| self.suspicion(*suspicion));
        lines.extend(may_be.map(|suspicion| format!("  it may be {suspicion}")));
        lines.push(format!("  or nothing is wrong, and it computes; if not, read {PAGE}"));
        lines
    }

    fn suspicion(&self, suspicion: Suspicion) -> String {
        let (what, hint) = match suspicion {
            Suspicion::WaitsForEndedServer => (
                "that somebody waits for a member that has ended",
                hint!(
                    Setting::StandIn.with("on"),
                    " with ",
                    Setting::Tensorflow.with("DIR"),
                    ", or ",
                    Setting::Until.with("first")
                ),
            ),
            Suspicion::WaitsForEnded => {
                ("that somebody waits for a member that has ended", hint!(Setting::Until.with("first")))
            }
            Suspicion::WaitsForListeners => {
                return "that all others wait for those who do not listen: do they still load, or wait themselves?"
                    .to_owned();
            }
            Suspicion::NoChief => (
                "a coordinator of TensorFlow 2 without a chief: then all members serve, and nobody trains",
                hint!(Setting::Chief),
            ),
            Suspicion::NoParameterServers => {
                ("a program of TensorFlow 1 without parameter servers", hint!(Setting::Ps.with("1")))
            }
            Suspicion::Buffered => ("what Python keeps in its buffer", hint!("PYTHONUNBUFFERED=1")),
        };
        format!("{what}; {}", self.hint(&hint))
    }
}

fn no_stand_in(not_found: bool) -> Hint {
    match not_found {
        true => hint!(
            Setting::Tensorflow.with("DIR"),
            " tells where it is (a virtual environment, say); until then, whoever opens a session of TensorFlow 1 waits for ever"
        ),
        false => hint!(
            "whoever opens a session of TensorFlow 1 from now on waits for it for ever, unless its device filters leave it out"
        ),
    }
}

/// `rehearsal: worker 1 (pid 4711) gets SIGKILL, 30 s after its start`
fn rehearsed(member: &Name, deed: Deed, after: Duration, pid: u32) -> String {
    let what = match deed {
        Deed::Kill | Deed::Term | Deed::Warn => {
            format!("{member} (pid {pid}) gets {}", signal::name(deed.signal()))
        }
        Deed::Stop => format!("{member} (pid {pid}) gets SIGSTOP and stands still"),
        Deed::Continue => format!("{member} (pid {pid}) gets SIGCONT and goes on"),
        Deed::Lose => format!("{member} is lost with its agent (pid {pid}), which gets SIGKILL"),
    };
    format!("rehearsal: {what}, {} after its start", since(after))
}

/// `3 members on 2 hosts; 17 min left until the time limit`
fn begun(world: u32, hosts: u32, time: Option<Duration>) -> String {
    let plural = |count: u32| if count == 1 { "" } else { "s" };
    let line = format!("{world} member{} on {hosts} host{}", plural(world), plural(hosts));
    match time {
        Some(time) => format!("{line}; {} left until the time limit", left(time)),
        None => line,
    }
}

/// `200 more strangers were turned away: 151 × it said nothing for 5 s, 49 × it has another key; the last at 10.0.0.7:40000`
fn strangers(count: u64, reasons: &[(Option<String>, u64)], last_peer: &str) -> String {
    let plural = if count == 1 { " was" } else { "s were" };
    let reasons: Vec<String> = reasons
        .iter()
        .map(|(why, count)| format!("{count} × {}", why.as_deref().unwrap_or("for other reasons")))
        .collect();
    format!("{count} more stranger{plural} turned away: {}; the last at {last_peer}", reasons.join(", "))
}
