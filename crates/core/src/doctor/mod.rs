//! What is detected here, from which variables, and what is missing.
//!
//! [`Report::new`] gathers; nothing in it can fail, and what is absent is said to be absent.

mod tensorflow;

pub use tensorflow::TensorFlowReport;

use crate::allocation::Source;
use crate::devices::{self, MASKS};
use crate::environ::Environ;
use crate::hint;
use crate::machine::{Cpus, GpuProbe};
use crate::network::{self, Interface};
use crate::scheduler::{self, Surroundings};
use crate::variables as var;
use serde::Serialize;

/// Everything `doctor` says.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Where the variables came from: `this process`, or a file.
    pub origin: String,
    /// The scheduler, and what told it.
    pub scheduler: SchedulerReport,
    /// This machine's name; unknown for a captured environment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// The addresses of this machine.
    pub interfaces: Vec<Interface>,
    /// GPUs, and how they were found.
    pub gpus: GpuReport,
    /// CPUs; unknown for a captured environment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<CpuReport>,
    /// Proxy variables that are set: gRPC heeds them.
    pub proxies: Vec<ProxyReport>,
    /// Where TensorFlow is.
    pub tensorflow: TensorFlowReport,
}

/// The scheduler, and the variables that told.
#[derive(Debug, Clone, Serialize)]
pub struct SchedulerReport {
    /// Which one.
    pub name: Source,
    /// Its variables that are set.
    pub because: Vec<VariableReport>,
    /// Its variables that are not.
    pub missing: Vec<&'static str>,
    /// `task of a step`, `batch script or shell of an allocation`, ...
    pub context: String,
    /// Why there is no allocation, with a hint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// A variable that is set.
#[derive(Debug, Clone, Serialize)]
pub struct VariableReport {
    /// Its name.
    pub name: String,
    /// Its value, shortened.
    pub value: String,
}

/// GPUs, and how they were found.
#[derive(Debug, Clone, Serialize)]
pub struct GpuReport {
    /// By name.
    pub devices: Vec<String>,
    /// The variable or the program that told, or why nobody could.
    pub how: String,
}

/// CPUs, and what limits them.
#[derive(Debug, Clone, Serialize)]
pub struct CpuReport {
    /// The smallest of the numbers below.
    pub usable: u32,
    /// CPUs of the machine.
    pub online: u32,
    /// Those that this process may run on.
    pub affinity: Option<u32>,
    /// A cgroup's quota, in CPUs, rounded up.
    pub cgroup_quota: Option<u32>,
}

/// A proxy variable, and what gRPC will do with it.
#[derive(Debug, Clone, Serialize)]
pub struct ProxyReport {
    /// The variable.
    pub name: String,
    /// Its value, without a password.
    pub value: String,
    /// What gRPC does with it, and what to do about that.
    pub warning: String,
}

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
    let scheduler = scheduler::detect(environ);
    let Surroundings { variables, context } = scheduler.look_around(environ);
    let (set, unset): (Vec<&str>, Vec<&str>) =
        variables.iter().partition(|variable| environ.get_nonempty(variable).is_some());
    let because = set
        .into_iter()
        .map(|name| VariableReport {
            name: name.to_owned(),
            value: shorten(environ.get(name).unwrap_or_default()),
        })
        .collect();
    let problem = scheduler::allocation(environ, scheduler::On::Auto, &Default::default())
        .err()
        .map(|error| hint::in_full(&error));
    SchedulerReport { name: scheduler.source(), because, missing: unset, context, problem }
}

fn gpu_report(environ: &Environ) -> GpuReport {
    let names = |devices: &[devices::Device]| devices.iter().map(|device| device.to_string()).collect();
    let mask = MASKS.into_iter().find_map(|mask| environ.get(mask).map(|value| (mask, value)));
    match (mask, &environ.gpus) {
        (Some((variable, value)), _) => match devices::parse_mask(variable, value) {
            Ok(list) => GpuReport { devices: names(&list), how: format!("{variable}={value}") },
            Err(error) => GpuReport { devices: Vec::new(), how: hint::in_full(&error) },
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
    crate::proxy::PROXIES
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
        assert_eq!(report.name.name, "slurm");
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
