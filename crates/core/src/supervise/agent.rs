//! The agent: one event loop that sees everything in order and does what the job decides.
//!
//! Three ways through it: all members here ([`run_here`]); one member of many, as the leader, which
//! also decides for the others; one member of many, following the leader ([`run_member`]).

use super::executor::{Executor, Happened, Launch};
use super::output::{Output, OutputStyle};
use super::signals::{Sensed, Signals};
use crate::allocation::{Allocation, Host, HostGpus, Scheduler, places};
use crate::environ::Environ;
use crate::events::{EventLog, JobEvent, RosterEntry};
use crate::framework::{Extras, Framework, FrameworkError, child_env};
use crate::job::{Action, Event, Job, Rules};
use crate::outcome::{MemberOutcome, OwnCode, Verdict, name};
use crate::plan::{JobSpec, Plan, PlanError};
use crate::ports::{HandOver, HeldPort, PortChoice, PortError};
use crate::rendezvous::message::{Offer, ToLeader, ToMember, VERSION};
use crate::rendezvous::{
    self, Gathered, Incoming, Introduction, Key, Leader, Link, Part, Progress, Remote, RendezvousError,
    WayToMeet,
};
use crate::roster::{Addressing, Endpoint, Roster};
use crate::signal;
use std::collections::HashMap;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use thiserror::Error;

/// Beyond the grace, a member on another host may take this long to say that it has ended.
const LAST_REPORT: Duration = Duration::from_secs(5);
/// How long the others may take to hang up after the goodbye.
const HANG_UP: Duration = Duration::from_secs(2);

/// What is to be run, and how.
#[derive(Debug)]
pub struct RunSpec {
    pub command: Vec<OsString>,
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
    /// A folder of this run alone, for the roster and the members' last words.
    pub private: PathBuf,
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

/// How to meet the others.
#[derive(Debug, Clone)]
pub struct Meeting {
    pub rank: Option<u32>,
    pub key: Option<Key>,
    pub timeout: Duration,
    /// What the user calls this job; the scheduler's id otherwise.
    pub job: Option<String>,
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
    Plan(#[from] PlanError),
    #[error(transparent)]
    Address(#[from] crate::address::AddressError),
    #[error("nobody has the role that --until waits for; hint: --until all waits for everyone")]
    NobodyDecides,
    #[error("{what}: {source}")]
    Io { what: String, source: std::io::Error },
}

impl RunError {
    pub fn code(&self) -> u8 {
        match self {
            RunError::Meeting(RendezvousError::Interrupted(_)) => OwnCode::Interrupted.code(),
            RunError::Meeting(RendezvousError::Wire(_)) => OwnCode::LeaderLost.code(),
            RunError::Meeting(_) => OwnCode::MeetingFailed.code(),
            RunError::Port(_) | RunError::Io { .. } => OwnCode::NotStarted.code(),
            RunError::Framework(_) | RunError::Plan(_) | RunError::Address(_) | RunError::NobodyDecides => 2,
        }
    }
}

type Talk<'a> = &'a mut dyn FnMut(Notice);

fn io(what: &str) -> impl FnOnce(std::io::Error) -> RunError {
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
        let Run { plan, environ, spec, .. } = run;
        let Some(roster) = Roster::met(plan, endpoints) else { return Err(RunError::NobodyDecides) };
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
        let rank = meeting.rank.or(run.plan.me);
        let port = hold_own_port(&run, rank)?;
        let introduction = introduce(&run, meeting, rank, port.port())?;
        talk(Notice::Line(format!("meeting in {}", way.name())));
        let mut say = |line| talk(Notice::Line(line));
        let part = tokio::select! {
            part = rendezvous::meet(way, &introduction, &mut say) => part?,
            number = ending(&mut signals) => return Err(RendezvousError::Interrupted(signal::name(number)).into()),
        };
        match part {
            Part::Leader(leader) => lead(run, *leader, port, &mut signals, talk).await,
            Part::Member(link) => follow(run, link, port, &mut signals, talk).await,
        }
    })
}

fn in_event_loop<F: Future<Output = Result<u8, RunError>>>(future: F) -> Result<u8, RunError> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(io("event loop"))?;
    let code = tokio::task::LocalSet::new().block_on(&runtime, future);
    runtime.shutdown_background();
    code
}

