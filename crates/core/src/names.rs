//! Who is meant, for those who have no plan at hand: events, outcomes and errors name members by these.

use crate::plan::{Member, Plan};
use crate::roles::Role;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The most that are named one by one.
const MOST: usize = 8;

/// A member by its rank, its role and its number in the role; shown as `worker 1`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Name {
    /// Its number among all members.
    pub rank: u32,
    /// What it does in the cluster.
    pub role: Role,
    /// Its number in the role.
    pub index: u32,
}

/// Some members: the first eight by name, the others counted. Shown as `ps 0 (rank 0, n1), worker 3 (rank 4, n2)`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Names {
    /// Those that are named.
    pub named: Vec<NameAndHost>,
    /// How many more there are.
    pub more: usize,
}

/// A member, and where it runs, if that was known before all have met.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameAndHost {
    /// The member.
    #[serde(flatten)]
    pub name: Name,
    /// Its host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
}

impl Name {
    /// That of a member of a plan.
    pub(crate) fn of(member: &Member) -> Name {
        Name { rank: member.rank, role: member.role.clone(), index: member.index }
    }
}

impl From<Name> for Names {
    fn from(name: Name) -> Names {
        Names { named: vec![NameAndHost { name, host: None }], more: 0 }
    }
}

impl Names {
    /// Those of a plan with these ranks; ranks that it does not have are only counted.
    pub(crate) fn of(plan: &Plan, ranks: &[u32]) -> Names {
        let named: Vec<NameAndHost> = ranks
            .iter()
            .filter_map(|&rank| plan.member(rank))
            .take(MOST)
            .map(|member| NameAndHost {
                name: Name::of(member),
                // On plain machines nobody knows before they meet.
                host: plan.host(member).filter(|_| !plan.scheduler().is_plain_machine()).map(str::to_owned),
            })
            .collect();
        Names { more: ranks.len() - named.len(), named }
    }

    /// Those that another agent has told: the ranks of the first, and how many more there are.
    pub(crate) fn told(plan: &Plan, ranks: &[u32], more: u32) -> Names {
        let names = Names::of(plan, ranks);
        Names { more: names.more.saturating_add(more as usize), ..names }
    }

    /// The ranks of those that are named, and how many more there are: what is told to other agents.
    pub(crate) fn to_tell(&self) -> (Vec<u32>, u32) {
        (self.named.iter().map(|named| named.name.rank).collect(), self.more as u32)
    }

    /// How many there are in all.
    pub fn count(&self) -> usize {
        self.named.len().saturating_add(self.more)
    }

    /// True if there is nobody.
    pub fn is_empty(&self) -> bool {
        self.count() == 0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.role, self.index)
    }
}

impl fmt::Display for NameAndHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (rank {}", self.name, self.name.rank)?;
        if let Some(host) = &self.host {
            write!(f, ", {host}")?;
        }
        f.write_str(")")
    }
}

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, name) in self.named.iter().enumerate() {
            f.write_str(if number == 0 { "" } else { ", " })?;
            name.fmt(f)?;
        }
        match self.more {
            0 => Ok(()),
            more if self.named.is_empty() => write!(f, "{more}"),
            more => write!(f, ", and {more} more"),
        }
    }
}
