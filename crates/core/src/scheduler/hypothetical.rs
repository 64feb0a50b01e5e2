//! An allocation that does not exist yet: `--nodes 'n[01-04]' --tasks-per-node 4 --gpus-per-node 4`.

use crate::allocation::{Allocation, Host, HostGpus, HostNames, Place, Slot, Source};
use crate::devices::{Device, DeviceList};
use crate::hint;
use crate::hint::{Hint, Hinted, Setting};
use crate::hostlist::{HostList, HostListError};
use crate::roles::{MAX_MEMBERS, RoleRequest};
use thiserror::Error;

pub(crate) const SOURCE: Source = Source {
    name: "none",
    title: "no scheduler (hosts given by hand)",
    heading: "Hosts given by hand",
    hosts: HostNames::GivenByHand,
    shares_output: false,
};

/// Hosts and counts given by hand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hypothesis {
    /// A host list: `n[01-04]`.
    pub nodes: String,
    /// Not given: as many as the roles need, or one.
    pub tasks_per_node: Option<u32>,
    /// GPUs of each host, shared by its members.
    pub gpus_per_node: u32,
    /// CPUs of each member, where they are known.
    pub cpus_per_task: Option<u32>,
}

/// Why hosts and counts given by hand are no allocation.
#[derive(Debug, Error)]
pub enum HypothesisError {
    /// The nodes are no host list.
    #[error("the nodes {nodes}: {source}")]
    Nodes {
        /// What was given.
        nodes: String,
        /// What is wrong with it.
        source: HostListError,
    },
    /// The host list is empty.
    #[error("the nodes name no host")]
    NoHost,
    /// `--tasks-per-node 0` was given.
    #[error("no task per node leaves nobody to run")]
    NoTask,
    /// The host list has a name twice.
    #[error("the nodes name {host} twice")]
    Twice {
        /// The name.
        host: String,
    },
    /// Hosts times tasks are more members than a job may have.
    #[error("{asked} members are more than {MAX_MEMBERS}")]
    TooMany {
        /// How many that would be.
        asked: u64,
    },
}

impl Hinted for HypothesisError {
    fn hint(&self) -> Option<Hint> {
        match self {
            HypothesisError::Nodes { source, .. } => source.hint(),
            HypothesisError::NoHost => Some(hint!("write a host list such as 'n[01-04]'")),
            HypothesisError::NoTask => Some(hint!("give at least 1")),
            HypothesisError::Twice { .. } => {
                Some(hint!("name each host once and use ", Setting::TasksPerNode))
            }
            HypothesisError::TooMany { .. } => None,
        }
    }
}

/// The allocation those hosts would be, ranks in blocks.
pub fn allocation(hypothesis: &Hypothesis, roles: &RoleRequest) -> Result<Allocation, HypothesisError> {
    let nodes: HostList = hypothesis
        .nodes
        .parse()
        .map_err(|source| HypothesisError::Nodes { nodes: hypothesis.nodes.clone(), source })?;
    let tasks = hypothesis.tasks_per_node.unwrap_or_else(|| {
        let needed = roles.count().filter(|count| count % nodes.count().max(1) == 0);
        needed.and_then(|count| u32::try_from(count / nodes.count().max(1)).ok()).unwrap_or(1)
    });
    let world = nodes.count() * u64::from(tasks);
    match (nodes.count(), tasks) {
        (0, _) => return Err(HypothesisError::NoHost),
        (_, 0) => return Err(HypothesisError::NoTask),
        _ if world > MAX_MEMBERS => return Err(HypothesisError::TooMany { asked: world }),
        _ => {}
    }
    let gpus: DeviceList = Device::first(hypothesis.gpus_per_node);
    let hosts: Vec<Host> =
        nodes.names().map(|name| Host { name, gpus: HostGpus::Shared(gpus.clone()) }).collect();
    let mut seen = std::collections::HashSet::with_capacity(hosts.len());
    if let Some(host) = hosts.iter().find(|host| !seen.insert(host.name.as_str())) {
        return Err(HypothesisError::Twice { host: host.name.clone() });
    }
    let mut slots = Vec::with_capacity(world as usize);
    for host in 0..hosts.len() as u32 {
        slots.extend((0..tasks).map(|local_rank| Slot {
            place: Some(Place { host, local_rank }),
            cpus: hypothesis.cpus_per_task,
        }));
    }
    Ok(Allocation {
        scheduler: SOURCE,
        job: None,
        attempt: 0,
        restarts: None,
        hosts,
        slots,
        me: None,
        bound: None,
        deadline: None,
        ports: None,
        notes: Vec::new(),
    })
}
