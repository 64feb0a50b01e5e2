//! Every minute, who has finished and who still runs, once some of those who decide have.
//!
//! Somebody who watches a job in which one member takes long, or hangs, sees whom all wait for.

use std::time::{Duration, Instant};

const EVERY: Duration = Duration::from_secs(60);

/// When the roll is called next.
#[derive(Debug, Default)]
pub(super) struct RollCall {
    next: Option<Instant>,
}

impl RollCall {
    pub(super) fn next(&self) -> Option<Instant> {
        self.next
    }

    /// True if it is to be called now. `waits`: some who decide have finished, and some have not.
    pub(super) fn is_due(&mut self, waits: bool, now: Instant) -> bool {
        match self.next {
            _ if !waits => self.next = None,
            None => self.next = Some(now + EVERY),
            Some(at) if at <= now => {
                self.next = Some(now + EVERY);
                return true;
            }
            Some(_) => {}
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn once_a_minute_while_some_have_finished_and_some_have_not() {
        let start = Instant::now();
        let mut call = RollCall::default();
        let mut due = |seconds, waits| call.is_due(waits, start + Duration::from_secs(seconds));
        assert!(!due(0, false), "nobody has finished");
        assert!(!due(500, true), "the first has, just now");
        assert!(!due(559, true));
        assert!(due(560, true));
        assert!(!due(561, true));
        assert!(due(625, true));
        assert!(!due(684, true));
        assert!(due(685, true));
        assert!(!due(800, false), "all have finished, or are asked to");
        assert!(!due(900, true));
    }
}