/// The next signal that ends the job.
async fn ending(signals: &mut Signals) -> i32 {
    loop {
        match signals.next().await {
            Sensed::Signal(number) if signal::ends_the_job(number) => return number,
            _ => {}
        }
    }
}

fn hold_own_port(run: &Run, rank: Option<u32>) -> Result<HeldPort, PortError> {
    let place = rank.and_then(|rank| run.plan.members.get(rank as usize)?.place);
    match (&run.spec.ports, place) {
        // Without a rank there is no number on the host: the first free one from the base on.
        (PortChoice::Base(base), None) => {
            HeldPort::take(&PortChoice::Range(*base..=base.saturating_add(1023)), 0, run.spec.hand_over)
        }
        (choice, place) => {
            HeldPort::take(choice, place.map_or(0, |place| place.local_rank), run.spec.hand_over)
        }
    }
}

fn introduce(run: &Run, meeting: &Meeting, rank: Option<u32>, port: u16) -> Result<Introduction, RunError> {
    let me = rank.and_then(|rank| run.plan.members.get(rank as usize));
    let host = match run.allocation.scheduler {
        Scheduler::Local | Scheduler::Hypothetical => None,
        _ => me.and_then(|member| run.plan.host(member)).map(str::to_owned),
    };
    let host = host.or_else(|| run.environ.hostname.clone()).unwrap_or_else(|| "localhost".to_owned());
    let (addresses, chosen) = match (&run.spec.addressing.own, &run.spec.addressing.rule) {
        (Some(choice), _) => (vec![choice.own_address()?.to_string()], true),
        (None, crate::address::HostRule::Name) => {
            (rendezvous::own_addresses().iter().map(ToString::to_string).collect(), false)
        }
        (None, rule) => (vec![rule.apply(&host)?], true),
    };
    let roles = run
        .plan
        .members
        .chunk_by(|a, b| a.role == b.role)
        .map(|members| format!("{}*{}", members[0].role, members.len()))
        .collect::<Vec<_>>()
        .join(",");
    let offer = Offer {
        version: VERSION,
        rank,
        job: meeting.job.clone().or_else(|| run.plan.job.clone()),
        attempt: run.plan.attempt,
        roles,
        host,
        machine: rendezvous::machine_id(),
        addresses,
        chosen,
        port,
        pid: std::process::id(),
    };
    Ok(Introduction {
        offer,
        world: run.plan.world(),
        key: meeting.key.clone(),
        timeout: meeting.timeout,
        rejoin: run.spec.grace,
    })
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
    let gathered = tokio::select! {
        gathered = leader.gather(&run.plan, |progress| tell(&run.plan, progress, talk)) => gathered,
        number = ending(signals) => Err(RendezvousError::Interrupted(signal::name(number))),
    };
    let Gathered { rank, members, remotes } = match gathered {
        Ok(gathered) => gathered,
        Err(error) => {
            let error = RunError::Meeting(error);
            leader.dismiss(error.code(), &error.to_string());
            // Give the word a moment to leave.
            tokio::time::sleep(Duration::from_millis(100)).await;
            return Err(error);
        }
    };
    let (roster, environ, spec) = settle(run, rank, members)?;
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
    conductor.others = Some(Others { leader, remotes, give_up: None });
    conductor.start();
    Ok(conductor.run(signals).await)
}

