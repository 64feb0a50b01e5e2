//! Any order of events, against the rules of a job's end as the guide tells them.

use super::*;
use proptest::prelude::*;
use proptest::test_runner::Config;
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest, prop_state_machine};

/// Jobs, and the ranks whose end counts: by hand, as the table of `--until` has it.
const JOBS: [(&str, Until, &[u32]); 11] = [
    ("ps,worker*2", Until::Auto, &[1, 2]),
    ("chief,ps,worker", Until::Auto, &[0]),
    ("chief,worker", Until::Auto, &[0, 1]),
    ("evaluator,worker", Until::Auto, &[1]),
    ("reader*2", Until::Auto, &[0, 1]),
    ("chief,worker*2", Until::Chief, &[0]),
    ("chief,ps,worker*2", Until::Workers, &[2, 3]),
    ("ps,evaluator,worker", Until::All, &[0, 1, 2]),
    ("ps,worker*2", Until::First, &[1]),
    ("worker,chief", Until::First, &[1]),
    ("worker", Until::Auto, &[0]),
];

const TERM: i32 = libc::SIGTERM;
const WARNING: i32 = libc::SIGUSR1;
const AGAIN: u8 = 42;

/// Where a member stands.
#[derive(Debug, Clone, PartialEq)]
enum Member {
    /// It is about to be started, for the first time or again.
    Due,
    Runs {
        pid: u32,
        served: bool,
    },
    Over {
        end: End,
        pid: Option<u32>,
        /// The job was stopping by then.
        asked: bool,
    },
}

/// A job as one would tell it.
#[derive(Debug, Clone)]
struct Story {
    roles: &'static str,
    deciders: &'static [u32],
    rules: Rules,
    members: Vec<Member>,
    returns: Vec<u32>,
    listening: BTreeSet<u32>,
    /// Why it stops, from then on.
    cause: Option<Cause>,
    ctrl_c: u32,
    /// What the last event has to lead to.
    follows: Vec<Action>,
}

#[derive(Debug, Clone, PartialEq)]
enum Cause {
    Done,
    Signal(i32),
    Failure(u32),
}

impl Story {
    fn begins(roles: &'static str, deciders: &'static [u32], rules: Rules) -> Story {
        let world = plan(roles).members().len();
        Story {
            roles,
            deciders,
            rules,
            members: vec![Member::Due; world],
            returns: vec![0; world],
            listening: BTreeSet::new(),
            cause: None,
            ctrl_c: 0,
            follows: Vec::new(),
        }
    }

    fn role(&self, rank: u32) -> Role {
        plan(self.roles).members()[rank as usize].role.clone()
    }

    fn is_over(&self, rank: u32) -> bool {
        matches!(self.members[rank as usize], Member::Over { .. })
    }

    fn is_anybody_left(&self) -> bool {
        (0..self.members.len() as u32).any(|rank| !self.is_over(rank))
    }

    fn has_succeeded(&self, rank: u32) -> bool {
        matches!(&self.members[rank as usize], Member::Over { end, .. } if *end == End::Exited(0))
    }

    /// The first cause counts, and everyone who is left is asked once.
    fn stop(&mut self, cause: Cause) {
        if self.cause.is_none() {
            self.cause = Some(cause);
            if self.is_anybody_left() {
                self.follows.push(Action::StopAll);
            }
        }
    }

