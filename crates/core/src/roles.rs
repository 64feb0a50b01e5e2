//! Roles: what the user asks for, dealt over the ranks.

use crate::hint;
use crate::hint::{Hint, Hinted, Setting};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use thiserror::Error;

/// What a member does in the cluster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// The one that leads the training, where the framework has one.
    Chief,
    /// Looks at checkpoints beside the training; no part of TensorFlow's cluster.
    Evaluator,
    /// A parameter server.
    Ps,
    /// One that trains.
    Worker,
    /// Any other name that the user gave.
    Other(Arc<str>),
}

/// How many of each role are wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RoleRequest {
    /// Counts; dealt over the ranks in the order chief, evaluator, ps, worker, as TensorFlow's own
    /// resolver does.
    Counts {
        /// With a chief.
        chief: bool,
        /// With an evaluator.
        evaluator: bool,
        /// Parameter servers.
        ps: u32,
        /// Workers.
        workers: Workers,
        /// Where the parameter servers go.
        place: PsPlace,
    },
    /// One role per rank.
    List(RoleList),
}

/// How many workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Workers {
    /// All ranks that have no other role.
    #[default]
    Rest,
    /// So many.
    Count(u32),
}

/// Where parameter servers go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PsPlace {
    /// On the first ranks.
    #[default]
    Pack,
    /// On different hosts, the first slot of each.
    Spread,
}

/// `ps,worker*3,ps,worker*3`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoleList {
    text: String,
    runs: Vec<(Role, u32)>,
}

/// Asked-for roles that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RoleError {
    /// A role has a name that cannot be one.
    #[error("role {found:?} is not a name")]
    Name {
        /// What stands in its place.
        found: String,
    },
    /// No number, or 0, stands behind a `*`.
    #[error("role entry {found:?} has no count behind the *")]
    Count {
        /// The entry: `worker*`.
        found: String,
    },
    /// The list names nobody.
    #[error("the list of roles is empty")]
    Empty,
    /// The roles need more or fewer tasks than the allocation has.
    #[error(
        "{asked} members asked for ({what}), but the allocation has {there} task{}",
        if *there == 1 { "" } else { "s" }
    )]
    DoesNotFit {
        /// How many members are asked for.
        asked: u64,
        /// How many tasks there are.
        there: u32,
        /// What was asked for: `1 ps + 2 workers`.
        what: String,
        /// What would fit.
        hint: Hint,
    },
    /// All counts are 0.
    #[error("no member asked for")]
    Nobody,
    /// More members than a plan may have.
    #[error("{asked} members are more than {MAX_MEMBERS}")]
    TooMany {
        /// How many are asked for.
        asked: u64,
    },
    /// Parameter servers are to go to different hosts, and not all hosts are known.
    #[error("spreading parameter servers needs to know every member's host, and {reason}")]
    SpreadUnplaced {
        /// Why they are not known.
        reason: String,
    },
}

impl Hinted for RoleError {
    fn hint(&self) -> Option<Hint> {
        match self {
            RoleError::Name { .. } => Some(hint!("use letters, digits, - and _, as in ps,worker*3")),
            RoleError::Count { .. } => Some(hint!("write worker*3")),
            RoleError::Empty => Some(hint!("write one role per rank, as in ps,worker*3")),
            RoleError::DoesNotFit { hint, .. } => Some(hint.clone()),
            RoleError::Nobody => Some(hint!("give at least ", Setting::Workers.with("1"))),
            RoleError::TooMany { .. } => None,
            RoleError::SpreadUnplaced { .. } => {
                Some(hint!("leave ", Setting::Place, " out, or name each rank's role with ", Setting::Roles))
            }
        }
    }
}

/// More members than this on one plan is a typing mistake.
pub(crate) const MAX_MEMBERS: u64 = 1 << 22;

