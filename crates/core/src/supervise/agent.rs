//! The agent: one event loop that sees everything in order and does what the job decides.
//!
//! Three ways through it: all members here ([`run_here`]); one member of many, as the leader, which
//! also decides for the others; one member of many, following the leader ([`run_member`]).

use super::conductor::Conductor;
use super::event_loop::{ending, in_event_loop};
use super::follower::follow;
use super::others::Others;
use super::run::{AgentError, Prepared, Tell, io, settled};
use super::signals::Signals;
use super::stream::Stream;
use crate::allocation::IndependentRestarts;
use crate::clock;
use crate::event::RunEvent;
use crate::hint;
use crate::job::Job;
use crate::outcome::{Farewell, Outcome};
use crate::ports::HeldPort;
use crate::process::limits::DescriptorLimit;
use crate::rendezvous::{
    self, Attended, Gathered, Leader, Meeting, Met, RendezvousError, Seeker, Wait, WayToMeet,
};
use crate::roster::{Endpoint, Roster};
use crate::signal;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

/// Runs all members on this machine.
pub(crate) fn run_here(run: Prepared, guard: Option<OwnedFd>, tell: Tell<'_>) -> Result<Outcome, AgentError> {
    let descriptors = DescriptorLimit::raise_for(run.plan.members().len(), 0)?;
    in_event_loop(async move {
        let mut signals = Signals::of(guard).map_err(io("signals"))?;
        let mut held = BTreeMap::new();
        let mut endpoints = Vec::new();
        let address = match &run.spec.addressing.own {
            Some(own) => own.to_string(),
            None => "127.0.0.1".to_owned(),
        };
        for member in run.plan.members() {
            let local_rank = member.place.map_or(member.rank, |place| place.local_rank);
            let port = HeldPort::take(&run.spec.ports, local_rank, run.spec.hand_over)?;
            endpoints.push(Endpoint { address: address.clone(), port: port.port() });
            held.insert(member.rank, port);
        }
        let Prepared { plan, environ, spec } = run;
        let deadline = plan.deadline().or_else(|| spec.ask_deadline?(&environ));
        let roster = Roster::met(plan.with_deadline(deadline), endpoints)?;
        let job =
            Job::new(roster.plan(), spec.rules.clone()).ok_or_else(|| AgentError::nobody(&spec.rules))?;
        let stream = Stream::open(&spec, roster.plan().attempt(), tell);
        let mut conductor = Conductor::new(roster, job, held, descriptors, &spec, &environ, stream)?;
        conductor.begin(signals.suspended);
        Ok(conductor.run(&mut signals).await)
    })
}

/// Runs one member, after meeting the others.
pub(crate) fn run_member(
    run: Prepared,
    meeting: &Meeting,
    way: WayToMeet,
    guard: Option<OwnedFd>,
    tell: Tell<'_>,
) -> Result<Outcome, AgentError> {
    // Any of them may come to lead the others.
    let descriptors = DescriptorLimit::raise_for(1, run.plan.members().len())?;
    // It is dropped behind the loop, and takes back what was published.
    let mut seeker = Seeker::new(way);
    let way = &mut seeker;
    in_event_loop(async move {
        let signals = Signals::of(guard).map_err(io("signals"))?;
        meet_and_run(run, meeting, way, descriptors, signals, tell).await
    })
}

/// The same in an event loop that is there already, with the pipe from its guard.
#[cfg(feature = "simulation")]
pub(crate) async fn simulate_member(
    run: Prepared,
    meeting: &Meeting,
    way: &mut Seeker,
    guard: crate::process::Pipe,
    tell: Tell<'_>,
) -> Result<Outcome, AgentError> {
    let descriptors = DescriptorLimit::raise_for(1, run.plan.members().len())?;
    let signals = Signals::new(Some(guard)).map_err(io("signals"))?;
    meet_and_run(run, meeting, way, descriptors, signals, tell).await
}

