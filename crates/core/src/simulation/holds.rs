//! What must hold afterwards, from what really happened: no word of an agent is believed that could be compared with what
//! its machine knows.

use super::facts::{BEYOND_GRACE, Cause, Facts, MOMENT, SILENCE, is_failure, ms};
use super::play::{Life, Played};
use super::scenario::{Exit, Fault, Scenario};
use crate::event::RunEvent;
use crate::outcome::{End, OwnCode, Verdict};
use crate::simulated::address_of;
use crate::variables as var;
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::time::Duration;

/// All that does not hold, each by its name.
pub(super) fn check(scenario: &Scenario, played: &Played) -> Vec<String> {
    let all = Facts::of(scenario, played);
    let mut broken = Vec::new();
    all.everyone_ends(&mut broken);
    all.one_roster(&mut broken);
    all.a_rank_has_one_owner(&mut broken);
    all.restarts_are_counted(&mut broken);
    all.nobody_starts_after_the_loss(&mut broken);
    all.asked_once_then_killed_in_time(&mut broken);
    all.nobody_is_left(&mut broken);
    all.no_file_is_left(&mut broken);
    all.codes_are_right(&mut broken);
    all.the_first_failure_is_the_cause(&mut broken);
    all.ends_in_time(&mut broken);
    all.ends_soon_after_it_has_noticed(&mut broken);
    broken
}

