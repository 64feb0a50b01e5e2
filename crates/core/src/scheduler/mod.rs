//! Who runs us: one file a scheduler, each a pure function from [`Environ`] to [`Allocation`].
//!
//! To add one, see `docs/guides/add-a-scheduler.md`.

pub mod classad;
pub mod htcondor;
pub mod hypothetical;
pub mod local;
pub mod slurm;

use crate::allocation::{Allocation, Scheduler};
use crate::devices::MaskError;
use crate::environ::Environ;
use crate::roles::{RoleError, RoleRequest};
use crate::variables as var;
use thiserror::Error;

/// Which scheduler to believe in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum On {
    /// The one whose variables are there.
    #[default]
    Auto,
    Slurm,
    HtCondor,
    Local,
}

/// Why no allocation could be read.
#[derive(Debug, Error)]
pub enum AllocationError {
    #[error(transparent)]
    Slurm(#[from] slurm::SlurmError),
    #[error(transparent)]
    HtCondor(#[from] htcondor::HtCondorError),
    #[error(transparent)]
    Mask(#[from] MaskError),
    #[error(transparent)]
    Roles(#[from] RoleError),
}

/// Schedulers in the order in which they are looked for, with the variables whose presence means them.
///
/// HTCondor comes first: a pool may run its daemons inside a Slurm allocation and leave Slurm's
/// variables around its jobs; the other way round does not happen.
pub const DETECTION: [(Scheduler, &[&str]); 2] = [
    (Scheduler::HtCondor, &[var::CONDOR_JOB_AD, var::CONDOR_PROCNO]),
    (Scheduler::Slurm, &[var::SLURM_JOB_ID, var::SLURM_JOBID]),
];

/// The scheduler that runs us, by its variables.
pub fn detect(environ: &Environ) -> Scheduler {
    DETECTION
        .iter()
        .find(|(_, variables)| variables.iter().any(|variable| environ.get_nonempty(variable).is_some()))
        .map_or(Scheduler::Local, |(scheduler, _)| *scheduler)
}

impl On {
    /// The scheduler meant, in this environment.
    pub fn resolve(self, environ: &Environ) -> Scheduler {
        match self {
            On::Auto => detect(environ),
            On::Slurm => Scheduler::Slurm,
            On::HtCondor => Scheduler::HtCondor,
            On::Local => Scheduler::Local,
        }
    }
}

/// Reads the allocation. A plain machine has as many slots as the roles ask for.
pub fn allocation(environ: &Environ, on: On, roles: &RoleRequest) -> Result<Allocation, AllocationError> {
    match on.resolve(environ) {
        Scheduler::Slurm => slurm::allocation(environ),
        Scheduler::HtCondor => htcondor::allocation(environ),
        Scheduler::Local | Scheduler::Hypothetical => local::allocation(environ, roles),
    }
}