fn tell(plan: &Plan, progress: Progress, talk: Talk<'_>) {
    match progress {
        Progress::Waiting { come, world, missing, waited, limit } => {
            talk(Notice::Waiting { come, world, missing, waited: Some((waited, limit)) });
        }
        Progress::Came { .. } => {}
        Progress::Lost { rank, why } => {
            talk(Notice::Line(format!(
                "{} was lost while waiting: {why}",
                name(&plan.members[rank as usize])
            )));
        }
        Progress::Stranger { peer, why } => {
            talk(Notice::Line(format!("a stranger at {peer} was turned away: {why}")))
        }
    }
}

/// The plan with everyone's true host; on plain machines with the devices that follow from it.
fn settle(
    run: Run,
    rank: u32,
    members: Vec<(String, Endpoint)>,
) -> Result<(Roster, Environ, RunSpec), RunError> {
    let Run { mut allocation, job, mut plan, environ, spec } = run;
    let mut hosts: Vec<String> = Vec::new();
    let mut number: HashMap<String, u32> = HashMap::new();
    let mut host_of_rank = Vec::with_capacity(members.len());
    let mut endpoints = Vec::with_capacity(members.len());
    for (host, endpoint) in members {
        let next = hosts.len() as u32;
        let host = *number.entry(host).or_insert_with_key(|host| {
            hosts.push(host.clone());
            next
        });
        host_of_rank.push(host);
        endpoints.push(endpoint);
    }
    let here = host_of_rank[rank as usize];
    let beside = host_of_rank.iter().filter(|&&host| host == here).count() as u32;
    let placed = places(host_of_rank, hosts.len());
    if allocation.scheduler == Scheduler::Local {
        let own = allocation.hosts.first().map_or(HostGpus::Unknown, |host| host.gpus.clone());
        allocation.hosts = hosts.iter().map(Host::new).collect();
        allocation.hosts[here as usize].gpus = own;
        allocation.me = Some(rank);
        for (slot, place) in allocation.slots.iter_mut().zip(&placed) {
            slot.place = Some(*place);
            slot.cpus =
                environ.cpus.filter(|_| place.host == here).map(|cpus| (cpus.usable() / beside).max(1));
        }
        plan = Plan::new(allocation, &job)?;
    }
    for (member, place) in plan.members.iter_mut().zip(placed) {
        member.place = Some(place);
    }
    plan.hosts = hosts;
    plan.me = Some(rank);
    let roster = Roster::met(plan, endpoints).ok_or(RunError::NobodyDecides)?;
    Ok((roster, environ, spec))
}

/// The members that other agents run.
struct Others {
    leader: Leader,
    remotes: HashMap<u32, Remote>,
    /// When those who have not reported their end are taken for lost.
    give_up: Option<Instant>,
}

/// Does what the job decides, here and elsewhere.
struct Conductor<'a> {
    roster: Roster,
    job: Job,
    executor: Executor,
    others: Option<Others>,
    events: EventLog,
    grace: Duration,
    own: Vec<u32>,
    over: bool,
    talk: Talk<'a>,
}

