//! The plan: every member with rank, role, index, host where known, devices and CPUs; no address.

mod json;
mod next;

use crate::allocation::{Allocation, Host, HostGpus, IndependentRestarts, Place, Source};
use crate::devices::{Device, DeviceList};
use crate::hint;
use crate::hint::{Hint, Hinted, Setting};
use crate::hostlist::{HostList, Order};
use crate::roles::{Role, RoleError, RoleRequest};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::time::SystemTime;
use thiserror::Error;

/// What the user asks for.
#[derive(Debug, Clone, Default)]
pub struct JobSpec {
    /// How many members of which roles.
    pub roles: RoleRequest,
    /// How GPUs are split among them.
    pub gpus: GpuRequest,
    /// CPUs of each member, instead of what was detected.
    pub cpus_per_task: Option<u32>,
}

/// How GPUs are to be split; what is `None` follows from the allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GpuRequest {
    /// GPUs of each host that may be used.
    pub per_node: Option<u32>,
    /// GPUs of each member that is not a parameter server.
    pub per_task: Option<u32>,
    /// GPUs for each parameter server, which has none by default.
    pub ps: u32,
    /// Whether a member sees only its own GPUs.
    pub binding: bool,
}

/// A checked plan: ranks are 0 to n-1 in order, each device of a host is given at most once.
///
/// It has the allocation that it was made from and what was asked for, so that it can be made again. Nothing changes it:
/// what is learned later makes the next one, as `placed` does.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Its slots have become the members, so that a place is told once.
    allocation: Allocation,
    spec: JobSpec,
    members: Vec<Member>,
    /// What planning itself has to say; the allocation has notes of its own.
    notes: Vec<String>,
}

/// One process of the training job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its number among all members.
    pub rank: u32,
    /// What it does in the cluster.
    pub role: Role,
    /// Counts from 0 within the role.
    pub index: u32,
    /// Its host and its number there; `None` before that is known.
    pub place: Option<Place>,
    /// `None` where this environment does not tell; the member itself will know.
    pub devices: Option<DeviceList>,
    /// CPUs that it may use, where that is known.
    pub cpus: Option<u32>,
}

/// `worker 1`
impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.role, self.index)
    }
}

/// Why there is no plan.
#[derive(Debug, Error)]
pub enum PlanError {
    /// The roles cannot be dealt.
    #[error(transparent)]
    Roles(#[from] RoleError),
    /// A host has fewer GPUs than are asked for on each.
    #[error(
        "{host} has {there} GPU{} ({names}), but {asked} per node are asked for",
        if *there == 1 { "" } else { "s" }
    )]
    TooFewOnNode {
        /// The host.
        host: String,
        /// How many it has.
        there: usize,
        /// Which ones, as a mask.
        names: String,
        /// How many are asked for.
        asked: u32,
    },
    /// A host has fewer GPUs than its members are to have together.
    #[error(
        "{host} has {there} GPU{}, but its members need {asked} ({how})",
        if *there == 1 { "" } else { "s" }
    )]
    TooFewForTasks {
        /// The host.
        host: String,
        /// How many it has.
        there: usize,
        /// How many its members need.
        asked: u64,
        /// How that is counted: `1 ps x 1 + 2 tasks x 4`.
        how: String,
    },
    /// The scheduler has bound fewer GPUs to this process than each task is to have.
    #[error("{role} {index} was bound to {there} GPU{} by the scheduler, but {asked} per task are asked for", if *there == 1 { "" } else { "s" })]
    TooFewBound {
        /// The role of the member.
        role: Role,
        /// Its number in the role.
        index: u32,
        /// How many it was given.
        there: usize,
        /// How many are asked for.
        asked: u32,
    },
}

