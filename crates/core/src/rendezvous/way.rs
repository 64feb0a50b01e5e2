//! Where a leader can be found. There are two kinds of places: where it is known who leads, and where whoever comes first
//! does.

use super::{Contact, RendezvousError};
use std::time::Duration;

/// How often a place is looked at, at most.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// A place where a leader can be found.
#[expect(missing_debug_implementations, reason = "it holds a trait object")]
pub enum WayToMeet {
    /// The scheduler or the launcher has said who leads.
    Known(Box<dyn KnownLeader>),
    /// Whoever comes first leads.
    Contested(Box<dyn ContestedLeader>),
}

/// A place where it is known who leads: the launcher, rank 0 of a step, node 0 of a job.
pub trait KnownLeader: Send {
    /// What to tell people: `PMI of step 7.0`.
    fn name(&self) -> String;

    /// True if this agent leads.
    fn leads(&self) -> bool;

    /// What the others wait for.
    fn awaited(&self) -> String;

    /// The leader, once it is published. An agent that leads does not ask.
    fn look(&mut self) -> Result<Option<Contact>, RendezvousError>;

    /// Publishes this agent, which leads.
    fn publish(&mut self, contact: &Contact) -> Result<(), RendezvousError>;

    /// Takes back what this agent has published.
    fn retract(&mut self) {}

    /// Takes back what an agent of this machine has published that is dead and cannot do it itself.
    fn clean_up_after(&mut self, _pid: u32) {}

    /// Variables that this way has used up, so that no member may inherit them.
    fn taken_variables(&self) -> &'static [&'static str] {
        &[]
    }

    /// How often it may be looked at, at most.
    fn longest_pause(&self) -> Duration {
        LONGEST_PAUSE
    }

    /// False for a way that answers at once: it needs no thread beside the event loop.
    fn may_block(&self) -> bool {
        true
    }
}

/// A place where whoever comes first leads: a directory, an address.
pub trait ContestedLeader: Send {
    /// What to tell people: `directory /shared/job`.
    fn name(&self) -> String;

    /// The leader that is published here, if any.
    fn look(&mut self) -> Result<Option<Contact>, RendezvousError>;

    /// Publishes this agent as the leader; false if another was quicker.
    fn claim(&mut self, contact: &Contact) -> Result<bool, RendezvousError>;

    /// Takes the place of a leader that is gone; false if another was quicker.
    fn replace(&mut self, gone: &Contact, contact: &Contact) -> Result<bool, RendezvousError>;

    /// Takes back what this agent has published.
    fn retract(&mut self);

    /// False if there is nothing to take back: then that needs no thread either.
    fn has_published(&self) -> bool {
        true
    }

    /// Takes back what an agent of this machine has published, by its pid, that is dead and cannot do it itself.
    fn clean_up_after(&mut self, _pid: u32) {}

    /// False for a way that answers at once: it needs no thread beside the event loop.
    fn may_block(&self) -> bool {
        true
    }

    /// The port that a leader has to listen on here; any otherwise.
    fn port(&self) -> u16 {
        0
    }

    /// How often it may be looked at, at most.
    fn longest_pause(&self) -> Duration {
        LONGEST_PAUSE
    }
}

impl WayToMeet {
    /// A place where it is known who leads.
    pub fn known(way: impl KnownLeader + 'static) -> WayToMeet {
        WayToMeet::Known(Box::new(way))
    }

    /// A place where whoever comes first leads.
    pub fn contested(way: impl ContestedLeader + 'static) -> WayToMeet {
        WayToMeet::Contested(Box::new(way))
    }

    pub(crate) fn name(&self) -> String {
        match self {
            WayToMeet::Known(way) => way.name(),
            WayToMeet::Contested(way) => way.name(),
        }
    }

    /// Variables that no member may inherit.
    pub fn taken_variables(&self) -> &'static [&'static str] {
        match self {
            WayToMeet::Known(way) => way.taken_variables(),
            WayToMeet::Contested(_) => &[],
        }
    }

    /// What an agent that cannot lead waits for.
    pub(super) fn awaited(&self) -> Option<String> {
        match self {
            WayToMeet::Known(way) if !way.leads() => Some(way.awaited()),
            _ => None,
        }
    }

    pub(super) fn port(&self) -> u16 {
        match self {
            WayToMeet::Known(_) => 0,
            WayToMeet::Contested(way) => way.port(),
        }
    }

    pub(super) fn longest_pause(&self) -> Duration {
        match self {
            WayToMeet::Known(way) => way.longest_pause(),
            WayToMeet::Contested(way) => way.longest_pause(),
        }
    }

    pub(super) fn has_published(&self) -> bool {
        match self {
            WayToMeet::Known(_) => true,
            WayToMeet::Contested(way) => way.has_published(),
        }
    }

    pub(super) fn may_block(&self) -> bool {
        match self {
            WayToMeet::Known(way) => way.may_block(),
            WayToMeet::Contested(way) => way.may_block(),
        }
    }

    pub(super) fn look(&mut self) -> Result<Option<Contact>, RendezvousError> {
        match self {
            WayToMeet::Known(way) if way.leads() => Ok(None),
            WayToMeet::Known(way) => way.look(),
            WayToMeet::Contested(way) => way.look(),
        }
    }

    pub(super) fn claim(&mut self, contact: &Contact) -> Result<bool, RendezvousError> {
        match self {
            WayToMeet::Known(way) => way.publish(contact).map(|()| true),
            WayToMeet::Contested(way) => way.claim(contact),
        }
    }

    /// Where it is known who leads, nobody takes that agent's place.
    pub(super) fn replace(&mut self, gone: &Contact, contact: &Contact) -> Result<bool, RendezvousError> {
        match self {
            WayToMeet::Known(_) => Ok(false),
            WayToMeet::Contested(way) => way.replace(gone, contact),
        }
    }

    pub(super) fn retract(&mut self) {
        match self {
            WayToMeet::Known(way) => way.retract(),
            WayToMeet::Contested(way) => way.retract(),
        }
    }

    /// Takes back what a dead agent of this machine, by its pid, has published: the meeting file holds the key.
    pub fn clean_up_after(&mut self, pid: u32) {
        match self {
            WayToMeet::Known(way) => way.clean_up_after(pid),
            WayToMeet::Contested(way) => way.clean_up_after(pid),
        }
    }
}
