//! An agent, from its first look for a leader to its exit code.

use crate::{Cleaner, Leading, Post, Publish, Roster, Seats};

/// An agent, and what is left of the run before.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Agent {
    /// How often it was started before.
    pub run: u8,
    /// What it does.
    pub phase: Phase,
    /// The rank of a leader that was lost while this agent waited with it: `JoinRequest::lost_leader`.
    pub lost_leader: Option<u8>,
    /// How often this run stood in the directory and did not lead: the next time it has another id.
    pub takes: u8,
    /// It was killed or has ended, and its publication is being taken back.
    pub cleaner: Option<Cleaner>,
    /// Somebody could not reach it for so long that it counts as gone.
    pub found_gone: bool,
}

/// What an agent does. `rendezvous/seeking.rs`, `attend.rs`, `supervise/agent.rs`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// It is about to look who leads.
    Search,
    /// It reads the chain on, from this one.
    Walk(Post),
    /// It publishes itself.
    Publish(Publish),
    /// It has offered itself, and waits for the answer.
    Join,
    /// It has a rank, and waits for the roster.
    Wait {
        /// Its rank.
        rank: u8,
        /// The leader's own.
        leader: u8,
    },
    /// It came while an attempt runs, and waits for its end.
    Later,
    /// It leads, and gathers the others.
    Gather(Seats),
    /// It leads, and the job runs.
    Lead(Leading),
    /// It has started its member.
    Follow {
        /// What all have agreed on.
        roster: Roster,
        /// Whom it obeys.
        head: Head,
        /// How its member stands.
        process: Process,
    },
    /// It has ended with this exit code.
    Done(u8),
    /// It was killed.
    Dead,
}

/// Whom a follower obeys: `State` of `supervise/following.rs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Head {
    /// Its leader.
    Led,
    /// Nobody: the leader is lost, and the member is to end.
    Alone,
}

/// How a member's process stands: `supervise/stop.rs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Process {
    /// It runs.
    Runs,
    /// It was asked to end.
    Asked,
    /// It has ended.
    Ended,
}

impl Agent {
    pub(crate) fn new(run: u8) -> Agent {
        Agent { run, phase: Phase::Search, lost_leader: None, takes: 0, cleaner: None, found_gone: false }
    }

    /// True until it has an exit code or was killed.
    pub(crate) fn is_alive(&self) -> bool {
        !matches!(self.phase, Phase::Done(_) | Phase::Dead)
    }

    /// True if it was published, and leads.
    pub(crate) fn leads(&self) -> bool {
        matches!(self.phase, Phase::Gather(_) | Phase::Lead(_))
    }

    /// True if it takes connections: it listens before it is published (`Searcher::lead` of `rendezvous/search.rs`).
    pub(crate) fn listens(&self) -> bool {
        matches!(self.phase, Phase::Publish(_) | Phase::Gather(_) | Phase::Lead(_))
    }

    /// Its own member, once it has started.
    pub(crate) fn process(&self) -> Option<Process> {
        match &self.phase {
            Phase::Lead(leading) => Some(leading.process),
            Phase::Follow { process, .. } => Some(*process),
            _ => None,
        }
    }
}
