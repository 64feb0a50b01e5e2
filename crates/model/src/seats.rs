//! Who has come and who is missing. Restates `rendezvous/seats.rs`, without texts and without a clock.

use crate::{Bounds, Id, MOST, Meeting, Variant};

/// One seat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Seat {
    /// Nobody has come.
    Free,
    /// Whoever had it was lost, and has the grace to come back.
    Lost,
    /// This one has it.
    Taken(Id),
}

/// The seats of a meeting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Seats {
    /// By rank; ranks beyond the world are free, and nobody looks at them.
    pub seats: [Seat; MOST],
    /// The leader's own rank.
    pub own: u8,
}

/// What the members have agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Roster {
    /// The attempt that it is for: `RALLYPOINT_ATTEMPT`.
    pub attempt: u8,
    /// Who has made it.
    pub leader: Id,
    /// Who has which rank.
    pub owners: [Option<Id>; MOST],
}

/// What becomes of an offer: `seats::Seating`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seating {
    /// It has this rank.
    Seated(u8),
    /// It has this rank instead of its earlier run.
    SeatedAgain(u8),
    /// It has kept this rank: the same process comes back.
    Back(u8),
    Refused,
}

impl Seats {
    /// All are free but the leader's own; a leader that was lost before has the grace to come back.
    /// `Leader::listen` and `Leader::gather` of `rendezvous/gather.rs`; `None` if its own seat cannot be had.
    pub(crate) fn new(bounds: &Bounds, me: Id, lost_leader: Option<u8>) -> Option<Seats> {
        let mut seats = Seats { seats: [Seat::Free; MOST], own: 0 };
        if let Some(rank) = lost_leader {
            seats.gone(rank);
        }
        let own = bounds.wish(me.agent).or_else(|| seats.first_free(bounds))?;
        seats.own = own;
        seats.seats[own as usize] = Seat::Taken(me);
        Some(seats)
    }

    fn first_free(&self, bounds: &Bounds) -> Option<u8> {
        (0..bounds.world).find(|rank| !matches!(self.seats[*rank as usize], Seat::Taken(_)))
    }

    /// `Seats::offer` and `Seats::rank_for`.
    pub(crate) fn offer(&mut self, meeting: &Meeting, attempt: u8, from: Id) -> Seating {
        let Meeting { bounds, variant } = meeting;
        if bounds.attempt(from.agent) != attempt {
            return Seating::Refused;
        }
        let knows = *variant != Variant::NoProcess;
        let is_its_own = |rank: &u8| knows && self.seats[*rank as usize] == Seat::Taken(from);
        let own = (0..bounds.world).find(is_its_own);
        let any = || own.or_else(|| self.first_free(bounds));
        let Some(rank) = bounds.wish(from.agent).or_else(any) else {
            return Seating::Refused;
        };
        let Some(seat) = self.seats.get_mut(rank as usize).filter(|_| rank < bounds.world) else {
            return Seating::Refused;
        };
        let seating = match *seat {
            Seat::Free | Seat::Lost => Seating::Seated(rank),
            Seat::Taken(earlier) if earlier == from && knows => Seating::Back(rank),
            Seat::Taken(earlier) if !bounds.counted || from.run <= earlier.run => return Seating::Refused,
            // The leader's own rank cannot be offered by a later run here: only those start again that are dead.
            Seat::Taken(_) => Seating::SeatedAgain(rank),
        };
        *seat = Seat::Taken(from);
        seating
    }

    /// `Seats::gone`.
    pub(crate) fn gone(&mut self, rank: u8) {
        self.seats[rank as usize] = Seat::Lost;
    }

    /// The roster, if all have come: `Seats::verdict`, and `Leader::complete` of `rendezvous/gather.rs`.
    pub(crate) fn roster(&self, meeting: &Meeting, leader: Id) -> Option<Roster> {
        let bounds = &meeting.bounds;
        let mut owners = [None; MOST];
        for (owner, seat) in owners.iter_mut().zip(self.seats).take(bounds.world.into()) {
            let Seat::Taken(id) = seat else { return None };
            *owner = Some(id);
        }
        let runs = owners.iter().flatten().map(|owner| owner.run);
        let runs = match meeting.variant {
            _ if !bounds.counted => 0,
            Variant::HighestRun => runs.max().unwrap_or(0),
            _ => runs.sum(),
        };
        let attempt = bounds.attempt(leader.agent) + runs;
        Some(Roster { attempt, leader, owners })
    }
}
