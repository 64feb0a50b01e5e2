//! Faults on purpose: what is to be done to which member, and when, so that users can try their own checkpoints.
//!
//! ```text
//! kill:worker.1@30s              SIGKILL to worker 1 and all that it has started, 30 s after its start
//! stop:ps.0@1min+20s             ps 0 stands still for 20 s
//! kill:worker@5min,lose:ps@1h    every worker, and each agent of a ps
//! ```
//!
//! Each agent has the whole list, and does what is for its own members: `supervise/rehearsing.rs` says when.

use crate::duration::{self, DurationError};
use crate::hint;
use crate::hint::{Hint, Hinted};
use crate::plan::{Member, Plan};
use crate::roles::Role;
use serde::{Deserialize, Serialize};
use std::str::FromStr;
use std::time::Duration;
use thiserror::Error;

/// Faults that are done to a job's members on purpose.
///
/// ```
/// use rallypoint::rehearsal::Rehearsal;
///
/// let twice: Rehearsal = "kill:worker.1@30s,kill:worker.1@2min".parse()?;
/// let error = "kill:worker.1".parse::<Rehearsal>().unwrap_err();
/// assert_eq!(error.to_string(), "\"kill:worker.1\" does not say when");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rehearsal {
    faults: Vec<Fault>,
}

/// One fault: what, to whom, and when.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Fault {
    deed: Deed,
    who: Who,
    /// Since the member's first start.
    after: Duration,
}

/// What is done to a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Deed {
    /// SIGKILL to its whole process group, as the kernel does it when memory is short.
    Kill,
    /// SIGTERM to its first process.
    Term,
    /// SIGUSR1 to its whole process group, as a scheduler's warning comes to it.
    Warn,
    /// SIGSTOP to its whole process group: it stands still.
    Stop,
    /// SIGCONT to its whole process group, if it stands still.
    Continue,
    /// SIGKILL to its agent, and so to all members of that, as if their host were gone.
    Lose,
}

/// To whom it is done.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Who {
    All,
    EveryOne(Role),
    One(Role, u32),
}

/// A fault for one member of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Planned {
    pub(crate) rank: u32,
    pub(crate) deed: Deed,
    /// Since the member's first start.
    pub(crate) after: Duration,
}

/// Faults that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RehearsalError {
    /// Nothing says what is done.
    #[error("{found:?} does not say what is to happen to whom")]
    NoDeed {
        /// The whole fault.
        found: String,
    },
    /// What is done is nothing that we can do.
    #[error("{deed:?} in {found:?} is no fault")]
    UnknownDeed {
        /// The word for it.
        deed: String,
        /// The whole fault.
        found: String,
    },
    /// There is no `@`.
    #[error("{found:?} does not say when")]
    NoTime {
        /// The whole fault.
        found: String,
    },
    /// The time is none.
    #[error("{time:?} in {found:?} is no time: {source}")]
    Time {
        /// What stands in its place.
        time: String,
        /// The whole fault.
        found: String,
        /// What was expected.
        source: DurationError,
    },
    /// Something else than a stop has an end.
    #[error("{found:?} has a + and a second time, which only a stop has")]
    NoPause {
        /// The whole fault.
        found: String,
    },
    /// Neither a role nor a member.
    #[error("{who:?} in {found:?} is no member")]
    NoMember {
        /// What stands in its place.
        who: String,
        /// The whole fault.
        found: String,
    },
    /// The job has no member of this role.
    #[error("a fault is for {role}, and no member of this job has that role, there are {there}")]
    NoSuchRole {
        /// The role.
        role: Role,
        /// Those that members have.
        there: String,
    },
    /// The role has fewer members.
    #[error("a fault is for {role}.{index}, and this job has {count} of that role")]
    NoSuchMember {
        /// The role.
        role: Role,
        /// The number that nobody has.
        index: u32,
        /// How many there are.
        count: u32,
    },
}

impl Hinted for RehearsalError {
    fn hint(&self) -> Option<Hint> {
        Some(match self {
            RehearsalError::NoDeed { .. } => hint!("write what, whom and when, as in kill:worker.1@30s"),
            RehearsalError::UnknownDeed { .. } => {
                let names: Vec<&str> = Deed::ALL.iter().map(|deed| deed.name()).collect();
                hint!(format!("there are {}", names.join(", ")))
            }
            RehearsalError::NoTime { found } => {
                hint!(format!("write the time since the member's start, as in {found}@30s"))
            }
            RehearsalError::Time { .. } => hint!("write kill:worker.1@30s, or stop:worker.1@1min+20s"),
            RehearsalError::NoPause { .. } => hint!("leave the + out; a member comes back if it may restart"),
            RehearsalError::NoMember { .. } => {
                hint!("write worker.1 for one, worker for all of them, or all")
            }
            RehearsalError::NoSuchRole { .. } => hint!("name one of those, or all"),
            RehearsalError::NoSuchMember { role, count: 1, .. } => hint!(format!("it is {role}.0")),
            RehearsalError::NoSuchMember { role, count, .. } => {
                hint!(format!("they are {role}.0 to {role}.{}", count - 1))
            }
        })
    }
}

