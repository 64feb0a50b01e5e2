//! Where members meet: `--meet`, and what `auto` makes of the place we are in.
//!
//! A scheduler with a way of its own adds it to [`automatic`].

use super::address::Address;
use super::chirp::Chirp;
use super::directory::Directory;
use super::job_ad::JobAd;
use super::pmi::Pmi;
use super::{Key, Meeting, RendezvousError, WayToMeet};
use crate::allocation::{Allocation, Scheduler};
use crate::environ::Environ;
use crate::plan::Plan;
use crate::scheduler::{htcondor, slurm};
use crate::variables as var;
use std::path::Path;
use std::time::Duration;
use thiserror::Error;

/// What the user asks for.
#[derive(Debug, Clone)]
pub struct PlaceRequest {
    /// `auto`, `pmi`, `chirp`, a directory, or `host:port`; `None` is `auto`.
    pub meet: Option<String>,
    pub rank: Option<u32>,
    /// What the user calls this job.
    pub job: Option<String>,
    pub timeout: Duration,
}

/// Where and as whom to meet the others.
#[expect(missing_debug_implementations, reason = "a way to meet is a trait object")]
pub struct Place {
    pub way: Box<dyn WayToMeet>,
    pub meeting: Meeting,
}

#[derive(Debug, Error)]
pub enum PlaceError {
    #[error(
        "{world} members of {scheduler} have to meet; hint: give all of them the same --meet DIR, a directory that they share"
    )]
    NoWay { world: u32, scheduler: Scheduler },
    #[error(
        "inside an allocation of {hosts} hosts but not in a step; hint: start it with srun, one rallypoint a task"
    )]
    NotInStep { hosts: usize },
    #[error("--meet pmi: {variable} is not set; hint: start the step with `srun --mpi=pmi2`")]
    NoPmi { variable: &'static str },
    #[error(
        "--meet pmi: this is rank {rank} of {world}, but PMI says {pmi_rank} of {pmi_size}; hint: meet in a directory, --meet DIR"
    )]
    OtherPmi { rank: String, world: u32, pmi_rank: u32, pmi_size: u32 },
    #[error(transparent)]
    Meeting(#[from] RendezvousError),
    #[error("the working directory is not known: {0}; hint: give --meet DIR")]
    NoWorkingDirectory(std::io::Error),
    #[error(
        "no chirp: {reason}; hint: write `+WantIOProxy = true` into the submit description, or give all members the same --meet DIR, a directory that they share"
    )]
    NoChirp { reason: String },
}

/// `None` if all members run here.
pub fn place(
    request: &PlaceRequest,
    environ: &Environ,
    allocation: &Allocation,
    plan: &Plan,
) -> Result<Option<Place>, PlaceError> {
    let key = match environ.get_nonempty(var::RALLYPOINT_KEY_FILE) {
        Some(file) => Some(Key::from_file(Path::new(file))?),
        None => None,
    };
    // A scheduler's job may have several steps at once, which must not meet each other.
    let of_scheduler = || match allocation.scheduler {
        Scheduler::Slurm => slurm::step_name(environ),
        Scheduler::HtCondor => htcondor::cluster_name(environ),
        _ => None,
    };
    let job = request.job.clone().or_else(of_scheduler).or_else(|| plan.job.clone());
    let directory = |folder: &Path| Directory::new(folder, job.as_deref(), plan.attempt);
    let way: Option<Box<dyn WayToMeet>> = match request.meet.as_deref() {
        None | Some("auto") if allocation.scheduler == Scheduler::HtCondor && plan.world() > 1 => {
            Some(in_a_pool(environ, plan, job.as_deref(), key.is_some(), &directory)?)
        }
        Some("chirp") => Some(by_chirp(environ, plan, job.as_deref(), key.is_some())?),
        None | Some("auto") => automatic(environ, allocation, plan, &directory)?,
        Some("pmi") => Some(Box::new(pmi(environ, plan)?)),
        Some(text) if is_host_and_port(text) => match key {
            None => return Err(RendezvousError::NoKey { address: text.to_owned() }.into()),
            Some(_) => Some(Box::new(Address::new(text)?)),
        },
        Some(folder) => Some(Box::new(directory(Path::new(folder))?)),
    };
    let meeting = Meeting { rank: request.rank, key, timeout: request.timeout, job };
    Ok(way.map(|way| Place { way, meeting }))
}

