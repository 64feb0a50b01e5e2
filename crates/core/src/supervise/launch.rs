//! From a roster to launches: true hosts, devices that follow from them, variables and files.

use super::agent::{Notice, Run, RunError, RunSpec, Talk, io};
use super::executor::{Executor, Launch};
use super::output::Output;
use crate::allocation::{Host, HostGpus, Scheduler, places};
use crate::environ::Environ;
use crate::framework::{Extras, child_env};
use crate::plan::Plan;
use crate::ports::HeldPort;
use crate::roster::{Endpoint, Roster};
use std::collections::HashMap;

/// The plan with everyone's true host; on plain machines with the devices that follow from it.
pub(super) fn settle(
    run: Run,
    rank: u32,
    members: Vec<(String, Endpoint)>,
) -> Result<(Roster, Environ, RunSpec), RunError> {
    let Run { mut allocation, job, mut plan, environ, spec } = run;
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
            slot.cpus =
                environ.cpus.filter(|_| place.host == here).map(|cpus| (cpus.usable() / beside).max(1));
        }
        plan = Plan::new(allocation, &job)?;
    }
    for (member, place) in plan.members.iter_mut().zip(placed) {
        member.place = Some(place);
    }
    plan.hosts = hosts;
    plan.me = Some(rank);
    let roster = Roster::met(plan, endpoints).ok_or(RunError::NobodyDecides)?;
    Ok((roster, environ, spec))
}

/// Launches of this agent's members, with all their variables and files.
pub(super) fn prepare(
    roster: &Roster,
    held: HashMap<u32, HeldPort>,
    spec: &RunSpec,
    environ: &Environ,
    talk: Talk<'_>,
) -> Result<Executor, RunError> {
    let plan = &roster.plan;
    let roster_file = spec.private.join("roster.json");
    std::fs::write(&roster_file, roster.to_json()).map_err(io("the roster file"))?;
    let log_folder = spec.log_dir.as_ref().map(|folder| folder.join(format!("attempt-{}", plan.attempt)));
    if let Some(folder) = &log_folder {
        std::fs::create_dir_all(folder).map_err(io("--log-dir"))?;
    }
    let mut launches = Vec::new();
    for (rank, port) in held {
        let member = &plan.members[rank as usize];
        let error_file = spec.private.join(format!("error-{rank}"));
        let extras = Extras {
            roster_file: Some(roster_file.clone()),
            error_file: Some(error_file.clone()),
            threads: spec.threads,
            hand_over: spec.hand_over,
        };
        let child = child_env(spec.framework, roster, member, environ, &extras)?;
        if launches.is_empty() {
            child.notes.iter().for_each(|note| talk(Notice::Line(note.clone())));
        }
        launches.push(Launch {
            rank,
            role: member.role.to_string(),
            index: member.index,
            host: plan.host(member).unwrap_or("?").to_owned(),
            command: spec.command.clone(),
            variables: child.variables.into_iter().chain(spec.extra.iter().cloned()).collect(),
            error_file,
            log_folder: log_folder.clone(),
            port: Some(port),
        });
    }
    let output = Output::new(spec.style.clone(), log_folder.is_some()).map_err(io("output"))?;
    Executor::new(launches, output).map_err(io("log files"))
}
