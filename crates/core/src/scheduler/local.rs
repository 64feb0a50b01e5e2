//! A plain machine: as many slots as asked for, CPUs and GPUs split among them.

use super::{AllocationError, MeetRequest, PlaceError, Scheduler, Surroundings};
use crate::allocation::{Allocation, Host, HostGpus, HostNames, Slot, Source, places};
use crate::environ::Environ;
use crate::machine::GpuProbe;
use crate::rendezvous::WayToMeet;
use crate::roles::RoleRequest;

/// The room of a plain machine, which is what is left where no scheduler runs us.
#[derive(Debug)]
pub struct Local;

pub(crate) const SOURCE: Source = Source {
    name: "local",
    title: "a plain machine",
    heading: "This machine",
    hosts: HostNames::Own,
    shares_output: false,
};

impl Scheduler for Local {
    fn source(&self) -> Source {
        SOURCE
    }

    fn proof(&self) -> &'static [&'static str] {
        &[]
    }

    fn allocation(&self, environ: &Environ, roles: &RoleRequest) -> Result<Allocation, AllocationError> {
        allocation(environ, roles)
    }

    fn look_around(&self, _environ: &Environ) -> Surroundings {
        let context = "no scheduler's variables are set".to_owned();
        Surroundings { variables: Vec::new(), context }
    }

    /// All members run here, unless the user says where to meet others.
    fn automatic_way(&self, _request: &MeetRequest<'_>) -> Result<Option<WayToMeet>, PlaceError> {
        Ok(None)
    }
}

pub(crate) fn allocation(environ: &Environ, roles: &RoleRequest) -> Result<Allocation, AllocationError> {
    let world = roles.count_on_plain_machine()?;
    let mut notes = Vec::new();
    let gpus = match (environ.gpu_mask()?, &environ.gpus) {
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
        scheduler: SOURCE,
        job: None,
        attempt: 0,
        restarts: None,
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
