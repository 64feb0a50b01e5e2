//! A meeting in this process: without the GIL, and Ctrl-C ends it.

use crate::errors::Raise;
use crate::plan::Plan;
use crate::ports::port_choice;
use crate::spelling::keyword;
use pyo3::exceptions::{PyException, PyValueError};
use pyo3::prelude::*;
use rallypoint::ports::{HandOver, HeldPort};
use rallypoint::rendezvous::message::Seat;
use rallypoint::rendezvous::{Exchanged, JoinRequest, Meeting, WayToMeet, exchange, settle};
use rallypoint::roster::{Addressing, Endpoint, Roster};
use rallypoint::scheduler::{Place, PlaceError, PlaceRequest, place};
use rallypoint_english::English;
use std::sync::Mutex;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

/// How long a member that was lost may take to come back.
const REJOIN: Duration = Duration::from_secs(10);
/// How often Python is asked whether a Ctrl-C has come.
const TICK: Duration = Duration::from_millis(50);

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
    let ports = port_choice(ask.port_base, ask.port_range)?;
    let request = place_request(plan, &ask)?;
    let (way, meeting) = match find_place(py, &request, plan)?.map_err(|error| error.raise(py))? {
        Some(Place { way, meeting }) => (Some(way), meeting),
        None if plan.plan.world() == 1 => (
            None,
            Meeting { rank: Some(0), key: None, timeout: request.timeout, job: request.job, listen: None },
        ),
        None => {
            let (problem, hint) = ("no place to meet is known here", "give a directory to meet in");
            return Err(crate::errors::raise(py, "MeetingError", problem, Some(hint)));
        }
    };
    let port = meeting.hold_port(&plan.plan, &ports, HandOver::ReuseAddr).map_err(|error| error.raise(py))?;
    let join_request = meeting
        .join_request(&plan.plan, plan.environ.hostname.as_deref(), &ask.addressing, port.port(), REJOIN)
        .map_err(|error| error.raise(py))?;
    let Exchanged { rank, members } = match way {
        Some(way) => exchanged(py, plan, way, join_request, ask.say.as_ref())?,
        None => alone(join_request, port.port()),
    };
    Ok((settled(py, plan, rank, members)?, port))
}

/// What was asked for, if it can be.
fn place_request(plan: &Plan, ask: &Ask<'_>) -> PyResult<PlaceRequest> {
    let timeout = Duration::try_from_secs_f64(ask.timeout)
        .map_err(|_| PyValueError::new_err(format!("timeout={}: no time", ask.timeout)))?;
    if let Some(rank) = ask.rank.filter(|&rank| rank >= plan.plan.world()) {
        let text = format!("rank={rank}: expected 0 to {}", plan.plan.world() - 1);
        return Err(PyValueError::new_err(text));
    }
    Ok(PlaceRequest {
        meet: Some(ask.way.to_owned()),
        rank: ask.rank,
        job: ask.job.clone(),
        timeout,
        listen: None,
    })
}

/// The only member: nobody has to be asked.
fn alone(JoinRequest { offer, .. }: JoinRequest, port: u16) -> Exchanged {
    let address = match (offer.chosen, offer.addresses.into_iter().next()) {
        (true, Some(address)) => address,
        _ => "127.0.0.1".to_owned(),
    };
    let endpoint = Endpoint { address, port };
    Exchanged { rank: 0, members: vec![Seat { host: offer.host, machine: 0, endpoint }] }
}

/// Meets the others, without the GIL. What Python raises meanwhile ends it: a Ctrl-C, say.
fn exchanged(
    py: Python<'_>,
    plan: &Plan,
    way: WayToMeet,
    join_request: JoinRequest,
    say: Option<&Py<PyAny>>,
) -> PyResult<Exchanged> {
    let raised: Mutex<Option<PyErr>> = Mutex::new(None);
    let met = py.detach(|| {
        let keep = |error: PyErr| {
            let text = error.to_string();
            if let Ok(mut raised) = raised.lock() {
                raised.get_or_insert(error);
            }
            text
        };
        let english = English::new(keyword);
        let mut tell = |line: String| {
            let Some(say) = say else { return };
            Python::attach(|py| match say.call1(py, (line,)) {
                Ok(_) => {}
                // A listener that fails does not end the wait, but it is told.
                Err(error) if error.is_instance_of::<PyException>(py) => {
                    error.write_unraisable(py, Some(say.bind(py)));
                }
                Err(error) => _ = keep(error),
            });
        };
        let mut say = |event| english.lines(&event).into_iter().for_each(&mut tell);
        let mut go_on = || match raised.lock().is_ok_and(|raised| raised.is_some()) {
            true => Err("interrupted".to_owned()),
            false => Python::attach(|py| py.check_signals().map_err(keep)),
        };
        exchange(way, join_request, &plan.plan, &mut say, &mut go_on)
    });
    match raised.into_inner() {
        Ok(Some(raised)) => Err(raised),
        _ => met.map_err(|error| error.raise(py)),
    }
}

/// Looks for the place on a thread of its own: names, file servers and submit hosts may take long to answer, and Ctrl-C
/// ends the wait at once.
fn find_place(
    py: Python<'_>,
    request: &PlaceRequest,
    plan: &Plan,
) -> PyResult<Result<Option<Place>, PlaceError>> {
    let (request, environ, plan) = (request.clone(), plan.environ.clone(), plan.plan.clone());
    let (send, mut receive) = std::sync::mpsc::channel();
    std::thread::Builder::new().name("rallypoint-place".to_owned()).spawn(move || {
        _ = send.send(place(&request, &environ, &plan));
    })?;
    loop {
        let receive = &mut receive;
        match py.detach(move || receive.recv_timeout(TICK)) {
            Ok(found) => return Ok(found),
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            Err(RecvTimeoutError::Disconnected) => {
                let text = "the place to meet was not looked for to the end";
                return Err(crate::errors::raise(py, "MeetingError", text, None));
            }
        }
    }
}

fn settled(py: Python<'_>, plan: &Plan, rank: u32, members: Vec<Seat>) -> PyResult<Roster> {
    settle(plan.plan.clone(), plan.environ.cpus, Some(rank), members).map_err(|error| error.raise(py))
}
