//! CPUs, GPUs, time and ports that Slurm gave, from its variables.

use super::counts::parse_counts;
use super::error::{SlurmError, number};
use super::gpus::{OwnGpus, others_look_alike, own_gpus};
use crate::allocation::{Host, HostGpus, Slot};
use crate::devices::DeviceList;
use crate::environ::Environ;
use crate::hostlist::HostList;
use crate::scheduler::AllocationError;
use crate::variables as var;
use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, SystemTime};

/// CPUs per task: as asked for, or a host's CPUs over its tasks.
pub(super) fn give_cpus(
    environ: &Environ,
    hosts: &[Host],
    slots: &mut [Slot],
    own_host: Option<usize>,
) -> Result<(), SlurmError> {
    if let Some(cpus) = number(environ, var::SLURM_CPUS_PER_TASK)?.filter(|&cpus| cpus > 0) {
        slots.iter_mut().for_each(|slot| slot.cpus = Some(cpus));
        return Ok(());
    }
    let mut cpus_of_host: Vec<Option<u32>> = cpus_of_job_hosts(environ, hosts);
    if let (Some(host), Some(cpus)) = (own_host, number(environ, var::SLURM_CPUS_ON_NODE)?) {
        cpus_of_host[host] = Some(cpus);
    }
    let mut tasks = vec![0u32; hosts.len()];
    for place in slots.iter().filter_map(|slot| slot.place) {
        tasks[place.host as usize] += 1;
    }
    for slot in slots {
        slot.cpus = slot.place.and_then(|place| {
            let host = place.host as usize;
            cpus_of_host[host].map(|cpus| (cpus / tasks[host].max(1)).max(1))
        });
    }
    Ok(())
}

/// `SLURM_JOB_CPUS_PER_NODE` goes with the job's hosts, which may be more than the step's.
fn cpus_of_job_hosts(environ: &Environ, hosts: &[Host]) -> Vec<Option<u32>> {
    let known = || {
        let list: HostList = environ.get(var::SLURM_JOB_NODELIST)?.parse().ok()?;
        let cpus = parse_counts(environ.get(var::SLURM_JOB_CPUS_PER_NODE)?, list.count() as usize).ok()?;
        if list.count() == hosts.len() as u64 && list.names().zip(hosts).all(|(name, host)| name == host.name)
        {
            return Some(cpus.into_iter().map(Some).collect());
        }
        let by_name: HashMap<String, u32> = list.names().zip(cpus).collect();
        Some(hosts.iter().map(|host| by_name.get(&host.name).copied()).collect())
    };
    known().unwrap_or_else(|| vec![None; hosts.len()])
}

/// Gives hosts their shared GPUs; returns those that are bound to this task alone.
pub(super) fn give_gpus(
    environ: &Environ,
    hosts: &mut [Host],
    own_host: Option<usize>,
    notes: &mut Vec<String>,
) -> Result<Option<DeviceList>, AllocationError> {
    let Some(own_host) = own_host else { return Ok(None) };
    let own = own_gpus(environ)?;
    if let (true, OwnGpus::Shared(list)) = (others_look_alike(environ, &own), &own) {
        hosts.iter_mut().for_each(|host| host.gpus = HostGpus::Shared(list.clone()));
    }
    match own {
        OwnGpus::Shared(list) => hosts[own_host].gpus = HostGpus::Shared(list),
        OwnGpus::Bound(list) => return Ok(Some(list)),
        OwnGpus::Unnamed(count) => notes.push(format!(
            "{}={count}, but no variable names the GPUs; give --gpus-per-node {count} to count them from 0",
            var::SLURM_GPUS_ON_NODE
        )),
    }
    Ok(None)
}

pub(super) fn deadline(environ: &Environ) -> Option<SystemTime> {
    let seconds = environ.get_nonempty(var::SLURM_JOB_END_TIME)?.parse().ok()?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

/// `12000-12003` or `12000,12004-12005`: the same ports on every host of the step.
pub(super) fn reserved_ports(environ: &Environ, me: Option<u32>) -> Result<Option<Vec<u16>>, SlurmError> {
    let (Some(value), Some(_)) = (environ.get_nonempty(var::SLURM_STEP_RESV_PORTS), me) else {
        return Ok(None);
    };
    let bad = || SlurmError::Ports { variable: var::SLURM_STEP_RESV_PORTS, value: value.to_owned() };
    let mut ports = BTreeSet::new();
    for range in value.trim_matches(['[', ']']).split(',') {
        let (lo, hi) = range.trim().split_once('-').unwrap_or((range.trim(), range.trim()));
        let (lo, hi): (u16, u16) = (lo.parse().map_err(|_| bad())?, hi.parse().map_err(|_| bad())?);
        if lo == 0 || hi < lo {
            return Err(bad());
        }
        ports.extend(lo..=hi);
    }
    Ok(Some(ports.into_iter().collect()))
}
