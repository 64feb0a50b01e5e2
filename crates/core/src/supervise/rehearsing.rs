//! Faults on purpose: which are due now, and which never were. Pure: the executor does them.

use crate::rehearsal::{Deed, Planned};
use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

/// An agent that is to be lost has this long to say so before.
const LAST_WORDS: Duration = Duration::from_millis(300);

/// The faults of one agent's members.
#[derive(Debug, Default)]
pub(super) struct Rehearsing {
    /// What is still to be done, in the order of time.
    planned: Vec<Planned>,
    /// When members were started first.
    started: HashMap<u32, Instant>,
    /// Members that stand still, and their processes.
    still: HashMap<u32, u32>,
    /// When this agent is lost.
    lost_at: Option<Instant>,
}

impl Rehearsing {
    /// Those of these faults that are for this agent's members.
    pub(super) fn new(mut planned: Vec<Planned>, is_own: impl Fn(u32) -> bool) -> Rehearsing {
        planned.retain(|planned| is_own(planned.rank));
        Rehearsing { planned, ..Rehearsing::default() }
    }

    /// A member's process runs; its first start counts.
    pub(super) fn started(&mut self, rank: u32, now: Instant) {
        self.started.entry(rank).or_insert(now);
    }

    /// When something is due.
    pub(super) fn next(&self) -> Option<Instant> {
        let faults = self.planned.iter().filter_map(|planned| self.at(planned));
        faults.chain(self.lost_at).min()
    }

    fn at(&self, planned: &Planned) -> Option<Instant> {
        self.started.get(&planned.rank).map(|start| *start + planned.after)
    }

    /// What is due, in the order of time; nothing twice.
    pub(super) fn due(&mut self, now: Instant) -> Vec<Planned> {
        let is_due = |planned: &Planned| self.at(planned).is_some_and(|at| at <= now);
        let (due, later) = self.planned.iter().copied().partition(is_due);
        self.planned = later;
        due
    }

    /// Takes note that it was done to a member's process; true if that changes anything. Only those go on that stand
    /// still.
    pub(super) fn is_done_to(&mut self, planned: &Planned, pid: u32, now: Instant) -> bool {
        match planned.deed {
            Deed::Continue => return self.still.remove(&planned.rank) == Some(pid),
            Deed::Stop => _ = self.still.insert(planned.rank, pid),
            Deed::Lose => _ = self.lost_at.get_or_insert(now + LAST_WORDS),
            Deed::Kill | Deed::Term | Deed::Warn => {}
        }
        true
    }

    /// Processes that stand still on purpose, whoever lets the others go on.
    pub(super) fn still(&self) -> impl Iterator<Item = u32> {
        self.still.values().copied()
    }

    /// True if this agent has said that it is lost, and is to be.
    pub(super) fn is_lost(&self, now: Instant) -> bool {
        self.lost_at.is_some_and(|at| at <= now)
    }
}

/// The faults of all members, as the agent knows them that decides.
#[derive(Debug)]
pub(super) struct Rehearsed {
    open: Vec<Planned>,
    lost: BTreeSet<u32>,
}

impl Rehearsed {
    pub(super) fn new(planned: Vec<Planned>) -> Rehearsed {
        // That a stop was never over is told by the stop that was never begun, or by the job's end.
        let open = planned.into_iter().filter(|planned| planned.deed != Deed::Continue).collect();
        Rehearsed { open, lost: BTreeSet::new() }
    }

    /// One of them was done, or could not be.
    pub(super) fn note(&mut self, told: &Planned, was_done: bool) {
        if let Some(at) = self.open.iter().position(|open| open == told) {
            self.open.remove(at);
        }
        if was_done && told.deed == Deed::Lose {
            self.lost.insert(told.rank);
        }
    }

    /// True if a member's agent has said that it would be lost.
    pub(super) fn is_lost(&self, rank: u32) -> bool {
        self.lost.contains(&rank)
    }