impl<'a> Conductor<'a> {
    fn new(
        roster: Roster,
        job: Job,
        held: HashMap<u32, HeldPort>,
        spec: &RunSpec,
        environ: &Environ,
        talk: Talk<'a>,
    ) -> Result<Conductor<'a>, RunError> {
        let mut own: Vec<u32> = held.keys().copied().collect();
        own.sort_unstable();
        let executor = prepare(&roster, held, spec, environ, talk)?;
        let events = EventLog::create(spec.events.as_deref()).map_err(io("--events"))?;
        Ok(Conductor {
            roster,
            job,
            executor,
            others: None,
            events,
            grace: spec.grace,
            own,
            over: false,
            talk,
        })
    }

    fn event(&mut self, event: &JobEvent<'_>) {
        self.events.write(self.roster.plan.attempt, event);
    }

    fn start(&mut self) {
        let plan = &self.roster.plan;
        let members = plan
            .members
            .iter()
            .map(|member| RosterEntry {
                rank: member.rank,
                role: member.role.as_str(),
                index: member.index,
                host: plan.host(member).unwrap_or("?"),
                address: self.roster.endpoint(member).to_string(),
            })
            .collect();
        self.events.write(plan.attempt, &JobEvent::Roster { members });
        let hosts = plan.hosts.len();
        let line = format!("{} members on {hosts} host{}", plan.world(), if hosts == 1 { "" } else { "s" });
        (self.talk)(Notice::Start(line));
        for rank in self.own.clone() {
            if self.over {
                break;
            }
            let happened = self.executor.start(rank);
            self.happened(happened.into_iter().collect());
        }
    }

    /// Until nobody is left; the exit code.
    async fn run(mut self, signals: &mut Signals) -> u8 {
        while !self.over {
            let wake = self.executor.wake.clone();
            let give_up = self.others.as_ref().and_then(|others| others.give_up);
            let next = [self.executor.next_poll(), give_up].into_iter().flatten().min();
            tokio::select! {
                sensed = signals.next() => {
                    if let Sensed::Signal(number) = sensed {
                        if signal::ends_the_job(number) {
                            (self.talk)(Notice::Line(format!("{} came: stopping", signal::name(number))));
                        }
                        self.apply(Event::Signal(number));
                    }
                }
                () = wake.notified() => {}
                incoming = receive(&mut self.others) => self.incoming(incoming),
                () = until(next) => {}
            }
            let happened = self.executor.poll();
            self.happened(happened);
            self.give_up_on_the_silent();
        }
        self.close().await
    }

    fn happened(&mut self, happened: Vec<Happened>) {
        for happened in happened {
            match happened {
                Happened::Started { rank, pid } => self.started(rank, pid),
                Happened::Listening { rank } => self.listening(rank),
                Happened::Ended { rank, ended } => self.apply(Event::Ended { rank, ended }),
            }
        }
    }

    fn started(&mut self, rank: u32, pid: u32) {
        let member = &self.roster.plan.members[rank as usize];
        let host = self.roster.plan.host(member).unwrap_or("?");
        let event = JobEvent::Started { rank, role: member.role.as_str(), index: member.index, host, pid };
        self.events.write(self.roster.plan.attempt, &event);
        self.apply(Event::Started { rank, pid });
    }

    fn listening(&mut self, rank: u32) {
        let member = &self.roster.plan.members[rank as usize];
        let event = JobEvent::Listening { rank, role: member.role.as_str(), index: member.index };
        self.events.write(self.roster.plan.attempt, &event);
    }

    fn apply(&mut self, event: Event) {
        let ended = match &event {
            Event::Ended { rank, .. } | Event::Lost { rank, .. } => Some(*rank),
            _ => None,
        };
        let actions = self.job.apply(event);
        if let (Some(rank), false) =
            (ended, actions.iter().any(|action| matches!(action, Action::Restart(_))))
        {
            self.log_end(rank);
        }
        for action in actions {
            self.perform(action);
        }
    }

    fn log_end(&mut self, rank: u32) {
        let member = &self.roster.plan.members[rank as usize];
        let (role, index) = (member.role.as_str(), member.index);
        let outcome = &self.job.members()[rank as usize];
        let Some(ended) = &outcome.ended else { return };
        let (end, seconds, peak_kib) = (&ended.end, ended.seconds, ended.peak_kib);
        let event = if end.is_success() {
            JobEvent::Finished { rank, role, index, seconds, peak_kib }
        } else if outcome.stopped {
            JobEvent::Stopped { rank, role, index, end, seconds, peak_kib }
        } else {
            JobEvent::Failed { rank, role, index, end, code: end.code(), seconds, peak_kib }
        };
        self.events.write(self.roster.plan.attempt, &event);
        if !end.is_success() && !outcome.stopped {
            (self.talk)(Notice::Line(format!("{} has failed: {end}", name(member))));
        }
    }

    fn perform(&mut self, action: Action) {
        match action {
            Action::Restart(rank) => {
                let member = &self.roster.plan.members[rank as usize];
                let event = JobEvent::Restarted { rank, role: member.role.as_str(), index: member.index };
                self.events.write(self.roster.plan.attempt, &event);
                (self.talk)(Notice::Line(format!("{} failed and is started again", name(member))));
                if self.own.contains(&rank) {
                    let happened = self.executor.start(rank);
                    self.happened(happened.into_iter().collect());
                } else {
                    self.say(rank, ToMember::Restart);
                }
            }
            Action::StopAll => {
                self.executor.stop(self.grace);
                let grace_ms = self.grace.as_millis() as u64;
                self.say_all(&ToMember::Stop { grace_ms });
                if let Some(others) = &mut self.others {
                    others.give_up = Some(Instant::now() + self.grace + LAST_REPORT);
                }
            }
            Action::KillAll => {
                self.executor.kill();
                self.say_all(&ToMember::Kill);
            }
            Action::PassOn(number) => self.executor.signal(number),
            Action::Over => self.over = true,
        }
    }

    fn say(&self, rank: u32, message: ToMember) {
        if let Some(remote) = self.others.as_ref().and_then(|others| others.remotes.get(&rank)) {
            remote.send(message);
        }
    }

    fn say_all(&self, message: &ToMember) {
        for remote in self.others.iter().flat_map(|others| others.remotes.values()) {
            remote.send(message.clone());
        }
    }

    fn incoming(&mut self, incoming: Option<Incoming>) {
        let Some(incoming) = incoming else { return };
        let rank_of = |others: &Option<Others>, connection: u64| {
            others.as_ref().and_then(|others| {
                others
                    .remotes
                    .iter()
                    .find(|(_, remote)| remote.connection == connection)
                    .map(|(rank, _)| *rank)
            })
        };
        match incoming {
            Incoming::Offer { remote, .. } => {
                let why = "the job is running already; hint: another job needs another --meet directory or --job name";
                remote.send(ToMember::Refused { why: why.to_owned() });
            }
            Incoming::Stranger { peer, why } => {
                (self.talk)(Notice::Line(format!("a stranger at {peer} was turned away: {why}")));
            }
            Incoming::Gone { connection, why } => {
                if let Some(rank) = rank_of(&self.others, connection) {
                    if let Some(others) = &mut self.others {
                        others.remotes.remove(&rank);
                    }
                    self.apply(Event::Lost { rank, why: format!("its agent is gone: {why}") });
                }
            }
            Incoming::Message { connection, message } => {
                let Some(rank) = rank_of(&self.others, connection) else { return };
                match message {
                    ToLeader::Started { pid } => self.started(rank, pid),
                    ToLeader::Listening => self.listening(rank),
                    ToLeader::Ended(ended) => self.apply(Event::Ended { rank, ended }),
                    ToLeader::Interrupted { signal } => {
                        let member = name(&self.roster.plan.members[rank as usize]);
                        (self.talk)(Notice::Line(format!(
                            "{} came to {member}: stopping",
                            signal::name(signal)
                        )));
                        self.apply(Event::Signal(signal));
                    }
                    ToLeader::Alive | ToLeader::Offer(_) => {}
                }
            }
        }
    }

    fn give_up_on_the_silent(&mut self) {
        let Some(others) = &mut self.others else { return };
        if others.give_up.is_none_or(|at| Instant::now() < at) {
            return;
        }
        others.give_up = None;
        let silent: Vec<u32> = others.remotes.keys().copied().collect();
        for rank in silent {
            if self.job.members()[rank as usize].ended.is_none() {
                let why = "its agent did not report its end in time".to_owned();
                self.apply(Event::Lost { rank, why });
            }
        }
    }

    /// Ends what is left, tells everyone, and says how it went.
    async fn close(self) -> u8 {
        let Conductor { roster, job, executor, others, mut events, talk, .. } = self;
        let verdict = job.verdict().cloned().unwrap_or(Verdict::Success);
        let code = verdict.code();
        let summary = verdict.lines(&roster.plan);
        let left = executor.finish_all();
        if left > 0 {
            talk(Notice::Line(format!(
                "{left} process{} left behind by members: ended",
                if left == 1 { "" } else { "es" }
            )));
        }
        events.write(roster.plan.attempt, &JobEvent::Over { code });
        talk(Notice::Closing(closing_rows(&roster.plan, job.members())));
        for line in &summary {
            talk(Notice::Line(line.clone()));
        }
        if let Some(mut others) = others {
            for remote in others.remotes.values() {
                remote.send(ToMember::Goodbye { code, summary: summary.clone() });
            }
            let hang_up = async {
                while !others.remotes.is_empty() {
                    if let Some(Incoming::Gone { connection, .. }) = others.leader.receive().await {
                        others.remotes.retain(|_, remote| remote.connection != connection);
                    }
                }
            };
            _ = tokio::time::timeout(HANG_UP, hang_up).await;
        }
        code
    }
}

