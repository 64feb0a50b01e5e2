//! The agent: one event loop that sees everything in order and does what the job decides.
//!
//! Three ways through it: all members here ([`run_here`]); one member of many, as the leader, which
//! also decides for the others; one member of many, following the leader ([`run_member`]).

use super::conductor::{Conductor, Others};
use super::follower::follow;
use super::output::OutputStyle;
use super::signals::{Sensed, Signals};
use crate::allocation::{Allocation, Apart};
use crate::environ::Environ;
use crate::events::JobEvent;
use crate::framework::{Framework, FrameworkError};
use crate::job::{Job, Rules};
use crate::outcome::OwnCode;
use crate::plan::{JobSpec, Plan};
use crate::ports::{HandOver, HeldPort, PortChoice, PortError};
use crate::rendezvous::message::{Columns, ToMember};
use crate::rendezvous::{
    self, Gathered, Leader, Link, Meeting, Met, Part, Progress, RendezvousError, SettleError, WayToMeet,
};
use crate::roster::{Addressing, Endpoint, Roster, RosterError};
use crate::serve::members::Served;
use crate::signal;
use std::collections::HashMap;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};
use thiserror::Error;

/// What is to be run, and how.
#[derive(Debug)]
pub struct RunSpec {
    pub command: Vec<OsString>,
    /// Members that are servers without Python instead.
    pub served: Option<Served>,
    pub rules: Rules,
    pub grace: Duration,
    pub framework: Framework,
    pub ports: PortChoice,
    pub hand_over: HandOver,
    pub style: OutputStyle,
    pub log_dir: Option<PathBuf>,
    pub events: Option<PathBuf>,
    pub threads: bool,
    pub addressing: Addressing,
    /// Variables that win over everything else.
    pub extra: Vec<(String, String)>,
    /// Variables that no member inherits.
    pub withheld: &'static [&'static str],
    /// For `--requeue-on`.
    pub requeue: Option<Requeue>,
    /// Asks the scheduler when it will end the job, where no variable tells it.
    pub ask_deadline: Option<fn(&Environ) -> Option<SystemTime>>,
    /// A folder of this run alone, for the roster and the members' last words.
    pub private: PathBuf,
}

/// How the scheduler is asked to run the whole job again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requeue {
    /// The scheduler's id of the job.
    pub job: String,
    /// `scontrol requeue 17`, word by word.
    pub command: Vec<OsString>,
}

/// A run: what there is, what was asked for, and how.
#[derive(Debug)]
pub struct Run {
    pub allocation: Allocation,
    pub job: JobSpec,
    pub plan: Plan,
    pub environ: Environ,
    pub spec: RunSpec,
}

/// What a person may want to hear.
#[derive(Debug, Clone, PartialEq)]
pub enum Notice {
    Waiting {
        come: u32,
        world: u32,
        missing: String,
        waited: Option<(Duration, Duration)>,
    },
    Line(String),
    /// What went wrong here, a line at a time.
    Failure(String),
    /// Why the job failed, as the leader tells everyone.
    Verdict(String),
    /// All have come and the members start.
    Start(String),
    /// How every member ended.
    Closing(Vec<ClosingRow>),
}

/// A row of the closing table.
#[derive(Debug, Clone, PartialEq)]
pub struct ClosingRow {
    pub member: String,
    pub host: String,
    pub pid: Option<u32>,
    pub end: String,
    pub seconds: Option<f64>,
    pub peak_kib: Option<u64>,
}