impl Hinted for PlanError {
    fn hint(&self) -> Option<Hint> {
        match self {
            PlanError::Roles(error) => error.hint(),
            PlanError::TooFewOnNode { .. } => {
                Some(hint!("ask the scheduler for more, or leave ", Setting::GpusPerNode, " out"))
            }
            PlanError::TooFewForTasks { .. } => Some(hint!(
                "lower ",
                Setting::GpusPerTask,
                " or ",
                Setting::PsGpus,
                ", or put fewer tasks on a host"
            )),
            PlanError::TooFewBound { .. } => Some(hint!("lower ", Setting::GpusPerTask)),
        }
    }
}

impl Default for GpuRequest {
    fn default() -> GpuRequest {
        GpuRequest { per_node: None, per_task: None, ps: 0, binding: true }
    }
}

impl Plan {
    /// What was asked for, dealt over the slots of an allocation.
    pub fn new(allocation: Allocation, spec: &JobSpec) -> Result<Plan, PlanError> {
        Plan::of(allocation, spec.clone())
    }

    fn of(allocation: Allocation, spec: JobSpec) -> Result<Plan, PlanError> {
        let (members, notes) = deal(&allocation, &spec)?;
        let allocation = Allocation { slots: Vec::new(), ..allocation };
        Ok(Plan { allocation, spec, members, notes })
    }

    /// Who gave the allocation.
    pub fn scheduler(&self) -> Source {
        self.allocation.scheduler
    }

    /// The scheduler's id of the job, the same for all members.
    pub fn job(&self) -> Option<&str> {
        self.allocation.job.as_deref()
    }

    /// 0 for the first run of the job; a requeue is the next attempt.
    pub fn attempt(&self) -> u32 {
        self.allocation.attempt
    }

    /// Where each member is started again by itself, this one's own count.
    pub(crate) fn restarts(&self) -> Option<IndependentRestarts> {
        self.allocation.restarts
    }

    /// When the scheduler ends the job.
    pub fn deadline(&self) -> Option<SystemTime> {
        self.allocation.deadline
    }

    /// Ports that the scheduler reserved on every host.
    pub fn ports(&self) -> Option<&[u16]> {
        self.allocation.ports.as_deref()
    }

    /// The rank of this process; `None` outside a step.
    pub fn me(&self) -> Option<u32> {
        self.allocation.me
    }

    /// How many members there are.
    pub fn world(&self) -> u32 {
        self.members.len() as u32
    }

    /// All members, by rank.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// The member of a rank.
    pub fn member(&self, rank: u32) -> Option<&Member> {
        self.members.get(rank as usize)
    }

    /// Every host once, in the scheduler's order.
    pub fn hosts(&self) -> &[Host] {
        &self.allocation.hosts
    }

    /// The name of a member's host, where known.
    pub fn host(&self, member: &Member) -> Option<&str> {
        Some(self.allocation.hosts.get(member.place?.host as usize)?.name.as_str())
    }

    /// False if members see all GPUs of their host (`--no-gpu-binding`).
    pub(crate) fn binds_gpus(&self) -> bool {
        self.spec.gpus.binding
    }

    /// What a person should know about how this was read and planned.
    pub fn notes(&self) -> impl Iterator<Item = &str> {
        self.allocation.notes.iter().chain(&self.notes).map(String::as_str)
    }

    /// Members of each role, in order of first appearance.
    pub fn role_counts(&self) -> Vec<(Role, u32)> {
        let mut counts: Vec<(Role, u32)> = Vec::new();
        for run in self.members.chunk_by(|a, b| a.role == b.role) {
            match counts.iter_mut().find(|(role, _)| *role == run[0].role) {
                Some((_, count)) => *count += run.len() as u32,
                None => counts.push((run[0].role.clone(), run.len() as u32)),
            }
        }
        counts
    }
}