/// What `--meet auto` takes; `None` if nobody else is to be met.
fn automatic(
    environ: &Environ,
    allocation: &Allocation,
    plan: &Plan,
    directory: &dyn Fn(&Path) -> Result<Directory, RendezvousError>,
) -> Result<Option<Box<dyn WayToMeet>>, PlaceError> {
    match (allocation.scheduler, allocation.me) {
        (Scheduler::Local, _) => Ok(None),
        (_, Some(_)) if plan.world() == 1 => Ok(None),
        (Scheduler::Slurm, Some(_)) => in_a_step(environ, plan, directory).map(Some),
        (scheduler, Some(_)) => Err(PlaceError::NoWay { world: plan.world(), scheduler }),
        (_, None) if plan.hosts.len() == 1 && environ.hostname.as_ref() == plan.hosts.first() => Ok(None),
        (_, None) => Err(PlaceError::NotInStep { hosts: plan.hosts.len() }),
    }
}

/// A task of a Slurm step: PMI where Slurm offers it, else the working directory. Slurm starts all tasks
/// in the same one, so on nearly every cluster it is shared.
fn in_a_step(
    environ: &Environ,
    plan: &Plan,
    directory: &dyn Fn(&Path) -> Result<Directory, RendezvousError>,
) -> Result<Box<dyn WayToMeet>, PlaceError> {
    if environ.get_nonempty(var::PMI_FD).is_some() {
        match pmi(environ, plan) {
            // PMI counts each het group apart: no way for all of them.
            Err(PlaceError::OtherPmi { .. }) => {}
            other => return Ok(Box::new(other?)),
        }
    }
    Ok(Box::new(directory(&std::env::current_dir().map_err(PlaceError::NoWorkingDirectory)?)?))
}

fn pmi(environ: &Environ, plan: &Plan) -> Result<Pmi, PlaceError> {
    let number = |variable: &'static str| {
        let value = environ.get_nonempty(variable).and_then(|value| value.parse::<u32>().ok());
        value.ok_or(PlaceError::NoPmi { variable })
    };
    let descriptor =
        i32::try_from(number(var::PMI_FD)?).map_err(|_| PlaceError::NoPmi { variable: var::PMI_FD })?;
    let (pmi_rank, pmi_size) = (number(var::PMI_RANK)?, number(var::PMI_SIZE)?);
    if plan.me != Some(pmi_rank) || plan.world() != pmi_size {
        let rank = plan.me.map_or("?".to_owned(), |rank| rank.to_string());
        return Err(PlaceError::OtherPmi { rank, world: plan.world(), pmi_rank, pmi_size });
    }
    Ok(Pmi::new(descriptor, pmi_rank, pmi_size)?)
}

/// A job of HTCondor: the submit directory if the job runs in it, otherwise chirp.
fn in_a_pool(
    environ: &Environ,
    plan: &Plan,
    job: Option<&str>,
    all_have_a_key: bool,
    directory: &dyn Fn(&Path) -> Result<Directory, RendezvousError>,
) -> Result<Box<dyn WayToMeet>, PlaceError> {
    match htcondor::submit_directory(environ) {
        Some((folder, true)) => Ok(Box::new(directory(Path::new(&folder))?)),
        _ => by_chirp(environ, plan, job, all_have_a_key),
    }
}

/// The parallel universe's nodes share an ad; procs of the vanilla universe only the submit directory.
fn by_chirp(
    environ: &Environ,
    plan: &Plan,
    job: Option<&str>,
    all_have_a_key: bool,
) -> Result<Box<dyn WayToMeet>, PlaceError> {
    let missing = |reason: String| PlaceError::NoChirp { reason };
    let file = environ
        .get_nonempty(var::CONDOR_CHIRP_CONFIG)
        .ok_or_else(|| missing(format!("{} is not set", var::CONDOR_CHIRP_CONFIG)))?;
    let text = std::fs::read_to_string(file).map_err(|error| missing(format!("{file}: {error}")))?;
    let chirp =
        Chirp::parse(&text).ok_or_else(|| missing(format!("{file} does not tell host, port and cookie")))?;
    let (folder, _) =
        htcondor::submit_directory(environ).ok_or_else(|| missing("the job ad has no Iwd".to_owned()))?;
    let folder = Path::new(&folder);
    Ok(match (plan.apart, plan.me) {
        (None, Some(node)) => Box::new(JobAd::new(chirp, folder, node, job, plan.attempt, all_have_a_key)?),
        _ => Box::new(Directory::by_chirp(chirp, folder, job, plan.attempt)?),
    })
}

/// `host:port`, not a path.
fn is_host_and_port(text: &str) -> bool {
    !text.contains('/')
        && text.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
}
