//! Launcher mode: this agent starts the step (`srun`, one agent a task), leads it, and is no member of it.

use super::agent::{Notice, Run, RunError, Talk, in_event_loop, io, settled, tell};
use super::conductor::{Conductor, Others};
use super::signals::{Sensed, Signals};
use super::sys;
use crate::allocation::{Allocation, Slot};
use crate::events::JobEvent;
use crate::job::Job;
use crate::plan::{JobSpec, Plan};
use crate::rendezvous::{Contact, Leader, Meeting, Met, Progress, RendezvousError, folded_roles};
use crate::roles::{MAX_MEMBERS, RoleRequest};
use crate::roster::Addressing;
use crate::signal;
use std::collections::HashMap;
use std::ffi::OsString;
use std::io::{Seek, Write};
use std::os::fd::OwnedFd;
use std::process::Command;
use std::time::{Duration, Instant};

/// How long `srun` may take to end after all its tasks were told to, and after SIGTERM.
const STEP_END: Duration = Duration::from_secs(10);
const AFTER_SIGTERM: Duration = Duration::from_secs(5);

/// The step's launcher, `srun`.
#[derive(Debug)]
pub(super) struct Step {
    pid: u32,
    ended: Option<Result<u8, i32>>,
}

/// Starts a step, leads it, and sees it out; the exit code.
pub fn run_step(
    run: Run,
    meeting: &Meeting,
    srun: &[(OsString, OsString)],
    command: &[OsString],
    guard: Option<OwnedFd>,
    talk: Talk<'_>,
) -> Result<u8, RunError> {
    in_event_loop(async move {
        let mut signals = Signals::new(guard).map_err(io("signals"))?;
        let hostname = run.environ.hostname.as_deref();
        let introduction =
            meeting.introduce(&run.plan, hostname, &Addressing::default(), 0, run.spec.grace)?;
        let (contact, mut leader) = Leader::of_step(&introduction).await?;
        let line: Vec<_> =
            command.iter().take_while(|word| *word != "--").map(|word| word.to_string_lossy()).collect();
        talk(Notice::Line(format!("starting the step: {}", line.join(" "))));
        // Before the step and not beside it: from then on this agent waits for all its children alike.
        if let Some(deadline) = run.spec.ask_deadline.and_then(|ask| ask(&run.environ)) {
            leader.ask_deadline(move || Some(deadline));
        }
        let mut step = Step::start(command, srun, &contact)?;
        let started = Instant::now();
        let (plan, Met { attempt, deadline, runs, members, remotes }) =
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
        let (mut roster, environ, spec) = settled(run, 0, attempt, deadline, members)?;
        roster.plan.me = None;
        let job = Job::new(&roster.plan, spec.rules.clone()).ok_or(RunError::NobodyDecides)?;
        let mut conductor = Conductor::new(roster, job, HashMap::new(), &spec, &environ, talk)?;
        let (world, seconds) = (conductor.roster.plan.world(), started.elapsed().as_secs_f64());
        conductor.event(&JobEvent::Gathered { world, seconds });
        conductor.others = Some(Others { leader, remotes, runs, latecomers: Vec::new(), give_up: None });
        conductor.step = Some(step);
        conductor.start();
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
    let list = roles.parse().map_err(|error| format!("its roles {roles:?} cannot be read: {error}"))?;
    let job = JobSpec { roles: RoleRequest::List(list), ..run.job.clone() };
    let world =
        job.roles.count().filter(|&count| count <= MAX_MEMBERS).and_then(|count| u32::try_from(count).ok());
    let world = world.ok_or_else(|| format!("its roles {roles:?} are more than {MAX_MEMBERS}"))?;
    let plan = Plan::new(slots_for(&run.allocation, world), &job).map_err(|error| error.to_string())?;
    // What nobody decides would never end.
    match Job::new(&plan, run.spec.rules.clone()) {
        Some(_) => Ok(plan),
        None => Err(RunError::NobodyDecides.to_string()),
    }
}

/// The allocation, with as many slots as the step has tasks.
fn slots_for(allocation: &Allocation, world: u32) -> Allocation {
    let slots = vec![Slot { place: None, cpus: None }; world as usize];
    Allocation { slots, me: None, bound: None, ..allocation.clone() }
}

impl Step {
    fn start(
        command: &[OsString],
        variables: &[(OsString, OsString)],
        contact: &Contact,
    ) -> Result<Step, RunError> {
        let mut srun = Command::new(&command[0]);
        srun.args(&command[1..]).envs(variables.iter().map(|(name, value)| (name, value)));
        let line = contact.line()?;
        // In memory alone. Not a pipe: the srun of a het job reads once a group, each from the beginning.
        let mut stdin = std::fs::File::from(
            rustix::fs::memfd_create("rallypoint-leader", rustix::fs::MemfdFlags::CLOEXEC)
                .map_err(|error| io("srun")(error.into()))?,
        );
        stdin.write_all(line.as_bytes()).and_then(|()| stdin.rewind()).map_err(io("srun"))?;
        let pid = sys::spawn(srun.stdin(stdin)).map_err(io("srun"))?;
        Ok(Step { pid, ended: None })
    }

    /// The error that keeps the members from meeting: `srun` has ended, or a signal came.
    async fn ends_early(&mut self, signals: &mut Signals) -> RendezvousError {
        loop {
            match signals.next().await {
                Sensed::Signal(number) if signal::ends_the_job(number) => {
                    return RendezvousError::Interrupted(signal::name(number));
                }
                Sensed::Signal(_) => {}
                Sensed::Child => {
                    while let Some(reaped) = sys::reap() {
                        self.note(&reaped);
                    }
                }
            }
            if let Some(ended) = self.ended {
                return RendezvousError::StepEnded { end: describe(ended) };
            }
        }
    }

    /// Remembers the end of `srun`, if it is one.
    pub(super) fn note(&mut self, reaped: &sys::Reaped) {
        if reaped.pid == self.pid {
            self.ended = Some(reaped.exit_code());
        }
    }

    /// How `srun` ended, if it has.
    pub(super) fn ended(&self) -> Option<String> {
        self.ended.map(describe)
    }

    /// Waits until `srun` has ended; asks it to, when it takes too long.
    pub(super) async fn see_out(&mut self) {
        self.end(STEP_END).await;
    }

    async fn end(&mut self, patience: Duration) {
        if !self.ends_within(patience).await {
            // It ends its tasks with it.
            sys::kill(self.pid, libc::SIGTERM, false);
            if !self.ends_within(AFTER_SIGTERM).await {
                sys::kill(self.pid, libc::SIGKILL, false);
                self.ends_within(AFTER_SIGTERM).await;
            }
        }
    }

    async fn ends_within(&mut self, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        loop {
            while let Some(reaped) = sys::reap() {
                self.note(&reaped);
            }
            if self.ended.is_some() || Instant::now() >= until {
                return self.ended.is_some();
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

fn describe(end: Result<u8, i32>) -> String {
    match end {
        Ok(code) => format!("with exit code {code}"),
        Err(number) => format!("by {}", signal::name(number)),
    }
}