impl Deed {
    /// All of them.
    pub const ALL: [Deed; 6] = [Deed::Kill, Deed::Term, Deed::Warn, Deed::Stop, Deed::Continue, Deed::Lose];

    /// `kill`, as it is typed.
    pub fn name(self) -> &'static str {
        match self {
            Deed::Kill => "kill",
            Deed::Term => "term",
            Deed::Warn => "warn",
            Deed::Stop => "stop",
            Deed::Continue => "continue",
            Deed::Lose => "lose",
        }
    }

    /// The signal that it is.
    pub fn signal(self) -> i32 {
        match self {
            Deed::Kill | Deed::Lose => libc::SIGKILL,
            Deed::Term => libc::SIGTERM,
            Deed::Warn => libc::SIGUSR1,
            Deed::Stop => libc::SIGSTOP,
            Deed::Continue => libc::SIGCONT,
        }
    }
}

impl FromStr for Rehearsal {
    type Err = RehearsalError;

    /// `kill:worker.1@30s,stop:ps.0@1min+20s`
    fn from_str(text: &str) -> Result<Rehearsal, RehearsalError> {
        let mut faults = Vec::new();
        for found in text.split(',').map(str::trim) {
            faults.extend(parse(found)?);
        }
        Ok(Rehearsal { faults })
    }
}

/// One fault, and the end of it where it has one.
fn parse(found: &str) -> Result<Vec<Fault>, RehearsalError> {
    let whole = || found.to_owned();
    let (deed, rest) = found.split_once(':').ok_or_else(|| RehearsalError::NoDeed { found: whole() })?;
    let deed = Deed::ALL
        .into_iter()
        .find(|known| known.name() == deed)
        .ok_or_else(|| RehearsalError::UnknownDeed { deed: deed.to_owned(), found: whole() })?;
    let (who, when) = rest.split_once('@').ok_or_else(|| RehearsalError::NoTime { found: whole() })?;
    let who =
        Who::parse(who).ok_or_else(|| RehearsalError::NoMember { who: who.to_owned(), found: whole() })?;
    let time = |time: &str| {
        let wrong = |source| RehearsalError::Time { time: time.to_owned(), found: whole(), source };
        // Whole milliseconds, as agents tell it to each other.
        duration::parse(time).map(|time| Duration::from_millis(time.as_millis() as u64)).map_err(wrong)
    };
    let (after, pause) = match when.split_once('+') {
        None => (time(when)?, None),
        Some(_) if deed != Deed::Stop => return Err(RehearsalError::NoPause { found: whole() }),
        Some((after, pause)) => (time(after)?, Some(time(pause)?)),
    };
    let goes_on = pause.map(|pause| Fault { deed: Deed::Continue, who: who.clone(), after: after + pause });
    Ok([Fault { deed, who, after }].into_iter().chain(goes_on).collect())
}

impl Who {
    /// `worker.1`, `worker`, `all`
    fn parse(text: &str) -> Option<Who> {
        match text.split_once('.') {
            Some((role, index)) => Some(Who::One(role.parse().ok()?, index.parse().ok()?)),
            None if text == "all" => Some(Who::All),
            None => Some(Who::EveryOne(text.parse().ok()?)),
        }
    }

    fn has(&self, member: &Member) -> bool {
        match self {
            Who::All => true,
            Who::EveryOne(role) => *role == member.role,
            Who::One(role, index) => *role == member.role && *index == member.index,
        }
    }
}

impl Rehearsal {
    /// These faults, and others too.
    pub fn and(mut self, others: Rehearsal) -> Rehearsal {
        self.faults.extend(others.faults);
        self
    }

    /// Refuses faults for members that a job with so many of each role does not have.
    pub(crate) fn check(&self, roles: &[(Role, u32)]) -> Result<(), RehearsalError> {
        for fault in &self.faults {
            let (role, index) = match &fault.who {
                Who::All => continue,
                Who::EveryOne(role) => (role, 0),
                Who::One(role, index) => (role, *index),
            };
            match roles.iter().find(|(known, _)| known == role) {
                Some((_, count)) if index < *count => {}
                Some((_, count)) => {
                    return Err(RehearsalError::NoSuchMember { role: role.clone(), index, count: *count });
                }
                None => {
                    let names: Vec<&str> = roles.iter().map(|(role, _)| role.as_str()).collect();
                    let there = names.join(", ");
                    return Err(RehearsalError::NoSuchRole { role: role.clone(), there });
                }
            }
        }
        Ok(())
    }