#[derive(Debug, Error)]
pub enum RunError {
    #[error(transparent)]
    Meeting(#[from] RendezvousError),
    #[error(transparent)]
    Port(#[from] PortError),
    #[error(transparent)]
    Framework(#[from] FrameworkError),
    #[error(transparent)]
    Settle(#[from] SettleError),
    #[error(transparent)]
    Roster(#[from] RosterError),
    #[error(transparent)]
    Address(#[from] crate::address::AddressError),
    #[error("nobody has the role that --until waits for; hint: --until all waits for everyone")]
    NobodyDecides,
    #[error("{what}: {source}")]
    Io { what: String, source: std::io::Error },
}

impl RunError {
    pub(super) fn code_of(error: &RendezvousError) -> u8 {
        match error {
            RendezvousError::Interrupted(_) => OwnCode::Interrupted,
            RendezvousError::Wire(_) => OwnCode::LeaderLost,
            RendezvousError::StepEnded { .. } => OwnCode::NotStarted,
            _ => OwnCode::MeetingFailed,
        }
        .code()
    }

    pub fn code(&self) -> u8 {
        match self {
            RunError::Meeting(error) => RunError::code_of(error),
            RunError::Port(_) | RunError::Io { .. } => OwnCode::NotStarted.code(),
            RunError::Framework(_)
            | RunError::Settle(_)
            | RunError::Roster(_)
            | RunError::Address(_)
            | RunError::NobodyDecides => 2,
        }
    }
}

pub(super) type Talk<'a> = &'a mut dyn FnMut(Notice);

pub(super) fn io(what: &str) -> impl FnOnce(std::io::Error) -> RunError {
    let what = what.to_owned();
    move |source| RunError::Io { what, source }
}

/// Runs all members on this machine; the exit code.
pub fn run_here(run: Run, guard: Option<OwnedFd>, talk: Talk<'_>) -> Result<u8, RunError> {
    in_event_loop(async move {
        let mut signals = Signals::new(guard).map_err(io("signals"))?;
        let mut held = HashMap::new();
        let mut endpoints = Vec::new();
        let address = match &run.spec.addressing.own {
            Some(choice) => choice.own_address()?.to_string(),
            None => "127.0.0.1".to_owned(),
        };
        for member in &run.plan.members {
            let local_rank = member.place.map_or(member.rank, |place| place.local_rank);
            let port = HeldPort::take(&run.spec.ports, local_rank, run.spec.hand_over)?;
            endpoints.push(Endpoint { address: address.clone(), port: port.port() });
            held.insert(member.rank, port);
        }
        let Run { mut plan, environ, spec, .. } = run;
        plan.deadline = plan.deadline.or_else(|| spec.ask_deadline?(&environ));
        let roster = Roster::met(plan, endpoints)?;
        let job = Job::new(&roster.plan, spec.rules.clone()).ok_or(RunError::NobodyDecides)?;
        let mut conductor = Conductor::new(roster, job, held, &spec, &environ, talk)?;
        conductor.start();
        Ok(conductor.run(&mut signals).await)
    })
}

/// Runs one member, after meeting the others; the exit code.
pub fn run_member(
    run: Run,
    meeting: &Meeting,
    way: &mut dyn WayToMeet,
    guard: Option<OwnedFd>,
    talk: Talk<'_>,
) -> Result<u8, RunError> {
    in_event_loop(async move {
        let mut signals = Signals::new(guard).map_err(io("signals"))?;
        // Whoever asks for something impossible hears it before the others have come.
        Job::new(&run.plan, run.spec.rules.clone()).ok_or(RunError::NobodyDecides)?;
        let port = meeting.hold_port(&run.plan, &run.spec.ports, run.spec.hand_over)?;
        let mut introduction = meeting.introduce(
            &run.plan,
            run.environ.hostname.as_deref(),
            &run.spec.addressing,
            port.port(),
            run.spec.grace,
        )?;
        talk(Notice::Line(format!("meeting: {}", way.name())));
        if let Some(Apart { runs: 1.., retried: false }) = run.plan.apart {
            let line = "this member has run before; if the job has failed since, nobody starts the others again (max_retries)";
            talk(Notice::Line(line.to_owned()));
        }
        loop {
            let mut say = |line| talk(Notice::Line(line));
            let part = tokio::select! {
                part = rendezvous::meet(way, &introduction, &mut say) => part?,
                number = ending(&mut signals) => return Err(RendezvousError::Interrupted(signal::name(number)).into()),
            };
            let mut link = match part {
                Part::Leader(leader) => return lead(run, *leader, port, &mut signals, talk).await,
                Part::Member(link) => link,
                Part::Over { code, summary } => {
                    summary.into_iter().for_each(|line| talk(Notice::Failure(line)));
                    if code == 0 || !run.plan.apart.is_some_and(|apart| apart.retried) {
                        talk(Notice::Line(format!("the job has ended with {code}, without this member")));
                        return Ok(code);
                    }
                    talk(Notice::Line(format!(
                        "that attempt has ended with {code}: meeting for the next one"
                    )));
                    continue;
                }
            };
            match wait_for_roster(&mut link, &mut signals, talk).await {
                Ok(columns) => return follow(run, link, columns, port, &mut signals, talk).await,
                // Nothing has started yet: the rest can meet again, under another leader.
                Err(RendezvousError::Wire(error)) => {
                    talk(Notice::Line(format!("the leader was lost before all had come: {error}")));
                    introduction.lost_leader = link.leader;
                }
                Err(error) => return Err(error.into()),
            }
        }
    })
}

async fn wait_for_roster(
    link: &mut Link,
    signals: &mut Signals,
    talk: Talk<'_>,
) -> Result<Columns, RendezvousError> {
    let say = |come, world, missing: &str| {
        talk(Notice::Waiting { come, world, missing: missing.to_owned(), waited: None });
    };
    tokio::select! {
        columns = link.roster(say) => columns,
        number = ending(signals) => Err(RendezvousError::Interrupted(signal::name(number))),
    }
}

pub(super) fn in_event_loop<F: Future<Output = Result<u8, RunError>>>(future: F) -> Result<u8, RunError> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(io("event loop"))?;
    let code = tokio::task::LocalSet::new().block_on(&runtime, future);
    runtime.shutdown_background();
    code
}

/// The next signal that ends the job.
pub(super) async fn ending(signals: &mut Signals) -> i32 {
    loop {
        match signals.next().await {
            Sensed::Signal(number) if signal::ends_the_job(number) => return number,
            _ => {}
        }
    }
}

/// Adds what the members told; what is left of the run goes on with it.
pub(super) fn settled(
    run: Run,
    rank: u32,
    attempt: u32,
    deadline: Option<SystemTime>,
    members: Vec<(String, Endpoint)>,
) -> Result<(Roster, Environ, RunSpec), RunError> {
    let Run { allocation, job, mut plan, environ, spec } = run;
    plan.attempt = attempt;
    plan.deadline = plan.deadline.or(deadline);
    let roster = rendezvous::settle(allocation, &job, plan, environ.cpus, rank, members)?;
    Ok((roster, environ, spec))
}

/// The leader of many: gathers, then decides for all.
async fn lead(
    run: Run,
    mut leader: Leader,
    port: HeldPort,
    signals: &mut Signals,
    talk: Talk<'_>,
) -> Result<u8, RunError> {
    let started = Instant::now();
    // Only the leader asks: a scheduler that every member asked would have a lot to do.
    if let Some(ask) = run.spec.ask_deadline {
        let environ = run.environ.clone();
        leader.ask_deadline(move || ask(&environ));
    }
    let gathered = tokio::select! {
        gathered = leader.gather(&run.plan, |progress| tell(&run.plan, progress, talk)) => gathered,
        number = ending(signals) => Err(RendezvousError::Interrupted(signal::name(number))),
    };
    let Gathered { rank, met: Met { attempt, deadline, runs, members, remotes } } = match gathered {
        Ok(gathered) => gathered,
        Err(error) => {
            leader.dismiss(&error, RunError::code_of(&error)).await;
            return Err(error.into());
        }
    };
    let (roster, environ, spec) = settled(run, rank, attempt, deadline, members)?;
    let job = Job::new(&roster.plan, spec.rules.clone()).ok_or(RunError::NobodyDecides)?;
    let held = HashMap::from([(rank, port)]);
    let mut conductor = match Conductor::new(roster, job, held, &spec, &environ, talk) {
        Ok(conductor) => conductor,
        Err(error) => {
            for remote in remotes.values() {
                remote.send(ToMember::Goodbye { code: error.code(), summary: vec![error.to_string()] });
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
            return Err(error);
        }
    };
    conductor.event(&JobEvent::Gathered {
        world: conductor.roster.plan.world(),
        seconds: started.elapsed().as_secs_f64(),
    });
    conductor.others = Some(Others { leader, remotes, runs, latecomers: Vec::new(), give_up: None });
    conductor.start();
    Ok(conductor.run(signals).await)
}

pub(super) fn tell(plan: &Plan, progress: Progress, talk: Talk<'_>) {
    match progress {
        Progress::Waiting { come, world, missing, waited, limit } => {
            talk(Notice::Waiting { come, world, missing, waited: Some((waited, limit)) });
        }
        other => other.line(plan).into_iter().for_each(|line| talk(Notice::Line(line))),
    }
}
