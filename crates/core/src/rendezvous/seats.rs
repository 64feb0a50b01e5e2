//! Who has come to the meeting and who is missing, and how the meeting ends. Pure: the leader keeps the connections.

use super::message::{Offer, VERSION};
use crate::plan::Plan;
use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

/// One seat per rank.
#[derive(Debug)]
pub(super) struct Seats {
    /// The leader's offer: all others have to agree with its job, attempt and roles.
    ours: Offer,
    /// The offers of those that have come, by rank.
    taken: Vec<Option<Offer>>,
    /// Their ranks, by process.
    ranks: HashMap<u64, u32>,
    /// Ranks that nobody has.
    free: BTreeSet<u32>,
    lost: Lost,
    /// How long a member that was lost may take to come back.
    rejoin: Duration,
    /// When the meeting is over, whoever has come.
    end: Instant,
    /// The leader's own rank; a launcher has none.
    own: Option<u32>,
    /// Set when the meeting cannot go on, whoever comes.
    ended: Option<Ended>,
}

/// What becomes of an offer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Seating {
    /// It has this rank from now on.
    Seated {
        rank: u32,
    },
    /// It has this rank instead of an earlier run of the same member. A scheduler that has started a member again knows
    /// that the earlier run is over, though its connection may still be open.
    SeatedAgain {
        rank: u32,
    },
    /// It has kept this rank: the same process comes back, and has noticed before us that its connection is lost.
    Back {
        rank: u32,
    },
    /// The scheduler has started the leader's own member again elsewhere, so this run of it is over.
    Superseded,
    Refused(Refusal),
}

/// Why an offer is not taken.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    OtherVersion {
        version: u32,
    },
    /// Jobs and attempts: the offer's, then ours.
    OtherJob {
        its: (Option<String>, u32),
        ours: (Option<String>, u32),
    },
    OtherRoles {
        its: String,
        ours: String,
    },
    NoSuchRank {
        rank: u32,
    },
    AllHaveCome,
    Taken {
        rank: u32,
        pid: u32,
        host: String,
    },
}

/// How the meeting stands.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Somebody is missing, and may still come.
    Wait,
    AllHaveCome,
    Ended(Ended),
}

/// Why the meeting has ended before all had come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ended {
    /// The leader's own member was started again elsewhere.
    Superseded,
    /// A member's agent has failed.
    Failed { rank: u32, code: u8, why: String },
    /// A member that was lost did not come back for this long.
    Lost { rank: u32, away: Duration },
    /// The time is over.
    Missing,
}

impl Seats {
    /// All are free.
    pub(super) fn new(ours: Offer, world: u32, rejoin: Duration, end: Instant) -> Seats {
        Seats {
            ours,
            taken: vec![None; world as usize],
            ranks: HashMap::new(),
            free: (0..world).collect(),
            lost: Lost::default(),
            rejoin,
            end,
            own: None,
            ended: None,
        }
    }

    /// The leader itself takes its seat.
    pub(super) fn take_own(&mut self) -> Result<u32, Refusal> {
        let rank = self.rank_for(&self.ours)?;
        self.take(rank, self.ours.clone());
        self.own = Some(rank);
        Ok(rank)
    }

    /// The leader's own rank; a launcher has none.
    pub(super) fn own(&self) -> Option<u32> {
        self.own
    }

    /// Gives an offer its seat, or says why not.
    pub(super) fn offer(&mut self, offer: Offer) -> Seating {
        let rank = match self.rank_for(&offer) {
            Ok(rank) => rank,
            Err(refusal) => return Seating::Refused(refusal),
        };
        match &self.taken[rank as usize] {
            None => {
                self.take(rank, offer);
                Seating::Seated { rank }
            }
            Some(earlier) if earlier.is_of_the_same_process(&offer) && self.own != Some(rank) => {
                self.take(rank, offer);
                Seating::Back { rank }
            }
            Some(earlier) if offer.runs <= earlier.runs => {
                Seating::Refused(Refusal::Taken { rank, pid: earlier.pid, host: earlier.host.clone() })
            }
            Some(_) if self.own == Some(rank) => {
                self.ended = Some(Ended::Superseded);
                Seating::Superseded
            }
            Some(_) => {
                self.take(rank, offer);
                Seating::SeatedAgain { rank }
            }
        }
    }

