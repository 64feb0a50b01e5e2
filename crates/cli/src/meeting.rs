//! Where the members of a run meet: `--meet`, and what `auto` makes of the place we are in.
//!
//! A scheduler with a way of its own adds it to [`automatic`].

use crate::args::MeetArgs;
use crate::exit::Failure;
use rallypoint::allocation::{Allocation, Scheduler};
use rallypoint::environ::Environ;
use rallypoint::plan::Plan;
use rallypoint::rendezvous::{
    Key, Meeting, RendezvousError, WayToMeet, address::Address, directory::Directory, pmi::Pmi,
};
use rallypoint::scheduler::slurm;
use rallypoint::variables as var;
use std::path::Path;
use thiserror::Error;

/// Where and as whom to meet the others.
pub(crate) struct Place {
    pub(crate) way: Box<dyn WayToMeet>,
    pub(crate) meeting: Meeting,
}

#[derive(Debug, Error)]
enum CannotMeet {
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
}

/// `None` if all members run here.
pub(crate) fn place(
    args: &MeetArgs,
    environ: &Environ,
    allocation: &Allocation,
    plan: &Plan,
) -> Result<Option<Place>, Failure> {
    let key = match environ.get_nonempty(var::RALLYPOINT_KEY_FILE) {
        Some(file) => Some(Key::from_file(Path::new(file))?),
        None => None,
    };
    // A scheduler's job may have several steps at once, which must not meet each other.
    let job = args.job.clone().or_else(|| slurm::step_name(environ)).or_else(|| plan.job.clone());
    let directory = |folder: &Path| Directory::new(folder, job.as_deref(), plan.attempt);
    let way: Option<Box<dyn WayToMeet>> = match args.meet.as_deref() {
        None | Some("auto") => automatic(environ, allocation, plan, &directory)?,
        Some("pmi") => Some(Box::new(pmi(environ, plan)?)),
        Some(text) if is_host_and_port(text) => match key {
            None => return Err(RendezvousError::NoKey { address: text.to_owned() }.into()),
            Some(_) => Some(Box::new(Address::new(text)?)),
        },
        Some(folder) => Some(Box::new(directory(Path::new(folder))?)),
    };
    let meeting = Meeting { rank: args.rank, key, timeout: args.meet_timeout, job };
    Ok(way.map(|way| Place { way, meeting }))
}

/// What `--meet auto` takes; `None` if nobody else is to be met.
fn automatic(
    environ: &Environ,
    allocation: &Allocation,
    plan: &Plan,
    directory: &dyn Fn(&Path) -> Result<Directory, RendezvousError>,
) -> Result<Option<Box<dyn WayToMeet>>, Failure> {
    match (allocation.scheduler, allocation.me) {
        (Scheduler::Local, _) => Ok(None),
        (_, Some(_)) if plan.world() == 1 => Ok(None),
        (Scheduler::Slurm, Some(_)) => in_a_step(environ, plan, directory).map(Some),
        (scheduler, Some(_)) => Err(CannotMeet::NoWay { world: plan.world(), scheduler }.into()),
        (_, None) if plan.hosts.len() == 1 && environ.hostname.as_ref() == plan.hosts.first() => Ok(None),
        (_, None) => Err(CannotMeet::NotInStep { hosts: plan.hosts.len() }.into()),
    }
}

/// A task of a Slurm step: PMI where Slurm offers it, else the working directory. Slurm starts all tasks
/// in the same one, so on nearly every cluster it is shared.
fn in_a_step(
    environ: &Environ,
    plan: &Plan,
    directory: &dyn Fn(&Path) -> Result<Directory, RendezvousError>,
) -> Result<Box<dyn WayToMeet>, Failure> {
    if environ.get_nonempty(var::PMI_FD).is_some() {
        match pmi(environ, plan) {
            // PMI counts each het group apart: no way for all of them.
            Err(error) if matches!(error.downcast_ref(), Some(CannotMeet::OtherPmi { .. })) => {}
            other => return Ok(Box::new(other?)),
        }
    }
    Ok(Box::new(directory(&std::env::current_dir()?)?))
}

fn pmi(environ: &Environ, plan: &Plan) -> Result<Pmi, Failure> {
    let number = |variable: &'static str| {
        let value = environ.get_nonempty(variable).and_then(|value| value.parse::<u32>().ok());
        value.ok_or(CannotMeet::NoPmi { variable })
    };
    let (descriptor, pmi_rank, pmi_size) =
        (number(var::PMI_FD)?, number(var::PMI_RANK)?, number(var::PMI_SIZE)?);
    if plan.me != Some(pmi_rank) || plan.world() != pmi_size {
        let rank = plan.me.map_or("?".to_owned(), |rank| rank.to_string());
        return Err(CannotMeet::OtherPmi { rank, world: plan.world(), pmi_rank, pmi_size }.into());
    }
    Ok(Pmi::new(i32::try_from(descriptor)?, pmi_rank, pmi_size)?)
}

/// `host:port`, not a path.
fn is_host_and_port(text: &str) -> bool {
    !text.contains('/')
        && text.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
}
