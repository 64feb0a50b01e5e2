//! How long the last output is waited for, and who may shorten that.

use super::signals::{Sensed, Signals};
use crate::clock::{self, Deadline};
use crate::signal;
use std::future::Future;
use std::pin::pin;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// The longest that a slow reader is waited for: 2 MB at 4 KB every 0.12 s.
const LONGEST: Duration = Duration::from_secs(60);
/// What the output has beyond the grace of a job that was told to end.
const BEYOND_GRACE: Duration = Duration::from_secs(2);
/// What it has in any case.
const MOMENT: Duration = Duration::from_secs(1);

/// When the last output is no longer waited for. Pure.
#[derive(Debug, Clone, Copy)]
struct End {
    at: Instant,
    /// A signal has asked for the end before.
    asked: bool,
    grace: Duration,
}

impl End {
    /// `limit`: when the members had to have ended, if a signal has asked for that.
    fn new(limit: Option<Instant>, grace: Duration, now: Instant) -> End {
        let longest = now + LONGEST;
        let at = limit.map_or(longest, |limit| (limit + BEYOND_GRACE).clamp(now + MOMENT, longest));
        End { at, asked: limit.is_some(), grace }
    }

    /// A signal asks for the end while the output is written: the first one leaves it the grace, the second one nothing.
    fn signal(&mut self, now: Instant) {
        let at = if self.asked { now } else { now + self.grace + BEYOND_GRACE };
        self.at = self.at.min(at);
        self.asked = true;
    }
}

/// The end of the output, which signals may bring nearer.
#[derive(Debug)]
pub(super) struct Patience {
    end: End,
    mover: watch::Sender<Instant>,
}

impl Patience {
    /// `limit`: when the members had to have ended, if a signal has asked for that.
    pub(super) fn new(limit: Option<Instant>, grace: Duration) -> (Patience, Deadline) {
        let end = End::new(limit, grace, clock::now());
        let (mover, deadline) = Deadline::new(end.at);
        (Patience { end, mover }, deadline)
    }

    /// Does the work that waits for the deadline, and hears signals meanwhile.
    pub(super) async fn heed<T>(mut self, signals: &mut Signals, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return done,
                sensed = signals.next() => match sensed {
                    Sensed::Signal(number) if signal::ends_the_job(number) => {
                        self.end.signal(clock::now());
                        self.mover.send_replace(self.end.at);
                    }
                    Sensed::Signal(_) | Sensed::Suspend(_) | Sensed::Child => {}
                },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_bring_the_end_nearer() {
        let start = Instant::now() + Duration::from_secs(100);
        let at = |seconds: i64| {
            let by = Duration::from_secs(seconds.unsigned_abs());
            if seconds < 0 { start - by } else { start + by }
        };
        type Row<'a> = (&'a str, Option<i64>, u64, &'a [i64], u64);
        // When members had to have ended, the grace, when signals come, and when it is over; in seconds.
        let table: &[Row<'_>] = &[
            ("nobody asks", None, 10, &[], 60),
            ("a signal while it is written", None, 10, &[5], 17),
            ("a second one", None, 10, &[5, 7], 7),
            ("a long grace makes nothing longer", None, 600, &[5], 60),
            ("the job was told to end", Some(8), 10, &[], 10),
            ("long ago", Some(-20), 10, &[], 1),
            ("with a long grace", Some(500), 600, &[], 60),
            ("and a second signal", Some(8), 10, &[3], 3),
            ("a third one changes nothing", Some(8), 10, &[3, 4], 3),
        ];
        for (what, limit, grace, signals, expected) in table {
            let mut end = End::new(limit.map(at), Duration::from_secs(*grace), start);
            signals.iter().for_each(|&signal| end.signal(at(signal)));
            assert_eq!((end.at - start).as_secs(), *expected, "{what}");
        }
    }
}
