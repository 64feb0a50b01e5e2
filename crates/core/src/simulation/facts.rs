//! What really happened in a run, as its machines know it: who was gathered when, and what ended it.

use super::play::{Life, Played};
use super::scenario::{Exit, Fault, Scenario};
use crate::event::RunEvent;
use crate::outcome::OwnCode;
use crate::simulated::processes::Fate;
use std::collections::BTreeMap;
use std::time::Duration;

/// Beyond the grace, what everyone has to end.
pub(super) const BEYOND_GRACE: Duration = Duration::from_secs(5);
/// How long a silence lasts before somebody is given up.
pub(super) const SILENCE: Duration = Duration::from_secs(15);
/// What a moment may be on a machine that has nothing else to do.
pub(super) const MOMENT: Duration = Duration::from_millis(200);

/// Something that ends the job, or this agent's part in it.
#[derive(Debug, Clone)]
pub(super) struct Cause {
    pub(super) at: Duration,
    /// When it is noticed, at the latest.
    pub(super) noticed: Duration,
    /// It ends the job, if nothing else has before; otherwise it may.
    pub(super) certain: bool,
    /// What those end with that hear of it.
    pub(super) codes: Vec<u8>,
}

pub(super) struct Facts<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) played: &'a Played,
    pub(super) grace: Duration,
    /// When the members of the first roster were told of it; the agent that led.
    pub(super) gathered: Option<(Duration, usize)>,
    /// All that was slow, together: what is added to each limit.
    pub(super) slack: Duration,
    pub(super) causes: Vec<Cause>,
}

pub(super) fn ms(time: u64) -> Duration {
    Duration::from_millis(time)
}

pub(super) fn is_failure(exit: Exit) -> bool {
    exit != Exit::Code(0)
}

pub(super) fn code_of(exit: Exit) -> u8 {
    match exit {
        Exit::Code(code) => code,
        Exit::Signal(number) => 128 + number as u8,
    }
}

