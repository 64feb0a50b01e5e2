//! The state of the whole model.

use crate::{Agent, Bounds, Connection, Files, Id, Post, Roster};

/// Everything that is true at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// All agents, those of the first attempt first.
    pub agents: Vec<Agent>,
    /// The directory.
    pub files: Files,
    /// All connections that somebody has not closed.
    pub connections: Vec<Connection>,
    /// The faults that may still happen.
    pub left: Left,
    /// What has happened, as far as a property asks for it.
    pub past: Past,
}

/// How many faults of each kind may still happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Left {
    pub(crate) kills: u8,
    pub(crate) restarts: u8,
    pub(crate) breaks: u8,
    pub(crate) cuts: u8,
    pub(crate) stale: u8,
    pub(crate) failures: u8,
    pub(crate) early: u8,
    pub(crate) slow_cleaners: u8,
}

/// What has happened. No agent knows it, and nothing follows from it but whether a property holds.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Past {
    /// Every member that was ever started.
    pub started: Vec<Started>,
    /// Something has happened in this attempt for which it may fail.
    pub cause: [bool; 2],
    /// A host was lost in this attempt, and with it the guard that would have cleaned up.
    pub may_leave_file: [bool; 2],
    /// The same, or a contender was killed in a takeover.
    pub may_leave_takeover: bool,
    /// A member was started after its leader was declared lost to it.
    pub started_after_loss: bool,
    /// A member was killed that was never asked to end.
    pub killed_unasked: bool,
}

/// A member that was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Started {
    /// By what all have agreed on.
    pub roster: Roster,
    /// As which rank.
    pub rank: u8,
    /// By whom.
    pub by: Id,
}

impl State {
    pub(crate) fn new(bounds: &Bounds) -> State {
        let left = Left {
            kills: bounds.kills,
            restarts: bounds.restarts,
            breaks: bounds.breaks,
            cuts: bounds.cuts,
            stale: bounds.stale,
            failures: bounds.failures,
            early: bounds.early,
            slow_cleaners: bounds.slow_cleaners,
        };
        State {
            agents: (0..bounds.total()).map(|_| Agent::new(0)).collect(),
            files: Files::default(),
            connections: Vec::new(),
            left,
            past: Past::default(),
        }
    }

    pub(crate) fn agent(&mut self, agent: u8) -> &mut Agent {
        &mut self.agents[agent as usize]
    }

    /// This run of an agent.
    pub(crate) fn id(&self, agent: u8) -> Id {
        Id { agent, run: self.agents[agent as usize].run }
    }

    /// What this run of an agent publishes.
    pub(crate) fn post(&self, agent: u8) -> Post {
        Post { id: self.id(agent), take: self.agents[agent as usize].takes, closed: false }
    }

    /// True if the one that is published takes connections.
    pub(crate) fn listens(&self, post: Post) -> bool {
        post == self.post(post.id.agent) && self.agents[post.id.agent as usize].listens()
    }

    /// A member starts.
    pub(crate) fn note_start(&mut self, roster: Roster, rank: u8, by: Id) {
        self.past.started.push(Started { roster, rank, by });
        self.past.started.sort_unstable();
    }

    /// True while whoever has made this takeover file is still at it.
    pub(crate) fn is_held(&self, holder: Post) -> bool {
        self.agents[holder.id.agent as usize].cleaner.is_some_and(|cleaner| cleaner.holds(holder))
    }
}
