//! Output that could not be written: who is told what, and when.

use crate::lane::{Loss, Losses};
use crate::outcome::LostOutput;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Notify, mpsc};

/// How often it is said again, of a file that goes on losing.
const AGAIN: Duration = Duration::from_secs(30);

/// Where losses are told and heard of.
#[derive(Debug)]
pub(super) struct Hearing {
    /// Told when there is something to hear.
    pub(super) wake: Arc<Notify>,
    pub(super) losses: Losses,
    pub(super) heard: mpsc::Receiver<Loss>,
}

impl Hearing {
    pub(super) fn new() -> Hearing {
        let wake = Arc::new(Notify::new());
        let (losses, heard) = Losses::new(wake.clone());
        Hearing { wake, losses, heard }
    }
}

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

    /// Adds a loss; how much of that file is lost by now, and whether that was told before, where it is time to tell.
    pub(super) fn add(&mut self, loss: Loss, now: Instant) -> Option<(LostOutput, bool)> {
        let Loss { path, bytes, why } = loss;
        let before = self.lost.get_mut(&path);
        let again = before.is_some();
        let lost = match before {
            Some(lost) => {
                lost.bytes += bytes;
                if now.saturating_duration_since(lost.told) < AGAIN {
                    return None;
                }
                lost.told = now;
                lost
            }
            None => self.lost.entry(path.clone()).or_insert(Lost { bytes, why, told: now }),
        };
        Some((LostOutput { path, bytes: lost.bytes, why: lost.why.clone() }, again))
    }

    /// What was lost in the end, by path.
    pub(super) fn all(&self) -> Vec<LostOutput> {
        let lost = self.lost.iter();
        lost.map(|(path, lost)| LostOutput { path: path.clone(), bytes: lost.bytes, why: lost.why.clone() })
            .collect()
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
        let told = |bytes, again| {
            let (path, why) = ("logs/worker-0.out".to_owned(), "no space".to_owned());
            Some((LostOutput { path, bytes, why }, again))
        };
        assert_eq!(lose(10, 0), told(10, false));
        assert_eq!(lose(10, 1), None);
        assert_eq!(lose(10, 31), told(30, true));
        assert_eq!(lose(1, 32), None);
        assert_eq!(tally.all().iter().map(|lost| lost.bytes).collect::<Vec<_>>(), [31]);
    }
}
