//! What there is to tell while members meet.

use crate::plan::Plan;
use std::time::Duration;

#[derive(Debug, Clone, PartialEq)]
pub enum Progress {
    /// What there is to say while the leader is searched for.
    Searching {
        line: String,
    },
    Waiting {
        come: u32,
        world: u32,
        missing: String,
        waited: Duration,
        limit: Duration,
    },
    Came {
        rank: u32,
    },
    Lost {
        rank: u32,
        why: String,
    },
    Strangers {
        line: String,
    },
    /// One of ours that does not fit.
    Refused {
        peer: String,
        why: String,
    },
    /// The leader that has taken our offer says nothing.
    LeaderSilent {
        leader: String,
        silent: Duration,
        waited: Duration,
        limit: Duration,
    },
    /// It is lost before all had come, and those that have come meet again.
    LeaderLost {
        why: String,
    },
}

impl Progress {
    /// What to tell a person, if anything.
    pub fn line(&self, plan: &Plan) -> Option<String> {
        Some(match self {
            Progress::Came { .. } => return None,
            Progress::Waiting { come, world, missing, waited, limit } => format!(
                "{come} of {world} members have come ({} s of {} s); missing: {missing}",
                waited.as_secs(),
                limit.as_secs()
            ),
            Progress::Lost { rank, why } => {
                format!("{} was lost while waiting: {why}", plan.members()[*rank as usize])
            }
            Progress::Refused { peer, why } => format!("the member at {peer} was refused: {why}"),
            Progress::Searching { line } | Progress::Strangers { line } => line.clone(),
            Progress::LeaderLost { why } => format!("the leader was lost before all had come: {why}"),
            Progress::LeaderSilent { leader, silent, waited, limit } => format!(
                "nothing was heard of the leader ({leader}) for {} s ({} s of {} s)",
                silent.as_secs(),
                waited.as_secs(),
                limit.as_secs()
            ),
        })
    }
}
