//! A job decides without any process.

mod any_order;

use super::*;
use crate::plan::JobSpec;
use crate::roles::RoleRequest;
use crate::scheduler::hypothetical::{Hypothesis, allocation};

fn plan(roles: &str) -> Plan {
    let roles = RoleRequest::List(roles.parse().unwrap());
    let hypothesis =
        Hypothesis { nodes: "n1".to_owned(), tasks_per_node: None, gpus_per_node: 0, cpus_per_task: None };
    let allocation = allocation(&hypothesis, &roles).unwrap();
    Plan::new(allocation, &JobSpec { roles, ..JobSpec::default() }).unwrap()
}

fn job(roles: &str, rules: Rules) -> Job {
    Job::new(&plan(roles), rules).unwrap()
}

fn end(rank: u32, end: End) -> Event {
    let ended = Ended { end, seconds: 1.0, peak_kib: 1, tail: Vec::new(), reason: None };
    Event::Ended { rank, ended }
}

fn ok(rank: u32) -> Event {
    end(rank, End::Exited(0))
}

#[test]
fn parameter_servers_are_stopped_when_the_workers_are_done() {
    let mut job = job("ps,worker*2", Rules::default());
    assert_eq!(job.apply(ok(1)), []);
    assert_eq!(job.apply(ok(2)), [Action::StopAll]);
    assert_eq!(job.apply(end(0, End::Killed(15))), [Action::Over]);
    assert_eq!(job.verdict(), Some(&Verdict::Success));
    assert!(job.members()[0].stopped);
}

#[test]
fn the_chief_decides_where_there_are_a_chief_and_ps() {
    let mut with_ps = job("chief,ps,worker", Rules::default());
    assert_eq!(with_ps.apply(ok(0)), [Action::StopAll]);
    let mut without = job("chief,worker", Rules::default());
    assert_eq!(without.apply(ok(0)), []);
    assert_eq!(without.apply(ok(1)), [Action::Over]);
}

/// There is no agent that could start it again, and its own code is the job's.
#[test]
fn an_agent_that_failed_is_the_cause_and_not_started_again() {
    let rules = Rules { restarts: BTreeMap::from([(Role::Worker, 3)]), ..Rules::default() };
    let mut job = job("ps,worker*2", rules);
    let why = "--log-dir: Not a directory".to_owned();
    let failed = End::AgentFailed { code: 197, why };
    assert_eq!(job.apply(end(1, failed)), [Action::StopAll]);
    assert_eq!(job.verdict().map(Verdict::code), Some(197));
}

#[test]
fn the_first_failure_is_the_cause() {
    let mut job = job("ps,worker*2", Rules::default());
    assert_eq!(job.apply(end(2, End::Exited(3))), [Action::StopAll]);
    assert_eq!(job.apply(end(1, End::Exited(9))), []);
    assert_eq!(job.apply(end(0, End::Killed(9))), [Action::Over]);
    let Some(Verdict::Failed(failure)) = job.verdict() else { panic!("{:?}", job.verdict()) };
    assert_eq!((failure.rank, job.verdict().unwrap().code()), (2, 3));
}

#[test]
fn signals_of_members_become_128_and_more() {
    let mut job = job("worker", Rules::default());
    assert_eq!(job.apply(end(0, End::Killed(11))), [Action::Over]);
    assert_eq!(job.verdict().unwrap().code(), 139);
}

#[test]
fn a_member_may_come_back_as_often_as_allowed() {
    let rules = Rules { restarts: [(Role::Worker, 1)].into(), ..Rules::default() };
    let mut job = job("ps,worker", rules);
    assert_eq!(job.apply(end(1, End::Killed(9))), [Action::Restart(1)]);
    assert_eq!(job.apply(end(1, End::Killed(9))), [Action::StopAll]);
    assert_eq!(job.members()[1].restarts, 1);
}