    /// A member has ended.
    fn end(&mut self, rank: u32, end: End) {
        let at = rank as usize;
        let (pid, served) = match self.members[at] {
            Member::Runs { pid, served } => (Some(pid), served),
            Member::Due | Member::Over { .. } => (None, false),
        };
        let asked = self.cause.is_some();
        let end = if served && !asked && end == End::Exited(0) { End::Killed(TERM) } else { end };
        let failed = end != End::Exited(0);
        let wants_all_again = end == End::Exited(AGAIN) && self.rules.requeue_on.is_some();
        let has_agent = !matches!(end, End::Lost(_) | End::AgentFailed { .. });
        let role = self.role(rank);
        let may_return = self.rules.restarts.get(&role).is_some_and(|most| self.returns[at] < *most);
        if failed && !asked && has_agent && !wants_all_again && may_return {
            self.returns[at] += 1;
            self.members[at] = Member::Due;
            self.follows.push(Action::Restart(rank));
            return;
        }
        self.members[at] = Member::Over { end, pid, asked };
        if failed && (wants_all_again || !self.rules.tolerate.contains(&role)) {
            self.stop(Cause::Failure(rank));
        }
        if self.deciders.iter().all(|rank| self.is_over(*rank)) {
            let some_good = self.deciders.iter().any(|rank| self.has_succeeded(*rank));
            self.stop(if some_good { Cause::Done } else { Cause::Failure(self.deciders[0]) });
        }
        // Others may open a session from now on, and would wait for it.
        let trains = !matches!(role, Role::Ps | Role::Evaluator) && self.deciders.contains(&rank);
        let has_servers = plan(self.roles).members().iter().any(|member| member.role == Role::Ps);
        let sessions = self.rules.stand_in && has_servers && !self.listening.is_empty();
        if !failed && self.cause.is_none() && trains && sessions {
            self.follows.push(Action::StandIn(rank));
        }
        if !self.is_anybody_left() {
            self.follows.push(Action::Over);
        }
    }

    fn goes_on(mut self, event: &Event) -> Story {
        self.follows.clear();
        match event {
            Event::Started { rank, pid, served } => {
                self.members[*rank as usize] = Member::Runs { pid: *pid, served: *served };
                self.listening.remove(rank);
            }
            Event::Listening { rank } => _ = self.listening.insert(*rank),
            Event::Ended { rank, ended } => self.end(*rank, ended.end.clone()),
            Event::Lost { rank, .. } if self.is_over(*rank) => {}
            Event::Lost { rank, why } => self.end(*rank, End::Lost(why.clone())),
            Event::Signal(WARNING) => self.follows.push(Action::PassOn(WARNING)),
            Event::Signal(number) => {
                self.ctrl_c += 1;
                if self.ctrl_c > 1 {
                    self.follows.push(Action::KillAll);
                }
                self.stop(Cause::Signal(*number));
            }
            Event::SignalElsewhere(WARNING) => {}
            Event::SignalElsewhere(number) => self.stop(Cause::Signal(*number)),
        }
        self
    }
}

/// Whoever is due may start, or not; whoever runs may listen, end or be lost; signals come at any time.
fn next(story: &Story) -> BoxedStrategy<Event> {
    let mut may = Vec::new();
    for (rank, member) in (0..).zip(&story.members) {
        let lost = Just(Event::Lost { rank, why: "gone".to_owned() }).boxed();
        match member {
            Member::Due => {
                let pid = 100 * (rank + 1) + story.returns[rank as usize];
                let start = any::<bool>().prop_map(move |served| Event::Started { rank, pid, served });
                let fails = prop_oneof![
                    Just(End::NotStarted("no file".to_owned())),
                    Just(End::AgentFailed { code: 197, why: "no room".to_owned() }),
                ];
                may.push((8, start.boxed()));
                may.push((1, fails.prop_map(move |how| end(rank, how)).boxed()));
                may.push((1, lost));
            }
            Member::Runs { .. } => {
                let ends = prop_oneof![
                    3 => Just(End::Exited(0)),
                    2 => Just(End::Exited(3)),
                    1 => Just(End::Exited(AGAIN)),
                    1 => Just(End::Killed(libc::SIGKILL)),
                ];
                may.push((6, ends.prop_map(move |how| end(rank, how)).boxed()));
                may.push((3, Just(Event::Listening { rank }).boxed()));
                may.push((1, lost));
            }
            Member::Over { .. } => may.push((1, lost)),
        }
    }
    let signals = prop_oneof![
        Just(Event::Signal(WARNING)),
        Just(Event::Signal(TERM)),
        Just(Event::Signal(libc::SIGINT)),
        Just(Event::SignalElsewhere(WARNING)),
        Just(Event::SignalElsewhere(TERM)),
    ];
    may.push((1, signals.boxed()));
    proptest::strategy::Union::new_weighted(may).boxed()
}

impl ReferenceStateMachine for Story {
    type State = Story;
    type Transition = Event;

