//! Launcher mode: this agent starts the step (such as `srun` does, one agent per task), leads it, and is no member of it.

use super::conductor::Conductor;
use super::event_loop::in_event_loop;
use super::launcher::{Launcher, STEP_END, Step};
use super::others::Others;
use super::run::{AgentError, Prepared, Tell, io, settled};
use super::signals::Signals;
use super::stream::Stream;
use crate::clock;
use crate::event::RunEvent;
use crate::hint;
use crate::job::Job;
use crate::outcome::{Farewell, Outcome};
use crate::plan::Plan;
use crate::process::limits::DescriptorLimit;
use crate::rendezvous::{Leader, Meeting, Met, RendezvousError, folded_roles};
use crate::roster::Addressing;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// Starts a step, leads it, and sees it out.
pub(crate) fn run_step(
    run: Prepared,
    meeting: &Meeting,
    launcher: &Launcher,
    guard: Option<OwnedFd>,
    tell: Tell<'_>,
) -> Result<Outcome, AgentError> {
    let descriptors = DescriptorLimit::raise_for(0, run.plan.members().len())?;
    in_event_loop(async move {
        let mut signals = Signals::of(guard).map_err(io("signals"))?;
        let hostname = run.environ.hostname.as_deref();
        let join_request =
            meeting.join_request(&run.plan, hostname, &Addressing::default(), 0, run.spec.grace)?;
        let (contact, mut leader) = Leader::of_step(&join_request).await?;
        let mut stream = Stream::open(&run.spec, run.plan.attempt(), tell);
        stream.emit(RunEvent::StepStarting { command: launcher.shown() });
        // Before the step and not beside it: from then on this agent waits for all its children alike.
        if let Some(deadline) = run.spec.ask_deadline.and_then(|ask| ask(&run.environ)) {
            leader.ask_deadline(move || Some(deadline));
        }
        let mut step = Step::start(launcher, &contact, descriptors)?;
        let started = clock::now();
        let (plan, Met { attempt, deadline, runs, members, remotes, roster: handout }) =
            match gather(&run, &mut leader, &mut step, &mut signals, &mut stream).await {
                Ok(met) => met,
                Err(error) => {
                    leader.dismiss(&error, AgentError::code_of(&error)).await;
                    // Nothing has started yet, so nothing needs a grace.
                    step.end(Duration::ZERO).await;
                    return Err(error.into());
                }
            };
        let settled = settled(Prepared { plan, ..run }, None, attempt, deadline, members);
        let mut conductor = match Conductor::of(settled, BTreeMap::new(), descriptors, stream) {
            Ok(conductor) => conductor,
            Err(error) => {
                leader.say_goodbye(remotes, error.code(), Farewell::Error(hint::in_full(&error))).await;
                step.end(STEP_END).await;
                return Err(error);
            }
        };
        handout.hand_out(&remotes);
        let world = conductor.roster.plan().world();
        let seconds = clock::now().saturating_duration_since(started);
        conductor.stream.emit(RunEvent::Gathered { world, seconds });
        conductor.others = Some(Others::new(leader, remotes, runs));
        conductor.step = Some(step);
        conductor.begin(signals.suspended);
        Ok(conductor.run(&mut signals).await)
    })
}

/// Everyone's offer, unless the step ends or a signal comes first.
async fn gather(
    run: &Prepared,
    leader: &mut Leader,
    step: &mut Step,
    signals: &mut Signals,
    stream: &mut Stream<'_>,
) -> Result<(Plan, Met), RendezvousError> {
    let plan_of = |roles: &str| plan_of(run, roles);
    tokio::select! {
        met = leader.gather_step(plan_of, |event| stream.emit(event)) => met,
        error = step.ends_early(signals) => Err(error),
    }
}

/// A plan of the roles that the step's tasks have worked out, `ps*1,worker*3`.
fn plan_of(run: &Prepared, roles: &str) -> Result<Plan, String> {
    // As foreseen: then the hosts are known too.
    if folded_roles(&run.plan) == roles {
        return Ok(run.plan.clone());
    }
    let list = roles
        .parse()
        .map_err(|error| format!("its roles {roles:?} cannot be read: {}", hint::in_full(&error)))?;
    let plan = run.plan.with_roles(list).map_err(|error| hint::in_full(&error))?;
    // What nobody decides would never end.
    match Job::new(&plan, run.spec.rules.clone()) {
        Some(_) => Ok(plan),
        None => Err(hint::in_full(&AgentError::nobody(&run.spec.rules))),
    }
}