#[test]
fn who_asks_for_another_run_is_not_started_again_alone() {
    let rules = Rules {
        restarts: [(Role::Worker, 3)].into(),
        tolerate: [Role::Worker].into(),
        requeue_on: Some(42),
        ..Rules::default()
    };
    let mut job = job("ps,worker*2", rules);
    assert_eq!(job.apply(end(1, End::Exited(1))), [Action::Restart(1)]);
    assert_eq!(job.apply(end(1, End::Exited(42))), [Action::StopAll]);
    assert_eq!(job.verdict().unwrap().code(), 42);
}

#[test]
fn a_tolerated_failure_ends_nobody_else() {
    let rules = Rules { tolerate: [Role::Worker].into(), ..Rules::default() };
    let mut tolerant = job("ps,worker*2", rules.clone());
    assert_eq!(tolerant.apply(end(1, End::Exited(1))), []);
    assert_eq!(tolerant.apply(ok(2)), [Action::StopAll]);
    assert_eq!(tolerant.verdict(), Some(&Verdict::Success));
    // Nobody who decides succeeded: that is no success.
    let mut all_failed = job("ps,worker*2", rules);
    all_failed.apply(end(1, End::Exited(4)));
    assert_eq!(all_failed.apply(end(2, End::Exited(5))), [Action::StopAll]);
    assert_eq!(all_failed.verdict().unwrap().code(), 4);
}

#[test]
fn one_signal_stops_and_a_second_kills() {
    let mut job = job("worker*2", Rules::default());
    assert_eq!(job.apply(Event::Signal(2)), [Action::StopAll]);
    assert_eq!(job.apply(Event::Signal(2)), [Action::KillAll]);
    job.apply(end(0, End::Killed(2)));
    assert_eq!(job.apply(end(1, End::Killed(9))), [Action::Over]);
    assert_eq!(job.verdict().unwrap().code(), 196);
    let mut failing = self::job("worker*2", Rules::default());
    failing.apply(end(0, End::Exited(1)));
    assert_eq!(failing.apply(Event::Signal(15)), [], "it is stopping already, with its grace");
    assert_eq!(failing.apply(Event::Signal(15)), [Action::KillAll]);
    let mut everywhere = self::job("worker*2", Rules::default());
    assert_eq!(everywhere.apply(Event::Signal(15)), [Action::StopAll]);
    assert_eq!(everywhere.apply(Event::SignalElsewhere(15)), [], "the same signal, told by another agent");
    let mut warned = self::job("worker", Rules::default());
    assert_eq!(warned.apply(Event::Signal(libc::SIGUSR1)), [Action::PassOn(libc::SIGUSR1)]);
}

#[test]
fn a_lost_agent_is_a_failure_that_nobody_restarts() {
    let rules = Rules { restarts: [(Role::Worker, 3)].into(), ..Rules::default() };
    let mut job = job("ps,worker", rules);
    assert_eq!(job.apply(Event::Lost { rank: 1, why: "gone".to_owned() }), [Action::StopAll]);
    assert_eq!(job.verdict().unwrap().code(), 195);
    assert_eq!(job.apply(Event::Lost { rank: 1, why: "again".to_owned() }), []);
}

#[test]
fn a_server_that_somebody_else_stopped_has_failed() {
    let served = |rank| Event::Started { rank, pid: 7, served: true };
    let mut stray = job("ps,worker", Rules::default());
    stray.apply(served(0));
    assert_eq!(stray.apply(ok(0)), [Action::StopAll]);
    assert_eq!(stray.verdict().unwrap().code(), 143);
    let mut asked = job("ps,worker", Rules::default());
    asked.apply(served(0));
    assert_eq!(asked.apply(ok(1)), [Action::StopAll]);
    assert_eq!(asked.apply(ok(0)), [Action::Over]);
    assert_eq!(asked.verdict(), Some(&Verdict::Success));
}

