//! Who runs us: one room per scheduler, with everything about it.
//!
//! A scheduler is a folder and a line in [`SCHEDULERS`]; `docs/guides/add-a-scheduler.md` tells how to add one. Nothing
//! above this module knows any scheduler, and nothing below knows more than the trait.
//!
//! | file | subject |
//! |---|---|
//! | `slurm/`, `htcondor/`, `local` | the rooms |
//! | `hypothetical` | hosts given by hand, ahead of any allocation |
//! | `place` | where members meet: `--meet`, and what `auto` makes of it |
//! | `submit` | what a job script is, and who hands it in |

pub mod htcondor;
pub mod hypothetical;
pub mod local;
mod place;
pub mod slurm;
pub mod submit;
#[cfg(feature = "toy-scheduler")]
pub mod toy;

pub use place::{MeetRequest, Place, PlaceError, PlaceRequest, place, ways};

use crate::allocation::{Allocation, Source};
use crate::devices::MaskError;
use crate::environ::{Environ, EnvironError, MovedFiles};
use crate::hint;
use crate::hint::{AnyError, Hint, Hinted};
use crate::plan::Plan;
use crate::rendezvous::WayToMeet;
use crate::roles::{RoleError, RoleRequest};
use crate::supervise::{Launcher, Requeue};
use crate::variables::Variable;
use std::ffi::OsString;
use std::fmt::Debug;
use std::path::Path;
use std::time::{Duration, SystemTime};
use submit::Submit;
use thiserror::Error;

/// All schedulers, in the order in which they are looked for.
///
/// HTCondor comes first: a pool may run its daemons inside a Slurm allocation and leave Slurm's
/// variables around its jobs; the other way round does not happen. A plain machine is what is left.
pub static SCHEDULERS: &[&dyn Scheduler] = &[
    #[cfg(feature = "toy-scheduler")]
    &toy::Toy,
    &htcondor::HtCondor,
    &slurm::Slurm,
    &local::Local,
];

/// Everything that is asked of a scheduler. What has a default is for those that can do more.
pub trait Scheduler: Debug + Sync {
    /// Its names, and what its word on hosts is worth.
    fn source(&self) -> Source;

    /// Variables of which any one, set and not empty, proves that this scheduler runs us.
    fn proof(&self) -> &'static [&'static str];

    /// What the environment tells of the allocation. A pure function: nothing is opened and nobody is asked.
    fn allocation(&self, environ: &Environ, roles: &RoleRequest) -> Result<Allocation, AllocationError>;

    /// The variables that it sets and rallypoint reads, for the reference page.
    fn variables(&self) -> Vec<Variable> {
        Vec::new()
    }

    /// Of these, those whose value is the path of a file that belongs to the snapshot.
    fn named_files(&self) -> &'static [&'static str] {
        &[]
    }

    /// Where this process stands, and the variables that tell it.
    fn look_around(&self, environ: &Environ) -> Surroundings;

    /// A name for the members that are to meet, if a job may have several such groups.
    fn job_name(&self, _environ: &Environ) -> Option<String> {
        None
    }

    /// Ways to meet of its own, by the names that `--meet` takes.
    fn ways(&self) -> &'static [&'static str] {
        &[]
    }

    /// One of its own ways to meet.
    fn way(&self, name: &str, _request: &MeetRequest<'_>) -> Result<WayToMeet, PlaceError> {
        Err(PlaceError::NoSuchWay { name: name.to_owned() })
    }

    /// What `--meet auto` takes; `None` if nobody else is to be met.
    fn automatic_way(&self, request: &MeetRequest<'_>) -> Result<Option<WayToMeet>, PlaceError> {
        request.without_a_way()
    }

    /// Asks when the job will be ended, where no variable tells it. The answer may take seconds.
    fn deadline_question(&self) -> Option<fn(&Environ) -> Option<SystemTime>> {
        None
    }

    /// How it is asked to run the whole job again.
    fn requeue(&self, _plan: &Plan, _environ: &Environ) -> Result<Requeue, RequeueError> {
        Err(RequeueError::NoQueue { scheduler: self.source().title })
    }

    /// What starts an agent in each slot of an allocation that this process is not a task of.
    fn launcher(&self, _request: &LaunchRequest<'_>) -> Option<Result<Launcher, SchedulerError>> {
        None
    }

    /// How jobs are handed in.
    fn submit(&self) -> Option<&'static dyn Submit> {
        None
    }
}

/// An error of a scheduler's room, with its own words.
pub type SchedulerError = AnyError;

/// Where a process stands among a scheduler's, for `doctor`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Surroundings {
    /// Variables that tell where this process stands, set or not.
    pub variables: Vec<&'static str>,
    /// `a task of a step`
    pub context: String,
}

