//! A clock that stands still while this process is stopped.
//!
//! A scheduler may suspend a whole job for hours (`scontrol suspend`, gang scheduling, HTCondor's SUSPEND), and a
//! person may close a laptop. On resume every timer of ours would be over before a single message is read: leaders
//! would take members for lost, members their leader, and a grace would be over that nobody had. So limits are
//! measured by this clock. It notices a stop by itself: [`keep`] looks at it every 2 s, and where two looks lie
//! further apart than a busy machine explains, the time between them does not count.
//!
//! One clock per thread, since each event loop has one. Without [`keep`] nothing must ask for the time but at short
//! intervals, else its own pauses count as stops.

use std::cell::Cell;
use std::future::Future;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// How often the clock is looked at.
const LOOK: Duration = Duration::from_secs(2);
/// Two looks that are further apart mean that the process was stopped.
const STOPPED: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    last: Instant,
    stopped: Duration,
}

impl Clock {
    /// The time by this clock, when the kernel's is `real`.
    fn at(&mut self, real: Instant) -> Instant {
        let gap = real.saturating_duration_since(self.last);
        if gap > STOPPED {
            self.stopped += gap - LOOK;
        }
        self.last = self.last.max(real);
        real.checked_sub(self.stopped).unwrap_or(real)
    }
}

thread_local! {
    static CLOCK: Cell<Option<Clock>> = const { Cell::new(None) };
}

/// The kernel's clock, or a simulated one: the time that passes for everybody.
pub(crate) fn real() -> Instant {
    #[cfg(feature = "simulation")]
    if let Some(now) = crate::simulated::now() {
        return now;
    }
    Instant::now()
}

/// Now, without the time that this process was stopped.
pub(crate) fn now() -> Instant {
    let real = real();
    let mut clock = CLOCK.get().unwrap_or(Clock { last: real, stopped: Duration::ZERO });
    let now = clock.at(real);
    CLOCK.set(Some(clock));
    now
}

/// Puts another clock in place of this thread's, which has the event loops of many agents.
#[cfg(feature = "simulation")]
pub(crate) fn exchange(clock: Option<Clock>) -> Option<Clock> {
    CLOCK.replace(clock)
}

/// Looks at the clock for as long as the event loop runs. It begins anew at once, not when the loop comes to it: whoever
/// asks before would else get a time by a clock of this thread that nobody has kept since.
pub(crate) fn keep() -> impl Future<Output = ()> {
    CLOCK.set(None);
    async {
        loop {
            now();
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// Waits until this clock shows `at`.
pub(crate) async fn sleep_until(at: Instant) {
    loop {
        let left = at.saturating_duration_since(now());
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left).await;
    }
}

/// A moment by this clock, until which somebody waits; it may be moved meanwhile.
#[derive(Debug, Clone)]
pub(crate) struct Deadline(watch::Receiver<Instant>);

impl Deadline {
    /// With whoever may move it.
    pub(crate) fn new(at: Instant) -> (watch::Sender<Instant>, Deadline) {
        let (mover, at) = watch::channel(at);
        (mover, Deadline(at))
    }

    pub(crate) fn at(&self) -> Instant {
        *self.0.borrow()
    }

    /// Waits until it is over.
    pub(crate) async fn over(&mut self) {
        loop {
            let at = *self.0.borrow_and_update();
            tokio::select! {
                () = sleep_until(at) => return,
                Ok(()) = self.0.changed() => {}
            }
        }
    }
}

/// The future's value, or `None` if it takes longer than `limit` by this clock. What has arrived meanwhile wins.
pub(crate) async fn timeout<F: Future>(limit: Duration, future: F) -> Option<F::Output> {
    let end = now() + limit;
    tokio::select! {
        biased;
        value = future => Some(value),
        () = sleep_until(end) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_stop_does_not_count() {
        let start = Instant::now();
        let mut clock = Clock { last: start, stopped: Duration::ZERO };
        let mut at = |ms| clock.at(start + Duration::from_millis(ms)) - start;
        assert_eq!(at(500), Duration::from_millis(500));
        assert_eq!(at(5_000), Duration::from_millis(5_000), "a busy machine");
        assert_eq!(at(65_000), Duration::from_millis(7_000), "stopped for a minute");
        assert_eq!(at(65_500), Duration::from_millis(7_500));
    }
}
