//! Any order of wishes and moments, against what members are promised.

use super::super::*;
use proptest::prelude::*;
use proptest::test_runner::Config;
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest, prop_state_machine};

/// In milliseconds: what SIGKILL did not end has this long.
const GIVEN_UP: u64 = 3000;

#[derive(Debug, Clone)]
enum What {
    /// All are to end within so many milliseconds.
    Ask(u64),
    Kill,
    /// Nothing but time.
    Tick,
}

/// Something happens so many milliseconds after the last.
#[derive(Debug, Clone)]
struct Moment {
    pause: u64,
    what: What,
}

/// All that has been wished for so far, by the millisecond.
#[derive(Debug, Clone, Default)]
struct Wishes {
    now: u64,
    /// When somebody first asked, without a kill before.
    asked: Option<u64>,
    /// The earliest end of a grace.
    grace_ends: Option<u64>,
    killed: Option<u64>,
}

impl ReferenceStateMachine for Wishes {
    type State = Wishes;
    type Transition = Moment;

    fn init_state() -> BoxedStrategy<Wishes> {
        Just(Wishes::default()).boxed()
    }

    fn transitions(_: &Wishes) -> BoxedStrategy<Moment> {
        let pause = prop_oneof![0..3u64, 15..25u64, 90..110u64, 0..1200u64, 2900..3100u64];
        let grace = prop_oneof![Just(0), 1..200u64, 1000..60_000u64];
        let what = prop_oneof![3 => grace.prop_map(What::Ask), 1 => Just(What::Kill), 12 => Just(What::Tick)];
        (pause, what).prop_map(|(pause, what)| Moment { pause, what }).boxed()
    }

    fn apply(mut wishes: Wishes, moment: &Moment) -> Wishes {
        wishes.now += moment.pause;
        let now = wishes.now;
        match moment.what {
            What::Ask(grace) if wishes.killed.is_none() => {
                wishes.asked.get_or_insert(now);
                let end = now + grace;
                wishes.grace_ends = Some(wishes.grace_ends.map_or(end, |earlier| earlier.min(end)));
            }
            What::Ask(_) => {}
            What::Kill => _ = wishes.killed.get_or_insert(now),
            What::Tick if wishes.grace_ends.is_some_and(|end| end <= now) => {
                wishes.killed.get_or_insert(now);
            }
            What::Tick => {}
        }
        wishes
    }
}

/// The stop, and all that it has ordered.
struct Obeyed {
    start: Instant,
    stop: Stop,
    orders: Vec<(u64, Order)>,
}

impl Obeyed {
    fn at(&self, ms: u64) -> Instant {
        self.start + Duration::from_millis(ms)
    }

    fn last(&self, order: Order) -> Option<u64> {
        self.orders.iter().rev().find(|(_, ordered)| *ordered == order).map(|(ms, _)| *ms)
    }

    fn count(&self, order: Order) -> usize {
        self.orders.iter().filter(|(_, ordered)| *ordered == order).count()
    }

    /// Whether orphans must, or must not, be looked for now: soon after all were asked, then at most every 100 ms and at
    /// least every second, and never later than the stop has lasted.
    fn look(&self, asked: u64, now: u64) -> Option<bool> {
        let (since, at_least, at_most) = match self.last(Order::AskOrphans) {
            None => (asked, 20, 20),
            Some(look) => (look, 100, (look - asked).clamp(100, 1000)),
        };
        match now - since {
            pause if pause >= at_most => Some(true),
            pause if pause < at_least => Some(false),
            _ => None,
        }
    }
}

struct AnyOrder;

impl StateMachineTest for AnyOrder {
    type SystemUnderTest = Obeyed;
    type Reference = Wishes;

    fn init_test(_: &Wishes) -> Obeyed {
        Obeyed { start: Instant::now(), stop: Stop::default(), orders: Vec::new() }
    }

    fn apply(mut obeyed: Obeyed, wishes: &Wishes, moment: Moment) -> Obeyed {
        let now = wishes.now;
        let at = obeyed.at(now);
        let was_killed = obeyed.count(Order::Kill) > 0;
        let order = match moment.what {
            What::Ask(grace) => {
                let order = obeyed.stop.ask(Duration::from_millis(grace), at);
                let is_first = obeyed.orders.is_empty();
                assert_eq!(
                    order,
                    is_first.then_some(Order::Ask),
                    "all are asked once, and never after SIGKILL"
                );
                order
            }
            What::Kill => {
                assert_eq!(obeyed.stop.kill(at), Order::Kill, "a kill is a kill");
                Some(Order::Kill)
            }
            What::Tick => {
                let order = obeyed.stop.next(at);
                match (wishes.asked, wishes.killed) {
                    (None, None) => assert_eq!(order, None, "nobody has asked for anything"),
                    (_, Some(_)) if !was_killed => assert_eq!(order, Some(Order::Kill), "the grace is over"),
                    (_, Some(killed)) => {
                        let is_stuck = now >= killed + GIVEN_UP;
                        assert_eq!(
                            order,
                            is_stuck.then_some(Order::GiveUp),
                            "after SIGKILL there is only that"
                        );
                    }
                    (Some(asked), None) => match obeyed.look(asked, now) {
                        Some(true) => assert_eq!(order, Some(Order::AskOrphans)),
                        Some(false) => assert_eq!(order, None),
                        None => assert!(matches!(order, None | Some(Order::AskOrphans)), "{order:?}"),
                    },
                }
                order
            }
        };
        obeyed.orders.extend(order.map(|order| (now, order)));
        obeyed
    }

    fn check_invariants(obeyed: &Obeyed, wishes: &Wishes) {
        let stop = obeyed.stop;
        assert!(obeyed.count(Order::Ask) <= 1, "{:?}", obeyed.orders);
        let has_begun = wishes.asked.is_some() || wishes.killed.is_some();
        assert_eq!(stop.has_begun(), has_begun);
        assert_eq!(stop.is_in_grace(), has_begun && wishes.killed.is_none());
        let limit = wishes.killed.or(wishes.grace_ends);
        assert_eq!(stop.limit(), limit.map(|ms| obeyed.at(ms)));
        // Whoever waits until it is due misses nothing, and does not wake up for nothing.
        let due = stop.due(true);
        assert_eq!(due.is_some(), has_begun);
        if let Some(due) = due {
            let would_order = |at| {
                let mut stop = stop;
                stop.next(at)
            };
            assert!(would_order(due).is_some(), "nothing is due when it is due");
            let before = due - Duration::from_millis(1);
            if before >= obeyed.at(wishes.now) {
                assert_eq!(would_order(before), None, "something is due before");
            }
        }
        let all_have_ended = stop.due(false);
        assert_eq!(all_have_ended, due.filter(|_| wishes.killed.is_none()), "nobody is left to be given up");
    }
}

prop_state_machine! {
    #![proptest_config(Config { cases: 1000, failure_persistence: None, ..Config::default() })]

    #[test]
    fn a_stop_keeps_what_is_promised_in_any_order(sequential 1..40 => AnyOrder);
}
