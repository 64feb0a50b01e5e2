//! Slurm: a task of a step, a batch script, or a shell under `salloc`.
//!
//! Variables of the step come before those of the job: in a step smaller than its job
//! `SLURM_JOB_NODELIST` stays the job's. Every file of `tests/fixtures/slurm` is a real task's
//! environment, from Slurm 22.05, 24.11 and 26.05; `tests/slurm_captures.rs` checks all of them.

use super::SOURCE;
use super::counts::parse_counts;
use super::error::{SlurmError, number};
use super::layout::{self, Distribution, Groups, Position, Shape};
use super::resources::{deadline, give_cpus, give_gpus, reserved_ports};
use crate::allocation::{Allocation, Host, Place, Slot};
use crate::environ::Environ;
use crate::hostlist::HostList;
use crate::roles::MAX_MEMBERS;
use crate::scheduler::AllocationError;
use crate::variables as var;
use std::collections::{HashMap, HashSet};

/// Where in a job this process stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Context {
    /// A task that `srun` started.
    Step,
    /// A batch script, a shell under `salloc`, an interactive step: there is an allocation, and the
    /// step is still to be started.
    Launcher,
}

/// Step ids from here on are Slurm's own: batch script, external and interactive step. Newer versions
/// write them as negative numbers (-5), older ones as 4294967291.
const FIRST_SPECIAL_STEP: u32 = 0xffff_fff0;

/// Tells a task of a step from a batch script or a shell.
///
/// A batch script has `SLURM_PROCID=0` too, and one that was submitted from inside a step has even that
/// step's `SLURM_STEP_*`. `SLURM_UMASK` was in every one of 2,700 step tasks and in none of 300 batch
/// scripts (22.05, 24.11, 26.05). Only a `salloc` inside a step hands it on; there the hosts differ.
pub(super) fn context(environ: &Environ) -> Context {
    let step_id = environ.get_nonempty(var::SLURM_STEP_ID).or(environ.get_nonempty(var::SLURM_STEPID));
    let is_ordinary = match step_id {
        Some(id) => id.parse::<u32>().is_ok_and(|id| id < FIRST_SPECIAL_STEP),
        // Written by hand: Slurm itself always gives a step's task its id.
        None => environ.get_nonempty(var::SLURM_STEP_NODELIST).is_some(),
    };
    if !is_ordinary
        || environ.get_nonempty(var::SLURM_PROCID).is_none()
        || is_batch_with_leaked_step(environ)
        || is_outside_of_job(environ)
    {
        return Context::Launcher;
    }
    Context::Step
}

/// `212.0`: the step, which is the same for all its tasks, those of other het groups too. Two steps of one
/// job must not meet.
pub(super) fn step_name(environ: &Environ) -> Option<String> {
    let job = environ.get_nonempty(var::SLURM_JOB_ID).or(environ.get_nonempty(var::SLURM_JOBID))?;
    let step = environ.get_nonempty(var::SLURM_STEP_ID).or(environ.get_nonempty(var::SLURM_STEPID))?;
    (context(environ) == Context::Step).then(|| format!("{job}.{step}"))
}

/// True for a batch script whose `SLURM_STEP_*` belong to the step that submitted it.
fn is_batch_with_leaked_step(environ: &Environ) -> bool {
    let is = |variable, value| environ.get(variable) == Some(value);
    // What slurmd gives every batch script.
    is(var::SLURM_PROCID, "0")
        && is(var::SLURM_NODEID, "0")
        && is(var::SLURM_LOCALID, "0")
        && is(var::SLURM_GTIDS, "0")
        && environ.get(var::SLURM_TASK_PID).is_some()
        && environ.get(var::SLURM_UMASK).is_none()
}

/// True if the step's hosts are not the job's: a `salloc` shell that was started inside another job's step.
fn is_outside_of_job(environ: &Environ) -> bool {
    let list = |variable| environ.get_nonempty(variable)?.parse::<HostList>().ok();
    let (Some(step), Some(job)) = (list(var::SLURM_STEP_NODELIST), list(var::SLURM_JOB_NODELIST)) else {
        return false;
    };
    if step == job || het_size(environ) > 1 {
        return false;
    }
    let of_job: HashSet<String> = job.names().collect();
    step.names().any(|name| !of_job.contains(&name))
}

