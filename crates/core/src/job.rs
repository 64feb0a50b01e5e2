//! What to do about what happens: the one place that decides how a job goes on and ends.
//!
//! `Job::apply` is a pure function of the state and an event. The same code decides for all members
//! on one machine and, in the leader, for members on many.

use crate::outcome::{End, Ended, Failure, MemberOutcome, Verdict};
use crate::plan::Plan;
use crate::roles::Role;
use crate::signal;
use std::collections::{BTreeMap, BTreeSet};

/// Whose end is the job's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Until {
    /// The chief where there are a chief and ps (TF 2's coordinator), otherwise all chiefs and workers,
    /// or everyone where there are none. Servers alone would never end: then nobody decides.
    #[default]
    Auto,
    /// The chief.
    Chief,
    /// All workers.
    Workers,
    /// Everyone.
    All,
    /// The first of those who decide by [`Until::Auto`]: the chief, or worker 0.
    First,
}

/// What the user allows.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    /// Whose end is the job's end.
    pub until: Until,
    /// How often a member of a role may come back.
    pub restarts: BTreeMap<Role, u32>,
    /// Roles whose failure the others survive.
    pub tolerate: BTreeSet<Role>,
    /// The exit code by which a member asks that the whole job be run again.
    pub requeue_on: Option<u8>,
    /// A TensorFlow server may stand in for a member that has finished.
    pub stand_in: bool,
}

impl Rules {
    /// True if a member that ended so asks that the whole job be run again.
    pub(crate) fn asks_for_requeue(&self, end: &End) -> bool {
        self.requeue_on.is_some_and(|code| *end == End::Exited(code))
    }
}

/// What happened.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Event {
    /// A member's process runs.
    Started {
        rank: u32,
        pid: u32,
        /// It is a server without Python, which never ends by itself.
        served: bool,
    },
    /// A member listens at its address.
    Listening { rank: u32 },
    /// A member's process has ended.
    Ended { rank: u32, ended: Ended },
    /// A member's agent is gone.
    Lost { rank: u32, why: String },
    /// A signal came to this agent.
    Signal(i32),
    /// A signal came to another member's agent.
    SignalElsewhere(i32),
}

/// What to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    /// Start a member again, at its old address.
    Restart(u32),
    /// Ask everyone to end: SIGTERM, and after the grace SIGKILL.
    StopAll,
    /// End everyone now.
    KillAll,
    /// Pass a signal on to this agent's members; other agents get their own.
    PassOn(i32),
    /// Keep a finished member's address alive: a session of TensorFlow 1 waits for all members of its cluster, so
    /// who opens one from now on would wait for it for ever.
    StandIn(u32),
    /// Nobody is left.
    Over,
}

/// Of those who decide, who has finished and who still runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Standing {
    pub finished: Vec<u32>,
    pub running: Vec<u32>,
}

/// The state of a running job.
#[derive(Debug)]
pub(crate) struct Job {
    roles: Vec<Role>,
    deciders: Vec<bool>,
    rules: Rules,
    members: Vec<MemberOutcome>,
    alive: Vec<bool>,
    /// Who listens, or did before its end.
    listened: Vec<bool>,
    /// How many of those who decide have finished.
    finished: u32,
    verdict: Option<Verdict>,
    stopping: bool,
    /// Signals to this agent that ask for the end.
    signals: u32,
}

impl Until {
    /// Which ranks decide. Empty if nobody has the role asked for.
    pub(crate) fn deciders(self, roles: &[Role]) -> Vec<bool> {
        if self == Until::First {
            let deciders = Until::Auto.deciders(roles);
            let is_chief = |rank: &usize| roles[*rank] == Role::Chief;
            let ranks = || (0..roles.len()).filter(|rank| deciders[*rank]);
            let first = ranks().find(is_chief).or_else(|| ranks().next());
            return (0..roles.len()).map(|rank| Some(rank) == first).collect();
        }
        let any = |role: Role| roles.contains(&role);
        let decides: Box<dyn Fn(&Role) -> bool> = match self {
            Until::Chief => Box::new(|role| *role == Role::Chief),
            Until::Workers => Box::new(|role| *role == Role::Worker),
            Until::All => Box::new(|_| true),
            Until::Auto if any(Role::Chief) && any(Role::Ps) => Box::new(|role| *role == Role::Chief),
            Until::Auto if any(Role::Chief) || any(Role::Worker) => {
                Box::new(|role| matches!(role, Role::Chief | Role::Worker))
            }
            Until::Auto if roles.iter().all(|role| matches!(role, Role::Ps | Role::Evaluator)) => {
                Box::new(|_| false)
            }
            Until::Auto | Until::First => Box::new(|_| true),
        };
        roles.iter().map(decides).collect()
    }
}

