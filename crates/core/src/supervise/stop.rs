//! How an agent's own members are stopped: asked once, given a grace, then killed. Pure: the executor obeys.

use crate::process::tree::STUCK;
use std::time::{Duration, Instant};

/// How soon, and then how often, to look for orphans while all are asked to end.
const FIRST_LOOK: Duration = Duration::from_millis(20);
const LOOK_AGAIN: Duration = Duration::from_millis(100);
const LOOK_SELDOM: Duration = Duration::from_secs(1);
/// How far the stop has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Stop {
    /// Members run.
    #[default]
    No,
    /// All were asked to end.
    Asked {
        since: Instant,
        /// When the grace is over.
        kill_at: Instant,
        /// When to look for orphans that nobody has asked.
        next_look: Instant,
    },
    /// All were ended by SIGKILL.
    Killed {
        /// When they were killed first.
        at: Instant,
    },
}

/// What the executor has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// Ask every member's whole group to end.
    Ask,
    /// Ask the orphans that members have left to this agent.
    AskOrphans,
    /// Kill every process below this one.
    Kill,
    /// Do not wait any longer for what SIGKILL did not end.
    GiveUp,
}

impl Stop {
    /// All are to end within the grace. A second wish can only shorten it: nobody is asked twice.
    pub(super) fn ask(&mut self, grace: Duration, now: Instant) -> Option<Order> {
        let end = now + grace;
        match self {
            Stop::No => {
                *self = Stop::Asked { since: now, kill_at: end, next_look: now + FIRST_LOOK };
                Some(Order::Ask)
            }
            Stop::Asked { kill_at, .. } => {
                *kill_at = end.min(*kill_at);
                None
            }
            Stop::Killed { .. } => None,
        }
    }

    /// All are to end now.
    pub(super) fn kill(&mut self, now: Instant) -> Order {
        if !matches!(self, Stop::Killed { .. }) {
            *self = Stop::Killed { at: now };
        }
        Order::Kill
    }

    /// What the time that has passed asks for.
    pub(super) fn next(&mut self, now: Instant) -> Option<Order> {
        match self {
            Stop::Asked { kill_at, .. } if *kill_at <= now => Some(self.kill(now)),
            Stop::Asked { since, next_look, .. } if *next_look <= now => {
                *next_look = now + now.saturating_duration_since(*since).clamp(LOOK_AGAIN, LOOK_SELDOM);
                Some(Order::AskOrphans)
            }
            Stop::Killed { at } if *at + STUCK <= now => Some(Order::GiveUp),
            Stop::No | Stop::Asked { .. } | Stop::Killed { .. } => None,
        }
    }

    /// When [`Stop::next`] has something to order. `any_left`: members have not ended yet.
    pub(super) fn due(&self, any_left: bool) -> Option<Instant> {
        match *self {
            Stop::No => None,
            Stop::Asked { kill_at, next_look, .. } => Some(next_look.min(kill_at)),
            Stop::Killed { at } => any_left.then(|| at + STUCK),
        }
    }

    /// When all who were asked to end have to have ended.
    pub(super) fn limit(&self) -> Option<Instant> {
        match *self {
            Stop::No => None,
            Stop::Asked { kill_at, .. } => Some(kill_at),
            Stop::Killed { at } => Some(at),
        }
    }

    /// Members were asked to end, or killed: nothing starts any more.
    pub(super) fn has_begun(&self) -> bool {
        *self != Stop::No
    }

    /// Members were asked, and still have their grace.
    pub(super) fn is_in_grace(&self) -> bool {
        matches!(self, Stop::Asked { .. })
    }
}

#[cfg(test)]
mod tests {
    mod any_order;

    use super::*;

    enum Event {
        /// With this grace, in milliseconds.
        Ask(u64),
        Kill,
        /// Time has passed.
        Tick,
    }

    /// What is ordered when these things happen at these milliseconds, and the stop at the end.
    fn orders(start: Instant, events: &[(u64, Event)]) -> (Vec<Option<Order>>, Stop) {
        let mut stop = Stop::default();
        let obey = |(ms, event): &(u64, Event)| {
            let now = start + Duration::from_millis(*ms);
            match event {
                Event::Ask(grace) => stop.ask(Duration::from_millis(*grace), now),
                Event::Kill => Some(stop.kill(now)),
                Event::Tick => stop.next(now),
            }
        };
        (events.iter().map(obey).collect(), stop)
    }

