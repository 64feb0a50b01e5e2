//! The members that other agents run, as their leader sees them.

use crate::clock;
use crate::hint;
use crate::hint::Setting;
use crate::outcome::Whole;
use crate::rendezvous::message::ToMember;
use crate::rendezvous::{Incoming, Leader, Remote, Remotes};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long the others may take to hang up after the goodbye.
const HANG_UP: Duration = Duration::from_secs(2);
/// The same once all had to have reported their end: the job's is to come soon.
const HANG_UP_LATE: Duration = Duration::from_millis(500);
/// How long a word takes to leave to those whose answer is not awaited.
const LAST_WORD: Duration = Duration::from_millis(200);

/// The members that other agents run.
pub(super) struct Others {
    pub(super) leader: Leader,
    pub(super) remotes: Remotes,
    /// How often each rank was started before, where the scheduler starts them apart.
    pub(super) runs: Vec<u32>,
    /// Members of the next attempt, who wait for the end of this one.
    pub(super) latecomers: BTreeMap<u64, Remote>,
    /// Agents that did not report the end of their member in time: they are told, and not waited for.
    pub(super) silent: Vec<Remote>,
    /// When those who have not reported their end are taken for lost.
    pub(super) give_up: Option<Instant>,
}

impl Others {
    /// Those that have met, all of them alive.
    pub(super) fn new(leader: Leader, remotes: Remotes, runs: Vec<u32>) -> Others {
        Others { leader, remotes, runs, latecomers: BTreeMap::new(), silent: Vec::new(), give_up: None }
    }
}

/// How long the others may take to hang up, where all had to have reported their end by `give_up`.
fn time_to_hang_up(give_up: Option<Instant>, now: Instant) -> Duration {
    give_up.map_or(HANG_UP, |at| (at.saturating_duration_since(now) + HANG_UP_LATE).min(HANG_UP))
}

/// Somebody comes when the job runs, and does not belong to it.
pub(super) fn refuse(remote: &Remote) {
    let hint = hint!("another job needs another ", Setting::Meet, " directory or ", Setting::Job, " name");
    let why = hint::together("the job is running already".to_owned(), Some(&hint));
    remote.send(ToMember::Refused { why });
}

/// Tells all agents how it went, and waits a moment for them to hang up.
pub(super) async fn say_goodbye(others: &mut Option<Others>, whole: &Whole) {
    let Some(mut others) = others.take() else { return };
    for remote in others.remotes.values().chain(others.latecomers.values()).chain(&others.silent) {
        remote.send(ToMember::Goodbye { code: whole.verdict.code(), farewell: whole.farewell() });
    }
    let late = !others.silent.is_empty();
    let give_up = if late { Some(clock::now()) } else { others.give_up };
    let hang_up = async {
        while !(others.remotes.is_empty() && others.latecomers.is_empty()) {
            if let Some(Incoming::Gone { connection, .. }) = others.leader.receive().await {
                others.remotes.hang_up(connection);
                others.latecomers.remove(&connection);
            }
        }
    };
    _ = clock::timeout(time_to_hang_up(give_up, clock::now()), hang_up).await;
    if late {
        // Their word has to leave before this process does.
        tokio::time::sleep(LAST_WORD).await;
    }
}

/// What comes from other agents; nothing where there are none.
pub(super) async fn receive(others: &mut Option<Others>) -> Option<Incoming> {
    match others {
        Some(others) => others.leader.receive().await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_reports_late_has_less_time_to_hang_up() {
        let start = Instant::now() + Duration::from_secs(100);
        let ms = Duration::from_millis;
        // When all had to have reported their end, from now; and how long they may take.
        let table = [
            ("nobody is told to end", None, 2000),
            ("long before", Some(start + ms(4000)), 2000),
            ("shortly before", Some(start + ms(300)), 800),
            ("at the end", Some(start), 500),
            ("late", Some(start - ms(5000)), 500),
        ];
        for (what, give_up, expected) in table {
            assert_eq!(time_to_hang_up(give_up, start), ms(expected), "{what}");
        }
    }
}
