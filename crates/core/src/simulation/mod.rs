//! Whole jobs of the real code in a room of simulated machines: a seed chooses what goes wrong, and what must hold is
//! checked at the end. `docs/design/simulation.md` tells how, and what it does not see.
//!
//! | file | subject |
//! |---|---|
//! | `scenario` | what a seed chooses |
//! | `folder` | the meeting directory, as agents see it |
//! | `inside` | an agent among others on one thread |
//! | `play` | a scenario, from the first agent to the last |
//! | `holds` | what must hold afterwards |

mod facts;
mod folder;
mod holds;
mod inside;
mod play;
mod scenario;

pub use scenario::{Child, Exit, Fault, Habit, Scenario};

/// What came of a scenario.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Everything that happened, in order.
    pub log: Vec<String>,
    /// What does not hold.
    pub broken: Vec<String>,
}

/// Plays a scenario.
pub fn play(scenario: &Scenario) -> Report {
    let played = play::play(scenario);
    let broken = holds::check(scenario, &played);
    Report { log: played.log, broken }
}

/// Plays it twice: the same must happen.
pub fn play_twice(scenario: &Scenario) -> Report {
    let mut first = play(scenario);
    let second = play(scenario);
    if let Some(at) =
        (0..first.log.len().max(second.log.len())).find(|&at| first.log.get(at) != second.log.get(at))
    {
        let (one, other) = (first.log.get(at), second.log.get(at));
        first.broken.push(format!("same-log: line {at} is {one:?} in one run, {other:?} in the other"));
    }
    first
}
