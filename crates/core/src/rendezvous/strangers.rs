//! What is said of strangers: the first few each, then counts. A port scanner must not fill a log.

use crate::event::RunEvent;
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
    /// Somebody was turned away; what to tell of it now, if anything.
    pub(super) fn turned_away(&mut self, peer: &str, why: &str, now: Instant) -> Option<RunEvent> {
        let known = self.reasons.contains_key(why);
        if known || self.reasons.len() < REASONS {
            let of_reason = self.reasons.entry(why.to_owned()).or_default();
            if *of_reason < NAMED_PER_REASON && self.named < NAMED {
                *of_reason += 1;
                self.named += 1;
                return Some(RunEvent::Stranger { peer: peer.to_owned(), why: why.to_owned() });
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

    /// The counts, where they are due.
    pub(super) fn summary(&mut self, now: Instant) -> Option<RunEvent> {
        self.due.filter(|due| *due <= now)?;
        self.due = None;
        self.summarised = true;
        let counted = std::mem::take(&mut self.counted);
        let count = counted.values().sum();
        let mut reasons: Vec<(Option<String>, u64)> = counted.into_iter().collect();
        reasons.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        Some(RunEvent::Strangers { count, reasons, last_peer: self.last_peer.clone() })
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
        let mut events = Vec::new();
        for number in 0..2000u64 {
            let now = start + Duration::from_millis(number * 5);
            let why = if number % 4 == 0 { "it has another key" } else { "it said nothing for 5 s" };
            events.extend(strangers.turned_away(&format!("peer {number}"), why, now));
            events.extend(strangers.summary(now));
        }
        events.extend(strangers.summary(start + Duration::from_secs(60)));
        assert_eq!(strangers.summary(start + Duration::from_secs(70)), None, "nothing more to say");
        assert_eq!(strangers.due(), None);
        let first = RunEvent::Stranger { peer: "peer 0".to_owned(), why: "it has another key".to_owned() };
        assert_eq!(events[0], first);
        assert_eq!(events.iter().filter(|event| matches!(event, RunEvent::Stranger { .. })).count(), 6);
        assert_eq!(events.len(), 8, "{events:#?}");
        let counts = |event: &RunEvent| match event {
            RunEvent::Strangers { count, reasons, last_peer } => {
                (*count, reasons.iter().map(|(_, count)| *count).collect::<Vec<u64>>(), last_peer.clone())
            }
            other => panic!("{other:?}"),
        };
        let (count, reasons, _) = counts(&events[6]);
        assert_eq!((count, reasons), (200, vec![151, 49]));
        let (count, _, last) = counts(&events[7]);
        assert_eq!((count, last.as_str()), (1794, "peer 1999"));
        // Still counted, but a new reason is worth a word.
        let later = start + Duration::from_secs(100);
        assert_eq!(strangers.turned_away("x", "it has another key", later), None);
        assert!(strangers.turned_away("x", "a new one", later).is_some());
        let event = strangers.summary(later + SUMMARY).unwrap();
        assert_eq!(counts(&event), (1, vec![1], "x".to_owned()));
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
        let Some(RunEvent::Strangers { reasons, .. }) = strangers.summary(now + SUMMARY) else { panic!() };
        assert_eq!(reasons, [(None, 9992)]);
    }
}