impl Facts<'_> {
    pub(super) fn of<'a>(scenario: &'a Scenario, played: &'a Played) -> Facts<'a> {
        let gathered = played.agents.iter().enumerate().flat_map(|(agent, life)| {
            let is_gathered = |event: &&(Duration, RunEvent)| matches!(event.1, RunEvent::Gathered { .. });
            life.events.iter().filter(is_gathered).map(move |(at, _)| (*at, agent))
        });
        let slack = scenario.faults.iter().map(|(_, fault)| match *fault {
            Fault::SlowNet { ms: longest, lasts } => ms((longest * 6).min(lasts + longest)),
            Fault::Freeze { lasts, .. } | Fault::FreezeAll { lasts } => ms(lasts) + MOMENT,
            Fault::SlowDisk { ms: longest, lasts } => ms((longest * 5).min(lasts + longest)),
            Fault::StaleDisk { ms: oldest, .. } => ms(oldest),
            // One that is held up, not given up, says the same a little later.
            Fault::Cut { lasts: Some(lasts), .. } if ms(lasts) < SILENCE => ms(lasts) + MOMENT,
            _ => Duration::ZERO,
        });
        let mut facts = Facts {
            scenario,
            played,
            grace: ms(scenario.grace),
            gathered: gathered.min(),
            slack: slack.sum::<Duration>() + MOMENT,
            causes: Vec::new(),
        };
        facts.causes = facts.all_causes();
        facts.causes.sort_by_key(|cause| cause.at);
        facts
    }

    pub(super) fn lives(&self) -> impl Iterator<Item = (usize, &Life)> {
        self.played.agents.iter().enumerate()
    }

    pub(super) fn has(&self, is_it: impl Fn(&Fault) -> bool) -> bool {
        self.scenario.faults.iter().any(|(_, fault)| is_it(fault))
    }

    /// Members' processes, without what these have started.
    pub(super) fn members(&self) -> impl Iterator<Item = (&Fate, u32)> {
        self.played.fates.iter().filter_map(|fate| Some((fate, fate.rank?)))
    }

    /// The agent's processes that were alive then.
    pub(super) fn alive_at(&self, slot: usize, at: Duration) -> Option<usize> {
        let is_it = |life: &Life| {
            let end = life.killed.or(life.ended.map(|(at, _)| at));
            life.slot == slot && life.started <= at && end.is_none_or(|end| end >= at)
        };
        self.played.agents.iter().rposition(is_it)
    }

    /// Everything that may end the job once it runs, by what really happened.
    pub(super) fn all_causes(&self) -> Vec<Cause> {
        let mut causes = Vec::new();
        self.causes_by_members(&mut causes);
        self.causes_by_agents(&mut causes);
        self.causes_by_faults(&mut causes);
        self.doubt_what_may_be_unheard(&mut causes);
        causes
    }

    fn causes_by_members(&self, causes: &mut Vec<Cause>) {
        // Members that have ended by themselves with a failure, and for good.
        let mut failures: BTreeMap<u32, u32> = BTreeMap::new();
        for (fate, rank) in self.members() {
            let Some((at, exit)) = fate.ended.filter(|(_, exit)| is_failure(*exit)) else { continue };
            if !fate.asked.is_empty() || fate.killed.is_some() || self.died_with_its_agent(fate, at) {
                continue;
            }
            let count = failures.entry(rank).or_default();
            *count += 1;
            if *count <= self.allowed_restarts(rank) {
                continue;
            }
            causes.push(Cause { at, noticed: at + ms(500), certain: true, codes: vec![code_of(exit)] });
        }
        // All who decide have finished.
        let deciders: Vec<u32> =
            (0..self.scenario.hosts.len() as u32).filter(|rank| !self.is_server(*rank)).collect();
        let finished = deciders.iter().map(|decider| {
            let ends = self.members().filter(|(_, rank)| rank == decider).filter_map(|(fate, _)| fate.ended);
            ends.filter(|(_, exit)| !is_failure(*exit)).map(|(at, _)| at).min()
        });
        if let Some(at) = finished.collect::<Option<Vec<_>>>().and_then(|ends| ends.into_iter().max()) {
            causes.push(Cause { at, noticed: at + ms(500), certain: true, codes: vec![0] });
        }
    }

    fn causes_by_agents(&self, causes: &mut Vec<Cause>) {
        let (lost, gone) = (OwnCode::MemberLost.code(), OwnCode::LeaderLost.code());
        for (agent, life) in self.lives() {
            if let Some(at) = life.killed {
                let silent = self.has(|fault| matches!(fault, Fault::LoseHost { .. } | Fault::Cut { .. }));
                let noticed = if silent { at + SILENCE } else { at };
                // One whose member has finished is not missed, unless it leads.
                let leads = life.events.iter().any(|(_, event)| matches!(event, RunEvent::Gathered { .. }));
                let mut members = self.members().filter(|(fate, _)| fate.agent == agent);
                let certain = self.has_joined(life)
                    && (leads || members.any(|(fate, _)| fate.ended.is_none_or(|(end, _)| end >= at)));
                causes.push(Cause { at, noticed, certain, codes: vec![lost, gone] });
            }
            // One that was started again takes the place of its earlier run.
            if agent >= self.scenario.hosts.len() {
                causes.push(Cause {
                    at: life.started,
                    noticed: life.started,
                    certain: false,
                    codes: vec![lost, gone, 196],
                });
            }
        }
    }

    fn causes_by_faults(&self, causes: &mut Vec<Cause>) {
        let (lost, gone) = (OwnCode::MemberLost.code(), OwnCode::LeaderLost.code());
        for (at, fault) in &self.scenario.faults {
            let at = ms(*at);
            let interrupted = OwnCode::Interrupted.code();
            match *fault {
                Fault::Signal { number: libc::SIGUSR1, .. } => {}
                Fault::Signal { agent: slot, .. } | Fault::GuardGone { agent: slot } => {
                    // One that leaves before it has the roster is gone, for a leader that has handed it out.
                    match self.alive_at(slot, at).map(|agent| self.has_joined(&self.played.agents[agent])) {
                        Some(true) => {
                            causes.push(Cause { at, noticed: at, certain: true, codes: vec![interrupted] })
                        }
                        Some(false) => {
                            let codes = vec![interrupted, lost];
                            causes.push(Cause { at, noticed: at, certain: true, codes });
                        }
                        None => {}
                    }
                }
                Fault::SignalAll { .. } => {
                    causes.push(Cause { at, noticed: at, certain: true, codes: vec![interrupted] });
                }
                Fault::Cut { from, to, lasts, .. }
                    if from != to && lasts.is_none_or(|lasts| ms(lasts + 300) >= SILENCE - ms(5000)) =>
                {
                    causes.push(Cause {
                        at,
                        noticed: at + SILENCE + ms(5000),
                        certain: false,
                        codes: vec![lost, gone],
                    });
                }
                Fault::Break { a, b } if a != b => {
                    causes.push(Cause { at, noticed: at, certain: false, codes: vec![lost, gone] });
                }
                Fault::Freeze { lasts, .. } if ms(lasts) >= ms(8000) => {
                    causes.push(Cause {
                        at,
                        noticed: at + SILENCE + ms(lasts),
                        certain: false,
                        codes: vec![lost, gone],
                    });
                }
                _ => {}
            }
        }
    }

    /// What nobody may have heard of is certain to nobody.
    fn doubt_what_may_be_unheard(&self, causes: &mut [Cause]) {
        let cut = self.scenario.faults.iter().filter_map(|(at, fault)| match fault {
            Fault::Cut { from, to, .. } if from != to => Some(ms(*at)),
            _ => None,
        });
        let lost = self.scenario.faults.iter().filter(|(_, fault)| matches!(fault, Fault::LoseHost { .. }));
        for lost in lost.map(|(at, _)| ms(*at)) {
            let is_unheard = |cause: &&mut Cause| cause.at <= lost && cause.at + self.slack >= lost;
            causes.iter_mut().filter(is_unheard).for_each(|cause| cause.certain = false);
        }
        if let Some(cut) = cut.min() {
            causes
                .iter_mut()
                .filter(|cause| cause.at + self.slack >= cut)
                .for_each(|cause| cause.certain = false);
        }
    }

    /// Whether it came to a job for this one.
    pub(super) fn has_joined(&self, life: &Life) -> bool {
        life.events
            .iter()
            .any(|(_, event)| matches!(event, RunEvent::Joined { .. } | RunEvent::Gathered { .. }))
    }

    /// Whether nobody may be lost by it, nor the meeting fail.
    pub(super) fn is_harmless(&self, at: Duration, fault: &Fault) -> bool {
        match fault {
            Fault::Signal { .. } | Fault::SignalAll { .. } | Fault::GuardGone { .. } => true,
            Fault::DiskClock { .. } | Fault::StaleDisk { .. } => true,
            Fault::SlowNet { ms, .. } => *ms <= 400,
            // The directory is for the meeting.
            Fault::SlowDisk { .. } | Fault::FullDisk { .. }
                if self.gathered.is_some_and(|(gathered, _)| gathered + self.slack < at) =>
            {
                true
            }
            Fault::SlowDisk { ms, .. } => *ms <= 300,
            // Nobody is taken for lost so soon.
            Fault::Cut { lasts: Some(..=100), .. } | Fault::Freeze { lasts: ..=100, .. } => true,
            // A part of a job that stands still is lost by the rest.
            Fault::FreezeAll { .. } => {
                (0..self.scenario.hosts.len()).all(|slot| self.alive_at(slot, at).is_some())
            }
            Fault::Freeze { .. } | Fault::Kill { .. } | Fault::LoseHost { .. } | Fault::Cut { .. } => false,
            // Before the roster, whoever was connected comes back to its rank.
            Fault::Break { .. } => self.gathered.is_none_or(|(gathered, _)| at + ms(1000) < gathered),
            Fault::FullDisk { .. } => false,
        }
    }

    pub(super) fn allowed_restarts(&self, rank: u32) -> u32 {
        if self.role(rank) == "worker" { self.scenario.restarts } else { 0 }
    }

    pub(super) fn role(&self, rank: u32) -> String {
        let mut roles = Vec::new();
        for part in self.scenario.roles.split(',') {
            let (role, count) = part.split_once('*').unwrap_or((part, "1"));
            roles.extend((0..count.parse().unwrap_or(1)).map(|_| role.to_owned()));
        }
        roles.get(rank as usize).cloned().unwrap_or_default()
    }

    pub(super) fn is_server(&self, rank: u32) -> bool {
        self.role(rank) == "ps"
    }

    pub(super) fn died_with_its_agent(&self, fate: &Fate, at: Duration) -> bool {
        self.played.agents[fate.agent].killed.is_some_and(|killed| killed <= at)
    }
}