/// What is to be started in each slot.
#[derive(Debug, Clone, Copy)]
pub struct LaunchRequest<'a> {
    /// Its PATH has the launcher, and the scheduler's variables tell what to ask of it.
    pub environ: &'a Environ,
    /// The program that is to run in each slot: this command itself.
    pub command: &'a Path,
    /// Its arguments: `run --launched`, and what was typed behind `run`.
    pub arguments: &'a [OsString],
    /// More options for the launcher, as the user wrote them.
    pub more: &'a [String],
    /// How long members may take to end.
    pub grace: Duration,
}

/// Why a job cannot be put back into the queue.
#[derive(Debug, Error)]
pub enum RequeueError {
    /// The scheduler has no queue, or the job has no id there.
    #[error("the job cannot be requeued: {scheduler} has no queue that a job could ask to go back to")]
    NoQueue {
        /// Its title: `a plain machine`.
        scheduler: &'static str,
    },
    /// The scheduler's own program is needed for it, and is not there.
    #[error("the job cannot be requeued: {program} is not on PATH")]
    NoProgram {
        /// Which one: `scontrol`.
        program: &'static str,
    },
}

impl Hinted for RequeueError {
    fn hint(&self) -> Option<Hint> {
        match self {
            RequeueError::NoQueue { .. } => None,
            RequeueError::NoProgram { .. } => Some(hint!("PATH must have it where the job runs")),
        }
    }
}

/// Which scheduler to believe in.
#[derive(Debug, Clone, Copy, Default)]
pub enum On {
    /// The one whose variables are there.
    #[default]
    Auto,
    /// This one, whatever variables are there.
    Scheduler(&'static dyn Scheduler),
}

impl On {
    /// `auto`, and the names of all schedulers.
    pub fn names() -> impl Iterator<Item = &'static str> {
        ["auto"].into_iter().chain(SCHEDULERS.iter().map(|scheduler| scheduler.source().name))
    }

    /// The scheduler of a name, or `auto`.
    pub fn named(name: &str) -> Option<On> {
        match name {
            "auto" => Some(On::Auto),
            name => by_name(name).map(On::Scheduler),
        }
    }

    /// The scheduler meant, in this environment.
    pub(crate) fn resolve(self, environ: &Environ) -> &'static dyn Scheduler {
        match self {
            On::Auto => detect(environ),
            On::Scheduler(scheduler) => scheduler,
        }
    }
}

/// Why no allocation could be read.
#[derive(Debug, Error)]
pub enum AllocationError {
    /// Its variables or files do not make an allocation; in the words of its own room.
    #[error("{0}")]
    Scheduler(SchedulerError),
    /// `CUDA_VISIBLE_DEVICES` or the like names no GPUs, or one of them twice.
    #[error(transparent)]
    Mask(#[from] MaskError),
    /// The roles ask for nobody, or for too many.
    #[error(transparent)]
    Roles(#[from] RoleError),
}

impl Hinted for AllocationError {
    fn hint(&self) -> Option<Hint> {
        match self {
            AllocationError::Scheduler(error) => error.hint(),
            AllocationError::Mask(error) => error.hint(),
            AllocationError::Roles(error) => error.hint(),
        }
    }
}

/// The scheduler of a name, as `--on` takes it.
pub fn by_name(name: &str) -> Option<&'static dyn Scheduler> {
    SCHEDULERS.iter().copied().find(|scheduler| scheduler.source().name == name)
}

/// The room of the scheduler that gave an allocation.
pub fn of(source: Source) -> &'static dyn Scheduler {
    by_name(source.name).unwrap_or(&local::Local)
}

/// The scheduler that runs us, by its variables.
pub(crate) fn detect(environ: &Environ) -> &'static dyn Scheduler {
    let is_set = |variable: &&str| environ.get_nonempty(variable).is_some();
    let proved = |scheduler: &&'static dyn Scheduler| scheduler.proof().iter().any(is_set);
    SCHEDULERS.iter().copied().find(proved).unwrap_or(&local::Local)
}

/// Reads the allocation. A plain machine has as many slots as the roles ask for.
pub fn allocation(environ: &Environ, on: On, roles: &RoleRequest) -> Result<Allocation, AllocationError> {
    on.resolve(environ).allocation(environ, roles)
}

/// Variables of any scheduler whose value is the path of a file that belongs to a snapshot.
pub fn named_files() -> Vec<&'static str> {
    SCHEDULERS.iter().flat_map(|scheduler| scheduler.named_files()).copied().collect()
}

/// This process's own environment, with the files that the schedulers' variables name.
pub fn environ_here() -> Environ {
    Environ::here().with_named_files(&named_files())
}

/// A captured environment, with the files that the schedulers' variables name, from where they lie now.
pub fn environ_from_file(path: &Path, moved: &MovedFiles) -> Result<Environ, EnvironError> {
    Environ::from_file(path, &named_files(), moved)
}
