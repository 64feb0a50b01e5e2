//! The core's errors as the exceptions of `rallypoint.errors`, with hints that name Python's keywords.

use crate::spelling::keyword;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use rallypoint::address::AddressError;
use rallypoint::hint::{Hinted, Setting};
use rallypoint::hostlist::{FoldError, HostListError};
use rallypoint::plan::PlanError;
use rallypoint::ports::PortError;
use rallypoint::rendezvous::{RendezvousError, SettleError};
use rallypoint::roles::RoleError;
use rallypoint::roster::RosterError;
use rallypoint::scheduler::slurm::CountsError;
use rallypoint::scheduler::{AllocationError, PlaceError};

/// An error that has its class in `rallypoint.errors`.
pub(crate) trait Raise: Hinted + Sized {
    fn class(&self) -> &'static str;

    fn raise(&self, py: Python<'_>) -> PyErr {
        self.raise_spelled(py, keyword)
    }

    /// With a hint whose settings `spell` names.
    fn raise_spelled(&self, py: Python<'_>, spell: fn(Setting, Option<&str>) -> String) -> PyErr {
        let hint = self.hint().map(|hint| hint.spelled(spell));
        raise(py, self.class(), &self.to_string(), hint.as_deref())
    }
}

/// The exception of this name, with this problem and hint.
pub(crate) fn raise(py: Python<'_>, class: &str, problem: &str, hint: Option<&str>) -> PyErr {
    match exception(py, class, problem, hint) {
        Ok(exception) => PyErr::from_value(exception),
        Err(error) => error,
    }
}

fn exception<'py>(
    py: Python<'py>,
    class: &str,
    problem: &str,
    hint: Option<&str>,
) -> PyResult<Bound<'py, PyAny>> {
    let keywords = PyDict::new(py);
    keywords.set_item("hint", hint)?;
    py.import("rallypoint.errors")?.getattr(class)?.call((problem,), Some(&keywords))
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