/// The hosts, slots and devices that Slurm's variables tell, and which slot is this process's own.
pub fn allocation(environ: &Environ) -> Result<Allocation, AllocationError> {
    let job = environ.get_nonempty(var::SLURM_JOB_ID).or(environ.get_nonempty(var::SLURM_JOBID));
    if job.is_none() && environ.get_nonempty(var::SLURM_STEP_NODELIST).is_none() {
        return Err(SlurmError::NoJob.into());
    }
    let Placed { hosts: names, layout, me, own_host, mut notes } = match context(environ) {
        Context::Step => step(environ)?,
        Context::Launcher => launcher(environ)?,
    };
    let mut hosts: Vec<Host> = names.into_iter().map(Host::new).collect();
    let mut slots: Vec<Slot> = layout.into_iter().map(|place| Slot { place, cpus: None }).collect();
    give_cpus(environ, &hosts, &mut slots, own_host)?;
    let bound = give_gpus(environ, &mut hosts, own_host, &mut notes)?;
    Ok(Allocation {
        scheduler: SOURCE,
        job: job.map(str::to_owned),
        attempt: number(environ, var::SLURM_RESTART_COUNT)?.unwrap_or(0),
        restarts: None,
        hosts,
        slots,
        me,
        bound: bound.filter(|_| me.is_some()),
        deadline: deadline(environ),
        ports: reserved_ports(environ, me)?,
        notes,
    })
}

/// Hosts and layout, before CPUs and GPUs.
struct Placed {
    hosts: Vec<String>,
    layout: Vec<Option<Place>>,
    me: Option<u32>,
    /// Index of the host this process is on.
    own_host: Option<usize>,
    notes: Vec<String>,
}

/// The hosts of a step, and how many tasks each has.
struct Tasks {
    hosts: Vec<String>,
    counts: Vec<u32>,
    world: u32,
}

fn step(environ: &Environ) -> Result<Placed, SlurmError> {
    let Tasks { mut hosts, mut counts, world } = tasks(environ)?;
    let rank = own_rank(environ, world)?;
    let neighbours = neighbours(environ, rank, world)?;
    let node_id = number(environ, var::SLURM_NODEID)?;
    let own_host = match environ.get_nonempty(var::SLURMD_NODENAME) {
        Some(name) => hosts.iter().position(|host| host == name).unwrap_or_else(|| {
            // Not a host of the step, by its name: what I see of myself still holds.
            hosts.push(name.to_owned());
            counts.push(0);
            hosts.len() - 1
        }),
        None => node_id.map_or(0, |id| id as usize).min(hosts.len() - 1),
    };
    let groups = het_groups(environ, &hosts).unwrap_or_else(|| Groups::One(distribution(environ)));
    let shape = Shape { hosts: &hosts, counts: &counts, groups };
    let position = Position {
        rank,
        host: own_host,
        node_id,
        local_rank: number(environ, var::SLURM_LOCALID)?,
        neighbours,
    };
    // Slurm always tells the neighbours; variables written by hand may not.
    if environ.get_nonempty(var::SLURM_GTIDS).is_none()
        && let Some(places) = foreseen(environ, &shape, &position)
    {
        let own_host = Some(places[rank as usize].host as usize);
        let layout = places.into_iter().map(Some).collect();
        return Ok(Placed { hosts, layout, me: Some(rank), own_host, notes: Vec::new() });
    }
    let (layout, reason) = layout::place(&shape, &position);
    let notes = reason.into_iter().collect();
    Ok(Placed { hosts, layout, me: Some(rank), own_host: Some(own_host), notes })
}

