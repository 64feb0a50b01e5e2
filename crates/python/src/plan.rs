//! The plan and the roster as Python objects.

use crate::errors::{Raise, raise};
use crate::hosts::choice;
use crate::meeting::{self, Ask};
use crate::ports::HeldPort;
use pyo3::prelude::*;
use rallypoint::address::{HostMap, HostRule};
use rallypoint::devices;
use rallypoint::environ::Environ;
use rallypoint::framework::tensorflow;
use rallypoint::network::own_address;
use rallypoint::plan::{self, GpuRequest, JobSpec};
use rallypoint::roles::{PsPlace, RoleError, RoleList, RoleRequest, Workers};
use rallypoint::roster::{self, Addressing, StaticPorts};
use rallypoint::scheduler::{self, On};
use std::collections::{BTreeMap, HashMap};
use std::time::UNIX_EPOCH;

/// One process of the training job.
#[pyclass(frozen, eq, get_all, module = "rallypoint")]
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Member {
    rank: u32,
    role: String,
    index: u32,
    host: Option<String>,
    local_rank: Option<u32>,
    devices: Option<Vec<String>>,
    cpus: Option<u32>,
}

impl Member {
    fn of(plan: &plan::Plan, member: &plan::Member) -> Member {
        Member {
            rank: member.rank,
            role: member.role.to_string(),
            index: member.index,
            host: plan.host(member).map(str::to_owned),
            local_rank: member.place.map(|place| place.local_rank),
            devices: member.devices.as_ref().map(|list| list.iter().map(ToString::to_string).collect()),
            cpus: member.cpus,
        }
    }
}

#[pymethods]
impl Member {
    fn __repr__(&self) -> String {
        let host = self.host.as_deref().map_or(String::new(), |host| format!(" on {host}"));
        format!("<{} {} (rank {}{host})>", self.role, self.index, self.rank)
    }
}

/// Every member with rank, role, index, host where known, devices and CPUs; no address.
#[pyclass(frozen, module = "rallypoint")]
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) plan: plan::Plan,
    pub(crate) environ: Environ,
}

#[pymethods]
impl Plan {
    #[getter]
    fn scheduler(&self) -> &'static str {
        self.plan.scheduler().name
    }

    #[getter]
    fn job(&self) -> Option<&str> {
        self.plan.job()
    }

    #[getter]
    fn attempt(&self) -> u32 {
        self.plan.attempt()
    }

    #[getter]
    fn world(&self) -> u32 {
        self.plan.world()
    }

    #[getter]
    fn hosts(&self) -> Vec<String> {
        self.plan.hosts().iter().map(|host| host.name.clone()).collect()
    }

    #[getter]
    fn members(&self) -> Vec<Member> {
        self.plan.members().iter().map(|member| Member::of(&self.plan, member)).collect()
    }

    /// This process's own member; `None` outside of a task.
    #[getter]
    fn me(&self) -> Option<Member> {
        Some(Member::of(&self.plan, self.plan.member(self.plan.me()?)?))
    }

    #[getter]
    fn ports(&self) -> Option<Vec<u16>> {
        self.plan.ports().map(<[u16]>::to_vec)
    }

    /// When the scheduler ends the job, in seconds since 1970.
    #[getter]
    fn deadline(&self) -> Option<f64> {
        Some(self.plan.deadline()?.duration_since(UNIX_EPOCH).ok()?.as_secs_f64())
    }

    #[getter]
    fn notes(&self) -> Vec<String> {
        self.plan.notes().map(str::to_owned).collect()
    }

    /// What `rallypoint plan --json` prints.
    fn to_json(&self) -> PyResult<String> {
        let mut out = Vec::new();
        self.plan.write_json(&mut out)?;
        Ok(String::from_utf8_lossy(&out).into_owned())
    }

    /// Addresses by arithmetic: nothing is opened, nobody is asked.
    #[pyo3(signature = (port_base = None, *, interface = None, network = None, host_suffix = None, host_map = None))]
    fn static_roster(
        &self,
        py: Python<'_>,
        port_base: Option<u16>,
        interface: Option<String>,
        network: Option<&str>,
        host_suffix: Option<String>,
        host_map: Option<&str>,
    ) -> PyResult<Roster> {
        let addressing = addressing(py, interface, network, host_suffix, host_map)?;
        let ports = port_base.map_or(StaticPorts::Reserved, StaticPorts::Base);
        let roster = roster::Roster::from_static(self.plan.clone(), &ports, &addressing)
            .map_err(|error| error.raise(py))?;
        Ok(Roster { roster })
    }

    /// Meets the other members; the roster, and this member's port, held.
    #[pyo3(signature = (way, *, rank = None, job = None, timeout = 600.0, port_base = None, port_range = None,
        interface = None, network = None, host_suffix = None, host_map = None, say = None))]
    #[expect(clippy::too_many_arguments, reason = "keywords in Python")]
    fn meet(
        &self,
        py: Python<'_>,
        way: &str,
        rank: Option<u32>,
        job: Option<String>,
        timeout: f64,
        port_base: Option<u16>,
        port_range: Option<(u16, u16)>,
        interface: Option<String>,
        network: Option<&str>,
        host_suffix: Option<String>,
        host_map: Option<&str>,
        say: Option<Py<PyAny>>,
    ) -> PyResult<(Roster, HeldPort)> {
        let addressing = addressing(py, interface, network, host_suffix, host_map)?;
        let ask = Ask { way, rank, job, timeout, port_base, port_range, addressing, say };
        let (roster, port) = meeting::meet(py, self, ask)?;
        Ok((Roster { roster }, HeldPort::new(port)))
    }

    fn __repr__(&self) -> String {
        let roles: Vec<String> =
            self.plan.role_counts().iter().map(|(role, count)| format!("{count} {role}")).collect();
        format!("<Plan of {} on {}: {}>", self.plan.world(), self.plan.scheduler().name, roles.join(", "))
    }
}

