//! Any order of offers, losses and failures, against the rules of a meeting. All offers are of agents that nobody has seen
//! before.

use super::super::*;
use proptest::prelude::*;
use proptest::test_runner::Config;
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest, prop_state_machine};

const WORLD: u32 = 4;
/// In milliseconds: what one that was lost has to come back, and the whole meeting.
const REJOIN: u64 = 10_000;
const MEETING: u64 = 60_000;

/// What is wrong with an offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flaw {
    Version,
    Job,
    Attempt,
    Roles,
}

#[derive(Debug, Clone)]
enum What {
    Offer {
        rank: Option<u32>,
        runs: u32,
        flaw: Option<Flaw>,
    },
    Gone(u32),
    Failed(u32),
    /// Nothing but time.
    Tick,
}

/// Something happens so many milliseconds after the last; `number` is no other's.
#[derive(Debug, Clone)]
struct Moment {
    pause: u64,
    number: u32,
    what: What,
}

/// What the meeting looks like to somebody who only sees what happens.
#[derive(Debug, Clone)]
struct Seen {
    /// The leader is a member, of rank 0.
    leads_as_member: bool,
    now: u64,
    number: u32,
    /// Ranks whose agent has come at least once: nobody else can be lost.
    known: BTreeSet<u32>,
}

impl ReferenceStateMachine for Seen {
    type State = Seen;
    type Transition = Moment;

    fn init_state() -> BoxedStrategy<Seen> {
        any::<bool>()
            .prop_map(|leads_as_member| Seen { leads_as_member, now: 0, number: 0, known: BTreeSet::new() })
            .boxed()
    }

    fn transitions(seen: &Seen) -> BoxedStrategy<Moment> {
        let pause = prop_oneof![4 => 0..2000u64, 1 => 9_900..10_100u64, 1 => 0..30_000u64];
        let rank = prop_oneof![1 => Just(None), 6 => (0..=WORLD).prop_map(Some)];
        let flaw = prop::sample::select(vec![Flaw::Version, Flaw::Job, Flaw::Attempt, Flaw::Roles]);
        let flaw = prop::option::weighted(0.2, flaw);
        let offer = (rank, 0..3u32, flaw).prop_map(|(rank, runs, flaw)| What::Offer { rank, runs, flaw });
        let first = u32::from(seen.leads_as_member);
        let what = prop_oneof![
            8 => offer,
            2 => (first..WORLD).prop_map(What::Gone),
            1 => (first..WORLD).prop_map(What::Failed),
            3 => Just(What::Tick),
        ];
        let number = seen.number + 1;
        (pause, what).prop_map(move |(pause, what)| Moment { pause, number, what }).boxed()
    }

    fn preconditions(seen: &Seen, moment: &Moment) -> bool {
        match moment.what {
            What::Gone(rank) | What::Failed(rank) => seen.known.contains(&rank),
            What::Offer { .. } | What::Tick => true,
        }
    }

    fn apply(mut seen: Seen, moment: &Moment) -> Seen {
        seen.now += moment.pause;
        seen.number = moment.number;
        match moment.what {
            What::Offer { rank: Some(rank), flaw: None, .. } => _ = seen.known.insert(rank),
            // Whichever rank it has got, another one of it may be lost later.
            What::Offer { .. } | What::Failed(_) | What::Tick => {}
            What::Gone(rank) => _ = seen.known.remove(&rank),
        }
        seen
    }
}

/// The seats, and who sits there as far as the answers tell.
struct Meeting {
    start: Instant,
    seats: Seats,
    own: Option<u32>,
    /// The offer that has the rank.
    owners: Vec<Option<Offer>>,
    /// Since when a rank is lost.
    away: HashMap<u32, u64>,
    /// Why it has ended, whoever comes.
    ended: Option<Ended>,
}

impl Meeting {
    fn at(&self, ms: u64) -> Instant {
        self.start + Duration::from_millis(ms)
    }

    fn missing(&self) -> Vec<u32> {
        (0..WORLD).filter(|rank| self.owners[*rank as usize].is_none()).collect()
    }

    fn sits(&mut self, rank: u32, offer: Offer) {
        self.owners[rank as usize] = Some(offer);
        self.away.remove(&rank);
    }

