//! Launcher mode: this agent starts the step (such as `srun` does, one agent per task), leads it, and is no member of it.

use super::conductor::Conductor;
use super::event_loop::in_event_loop;
use super::launcher::{Launcher, STEP_END, Step};
use super::others::Others;
use super::run::{Notice, Run, RunError, Talk, io, settled, tell};
use super::signals::Signals;
use crate::allocation::{Allocation, Slot};
use crate::clock;
use crate::events::JobEvent;
use crate::hint;
use crate::job::Job;
use crate::outcome::Outcome;
use crate::plan::{JobSpec, Plan};
use crate::process::limits::DescriptorLimit;
use crate::rendezvous::{Leader, Meeting, Met, Progress, RendezvousError, folded_roles};
use crate::roles::{MAX_MEMBERS, RoleRequest};
use crate::roster::Addressing;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// Starts a step, leads it, and sees it out.
pub fn run_step(
    run: Run,
    meeting: &Meeting,
    launcher: &Launcher,
    guard: Option<OwnedFd>,
    talk: Talk<'_>,
) -> Result<Outcome, RunError> {
    let descriptors = DescriptorLimit::raise_for(0, run.plan.members.len())?;
    in_event_loop(async move {
        let mut signals = Signals::new(guard).map_err(io("signals"))?;
        let hostname = run.environ.hostname.as_deref();
        let join_request =
            meeting.join_request(&run.plan, hostname, &Addressing::default(), 0, run.spec.grace)?;
        let (contact, mut leader) = Leader::of_step(&join_request).await?;
        let line: Vec<_> = launcher
            .command
            .iter()
            .take_while(|word| *word != "--")
            .map(|word| word.to_string_lossy())
            .collect();
        talk(Notice::Line(format!("starting the step: {}", line.join(" "))));
        // Before the step and not beside it: from then on this agent waits for all its children alike.
        if let Some(deadline) = run.spec.ask_deadline.and_then(|ask| ask(&run.environ)) {
            leader.ask_deadline(move || Some(deadline));
        }
        let mut step = Step::start(launcher, &contact, descriptors)?;
        let started = clock::now();
        let (plan, Met { attempt, deadline, runs, members, remotes, roster: handout }) =
            match gather(&run, &mut leader, &mut step, &mut signals, talk).await {
                Ok(met) => met,
                Err(error) => {
                    leader.dismiss(&error, RunError::code_of(&error)).await;
                    // Nothing has started yet, so nothing needs a grace.
                    step.end(Duration::ZERO).await;
                    return Err(error.into());
                }
            };
        let allocation = slots_for(&run.allocation, plan.world());
        let run = Run { allocation, plan, ..run };
        let settled = settled(run, 0, attempt, deadline, members).map(|(mut roster, environ, spec)| {
            roster.plan.me = None;
            (roster, environ, spec)
        });
        let mut conductor = match Conductor::of(settled, HashMap::new(), descriptors, talk) {
            Ok(conductor) => conductor,
            Err(error) => {
                leader.say_goodbye(remotes, error.code(), vec![hint::in_full(&error)]).await;
                step.end(STEP_END).await;
                return Err(error);
            }
        };
        handout.hand_out(&remotes);
        let (world, seconds) =
            (conductor.roster.plan.world(), clock::now().saturating_duration_since(started).as_secs_f64());
        conductor.event(&JobEvent::Gathered { world, seconds });
        conductor.others = Some(Others {
            leader,
            remotes,
            runs,
            latecomers: HashMap::new(),
            silent: Vec::new(),
            give_up: None,
        });
        conductor.step = Some(step);
        conductor.begin(signals.suspended);
        Ok(conductor.run(&mut signals).await)
    })
}

/// Everyone's offer, unless the step ends or a signal comes first.
async fn gather(
    run: &Run,
    leader: &mut Leader,
    step: &mut Step,
    signals: &mut Signals,
    talk: Talk<'_>,
) -> Result<(Plan, Met), RendezvousError> {
    let plan_of = |roles: &str| plan_of(run, roles);
    let say = |plan: Option<&Plan>, progress: Progress| tell(plan.unwrap_or(&run.plan), progress, talk);
    tokio::select! {
        met = leader.gather_step(plan_of, say) => met,
        error = step.ends_early(signals) => Err(error),
    }
}

/// A plan of the roles that the step's tasks have worked out, `ps*1,worker*3`.
fn plan_of(run: &Run, roles: &str) -> Result<Plan, String> {
    // As foreseen: then the hosts are known too.
    if folded_roles(&run.plan) == roles {
        return Ok(run.plan.clone());
    }
    let list = roles
        .parse()
        .map_err(|error| format!("its roles {roles:?} cannot be read: {}", hint::in_full(&error)))?;
    let job = JobSpec { roles: RoleRequest::List(list), ..run.job.clone() };
    let world =
        job.roles.count().filter(|&count| count <= MAX_MEMBERS).and_then(|count| u32::try_from(count).ok());
    let world = world.ok_or_else(|| format!("its roles {roles:?} are more than {MAX_MEMBERS}"))?;
    let plan = Plan::new(slots_for(&run.allocation, world), &job).map_err(|error| hint::in_full(&error))?;
    // What nobody decides would never end.
    match Job::new(&plan, run.spec.rules.clone()) {
        Some(_) => Ok(plan),
        None => Err(hint::in_full(&RunError::nobody(&run.spec.rules))),
    }
}

/// The allocation, with as many slots as the step has tasks.
fn slots_for(allocation: &Allocation, world: u32) -> Allocation {
    let slots = vec![Slot { place: None, cpus: None }; world as usize];
    Allocation { slots, me: None, bound: None, ..allocation.clone() }
}