/// A plan whose members all have an address.
#[pyclass(frozen, module = "rallypoint")]
#[derive(Debug)]
pub(crate) struct Roster {
    roster: roster::Roster,
}

#[pymethods]
impl Roster {
    #[getter]
    fn members(&self) -> Vec<Member> {
        let plan = self.roster.plan();
        plan.members().iter().map(|member| Member::of(plan, member)).collect()
    }

    #[getter]
    fn me(&self) -> Option<Member> {
        let plan = self.roster.plan();
        Some(Member::of(plan, plan.member(plan.me()?)?))
    }

    /// `host:port` of each rank.
    #[getter]
    fn addresses(&self) -> Vec<String> {
        self.roster.plan().members().iter().map(|member| self.roster.endpoint(member).to_string()).collect()
    }

    /// Addresses by role, as TensorFlow's `ClusterSpec` takes them; evaluators are left out.
    fn cluster(&self) -> BTreeMap<String, Vec<String>> {
        tensorflow::cluster(&self.roster)
    }

    /// `TF_CONFIG` of a member, this process's own unless a rank is given.
    #[pyo3(signature = (rank = None))]
    fn tf_config(&self, py: Python<'_>, rank: Option<u32>) -> PyResult<String> {
        let plan = self.roster.plan();
        match rank.or(plan.me()).and_then(|rank| plan.member(rank)) {
            Some(member) => Ok(tensorflow::tf_config(&self.roster, member)),
            None => Err(raise(py, "RosterError", "which member is this?", Some("give a rank"))),
        }
    }

    fn __repr__(&self) -> String {
        let members: Vec<String> = self
            .roster
            .plan()
            .members()
            .iter()
            .take(4)
            .map(|member| format!("{} {} {}", member.role, member.index, self.roster.endpoint(member)))
            .collect();
        let more = if self.roster.plan().members().len() > 4 { ", ..." } else { "" };
        format!("<Roster {}{more}>", members.join(", "))
    }
}

/// The plan of this allocation.
///
/// Roles as counts (`jobs`) or one per rank (`roles`, `"ps,worker*3"`); all members are workers otherwise.
#[pyfunction]
#[pyo3(signature = (jobs = None, roles = None, *, on = "auto", variables, here = true, place = "pack", gpus_per_node = None,
    gpus_per_task = None, ps_gpus = 0, bind_gpus = true, cpus_per_task = None))]
