//! Members that are to be started again, and when. Pure.

use std::time::{Duration, Instant};

/// The pause before a member is started again; twice as long each time.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
pub(super) struct Restarts {
    waiting: Vec<(Instant, u32)>,
}

impl Restarts {
    /// A member is to be started again, which was so often before.
    pub(super) fn add(&mut self, rank: u32, before: u32, now: Instant) {
        let pause = FIRST_PAUSE.saturating_mul(1 << before.min(10)).min(LONGEST_PAUSE);
        self.waiting.push((now + pause, rank));
    }

    /// When the next one is due.
    pub(super) fn next(&self) -> Option<Instant> {
        self.waiting.iter().map(|(at, _)| *at).min()
    }

    /// Those whose pause is over; they do not wait any more.
    pub(super) fn due(&mut self, now: Instant) -> Vec<u32> {
        let due = self.waiting.extract_if(.., |(at, _)| *at <= now);
        due.map(|(_, rank)| rank).collect()
    }

    /// All who wait: they never will be started.
    pub(super) fn forget(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.waiting).into_iter().map(|(_, rank)| rank).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_doubles_and_has_an_end() {
        let now = Instant::now();
        for (before, ms) in [(0, 100), (1, 200), (3, 800), (10, 30_000), (1000, 30_000)] {
            let mut restarts = Restarts::default();
            restarts.add(7, before, now);
            assert_eq!(restarts.next(), Some(now + Duration::from_millis(ms)), "{before}");
            assert_eq!(restarts.due(now + Duration::from_millis(ms - 1)), [0; 0]);
            assert_eq!(restarts.due(now + Duration::from_millis(ms)), [7]);
            assert_eq!(restarts.next(), None);
        }
        let mut restarts = Restarts::default();
        restarts.add(1, 0, now);
        restarts.add(2, 5, now);
        assert_eq!(restarts.forget(), [1, 2]);
        assert_eq!(restarts.forget(), [0; 0]);
    }
}
