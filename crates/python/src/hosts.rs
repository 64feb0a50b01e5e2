//! Host lists, counts, addresses, and where Slurm put the ranks of a step.

use crate::errors::Raise;
use pyo3::prelude::*;
use rallypoint::address::{Choice, Network};
use rallypoint::allocation::{HostGpus, Place};
use rallypoint::environ::Environ;
use rallypoint::hostlist::{HostList, Order};
use rallypoint::scheduler::{self, slurm};
use rallypoint::variables as var;
use rallypoint::{network, rendezvous};
use std::collections::HashMap;
use std::time::Duration;

/// Every name of a host list, in Slurm's order.
#[pyfunction]
pub(crate) fn expand_hostlist(py: Python<'_>, text: &str) -> PyResult<Vec<String>> {
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    let list: HostList =
        text.parse().map_err(|error: rallypoint::hostlist::HostListError| error.raise(py))?;
    Ok(list.names().collect())
}

/// The shortest host list for these names, in their order or sorted by name and number.
#[pyfunction]
#[pyo3(signature = (names, *, keep_order = true))]
pub(crate) fn fold_hostlist(py: Python<'_>, names: Vec<String>, keep_order: bool) -> PyResult<String> {
    let order = if keep_order { Order::Kept } else { Order::Sorted };
    HostList::fold(&names, order).map(|list| list.to_string()).map_err(|error| error.raise(py))
}

/// Slurm's run-length numbers: `2(x2),1` is 2, 2, 1.
#[pyfunction]
pub(crate) fn expand_counts(py: Python<'_>, text: &str) -> PyResult<Vec<u32>> {
    slurm::expand_counts(text).map_err(|error| error.raise(py))
}

/// Where Slurm put the ranks of a step, and this task's GPUs.
#[pyclass(frozen, module = "rallypoint")]
#[derive(Debug)]
pub(crate) struct Step {
    hosts: Vec<String>,
    /// `None` where the variables do not tell.
    places: Option<Vec<Place>>,
    /// The GPUs that this task sees.
    #[pyo3(get)]
    gpus: Vec<String>,
    /// True if they are this task's alone.
    #[pyo3(get)]
    bound: bool,
}

#[pymethods]
impl Step {
    /// True if every rank's host is told.
    #[getter]
    fn is_placed(&self) -> bool {
        self.places.is_some()
    }

    /// How many ranks have a place.
    #[getter]
    fn world(&self) -> usize {
        self.places.as_ref().map_or(0, Vec::len)
    }

    /// The host of a rank, and its number there.
    fn place(&self, rank: usize) -> Option<(&str, u32)> {
        let place = self.places.as_ref()?.get(rank)?;
        Some((&self.hosts[place.host as usize], place.local_rank))
    }

    /// Each rank's number on its host.
    fn local_ranks(&self) -> Vec<u32> {
        self.places.iter().flatten().map(|place| place.local_rank).collect()
    }

    /// `host:port` of `count` ranks from `first` on.
    fn addresses(&self, first: usize, count: usize, port_base: u32) -> Vec<String> {
        let places = self.places.iter().flatten().skip(first).take(count);
        let address = |place: &Place| {
            format!(
                "{}:{}",
                self.hosts[place.host as usize],
                u64::from(port_base) + u64::from(place.local_rank)
            )
        };
        places.map(address).collect()
    }
}

/// The step with these hosts and counts, as these variables tell it.
///
/// With `here`, GPUs that no mask names are looked for on this machine.
#[pyfunction]
pub(crate) fn slurm_step(
    py: Python<'_>,
    mut variables: HashMap<String, String>,
    rank: u32,
    hosts: Vec<String>,
    counts: Vec<u32>,
    here: bool,
) -> PyResult<Step> {
    let nodes = HostList::fold(&hosts, Order::Kept).map_err(|error| error.raise(py))?.to_string();
    let world: u64 = counts.iter().map(|&count| u64::from(count)).sum();
    let counts = counts.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    for (name, value) in [
        (var::SLURM_PROCID, rank.to_string()),
        (var::SLURM_STEP_NUM_TASKS, world.to_string()),
        (var::SLURM_STEP_NODELIST, nodes),
        (var::SLURM_STEP_TASKS_PER_NODE, counts),
    ] {
        variables.insert(name.to_owned(), value);
    }
    let allocation = py
        .detach(|| {
            let environ = match here {
                true => Environ::here_with(variables).with_named_files(&scheduler::named_files()),
                false => Environ::from_variables(variables),
            };
            slurm::allocation(&environ)
        })
        .map_err(|error| error.raise(py))?;
    let names = |devices: &[rallypoint::devices::Device]| devices.iter().map(ToString::to_string).collect();
    let own = allocation.slots.get(rank as usize).and_then(|slot| slot.place);
    let shared = own.map(|place| &allocation.hosts[place.host as usize].gpus);
    let (gpus, bound) = match (&allocation.bound, shared) {
        (Some(bound), _) => (names(bound), true),
        (None, Some(HostGpus::Shared(devices))) => (names(devices), false),
        (None, _) => (Vec::new(), false),
    };
    let places = allocation.slots.iter().map(|slot| slot.place).collect();
    Ok(Step { hosts: allocation.hosts.into_iter().map(|host| host.name).collect(), places, gpus, bound })
}

/// One of this machine's own addresses: of an interface, in a network, or the best for others.
#[pyfunction]
#[pyo3(signature = (interface = None, network = None))]
pub(crate) fn own_address(
    py: Python<'_>,
    interface: Option<String>,
    network: Option<&str>,
) -> PyResult<String> {
    match choice(py, interface, network)? {
        Some(choice) => {
            network::own_address(&choice).map(|address| address.to_string()).map_err(|error| error.raise(py))
        }
        None => match network::own_addresses().first() {
            Some(address) => Ok(address.to_string()),
            None => Err(rendezvous::RendezvousError::NoAddress.raise(py)),
        },
    }
}

/// An interface or a network, not both.
pub(crate) fn choice(
    py: Python<'_>,
    interface: Option<String>,
    network: Option<&str>,
) -> PyResult<Option<Choice>> {
    match (interface, network) {
        (Some(_), Some(_)) => Err(crate::errors::raise(
            py,
            "AddressError",
            "interface and network are both given",
            Some("one of them is enough"),
        )),
        (Some(interface), None) => Ok(Some(Choice::Interface(interface))),
        (None, Some(network)) => {
            let network: Network =
                network.parse().map_err(|error: rallypoint::address::AddressError| error.raise(py))?;
            Ok(Some(Choice::Network(network)))
        }
        (None, None) => Ok(None),
    }
}

/// For each `host:port`, whether somebody listens there; all are asked at once.
#[pyfunction]
pub(crate) fn reachable(py: Python<'_>, addresses: Vec<String>, timeout: f64) -> PyResult<Vec<bool>> {
    let limit = Duration::try_from_secs_f64(timeout).unwrap_or(Duration::from_secs(1));
    Ok(py.detach(|| network::reachable(&addresses, limit))?)
}
