//! An agent that is not the leader: it searches, joins, waits, and runs its member.

use crate::connection::Connection;
use crate::directory::Published;
use crate::meeting::{Meeting, own_code};
use crate::{Down, Head, Phase, Post, Process, Publish, Roster, Seats, State, Up};
use rallypoint::outcome::OwnCode;

impl Meeting {
    /// Looks who is published, and connects or begins to publish itself. `Search::saw` and `Search::unreachable` of
    /// `rendezvous/seeking.rs`, `Link::join` of `rendezvous/join.rs`. The pauses between two looks are left out.
    pub(crate) fn look(&self, state: &mut State, me: u8, stale: bool, cut: bool) {
        let name = self.name(me);
        match state.files.meeting[name] {
            Some(root) if self.bounds.walks && !stale && !cut => state.agent(me).phase = Phase::Walk(root),
            _ => {
                let seen = state.files.look(name, stale);
                self.found(state, me, seen, cut);
            }
        }
    }

    /// Reads the next file of the chain.
    pub(crate) fn walk(&self, state: &mut State, me: u8, at: Post) {
        match state.files.next(at) {
            Some(next) => state.agent(me).phase = Phase::Walk(next),
            None => self.found(state, me, Some(at), false),
        }
    }

    fn found(&self, state: &mut State, me: u8, seen: Option<Post>, cut: bool) {
        state.agent(me).phase = match seen {
            None => Phase::Publish(Publish::Claim),
            // The place is about to be free.
            Some(post) if state.files.is_being_closed(post) => Phase::Publish(Publish::Claim),
            Some(post) if !cut && post.id.agent != me && state.listens(post) => {
                let run = state.agents[me as usize].run;
                state.connections.push(Connection::new(me, run, post.id.agent));
                Phase::Join
            }
            Some(post) => {
                if cut {
                    state.agent(post.id.agent).found_gone = true;
                    self.blame(state, me);
                }
                Phase::Publish(Publish::Take(post))
            }
        };
    }

    /// The next request of an agent that publishes itself.
    pub(crate) fn publish(&self, state: &mut State, me: u8, stale: bool) {
        let Phase::Publish(publish) = state.agents[me as usize].phase else { return };
        let id = state.id(me);
        let post = state.post(me);
        let published = publish.ask(&mut state.files, self.name(me), post, stale, self);
        state.agent(me).phase = match published {
            Published::Next(next) => Phase::Publish(next),
            Published::Leads => {
                let lost_leader = state.agents[me as usize].lost_leader;
                match Seats::new(&self.bounds, id, lost_leader) {
                    Some(seats) => Phase::Gather(seats),
                    None => Phase::Search,
                }
            }
            Published::Not | Published::Spent => {
                state.hang_up(me, false);
                state.agent(me).takes += u8::from(published == Published::Spent);
                Phase::Search
            }
        };
    }

    /// A member hears its leader's next word. `Link::join` and `Link::roster` of `rendezvous/join.rs`, then
    /// `Following::obey` of `supervise/following.rs`.
    pub(crate) fn hear(&self, state: &mut State, at: usize) {
        let me = state.connections[at].member;
        let word = state.connections[at].down.remove(0);
        let id = state.id(me);
        match (&state.agents[me as usize].phase, word) {
            (Phase::Join, Down::Welcome { rank, leader }) => {
                state.agent(me).phase = Phase::Wait { rank, leader };
            }
            (Phase::Join, Down::Later) => state.agent(me).phase = Phase::Later,
            (Phase::Join | Phase::Wait { .. }, Down::Refused) => {
                self.done(state, me, own_code(OwnCode::MeetingFailed));
            }
            (Phase::Wait { .. } | Phase::Later, Down::Goodbye(code)) => self.done(state, me, code),
            (Phase::Wait { rank, .. }, Down::Roster(roster)) => {
                let rank = *rank;
                state.note_start(roster, rank, id);
                state.agent(me).phase = Phase::Follow { roster, head: Head::Led, process: Process::Runs };
            }
            (Phase::Follow { roster, head, process }, word) => {
                let (roster, head, process) = (*roster, *head, *process);
                self.obey(state, me, (roster, head, process), word);
            }
            _ => {}
        }
    }

    fn obey(&self, state: &mut State, me: u8, follow: (Roster, Head, Process), word: Down) {
        let (roster, head, process) = follow;
        let runs = process != Process::Ended;
        match word {
            Down::Stop if process == Process::Runs => {
                state.agent(me).phase = Phase::Follow { roster, head, process: Process::Asked };
            }
            Down::Kill if runs => {
                state.past.killed_unasked |= process == Process::Runs;
                self.end(state, me, false);
            }
            // `Following::dismissed`: a member that still runs is killed.
            Down::Goodbye(code) => {
                state.past.killed_unasked |= process == Process::Runs;
                self.done(state, me, code);
            }
            _ => {}
        }
    }

    /// A member notices that its leader is gone. `attend` of `rendezvous/attend.rs` before the roster,
    /// `Following::leader_lost` of `supervise/following.rs` behind it.
    pub(crate) fn leader_lost(&self, state: &mut State, at: usize) {
        let me = state.connections[at].member;
        let late = state.connections[at].down.iter().find_map(|word| match word {
            Down::Roster(roster) => Some(*roster),
            _ => None,
        });
        state.connections[at].close_member();
        let id = state.id(me);
        match state.agents[me as usize].phase {
            Phase::Wait { rank, leader } => {
                state.agent(me).phase = Phase::Search;
                state.agent(me).lost_leader = Some(leader);
                if let (Some(roster), crate::Variant::LateRoster) = (late, self.variant) {
                    state.note_start(roster, rank, id);
                    state.past.started_after_loss = true;
                }
            }
            Phase::Join | Phase::Later => state.agent(me).phase = Phase::Search,
            Phase::Follow { roster, head: Head::Led, process } => {
                self.blame(state, me);
                match process {
                    Process::Ended => self.done(state, me, own_code(OwnCode::LeaderLost)),
                    Process::Runs | Process::Asked => {
                        state.agent(me).phase =
                            Phase::Follow { roster, head: Head::Alone, process: Process::Asked };
                    }
                }
            }
            _ => {}
        }
    }

    /// An agent's own member ends; whether well. `Following::report`, and `Conductor::happened` in the leader.
    pub(crate) fn end(&self, state: &mut State, me: u8, well: bool) {
        match &mut state.agent(me).phase {
            Phase::Follow { head: Head::Led, process, .. } => {
                *process = Process::Ended;
                if let Some(connection) = state.own_connection(me) {
                    connection.tell(Up::Ended(well));
                }
            }
            Phase::Follow { head: Head::Alone, .. } => self.done(state, me, own_code(OwnCode::LeaderLost)),
            Phase::Lead(leading) => {
                leading.process = Process::Ended;
                let (rank, code) = (leading.own, u8::from(!well));
                self.member_ended(state, me, rank, code);
            }
            _ => {}
        }
    }

    /// The agent ends with this exit code.
    pub(crate) fn done(&self, state: &mut State, me: u8, code: u8) {
        state.hang_up(me, false);
        state.agent(me).phase = Phase::Done(code);
        state.agent(me).lost_leader = None;
    }
}
