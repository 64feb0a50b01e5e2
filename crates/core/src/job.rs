//! What to do about what happens: the one place that decides how a job goes on and ends.
//!
//! [`Job::apply`] is a pure function of the state and an event. The same code decides for all members
//! on one machine and, in the leader, for members on many.

use crate::outcome::{End, Failure, MemberOutcome, Verdict};
use crate::plan::Plan;
use crate::rendezvous::message::Ended;
use crate::roles::Role;
use crate::signal;
use std::collections::{BTreeMap, BTreeSet};

/// Whose end is the job's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Until {
    /// The chief where there are a chief and ps (TF 2's coordinator), otherwise all chiefs and workers,
    /// or everyone where there are none.
    #[default]
    Auto,
    Chief,
    Workers,
    All,
}

/// What the user allows.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    pub until: Until,
    /// How often a member of a role may come back.
    pub restarts: BTreeMap<Role, u32>,
    /// Roles whose failure the others survive.
    pub tolerate: BTreeSet<Role>,
    /// The exit code by which a member asks that the whole job be run again.
    pub requeue_on: Option<u8>,
}

impl Rules {
    pub fn asks_for_requeue(&self, end: &End) -> bool {
        self.requeue_on.is_some_and(|code| *end == End::Exited(code))
    }
}

/// What happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    Started {
        rank: u32,
        pid: u32,
        /// It is a server without Python, which never ends by itself.
        served: bool,
    },
    Ended {
        rank: u32,
        ended: Ended,
    },
    /// A member's agent is gone.
    Lost {
        rank: u32,
        why: String,
    },
    /// A signal came to this agent.
    Signal(i32),
    /// A signal came to another member's agent.
    SignalElsewhere(i32),
}

/// What to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Start a member again, at its old address.
    Restart(u32),
    /// Ask everyone to end: SIGTERM, and after the grace SIGKILL.
    StopAll,
    /// End everyone now.
    KillAll,
    /// Pass a signal on to this agent's members; other agents get their own.
    PassOn(i32),
    /// Nobody is left.
    Over,
}

/// The state of a running job.
#[derive(Debug)]
pub struct Job {
    roles: Vec<Role>,
    deciders: Vec<bool>,
    rules: Rules,
    members: Vec<MemberOutcome>,
    alive: Vec<bool>,
    verdict: Option<Verdict>,
    stopping: bool,
    /// Signals to this agent that ask for the end.
    signals: u32,
}

impl Until {
    /// Which ranks decide. Empty if nobody has the role asked for.
    pub(crate) fn deciders(self, roles: &[Role]) -> Vec<bool> {
        let any = |role: Role| roles.contains(&role);
        let decides: Box<dyn Fn(&Role) -> bool> = match self {
            Until::Chief => Box::new(|role| *role == Role::Chief),
            Until::Workers => Box::new(|role| *role == Role::Worker),
            Until::All => Box::new(|_| true),
            Until::Auto if any(Role::Chief) && any(Role::Ps) => Box::new(|role| *role == Role::Chief),
            Until::Auto if any(Role::Chief) || any(Role::Worker) => {
                Box::new(|role| matches!(role, Role::Chief | Role::Worker))
            }
            Until::Auto => Box::new(|_| true),
        };
        roles.iter().map(decides).collect()
    }
}

impl Job {
    /// A job whose members are all about to start; `None` if nobody could ever decide its end.
    pub fn new(plan: &Plan, rules: Rules) -> Option<Job> {
        let roles: Vec<Role> = plan.members.iter().map(|member| member.role.clone()).collect();
        let deciders = rules.until.deciders(&roles);
        deciders.contains(&true).then(|| Job {
            deciders,
            members: vec![MemberOutcome::default(); roles.len()],
            alive: vec![true; roles.len()],
            verdict: None,
            stopping: false,
            signals: 0,
            roles,
            rules,
        })
    }

    pub fn is_alive(&self, rank: u32) -> bool {
        self.alive[rank as usize]
    }

    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    pub fn members(&self) -> &[MemberOutcome] {
        &self.members
    }

    /// What it came to, once known.
    pub fn verdict(&self) -> Option<&Verdict> {
        self.verdict.as_ref()
    }

    pub fn apply(&mut self, event: Event) -> Vec<Action> {
        match event {
            Event::Started { rank, pid, served } => {
                self.members[rank as usize].pid = Some(pid);
                self.members[rank as usize].served = served;
                Vec::new()
            }
            Event::Ended { rank, ended } => self.ended(rank, ended),
            Event::Lost { rank, why } => {
                if !self.alive[rank as usize] {
                    return Vec::new();
                }
                let lost =
                    Ended { end: End::Lost(why), seconds: 0.0, peak_kib: 0, tail: Vec::new(), reason: None };
                self.ended(rank, lost)
            }
            Event::Signal(number) if !signal::ends_the_job(number) => vec![Action::PassOn(number)],
            Event::Signal(number) => {
                self.signals += 1;
                match self.signals {
                    // What is stopping already has its grace.
                    1 if self.stopping => Vec::new(),
                    1 => self.stop(Verdict::Interrupted(number)),
                    _ => vec![Action::KillAll],
                }
            }
            // A scheduler signals all agents at once: the others' words are no second Ctrl-C.
            Event::SignalElsewhere(number) if self.stopping || !signal::ends_the_job(number) => Vec::new(),
            Event::SignalElsewhere(number) => self.stop(Verdict::Interrupted(number)),
        }
    }