    fn offer(&mut self, offer: Offer, flaw: Option<Flaw>) {
        let missing = self.missing();
        let answer = self.seats.offer(offer.clone());
        if let Some(flaw) = flaw {
            let expected = match answer {
                Seating::Refused(Refusal::OtherVersion { .. }) => flaw == Flaw::Version,
                Seating::Refused(Refusal::OtherJob { .. }) => matches!(flaw, Flaw::Job | Flaw::Attempt),
                Seating::Refused(Refusal::OtherRoles { .. }) => flaw == Flaw::Roles,
                _ => false,
            };
            assert!(expected, "{flaw:?}: {answer:?}");
            return;
        }
        let Some(rank) = offer.rank.or(missing.first().copied()) else {
            assert_eq!(answer, Seating::Refused(Refusal::AllHaveCome));
            return;
        };
        if rank >= WORLD {
            assert_eq!(answer, Seating::Refused(Refusal::NoSuchRank { rank }));
            return;
        }
        let Some(owner) = self.owners[rank as usize].clone() else {
            assert_eq!(answer, Seating::Seated { rank }, "a free seat is for the first that fits");
            self.sits(rank, offer);
            return;
        };
        let is_later_run = offer.runs > owner.runs;
        match answer {
            Seating::Refused(Refusal::Taken { rank: told, pid, .. }) if !is_later_run => {
                assert_eq!((told, pid), (rank, owner.pid), "it hears who has the rank");
            }
            Seating::SeatedAgain { rank: told } if self.own != Some(rank) && is_later_run => {
                assert_eq!(told, rank);
                self.sits(rank, offer);
            }
            Seating::Superseded if self.own == Some(rank) && is_later_run => {
                self.ended = Some(Ended::Superseded);
            }
            other => panic!("rank {rank} is {owner:?}'s, and {offer:?} is {other:?}"),
        }
    }

    /// How the meeting stands by the rules.
    fn stands(&self, now: u64) -> Verdict {
        if let Some(ended) = &self.ended {
            return Verdict::Ended(ended.clone());
        }
        let longest = self.away.iter().map(|(rank, since)| (now - since, std::cmp::Reverse(*rank))).max();
        match longest {
            Some((away, rank)) if away >= REJOIN => {
                Verdict::Ended(Ended::Lost { rank: rank.0, away: Duration::from_millis(away) })
            }
            _ if now >= MEETING => Verdict::Ended(Ended::Missing),
            _ if self.missing().is_empty() => Verdict::AllHaveCome,
            _ => Verdict::Wait,
        }
    }
}

struct AnyOrder;

impl StateMachineTest for AnyOrder {
    type SystemUnderTest = Meeting;
    type Reference = Seen;

    fn init_test(seen: &Seen) -> Meeting {
        let start = Instant::now();
        let end = start + Duration::from_millis(MEETING);
        let ours = Offer::for_tests(0);
        let mut seats = Seats::new(ours.clone(), WORLD, Duration::from_millis(REJOIN), end);
        let own = seen.leads_as_member.then(|| seats.take_own().expect("a free seat"));
        let mut owners = vec![None; WORLD as usize];
        if let Some(own) = own {
            owners[own as usize] = Some(ours);
        }
        Meeting { start, seats, own, owners, away: HashMap::new(), ended: None }
    }

    fn apply(mut meeting: Meeting, seen: &Seen, moment: Moment) -> Meeting {
        let now = meeting.at(seen.now);
        match moment.what {
            What::Tick => {}
            What::Offer { rank, runs, flaw } => {
                let mut offer = Offer::for_tests(rank.unwrap_or(9));
                offer.rank = rank;
                offer.runs = runs;
                offer.pid = 1000 + moment.number;
                match flaw {
                    None => {}
                    Some(Flaw::Version) => offer.version += 1,
                    Some(Flaw::Job) => offer.job = Some("another".to_owned()),
                    Some(Flaw::Attempt) => offer.attempt += 1,
                    Some(Flaw::Roles) => offer.roles.push('x'),
                }
                meeting.offer(offer, flaw);
            }
            // Of one that has gone already nobody hears it again.
            What::Gone(rank) if meeting.owners[rank as usize].is_none() => {}
            What::Gone(rank) => {
                meeting.seats.gone(rank, now);
                meeting.owners[rank as usize] = None;
                meeting.away.insert(rank, seen.now);
            }
            What::Failed(rank) => {
                let why = format!("failure {}", moment.number);
                meeting.seats.failed(rank, 197, why.clone());
                meeting.ended.get_or_insert(Ended::Failed { rank, code: 197, why });
            }
        }
        meeting
    }

    fn check_invariants(meeting: &Meeting, seen: &Seen) {
        let seats = &meeting.seats;
        assert_eq!(seats.missing(), meeting.missing());
        assert_eq!(seats.offers(), meeting.owners.iter().flatten().collect::<Vec<_>>(), "one owner per rank");
        assert_eq!(seats.own(), meeting.own);
        let now = meeting.at(seen.now);
        let verdict = seats.verdict(now);
        assert_eq!(verdict, meeting.stands(seen.now));
        // Whoever waits until it is due misses nothing.
        let due = seats.due();
        let before = due - Duration::from_millis(1);
        if before >= now {
            assert_eq!(seats.verdict(before), verdict, "it changes before it is due");
        }
        assert!(matches!(seats.verdict(due.max(now)), Verdict::Ended(_)), "nothing changes when it is due");
    }
}

prop_state_machine! {
    #![proptest_config(Config { cases: 1000, failure_persistence: None, ..Config::default() })]

    #[test]
    fn a_meeting_follows_its_rules_in_any_order(sequential 1..40 => AnyOrder);
}
