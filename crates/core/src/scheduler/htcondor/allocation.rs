//! HTCondor: vanilla universe (`queue N`) and parallel universe (`machine_count = N`).
//!
//! There is no variable for cluster or proc: they stand in the job ad, whose path is in
//! `_CONDOR_JOB_AD` (it moved between versions, so nothing else is tried). Seen with 23.9 and 25.14:
//!
//! ```text
//! vanilla:   ClusterId = 1   ProcId = 0   TotalSubmitProcs = 3   RemoteHost = "slot1_1@ex1.lab"
//! parallel:  _CONDOR_PROCNO=1  _CONDOR_NPROCS=3
//!            AllRemoteHosts = "slot1_1@ex2.lab,slot1_2@ex1.lab,slot1_1@ex1.lab"
//! ```
//!
//! In the parallel universe `ProcId` is 0, `TotalSubmitProcs` 1 and `RemoteHost` node 0's host on
//! every node, so none of them is believed there.

use super::SOURCE;
use super::classad::ClassAd;
use crate::allocation::{Allocation, Host, IndependentRestarts, Slot, places};
use crate::devices;
use crate::environ::Environ;
use crate::hint;
use crate::hint::{Hint, Hinted, Setting};
use crate::roles::MAX_MEMBERS;
use crate::scheduler::AllocationError;
use crate::variables as var;
use thiserror::Error;

