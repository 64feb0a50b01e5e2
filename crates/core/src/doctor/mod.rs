//! What is detected here, from which variables, and what is missing.
//!
//! [`Report::new`] gathers; nothing in it can fail, and what is absent is said to be absent.

mod network;
mod tensorflow;

pub use network::{InterfaceReport, Kind};
pub use tensorflow::TensorFlowReport;

use crate::allocation::Scheduler;
use crate::devices::{self, MASKS};
use crate::environ::Environ;
use crate::machine::{Cpus, GpuProbe};
use crate::scheduler::{self, slurm};
use crate::variables as var;
use serde::Serialize;

/// Everything `doctor` says.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    pub origin: String,
    pub scheduler: SchedulerReport,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    pub interfaces: Vec<InterfaceReport>,
    pub gpus: GpuReport,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<CpuReport>,
    pub proxies: Vec<ProxyReport>,
    pub tensorflow: TensorFlowReport,
}

/// The scheduler, and the variables that told.
#[derive(Debug, Clone, Serialize)]
pub struct SchedulerReport {
    pub name: Scheduler,
    pub because: Vec<VariableReport>,
    pub missing: Vec<&'static str>,
    /// `task of a step`, `batch script or shell of an allocation`, ...
    pub context: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

#[derive(Debug, Clone, Serialize)]
pub struct VariableReport {
    pub name: String,
    pub value: String,
}

#[derive(Debug, Clone, Serialize)]
pub struct GpuReport {
    pub devices: Vec<String>,
    pub how: String,
}

#[derive(Debug, Clone, Serialize)]
pub struct CpuReport {
    pub usable: u32,
    pub online: u32,
    pub affinity: Option<u32>,
    pub cgroup_quota: Option<u32>,
}

/// A proxy variable, and what gRPC will do with it.
#[derive(Debug, Clone, Serialize)]
pub struct ProxyReport {
    pub name: String,
    pub value: String,
    pub warning: String,
}

/// Variables that gRPC takes for a proxy, the first that is set wins.
const PROXIES: [&str; 3] = [var::GRPC_PROXY, var::HTTPS_PROXY_LOWER, var::HTTP_PROXY_LOWER];

impl Report {
    /// Looks at an environment and at this machine.
    pub fn new(environ: &Environ) -> Report {
        Report {
            origin: environ.origin.clone(),
            scheduler: scheduler_report(environ),
            hostname: environ.hostname.clone(),
            interfaces: network::interfaces(),
            gpus: gpu_report(environ),
            cpus: environ.cpus.map(cpu_report),
            proxies: proxy_reports(environ),
            tensorflow: tensorflow::find(environ),
        }
    }
}

fn scheduler_report(environ: &Environ) -> SchedulerReport {
    let name = scheduler::detect(environ);
    let (looked_at, context): (&[&'static str], String) = match name {
        Scheduler::Slurm => {
            let (looked_at, context): (&[_], _) = match slurm::context(environ) {
                slurm::Context::Step => (&STEP_VARIABLES, "a task of a step"),
                slurm::Context::Launcher => {
                    (&JOB_VARIABLES, "inside an allocation but not in a step: start it with srun")
                }
            };
            (looked_at, context.to_owned())
        }
        Scheduler::HtCondor => {
            let universe = if environ.get(var::CONDOR_PROCNO).is_some() { "parallel" } else { "vanilla" };
            (&CONDOR_VARIABLES, format!("a job in the {universe} universe"))
        }
        Scheduler::Local | Scheduler::Hypothetical => (&[], "no scheduler's variables are set".to_owned()),
    };
    let (set, unset): (Vec<&str>, Vec<&str>) =
        looked_at.iter().partition(|variable| environ.get_nonempty(variable).is_some());
    let because = set
        .into_iter()
        .map(|name| VariableReport {
            name: name.to_owned(),
            value: shorten(environ.get(name).unwrap_or_default()),
        })
        .collect();
    let problem = scheduler::allocation(environ, scheduler::On::Auto, &Default::default())
        .err()
        .map(|error| error.to_string());
    SchedulerReport { name, because, missing: unset, context, problem }
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

const CONDOR_VARIABLES: [&str; 6] = [
    var::CONDOR_JOB_AD,
    var::CONDOR_MACHINE_AD,
    var::CONDOR_SLOT,
    var::CONDOR_PROCNO,
    var::CONDOR_NPROCS,
    var::CONDOR_ASSIGNED_GPUS,
];

fn gpu_report(environ: &Environ) -> GpuReport {
    let names = |devices: &[devices::Device]| devices.iter().map(|device| device.to_string()).collect();
    let mask = MASKS.into_iter().find_map(|mask| environ.get(mask).map(|value| (mask, value)));
    match (mask, &environ.gpus) {
        (Some((variable, value)), _) => match devices::parse_mask(variable, value) {
            Ok(list) => GpuReport { devices: names(&list), how: format!("{variable}={value}") },
            Err(error) => GpuReport { devices: Vec::new(), how: error.to_string() },
        },
        (None, GpuProbe::Listed(list)) => {
            GpuReport { devices: names(list), how: "nvidia-smi --list-gpus".to_owned() }
        }
        (None, GpuProbe::Failed(reason)) => GpuReport { devices: Vec::new(), how: reason.clone() },
        (None, GpuProbe::NoTool) => GpuReport {
            devices: Vec::new(),
            how: "no mask variable is set and nvidia-smi is not on PATH".to_owned(),
        },
        (None, GpuProbe::NotDone) => {
            GpuReport { devices: Vec::new(), how: "no mask variable is set".to_owned() }
        }
    }
}

fn cpu_report(cpus: Cpus) -> CpuReport {
    CpuReport {
        usable: cpus.usable(),
        online: cpus.online,
        affinity: cpus.affinity,
        cgroup_quota: cpus.quota,
    }
}

fn proxy_reports(environ: &Environ) -> Vec<ProxyReport> {
    let spared = environ.get_nonempty(var::NO_PROXY_LOWER);
    PROXIES
        .into_iter()
        .filter_map(|name| environ.get_nonempty(name).map(|value| (name, value)))
        .map(|(name, value)| ProxyReport {
            name: name.to_owned(),
            value: without_password(value),
            warning: match spared {
                None => "gRPC sends its traffic there, even to localhost, and hangs; unset it or name the hosts in no_proxy".to_owned(),
                Some(hosts) => format!("gRPC sends its traffic there, but for no_proxy={}; are all hosts named?", shorten(hosts)),
            },
        })
        .collect()
}

/// `http://user:secret@proxy:3128` without the secret.
fn without_password(url: &str) -> String {
    match (url.find("://"), url.rfind('@')) {
        (Some(scheme), Some(at)) if at > scheme => format!("{}***{}", &url[..scheme + 3], &url[at..]),
        _ => url.to_owned(),
    }
}

fn shorten(value: &str) -> String {
    match value.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", &value[..end]),
        None => value.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_that_has_only_the_job_id_says_what_is_missing() {
        let environ = Environ::from_variables([("SLURM_JOB_ID", "7")]);
        let report = scheduler_report(&environ);
        assert_eq!(report.name, Scheduler::Slurm);
        assert!(report.context.contains("start it with srun"));
        assert!(report.missing.contains(&"SLURM_STEP_NODELIST"));
        assert_eq!(
            report.problem.as_deref(),
            Some("SLURM_STEP_NODELIST is not set, though SLURM_JOB_ID is; hint: start it with srun")
        );
    }

    #[test]
    fn proxies_are_told_without_their_passwords() {
        let environ = Environ::from_variables([("http_proxy", "http://me:secret@proxy:3128")]);
        let reports = proxy_reports(&environ);
        assert_eq!(reports[0].value, "http://***@proxy:3128");
        assert!(reports[0].warning.contains("hangs"));
    }
}
