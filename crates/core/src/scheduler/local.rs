//! A plain machine: as many slots as asked for, CPUs and GPUs split among them.

use super::AllocationError;
use crate::allocation::{Allocation, Host, HostGpus, Scheduler, Slot, places};
use crate::devices;
use crate::environ::Environ;
use crate::machine::GpuProbe;
use crate::roles::RoleRequest;

pub fn allocation(environ: &Environ, roles: &RoleRequest) -> Result<Allocation, AllocationError> {
    let world = roles.count_on_plain_machine()?;
    let mut notes = Vec::new();
    let gpus = match (devices::mask(environ)?, &environ.gpus) {
        (Some(mask), _) => mask,
        (None, GpuProbe::Listed(listed)) => listed.clone().into(),
        (None, GpuProbe::Failed(reason)) => {
            notes.push(format!("no GPU is used: {reason}"));
            Vec::new().into()
        }
        (None, GpuProbe::NoTool | GpuProbe::NotDone) => Vec::new().into(),
    };
    let name = environ.hostname.clone().unwrap_or_else(|| "localhost".to_owned());
    let cpus = environ.cpus.map(|cpus| (cpus.usable() / world).max(1));
    Ok(Allocation {
        scheduler: Scheduler::Local,
        job: None,
        attempt: 0,
        apart: None,
        hosts: vec![Host { name, gpus: HostGpus::Shared(gpus) }],
        slots: places(std::iter::repeat_n(0, world as usize), 1)
            .into_iter()
            .map(|place| Slot { place: Some(place), cpus })
            .collect(),
        me: None,
        bound: None,
        deadline: None,
        ports: None,
        notes,
    })
}
