//! The core's errors as the exceptions of `rallypoint.errors`, with the same texts and hints.

use pyo3::prelude::*;
use rallypoint::address::AddressError;
use rallypoint::hostlist::{FoldError, HostListError};
use rallypoint::plan::PlanError;
use rallypoint::ports::PortError;
use rallypoint::rendezvous::{RendezvousError, SettleError};
use rallypoint::roles::RoleError;
use rallypoint::roster::RosterError;
use rallypoint::scheduler::slurm::CountsError;
use rallypoint::scheduler::{AllocationError, PlaceError};

/// An error that has its class in `rallypoint.errors`.
pub(crate) trait Raise: std::fmt::Display {
    fn class(&self) -> &'static str;

    fn raise(&self, py: Python<'_>) -> PyErr {
        raise(py, self.class(), self.to_string())
    }
}

/// The exception of this name, with this text.
pub(crate) fn raise(py: Python<'_>, class: &str, text: String) -> PyErr {
    let exception = py.import("rallypoint.errors").and_then(|module| module.getattr(class)?.call1((text,)));
    match exception {
        Ok(exception) => PyErr::from_value(exception),
        Err(error) => error,
    }
}

impl Raise for AllocationError {
    fn class(&self) -> &'static str {
        match self {
            AllocationError::Roles(error) => error.class(),
            _ => "AllocationError",
        }
    }
}

impl Raise for PlanError {
    fn class(&self) -> &'static str {
        match self {
            PlanError::Roles(error) => error.class(),
            _ => "PlanError",
        }
    }
}

impl Raise for SettleError {
    fn class(&self) -> &'static str {
        match self {
            SettleError::Plan(error) => error.class(),
            SettleError::Roster(error) => error.class(),
        }
    }
}

impl Raise for RendezvousError {
    fn class(&self) -> &'static str {
        match self {
            RendezvousError::Missing { .. } | RendezvousError::NoLeader { .. } => "MeetingTimeout",
            _ => "MeetingError",
        }
    }
}

macro_rules! raises {
    ($($error:ty => $class:literal),* $(,)?) => {
        $(impl Raise for $error {
            fn class(&self) -> &'static str {
                $class
            }
        })*
    };
}

raises! {
    AddressError => "AddressError",
    CountsError => "HostListError",
    FoldError => "HostListError",
    HostListError => "HostListError",
    PortError => "PortError",
    PlaceError => "MeetingError",
    RoleError => "RoleError",
    RosterError => "RosterError",
}
