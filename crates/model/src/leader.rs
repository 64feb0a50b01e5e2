//! The leader: it gathers the others, hands out the roster, and decides when the job is over.

use crate::meeting::{Meeting, own_code};
use crate::seats::Seating;
use crate::{Cleaner, Down, Id, MOST, Phase, Process, Roster, Seats, State, Up, Variant};
use rallypoint::outcome::OwnCode;

/// A leader whose job runs. `job.rs` and `supervise/conductor.rs`, `leading.rs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Leading {
    /// What it has handed out.
    pub roster: Roster,
    /// Its own rank.
    pub own: u8,
    /// How its own member stands.
    pub process: Process,
    /// The ranks that have not ended: `Job::is_alive`.
    pub alive: [bool; MOST],
    /// The last run of each rank that was heard of: `Others::runs`.
    pub runs: [u8; MOST],
    /// The exit code, once all are asked to end.
    pub stopping: Option<u8>,
}

impl Meeting {
    /// The leader takes the next word of a member. `Leader::take` of `rendezvous/gather.rs`, then
    /// `Conductor::incoming` of `supervise/leading.rs`.
    pub(crate) fn take(&self, state: &mut State, at: usize) {
        let connection = &mut state.connections[at];
        let (me, from) = (connection.leader, Id { agent: connection.member, run: connection.run });
        let (seat, word) = (connection.seat, connection.up.remove(0));
        match (state.agents[me as usize].phase.clone(), word) {
            (Phase::Gather(seats), Up::Offer) => self.seat(state, me, seats, at, from),
            (Phase::Lead(leading), Up::Offer) => self.latecomer(state, me, leading, at, from),
            (Phase::Lead(_), Up::Ended(well)) => {
                if let Some(rank) = seat {
                    self.member_ended(state, me, rank, u8::from(!well));
                }
            }
            _ => {}
        }
    }

    /// `Leader::seat` of `rendezvous/gather.rs`.
    fn seat(&self, state: &mut State, me: u8, mut seats: Seats, at: usize, from: Id) {
        let rank = match seats.offer(self, self.bounds.attempt(me), from) {
            Seating::Seated(rank) => rank,
            Seating::SeatedAgain(rank) => {
                for earlier in state.connections_of(me).filter(|it| it.seat == Some(rank)) {
                    earlier.say(Down::Refused);
                    earlier.close_leader();
                }
                rank
            }
            Seating::Back(rank) => {
                for earlier in state.connections_of(me).filter(|it| it.seat == Some(rank)) {
                    earlier.close_leader();
                }
                rank
            }
            Seating::Refused => return refuse(state, at),
        };
        let connection = &mut state.connections[at];
        connection.seat = Some(rank);
        connection.say(Down::Welcome { rank, leader: seats.own });
        state.agent(me).phase = Phase::Gather(seats);
        let leader = state.id(me);
        if let Some(roster) = seats.roster(self, leader) {
            self.hand_out(state, me, seats.own, roster);
        }
    }

    /// All have come: everyone gets the roster and starts. `Leader::complete`, `Handout::hand_out`, `lead` of
    /// `supervise/agent.rs`.
    fn hand_out(&self, state: &mut State, me: u8, own: u8, roster: Roster) {
        for connection in state.connections_of(me).filter(|it| it.seat.is_some()) {
            connection.say(Down::Roster(roster));
        }
        let mut alive = [false; MOST];
        let mut runs = [0; MOST];
        for (rank, owner) in roster.owners.iter().enumerate() {
            alive[rank] = owner.is_some();
            runs[rank] = owner.map_or(0, |owner| owner.run);
        }
        let process = Process::Runs;
        let leading = Leading { roster, own, process, alive, runs, stopping: None };
        let id = state.id(me);
        state.note_start(roster, own, id);
        state.agent(me).phase = Phase::Lead(leading);
    }

    /// Somebody comes when all have come already. `Conductor::latecomer` of `supervise/leading.rs`.
    fn latecomer(&self, state: &mut State, me: u8, mut leading: Leading, at: usize, from: Id) {
        let bounds = &self.bounds;
        let own = (0..).zip(leading.roster.owners).find(|(_, owner)| *owner == Some(from));
        if let Some((rank, _)) = own.filter(|_| self.variant != Variant::NoProcess) {
            return self.without_roster(state, me, rank, at);
        }
        let known = bounds.wish(from.agent).filter(|rank| bounds.counted && *rank < bounds.world);
        let Some(rank) = known.filter(|rank| from.run > leading.runs[*rank as usize]) else {
            return refuse(state, at);
        };
        leading.runs[rank as usize] = from.run;
        state.agent(me).phase = Phase::Lead(leading);
        state.connections[at].late = true;
        state.connections[at].say(Down::Later);
        for earlier in state.connections_of(me).filter(|it| it.seat == Some(rank)) {
            earlier.say(Down::Stop);
            earlier.close_leader();
        }
        self.blame(state, me);
        self.lost(state, me, rank);
    }