/// The members that were asked for, in the slots that there are, and what is to be said about them.
fn deal(allocation: &Allocation, spec: &JobSpec) -> Result<(Vec<Member>, Vec<String>), PlanError> {
    let hosts_of_ranks = || allocation.slots.iter().map(|slot| slot.place.map(|place| place.host)).collect();
    let runs = spec.roles.deal(allocation.world(), hosts_of_ranks)?;
    let mut next_index: HashMap<Role, u32> = HashMap::new();
    let mut members: Vec<Member> = Vec::with_capacity(allocation.slots.len());
    let mut slots = allocation.slots.iter();
    for (role, count) in runs {
        let next = next_index.entry(role.clone()).or_insert(0);
        let indices = *next..*next + count;
        *next += count;
        for (index, slot) in indices.zip(slots.by_ref()) {
            members.push(Member {
                rank: members.len() as u32,
                role: role.clone(),
                index,
                place: slot.place,
                devices: None,
                cpus: spec.cpus_per_task.or(slot.cpus),
            });
        }
    }
    let mut notes = Vec::new();
    give_devices(allocation, &spec.gpus, &mut members, &mut notes)?;
    Ok((members, notes))
}

/// What the members of one host want of its GPUs.
#[derive(Debug, Clone, Copy, Default)]
struct Demand {
    ps: u32,
    others: u32,
}

fn give_devices(
    allocation: &Allocation,
    request: &GpuRequest,
    members: &mut [Member],
    notes: &mut Vec<String>,
) -> Result<(), PlanError> {
    let is_bound = |member: &Member| allocation.bound.is_some() && allocation.me == Some(member.rank);
    let mut demand = vec![Demand::default(); allocation.hosts.len()];
    for member in members.iter() {
        if let (Some(place), false) = (member.place, is_bound(member)) {
            let demand = &mut demand[place.host as usize];
            if member.role == Role::Ps { demand.ps += 1 } else { demand.others += 1 }
        }
    }
    let mut slices = Slices::default();
    let mut shares = Vec::with_capacity(allocation.hosts.len());
    let mut uneven: BTreeMap<(u64, u64), Vec<&str>> = BTreeMap::new();
    for (host, demand) in allocation.hosts.iter().zip(&demand) {
        let share = Share::new(host, *demand, request, &mut slices)?;
        if let Some(remainder) = share.as_ref().and_then(|share| share.uneven) {
            uneven.entry(remainder).or_default().push(&host.name);
        }
        shares.push(share);
    }
    notes.extend(uneven.into_iter().map(|((gpus, members), hosts)| uneven_note(&hosts, gpus, members)));
    for member in members {
        member.devices = match (&allocation.bound, member.place) {
            (Some(bound), _) if is_bound(member) => Some(take_bound(member, bound, request)?),
            (_, Some(place)) => shares[place.host as usize]
                .as_mut()
                .map(|share| share.take(member.role == Role::Ps, request.binding, &mut slices)),
            (_, None) => None,
        };
    }
    Ok(())
}

/// A mask already bound to one task is kept, unless the role or the user wants less of it.
fn take_bound(member: &Member, bound: &DeviceList, request: &GpuRequest) -> Result<DeviceList, PlanError> {
    let wanted = if member.role == Role::Ps { Some(request.ps) } else { request.per_task };
    match wanted {
        _ if !request.binding => Ok(bound.clone()),
        None => Ok(bound.clone()),
        Some(asked) if asked as usize <= bound.len() => Ok(bound[..asked as usize].into()),
        Some(asked) => {
            let (role, index) = (member.role.clone(), member.index);
            Err(PlanError::TooFewBound { role, index, there: bound.len(), asked })
        }
    }
}

/// The GPUs of one host while they are dealt out.
struct Share {
    devices: DeviceList,
    next: usize,
    ps: usize,
    /// For each other member.
    each: usize,
    /// GPUs and members, where the ones do not divide among the others.
    uneven: Option<(u64, u64)>,
}