#[expect(clippy::too_many_arguments, reason = "keywords in Python")]
pub(crate) fn resolve(
    py: Python<'_>,
    jobs: Option<BTreeMap<String, u32>>,
    roles: Option<&str>,
    on: &str,
    variables: HashMap<String, String>,
    here: bool,
    place: &str,
    gpus_per_node: Option<u32>,
    gpus_per_task: Option<u32>,
    ps_gpus: u32,
    bind_gpus: bool,
    cpus_per_task: Option<u32>,
) -> PyResult<Plan> {
    let unknown = |what: &str, found: &str, known: &str| {
        pyo3::exceptions::PyValueError::new_err(format!("{what}={found:?}: expected {known}"))
    };
    let on = On::named(on).ok_or_else(|| {
        let names: Vec<&str> = On::names().collect();
        unknown("on", on, &format!("one of {}", names.join(", ")))
    })?;
    let place = match place {
        "pack" => PsPlace::Pack,
        "spread" => PsPlace::Spread,
        other => return Err(unknown("place", other, "pack or spread")),
    };
    let roles = match (jobs, roles) {
        (_, Some(roles)) => roles.parse::<RoleList>().map(RoleRequest::List),
        (Some(jobs), None) => request(&jobs, place),
        (None, None) => Ok(RoleRequest::default()),
    }
    .map_err(|error| error.raise(py))?;
    let gpus =
        GpuRequest { per_node: gpus_per_node, per_task: gpus_per_task, ps: ps_gpus, binding: bind_gpus };
    let job = JobSpec { roles, gpus, cpus_per_task };
    let (environ, allocation) = py.detach(|| {
        let environ = if here { Environ::here_with(variables) } else { Environ::from_variables(variables) };
        let environ = environ.with_named_files(&scheduler::named_files());
        let allocation = scheduler::allocation(&environ, on, &job.roles);
        (environ, allocation)
    });
    let allocation = allocation.map_err(|error| error.raise(py))?;
    let plan = plan::Plan::new(allocation, &job).map_err(|error| error.raise(py))?;
    Ok(Plan { plan, environ })
}

/// Counts by role, dealt over the ranks by name, as TensorFlow's own resolver does.
fn request(jobs: &BTreeMap<String, u32>, place: PsPlace) -> Result<RoleRequest, RoleError> {
    let count = |role: &str| jobs.get(role).copied().unwrap_or(0);
    let usual = ["chief", "evaluator", "ps", "worker"];
    let singles = count("chief") <= 1 && count("evaluator") <= 1;
    if place == PsPlace::Spread && singles && jobs.keys().all(|role| usual.contains(&role.as_str())) {
        return Ok(RoleRequest::Counts {
            chief: count("chief") == 1,
            evaluator: count("evaluator") == 1,
            ps: count("ps"),
            workers: Workers::Count(count("worker")),
            place,
        });
    }
    let list: Vec<String> =
        jobs.iter().filter(|(_, count)| **count > 0).map(|(role, count)| format!("{role}*{count}")).collect();
    if list.is_empty() {
        return Err(RoleError::Nobody);
    }
    list.join(",").parse().map(RoleRequest::List)
}

fn addressing(
    py: Python<'_>,
    interface: Option<String>,
    network: Option<&str>,
    host_suffix: Option<String>,
    host_map: Option<&str>,
) -> PyResult<Addressing> {
    let rule = match (host_suffix, host_map) {
        (Some(suffix), _) => HostRule::Suffix(suffix),
        (None, Some(map)) => {
            let map: HostMap =
                map.parse().map_err(|error: rallypoint::address::AddressError| error.raise(py))?;
            HostRule::Map(map)
        }
        (None, None) => HostRule::Name,
    };
    let own = choice(py, interface, network)?.map(|choice| own_address(&choice)).transpose();
    Ok(Addressing { rule, own: own.map_err(|error| error.raise(py))? })
}

/// The variables that mask GPUs.
#[pyfunction]
pub(crate) fn gpu_masks() -> [&'static str; 5] {
    devices::MASKS
}
