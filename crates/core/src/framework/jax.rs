//! What `jax.distributed.initialize()` takes from the environment.
//!
//! JAX (0.10) reads the coordinator's address from a variable of its own. The number of processes and
//! the process's id it reads only through a cluster that it knows, so we speak as Open MPI's launcher
//! does, which is the one whose variables say nothing else. `JAX_NUM_PROCESSES` and `JAX_PROCESS_ID` are for
//! programs that pass them on by hand.

use super::{Framework, FrameworkError};
use crate::plan::Member;
use crate::ports::HandOver;
use crate::roster::Roster;
use crate::variables as var;

#[derive(Debug)]
pub(super) struct Jax;

impl Framework for Jax {
    fn name(&self) -> &'static str {
        "jax"
    }

    fn title(&self) -> &'static str {
        "JAX"
    }

    fn about(&self) -> &'static str {
        "What jax.distributed.initialize() reads"
    }

    fn variables(
        &self,
        roster: &Roster,
        member: &Member,
        _hand_over: HandOver,
    ) -> Result<Vec<(&'static str, String)>, FrameworkError> {
        Ok(variables(roster, member))
    }
}

fn variables(roster: &Roster, member: &Member) -> Vec<(&'static str, String)> {
    let coordinator = roster.endpoint(&roster.plan().members()[0]);
    let local_rank = member.place.map_or(0, |place| place.local_rank);
    let world = roster.plan().world().to_string();
    let mut variables = vec![
        (var::JAX_COORDINATOR_ADDRESS, coordinator.to_string()),
        (var::JAX_NUM_PROCESSES, world.clone()),
        (var::JAX_PROCESS_ID, member.rank.to_string()),
        (var::OMPI_MCA_ORTE_HNP_URI, format!("0.0;tcp://{coordinator}")),
        (var::OMPI_COMM_WORLD_SIZE, world),
        (var::OMPI_COMM_WORLD_RANK, member.rank.to_string()),
        (var::OMPI_COMM_WORLD_LOCAL_RANK, local_rank.to_string()),
    ];
    // JAX would take the device whose number is the local rank, but a member sees only its own.
    let own = member.devices.as_ref().map_or(0, |devices| devices.len()).max(1);
    let ids: Vec<String> = (0..own).map(|id| id.to_string()).collect();
    variables.push((var::JAX_LOCAL_DEVICE_IDS, ids.join(",")));
    variables
}
