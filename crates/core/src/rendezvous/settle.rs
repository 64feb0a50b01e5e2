//! From a plan and what the members told to a roster: true hosts, and the devices that follow from them.

use super::message::Seat;
use crate::allocation::places;
use crate::hint::{Hint, Hinted};
use crate::machine::Cpus;
use crate::plan::{Plan, PlanError};
use crate::roster::{Roster, RosterError};
use std::collections::HashMap;
use thiserror::Error;

/// Why the members that have met do not make a roster.
#[derive(Debug, Error)]
pub enum SettleError {
    /// The devices of a true host are too few for its members.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// There are more or fewer endpoints than members.
    #[error(transparent)]
    Roster(#[from] RosterError),
}

impl Hinted for SettleError {
    fn hint(&self) -> Option<Hint> {
        match self {
            SettleError::Plan(error) => error.hint(),
            SettleError::Roster(error) => error.hint(),
        }
    }
}

/// The plan with everyone's true host; on plain machines with the devices that follow from it.
///
/// `members` tells where each rank is; `rank` is this process's own, if it is a member. A scheduler's hosts are told
/// apart by their names, which are its own; plain machines by their numbers, since two containers may both be called
/// `localhost`.
pub fn settle(
    plan: Plan,
    cpus: Option<Cpus>,
    rank: Option<u32>,
    members: Vec<Seat>,
) -> Result<Roster, SettleError> {
    let plan = plan.seen_from(rank);
    let plain = plan.scheduler().is_plain_machine();
    let mut hosts: Vec<String> = Vec::new();
    let mut number: HashMap<(String, u32), u32> = HashMap::new();
    let mut host_of_rank = Vec::with_capacity(members.len());
    let mut endpoints = Vec::with_capacity(members.len());
    for Seat { host, machine, endpoint } in members {
        let next = hosts.len() as u32;
        let machine = if plain { machine } else { 0 };
        let host = *number.entry((host, machine)).or_insert_with_key(|(host, _)| {
            hosts.push(host.clone());
            next
        });
        host_of_rank.push(host);
        endpoints.push(endpoint);
    }
    let here = rank.and_then(|rank| host_of_rank.get(rank as usize).copied());
    let beside = host_of_rank.iter().filter(|&&host| Some(host) == here).count() as u32;
    let places = places(host_of_rank, hosts.len());
    let plan = match plain {
        true => {
            let each = cpus.and_then(|cpus| cpus.usable().checked_div(beside)).map(|cpus| cpus.max(1));
            plan.on_machines(hosts, &places, each)?
        }
        false => plan.placed(hosts, &places),
    };
    Ok(Roster::met(plan, endpoints)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environ::Environ;
    use crate::plan::JobSpec;
    use crate::roles::RoleRequest;
    use crate::roster::Endpoint;

    #[test]
    fn machines_of_one_name_are_not_one_machine() {
        let roles = RoleRequest::List("worker*4".parse().unwrap());
        let environ = Environ::from_variables::<String, String>([]);
        let allocation = crate::scheduler::local::allocation(&environ, &roles).unwrap();
        let job = JobSpec { roles, ..JobSpec::default() };
        let plan = Plan::new(allocation, &job).unwrap();
        let members = [0, 1, 0, 1].map(|machine| Seat {
            host: "localhost".to_owned(),
            machine,
            endpoint: Endpoint { address: format!("10.0.0.{machine}"), port: 7000 },
        });
        let cpus = Cpus { online: 8, affinity: None, quota: None };
        let roster = settle(plan, Some(cpus), Some(3), members.to_vec()).unwrap();
        let names: Vec<&str> = roster.plan().hosts().iter().map(|host| host.name.as_str()).collect();
        assert_eq!(names, ["localhost", "localhost"]);
        let places: Vec<(u32, u32)> = roster
            .plan()
            .members()
            .iter()
            .map(|member| member.place.map(|place| (place.host, place.local_rank)).unwrap())
            .collect();
        assert_eq!(places, [(0, 0), (1, 0), (0, 1), (1, 1)]);
        assert_eq!(roster.plan().members()[3].cpus, Some(4), "two share this machine, not four");
    }
}
