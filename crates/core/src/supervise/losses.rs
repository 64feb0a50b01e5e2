//! Output that could not be written: who is told what, and when.

use crate::lane::Loss;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// What is said where a terminal or a pipe takes no more.
pub(super) const NOT_SHOWN: &str =
    "the end of what members wrote is not shown: whoever reads it has stopped, or is too slow";
/// How often it is said again, of a file that goes on losing.
const AGAIN: Duration = Duration::from_secs(30);

/// Losses that the leader has not heard of: a file that goes on losing is told now and then.
#[derive(Debug, Default)]
pub(super) struct Unsent {
    losses: Vec<Loss>,
    sent: Option<Instant>,
}

impl Unsent {
    /// Adds a loss; true if it is time to send.
    pub(super) fn add(&mut self, loss: Loss, now: Instant) -> bool {
        match self.losses.iter_mut().find(|before| before.path == loss.path) {
            Some(before) => before.bytes += loss.bytes,
            None => self.losses.push(loss),
        }
        self.sent.is_none_or(|sent| now.saturating_duration_since(sent) >= AGAIN)
    }

    pub(super) fn take(&mut self, now: Instant) -> Vec<Loss> {
        self.sent = Some(now);
        std::mem::take(&mut self.losses)
    }
}

/// All that was lost so far, by path.
#[derive(Debug, Default)]
pub(super) struct Tally {
    lost: BTreeMap<String, Lost>,
}

#[derive(Debug)]
struct Lost {
    bytes: u64,
    why: String,
    told: Instant,
}

impl Tally {
    pub(super) fn is_empty(&self) -> bool {
        self.lost.is_empty()
    }

    /// Adds a loss; the line to say about it, and how much it is by now, where it is time for one.
    pub(super) fn add(&mut self, loss: Loss, now: Instant) -> Option<(String, u64)> {
        let Loss { path, bytes, why } = loss;
        match self.lost.get_mut(&path) {
            None => {
                let line = line(&path, bytes, &why);
                self.lost.insert(path, Lost { bytes, why, told: now });
                Some((format!("{line}; still trying"), bytes))
            }
            Some(lost) => {
                lost.bytes += bytes;
                let due = now.saturating_duration_since(lost.told) >= AGAIN;
                due.then(|| {
                    lost.told = now;
                    (format!("{} in all; still trying", line(&path, lost.bytes, &lost.why)), lost.bytes)
                })
            }
        }
    }

    /// What was lost in the end, one line per path.
    pub(super) fn lines(&self) -> Vec<String> {
        self.lost.iter().map(|(path, lost)| line(path, lost.bytes, &lost.why)).collect()
    }
}

fn line(path: &str, bytes: u64, why: &str) -> String {
    match bytes {
        0 => format!("output is lost: {path}: {why}"),
        1 => format!("1 byte of output is lost: {path}: {why}"),
        bytes => format!("{bytes} bytes of output are lost: {path}: {why}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_is_told_at_once_and_then_seldom() {
        let start = Instant::now();
        let mut tally = Tally::default();
        let mut lose = |bytes, seconds| {
            let loss = Loss { path: "logs/worker-0.out".to_owned(), bytes, why: "no space".to_owned() };
            tally.add(loss, start + Duration::from_secs(seconds))
        };
        let first = "10 bytes of output are lost: logs/worker-0.out: no space; still trying";
        assert_eq!(lose(10, 0), Some((first.to_owned(), 10)));
        assert_eq!(lose(10, 1), None);
        let again = "30 bytes of output are lost: logs/worker-0.out: no space in all; still trying";
        assert_eq!(lose(10, 31), Some((again.to_owned(), 30)));
        assert_eq!(lose(1, 32), None);
        assert_eq!(tally.lines(), ["31 bytes of output are lost: logs/worker-0.out: no space"]);
    }
}
