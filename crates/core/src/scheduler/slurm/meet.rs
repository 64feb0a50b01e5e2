//! How the tasks of a step find each other: PMI where Slurm offers it, else the working directory.

use super::pmi::Pmi;
use crate::hint;
use crate::hint::{Hint, Hinted, Setting};
use crate::rendezvous::WayToMeet;
use crate::scheduler::{MeetRequest, PlaceError};
use crate::variables as var;
use thiserror::Error;

#[derive(Debug, Error)]
enum NoPmi {
    #[error("no PMI: {variable} is not set")]
    NotSet { variable: &'static str },
    #[error("no PMI: this is rank {rank} of {world}, but PMI says {pmi_rank} of {pmi_size}")]
    Other { rank: String, world: u32, pmi_rank: u32, pmi_size: u32 },
}

impl Hinted for NoPmi {
    fn hint(&self) -> Option<Hint> {
        match self {
            NoPmi::NotSet { .. } => Some(hint!("start the step with `srun --mpi=pmi2`")),
            NoPmi::Other { .. } => Some(hint!("meet in a directory, ", Setting::Meet.with("DIR"))),
        }
    }
}

/// Slurm starts all tasks in the same working directory, so on nearly every cluster it is shared.
pub(super) fn in_a_step(request: &MeetRequest<'_>) -> Result<WayToMeet, PlaceError> {
    if request.environ.get_nonempty(var::PMI_FD).is_some() {
        match numbers(request) {
            // PMI counts each het group apart: no way for all of them.
            Err(NoPmi::Other { .. }) => {}
            _ => return Ok(WayToMeet::known(pmi(request)?)),
        }
    }
    Ok(WayToMeet::contested(request.working_directory()?))
}

pub(super) fn pmi(request: &MeetRequest<'_>) -> Result<Pmi, PlaceError> {
    let (descriptor, rank, size) = numbers(request).map_err(|error| PlaceError::Scheduler(error.into()))?;
    Ok(Pmi::new(descriptor, rank, size)?)
}

/// The descriptor, the rank and the size, where they are this plan's.
fn numbers(request: &MeetRequest<'_>) -> Result<(i32, u32, u32), NoPmi> {
    let number = |variable: &'static str| {
        let value = request.environ.get_nonempty(variable).and_then(|value| value.parse::<u32>().ok());
        value.ok_or(NoPmi::NotSet { variable })
    };
    let descriptor =
        i32::try_from(number(var::PMI_FD)?).map_err(|_| NoPmi::NotSet { variable: var::PMI_FD })?;
    let (pmi_rank, pmi_size) = (number(var::PMI_RANK)?, number(var::PMI_SIZE)?);
    let plan = request.plan;
    if plan.me() != Some(pmi_rank) || plan.world() != pmi_size {
        let rank = plan.me().map_or("?".to_owned(), |rank| rank.to_string());
        return Err(NoPmi::Other { rank, world: plan.world(), pmi_rank, pmi_size });
    }
    Ok((descriptor, pmi_rank, pmi_size))
}
