//! What is in the way while a leader is searched for.

use crate::hint;
use crate::hint::{Hint, Setting};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Why no leader was found so far.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "kebab-case")]
pub enum Obstacle {
    /// Nobody has published one.
    Nobody,
    /// The place to meet has not answered yet.
    PlaceSilent {
        /// Which place.
        place: String,
    },
    /// The place to meet could not be asked; it will be again.
    PlaceUnsteady {
        /// Which place.
        place: String,
        /// What it says.
        why: String,
    },
    /// This agent cannot lead, and the one that can has not come.
    Awaited {
        /// What is waited for, such as `rank 0 to lead`.
        awaited: String,
    },
    /// The leader has not answered yet.
    LeaderUnanswered {
        /// Who it is.
        leader: String,
    },
    /// The leader takes connections and does not answer.
    LeaderMute {
        /// Who it is.
        leader: String,
        /// What it did instead.
        why: String,
    },
    /// Somebody with another key is where the leader should be.
    SomebodyElse {
        /// Where.
        leader: String,
        /// How that is known.
        why: String,
    },
    /// Nothing connects to the leader.
    LeaderUnreachable {
        /// Who it is.
        leader: String,
        /// What the system says.
        why: String,
    },
    /// An earlier attempt of this job still runs.
    EarlierAttempt,
}

impl Obstacle {
    /// What may help.
    pub fn hint(&self) -> Hint {
        match self {
            Obstacle::LeaderUnanswered { .. } | Obstacle::LeaderMute { .. } => {
                hint!("look at that process; it may be suspended")
            }
            Obstacle::SomebodyElse { .. } => {
                hint!("RALLYPOINT_KEY_FILE must name the same key for all members")
            }
            _ => hint!(Setting::MeetTimeout, " gives it longer"),
        }
    }
}

/// As the error tells it that no leader was found.
impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Obstacle::Nobody => f.write_str("nobody has published one"),
            Obstacle::PlaceSilent { place } => write!(f, "{place} does not answer"),
            Obstacle::PlaceUnsteady { place, why } => write!(f, "{place} does not answer: {why}"),
            Obstacle::Awaited { awaited } => write!(f, "still waiting for {awaited}"),
            Obstacle::LeaderUnanswered { leader } => write!(f, "{leader} does not answer"),
            Obstacle::LeaderMute { leader, why } => write!(f, "{leader}: it takes connections, but {why}"),
            Obstacle::SomebodyElse { leader, why } => write!(f, "{leader} is somebody else: {why}"),
            Obstacle::LeaderUnreachable { why, .. } => f.write_str(why),
            Obstacle::EarlierAttempt => f.write_str("an earlier attempt of this job still runs"),
        }
    }
}
