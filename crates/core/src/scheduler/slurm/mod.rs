//! Slurm: everything about it.
//!
//! | file | subject |
//! |---|---|
//! | `allocation` | a task of a step, a batch script, or a shell under `salloc`, from its variables |
//! | `layout`, `counts`, `gpus`, `resources`, `error` | parts of that |
//! | `pmi`, `meet` | how the tasks of a step find each other |
//! | `launcher` | the `srun` that launcher mode starts |
//! | `control` | what Slurm's own commands are asked: time left, requeue |
//! | `submit`, `script`, `follow` | batch scripts, handed in and followed |

mod allocation;
mod control;
mod counts;
mod error;
mod follow;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod gpus;
mod launcher;
mod layout;
mod meet;
mod pmi;
mod resources;
mod script;
mod submit;

pub use allocation::allocation;
pub use counts::{CountsError, expand_counts};

use super::submit::Submit;
use super::{
    AllocationError, LaunchRequest, MeetRequest, PlaceError, RequeueError, Scheduler, SchedulerError,
    Surroundings,
};
use crate::allocation::{Allocation, HostNames, Source};
use crate::environ::Environ;
use crate::plan::Plan;
use crate::rendezvous::WayToMeet;
use crate::roles::RoleRequest;
use crate::supervise::{Launcher, Requeue};
use crate::variables::{self as var, Family, Variable};
use allocation::{Context, context, step_name};
use std::time::SystemTime;

/// Slurm's room.
#[derive(Debug)]
pub struct Slurm;

/// Slurm's names, as they stand in an allocation of its.
pub const SOURCE: Source = Source {
    name: "slurm",
    title: "Slurm",
    heading: "Slurm",
    hosts: HostNames::Scheduler,
    shares_output: true,
};

impl Scheduler for Slurm {
    fn source(&self) -> Source {
        SOURCE
    }

    fn proof(&self) -> &'static [&'static str] {
        &[var::SLURM_JOB_ID, var::SLURM_JOBID]
    }

    fn allocation(&self, environ: &Environ, _roles: &RoleRequest) -> Result<Allocation, AllocationError> {
        allocation(environ)
    }

    fn variables(&self) -> Vec<Variable> {
        var::of(Family::Scheduler(SOURCE.name))
    }

    fn named_files(&self) -> &'static [&'static str] {
        &[var::SLURM_HOSTFILE]
    }

    fn look_around(&self, environ: &Environ) -> Surroundings {
        let (variables, context): (&[_], _) = match context(environ) {
            Context::Step => (&STEP_VARIABLES, "a task of a step"),
            Context::Launcher => {
                (&JOB_VARIABLES, "inside an allocation but not in a step: start it with srun")
            }
        };
        Surroundings { variables: variables.to_vec(), context: context.to_owned() }
    }

    fn job_name(&self, environ: &Environ) -> Option<String> {
        step_name(environ)
    }

    fn ways(&self) -> &'static [&'static str] {
        &["pmi"]
    }

    fn way(&self, _name: &str, request: &MeetRequest<'_>) -> Result<WayToMeet, PlaceError> {
        Ok(WayToMeet::known(meet::pmi(request)?))
    }

    fn automatic_way(&self, request: &MeetRequest<'_>) -> Result<Option<WayToMeet>, PlaceError> {
        match request.plan.me() {
            Some(_) if request.plan.world() > 1 => meet::in_a_step(request).map(Some),
            _ => request.without_a_way(),
        }
    }

    fn deadline_question(&self) -> Option<fn(&Environ) -> Option<SystemTime>> {
        Some(control::ask_deadline)
    }

    fn requeue(&self, plan: &Plan, environ: &Environ) -> Result<Requeue, RequeueError> {
        let job = plan.job().ok_or(RequeueError::NoQueue { scheduler: SOURCE.title })?.to_owned();
        let command = control::requeue_command(&job, environ.get(var::PATH))
            .ok_or(RequeueError::NoProgram { program: "scontrol" })?;
        Ok(Requeue { job, command })
    }

    fn launcher(&self, request: &LaunchRequest<'_>) -> Option<Result<Launcher, SchedulerError>> {
        Some(launcher::srun(request).map_err(Into::into))
    }

    fn submit(&self) -> Option<&'static dyn Submit> {
        Some(&submit::Sbatch)
    }
}

const STEP_VARIABLES: [&str; 11] = [
    var::SLURM_JOB_ID,
    var::SLURM_STEP_ID,
    var::SLURM_STEP_NODELIST,
    var::SLURM_STEP_NUM_TASKS,
    var::SLURM_STEP_TASKS_PER_NODE,
    var::SLURM_PROCID,
    var::SLURM_LOCALID,
    var::SLURM_NODEID,
    var::SLURM_GTIDS,
    var::SLURMD_NODENAME,
    var::SLURM_DISTRIBUTION,
];

const JOB_VARIABLES: [&str; 6] = [
    var::SLURM_JOB_ID,
    var::SLURM_JOB_NODELIST,
    var::SLURM_TASKS_PER_NODE,
    var::SLURM_NTASKS,
    var::SLURM_STEP_NODELIST,
    var::SLURM_STEP_ID,
];
