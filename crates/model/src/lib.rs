//! A model of the meeting and of the job's end, for the model checker `stateright`.
//!
//! [`Meeting`] is the model: a few agents, a directory that they contend for, connections that break, agents that
//! die and come back. The checker tries every order of steps within [`Bounds`], and looks for a state that breaks one of
//! the [`properties`]. A [`Variant`] is the protocol with one rule taken away: the checker has to find
//! what that rule is for.
//!
//! Where the model restates a rule, a comment names the file and the function in `crates/core/src`.
//! `docs/design/model.md` says what is modelled and what is not.

mod agent;
mod bounds;
mod cleaner;
mod connection;
mod directory;
mod follower;
mod leader;
mod meeting;
pub mod properties;
mod seats;
mod state;
mod steps;
mod suite;
mod trace;
mod variant;

pub use agent::{Agent, Head, Phase, Process};
pub use bounds::{Bounds, Looks};
pub use cleaner::{CleanUp, Cleaner};
pub use connection::{Connection, Down, Up};
pub use directory::{Files, Post, Publish, Takeover};
pub use leader::Leading;
pub use meeting::{Action, Meeting};
pub use seats::{Roster, Seat, Seats};
pub use state::{Left, Past, Started, State};
pub use suite::{Case, Checked, Expect, cases, findings, protocol, variants};
pub use variant::Variant;

/// The most agents that a model has.
pub const MOST: usize = 4;

/// One run of one agent, as a meeting file names it. It is written `A` for the first agent, `A'` for its second run.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id {
    /// Which agent.
    pub agent: u8,
    /// How often it was started before.
    pub run: u8,
}

impl std::fmt::Debug for Id {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", char::from(b'A' + self.agent), "'".repeat(self.run.into()))
    }
}
