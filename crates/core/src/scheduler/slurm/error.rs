//! What cannot be read from Slurm's variables.

use super::counts::CountsError;
use crate::environ::Environ;
use crate::hint;
use crate::hint::{Hint, Hinted, Setting};
use crate::hostlist::HostListError;
use crate::roles::MAX_MEMBERS;
use crate::scheduler::AllocationError;
use crate::variables as var;
use thiserror::Error;

#[derive(Debug, Error)]
pub(super) enum SlurmError {
    #[error("{variable} is not set, so this is no Slurm job", variable = var::SLURM_JOB_ID)]
    NoJob,
    #[error("{variable} is not set, though {} is", var::SLURM_JOB_ID)]
    NotInStep { variable: &'static str },
    #[error("{variable}={value} is not a number")]
    NotANumber { variable: &'static str, value: String },
    #[error("{variable}: {source}")]
    HostList { variable: String, source: HostListError },
    #[error("{variable} names {host} twice, and a host can be in a step once")]
    HostTwice { variable: String, host: String },
    #[error("{variable}={value}: {source}")]
    Counts { variable: String, value: String, source: CountsError },
    #[error("{variable}={value} gives {found} tasks, though {other}={expected}")]
    Sum { variable: String, value: String, found: u64, other: &'static str, expected: u32 },
    #[error("{variable}={value} is outside of the step's {world} tasks")]
    RankOutside { variable: &'static str, value: String, world: u32 },
    #[error("{variable}={value}: expected ranks of this host, {rank} (this task's own) among them")]
    Neighbours { variable: &'static str, value: String, rank: u32 },
    #[error("{variable}={value} is not a list of ports")]
    Ports { variable: &'static str, value: String },
    #[error("{world} tasks are more than {MAX_MEMBERS}")]
    TooMany { world: u64 },
}

impl Hinted for SlurmError {
    fn hint(&self) -> Option<Hint> {
        match self {
            SlurmError::NoJob => {
                Some(hint!("run it under srun or sbatch, or use ", Setting::On.with("local")))
            }
            SlurmError::NotInStep { .. } => Some(hint!("start it with srun")),
            SlurmError::HostList { source, .. } => source.hint(),
            SlurmError::Counts { source, .. } => source.hint(),
            SlurmError::Neighbours { .. } => Some(hint!("are these variables of one and the same step?")),
            SlurmError::Ports { .. } => Some(hint!("srun --resv-ports gives 12000-12003")),
            SlurmError::NotANumber { .. }
            | SlurmError::HostTwice { .. }
            | SlurmError::Sum { .. }
            | SlurmError::RankOutside { .. }
            | SlurmError::TooMany { .. } => None,
        }
    }
}

pub(super) fn number(environ: &Environ, variable: &'static str) -> Result<Option<u32>, SlurmError> {
    match environ.get_nonempty(variable) {
        None => Ok(None),
        Some(value) => match value.parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(SlurmError::NotANumber { variable, value: value.to_owned() }),
        },
    }
}

impl From<SlurmError> for AllocationError {
    fn from(error: SlurmError) -> AllocationError {
        AllocationError::Scheduler(error.into())
    }
}