impl Share {
    fn new(
        host: &Host,
        demand: Demand,
        request: &GpuRequest,
        slices: &mut Slices,
    ) -> Result<Option<Share>, PlanError> {
        let devices = match (&host.gpus, request.per_node) {
            (HostGpus::Unknown, None) => return Ok(None),
            (HostGpus::Unknown, Some(asked)) => slices.counted(asked),
            (HostGpus::Shared(devices), None) => devices.clone(),
            (HostGpus::Shared(devices), Some(asked)) if asked as usize <= devices.len() => {
                slices.slice(devices, 0, asked as usize)
            }
            (HostGpus::Shared(devices), Some(asked)) => {
                return Err(PlanError::TooFewOnNode {
                    host: host.name.clone(),
                    there: devices.len(),
                    names: crate::devices::join(devices),
                    asked,
                });
            }
        };
        let for_ps = u64::from(demand.ps) * u64::from(request.ps);
        let left = (devices.len() as u64).checked_sub(for_ps);
        let asked = for_ps + u64::from(demand.others) * u64::from(request.per_task.unwrap_or(0));
        let fits = asked <= devices.len() as u64;
        let (Some(left), true) = (left, fits || !request.binding) else {
            let mut how = Vec::new();
            if demand.ps > 0 && request.ps > 0 {
                how.push(format!("{} ps x {}", demand.ps, request.ps));
            }
            if let (Some(per_task), true) = (request.per_task, demand.others > 0) {
                how.push(format!("{} tasks x {per_task}", demand.others));
            }
            let (host, how) = (host.name.clone(), how.join(" + "));
            return Err(PlanError::TooFewForTasks { host, there: devices.len(), asked, how });
        };
        let others = u64::from(demand.others);
        let each = match request.per_task {
            Some(per_task) => per_task as usize,
            None => (left.checked_div(others).unwrap_or(0)) as usize,
        };
        let splits = request.binding && request.per_task.is_none() && others > 0;
        let uneven = (splits && left % others != 0).then_some((left, others));
        // With fewer GPUs than members, the first ones have one each.
        let each = if request.per_task.is_none() && each == 0 && left > 0 { 1 } else { each };
        Ok(Some(Share { devices, next: 0, ps: request.ps as usize, each, uneven }))
    }

    fn take(&mut self, is_ps: bool, binding: bool, slices: &mut Slices) -> DeviceList {
        if !binding {
            return self.devices.clone();
        }
        let wanted = if is_ps { self.ps } else { self.each };
        let start = self.next;
        self.next = (start + wanted).min(self.devices.len());
        slices.slice(&self.devices, start, self.next)
    }
}

fn uneven_note(hosts: &[&str], gpus: u64, members: u64) -> String {
    let hosts = HostList::fold(hosts, Order::Kept).map_or_else(|_| hosts.join(","), |list| list.to_string());
    if gpus < members {
        format!("{hosts}: {gpus} GPUs for {members} members, the last {} have none", members - gpus)
    } else {
        format!("{hosts}: {gpus} GPUs do not divide among {members} members, {} stay free", gpus % members)
    }
}

/// Slices of device lists, shared: thousands of hosts have the same few.
#[derive(Default)]
struct Slices {
    /// By the address of the whole list. Few, so that a tree is quicker than a hash.
    made: BTreeMap<(usize, usize, usize), DeviceList>,
    none: Option<DeviceList>,
    counted: Option<DeviceList>,
}

impl Slices {
    fn slice(&mut self, devices: &DeviceList, start: usize, end: usize) -> DeviceList {
        if start == end {
            return self.none.get_or_insert_with(|| Vec::new().into()).clone();
        }
        if (start, end) == (0, devices.len()) {
            return devices.clone();
        }
        let key = (devices.as_ptr() as usize, start, end);
        self.made.entry(key).or_insert_with(|| devices[start..end].into()).clone()
    }

    /// `0` to `count - 1`; the same `count` each time.
    fn counted(&mut self, count: u32) -> DeviceList {
        self.counted.get_or_insert_with(|| Device::first(count)).clone()
    }
}