/// A follower: runs its member, tells the leader, does as it says.
async fn follow(
    run: Run,
    mut link: Link,
    port: HeldPort,
    signals: &mut Signals,
    talk: Talk<'_>,
) -> Result<u8, RunError> {
    let columns = tokio::select! {
        columns = link.roster(|come, world, missing| {
            talk(Notice::Waiting { come, world, missing: missing.to_owned(), waited: None });
        }) => columns?,
        number = ending(signals) => return Err(RendezvousError::Interrupted(signal::name(number)).into()),
    };
    let rank = link.rank;
    let members = columns
        .members(run.plan.world())
        .ok_or_else(|| RendezvousError::Refused { why: "its roster does not fit the world".to_owned() })?;
    let (roster, environ, spec) = settle(run, rank, members)?;
    let mut executor = prepare(&roster, HashMap::from([(rank, port)]), &spec, &environ, talk)?;
    talk(Notice::Start(format!("this is {}", name(&roster.plan.members[rank as usize]))));
    let mut own = Own { ended: false, lost: None, interrupted: None, done: None };
    own.report(executor.start(rank).into_iter().collect(), &link).await;
    while own.code().is_none() {
        let wake = executor.wake.clone();
        let next = executor.next_poll();
        tokio::select! {
            sensed = signals.next() => match sensed {
                Sensed::Child => {}
                Sensed::Signal(number) => if !signal::ends_the_job(number) {
                    executor.signal(number);
                } else if own.interrupted.replace(number).is_some() {
                    executor.kill();
                } else {
                    talk(Notice::Line(format!("{} came: stopping", signal::name(number))));
                    link.send(ToLeader::Interrupted { signal: number }).await;
                    executor.stop(spec.grace);
                },
            },
            () = wake.notified() => {}
            message = link.receive(), if own.lost.is_none() && own.done.is_none() => match message {
                Ok(ToMember::Stop { grace_ms }) => executor.stop(Duration::from_millis(grace_ms)),
                Ok(ToMember::Kill) => executor.kill(),
                Ok(ToMember::Restart) => {
                    own.ended = false;
                    own.report(executor.start(rank).into_iter().collect(), &link).await;
                }
                Ok(ToMember::Goodbye { code, summary }) => {
                    for line in summary {
                        talk(Notice::Line(line));
                    }
                    own.done = Some(code);
                    // Nothing more will come; whatever still runs ends now.
                    if !own.ended {
                        executor.kill();
                    }
                }
                Ok(_) => {}
                Err(error) => {
                    talk(Notice::Line(format!("the leader is lost ({error}): stopping")));
                    own.lost = Some(error.to_string());
                    executor.stop(spec.grace);
                }
            },
            () = until(next) => {}
        }
        own.report(executor.poll(), &link).await;
    }
    executor.finish_all();
    Ok(own.code().unwrap_or_default())
}

