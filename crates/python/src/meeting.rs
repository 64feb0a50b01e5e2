//! A meeting in this process: without the GIL, and Ctrl-C ends it.

use crate::errors::Raise;
use crate::plan::Plan;
use crate::ports::port_choice;
use pyo3::prelude::*;
use rallypoint::ports::{HandOver, HeldPort};
use rallypoint::rendezvous::{Exchanged, Place, PlaceRequest, exchange, place, settle};
use rallypoint::roster::{Addressing, Roster};
use std::time::Duration;

/// How long a member that was lost may take to come back.
const REJOIN: Duration = Duration::from_secs(10);

/// What the caller asks for.
pub(crate) struct Ask<'a> {
    pub(crate) way: &'a str,
    pub(crate) rank: Option<u32>,
    pub(crate) job: Option<String>,
    pub(crate) timeout: f64,
    pub(crate) port_base: Option<u16>,
    pub(crate) port_range: Option<(u16, u16)>,
    pub(crate) addressing: Addressing,
    pub(crate) say: Option<Py<PyAny>>,
}

pub(crate) fn meet(py: Python<'_>, plan: &Plan, ask: Ask<'_>) -> PyResult<(Roster, HeldPort)> {
    let timeout = Duration::try_from_secs_f64(ask.timeout)
        .map_err(|_| pyo3::exceptions::PyValueError::new_err(format!("timeout={}: no time", ask.timeout)))?;
    let ports = port_choice(ask.port_base, ask.port_range)?;
    if let Some(rank) = ask.rank.filter(|&rank| rank >= plan.plan.world()) {
        let text = format!("rank={rank}: expected 0 to {}", plan.plan.world() - 1);
        return Err(pyo3::exceptions::PyValueError::new_err(text));
    }
    let request =
        PlaceRequest { meet: Some(ask.way.to_owned()), rank: ask.rank, job: ask.job.clone(), timeout };
    let place = place(&request, &plan.environ, &plan.allocation, &plan.plan);
    let Some(Place { mut way, meeting }) = place.map_err(|error| error.raise(py))? else {
        let text = "nobody else is to be met here; hint: give a directory to meet in";
        return Err(crate::errors::raise(py, "MeetingError", text.to_owned()));
    };
    let port = meeting.hold_port(&plan.plan, &ports, HandOver::ReuseAddr).map_err(|error| error.raise(py))?;
    let introduction = meeting
        .introduce(&plan.plan, plan.environ.hostname.as_deref(), &ask.addressing, port.port(), REJOIN)
        .map_err(|error| error.raise(py))?;
    // What Python raised while it was asked, to be raised again at the end.
    let mut raised: Option<PyErr> = None;
    let met = py.detach(|| {
        let mut say = |line: String| {
            if let Some(say) = &ask.say {
                // A listener that fails does not end the wait.
                Python::attach(|py| _ = say.call1(py, (line,)));
            }
        };
        let mut go_on = || {
            Python::attach(|py| {
                py.check_signals().map_err(|error| {
                    let text = error.to_string();
                    raised = Some(error);
                    text
                })
            })
        };
        exchange(way.as_mut(), introduction, &plan.plan, &mut say, &mut go_on)
    });
    if let Some(raised) = raised {
        return Err(raised);
    }
    let Exchanged { rank, members } = met.map_err(|error| error.raise(py))?;
    let (allocation, cpus) = (plan.allocation.clone(), plan.environ.cpus);
    let roster = settle(allocation, &plan.job, plan.plan.clone(), cpus, rank, members)
        .map_err(|error| error.raise(py))?;
    Ok((roster, port))
}