/// What the step's variables say of its hosts, where they agree.
fn tasks(environ: &Environ) -> Result<Tasks, SlurmError> {
    let nodes_variable =
        first_set(environ, &[var::SLURM_STEP_NODELIST, var::SLURM_JOB_NODELIST, var::SLURM_NODELIST])
            .ok_or(SlurmError::NotInStep { variable: var::SLURM_STEP_NODELIST })?;
    let counts_variable = first_set(environ, &[var::SLURM_STEP_TASKS_PER_NODE, var::SLURM_TASKS_PER_NODE])
        .ok_or(SlurmError::NotInStep { variable: var::SLURM_STEP_TASKS_PER_NODE })?;
    let hosts = host_names(environ, nodes_variable)?;
    let counts = host_counts(environ, counts_variable, hosts.len())?;
    let world: u64 = counts.iter().map(|&count| u64::from(count)).sum();
    let world = u32::try_from(world)
        .ok()
        .filter(|&world| u64::from(world) <= MAX_MEMBERS)
        .ok_or(SlurmError::TooMany { world })?;
    match number(environ, var::SLURM_STEP_NUM_TASKS)? {
        Some(expected) if expected != world => Err(SlurmError::Sum {
            variable: counts_variable.to_owned(),
            value: environ.get(counts_variable).unwrap_or_default().to_owned(),
            found: world.into(),
            other: var::SLURM_STEP_NUM_TASKS,
            expected,
        }),
        _ => Ok(Tasks { hosts, counts, world }),
    }
}

/// This task's rank in a step of `world` tasks.
fn own_rank(environ: &Environ, world: u32) -> Result<u32, SlurmError> {
    let variable = var::SLURM_PROCID;
    let rank = number(environ, variable)?.ok_or(SlurmError::NotInStep { variable })?;
    match rank < world {
        true => Ok(rank),
        false => Err(SlurmError::RankOutside { variable, value: rank.to_string(), world }),
    }
}

/// The layout that the distribution gives, if nothing that is told of this task contradicts it.
fn foreseen(environ: &Environ, shape: &Shape<'_>, position: &Position) -> Option<Vec<Place>> {
    let Groups::One(_) = shape.groups else { return None };
    let places = layout::foresee(shape)?;
    let own = places.get(position.rank as usize)?;
    let host_is_told = environ.get_nonempty(var::SLURMD_NODENAME).is_some() || position.node_id.is_some();
    let agrees = (!host_is_told || own.host as usize == position.host)
        && position.node_id.is_none_or(|id| id == own.host)
        && position.local_rank.is_none_or(|local_rank| local_rank == own.local_rank);
    agrees.then_some(places)
}

/// The step that a plain `srun` would start here: as many tasks as asked for, one per host otherwise.
fn launcher(environ: &Environ) -> Result<Placed, SlurmError> {
    let components = het_components(environ)?;
    let mut hosts: Vec<String> = Vec::new();
    let mut counts: Option<Vec<u32>> = Some(Vec::new());
    let mut world = 0u64;
    let mut members = Vec::new();
    for component in &components {
        members.push((hosts.len()..hosts.len() + component.hosts.len()).collect());
        hosts.extend(component.hosts.iter().cloned());
        world += component.tasks;
        counts = counts.zip(component.counts.clone()).map(|(mut all, more)| {
            all.extend(more);
            all
        });
    }
    if world > MAX_MEMBERS {
        return Err(SlurmError::TooMany { world });
    }
    if has_twice(&hosts).is_some() {
        // A host of several components: which tasks are whose is not told.
        let mut seen = HashSet::new();
        hosts.retain(|host| seen.insert(host.clone()));
        counts = None;
    }
    let groups =
        if components.len() > 1 { Groups::Several(members) } else { Groups::One(distribution(environ)) };
    let places = counts.and_then(|counts| layout::foresee(&Shape { hosts: &hosts, counts: &counts, groups }));
    let mut notes =
        vec!["inside an allocation but not in a step: this is the step that srun would start".to_owned()];
    let layout = match places {
        Some(places) => places.into_iter().map(Some).collect(),
        None => {
            notes.push(
                "hosts are left out: the allocation does not tell how srun will lay out its tasks".to_owned(),
            );
            vec![None; world as usize]
        }
    };
    let own_host = environ.get(var::SLURMD_NODENAME).and_then(|me| hosts.iter().position(|host| host == me));
    Ok(Placed { hosts, layout, me: None, own_host, notes })
}

