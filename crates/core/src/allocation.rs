//! The scheduler's whole answer, checked: hosts, slots, GPUs, who am I, attempt, deadline.

use crate::devices::DeviceList;
use serde::{Serialize, Serializer};
use std::fmt;
use std::time::SystemTime;

/// Who gave an allocation: what the later stages may know of it. The rest is in the scheduler's room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Source {
    /// `slurm`, as `--on` takes it.
    pub name: &'static str,
    /// `Slurm`, inside a sentence.
    pub title: &'static str,
    /// The same at its beginning.
    pub heading: &'static str,
    /// Whose its host names are.
    pub hosts: HostNames,
    /// The tasks of a step write to one place, so that what all of them would say is said by one.
    pub shares_output: bool,
}

/// Whose the names of the hosts are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostNames {
    /// The scheduler's: each is another host, and all members know them.
    Scheduler,
    /// What a plain machine calls itself: two that meet may have the same name, and each knows its own devices.
    Own,
    /// Somebody's who plans ahead.
    GivenByHand,
}

/// What the environment tells for certain. What it does not tell is `None`, never a guess.
#[derive(Debug, Clone)]
pub struct Allocation {
    /// Who gave it.
    pub scheduler: Source,
    /// The scheduler's id of the job, the same for all members.
    pub job: Option<String>,
    /// 0 for the first run; a requeue is the next attempt. The same for all members.
    pub attempt: u32,
    /// Where each member is started again by itself, this one's own count.
    pub restarts: Option<IndependentRestarts>,
    /// Every host once, in the scheduler's order.
    pub hosts: Vec<Host>,
    /// One per rank.
    pub slots: Vec<Slot>,
    /// The rank of this process; `None` outside a step.
    pub me: Option<u32>,
    /// GPUs that the scheduler bound to this process alone; a host's shared ones are with the host.
    pub bound: Option<DeviceList>,
    /// When the scheduler ends the job.
    pub deadline: Option<SystemTime>,
    /// Ports reserved on every host.
    pub ports: Option<Vec<u16>>,
    /// What a person should know about how this was read.
    pub notes: Vec<String>,
}

/// The scheduler starts a member again apart from the others, as HTCondor's vanilla universe does.
///
/// Then nobody knows the attempt before all have met: it is the most runs that any of them had before.
/// All have ended in between, so every one has more than in the attempt before, and so does the most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndependentRestarts {
    /// How often this member was started before.
    pub previous_runs: u32,
    /// Whether the scheduler starts the others again too if the job has failed.
    pub others_retry: bool,
}

/// A machine of the allocation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// As the scheduler calls it.
    pub name: String,
    /// Those that its members may use.
    pub gpus: HostGpus,
}

/// GPUs that a host's members may split among themselves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostGpus {
    /// The environment does not tell.
    Unknown,
    /// These (often none) are for all members of the host.
    Shared(DeviceList),
}

/// A place for one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// `None` where the environment cannot tell the host.
    pub place: Option<Place>,
    /// CPUs for this process; `None` where the environment does not tell.
    pub cpus: Option<u32>,
}

/// A host (index into [`Allocation::hosts`]) and the number among the slots there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The host, by its number in the list.
    pub host: u32,
    /// The number among the slots there, from 0.
    pub local_rank: u32,
}

impl Allocation {
    /// How many slots there are.
    pub fn world(&self) -> u32 {
        self.slots.len() as u32
    }

    /// True if every slot's host is known.
    pub fn is_placed(&self) -> bool {
        self.slots.iter().all(|slot| slot.place.is_some())
    }
}

impl Host {
    /// One whose GPUs are not known.
    pub(crate) fn new(name: impl Into<String>) -> Host {
        Host { name: name.into(), gpus: HostGpus::Unknown }
    }
}

impl Source {
    /// Members learn their hosts only when they meet.
    pub(crate) fn is_plain_machine(&self) -> bool {
        self.hosts == HostNames::Own
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.title)
    }
}

impl Serialize for Source {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name)
    }
}

/// Places from the host of each rank: local ranks count up in rank order.
pub(crate) fn places(host_of_rank: impl IntoIterator<Item = u32>, hosts: usize) -> Vec<Place> {
    let mut next = vec![0u32; hosts];
    host_of_rank
        .into_iter()
        .map(|host| {
            let local_rank = next[host as usize];
            next[host as usize] += 1;
            Place { host, local_rank }
        })
        .collect()
}
