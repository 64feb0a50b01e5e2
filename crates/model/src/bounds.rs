//! How large a model is, and which faults may happen in it.

/// Which reads of the meeting file may be stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Looks {
    /// Only a search's. NFS drops what it knows of a directory when a change of its own finds it changed by others, so a
    /// look behind an own link or rename is fresh.
    Search,
    /// All of them, also those behind an own change.
    All,
}

/// The size of a model, and how often each fault may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Members of one attempt.
    pub world: u8,
    /// Agents of one attempt: as many as members, unless there are too many.
    pub agents: u8,
    /// Attempts that run beside each other.
    pub attempts: u8,
    /// Agents know their rank beforehand.
    pub ranked: bool,
    /// The last rank is a parameter server: it never ends by itself.
    pub ps: bool,
    /// A scheduler counts how often a member was started (`Offer::runs`).
    pub counted: bool,
    /// Agents that are killed, alone or with their host.
    pub kills: u8,
    /// A killed agent's guard takes back what it has published; without guards a host is always lost as a whole.
    pub guards: bool,
    /// Killed agents that are started again.
    pub restarts: u8,
    /// Connections that break.
    pub breaks: u8,
    /// A member may come back before its leader has noticed that the connection is lost.
    pub half_open: bool,
    /// Times that a living leader cannot be reached for so long that it counts as gone.
    pub cuts: u8,
    /// Reads that see what stood there before the last change.
    pub stale: u8,
    /// Which reads those may be.
    pub looks: Looks,
    /// Members that fail.
    pub failures: u8,
    /// Limits that are over before everything else has happened.
    pub early: u8,
    /// Clean-ups so slow that they are taken for left behind.
    pub slow_cleaners: u8,
    /// A search reads each file of a chain by itself, and others may come in between. They can; without this it reads all
    /// at once, for fewer states.
    pub walks: bool,
}

impl Bounds {
    /// Ranked members of one attempt, and no fault at all.
    pub const fn calm(world: u8) -> Bounds {
        Bounds {
            world,
            agents: world,
            attempts: 1,
            ranked: true,
            ps: true,
            counted: true,
            kills: 0,
            guards: true,
            restarts: 0,
            breaks: 0,
            half_open: false,
            cuts: 0,
            stale: 0,
            looks: Looks::Search,
            failures: 0,
            early: 0,
            slow_cleaners: 0,
            walks: false,
        }
    }

    /// How many agents there are in all.
    pub fn total(&self) -> u8 {
        self.agents * self.attempts
    }

    /// The attempt that an agent was started for.
    pub fn attempt(&self, agent: u8) -> u8 {
        agent / self.agents
    }

    /// The rank that an agent asks for; without one it gets any that is free.
    pub fn wish(&self, agent: u8) -> Option<u8> {
        self.ranked.then_some(agent % self.agents)
    }

    /// Whether the end of a rank decides: `job::Until::deciders` for `Until::Auto` with workers, and with or without a
    /// parameter server.
    pub fn decides(&self, rank: u8) -> bool {
        !self.ps || rank + 1 < self.world
    }
}