impl Job {
    /// A job whose members are all about to start; `None` if nobody could ever decide its end.
    pub(crate) fn new(plan: &Plan, rules: Rules) -> Option<Job> {
        let roles: Vec<Role> = plan.members().iter().map(|member| member.role.clone()).collect();
        let deciders = rules.until.deciders(&roles);
        deciders.contains(&true).then(|| Job {
            deciders,
            members: plan
                .members()
                .iter()
                .map(|member| MemberOutcome::of(member, plan.host(member)))
                .collect(),
            alive: vec![true; roles.len()],
            listened: vec![false; roles.len()],
            finished: 0,
            verdict: None,
            stopping: false,
            signals: 0,
            roles,
            rules,
        })
    }

    /// True until the member has ended for good.
    pub(crate) fn is_alive(&self, rank: u32) -> bool {
        self.alive[rank as usize]
    }

    /// True if it listens at its address, or did before its end.
    pub(crate) fn has_listened(&self, rank: u32) -> bool {
        self.listened[rank as usize]
    }

    /// What the user allows.
    pub(crate) fn rules(&self) -> &Rules {
        &self.rules
    }

    /// How each member stands, by rank.
    pub(crate) fn members(&self) -> &[MemberOutcome] {
        &self.members
    }

    /// True while some of those who decide have finished and the others run on.
    pub(crate) fn waits_for_some(&self) -> bool {
        self.finished > 0 && !self.stopping
    }

    /// Of those who decide, who has finished and who still runs.
    pub(crate) fn standing(&self) -> Standing {
        let deciders = || (0..self.roles.len() as u32).filter(|rank| self.deciders[*rank as usize]);
        let has_finished = |rank: &u32| {
            self.members[*rank as usize].ended.as_ref().is_some_and(|ended| ended.end.is_success())
        };
        Standing {
            finished: deciders().filter(has_finished).collect(),
            running: deciders().filter(|rank| self.is_alive(*rank)).collect(),
        }
    }

    /// What it came to, once known.
    pub(crate) fn verdict(&self) -> Option<&Verdict> {
        self.verdict.as_ref()
    }

    /// Takes note of what happened, and says what to do about it.
    pub(crate) fn apply(&mut self, event: Event) -> Vec<Action> {
        match event {
            Event::Started { rank, pid, served } => {
                self.members[rank as usize].pid = Some(pid);
                self.members[rank as usize].served = served;
                self.listened[rank as usize] = false;
                Vec::new()
            }
            Event::Listening { rank } => {
                self.listened[rank as usize] = true;
                Vec::new()
            }
            Event::Ended { rank, ended } => self.ended(rank, ended),
            Event::Lost { rank, why } => {
                if !self.alive[rank as usize] {
                    return Vec::new();
                }
                self.ended(rank, Ended::without_process(End::Lost(why)))
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

    /// True once a signal to this agent has asked for the end: the next one kills.
    pub(crate) fn was_signalled(&self) -> bool {
        self.signals > 0
    }

    fn ended(&mut self, rank: u32, mut ended: Ended) -> Vec<Action> {
        let at = rank as usize;
        // A server ends with 0 when it is told to, and nobody here did: the others would wait for it for ever.
        if self.members[at].served && ended.end.is_success() && !self.stopping {
            ended.end = End::Killed(libc::SIGTERM);
            ended.reason = Some("somebody else told the server to stop".to_owned());
        }
        let success = ended.end.is_success();
        // There is no agent that could start it again.
        let lost = matches!(ended.end, End::Lost(_) | End::AgentFailed { .. });
        if self.stopping {
            self.members[at].stopped = true;
        }
        // Who asks for another run of the whole job is neither started again alone nor tolerated.
        let asks = self.rules.asks_for_requeue(&ended.end);
        let allowed = self.rules.restarts.get(&self.roles[at]).copied().unwrap_or(0);
        if !success && !self.stopping && !lost && !asks && self.members[at].restarts < allowed {
            self.members[at].restarts += 1;
            // The next process may never come to be.
            self.members[at].pid = None;
            return vec![Action::Restart(rank)];
        }
        self.alive[at] = false;
        self.finished += u32::from(success && self.deciders[at]);
        let pid = self.members[at].pid;
        self.members[at].ended = Some(ended.clone());
        let mut actions = Vec::new();
        if !self.stopping {
            if !success && (asks || !self.rules.tolerate.contains(&self.roles[at])) {
                actions = self.stop(Verdict::Failed(Failure { rank, pid, ended }));
            } else if self.deciders.iter().zip(&self.alive).all(|(decides, alive)| !decides || !alive) {
                actions = self.stop(self.result());
            } else if success && self.is_waited_for(at) {
                actions.push(Action::StandIn(rank));
            }
        }
        if !self.alive.contains(&true) {
            actions.push(Action::Over);
        }
        actions
    }

    /// True if others may wait for this member, which has finished while some who decide run on: where there are
    /// parameter servers, each session of TensorFlow 1 waits for all who train.
    fn is_waited_for(&self, at: usize) -> bool {
        self.rules.stand_in
            && self.deciders[at]
            // Its own is no condition: what listens for a short time may be missed. Plain programs never listen.
            && self.listened.contains(&true)
            && self.roles.contains(&Role::Ps)
            && !matches!(self.roles[at], Role::Ps | Role::Evaluator)
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
mod tests;