    /// The rank that the process of this offer has already.
    pub(super) fn rank_of(&self, offer: &Offer) -> Option<u32> {
        self.ranks.get(&offer.process?).copied()
    }

    /// The rank that an offer asks for, or the one that it has already, or the first that is free.
    fn rank_for(&self, offer: &Offer) -> Result<u32, Refusal> {
        let ours = &self.ours;
        if offer.version != VERSION {
            return Err(Refusal::OtherVersion { version: offer.version });
        }
        if offer.job != ours.job || offer.attempt != ours.attempt {
            let ours = (ours.job.clone(), ours.attempt);
            return Err(Refusal::OtherJob { its: (offer.job.clone(), offer.attempt), ours });
        }
        if offer.roles != ours.roles {
            return Err(Refusal::OtherRoles { its: offer.roles.clone(), ours: ours.roles.clone() });
        }
        match offer.rank {
            Some(rank) if rank as usize >= self.taken.len() => Err(Refusal::NoSuchRank { rank }),
            Some(rank) => Ok(rank),
            None => {
                let own = self.rank_of(offer);
                own.or_else(|| self.free.first().copied()).ok_or(Refusal::AllHaveCome)
            }
        }
    }

    fn take(&mut self, rank: u32, offer: Offer) {
        self.lost.remove(rank);
        self.leave(rank);
        self.free.remove(&rank);
        self.ranks.extend(offer.process.map(|process| (process, rank)));
        self.taken[rank as usize] = Some(offer);
    }

    /// Nobody has this rank.
    fn leave(&mut self, rank: u32) {
        let process = self.taken[rank as usize].take().and_then(|offer| offer.process);
        if let Some(process) = process.filter(|process| self.ranks.get(process) == Some(&rank)) {
            self.ranks.remove(&process);
        }
        self.free.insert(rank);
    }

    /// The connection to a member is gone: it has a while to come back.
    pub(super) fn gone(&mut self, rank: u32, now: Instant) {
        self.leave(rank);
        self.lost.insert(rank, now);
    }

    /// A member's agent has failed; the first failure is the cause.
    pub(super) fn failed(&mut self, rank: u32, code: u8, why: String) {
        self.ended.get_or_insert(Ended::Failed { rank, code, why });
    }

    /// Whether to go on waiting.
    pub(super) fn verdict(&self, now: Instant) -> Verdict {
        if let Some(ended) = &self.ended {
            return Verdict::Ended(ended.clone());
        }
        match self.lost.first() {
            Some((since, rank)) if now >= since + self.rejoin => {
                Verdict::Ended(Ended::Lost { rank, away: now.saturating_duration_since(since) })
            }
            _ if now >= self.end => Verdict::Ended(Ended::Missing),
            _ if self.free.is_empty() => Verdict::AllHaveCome,
            _ => Verdict::Wait,
        }
    }

    /// When the verdict changes if nobody comes.
    pub(super) fn due(&self) -> Instant {
        let lost = self.lost.first().map(|(since, _)| since + self.rejoin);
        lost.map_or(self.end, |lost| lost.min(self.end))
    }

    /// Ranks that nobody has.
    pub(super) fn missing(&self) -> Vec<u32> {
        self.free.iter().copied().collect()
    }

    /// What those said that have come, in the order of their ranks.
    pub(super) fn offers(&self) -> Vec<&Offer> {
        self.taken.iter().flatten().collect()
    }
}

impl Refusal {
    /// What the one that is refused hears.
    pub(super) fn text(&self, plan: &Plan) -> String {
        let job = |job: &Option<String>| job.clone().unwrap_or_else(|| "none".to_owned());
        match self {
            Refusal::OtherVersion { version } => format!(
                "its protocol is version {version}, ours {VERSION}; use the same rallypoint everywhere"
            ),
            Refusal::OtherJob { its, ours } => format!(
                "it belongs to job {} attempt {}, this is job {} attempt {}",
                job(&its.0),
                its.1,
                job(&ours.0),
                ours.1
            ),
            Refusal::OtherRoles { its, ours } => {
                format!("it was asked for {its}, the leader for {ours}; give all the same roles")
            }
            Refusal::NoSuchRank { rank } => format!("rank {rank} does not exist among {}", plan.world()),
            Refusal::AllHaveCome => format!("all {} members have come already", plan.world()),
            Refusal::Taken { rank, pid, host } => {
                format!("rank {rank} ({}) is taken by pid {pid} on {host}", plan.members()[*rank as usize])
            }
        }
    }
}

