//! What this machine has: host name, CPUs by affinity and cgroup, GPUs by `nvidia-smi`.
//!
//! One of the few files that touch the world. Parsing is apart from reading, so that it is tested
//! with real strings.

use crate::devices::{Device, is_device_name};
use crate::process::{find_on_path, run_with_limit};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// `nvidia-smi` takes seconds on a node whose driver sleeps; longer than this it hangs.
const NVIDIA_SMI_LIMIT: Duration = Duration::from_secs(20);

/// How GPUs were found when no mask names them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum GpuProbe {
    /// Nobody looked: the environment was captured elsewhere, or has a mask.
    #[default]
    NotDone,
    /// `nvidia-smi` is not on PATH: no NVIDIA GPU is assumed.
    NoTool,
    /// `nvidia-smi` listed these.
    Listed(Vec<Device>),
    /// `nvidia-smi` is there but did not work.
    Failed(String),
}

/// This machine's name, as the kernel has it.
pub(crate) fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// CPUs this process may use, and the reasons.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cpus {
    /// CPUs of the machine.
    pub online: u32,
    /// Those that this process may run on.
    pub affinity: Option<u32>,
    /// A cgroup's quota, in CPUs, rounded up.
    pub quota: Option<u32>,
}

impl Cpus {
    /// Those of this machine, for this process.
    pub(crate) fn here() -> Cpus {
        let affinity = rustix::thread::sched_getaffinity(None).ok().map(|set| set.count());
        let online = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
        Cpus { online: online.max(affinity.unwrap_or(1)), affinity, quota: cgroup_quota() }
    }

    /// The smallest of the limits.
    pub(crate) fn usable(&self) -> u32 {
        [self.affinity, self.quota].into_iter().flatten().chain([self.online]).min().unwrap_or(1).max(1)
    }
}

/// The tightest `cpu.max` from this process's cgroup up to the root.
fn cgroup_quota() -> Option<u32> {
    let membership = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let group = membership.lines().find_map(|line| line.strip_prefix("0::"))?;
    let mut folder = PathBuf::from("/sys/fs/cgroup").join(group.trim_start_matches('/'));
    let mut tightest = None;
    while folder.starts_with("/sys/fs/cgroup") {
        if let Some(quota) =
            std::fs::read_to_string(folder.join("cpu.max")).ok().and_then(|text| parse_cpu_max(&text))
        {
            tightest = Some(tightest.map_or(quota, |least: u32| least.min(quota)));
        }
        if !folder.pop() {
            break;
        }
    }
    tightest
}

/// `150000 100000` is 1.5 CPUs, so 2; `max 100000` is no limit.
fn parse_cpu_max(text: &str) -> Option<u32> {
    let mut fields = text.split_whitespace();
    let quota: u64 = fields.next()?.parse().ok()?;
    let period: u64 = fields.next()?.parse().ok().filter(|&period| period > 0)?;
    u32::try_from(quota.div_ceil(period)).ok().map(|cpus| cpus.max(1))
}

/// Asks `nvidia-smi --list-gpus`, found on `path`.
pub(crate) fn probe_gpus(path: Option<&str>) -> GpuProbe {
    let Some(program) = find_on_path("nvidia-smi", path) else { return GpuProbe::NoTool };
    match run_with_limit(Command::new(&program).arg("--list-gpus"), NVIDIA_SMI_LIMIT) {
        Ok(text) => GpuProbe::Listed(parse_nvidia_smi(&text)),
        Err(reason) => GpuProbe::Failed(format!("{}: {reason}", program.display())),
    }
}

/// Reads `nvidia-smi --list-gpus`. A GPU cut into MIG devices counts as those:
///
/// ```text
/// GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77)
///   MIG 3g.20gb     Device  0: (UUID: MIG-7c1c5d1d-3a1a-5d5a-9d5e-3f3f0e2b1c1a)
/// ```
pub(crate) fn parse_nvidia_smi(text: &str) -> Vec<Device> {
    let mut devices: Vec<Device> = Vec::new();
    let mut whole_gpu_is_last = false;
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        if line.trim_start().starts_with("MIG ") {
            let id = line.split("UUID: ").nth(1).map(|id| id.trim_end().trim_end_matches(')'));
            if let Some(id) = id.filter(|id| is_device_name(id)) {
                if std::mem::take(&mut whole_gpu_is_last) {
                    devices.pop();
                }
                devices.push(Device::new(id));
            }
            continue;
        }
        let index = line
            .strip_prefix("GPU ")
            .and_then(|rest| rest.split_once(':'))
            .map(|(index, _)| index.trim())
            .filter(|index| !index.is_empty() && index.bytes().all(|byte| byte.is_ascii_digit()));
        devices.push(match index {
            Some(index) => Device::new(index),
            None => Device::new(&devices.len().to_string()),
        });
        whole_gpu_is_last = true;
    }
    devices
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_whole_gpus_and_of_mig_devices() {
        let names = |text| parse_nvidia_smi(text).iter().map(|device| device.to_string()).collect::<Vec<_>>();
        assert_eq!(names(""), Vec::<String>::new());
        assert_eq!(names("GPU 0: Tesla K80 (UUID: GPU-aa)\nGPU 1: Tesla K80 (UUID: GPU-bb)\n"), ["0", "1"]);
        assert_eq!(
            names(
                "GPU 0: A100 (UUID: GPU-aa)\n  MIG 3g.20gb Device  0: (UUID: MIG-1)\n  MIG 3g.20gb Device  1: (UUID: MIG-2)\nGPU 1: A100 (UUID: GPU-bb)\n"
            ),
            ["MIG-1", "MIG-2", "1"]
        );
    }

    #[test]
    fn cgroup_quota_is_rounded_up() {
        assert_eq!(parse_cpu_max("150000 100000\n"), Some(2));
        assert_eq!(parse_cpu_max("max 100000\n"), None);
        assert_eq!(parse_cpu_max("50000 100000"), Some(1));
        assert_eq!(parse_cpu_max("5 0"), None);
    }
}