/// The event loop of [`run_member`].
async fn meet_and_run(
    run: Prepared,
    meeting: &Meeting,
    way: &mut Seeker,
    descriptors: DescriptorLimit,
    mut signals: Signals,
    tell: Tell<'_>,
) -> Result<Outcome, AgentError> {
    // Whoever asks for something impossible hears it before the others have come.
    Job::new(&run.plan, run.spec.rules.clone()).ok_or_else(|| AgentError::nobody(&run.spec.rules))?;
    let port = meeting.hold_port(&run.plan, &run.spec.ports, run.spec.hand_over)?;
    let mut join_request = meeting.join_request(
        &run.plan,
        run.environ.hostname.as_deref(),
        &run.spec.addressing,
        port.port(),
        run.spec.grace,
    )?;
    tell(RunEvent::Meeting { way: way.name().to_owned() });
    if let Some(IndependentRestarts { previous_runs: runs @ 1.., others_retry: false }) = run.plan.restarts()
    {
        tell(RunEvent::RanBefore { runs });
    }
    let mut wait = Wait::begin(join_request.timeout);
    loop {
        let stopped = ending(&mut signals);
        match rendezvous::attend(way, &mut join_request, &run.plan, wait, stopped, tell).await? {
            Attended::Leader(leader) => {
                return lead(run, *leader, port, descriptors, &mut signals, tell).await;
            }
            Attended::Member { link, roster } => {
                return follow(run, link, roster, port, descriptors, &mut signals, tell).await;
            }
            Attended::Over { code, farewell } => {
                let others_retry = run.plan.restarts().is_some_and(|restarts| restarts.others_retry);
                let meets_again = code != 0 && others_retry;
                tell(RunEvent::AttemptOver { code, farewell: farewell.clone(), meets_again });
                if !meets_again {
                    return Ok(Outcome::Part { code, farewell: Some(farewell) });
                }
                wait = Wait::begin(join_request.timeout);
            }
        }
    }
}

/// The leader of many: gathers, then decides for all.
async fn lead(
    run: Prepared,
    mut leader: Leader,
    port: HeldPort,
    descriptors: DescriptorLimit,
    signals: &mut Signals,
    tell: Tell<'_>,
) -> Result<Outcome, AgentError> {
    let started = clock::real();
    // Only the leader asks: a scheduler that every member asked would have a lot to do.
    if let Some(ask) = run.spec.ask_deadline {
        let environ = run.environ.clone();
        leader.ask_deadline(move || ask(&environ));
    }
    let mut stream = Stream::open(&run.spec, run.plan.attempt(), tell);
    let gathered = tokio::select! {
        gathered = leader.gather(&run.plan, |event| stream.emit(event)) => gathered,
        number = ending(signals) => Err(RendezvousError::Interrupted(signal::name(number))),
    };
    let Gathered { rank, met: Met { attempt, deadline, runs, members, remotes, roster: handout } } =
        match gathered {
            Ok(gathered) => gathered,
            Err(error) => {
                leader.dismiss(&error, AgentError::code_of(&error)).await;
                return Err(error.into());
            }
        };
    let held = BTreeMap::from([(rank, port)]);
    let settled = settled(run, Some(rank), attempt, deadline, members);
    let mut conductor = match Conductor::of(settled, held, descriptors, stream) {
        Ok(conductor) => conductor,
        Err(error) => {
            leader.say_goodbye(remotes, error.code(), Farewell::Error(hint::in_full(&error))).await;
            return Err(error);
        }
    };
    handout.hand_out(&remotes);
    let world = conductor.roster.plan().world();
    conductor
        .stream
        .emit(RunEvent::Gathered { world, seconds: clock::real().saturating_duration_since(started) });
    conductor.others = Some(Others::new(leader, remotes, runs));
    conductor.begin(signals.suspended);
    Ok(conductor.run(signals).await)
}
