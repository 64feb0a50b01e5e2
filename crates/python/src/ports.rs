//! Held ports.

use crate::errors::Raise;
use crate::spelling::keyword_of_hold_port;
use pyo3::prelude::*;
use rallypoint::ports::{self, HandOver, PortChoice};
use std::sync::Mutex;

/// A port that nobody else can have, until a server takes it over.
///
/// It is bound and never listens. After `hand_over()` a server of this machine can listen on it,
/// beside the holder and without a gap.
#[pyclass(frozen, module = "rallypoint")]
#[derive(Debug)]
pub(crate) struct HeldPort {
    #[pyo3(get)]
    port: u16,
    held: Mutex<Option<ports::HeldPort>>,
}

impl HeldPort {
    pub(crate) fn new(held: ports::HeldPort) -> HeldPort {
        HeldPort { port: held.port(), held: Mutex::new(Some(held)) }
    }

    fn with<T>(&self, act: impl FnOnce(&mut Option<ports::HeldPort>) -> T) -> T {
        // Nothing panics while it is locked; and if it did, the port would still be the port.
        act(&mut self.held.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }
}

#[pymethods]
impl HeldPort {
    /// True until it is released.
    #[getter]
    fn held(&self) -> bool {
        self.with(|held| held.is_some())
    }

    /// From now on a server may listen on it.
    fn hand_over(&self) -> PyResult<()> {
        self.with(|held| held.as_mut().map_or(Ok(()), ports::HeldPort::open))?;
        Ok(())
    }

    /// Gives it up.
    fn release(&self) {
        self.with(|held| *held = None);
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __exit__(
        &self,
        _kind: Option<Bound<'_, PyAny>>,
        _value: Option<Bound<'_, PyAny>>,
        _traceback: Option<Bound<'_, PyAny>>,
    ) {
        self.release();
    }

    /// The number, wherever Python wants one.
    fn __index__(&self) -> u16 {
        self.port
    }

    fn __str__(&self) -> String {
        self.port.to_string()
    }

    fn __repr__(&self) -> String {
        format!("<HeldPort {}{}>", self.port, if self.held() { "" } else { ", released" })
    }
}

/// Holds a free port, of `range` (first and last) or any; or this very `port`.
#[pyfunction]
#[pyo3(signature = (range = None, *, port = None))]
pub(crate) fn hold_port(py: Python<'_>, range: Option<(u16, u16)>, port: Option<u16>) -> PyResult<HeldPort> {
    let choice = port_choice(port, range)?;
    ports::HeldPort::take(&choice, 0, HandOver::ReuseAddr)
        .map(HeldPort::new)
        .map_err(|error| error.raise_spelled(py, keyword_of_hold_port))
}

/// A port, a range of ports, or any.
pub(crate) fn port_choice(port: Option<u16>, range: Option<(u16, u16)>) -> PyResult<PortChoice> {
    let bad = |text: String| Err(pyo3::exceptions::PyValueError::new_err(text));
    match (port, range) {
        (Some(_), Some(_)) => bad("a port and a range of ports are both given".to_owned()),
        (Some(0), None) => bad("port 0 is no port; expected 1 to 65535".to_owned()),
        (Some(port), None) => Ok(PortChoice::Base(port)),
        (None, Some((first, last))) if first == 0 || last < first => {
            bad(format!("({first}, {last}) is no range of ports; expected such as (20000, 20999)"))
        }
        (None, Some((first, last))) => Ok(PortChoice::Range(first..=last)),
        (None, None) => Ok(PortChoice::Any),
    }
}

/// True if a port of this machine is somebody's: listened on, or held.
#[pyfunction]
pub(crate) fn port_in_use(port: u16) -> PyResult<bool> {
    match port {
        0 => Err(pyo3::exceptions::PyValueError::new_err("port 0 is no port; expected 1 to 65535")),
        port => Ok(ports::is_in_use(port)),
    }
}