/// One component of the allocation; an ordinary job has one.
struct Component {
    hosts: Vec<String>,
    tasks: u64,
    counts: Option<Vec<u32>>,
}

fn het_components(environ: &Environ) -> Result<Vec<Component>, SlurmError> {
    let size = het_size(environ);
    let suffixes: Vec<String> = (0..size).map_while(|group| group_suffix(environ, group)).collect();
    if size > 1 && suffixes.len() == size as usize {
        return suffixes.iter().map(|suffix| component(environ, suffix)).collect();
    }
    Ok(vec![component(environ, "")?])
}

fn component(environ: &Environ, suffix: &str) -> Result<Component, SlurmError> {
    let named = |variable: &str| format!("{variable}{suffix}");
    let nodes_variable = [var::SLURM_JOB_NODELIST, var::SLURM_NODELIST]
        .into_iter()
        .map(named)
        .find(|name| environ.get_nonempty(name).is_some())
        .ok_or(SlurmError::NotInStep { variable: var::SLURM_STEP_NODELIST })?;
    let hosts = host_names(environ, &nodes_variable)?;
    let asked = |variable: &'static str| -> Result<Option<u32>, SlurmError> {
        match environ.get_nonempty(&named(variable)) {
            None => Ok(None),
            Some(value) => match value.parse() {
                Ok(count) => Ok(Some(count)),
                Err(_) => Err(SlurmError::NotANumber { variable, value: value.to_owned() }),
            },
        }
    };
    let tasks = asked(var::SLURM_NTASKS)?;
    let per_node = asked(var::SLURM_NTASKS_PER_NODE)?;
    let (tasks, counts) = match (tasks, per_node) {
        (Some(tasks), _) => {
            let variable = named(var::SLURM_TASKS_PER_NODE);
            let counts = match environ.get_nonempty(&variable) {
                Some(_) => Some(host_counts(environ, &variable, hosts.len())?),
                None => None,
            };
            // Believed only if it is about these tasks: without a number of tasks asked for it counts CPUs.
            let counts = counts.filter(|counts| {
                counts.iter().map(|&count| u64::from(count)).sum::<u64>() == u64::from(tasks)
                    && per_node.is_none_or(|limit| counts.iter().all(|&count| count <= limit))
            });
            (u64::from(tasks), counts)
        }
        (None, per_node) => {
            let each = per_node.unwrap_or(1);
            (hosts.len() as u64 * u64::from(each), Some(vec![each; hosts.len()]))
        }
    };
    Ok(Component { hosts, tasks, counts })
}

/// The ending of a het group's variables. A direct het `srun` sets only those of the older name; beyond
/// `SLURM_HET_SIZE` there may be stale ones of an outer job.
fn group_suffix(environ: &Environ, group: u32) -> Option<String> {
    ["HET", "PACK"]
        .into_iter()
        .map(|word| format!("_{word}_GROUP_{group}"))
        .find(|suffix| environ.get(&format!("{}{suffix}", var::SLURM_JOB_NODELIST)).is_some())
}

fn het_size(environ: &Environ) -> u32 {
    environ.get_nonempty(var::SLURM_HET_SIZE).and_then(|size| size.parse().ok()).unwrap_or(1).clamp(1, 4096)
}