/// Ranks that were lost before all had come, and since when.
#[derive(Debug, Default)]
struct Lost {
    since: HashMap<u32, Instant>,
    in_order: BTreeSet<(Instant, u32)>,
}

impl Lost {
    fn insert(&mut self, rank: u32, since: Instant) {
        self.remove(rank);
        self.since.insert(rank, since);
        self.in_order.insert((since, rank));
    }

    fn remove(&mut self, rank: u32) {
        if let Some(since) = self.since.remove(&rank) {
            self.in_order.remove(&(since, rank));
        }
    }

    /// The one that has been away longest.
    fn first(&self) -> Option<(Instant, u32)> {
        self.in_order.first().copied()
    }
}

#[cfg(test)]
mod tests {
    mod any_order;

    use super::*;

    const REJOIN: Duration = Duration::from_secs(10);

    /// Three seats, the first of which is the leader's own; the meeting ends after a minute.
    fn seats(start: Instant) -> Seats {
        let mut seats = Seats::new(Offer::for_tests(0), 3, REJOIN, start + Duration::from_secs(60));
        assert_eq!(seats.take_own(), Ok(0));
        seats
    }

    fn offer(rank: u32) -> Offer {
        Offer::for_tests(rank)
    }

    fn unranked() -> Offer {
        Offer { rank: None, ..offer(9) }
    }

    /// Of a process that is known, wherever it wants to sit.
    fn of(process: u64, offer: Offer) -> Offer {
        Offer { process: Some(process), ..offer }
    }

    fn run(runs: u32, rank: u32) -> Offer {
        Offer { runs, ..offer(rank) }
    }

    #[test]
    fn what_becomes_of_offers() {
        use Seating::{Back, Refused, Seated, SeatedAgain, Superseded};
        let taken = |rank| Refused(Refusal::Taken { rank, pid: 1, host: format!("n{rank}") });
        let none = || None::<String>;
        let table = [
            ("by rank", vec![offer(2), offer(1)], Seated { rank: 1 }),
            ("the first that is free", vec![unranked()], Seated { rank: 1 }),
            ("the next that is free", vec![offer(1), unranked()], Seated { rank: 2 }),
            ("none is free", vec![offer(1), offer(2), unranked()], Refused(Refusal::AllHaveCome)),
            ("a rank twice", vec![offer(1), offer(1)], taken(1)),
            ("the leader's rank", vec![offer(0)], taken(0)),
            ("started again", vec![offer(1), run(1, 1)], SeatedAgain { rank: 1 }),
            ("an earlier run comes late", vec![run(1, 1), offer(1)], taken(1)),
            ("the same process", vec![of(7, offer(1)), of(7, offer(1))], Back { rank: 1 }),
            ("another process", vec![of(7, offer(1)), of(8, offer(1))], taken(1)),
            ("an unknown process", vec![of(7, offer(1)), offer(1)], taken(1)),
            ("the same, started again", vec![of(7, offer(1)), of(8, run(1, 1))], SeatedAgain { rank: 1 }),
            (
                "the run before, started again",
                vec![of(7, offer(1)), of(8, run(1, 1)), of(7, offer(1))],
                taken(1),
            ),
            ("the same process without a rank", vec![of(7, unranked()), of(7, unranked())], Back { rank: 1 }),
            (
                "the same process when all have come",
                vec![of(7, unranked()), of(8, unranked()), of(7, unranked())],
                Back { rank: 1 },
            ),
            ("the leader was started again", vec![run(1, 0)], Superseded),
            ("no such rank", vec![offer(3)], Refused(Refusal::NoSuchRank { rank: 3 })),
            (
                "another protocol",
                vec![Offer { version: 1, ..offer(1) }],
                Refused(Refusal::OtherVersion { version: 1 }),
            ),
            (
                "another job",
                vec![Offer { job: Some("17".to_owned()), ..offer(1) }],
                Refused(Refusal::OtherJob { its: (Some("17".to_owned()), 0), ours: (none(), 0) }),
            ),
            (
                "another attempt",
                vec![Offer { attempt: 2, ..offer(1) }],
                Refused(Refusal::OtherJob { its: (none(), 2), ours: (none(), 0) }),
            ),
            (
                "other roles",
                vec![Offer { roles: "ps*1".to_owned(), ..offer(1) }],
                Refused(Refusal::OtherRoles { its: "ps*1".to_owned(), ours: String::new() }),
            ),
        ];
        for (what, offers, expected) in table {
            let mut seats = seats(Instant::now());
            let last = offers.into_iter().map(|offer| seats.offer(offer)).last();
            assert_eq!(last, Some(expected), "{what}");
        }
    }