    fn init_state() -> BoxedStrategy<Story> {
        let roles = || prop::sample::select(vec![Role::Worker, Role::Ps, Role::Chief]);
        let restarts = prop::collection::btree_map(roles(), 0..3u32, 0..3);
        let tolerate = prop::collection::btree_set(roles(), 0..2);
        let job = prop::sample::select(JOBS.to_vec());
        (job, restarts, tolerate, any::<bool>(), any::<bool>())
            .prop_map(|((roles, until, deciders), restarts, tolerate, requeue, stand_in)| {
                let requeue_on = requeue.then_some(AGAIN);
                Story::begins(roles, deciders, Rules { until, restarts, tolerate, requeue_on, stand_in })
            })
            .boxed()
    }

    fn transitions(story: &Story) -> BoxedStrategy<Event> {
        next(story)
    }

    fn apply(story: Story, event: &Event) -> Story {
        story.goes_on(event)
    }

    /// What is left out to make a failing story shorter must not leave nonsense.
    fn preconditions(story: &Story, event: &Event) -> bool {
        let at = |rank: &u32| &story.members[*rank as usize];
        match event {
            Event::Started { rank, .. } => *at(rank) == Member::Due,
            Event::Listening { rank } => matches!(at(rank), Member::Runs { .. }),
            Event::Ended { rank, ended } => match ended.end {
                End::Exited(_) | End::Killed(_) => matches!(at(rank), Member::Runs { .. }),
                _ => *at(rank) == Member::Due,
            },
            Event::Lost { .. } | Event::Signal(_) | Event::SignalElsewhere(_) => true,
        }
    }
}

struct AnyOrder;

impl StateMachineTest for AnyOrder {
    type SystemUnderTest = Job;
    type Reference = Story;

    fn init_test(story: &Story) -> Job {
        job(story.roles, story.rules.clone())
    }

    fn apply(mut job: Job, story: &Story, event: Event) -> Job {
        assert_eq!(job.apply(event), story.follows);
        job
    }

    fn check_invariants(job: &Job, story: &Story) {
        let cause = job.verdict().map(|verdict| match verdict {
            Verdict::Success => Cause::Done,
            Verdict::Interrupted(number) => Cause::Signal(*number),
            Verdict::Failed(failure) => {
                let Member::Over { end, pid, .. } = &story.members[failure.rank as usize] else {
                    panic!("it runs, and is the cause: {failure:?}")
                };
                assert_eq!((&failure.ended.end, &failure.pid), (end, pid));
                Cause::Failure(failure.rank)
            }
            Verdict::OutputLost => panic!("no output was lost"),
        });
        assert_eq!(cause, story.cause);
        for (rank, member) in (0..).zip(&story.members) {
            let outcome = &job.members()[rank as usize];
            assert_eq!(outcome.restarts, story.returns[rank as usize]);
            assert_eq!(job.is_alive(rank), !story.is_over(rank));
            assert_eq!(job.has_listened(rank), story.listening.contains(&rank));
            let end = outcome.ended.as_ref().map(|ended| &ended.end);
            match member {
                Member::Due => assert_eq!((outcome.pid, end), (None, None)),
                Member::Runs { pid, .. } => assert_eq!((outcome.pid, end), (Some(*pid), None)),
                Member::Over { end: known, asked, .. } => {
                    assert_eq!((end, outcome.stopped), (Some(known), *asked));
                }
            }
        }
        let standing = job.standing();
        let of_deciders = |is_it: &dyn Fn(u32) -> bool| -> Vec<u32> {
            story.deciders.iter().copied().filter(|rank| is_it(*rank)).collect()
        };
        assert_eq!(standing.finished, of_deciders(&|rank| story.has_succeeded(rank)));
        assert_eq!(standing.running, of_deciders(&|rank| !story.is_over(rank)));
        assert_eq!(job.waits_for_some(), story.cause.is_none() && !standing.finished.is_empty());
        assert_eq!(job.was_signalled(), story.ctrl_c > 0);
    }
}

prop_state_machine! {
    #![proptest_config(Config { cases: 1000, failure_persistence: None, ..Config::default() })]

    #[test]
    fn a_job_follows_its_rules_in_any_order(sequential 1..30 => AnyOrder);
}