#[derive(Debug, Error)]
pub(super) enum HtCondorError {
    #[error(
        "{variable} is not set, and HTCondor sets it in every job",
        variable = var::CONDOR_JOB_AD
    )]
    NoJobAd,
    #[error(
        "{variable}={path} cannot be read: {reason}",
        variable = var::CONDOR_JOB_AD
    )]
    JobAdUnreadable { path: String, reason: String },
    #[error("{attribute} is missing or not a number in the job ad {path}: {found}")]
    Attribute { attribute: &'static str, path: String, found: String },
    #[error("{variable}={value} is not a number")]
    NotANumber { variable: &'static str, value: String },
    #[error("{variable} is not set, though {other} is")]
    Half { variable: &'static str, other: &'static str },
    #[error("rank {rank} is outside of the {world} procs of the cluster")]
    RankOutside { rank: u32, world: u32 },
    #[error("{world} procs are more than {MAX_MEMBERS}")]
    TooMany { world: u32 },
}

impl Hinted for HtCondorError {
    fn hint(&self) -> Option<Hint> {
        match self {
            HtCondorError::NoJobAd => {
                Some(hint!("is this a job? outside one, use ", Setting::On.with("local")))
            }
            HtCondorError::JobAdUnreadable { .. } => Some(hint!(
                "cluster and proc stand only there; for a captured environment give the ad with ",
                Setting::JobAd.with("FILE")
            )),
            HtCondorError::Attribute { .. } => Some(hint!("is the file a job ad?")),
            HtCondorError::RankOutside { rank, .. } => {
                let queued = u64::from(*rank) + 1;
                Some(hint!(format!("were the procs queued by one submission with `queue {queued}`?")))
            }
            HtCondorError::NotANumber { .. } | HtCondorError::Half { .. } | HtCondorError::TooMany { .. } => {
                None
            }
        }
    }
}

/// Rank, number of members, and the hosts of all where the universe tells them.
struct Position {
    rank: u32,
    world: u32,
    /// A host per rank.
    hosts: Option<Vec<String>>,
    /// My own.
    own_host: Option<String>,
    /// All nodes of the parallel universe are started again together, procs of the vanilla universe apart.
    together: bool,
}

pub(super) fn allocation(environ: &Environ) -> Result<Allocation, AllocationError> {
    let ad = JobAd::read(environ);
    let position = match (environ.get(var::CONDOR_PROCNO), environ.get(var::CONDOR_NPROCS)) {
        (None, None) => vanilla(environ, ad.as_ref().map_err(|error| error.again())?)?,
        _ => parallel(environ, ad.as_ref().ok())?,
    };
    let Position { rank, world, hosts: all_hosts, own_host, together } = position;
    if u64::from(world) > MAX_MEMBERS {
        return Err(HtCondorError::TooMany { world }.into());
    }
    if rank >= world {
        return Err(HtCondorError::RankOutside { rank, world }.into());
    }
    let (hosts, mut slots) = lay_out(all_hosts, own_host, rank, world);
    slots[rank as usize].cpus = own_cpus(environ, ad.as_ref().ok());
    let ad = ad.as_ref().ok();
    // 1 in the first run; absent in an ad older than the first start.
    let runs = ad.and_then(|ad| ad.ad.number("JobRunCount")).map_or(0, |n| n.saturating_sub(1));
    Ok(Allocation {
        scheduler: SOURCE,
        job: ad.and_then(|ad| ad.ad.number("ClusterId")).map(|id| id.to_string()),
        attempt: if together { runs } else { 0 },
        restarts: (!together).then(|| IndependentRestarts {
            previous_runs: runs,
            others_retry: ad.is_some_and(|ad| is_retried(&ad.ad)),
        }),
        hosts,
        slots,
        me: Some(rank),
        bound: Some(own_gpus(environ)?),
        deadline: None,
        ports: None,
        notes: Vec::new(),
    })
}

/// Places all ranks by their hosts, or only mine.
fn lay_out(
    all_hosts: Option<Vec<String>>,
    own_host: Option<String>,
    rank: u32,
    world: u32,
) -> (Vec<Host>, Vec<Slot>) {
    let unplaced = Slot { place: None, cpus: None };
    let mut slots = vec![unplaced; world as usize];
    let mut hosts: Vec<Host> = Vec::new();
    if let Some(names) = all_hosts {
        let mut number = std::collections::HashMap::new();
        let host_of_rank: Vec<u32> = names
            .into_iter()
            .map(|name| {
                *number.entry(name).or_insert_with_key(|name| {
                    hosts.push(Host::new(name.clone()));
                    hosts.len() as u32 - 1
                })
            })
            .collect();
        for (slot, place) in slots.iter_mut().zip(places(host_of_rank, hosts.len())) {
            slot.place = Some(place);
        }
    } else if let Some(name) = own_host {
        // Other procs may share my host, so my number among them is not known; the first is as good
        // as any, since ports are never computed from it here.
        hosts.push(Host::new(name));
        slots[rank as usize].place = Some(crate::allocation::Place { host: 0, local_rank: 0 });
    }
    (hosts, slots)
}

fn vanilla(environ: &Environ, ad: &JobAd) -> Result<Position, HtCondorError> {
    let rank = ad.number("ProcId")?;
    let world = ad.number("TotalSubmitProcs")?;
    let own_host = ad
        .ad
        .string("RemoteHost")
        .and_then(|slot_at_host| host_of_slot(&slot_at_host))
        .or_else(|| machine_ad(environ)?.string("Machine"))
        .or_else(|| environ.hostname.clone());
    Ok(Position { rank, world, hosts: None, own_host, together: false })
}

fn parallel(environ: &Environ, ad: Option<&JobAd>) -> Result<Position, HtCondorError> {
    let number = |variable, other| {
        let value: &str = environ.get(variable).ok_or(HtCondorError::Half { variable, other })?;
        value
            .trim()
            .parse::<u32>()
            .map_err(|_| HtCondorError::NotANumber { variable, value: value.to_owned() })
    };
    let rank = number(var::CONDOR_PROCNO, var::CONDOR_NPROCS)?;
    let world = number(var::CONDOR_NPROCS, var::CONDOR_PROCNO)?;
    let slots: Option<Vec<String>> = ad
        .and_then(|ad| ad.ad.string("AllRemoteHosts"))
        .map(|all| all.split(',').map(|slot| slot.trim().to_owned()).collect());
    // Only a list that has me at my own place is believed.
    let slots = slots.filter(|slots: &Vec<String>| {
        slots.len() == world as usize
            && slots.get(rank as usize).is_some_and(|slot| {
                environ
                    .get(var::CONDOR_SLOT)
                    .is_none_or(|own| slot.split_once('@').is_some_and(|(name, _)| name == own))
            })
    });
    let hosts: Option<Vec<String>> =
        slots.and_then(|slots| slots.iter().map(|slot| host_of_slot(slot)).collect());
    let own_host =
        machine_ad(environ).and_then(|ad| ad.string("Machine")).or_else(|| environ.hostname.clone());
    Ok(Position { rank, world, hosts, own_host, together: true })
}

/// Whether a proc that ends badly is put into the queue again: `max_retries`, or an `on_exit_remove` of its own.
fn is_retried(ad: &ClassAd) -> bool {
    ad.raw("OnExitRemove").is_some_and(|rule| !rule.eq_ignore_ascii_case("true"))
}

/// The cluster's name among those of all submit hosts that share a directory: `cm.lab-12`.
pub fn cluster_name(environ: &Environ) -> Option<String> {
    let ad = JobAd::read(environ).ok()?.ad;
    let cluster = ad.number("ClusterId")?;
    // cm.lab#12.0#1794781739: who queued it, cluster and proc, when.
    let schedd = ad.string("GlobalJobId").and_then(|id| Some(id.split_once('#')?.0.to_owned()));
    Some(match schedd {
        Some(schedd) => format!("{schedd}-{cluster}"),
        None => cluster.to_string(),
    })
}

/// The submit directory, and whether the job runs in it: then it is shared.
///
/// With file transfer `Iwd` is the scratch directory, and `OrigIwd` tells where the job came from.
pub fn submit_directory(environ: &Environ) -> Option<(String, bool)> {
    let ad = JobAd::read(environ).ok()?.ad;
    let folder = ad.string("OrigIwd").or_else(|| ad.string("Iwd"))?;
    let here = environ.get(var::CONDOR_JOB_IWD);
    let shared = here == Some(folder.as_str()) && here != environ.get(var::CONDOR_SCRATCH_DIR);
    Some((folder, shared))
}

/// `slot1_1@ex1.lab` is a slot of `ex1.lab`.
fn host_of_slot(slot: &str) -> Option<String> {
    let host = slot.rsplit_once('@').map_or(slot, |(_, host)| host);
    (!host.is_empty()).then(|| host.to_owned())
}

fn machine_ad(environ: &Environ) -> Option<ClassAd> {
    environ.file(var::CONDOR_MACHINE_AD)?.text.as_ref().ok().map(|text| ClassAd::parse(text))
}

/// The slot's own CPUs; `OMP_NUM_THREADS` is what HTCondor sets from them.
fn own_cpus(environ: &Environ, ad: Option<&JobAd>) -> Option<u32> {
    machine_ad(environ)
        .and_then(|ad| ad.number("Cpus"))
        .or_else(|| ad?.ad.number("CpusProvisioned"))
        .or_else(|| ad?.ad.number("RequestCpus"))
        .or_else(|| environ.get_nonempty(var::OMP_NUM_THREADS)?.parse().ok())
}

/// HTCondor always sets a mask (`10000` without GPUs), and it is this slot's alone.
fn own_gpus(environ: &Environ) -> Result<devices::DeviceList, devices::MaskError> {
    if let Some(mask) = environ.gpu_mask()? {
        return Ok(mask);
    }
    match environ.get(var::CONDOR_ASSIGNED_GPUS) {
        Some(assigned) => devices::parse_mask(var::CONDOR_ASSIGNED_GPUS, assigned),
        None => Ok(Vec::new().into()),
    }
}

struct JobAd {
    path: String,
    ad: ClassAd,
}

impl JobAd {
    fn read(environ: &Environ) -> Result<JobAd, HtCondorError> {
        let file = environ.file(var::CONDOR_JOB_AD).ok_or(HtCondorError::NoJobAd)?;
        let path = file.path.display().to_string();
        match &file.text {
            Ok(text) => Ok(JobAd { path, ad: ClassAd::parse(text) }),
            Err(reason) => Err(HtCondorError::JobAdUnreadable { path, reason: reason.clone() }),
        }
    }

    fn number(&self, attribute: &'static str) -> Result<u32, HtCondorError> {
        self.ad.number(attribute).ok_or_else(|| HtCondorError::Attribute {
            attribute,
            path: self.path.clone(),
            found: self.ad.raw(attribute).unwrap_or("nothing").to_owned(),
        })
    }
}

impl HtCondorError {
    /// The same error, owned: reading the ad is tried once and looked at by both universes.
    fn again(&self) -> HtCondorError {
        match self {
            HtCondorError::JobAdUnreadable { path, reason } => {
                HtCondorError::JobAdUnreadable { path: path.clone(), reason: reason.clone() }
            }
            _ => HtCondorError::NoJobAd,
        }
    }
}

impl From<HtCondorError> for AllocationError {
    fn from(error: HtCondorError) -> AllocationError {
        AllocationError::Scheduler(error.into())
    }
}
