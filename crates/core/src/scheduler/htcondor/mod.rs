//! HTCondor: everything about it.
//!
//! | file | subject |
//! |---|---|
//! | `allocation`, `classad` | a job of either universe, from its variables and ads |
//! | `meet` | how procs and nodes find each other |
//! | `chirp`, `submit_directory`, `job_ad` | the submit host, reached by chirp: its files, the job's ad |
//! | `submit`, `description`, `follow` | submit descriptions, handed in and followed |
//! | `user_log`, `failure` | what happened to a job, and why it failed, from its files |

mod allocation;
mod chirp;
mod classad;
mod description;
mod failure;
mod follow;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod job_ad;
mod meet;
mod submit;
mod submit_directory;
mod user_log;

pub use allocation::{cluster_name, submit_directory};

use super::submit::Submit;
use super::{AllocationError, MeetRequest, PlaceError, Scheduler, Surroundings};
use crate::allocation::{Allocation, HostNames, Source};
use crate::environ::Environ;
use crate::rendezvous::WayToMeet;
use crate::roles::RoleRequest;
use crate::variables::{self as var, Family, Variable};
use allocation::allocation;

/// HTCondor's room.
#[derive(Debug)]
pub struct HtCondor;

/// HTCondor's names, as they stand in an allocation of its.
pub(crate) const SOURCE: Source = Source {
    name: "htcondor",
    title: "HTCondor",
    heading: "HTCondor",
    hosts: HostNames::Scheduler,
    shares_output: false,
};

impl Scheduler for HtCondor {
    fn source(&self) -> Source {
        SOURCE
    }

    fn proof(&self) -> &'static [&'static str] {
        &[var::CONDOR_JOB_AD, var::CONDOR_PROCNO]
    }

    fn allocation(&self, environ: &Environ, _roles: &RoleRequest) -> Result<Allocation, AllocationError> {
        allocation(environ)
    }

    fn variables(&self) -> Vec<Variable> {
        var::of(Family::Scheduler(SOURCE.name))
    }

    fn named_files(&self) -> &'static [&'static str] {
        &[var::CONDOR_JOB_AD, var::CONDOR_MACHINE_AD]
    }

    fn look_around(&self, environ: &Environ) -> Surroundings {
        let universe = if environ.get(var::CONDOR_PROCNO).is_some() { "parallel" } else { "vanilla" };
        let variables = vec![
            var::CONDOR_JOB_AD,
            var::CONDOR_MACHINE_AD,
            var::CONDOR_SLOT,
            var::CONDOR_PROCNO,
            var::CONDOR_NPROCS,
            var::CONDOR_ASSIGNED_GPUS,
        ];
        Surroundings { variables, context: format!("a job in the {universe} universe") }
    }

    fn job_name(&self, environ: &Environ) -> Option<String> {
        cluster_name(environ)
    }

    fn ways(&self) -> &'static [&'static str] {
        &["chirp"]
    }

    fn way(&self, _name: &str, request: &MeetRequest<'_>) -> Result<WayToMeet, PlaceError> {
        meet::by_chirp(request)
    }

    fn automatic_way(&self, request: &MeetRequest<'_>) -> Result<Option<WayToMeet>, PlaceError> {
        match request.plan.world() {
            1 => request.without_a_way(),
            _ => meet::in_a_pool(request).map(Some),
        }
    }

    fn submit(&self) -> Option<&'static dyn Submit> {
        Some(&submit::CondorSubmit)
    }
}