    /// What the job has ended too early for, and for which ranks.
    pub(super) fn left(&mut self) -> Vec<(Deed, Duration, Vec<u32>)> {
        let mut left: Vec<(Deed, Duration, Vec<u32>)> = Vec::new();
        for Planned { rank, deed, after } in std::mem::take(&mut self.open) {
            match left.iter_mut().find(|(known, at, _)| (*known, *at) == (deed, after)) {
                Some((.., ranks)) => ranks.push(rank),
                None => left.push((deed, after, vec![rank])),
            }
        }
        left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(rank: u32, deed: Deed, ms: u64) -> Planned {
        Planned { rank, deed, after: Duration::from_millis(ms) }
    }

    enum Event {
        Started(u32),
        /// Ranks and deeds that are due.
        Due(&'static [(u32, Deed)]),
        /// When the next one is due.
        Next(Option<u64>),
    }

    #[test]
    fn what_is_due_and_when() {
        use Deed::{Continue, Kill, Stop};
        use Event::{Due, Next, Started};
        let faults = || vec![planned(1, Kill, 500), planned(2, Stop, 600), planned(1, Kill, 2000)];
        let start = Instant::now();
        let table = [
            ("nobody has started", faults(), vec![(0, Next(None)), (9000, Due(&[]))]),
            ("since the start", faults(), vec![(100, Started(1)), (100, Next(Some(600)))]),
            ("too early", faults(), vec![(100, Started(1)), (599, Due(&[]))]),
            (
                "in time, and once",
                faults(),
                vec![(100, Started(1)), (600, Due(&[(1, Kill)])), (601, Due(&[])), (601, Next(Some(2100)))],
            ),
            (
                "the first start counts",
                faults(),
                vec![
                    (0, Started(1)),
                    (500, Due(&[(1, Kill)])),
                    (700, Started(1)),
                    (700, Next(Some(2000))),
                    (2000, Due(&[(1, Kill)])),
                    (2000, Next(None)),
                ],
            ),
            (
                "all that is overdue, in the order of time",
                faults(),
                vec![(0, Started(2)), (0, Started(1)), (5000, Due(&[(1, Kill), (2, Stop), (1, Kill)]))],
            ),
            (
                "at once",
                vec![planned(0, Stop, 0), planned(0, Continue, 0)],
                vec![(7, Started(0)), (7, Next(Some(7))), (7, Due(&[(0, Stop), (0, Continue)]))],
            ),
            ("of other agents' members", vec![planned(7, Kill, 0)], vec![(0, Started(7)), (9, Due(&[]))]),
        ];
        for (what, faults, events) in table {
            let mut rehearsing = Rehearsing::new(faults, |rank| rank < 7);
            for (ms, event) in events {
                let now = start + Duration::from_millis(ms);
                match event {
                    Started(rank) => rehearsing.started(rank, now),
                    Due(expected) => {
                        let due = rehearsing.due(now).into_iter().map(|due| (due.rank, due.deed));
                        assert_eq!(due.collect::<Vec<_>>(), expected, "{what}, {ms} ms");
                    }
                    Next(expected) => {
                        let next = rehearsing.next().map(|at| (at - start).as_millis() as u64);
                        assert_eq!(next, expected, "{what}, {ms} ms");
                    }
                }
            }
        }
    }

    #[test]
    fn only_who_stands_still_goes_on() {
        let now = Instant::now();
        let (stop, goes_on) = (planned(1, Deed::Stop, 0), planned(1, Deed::Continue, 9));
        let mut rehearsing = Rehearsing::default();
        assert!(!rehearsing.is_done_to(&goes_on, 4711, now), "it runs");
        assert!(rehearsing.is_done_to(&stop, 4711, now));
        assert_eq!(rehearsing.still().collect::<Vec<_>>(), [4711]);
        assert!(rehearsing.is_done_to(&goes_on, 4711, now));
        assert_eq!(rehearsing.still().count(), 0);
        rehearsing.is_done_to(&stop, 4711, now);
        assert!(!rehearsing.is_done_to(&goes_on, 4712, now), "it was started again meanwhile");
    }

    #[test]
    fn an_agent_says_so_before_it_is_lost() {
        let now = Instant::now();
        let mut rehearsing = Rehearsing::default();
        assert!(!rehearsing.is_lost(now));
        rehearsing.is_done_to(&planned(1, Deed::Lose, 0), 4711, now);
        assert_eq!((rehearsing.is_lost(now), rehearsing.next()), (false, Some(now + LAST_WORDS)));
        assert!(rehearsing.is_lost(now + LAST_WORDS));
    }

    #[test]
    fn what_never_came_to_be_is_known() {
        let faults = [planned(1, Deed::Kill, 5), planned(1, Deed::Continue, 7), planned(2, Deed::Lose, 9)];
        let both = [planned(1, Deed::Warn, 8), planned(2, Deed::Warn, 8)];
        let mut rehearsed = Rehearsed::new([&faults[..], &both[..]].concat());
        rehearsed.note(&faults[0], true);
        let ms = Duration::from_millis;
        assert_eq!(rehearsed.left(), [(Deed::Lose, ms(9), vec![2]), (Deed::Warn, ms(8), vec![1, 2])]);
        let mut rehearsed = Rehearsed::new(faults.to_vec());
        rehearsed.note(&faults[0], false);
        rehearsed.note(&faults[2], true);
        assert_eq!((rehearsed.left(), rehearsed.is_lost(1), rehearsed.is_lost(2)), (vec![], false, true));
    }
}