/// What a follower knows of its own end.
struct Own {
    ended: bool,
    lost: Option<String>,
    interrupted: Option<i32>,
    /// The job's exit code, from the leader.
    done: Option<u8>,
}

impl Own {
    async fn report(&mut self, happened: Vec<Happened>, link: &Link) {
        for happened in happened {
            match happened {
                Happened::Started { pid, .. } => link.send(ToLeader::Started { pid }).await,
                Happened::Listening { .. } => link.send(ToLeader::Listening).await,
                Happened::Ended { ended, .. } => {
                    self.ended = true;
                    link.send(ToLeader::Ended(ended)).await;
                }
            }
        }
    }

    /// The exit code, once everything has ended.
    fn code(&self) -> Option<u8> {
        match (self.ended, self.done, &self.lost, self.interrupted) {
            (true, Some(code), ..) => Some(code),
            (true, None, Some(_), Some(_)) => Some(OwnCode::Interrupted.code()),
            (true, None, Some(_), None) => Some(OwnCode::LeaderLost.code()),
            _ => None,
        }
    }
}

/// Launches of this agent's members, with all their variables and files.
fn prepare(
    roster: &Roster,
    held: HashMap<u32, HeldPort>,
    spec: &RunSpec,
    environ: &Environ,
    talk: Talk<'_>,
) -> Result<Executor, RunError> {
    let plan = &roster.plan;
    let roster_file = spec.private.join("roster.json");
    std::fs::write(&roster_file, roster.to_json()).map_err(io("the roster file"))?;
    let log_folder = spec.log_dir.as_ref().map(|folder| folder.join(format!("attempt-{}", plan.attempt)));
    if let Some(folder) = &log_folder {
        std::fs::create_dir_all(folder).map_err(io("--log-dir"))?;
    }
    let mut launches = Vec::new();
    for (rank, port) in held {
        let member = &plan.members[rank as usize];
        let error_file = spec.private.join(format!("error-{rank}"));
        let extras = Extras {
            roster_file: Some(roster_file.clone()),
            error_file: Some(error_file.clone()),
            threads: spec.threads,
            hand_over: spec.hand_over,
        };
        let child = child_env(spec.framework, roster, member, environ, &extras)?;
        if launches.is_empty() {
            child.notes.iter().for_each(|note| talk(Notice::Line(note.clone())));
        }
        launches.push(Launch {
            rank,
            role: member.role.to_string(),
            index: member.index,
            host: plan.host(member).unwrap_or("?").to_owned(),
            command: spec.command.clone(),
            variables: child.variables.into_iter().chain(spec.extra.iter().cloned()).collect(),
            error_file,
            log_folder: log_folder.clone(),
            port: Some(port),
        });
    }
    let output = Output::new(spec.style.clone(), log_folder.is_some()).map_err(io("output"))?;
    Executor::new(launches, output).map_err(io("log files"))
}

async fn receive(others: &mut Option<Others>) -> Option<Incoming> {
    match others {
        Some(others) => others.leader.receive().await,
        None => std::future::pending().await,
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

fn closing_rows(plan: &Plan, outcomes: &[MemberOutcome]) -> Vec<ClosingRow> {
    plan.members
        .iter()
        .zip(outcomes)
        .map(|(member, outcome)| {
            let end = match &outcome.ended {
                None => "not started".to_owned(),
                Some(ended) if ended.end.is_success() => "finished".to_owned(),
                Some(ended) if outcome.stopped => format!("stopped ({})", ended.end),
                Some(ended) => format!("failed ({})", ended.end),
            };
            let restarts = match outcome.restarts {
                0 => String::new(),
                1 => ", restarted once".to_owned(),
                n => format!(", restarted {n} times"),
            };
            ClosingRow {
                member: name(member),
                host: plan.host(member).unwrap_or("?").to_owned(),
                pid: outcome.pid,
                end: format!("{end}{restarts}"),
                seconds: outcome.ended.as_ref().map(|ended| ended.seconds),
                peak_kib: outcome.ended.as_ref().map(|ended| ended.peak_kib),
            }
        })
        .collect()
}