#[test]
fn a_server_stands_in_for_who_is_done_before_the_others() {
    let rules = || Rules { stand_in: true, ..Rules::default() };
    let listening = |roles: &str, rules: Rules| {
        let mut job = job(roles, rules);
        (0..job.roles.len() as u32).for_each(|rank| assert_eq!(job.apply(Event::Listening { rank }), []));
        job
    };
    let mut early = listening("ps,worker*3", rules());
    assert_eq!(early.apply(ok(2)), [Action::StandIn(2)]);
    assert_eq!(early.apply(ok(1)), [Action::StandIn(1)]);
    assert_eq!(early.apply(ok(3)), [Action::StopAll], "nobody is left who would wait");
    // Who is not waited for: one that has failed, decides nothing, or has no ps; and nobody where nobody listens.
    let tolerant = Rules { tolerate: [Role::Worker].into(), ..rules() };
    assert_eq!(listening("ps,worker*2", tolerant).apply(end(1, End::Exited(1))), []);
    assert_eq!(job("ps,worker*2", rules()).apply(ok(1)), []);
    assert_eq!(listening("chief,ps,worker*2", rules()).apply(ok(2)), []);
    assert_eq!(listening("worker*2", rules()).apply(ok(1)), []);
    assert_eq!(listening("ps,worker*2", Rules::default()).apply(ok(1)), [], "--stand-in off");
    let all = Rules { until: Until::All, ..rules() };
    let mut hooks = listening("ps,evaluator,worker*2", all);
    assert_eq!([hooks.apply(ok(0)), hooks.apply(ok(1))], [[], []], "neither a ps nor an evaluator");
    assert_eq!(hooks.apply(ok(2)), [Action::StandIn(2)]);
    let mut unseen = job("ps,worker*2", rules());
    unseen.apply(Event::Listening { rank: 0 });
    assert_eq!(unseen.apply(ok(1)), [Action::StandIn(1)], "it may have listened for a moment");
}

#[test]
fn who_has_finished_and_who_still_runs() {
    let mut job = job("ps,worker*3", Rules { tolerate: [Role::Worker].into(), ..Rules::default() });
    job.apply(end(2, End::Exited(1)));
    assert!(!job.waits_for_some(), "one has failed, and nobody has finished");
    job.apply(ok(3));
    assert!(job.waits_for_some());
    assert_eq!(job.standing(), Standing { finished: vec![3], running: vec![1] });
    job.apply(ok(1));
    assert!(!job.waits_for_some(), "all who decide have");
    let mut interrupted = self::job("worker*2", Rules::default());
    interrupted.apply(ok(0));
    interrupted.apply(Event::Signal(15));
    assert!(!interrupted.waits_for_some(), "the others were asked to end");
}

#[test]
fn the_first_who_decides_may_decide_alone() {
    let rules = || Rules { until: Until::First, stand_in: true, ..Rules::default() };
    for (roles, first) in [
        ("ps,worker*2", 1),
        ("chief,worker*2", 0),
        ("worker*2,chief", 2),
        ("chief,ps,worker", 0),
        ("worker,ps,worker", 0),
        ("reader*2", 0),
    ] {
        let mut first_ends = job(roles, rules());
        assert_eq!(first_ends.apply(ok(first)), [Action::StopAll], "{roles}");
        let world = first_ends.roles.len() as u32;
        for other in (0..world).filter(|rank| *rank != first) {
            assert_eq!(job(roles, rules()).apply(ok(other)), [], "{roles}: {other}");
            assert_eq!(job(roles, rules()).apply(end(other, End::Exited(1))), [Action::StopAll]);
        }
    }
}

#[test]
fn somebody_must_be_able_to_decide() {
    let until = |until| Job::new(&plan("ps,worker"), Rules { until, ..Rules::default() }).is_some();
    assert!(until(Until::Auto) && until(Until::Workers) && until(Until::All));
    assert!(!until(Until::Chief));
    for servers in ["ps", "ps*3", "ps,evaluator"] {
        let until = |until| Job::new(&plan(servers), Rules { until, ..Rules::default() }).is_some();
        assert!(!until(Until::Auto) && !until(Until::First), "{servers} would never end");
        assert!(until(Until::All), "{servers}");
    }
    assert!(Job::new(&plan("ps,reader"), Rules::default()).is_some(), "a reader may end");
}