    fn ended(&mut self, rank: u32, mut ended: Ended) -> Vec<Action> {
        let at = rank as usize;
        // A server ends with 0 when it is told to, and nobody here did: the others would wait for it for ever.
        if self.members[at].served && ended.end.is_success() && !self.stopping {
            ended.end = End::Killed(libc::SIGTERM);
            ended.reason = Some("somebody else told the server to stop".to_owned());
        }
        let success = ended.end.is_success();
        let lost = matches!(ended.end, End::Lost(_));
        if self.stopping {
            self.members[at].stopped = true;
        }
        // Who asks for another run of the whole job is neither started again alone nor tolerated.
        let asks = self.rules.asks_for_requeue(&ended.end);
        let allowed = self.rules.restarts.get(&self.roles[at]).copied().unwrap_or(0);
        if !success && !self.stopping && !lost && !asks && self.members[at].restarts < allowed {
            self.members[at].restarts += 1;
            return vec![Action::Restart(rank)];
        }
        self.alive[at] = false;
        let pid = self.members[at].pid;
        self.members[at].ended = Some(ended.clone());
        let mut actions = Vec::new();
        if !self.stopping {
            if !success && (asks || !self.rules.tolerate.contains(&self.roles[at])) {
                actions = self.stop(Verdict::Failed(Failure { rank, pid, ended }));
            } else if self.deciders.iter().zip(&self.alive).all(|(decides, alive)| !decides || !alive) {
                actions = self.stop(self.result());
            }
        }
        if !self.alive.contains(&true) {
            actions.push(Action::Over);
        }
        actions
    }

    /// All deciders have ended: success, unless every one of them failed and was tolerated.
    fn result(&self) -> Verdict {
        let mut failures = Vec::new();
        for (rank, member) in self.members.iter().enumerate().filter(|(rank, _)| self.deciders[*rank]) {
            match &member.ended {
                Some(ended) if !ended.end.is_success() => {
                    failures.push(Failure { rank: rank as u32, pid: member.pid, ended: ended.clone() });
                }
                _ => return Verdict::Success,
            }
        }
        failures.into_iter().next().map_or(Verdict::Success, Verdict::Failed)
    }

    fn stop(&mut self, verdict: Verdict) -> Vec<Action> {
        self.stopping = true;
        self.verdict.get_or_insert(verdict);
        if self.alive.contains(&true) { vec![Action::StopAll] } else { Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocation::Scheduler;
    use crate::plan::JobSpec;
    use crate::roles::RoleRequest;
    use crate::scheduler::hypothetical::{Hypothesis, allocation};

    fn plan(roles: &str) -> Plan {
        let roles = RoleRequest::List(roles.parse().unwrap());
        let hypothesis = Hypothesis {
            nodes: "n1".to_owned(),
            tasks_per_node: None,
            gpus_per_node: 0,
            cpus_per_task: None,
        };
        let allocation = allocation(&hypothesis, &roles).unwrap();
        assert_eq!(allocation.scheduler, Scheduler::Hypothetical);
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
        assert_eq!(job.verdict().unwrap().code(), 67);
        let mut failing = self::job("worker*2", Rules::default());
        failing.apply(end(0, End::Exited(1)));
        assert_eq!(failing.apply(Event::Signal(15)), [], "it is stopping already, with its grace");
        assert_eq!(failing.apply(Event::Signal(15)), [Action::KillAll]);
        let mut everywhere = self::job("worker*2", Rules::default());
        assert_eq!(everywhere.apply(Event::Signal(15)), [Action::StopAll]);
        assert_eq!(
            everywhere.apply(Event::SignalElsewhere(15)),
            [],
            "the same signal, told by another agent"
        );
        let mut warned = self::job("worker", Rules::default());
        assert_eq!(warned.apply(Event::Signal(libc::SIGUSR1)), [Action::PassOn(libc::SIGUSR1)]);
    }

    #[test]
    fn a_lost_agent_is_a_failure_that_nobody_restarts() {
        let rules = Rules { restarts: [(Role::Worker, 3)].into(), ..Rules::default() };
        let mut job = job("ps,worker", rules);
        assert_eq!(job.apply(Event::Lost { rank: 1, why: "gone".to_owned() }), [Action::StopAll]);
        assert_eq!(job.verdict().unwrap().code(), 66);
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
    fn somebody_must_be_able_to_decide() {
        let until = |until| Job::new(&plan("ps,worker"), Rules { until, ..Rules::default() }).is_some();
        assert!(until(Until::Auto) && until(Until::Workers) && until(Until::All));
        assert!(!until(Until::Chief));
    }
}
