//! How long a meeting may take in all: one limit, whatever happens in it.

use crate::clock;
use crate::event::Waited;
use std::time::{Duration, Instant};

/// From the first look for a leader to the roster, whoever leads in the end. Time that the whole process was stopped
/// does not count.
#[derive(Debug, Clone, Copy)]
pub struct Wait {
    since: Instant,
    limit: Duration,
}

impl Wait {
    /// From now on, for this long.
    pub fn begin(limit: Duration) -> Wait {
        Wait { since: clock::now(), limit }
    }

    pub(crate) fn limit(&self) -> Duration {
        self.limit
    }

    pub(crate) fn waited(&self) -> Duration {
        self.waited_at(clock::now())
    }

    pub(super) fn waited_at(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.since)
    }

    /// When it is over, by [`clock`].
    pub(super) fn end(&self) -> Instant {
        self.since + self.limit
    }

    pub(super) fn is_over(&self) -> bool {
        clock::now() >= self.end()
    }

    /// How much of it is over.
    pub(super) fn so_far(&self, now: Instant) -> Waited {
        Waited { waited: self.waited_at(now), limit: self.limit }
    }
}