    /// What is done to each member of a plan, in the order of time.
    pub(crate) fn planned(&self, plan: &Plan) -> Vec<Planned> {
        let of_fault = |fault: &Fault| {
            let Fault { deed, who, after } = fault.clone();
            let members = plan.members().iter().filter(move |member| who.has(member));
            members.map(move |member| Planned { rank: member.rank, deed, after }).collect::<Vec<_>>()
        };
        let mut planned: Vec<Planned> = self.faults.iter().flat_map(of_fault).collect();
        planned.sort_by_key(|planned| planned.after);
        planned
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::JobSpec;
    use crate::roles::RoleRequest;
    use crate::scheduler::hypothetical::{Hypothesis, allocation};

    fn plan(roles: &str) -> Plan {
        let roles = RoleRequest::List(roles.parse().unwrap());
        let nodes = "n1".to_owned();
        let hypothesis = Hypothesis { nodes, tasks_per_node: None, gpus_per_node: 0, cpus_per_task: None };
        let allocation = allocation(&hypothesis, &roles).unwrap();
        Plan::new(allocation, &JobSpec { roles, ..JobSpec::default() }).unwrap()
    }

    /// Ranks, deeds and milliseconds, in a job of a chief, a ps and two workers.
    fn planned(text: &str) -> Vec<(u32, &'static str, u128)> {
        let rehearsal: Rehearsal = text.parse().unwrap();
        let planned = rehearsal.planned(&plan("chief,ps,worker*2")).into_iter();
        planned.map(|Planned { rank, deed, after }| (rank, deed.name(), after.as_millis())).collect()
    }

    #[test]
    fn what_is_done_to_whom_and_when() {
        assert_eq!(planned("kill:worker.1@30s"), [(3, "kill", 30_000)]);
        assert_eq!(planned("term:chief@1.5min"), [(0, "term", 90_000)]);
        assert_eq!(planned("warn:all@0"), [0, 1, 2, 3].map(|rank| (rank, "warn", 0)));
        assert_eq!(planned("lose:master.0@2h"), [(0, "lose", 7_200_000)], "an old name of the chief");
        assert_eq!(planned("kill:worker@1s"), [(2, "kill", 1000), (3, "kill", 1000)]);
        assert_eq!(
            planned("stop:ps.0@1min+20s, kill:worker.0@70s,continue:ps@90s"),
            [(1, "stop", 60_000), (2, "kill", 70_000), (1, "continue", 80_000), (1, "continue", 90_000)]
        );
    }

    fn wrong(text: &str) -> String {
        let counts = plan("chief,ps,worker*2").role_counts();
        let checked = text.parse::<Rehearsal>().and_then(|rehearsal| rehearsal.check(&counts));
        checked.map_or_else(|error| hint::in_full(&error), |()| "nothing is wrong".to_owned())
    }

    #[test]
    fn what_is_wrong_is_said_with_what_would_be_right() {
        let table = [
            (
                "worker.1",
                "\"worker.1\" does not say what is to happen to whom; \
                 hint: write what, whom and when, as in kill:worker.1@30s",
            ),
            (
                "kill:worker.1@5s,",
                "\"\" does not say what is to happen to whom; \
                 hint: write what, whom and when, as in kill:worker.1@30s",
            ),
            (
                "explode:worker.1@5s",
                "\"explode\" in \"explode:worker.1@5s\" is no fault; \
                 hint: there are kill, term, warn, stop, continue, lose",
            ),
            (
                "kill:worker.1",
                "\"kill:worker.1\" does not say when; \
                 hint: write the time since the member's start, as in kill:worker.1@30s",
            ),
            (
                "kill:worker.1@soon",
                "\"soon\" in \"kill:worker.1@soon\" is no time: expected a time such as 10s, 5min or 2h; \
                 hint: write kill:worker.1@30s, or stop:worker.1@1min+20s",
            ),
            (
                "stop:worker.1@5s+",
                "\"\" in \"stop:worker.1@5s+\" is no time: expected a time such as 10s, 5min or 2h; \
                 hint: write kill:worker.1@30s, or stop:worker.1@1min+20s",
            ),
            (
                "kill:worker.1@5s+20s",
                "\"kill:worker.1@5s+20s\" has a + and a second time, which only a stop has; \
                 hint: leave the + out; a member comes back if it may restart",
            ),
            (
                "kill:worker.x@5s",
                "\"worker.x\" in \"kill:worker.x@5s\" is no member; \
                 hint: write worker.1 for one, worker for all of them, or all",
            ),
            (
                "kill:@5s",
                "\"\" in \"kill:@5s\" is no member; hint: write worker.1 for one, worker for all of them, or all",
            ),
            (
                "kill:wroker.1@5s",
                "a fault is for wroker, and no member of this job has that role, there are chief, ps, worker; \
                 hint: name one of those, or all",
            ),
            (
                "kill:worker.2@5s",
                "a fault is for worker.2, and this job has 2 of that role; hint: they are worker.0 to worker.1",
            ),
            ("kill:ps.1@5s", "a fault is for ps.1, and this job has 1 of that role; hint: it is ps.0"),
            ("kill:worker@5s,stop:all@1+1", "nothing is wrong"),
        ];
        for (text, expected) in table {
            assert_eq!(wrong(text), expected, "{text}");
        }
    }
}