    /// A launcher is no member, so none of its members can take its place.
    #[test]
    fn a_launcher_has_no_seat() {
        let now = Instant::now();
        let mut seats = Seats::new(offer(0), 2, REJOIN, now + REJOIN);
        assert_eq!(seats.own(), None);
        assert_eq!(seats.offer(offer(0)), Seating::Seated { rank: 0 });
        assert_eq!(seats.offer(run(1, 0)), Seating::SeatedAgain { rank: 0 });
        assert_eq!(seats.offers(), [&run(1, 0)]);
        assert_eq!(seats.missing(), [1]);
    }

    enum Event {
        Offer(Offer),
        Gone(u32),
        Failed(u32),
    }

    #[test]
    fn the_verdict_follows_from_what_has_happened() {
        use Event::{Failed, Gone};
        let come = |rank| Event::Offer(offer(rank));
        let back = || Event::Offer(of(7, unranked()));
        let away = |rank, seconds| Verdict::Ended(Ended::Lost { rank, away: Duration::from_secs(seconds) });
        let failed = |rank| Verdict::Ended(Ended::Failed { rank, code: 197, why: "no room".to_owned() });
        let (again, superseded) = (|| Event::Offer(run(1, 0)), || Verdict::Ended(Ended::Superseded));
        // What has happened at which second, when it is looked at, how it stands, and when that changes by itself.
        let table = [
            ("nobody has come", vec![], 0, Verdict::Wait, 60),
            ("one is missing", vec![(1, come(1))], 2, Verdict::Wait, 60),
            ("all have come", vec![(1, come(1)), (2, come(2))], 2, Verdict::AllHaveCome, 60),
            ("the time is over", vec![(1, come(1))], 60, Verdict::Ended(Ended::Missing), 60),
            ("one is lost", vec![(1, come(1)), (5, Gone(1))], 14, Verdict::Wait, 15),
            ("it does not come back", vec![(1, come(1)), (5, Gone(1))], 16, away(1, 11), 15),
            ("it comes back", vec![(1, come(1)), (5, Gone(1)), (9, come(1))], 16, Verdict::Wait, 60),
            (
                "the first that was lost counts",
                vec![(1, come(1)), (1, come(2)), (5, Gone(2)), (7, Gone(1))],
                18,
                away(2, 13),
                15,
            ),
            (
                "lost again: its time begins anew",
                vec![(1, come(1)), (5, Gone(1)), (9, come(1)), (12, Gone(1))],
                16,
                Verdict::Wait,
                22,
            ),
            ("it is back before it was missed", vec![(1, back()), (5, back())], 16, Verdict::Wait, 60),
            ("lost after it came back", vec![(1, back()), (5, back()), (7, Gone(1))], 16, Verdict::Wait, 17),
            ("back after its loss", vec![(1, back()), (5, Gone(1)), (6, back())], 16, Verdict::Wait, 60),
            ("lost, not only missing", vec![(50, come(1)), (50, Gone(1))], 60, away(1, 10), 60),
            ("a failure", vec![(1, come(1)), (2, Failed(1))], 2, failed(1), 60),
            ("its end comes after it", vec![(1, come(1)), (2, Failed(1)), (2, Gone(1))], 30, failed(1), 12),
            ("the first failure", vec![(2, Failed(1)), (2, Failed(2))], 2, failed(1), 60),
            ("started again", vec![(2, again())], 2, superseded(), 60),
            ("started again, after a failure", vec![(1, Failed(1)), (2, again())], 2, superseded(), 60),
        ];
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        for (what, events, looked_at, expected, due) in table {
            let mut seats = seats(start);
            for (second, event) in events {
                match event {
                    Event::Offer(offer) => _ = seats.offer(offer),
                    Gone(rank) => seats.gone(rank, at(second)),
                    Failed(rank) => seats.failed(rank, 197, "no room".to_owned()),
                }
            }
            assert_eq!(seats.verdict(at(looked_at)), expected, "{what}");
            assert_eq!(seats.due(), at(due), "{what}");
        }
    }
}
