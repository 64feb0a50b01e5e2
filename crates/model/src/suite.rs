//! The cases that are checked: the protocol within several bounds, its variants, and what it is known not to hold.

use crate::properties::{ASKED, CAUSE, NO_LATE_START, ONE_LEADER, ONE_OWNER, ONE_ROSTER, RECOVERS, SUCCEEDS};
use crate::{Bounds, Looks, Meeting, Variant, trace};
use stateright::{Checker, HasDiscoveries, Model};
use std::time::{Duration, Instant};

/// What the checker has to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// All properties hold in every state.
    Holds,
    /// They hold, and the job can succeed in spite of the faults.
    Recovers,
    /// A rule was taken away, and this property breaks.
    Breaks(&'static str),
    /// The protocol as it is breaks this property: `docs/design/model.md` tells how.
    Known(&'static str),
}

/// One model to check.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// What it is about.
    pub name: &'static str,
    /// The model.
    pub meeting: Meeting,
    /// What is to be found.
    pub expect: Expect,
}

/// What the checker has found.
#[derive(Clone, Debug)]
pub struct Checked {
    /// Different states.
    pub states: usize,
    /// The longest path.
    pub depth: usize,
    /// How long it took.
    pub took: Duration,
    /// There is a run in which the job succeeds.
    pub succeeds: bool,
    /// There is one in which it succeeds though a fault has happened.
    pub recovers: bool,
    /// The property that breaks, and the steps to the state in which it does.
    pub broken: Option<(&'static str, Vec<String>)>,
}

impl Case {
    /// Runs the checker to the end, or to the first state that breaks a property.
    pub fn check(&self) -> Checked {
        let begun = Instant::now();
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(2);
        let expected = match self.expect {
            Expect::Holds | Expect::Recovers => None,
            Expect::Breaks(name) | Expect::Known(name) => Some(name),
        };
        let finish = match expected {
            None => HasDiscoveries::AnyFailures,
            Some(name) => HasDiscoveries::AllOf([name].into()),
        };
        // With one thread the path to a broken property is the shortest.
        let threads = if expected.is_none() { threads } else { 1 };
        let checker = self.meeting.checker().threads(threads).finish_when(finish).spawn_bfs().join();
        let (found, mut broken): (Vec<_>, Vec<_>) =
            checker.discoveries().into_iter().partition(|(name, _)| [SUCCEEDS, RECOVERS].contains(name));
        broken.sort_by_key(|(name, path)| (Some(*name) != expected, path.clone().into_vec().len()));
        let broken = broken.into_iter().next();
        Checked {
            states: checker.unique_state_count(),
            depth: checker.max_depth(),
            took: begun.elapsed(),
            succeeds: found.iter().any(|(name, _)| *name == SUCCEEDS),
            recovers: found.iter().any(|(name, _)| *name == RECOVERS),
            broken: broken.map(|(name, path)| (name, trace::steps(&self.meeting, name, path))),
        }
    }
}

impl Checked {
    /// Whether it is what was expected.
    pub fn is(&self, expect: Expect) -> bool {
        let broken = self.broken.as_ref().map(|(name, _)| *name);
        match expect {
            Expect::Holds => broken.is_none() && self.succeeds,
            Expect::Recovers => broken.is_none() && self.succeeds && self.recovers,
            Expect::Breaks(name) | Expect::Known(name) => broken == Some(name),
        }
    }
}

fn holds(name: &'static str, bounds: Bounds) -> Case {
    Case { name, meeting: Meeting { bounds, variant: Variant::True }, expect: Expect::Holds }
}

fn recovers(name: &'static str, bounds: Bounds) -> Case {
    Case { expect: Expect::Recovers, ..holds(name, bounds) }
}

fn breaks(variant: Variant, bounds: Bounds, property: &'static str) -> Case {
    Case { name: variant.name(), meeting: Meeting { bounds, variant }, expect: Expect::Breaks(property) }
}

fn known(name: &'static str, bounds: Bounds, property: &'static str) -> Case {
    Case { name, meeting: Meeting { bounds, variant: Variant::True }, expect: Expect::Known(property) }
}

/// All cases: the protocol as it is, its variants, and what is known.
pub fn cases() -> Vec<Case> {
    [protocol(), variants(), findings()].concat()
}

const TWO: Bounds = Bounds::calm(2);
const THREE: Bounds = Bounds::calm(3);
const FOUR: Bounds = Bounds::calm(4);
/// Two attempts of two members each, beside each other.
const ATTEMPTS: Bounds = Bounds { attempts: 2, counted: false, ..TWO };
/// A leader may be killed.
const KILL: Bounds = Bounds { kills: 1, ..THREE };

/// Both may be killed and started again.
const RESTARTS: Bounds = Bounds { kills: 2, restarts: 2, ..TWO };
/// A connection may break, and its member may notice before the leader.
const HALF_OPEN: Bounds = Bounds { breaks: 1, half_open: true, ..THREE };

/// The protocol as it is.
pub fn protocol() -> Vec<Case> {
    let once = Bounds { restarts: 1, breaks: 1, stale: 1, ..KILL };
    vec![
        holds("calm", THREE),
        holds("calm, four agents", FOUR),
        holds("a kill", KILL),
        holds("a kill, four agents", Bounds { kills: 1, ..FOUR }),
        recovers("a kill, a restart, four agents", Bounds { kills: 1, restarts: 1, ..FOUR }),
        recovers("a kill, a restart, a break, a stale read", once),
        holds("two kills, four agents", Bounds { kills: 2, ..FOUR }),
        recovers("two kills, a restart", Bounds { kills: 2, restarts: 1, ..THREE }),
        holds("two kills, two agents", Bounds { kills: 2, ..TWO }),
        recovers("two kills, two restarts, two agents", RESTARTS),
        recovers(
            "two kills, two restarts, a break, two agents",
            Bounds { breaks: 1, half_open: true, ..RESTARTS },
        ),
        recovers("two breaks, a stale read, a failure", Bounds { breaks: 2, stale: 1, failures: 1, ..THREE }),
        holds("a lost host", Bounds { guards: false, ..KILL }),
        holds("two lost hosts, four agents", Bounds { guards: false, kills: 2, ..FOUR }),
        recovers("two kills, a restart, reads apart", Bounds { kills: 2, restarts: 1, walks: true, ..THREE }),
        holds("a kill, reads apart, four agents", Bounds { kills: 1, walks: true, ..FOUR }),
        holds("a kill, a cut", Bounds { cuts: 1, ..KILL }),
        recovers("a kill, a restart, an early limit", Bounds { restarts: 1, early: 1, ..KILL }),
        recovers("no ranks, a kill, a break", Bounds { ranked: false, breaks: 1, ..KILL }),
        recovers("back before the leader noticed", Bounds { kills: 1, restarts: 1, ..HALF_OPEN }),
        recovers(
            "two breaks, back before the leader noticed",
            Bounds { breaks: 2, stale: 1, failures: 1, ..HALF_OPEN },
        ),
        recovers(
            "no ranks, back before the leader noticed",
            Bounds { ranked: false, breaks: 2, kills: 1, ..HALF_OPEN },
        ),
        recovers("two attempts, a kill, a stale read", Bounds { kills: 1, stale: 1, ..ATTEMPTS }),
        recovers("two attempts, a kill, a break", Bounds { kills: 1, breaks: 1, ..ATTEMPTS }),
        recovers("a kill, a restart, a break, a stale read, a failure", Bounds { failures: 1, ..once }),
        recovers("a kill, a restart, a break, a stale read, a cut", Bounds { cuts: 1, ..once }),
    ]
}

/// The protocol with one rule taken away.
pub fn variants() -> Vec<Case> {
    let broken = Bounds { breaks: 1, ..THREE };
    vec![
        breaks(Variant::NoExclusiveCreate, THREE, ONE_LEADER),
        breaks(Variant::NoSecondLook, KILL, ONE_LEADER),
        breaks(Variant::NoAttemptInName, ATTEMPTS, CAUSE),
        breaks(Variant::NoGrace, broken, CAUSE),
        breaks(Variant::NoProcess, HALF_OPEN, CAUSE),
        breaks(Variant::NoProcess, Bounds { ranked: false, ..HALF_OPEN }, ONE_OWNER),
        breaks(Variant::DroppedStop, THREE, ASKED),
        breaks(Variant::BareRetract, KILL, ONE_LEADER),
        breaks(Variant::SweepsFirst, KILL, ONE_LEADER),
        breaks(Variant::HighestRun, RESTARTS, ONE_ROSTER),
        breaks(Variant::LateRoster, broken, NO_LATE_START),
    ]
}

/// What the protocol as it is does not hold, and what would help.
pub fn findings() -> Vec<Case> {
    let uncounted = Bounds { kills: 1, restarts: 1, counted: false, ..TWO };
    let too_many = Bounds { agents: 4, ranked: false, kills: 1, ..TWO };
    vec![
        known("a restart that nobody counts", uncounted, ONE_ROSTER),
        known("a slow clean-up", Bounds { slow_cleaners: 1, ..KILL }, ONE_LEADER),
        known("a stale second look", Bounds { stale: 1, looks: Looks::All, ..KILL }, ONE_LEADER),
        known("too many agents", too_many, ONE_ROSTER),
    ]
}