impl Role {
    /// Its name, as `TF_CONFIG` has it.
    pub fn as_str(&self) -> &str {
        match self {
            Role::Chief => "chief",
            Role::Evaluator => "evaluator",
            Role::Ps => "ps",
            Role::Worker => "worker",
            Role::Other(name) => name,
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Role {
    type Err = RoleError;

    fn from_str(text: &str) -> Result<Role, RoleError> {
        let is_name = text.starts_with(|c: char| c.is_ascii_alphabetic())
            && text.len() <= 64
            && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
        match text {
            "chief" | "master" => Ok(Role::Chief),
            "evaluator" => Ok(Role::Evaluator),
            "ps" => Ok(Role::Ps),
            "worker" => Ok(Role::Worker),
            _ if is_name => Ok(Role::Other(text.into())),
            _ => Err(RoleError::Name { found: text.to_owned() }),
        }
    }
}

impl Serialize for Role {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Role {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Role, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl FromStr for RoleList {
    type Err = RoleError;

    fn from_str(text: &str) -> Result<RoleList, RoleError> {
        let mut runs = Vec::new();
        for entry in text.split(',').map(str::trim) {
            let (name, count) = match entry.split_once('*') {
                None => (entry, 1),
                Some((name, count)) => {
                    let count = count.trim().parse().ok().filter(|&count: &u32| count > 0);
                    (name.trim(), count.ok_or_else(|| RoleError::Count { found: entry.to_owned() })?)
                }
            };
            runs.push((name.parse()?, count));
        }
        let list = RoleList { text: text.to_owned(), runs };
        match list.count() {
            0 => Err(RoleError::Empty),
            asked if asked > MAX_MEMBERS => Err(RoleError::TooMany { asked }),
            _ => Ok(list),
        }
    }
}

impl RoleList {
    /// How many members, at most [`MAX_MEMBERS`].
    pub(crate) fn count(&self) -> u64 {
        self.runs.iter().map(|(_, count)| u64::from(*count)).sum()
    }
}

impl Default for RoleRequest {
    fn default() -> RoleRequest {
        RoleRequest::Counts {
            chief: false,
            evaluator: false,
            ps: 0,
            workers: Workers::Rest,
            place: PsPlace::Pack,
        }
    }
}

impl RoleRequest {
    /// How many members this asks for, where it says so itself.
    pub(crate) fn count(&self) -> Option<u64> {
        match self {
            RoleRequest::List(list) => Some(list.count()),
            RoleRequest::Counts { workers: Workers::Rest, .. } => None,
            RoleRequest::Counts { workers: Workers::Count(workers), .. } => {
                Some(self.without_workers() + u64::from(*workers))
            }
        }
    }

    fn without_workers(&self) -> u64 {
        match self {
            RoleRequest::List(_) => 0,
            RoleRequest::Counts { chief, evaluator, ps, .. } => {
                u64::from(*chief) + u64::from(*evaluator) + u64::from(*ps)
            }
        }
    }

    /// Members on a plain machine, where there are as many as asked for: `rest` is one worker.
    pub(crate) fn count_on_plain_machine(&self) -> Result<u32, RoleError> {
        let asked = self.count().unwrap_or(self.without_workers() + 1);
        match asked {
            0 => Err(RoleError::Nobody),
            asked if asked > MAX_MEMBERS => Err(RoleError::TooMany { asked }),
            asked => Ok(asked as u32),
        }
    }

    /// The roles of all ranks of a world, as runs in rank order.
    ///
    /// `host_of_rank` gives each rank's host where all are known; only `spread` asks for it, so
    /// that all members deal the same roles even where they know different hosts.
    pub(crate) fn deal(
        &self,
        world: u32,
        host_of_rank: impl FnOnce() -> Option<Vec<u32>>,
    ) -> Result<Vec<(Role, u32)>, RoleError> {
        let asked = self.count().unwrap_or_else(|| self.without_workers().max(u64::from(world)));
        if asked != u64::from(world) {
            return Err(self.does_not_fit(asked, world));
        }
        let (chief, evaluator, ps, place) = match self {
            RoleRequest::List(list) => return Ok(list.runs.clone()),
            RoleRequest::Counts { chief, evaluator, ps, place, .. } => (*chief, *evaluator, *ps, *place),
        };
        let mut runs = vec![(Role::Chief, u32::from(chief)), (Role::Evaluator, u32::from(evaluator))];
        let first = u32::from(chief) + u32::from(evaluator);
        match place {
            PsPlace::Pack => runs.extend([(Role::Ps, ps), (Role::Worker, world - first - ps)]),
            PsPlace::Spread => {
                let hosts = host_of_rank().ok_or_else(|| RoleError::SpreadUnplaced {
                    reason: "the environment does not tell all of them".to_owned(),
                })?;
                let mut next = first;
                for rank in spread(&hosts, first, ps) {
                    runs.extend([(Role::Worker, rank - next), (Role::Ps, 1)]);
                    next = rank + 1;
                }
                runs.push((Role::Worker, world - next));
            }
        }
        runs.retain(|(_, count)| *count > 0);
        Ok(runs)
    }

    fn does_not_fit(&self, asked: u64, there: u32) -> RoleError {
        let (what, hint) = match self {
            RoleRequest::List(list) => (list.text.clone(), hint!("name one role per task")),
            RoleRequest::Counts { chief, evaluator, ps, workers, .. } => {
                let mut parts = Vec::new();
                for (wanted, name) in [(*chief, "1 chief"), (*evaluator, "1 evaluator")] {
                    if wanted {
                        parts.push(name.to_owned());
                    }
                }
                if *ps > 0 {
                    parts.push(format!("{ps} ps"));
                }
                if let Workers::Count(workers) = workers {
                    parts.push(format!("{workers} workers"));
                }
                let rest = Setting::Workers.with("rest");
                (
                    parts.join(" + "),
                    hint!("use ", rest, " for all the others, or ask for another number of tasks"),
                )
            }
        };
        RoleError::DoesNotFit { asked, there, what, hint }
    }
}

/// `count` ranks from `start` on, taken from the hosts in turn, the first free rank of each; ascending.
fn spread(hosts: &[u32], start: u32, count: u32) -> Vec<u32> {
    let mut by_host: Vec<Vec<u32>> = Vec::new();
    let mut position = std::collections::HashMap::new();
    for (rank, &host) in hosts.iter().enumerate() {
        let at = *position.entry(host).or_insert_with(|| {
            by_host.push(Vec::new());
            by_host.len() - 1
        });
        if rank >= start as usize {
            by_host[at].push(rank as u32);
        }
    }
    let deepest = by_host.iter().map(Vec::len).max().unwrap_or(0);
    let mut chosen: Vec<u32> = (0..deepest)
        .flat_map(|round| by_host.iter().filter_map(move |ranks| ranks.get(round)))
        .copied()
        .take(count as usize)
        .collect();
    chosen.sort_unstable();
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(chief: bool, evaluator: bool, ps: u32, workers: Workers, place: PsPlace) -> RoleRequest {
        RoleRequest::Counts { chief, evaluator, ps, workers, place }
    }

    fn dealt(request: &RoleRequest, world: u32, hosts: &[u32]) -> String {
        match request.deal(world, || Some(hosts.to_vec())) {
            Ok(runs) => runs
                .iter()
                .flat_map(|(role, count)| std::iter::repeat_n(role.as_str(), *count as usize))
                .collect::<Vec<_>>()
                .join(","),
            Err(error) => hint::in_full(&error),
        }
    }

    #[test]
    fn parameter_servers_are_packed_or_spread() {
        let two_nodes = [0, 0, 0, 0, 1, 1, 1, 1];
        let pack = counts(false, false, 2, Workers::Rest, PsPlace::Pack);
        assert_eq!(dealt(&pack, 8, &two_nodes), "ps,ps,worker,worker,worker,worker,worker,worker");
        let spread = counts(false, false, 2, Workers::Rest, PsPlace::Spread);
        assert_eq!(dealt(&spread, 8, &two_nodes), "ps,worker,worker,worker,ps,worker,worker,worker");
        let spread = counts(true, false, 3, Workers::Rest, PsPlace::Spread);
        assert_eq!(dealt(&spread, 8, &two_nodes), "chief,ps,ps,worker,ps,worker,worker,worker");
        let cyclic = counts(false, false, 2, Workers::Rest, PsPlace::Spread);
        assert_eq!(dealt(&cyclic, 4, &[0, 1, 0, 1]), "ps,ps,worker,worker");
    }

    #[test]
    fn spreading_over_unknown_hosts_is_refused() {
        let spread = counts(false, false, 1, Workers::Rest, PsPlace::Spread);
        assert!(matches!(spread.deal(4, || None), Err(RoleError::SpreadUnplaced { .. })));
    }

    #[test]
    fn roles_come_in_the_order_of_tensorflows_resolver() {
        let all = counts(true, true, 1, Workers::Rest, PsPlace::Pack);
        assert_eq!(dealt(&all, 5, &[0; 5]), "chief,evaluator,ps,worker,worker");
    }

    #[test]
    fn a_count_that_does_not_fit_says_both_numbers() {
        let ten = counts(true, false, 2, Workers::Count(7), PsPlace::Pack);
        assert_eq!(
            dealt(&ten, 8, &[0; 8]),
            "10 members asked for (1 chief + 2 ps + 7 workers), but the allocation has 8 tasks; \
             hint: use --workers rest for all the others, or ask for another number of tasks"
        );
        let three = counts(true, false, 2, Workers::Rest, PsPlace::Pack);
        assert!(dealt(&three, 1, &[0]).starts_with("3 members asked for (1 chief + 2 ps)"));
        let list = RoleRequest::List("ps,worker*3".parse().unwrap());
        assert!(
            dealt(&list, 8, &[0; 8])
                .starts_with("4 members asked for (ps,worker*3), but the allocation has 8")
        );
    }

    #[test]
    fn lists_of_roles() {
        let list = RoleRequest::List("ps, worker*2 ,reader*1".parse().unwrap());
        assert_eq!(dealt(&list, 4, &[0; 4]), "ps,worker,worker,reader");
        for bad in ["", "ps,", "worker*", "worker*0", "worker*x", "9ps", "a b", "worker*99999999"] {
            assert!(bad.parse::<RoleList>().is_err(), "{bad:?}");
        }
    }
}