/// The het groups that a step's hosts belong to; `None` for a step of one group. Believed only if each host is in
/// one of them: a stale variable of an outer job, or one written by hand, may name any.
fn het_groups(environ: &Environ, hosts: &[String]) -> Option<Groups> {
    let size = het_size(environ);
    if size < 2 || hosts.len() < 2 {
        return None;
    }
    let index: HashMap<&str, usize> =
        hosts.iter().enumerate().map(|(index, name)| (name.as_str(), index)).collect();
    let mut groups = Vec::new();
    let mut told = vec![0u32; hosts.len()];
    for group in 0..size {
        let Some(suffix) = group_suffix(environ, group) else { return Some(Groups::Untold) };
        let list = environ.get(&format!("{}{suffix}", var::SLURM_JOB_NODELIST)).unwrap_or_default();
        let Ok(list) = list.parse::<HostList>() else { return Some(Groups::Untold) };
        let members: Vec<usize> = list.names().filter_map(|name| index.get(name.as_str()).copied()).collect();
        members.iter().for_each(|&host| told[host] += 1);
        if !members.is_empty() {
            groups.push(members);
        }
    }
    match groups.len() {
        _ if told.iter().any(|&times| times != 1) => Some(Groups::Untold),
        1 => None,
        _ => Some(Groups::Several(groups)),
    }
}

fn distribution(environ: &Environ) -> Distribution {
    let plane = environ.get_nonempty(var::SLURM_DIST_PLANESIZE).and_then(|size| size.parse().ok());
    match Distribution::parse(environ.get(var::SLURM_DISTRIBUTION), plane) {
        Distribution::Arbitrary(_) => {
            let file = environ.file(var::SLURM_HOSTFILE).and_then(|file| file.text.as_ref().ok());
            Distribution::Arbitrary(file.map(|text| host_file_lines(text)))
        }
        other => other,
    }
}

/// Host names of a host file: one name or host list per line, `#` comments apart.
fn host_file_lines(text: &str) -> Vec<String> {
    text.lines()
        .map(|line| line.split('#').next().unwrap_or("").trim())
        .filter(|line| !line.is_empty())
        .flat_map(|line| match line.parse::<HostList>() {
            Ok(list) => list.names().collect::<Vec<_>>(),
            Err(_) => vec![line.to_owned()],
        })
        .collect()
}

fn first_set(environ: &Environ, variables: &[&'static str]) -> Option<&'static str> {
    variables.iter().copied().find(|variable| environ.get_nonempty(variable).is_some())
}

fn host_names(environ: &Environ, variable: &str) -> Result<Vec<String>, SlurmError> {
    let list: HostList = environ
        .get(variable)
        .unwrap_or_default()
        .parse()
        .map_err(|source| SlurmError::HostList { variable: variable.to_owned(), source })?;
    let names: Vec<String> = list.names().collect();
    if names.is_empty() {
        return Err(SlurmError::NotInStep { variable: var::SLURM_STEP_NODELIST });
    }
    match has_twice(&names) {
        Some(host) => Err(SlurmError::HostTwice { variable: variable.to_owned(), host: host.to_owned() }),
        None => Ok(names),
    }
}

/// The first name that has come before.
fn has_twice(names: &[String]) -> Option<&str> {
    let mut seen = HashSet::with_capacity(names.len());
    names.iter().map(String::as_str).find(|name| !seen.insert(*name))
}

fn host_counts(environ: &Environ, variable: &str, hosts: usize) -> Result<Vec<u32>, SlurmError> {
    let value = environ.get(variable).unwrap_or_default();
    parse_counts(value, hosts).map_err(|source| SlurmError::Counts {
        variable: variable.to_owned(),
        value: value.to_owned(),
        source,
    })
}

/// `SLURM_GTIDS`, checked: ascending ranks of this host, my own among them.
fn neighbours(environ: &Environ, rank: u32, world: u32) -> Result<Vec<u32>, SlurmError> {
    let Some(value) = environ.get_nonempty(var::SLURM_GTIDS) else { return Ok(vec![rank]) };
    let bad = || SlurmError::Neighbours { variable: var::SLURM_GTIDS, value: value.to_owned(), rank };
    let ranks: Vec<u32> =
        value.split(',').map(|text| text.trim().parse().ok()).collect::<Option<_>>().ok_or_else(bad)?;
    let ascending = ranks.windows(2).all(|pair| pair[0] < pair[1]);
    if ascending && ranks.contains(&rank) && ranks.iter().all(|&rank| rank < world) {
        Ok(ranks)
    } else {
        Err(bad())
    }
}
