//! Nobody writes anything: what is known, and what it may be.

use super::seconds::in_seconds;
use crate::names::Names;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What is known when nobody has written anything for a while.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Silent {
    /// For how long.
    #[serde(with = "in_seconds")]
    pub silent: Duration,
    /// How many members there are.
    pub world: u32,
    /// Those that run no process yet.
    pub not_started: Names,
    /// Those that have ended.
    pub ended: Names,
    /// Those that never wrote anything.
    pub never_wrote: Names,
    /// Those that listen at their addresses; told where the framework's members do.
    pub listening: Option<Names>,
    /// Those that run and do not; told where the framework's members do.
    pub not_listening: Option<Names>,
    /// Who wrote last, and how long ago.
    pub last: Option<LastWriter>,
    /// What it may be, the likeliest first.
    pub suspicions: Vec<Suspicion>,
}

/// Who wrote last.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LastWriter {
    /// Who.
    pub member: Names,
    /// How long ago.
    #[serde(with = "in_seconds")]
    pub ago: Duration,
}

/// Why nobody may be writing anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Suspicion {
    /// Somebody waits for a member that has ended, and a server may stand in for it.
    WaitsForEndedServer,
    /// Somebody waits for a member that has ended.
    WaitsForEnded,
    /// All others wait for those that do not listen.
    WaitsForListeners,
    /// A coordinator of TensorFlow 2 without a chief: all serve, and nobody trains.
    NoChief,
    /// A program of TensorFlow 1 without parameter servers.
    NoParameterServers,
    /// What Python keeps in its buffer.
    Buffered,
}
