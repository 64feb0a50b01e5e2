//! From a plan and what the members told to a roster: true hosts, and the devices that follow from them.

use super::message::Seat;
use crate::allocation::{Allocation, Host, HostGpus, places};
use crate::hint::{Hint, Hinted};
use crate::machine::Cpus;
use crate::plan::{JobSpec, Plan, PlanError};
use crate::roster::{Roster, RosterError};
use std::collections::HashMap;
use thiserror::Error;

#[derive(Debug, Error)]
pub enum SettleError {
    #[error(transparent)]
    Plan(#[from] PlanError),
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
/// `members` tells where each rank is; `rank` is this process's own. A scheduler's hosts are told apart by their names,
/// which are its own; plain machines by their numbers, since two containers may both be called `localhost`.
pub fn settle(
    mut allocation: Allocation,
    job: &JobSpec,
    mut plan: Plan,
    cpus: Option<Cpus>,
    rank: u32,
    members: Vec<Seat>,
) -> Result<Roster, SettleError> {
    let mut hosts: Vec<String> = Vec::new();
    let mut number: HashMap<(String, u32), u32> = HashMap::new();
    let mut host_of_rank = Vec::with_capacity(members.len());
    let mut endpoints = Vec::with_capacity(members.len());
    for Seat { host, machine, endpoint } in members {
        let next = hosts.len() as u32;
        let machine = if allocation.scheduler.is_plain_machine() { machine } else { 0 };
        let host = *number.entry((host, machine)).or_insert_with_key(|(host, _)| {
            hosts.push(host.clone());
            next
        });
        host_of_rank.push(host);
        endpoints.push(endpoint);
    }
    let here = host_of_rank[rank as usize];
    let beside = host_of_rank.iter().filter(|&&host| host == here).count() as u32;
    let placed = places(host_of_rank, hosts.len());
    if allocation.scheduler.is_plain_machine() {
        let own = allocation.hosts.first().map_or(HostGpus::Unknown, |host| host.gpus.clone());
        allocation.hosts = hosts.iter().map(Host::new).collect();
        allocation.hosts[here as usize].gpus = own;
        allocation.me = Some(rank);
        for (slot, place) in allocation.slots.iter_mut().zip(&placed) {
            slot.place = Some(*place);
            slot.cpus = cpus.filter(|_| place.host == here).map(|cpus| (cpus.usable() / beside).max(1));
        }
        plan = Plan::new(allocation, job)?;
    }
    for (member, place) in plan.members.iter_mut().zip(placed) {
        member.place = Some(place);
    }
    plan.hosts = hosts;
    plan.me = Some(rank);
    Ok(Roster::met(plan, endpoints)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environ::Environ;
    use crate::roles::RoleRequest;
    use crate::roster::Endpoint;

    #[test]
    fn machines_of_one_name_are_not_one_machine() {
        let roles = RoleRequest::List("worker*4".parse().unwrap());
        let environ = Environ::from_variables::<String, String>([]);
        let allocation = crate::scheduler::local::allocation(&environ, &roles).unwrap();
        let job = JobSpec { roles, ..JobSpec::default() };
        let plan = Plan::new(allocation.clone(), &job).unwrap();
        let members = [0, 1, 0, 1].map(|machine| Seat {
            host: "localhost".to_owned(),
            machine,
            endpoint: Endpoint { address: format!("10.0.0.{machine}"), port: 7000 },
        });
        let cpus = Cpus { online: 8, affinity: None, quota: None };
        let roster = settle(allocation, &job, plan, Some(cpus), 3, members.to_vec()).unwrap();
        assert_eq!(roster.plan.hosts, ["localhost", "localhost"]);
        let places: Vec<(u32, u32)> = roster
            .plan
            .members
            .iter()
            .map(|member| member.place.map(|place| (place.host, place.local_rank)).unwrap())
            .collect();
        assert_eq!(places, [(0, 0), (1, 0), (0, 1), (1, 1)]);
        assert_eq!(roster.plan.members[3].cpus, Some(4), "two share this machine, not four");
    }
}