impl Facts<'_> {
    /// Everyone has started or has an exit code; in the end all have one.
    fn everyone_ends(&self, broken: &mut Vec<String>) {
        for (agent, life) in self.lives() {
            if life.ended.is_none() && life.killed.is_none() {
                broken.push(format!("everyone-ends: agent {agent} has no exit code"));
            }
        }
    }

    /// At most one roster per attempt is acted on, and all who start have the same.
    fn one_roster(&self, broken: &mut Vec<String>) {
        let mut rosters: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
        for (fate, _) in self.members() {
            let attempt = fate.variables.get(var::RALLYPOINT_ATTEMPT).map_or("?", String::as_str);
            let config = fate.variables.get(var::TF_CONFIG).map_or("", String::as_str);
            let cluster = config.split("\"task\"").next().unwrap_or_default().to_owned();
            rosters.entry(attempt).or_default().insert(cluster);
        }
        // What the model has found: "a restart that nobody counts".
        let is_known = self.is_back_uncounted();
        for (attempt, rosters) in rosters.iter().filter(|(_, rosters)| rosters.len() > 1 && !is_known) {
            broken.push(format!("one-roster: {} rosters of attempt {attempt}: {rosters:?}", rosters.len()));
        }
    }

    /// In an attempt a rank is started by one agent, and an agent has one rank.
    fn a_rank_has_one_owner(&self, broken: &mut Vec<String>) {
        let mut owners: BTreeMap<(&str, &str, u32), BTreeSet<usize>> = BTreeMap::new();
        let mut ranks: BTreeMap<usize, BTreeSet<u32>> = BTreeMap::new();
        for (fate, rank) in self.members() {
            let attempt = fate.variables.get(var::RALLYPOINT_ATTEMPT).map_or("?", String::as_str);
            let config = fate.variables.get(var::TF_CONFIG).map_or("", String::as_str);
            let cluster = config.split("\"task\"").next().unwrap_or_default();
            owners.entry((attempt, cluster, rank)).or_default().insert(fate.agent);
            ranks.entry(fate.agent).or_default().insert(rank);
            let host = self.scenario.hosts[self.played.agents[fate.agent].slot];
            // On one machine loopback is enough.
            let alone = self.scenario.hosts.iter().all(|there| *there == host);
            let ip = if alone { Ipv4Addr::LOCALHOST.into() } else { address_of(host) };
            let own = fate.port.map(|port| format!("{ip}:{port}"));
            let address = fate.variables.get(var::RALLYPOINT_ADDRESS);
            if address != own.as_ref() || own.is_none_or(|own| !config.contains(&own)) {
                broken.push(format!("one-owner: rank {rank} is told that it is at {address:?}"));
            }
            let told = fate.variables.get(var::RALLYPOINT_RANK).and_then(|rank| rank.parse().ok());
            if told != Some(rank)
                || self.scenario.ranked && self.played.agents[fate.agent].slot as u32 != rank
            {
                broken.push(format!(
                    "one-owner: agent {} has started rank {rank}, told as {told:?}",
                    fate.agent
                ));
            }
        }
        for ((attempt, _, rank), owners) in owners.iter().filter(|(_, owners)| owners.len() > 1) {
            broken.push(format!(
                "one-owner: rank {rank} of attempt {attempt} was started by agents {owners:?}"
            ));
        }
        for (agent, ranks) in ranks.iter().filter(|(_, ranks)| ranks.len() > 1) {
            broken.push(format!("one-owner: agent {agent} has started ranks {ranks:?}"));
        }
    }

    /// A member comes back as often as it may, and no more.
    fn restarts_are_counted(&self, broken: &mut Vec<String>) {
        let mut starts: BTreeMap<(usize, u32), u32> = BTreeMap::new();
        self.members().for_each(|(fate, rank)| *starts.entry((fate.agent, rank)).or_default() += 1);
        for ((agent, rank), count) in starts {
            if count > 1 + self.allowed_restarts(rank) {
                broken.push(format!(
                    "restarts-are-counted: agent {agent} has started rank {rank} {count} times"
                ));
            }
        }
    }

    /// Nobody starts a member by the roster of a leader that it has given up.
    fn nobody_starts_after_the_loss(&self, broken: &mut Vec<String>) {
        for (fate, rank) in self.members() {
            let Life { events, steps, .. } = &self.played.agents[fate.agent];
            let before = events.iter().zip(steps).filter(|(_, step)| **step <= fate.step).rev();
            let last = before.map(|((_, event), _)| event).find_map(|event| match event {
                RunEvent::LeaderLost { .. } | RunEvent::LeaderLostWhileRunning { .. } => Some(false),
                RunEvent::Joined { .. } | RunEvent::Gathered { .. } => Some(true),
                _ => None,
            });
            if last != Some(true) {
                broken.push(format!(
                    "no-start-after-loss: agent {} has started rank {rank} all the same",
                    fate.agent
                ));
            }
        }
    }

    /// Nobody is asked twice; who is asked has its grace, and no more.
    fn asked_once_then_killed_in_time(&self, broken: &mut Vec<String>) {
        let by_hand = |fault: &Fault| matches!(fault, Fault::Signal { number, .. } | Fault::SignalAll { number } if *number == libc::SIGINT);
        let twice = self.scenario.faults.iter().filter(|(_, fault)| by_hand(fault)).count() > 0
            && self.scenario.faults.len() > 1;
        for fate in &self.played.fates {
            let who = match fate.rank {
                Some(rank) => format!("rank {rank} of agent {}", fate.agent),
                None => format!("a child of agent {}", fate.agent),
            };
            if fate.asked.len() > 1 {
                broken.push(format!("asked-once: {who} was asked at {:?}", fate.asked));
            }
            let life = &self.played.agents[fate.agent];
            let frozen = self.has(|fault| {
                matches!(fault, Fault::Freeze { agent, .. } if *agent == life.slot)
                    || matches!(fault, Fault::FreezeAll { .. })
            });
            let asked = fate.asked.first().copied();
            match (asked, fate.killed) {
                (Some(asked), Some(killed)) if killed + ms(2) < asked + self.grace && !twice => {
                    // What is left of a member that has ended has half a second; what the leader gives up has none.
                    let is_left = fate.rank.is_none();
                    if !is_left && !self.was_given_up(life, killed) {
                        broken.push(format!(
                            "has-its-grace: {who} was asked at {asked:?} and killed at {killed:?}"
                        ));
                    }
                }
                (None, Some(killed)) if fate.rank.is_some() && !twice && !self.was_given_up(life, killed) => {
                    broken.push(format!("has-its-grace: {who} was killed at {killed:?}, and never asked"));
                }
                _ => {}
            }
            let end = fate.ended.map(|(at, _)| at);
            // What a member has left is ended with the job.
            if let Some(asked) = asked.filter(|_| !frozen && fate.rank.is_some())
                && life.killed.is_none()
                && end.is_none_or(|end| end > asked + self.grace + MOMENT)
            {
                broken.push(format!("killed-in-time: {who} was asked at {asked:?} and ended at {end:?}"));
            }
        }
    }

    /// The leader does not wait any longer for this agent, whose word has not come, and ends what it has.
    fn was_given_up(&self, life: &Life, killed: Duration) -> bool {
        let silent = |fault: &Fault| {
            matches!(
                fault,
                Fault::SlowNet { .. } | Fault::Cut { .. } | Fault::Freeze { .. } | Fault::LoseHost { .. }
            )
        };
        let told = life
            .events
            .iter()
            .any(|(at, event)| matches!(event, RunEvent::Told { .. }) && *at <= killed + ms(1));
        told && self.has(silent) || self.has(|fault| matches!(fault, Fault::Freeze { .. }))
    }

    /// No process outlives its agent.
    fn nobody_is_left(&self, broken: &mut Vec<String>) {
        for (agent, life) in self.lives().filter(|(_, life)| life.left > 0) {
            broken.push(format!("nobody-is-left: {} processes of agent {agent}", life.left));
        }
    }

    /// An agent was killed and came back, and nobody counts that.
    fn is_back_uncounted(&self) -> bool {
        self.has(|fault| matches!(fault, Fault::Kill { back: Some(_), .. })) && !self.scenario.apart
    }

    /// No file is left in the directory.
    fn no_file_is_left(&self, broken: &mut Vec<String>) {
        // One that was lost with its host cannot take its file back; nor one whose directory does not answer.
        let may_stay = |fault: &Fault| {
            matches!(
                fault,
                Fault::LoseHost { .. } | Fault::SlowDisk { ms: 1500.., .. } | Fault::Freeze { .. }
            )
        };
        // One that had closed a chain when it was killed, and not yet removed all of it.
        let killed = self.has(|fault| matches!(fault, Fault::Kill { .. }));
        let begun = |file: &String| killed && file.contains("takeover");
        let left: Vec<&String> = self.played.files.iter().filter(|file| !begun(file)).collect();
        if !left.is_empty() && !self.has(may_stay) {
            broken.push(format!("no-file-is-left: {left:?}"));
        }
    }

    /// Causes that may be the first to be noticed.
    fn first_causes(&self) -> Vec<&Cause> {
        let Some((gathered, _)) = self.gathered else { return Vec::new() };
        // One before the roster was out may be noticed after it.
        let of_job: Vec<&Cause> =
            self.causes.iter().filter(|cause| cause.noticed + self.slack + ms(500) >= gathered).collect();
        let Some(soonest) = of_job
            .iter()
            .filter(|cause| cause.certain && cause.at >= gathered)
            .map(|cause| cause.noticed)
            .min()
        else {
            return of_job;
        };
        of_job.into_iter().filter(|cause| cause.at <= soonest + self.slack + ms(500)).collect()
    }

    /// Everyone's exit code is that of a cause which may have been the first.
    fn codes_are_right(&self, broken: &mut Vec<String>) {
        let failed = OwnCode::MeetingFailed.code();
        let causes = self.first_causes();
        let mut of_job: BTreeSet<u8> = causes.iter().flat_map(|cause| cause.codes.iter().copied()).collect();
        // Who comes back and is not counted meets for another job, with failures of its own.
        let jobs = self.lives().filter(|(_, life)| {
            life.events.iter().any(|(_, event)| matches!(event, RunEvent::Gathered { .. }))
        });
        if self.is_back_uncounted() && jobs.count() > 1 {
            of_job.extend(self.members().filter_map(|(fate, _)| match fate.ended?.1 {
                Exit::Code(code) => Some(code),
                Exit::Signal(number) => u8::try_from(128 + number).ok(),
            }));
        }
        let is_disturbed = self.scenario.faults.iter().any(|(at, fault)| !self.is_harmless(ms(*at), fault));
        for (agent, life) in self.lives() {
            let Some((at, code)) = life.ended else { continue };
            let joined = life
                .events
                .iter()
                .any(|(_, event)| matches!(event, RunEvent::Joined { .. } | RunEvent::Gathered { .. }));
            let interrupted = OwnCode::Interrupted.code();
            let was_interrupted =
                self.causes.iter().any(|cause| cause.codes.contains(&interrupted) && cause.at <= at);
            let allowed = match joined {
                true => {
                    of_job.contains(&code)
                        // One that has lost its leader, or was lost by it, ends by itself.
                        || is_disturbed && (code == OwnCode::LeaderLost.code() || code == OwnCode::MemberLost.code())
                        || is_disturbed && code == interrupted && was_interrupted
                }
                // It did not come to a job for this one.
                false => {
                    code == failed && (is_disturbed || was_interrupted)
                        || code == interrupted && was_interrupted
                        || is_disturbed
                            && (of_job.contains(&code)
                                || code == OwnCode::LeaderLost.code()
                                || code == OwnCode::MemberLost.code())
                }
            };
            if !allowed {
                broken.push(format!(
                    "right-code: agent {agent} has ended with {code}; it may be {of_job:?} of {causes:?}"
                ));
            }
        }
    }

    /// What the leader tells as the first failure is the first one.
    fn the_first_failure_is_the_cause(&self, broken: &mut Vec<String>) {
        for (agent, life) in self.lives() {
            let over = life.events.iter().find_map(|(at, event)| match event {
                RunEvent::Over(whole) => Some((*at, whole)),
                _ => None,
            });
            let Some((_, whole)) = over else { continue };
            if let Some((_, code)) = life.ended
                && whole.verdict.code() != code
            {
                broken.push(format!(
                    "right-code: agent {agent} has told {} and ended with {code}",
                    whole.verdict.code()
                ));
            }
            let Verdict::Failed(failure) = &whole.verdict else { continue };
            // What was before is of another job.
            let gathered = life.events.iter().find(|(_, event)| matches!(event, RunEvent::Gathered { .. }));
            let since = gathered.map_or(Duration::ZERO, |(at, _)| *at);
            let mut own: Vec<(Duration, u32, Exit)> = Vec::new();
            for (fate, rank) in self.members() {
                if let Some((at, exit)) = fate.ended.filter(|(_, exit)| is_failure(*exit))
                    && fate.asked.first().is_none_or(|asked| *asked > at)
                    && fate.killed.is_none()
                {
                    own.push((at, rank, exit));
                }
            }
            let matches = |(_, rank, exit): &(Duration, u32, Exit)| {
                *rank == failure.rank
                    && match (&failure.ended.end, exit) {
                        (End::Exited(code), Exit::Code(real)) => code == real,
                        (End::Killed(signal), Exit::Signal(real)) => signal == real,
                        _ => false,
                    }
            };
            match &failure.ended.end {
                End::Exited(_) | End::Killed(_) => {
                    let Some(told) = own.iter().filter(|own| matches(own)).map(|own| own.0).min() else {
                        broken.push(format!("first-failure: {failure:?} never happened"));
                        continue;
                    };
                    let earlier = own.iter().filter(|(at, rank, _)| {
                        *at >= since && *at + self.slack + ms(500) < told && self.allowed_restarts(*rank) == 0
                    });
                    // A failure that nobody could tell in time is not the first that was known.
                    let unheard =
                        self.has(|fault| matches!(fault, Fault::Cut { .. } | Fault::LoseHost { .. }));
                    if let (Some(first), false) = (earlier.min_by_key(|own| own.0), unheard) {
                        broken.push(format!("first-failure: {first:?} was before {failure:?}"));
                    }
                }
                End::Lost(_) | End::AgentFailed { .. } | End::NotStarted(_) => {
                    let is_lost =
                        self.causes.iter().any(|cause| cause.codes.contains(&OwnCode::MemberLost.code()));
                    if !is_lost
                        && !self.has(|fault| {
                            matches!(fault, Fault::SlowNet { .. } | Fault::Freeze { .. } | Fault::Cut { .. })
                        })
                    {
                        broken.push(format!("first-failure: {failure:?}, and nobody was lost"));
                    }
                }
            }
        }
    }

    /// What an agent has noticed itself needs no silence to be noticed.
    fn ends_soon_after_it_has_noticed(&self, broken: &mut Vec<String>) {
        for (agent, life) in self.lives() {
            let Some((at, _)) = life.ended else { continue };
            let leads = life.events.iter().any(|(_, event)| matches!(event, RunEvent::Gathered { .. }));
            let noticed = life.events.iter().find(|(_, event)| match event {
                RunEvent::Failed { .. } | RunEvent::Signal { .. } | RunEvent::SignalElsewhere { .. } => leads,
                RunEvent::LeaderLostWhileRunning { .. } | RunEvent::Told { .. } => true,
                _ => false,
            });
            let held_up: Duration = self
                .scenario
                .faults
                .iter()
                .map(|(_, fault)| match *fault {
                    Fault::Freeze { agent: slot, lasts } if slot == life.slot => ms(lasts),
                    Fault::FreezeAll { lasts } => ms(lasts),
                    Fault::SlowNet { ms: longest, .. } => ms(longest * 2),
                    Fault::SlowDisk { ms: longest, lasts } => {
                        ms((longest * 5).min(lasts + longest)).min(BEYOND_GRACE)
                    }
                    _ => Duration::ZERO,
                })
                .sum();
            if let Some((noticed, event)) = noticed
                && at > *noticed + self.grace + BEYOND_GRACE + held_up
            {
                broken.push(format!(
                    "ends-in-time: agent {agent} has noticed {event:?} at {noticed:?} and ended at {at:?}"
                ));
            }
        }
    }

    /// Everyone ends within the grace and 5 s of the cause; before the roster, when the time to meet is over.
    fn ends_in_time(&self, broken: &mut Vec<String>) {
        let meet = ms(self.scenario.meet);
        let first = self.gathered.and_then(|(gathered, _)| {
            let causes = self.causes.iter().filter(|cause| cause.certain && cause.at >= gathered);
            causes.map(|cause| cause.noticed).min()
        });
        let last = self.causes.iter().map(|cause| cause.noticed).max();
        for (agent, life) in self.lives() {
            let Some((at, _)) = life.ended else { continue };
            let joined = life
                .events
                .iter()
                .any(|(_, event)| matches!(event, RunEvent::Joined { .. } | RunEvent::Gathered { .. }));
            let limit = match (joined, first.or(last)) {
                (true, Some(first)) => first.max(life.started) + self.grace + BEYOND_GRACE + self.slack,
                _ => life.started + meet + self.grace + BEYOND_GRACE + self.slack,
            };
            // It may have met for another job, whose failures are its own: that it ends soon after them is looked at above.
            if joined && self.is_back_uncounted() && first.is_some_and(|first| life.started > first) {
                continue;
            }
            // A leader that hangs is noticed by its silence.
            let silent = self.has(|fault| {
                matches!(fault, Fault::Cut { .. } | Fault::LoseHost { .. } | Fault::Freeze { .. })
            });
            let limit = limit + if silent { SILENCE + ms(5000) } else { Duration::ZERO };
            if at > limit {
                broken.push(format!(
                    "ends-in-time: agent {agent} has ended at {at:?}, and had until {limit:?}"
                ));
            }
        }
    }
}
