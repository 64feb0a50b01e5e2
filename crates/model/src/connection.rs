//! Connections: words arrive late, in order, and are lost with the connection. Each end notices the loss by itself.

use crate::{Roster, State};

/// A connection between an agent and the one that it takes for its leader.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Connection {
    /// The agent that has connected.
    pub member: u8,
    /// Its run.
    pub run: u8,
    /// The agent that it has connected to.
    pub leader: u8,
    /// The member's end is open.
    pub member_open: bool,
    /// The leader's end is open.
    pub leader_open: bool,
    /// Nothing gets through any more, and not both have noticed.
    pub broken: bool,
    /// The rank that the leader has given it: `rendezvous/remotes.rs`.
    pub seat: Option<u8>,
    /// It waits for the end of this attempt: `Others::latecomers`.
    pub late: bool,
    /// Words on their way to the leader.
    pub up: Vec<Up>,
    /// Words on their way to the member.
    pub down: Vec<Down>,
}

/// What a member says: `rendezvous::message::ToLeader`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Up {
    /// It offers itself.
    Offer,
    /// Its member has ended; whether well.
    Ended(bool),
}

/// What a leader says: `rendezvous::message::ToMember`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Down {
    /// The offer is taken.
    Welcome {
        /// The rank that it has.
        rank: u8,
        /// The leader's own.
        leader: u8,
    },
    /// The offer is not taken.
    Refused,
    /// An earlier attempt runs; its end will be told.
    Later,
    /// All have come.
    Roster(Roster),
    /// The member is to end.
    Stop,
    /// It is to end now.
    Kill,
    /// It is over, with this exit code.
    Goodbye(u8),
}

impl Connection {
    /// A member has connected, and offers itself.
    pub(crate) fn new(member: u8, run: u8, leader: u8) -> Connection {
        Connection {
            member,
            run,
            leader,
            member_open: true,
            leader_open: true,
            broken: false,
            seat: None,
            late: false,
            up: vec![Up::Offer],
            down: Vec::new(),
        }
    }

    /// The leader says something; nobody hears it on a connection that is broken.
    pub(crate) fn say(&mut self, word: Down) {
        if self.leader_open && self.member_open && !self.broken {
            self.down.push(word);
        }
    }

    /// The member says something.
    pub(crate) fn tell(&mut self, word: Up) {
        if self.leader_open && !self.broken {
            self.up.push(word);
        }
    }

    /// The leader hangs up: what it has said still arrives.
    pub(crate) fn close_leader(&mut self) {
        self.leader_open = false;
        self.up.clear();
        self.seat = None;
        self.late = false;
    }

    /// The member hangs up: what it has told still arrives.
    pub(crate) fn close_member(&mut self) {
        self.member_open = false;
        self.down.clear();
    }

    /// Nothing gets through any more.
    pub(crate) fn cut(&mut self) {
        self.broken = true;
        self.up.clear();
        self.down.clear();
    }

    /// The leader can notice that the member is gone.
    pub(crate) fn is_lost_to_leader(&self) -> bool {
        self.leader_open && (self.broken || !self.member_open && self.up.is_empty())
    }

    /// The member can notice that the leader is gone. `first`: it may do so before the leader.
    pub(crate) fn is_lost_to_member(&self, first: bool) -> bool {
        let is_broken = self.broken && (first || !self.leader_open);
        self.member_open && (is_broken || !self.leader_open && self.down.is_empty())
    }
}

impl State {
    /// The connection of an agent to its leader.
    pub(crate) fn own_connection(&mut self, member: u8) -> Option<&mut Connection> {
        self.connections.iter_mut().find(|it| it.member == member && it.member_open)
    }

    /// The connections of a leader.
    pub(crate) fn connections_of(&mut self, leader: u8) -> impl Iterator<Item = &mut Connection> {
        self.connections.iter_mut().filter(move |it| it.leader == leader && it.leader_open)
    }

    /// The agent has ended, and all its connections with it. With its host, also what it has said last.
    pub(crate) fn hang_up(&mut self, agent: u8, with_host: bool) {
        for it in &mut self.connections {
            if with_host && (it.member == agent && it.member_open || it.leader == agent && it.leader_open) {
                it.cut();
            }
            if it.member == agent {
                it.close_member();
            }
            if it.leader == agent {
                it.close_leader();
            }
        }
    }

    /// Forgets what nobody can notice any more, so that equal states look equal.
    pub(crate) fn tidy(&mut self) {
        self.connections.retain(|it| it.member_open || it.leader_open);
        self.connections.sort_unstable();
        if self.left.stale == 0 {
            self.files.before = Default::default();
            self.files.root_before = Default::default();
        }
    }
}