    /// A member comes back that has not heard the roster. `Conductor::without_roster` of `supervise/leading.rs`.
    fn without_roster(&self, state: &mut State, me: u8, rank: u8, at: usize) {
        state.connections[at].late = true;
        state.connections[at].say(Down::Later);
        for earlier in state.connections_of(me).filter(|it| it.seat == Some(rank)) {
            earlier.close_leader();
        }
        self.blame(state, me);
        self.lost(state, me, rank);
    }

    /// The leader notices that a member is gone. `Leader::take` and `Seats::gone` while it gathers, `Job::apply` with
    /// `Event::Lost` when the job runs.
    pub(crate) fn member_lost(&self, state: &mut State, at: usize) {
        let connection = &mut state.connections[at];
        let (me, seat) = (connection.leader, connection.seat);
        connection.close_leader();
        let Some(rank) = seat else { return };
        match &mut state.agent(me).phase {
            Phase::Gather(_) if self.variant == Variant::NoGrace => self.dismiss(state, me),
            Phase::Gather(seats) => seats.gone(rank),
            Phase::Lead(_) => {
                self.blame(state, me);
                self.lost(state, me, rank);
            }
            _ => {}
        }
    }

    fn lost(&self, state: &mut State, me: u8, rank: u8) {
        self.member_ended(state, me, rank, own_code(OwnCode::MemberLost));
    }

    /// `Job::ended` of `job.rs`, without restarts and tolerated roles: the first failure ends the job, and so does the end
    /// of all who decide.
    pub(crate) fn member_ended(&self, state: &mut State, me: u8, rank: u8, code: u8) {
        let Phase::Lead(leading) = &mut state.agent(me).phase else { return };
        if !std::mem::replace(&mut leading.alive[rank as usize], false) {
            return;
        }
        let all_decided =
            (0..self.bounds.world).all(|rank| !self.bounds.decides(rank) || !leading.alive[rank as usize]);
        let is_over = !leading.alive.contains(&true);
        if leading.stopping.is_none() && (code != 0 || all_decided) {
            leading.stopping = Some(code);
            self.stop(state, me);
        }
        if is_over {
            self.over(state, me);
        }
    }

    /// `Action::StopAll` in `Conductor::perform`. Those that have ended already would not notice it: they are left out.
    fn stop(&self, state: &mut State, me: u8) {
        let Phase::Lead(leading) = &mut state.agent(me).phase else { return };
        if leading.process == Process::Runs {
            leading.process = Process::Asked;
        }
        let alive = leading.alive;
        if self.variant == Variant::DroppedStop {
            return;
        }
        let is_alive = |seat: Option<u8>| seat.is_some_and(|rank| alive[rank as usize]);
        for connection in state.connections_of(me).filter(|it| is_alive(it.seat)) {
            connection.say(Down::Stop);
        }
    }

    /// Those that did not report their end in time count as lost, and are killed. `give_up_on_the_silent` of
    /// `supervise/leading.rs`.
    pub(crate) fn give_up(&self, state: &mut State, me: u8) {
        for rank in 0..self.bounds.world {
            let Phase::Lead(leading) = state.agents[me as usize].phase else { return };
            if rank != leading.own && leading.alive[rank as usize] {
                for connection in state.connections_of(me).filter(|it| it.seat == Some(rank)) {
                    connection.say(Down::Kill);
                }
                self.lost(state, me, rank);
            }
        }
    }

    /// Nobody is left: `say_goodbye` of `supervise/others.rs`. The leader's process then takes back what it has published.
    fn over(&self, state: &mut State, me: u8) {
        let Phase::Lead(leading) = state.agents[me as usize].phase else { return };
        self.say_goodbye(state, me, leading.stopping.unwrap_or(0));
    }

    /// The meeting has failed for all: `Leader::dismiss` of `rendezvous/gather.rs`.
    pub(crate) fn dismiss(&self, state: &mut State, me: u8) {
        self.say_goodbye(state, me, own_code(OwnCode::MeetingFailed));
    }

    fn say_goodbye(&self, state: &mut State, me: u8, code: u8) {
        for connection in state.connections_of(me).filter(|it| it.seat.is_some() || it.late) {
            connection.say(Down::Goodbye(code));
        }
        self.done(state, me, code);
        state.agent(me).cleaner = Some(Cleaner::new(state.post(me)));
    }
}

/// `Leader::seat` and `others::refuse`: the leader says so, and hangs up.
fn refuse(state: &mut State, at: usize) {
    state.connections[at].say(Down::Refused);
    state.connections[at].close_leader();
}
