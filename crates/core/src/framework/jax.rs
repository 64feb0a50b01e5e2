//! What `jax.distributed.initialize()` takes from the environment.
//!
//! JAX (0.10) reads the coordinator's address from a variable of its own. The number of processes and
//! the process's id it reads only through a cluster that it knows, so we speak as Open MPI's launcher
//! does, which is the one whose variables say nothing else. `JAX_NUM_PROCESSES` and `JAX_PROCESS_ID` are for
//! programs that pass them on by hand.

use crate::plan::Member;
use crate::roster::Roster;

pub(super) fn variables(roster: &Roster, member: &Member) -> Vec<(&'static str, String)> {
    let coordinator = roster.endpoint(&roster.plan.members[0]);
    let local_rank = member.place.map_or(0, |place| place.local_rank);
    let world = roster.plan.world().to_string();
    let mut variables = vec![
        ("JAX_COORDINATOR_ADDRESS", coordinator.to_string()),
        ("JAX_NUM_PROCESSES", world.clone()),
        ("JAX_PROCESS_ID", member.rank.to_string()),
        ("OMPI_MCA_orte_hnp_uri", format!("0.0;tcp://{coordinator}")),
        ("OMPI_COMM_WORLD_SIZE", world),
        ("OMPI_COMM_WORLD_RANK", member.rank.to_string()),
        ("OMPI_COMM_WORLD_LOCAL_RANK", local_rank.to_string()),
    ];
    // JAX would take the device whose number is the local rank, but a member sees only its own.
    let own = member.devices.as_ref().map_or(0, |devices| devices.len()).max(1);
    let ids: Vec<String> = (0..own).map(|id| id.to_string()).collect();
    variables.push(("JAX_LOCAL_DEVICE_IDS", ids.join(",")));
    variables
}
