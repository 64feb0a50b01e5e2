//! From a plan and what the members told to a roster: true hosts, and the devices that follow from them.

use crate::allocation::{Allocation, Host, HostGpus, Scheduler, places};
use crate::machine::Cpus;
use crate::plan::{JobSpec, Plan, PlanError};
use crate::roster::{Endpoint, Roster, RosterError};
use std::collections::HashMap;
use thiserror::Error;

#[derive(Debug, Error)]
pub enum SettleError {
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error(transparent)]
    Roster(#[from] RosterError),
}

/// The plan with everyone's true host; on plain machines with the devices that follow from it.
///
/// `members` has a host and an endpoint a rank; `rank` is this process's own.
pub fn settle(
    mut allocation: Allocation,
    job: &JobSpec,
    mut plan: Plan,
    cpus: Option<Cpus>,
    rank: u32,
    members: Vec<(String, Endpoint)>,
) -> Result<Roster, SettleError> {
    let mut hosts: Vec<String> = Vec::new();
    let mut number: HashMap<String, u32> = HashMap::new();
    let mut host_of_rank = Vec::with_capacity(members.len());
    let mut endpoints = Vec::with_capacity(members.len());
    for (host, endpoint) in members {
        let next = hosts.len() as u32;
        let host = *number.entry(host).or_insert_with_key(|host| {
            hosts.push(host.clone());
            next
        });
        host_of_rank.push(host);
        endpoints.push(endpoint);
    }
    let here = host_of_rank[rank as usize];
    let beside = host_of_rank.iter().filter(|&&host| host == here).count() as u32;
    let placed = places(host_of_rank, hosts.len());
    if allocation.scheduler == Scheduler::Local {
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
