//! From arguments as typed to settings as meant.

use crate::args::{AddressArgs, CapturedArgs, GpuArgs, PlaceArg, RoleArgs, SourceArgs};
use crate::exit::Failure;
use rallypoint::address::{Choice, HostRule};
use rallypoint::allocation::Allocation;
use rallypoint::environ::{Environ, MovedFiles};
use rallypoint::hint;
use rallypoint::hint::{Hint, Hinted, Setting};
use rallypoint::network;
use rallypoint::plan::{GpuRequest, JobSpec, Plan};
use rallypoint::roles::{PsPlace, RoleRequest, Workers};
use rallypoint::roster::Addressing;
use rallypoint::scheduler;
use rallypoint::scheduler::hypothetical::{self, Hypothesis};
use rallypoint::variables as var;
use std::net::IpAddr;
use thiserror::Error;

#[derive(Debug, Error)]
#[error("workers {found}: expected a number or rest")]
struct BadWorkers {
    found: String,
}

impl Hinted for BadWorkers {
    fn hint(&self) -> Option<Hint> {
        Some(hint!(Setting::Workers.with("rest"), " takes all ranks without another role"))
    }
}

pub(crate) fn job_spec(roles: &RoleArgs, gpus: &GpuArgs) -> Result<JobSpec, Failure> {
    Ok(JobSpec {
        roles: role_request(roles)?,
        gpus: GpuRequest {
            per_node: gpus.gpus_per_node,
            per_task: gpus.gpus_per_task,
            ps: gpus.ps_gpus,
            binding: !gpus.no_gpu_binding,
        },
        cpus_per_task: gpus.cpus_per_task,
    })
}

pub(crate) fn role_request(args: &RoleArgs) -> Result<RoleRequest, Failure> {
    if let Some(list) = &args.roles {
        return Ok(RoleRequest::List(list.parse()?));
    }
    let workers = match args.workers.as_deref() {
        None | Some("rest") => Workers::Rest,
        Some(count) => Workers::Count(count.parse().map_err(|_| BadWorkers { found: count.to_owned() })?),
    };
    let place = match args.place {
        PlaceArg::Pack => PsPlace::Pack,
        PlaceArg::Spread => PsPlace::Spread,
    };
    Ok(RoleRequest::Counts { chief: args.chief, evaluator: args.evaluator, ps: args.ps, workers, place })
}

/// The environment to look at: a captured one, or our own.
pub(crate) fn environ(args: &CapturedArgs) -> Result<Environ, Failure> {
    match &args.environ {
        None => Ok(scheduler::environ_here()),
        Some(file) => {
            let ads = [(var::CONDOR_JOB_AD, &args.job_ad), (var::CONDOR_MACHINE_AD, &args.machine_ad)];
            let moved: MovedFiles =
                ads.into_iter().filter_map(|(variable, ad)| Some((variable, ad.clone()?))).collect();
            Ok(scheduler::environ_from_file(file, &moved)?)
        }
    }
}

/// The plan, and the environment it was made in.
pub(crate) fn plan(source: &SourceArgs, spec: &JobSpec) -> Result<(Plan, Environ), Failure> {
    let (allocation, environ) = allocation(source, spec)?;
    Ok((Plan::new(allocation, spec)?, environ))
}

fn allocation(source: &SourceArgs, spec: &JobSpec) -> Result<(Allocation, Environ), Failure> {
    if let Some(nodes) = &source.nodes {
        let hypothesis = Hypothesis {
            nodes: nodes.clone(),
            tasks_per_node: source.tasks_per_node,
            gpus_per_node: spec.gpus.per_node.unwrap_or(0),
            cpus_per_task: spec.cpus_per_task,
        };
        // An allocation that does not exist has no variables either.
        let nothing = Environ::from_variables::<String, String>([]);
        return Ok((hypothetical::allocation(&hypothesis, &spec.roles)?, nothing));
    }
    let environ = environ(&source.captured)?;
    Ok((scheduler::allocation(&environ, source.on, &spec.roles)?, environ))
}

pub(crate) fn addressing(args: &AddressArgs) -> Result<Addressing, Failure> {
    let rule = match (&args.host_suffix, &args.host_map) {
        (Some(suffix), _) => HostRule::Suffix(suffix.clone()),
        (None, Some(map)) => HostRule::Map(map.parse()?),
        (None, None) => HostRule::Name,
    };
    let own = match (&args.interface, &args.network) {
        (Some(name), _) => Some(Choice::Interface(name.clone())),
        (None, Some(network)) => Some(Choice::Network(network.parse()?)),
        (None, None) => None,
    };
    let own = own.map(|choice| network::own_address(&choice)).transpose()?;
    Ok(Addressing { rule, own })
}

/// Where a leader listens: an address, or that of an interface or in a network.
pub(crate) fn listen(place: Option<&str>) -> Result<Option<IpAddr>, Failure> {
    let Some(place) = place else { return Ok(None) };
    let choice = match place.parse() {
        Ok(address) => Choice::Address(address),
        Err(_) if place.contains('/') => Choice::Network(place.parse()?),
        Err(_) => Choice::Interface(place.to_owned()),
    };
    Ok(Some(network::own_address(&choice)?))
}
