//! What is said of strangers: the first few each, then counts. A port scanner must not fill a log.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Of each reason this many are named, and of all reasons together.
const NAMED_PER_REASON: u64 = 3;
const NAMED: u64 = 10;
/// Reasons that are counted apart; the others are counted together.
const REASONS: usize = 8;
/// From the first that is only counted to the line with the counts.
const FIRST_SUMMARY: Duration = Duration::from_secs(1);
/// Between two such lines.
const SUMMARY: Duration = Duration::from_secs(10);

/// Who was turned away, and what of it is still to be said.
#[derive(Debug, Default)]
pub(super) struct Strangers {
    named: u64,
    /// How many were named, by reason.
    reasons: BTreeMap<String, u64>,
    /// How many were only counted since the last summary, by reason; `None` stands for all further reasons.
    counted: BTreeMap<Option<String>, u64>,
    last_peer: String,
    /// When the counts are to be said.
    due: Option<Instant>,
    summarised: bool,
}

impl Strangers {
    /// Somebody was turned away; the line to say now, if any.
    pub(super) fn turned_away(&mut self, peer: &str, why: &str, now: Instant) -> Option<String> {
        let known = self.reasons.contains_key(why);
        if known || self.reasons.len() < REASONS {
            let of_reason = self.reasons.entry(why.to_owned()).or_default();
            if *of_reason < NAMED_PER_REASON && self.named < NAMED {
                *of_reason += 1;
                self.named += 1;
                return Some(format!("a stranger at {peer} was turned away: {why}"));
            }
            *self.counted.entry(Some(why.to_owned())).or_default() += 1;
        } else {
            *self.counted.entry(None).or_default() += 1;
        }
        peer.clone_into(&mut self.last_peer);
        let pause = if self.summarised { SUMMARY } else { FIRST_SUMMARY };
        self.due.get_or_insert(now + pause);
        None
    }

    /// When [`Strangers::summary`] has something to say.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// The line with the counts, where it is due.
    pub(super) fn summary(&mut self, now: Instant) -> Option<String> {
        self.due.filter(|due| *due <= now)?;
        self.due = None;
        self.summarised = true;
        let counted = std::mem::take(&mut self.counted);
        let total: u64 = counted.values().sum();
        let mut reasons: Vec<(u64, String)> = counted
            .into_iter()
            .map(|(why, count)| (count, why.unwrap_or_else(|| "for other reasons".to_owned())))
            .collect();
        reasons.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
        let reasons: Vec<String> = reasons.iter().map(|(count, why)| format!("{count} × {why}")).collect();
        let plural = if total == 1 { " was" } else { "s were" };
        Some(format!(
            "{total} more stranger{plural} turned away: {}; the last at {}",
            reasons.join(", "),
            self.last_peer
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two thousand in ten seconds, and one more much later.
    #[test]
    fn the_first_are_named_and_the_others_counted() {
        let start = Instant::now();
        let mut strangers = Strangers::default();
        let mut lines = Vec::new();
        for number in 0..2000u64 {
            let now = start + Duration::from_millis(number * 5);
            let why = if number % 4 == 0 { "it has another key" } else { "it said nothing for 5 s" };
            lines.extend(strangers.turned_away(&format!("peer {number}"), why, now));
            lines.extend(strangers.summary(now));
        }
        lines.extend(strangers.summary(start + Duration::from_secs(60)));
        assert_eq!(strangers.summary(start + Duration::from_secs(70)), None, "nothing more to say");
        assert_eq!(strangers.due(), None);
        assert_eq!(lines[0], "a stranger at peer 0 was turned away: it has another key");
        assert_eq!(lines.iter().filter(|line| line.starts_with("a stranger at ")).count(), 6);
        assert_eq!(lines.len(), 8, "{lines:#?}");
        assert!(lines[6].contains("151 × it said nothing for 5 s, 49 × it has another key"), "{}", lines[6]);
        assert!(lines[7].starts_with("1794 more strangers were turned away: "), "{}", lines[7]);
        assert!(lines[7].ends_with("; the last at peer 1999"), "{}", lines[7]);
        // Still counted, but a new reason is worth a line.
        let later = start + Duration::from_secs(100);
        assert_eq!(strangers.turned_away("x", "it has another key", later), None);
        assert!(strangers.turned_away("x", "a new one", later).is_some());
        let line = strangers.summary(later + SUMMARY).unwrap();
        assert_eq!(line, "1 more stranger was turned away: 1 × it has another key; the last at x");
    }

    /// Whoever sends a different nonsense each time cannot make the memory grow.
    #[test]
    fn reasons_are_bounded() {
        let now = Instant::now();
        let mut strangers = Strangers::default();
        let named =
            (0..10_000).filter_map(|n| strangers.turned_away("x", &format!("nonsense {n}"), now)).count();
        assert_eq!(named, REASONS);
        assert!(strangers.reasons.len() <= REASONS && strangers.counted.len() <= REASONS + 1);
        assert!(strangers.summary(now + SUMMARY).unwrap().contains("9992 × for other reasons"));
    }
}