    #[test]
    fn what_is_ordered_and_when() {
        use Event::{Ask, Kill, Tick};
        use Order::{AskOrphans, GiveUp};
        let (ask, kill) = (Some(Order::Ask), Some(Order::Kill));
        let start = Instant::now();
        type Row<'a> = (&'a str, &'a [(u64, Event)], &'a [Option<Order>]);
        let table: &[Row<'_>] = &[
            ("nothing was asked for", &[(0, Tick), (9000, Tick)], &[None, None]),
            ("the grace", &[(0, Ask(5000)), (10, Tick), (5000, Tick)], &[ask, None, kill]),
            ("nobody is asked twice", &[(0, Ask(5000)), (1, Ask(5000))], &[ask, None]),
            ("a shorter grace counts", &[(0, Ask(5000)), (10, Ask(5)), (15, Tick)], &[ask, None, kill]),
            ("a longer grace does not", &[(0, Ask(100)), (10, Ask(60_000)), (100, Tick)], &[ask, None, kill]),
            ("no grace at all", &[(0, Ask(0)), (0, Tick)], &[ask, kill]),
            (
                "orphans, soon and then every 100 ms",
                &[(0, Ask(5000)), (19, Tick), (20, Tick), (119, Tick), (120, Tick)],
                &[ask, None, Some(AskOrphans), None, Some(AskOrphans)],
            ),
            (
                "orphans, seldom after a while",
                &[(0, Ask(60_000)), (30_000, Tick), (30_999, Tick), (31_000, Tick)],
                &[ask, Some(AskOrphans), None, Some(AskOrphans)],
            ),
            ("killed without being asked", &[(0, Kill), (20, Tick), (2999, Tick)], &[kill, None, None]),
            ("nobody is asked after SIGKILL", &[(0, Kill), (1, Ask(10)), (20, Tick)], &[kill, None, None]),
            (
                "what SIGKILL does not end is given up",
                &[(0, Kill), (2000, Kill), (2999, Tick), (3000, Tick)],
                &[kill, kill, None, Some(GiveUp)],
            ),
            (
                "given up after the grace and 3 s",
                &[(0, Ask(100)), (150, Tick), (3149, Tick), (3150, Tick)],
                &[ask, kill, None, Some(GiveUp)],
            ),
        ];
        for (what, events, expected) in table {
            assert_eq!(orders(start, events).0, *expected, "{what}");
        }
    }

    #[test]
    fn it_is_due_when_something_is_to_be_done() {
        use Event::{Ask, Kill, Tick};
        let start = Instant::now();
        let due = |events: &[(u64, Event)], any_left| {
            orders(start, events).1.due(any_left).map(|at| (at - start).as_millis())
        };
        assert_eq!(due(&[], true), None);
        assert_eq!(due(&[(0, Ask(5000))], true), Some(20), "the first look");
        assert_eq!(due(&[(0, Ask(5000)), (20, Tick)], true), Some(120), "the next look");
        assert_eq!(due(&[(0, Ask(110)), (20, Tick)], true), Some(110), "the end of the grace");
        assert_eq!(due(&[(0, Kill)], true), Some(3000));
        assert_eq!(due(&[(0, Kill)], false), None, "all have ended");
    }

    #[test]
    fn when_all_have_to_have_ended() {
        use Event::{Ask, Kill};
        let start = Instant::now();
        let limit =
            |events: &[(u64, Event)]| orders(start, events).1.limit().map(|at| (at - start).as_millis());
        assert_eq!(limit(&[]), None);
        assert_eq!(limit(&[(0, Ask(5000))]), Some(5000));
        assert_eq!(limit(&[(0, Ask(5000)), (700, Kill)]), Some(700));
    }

    #[test]
    fn what_members_may_do() {
        use Event::{Ask, Kill};
        let start = Instant::now();
        let state = |events: &[(u64, Event)]| {
            let (_, stop) = orders(start, events);
            (stop.has_begun(), stop.is_in_grace())
        };
        assert_eq!(state(&[]), (false, false));
        assert_eq!(state(&[(0, Ask(10))]), (true, true));
        assert_eq!(state(&[(0, Ask(10)), (1, Kill)]), (true, false));
    }
}
