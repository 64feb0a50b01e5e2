//! The conductor: does what the job decides, here and, as the leader, elsewhere.

use super::agent::{ClosingRow, Notice, Requeue, RunError, RunSpec, Talk, io};
use super::executor::{Executor, Happened};
use super::launch::prepare;
use super::signals::{Sensed, Signals, until};
use super::step::Step;
use crate::environ::Environ;
use crate::events::{EventLog, JobEvent, RosterEntry};
use crate::job::{Action, Event, Job};
use crate::machine::run_with_limit;
use crate::outcome::{End, MemberOutcome, Verdict, name};
use crate::plan::Plan;
use crate::ports::HeldPort;
use crate::rendezvous::message::{Ended, Offer, ToLeader, ToMember};
use crate::rendezvous::{Incoming, Leader, Remote, describe};
use crate::roster::Roster;
use crate::signal;
use std::collections::HashMap;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

/// Beyond the grace, a member on another host may take this long to say that it has ended.
const LAST_REPORT: Duration = Duration::from_secs(5);
/// How long all may take to end before it is said who has not, and how often it is said again.
const FIRST_WORD: Duration = Duration::from_secs(2);
const NEXT_WORD: Duration = Duration::from_secs(10);
/// The pause before a member is started again; twice as long each time.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How long the scheduler may take to answer that the job is queued again.
const REQUEUE_LIMIT: Duration = Duration::from_secs(20);
/// How long the others may take to hang up after the goodbye.
const HANG_UP: Duration = Duration::from_secs(2);

/// The members that other agents run.
pub(super) struct Others {
    pub(super) leader: Leader,
    pub(super) remotes: HashMap<u32, Remote>,
    /// How often each rank was started before, where the scheduler starts them apart.
    pub(super) runs: Vec<u32>,
    /// Members of the next attempt, who wait for the end of this one.
    pub(super) latecomers: Vec<Remote>,
    /// When those who have not reported their end are taken for lost.
    pub(super) give_up: Option<Instant>,
}

/// Does what the job decides, here and elsewhere.
pub(super) struct Conductor<'a> {
    pub(super) roster: Roster,
    job: Job,
    executor: Executor,
    pub(super) others: Option<Others>,
    /// The step that this agent has started, if all members run there and none here.
    pub(super) step: Option<Step>,
    events: EventLog,
    grace: Duration,
    /// When all were asked to end, and when it is said who has not.
    stop: Option<(Instant, Instant)>,
    own: Vec<u32>,
    /// Members that are to be started again, and when.
    restarts: Vec<(Instant, u32)>,
    requeue: Option<Requeue>,
    over: bool,
    talk: Talk<'a>,
}

impl<'a> Conductor<'a> {
    pub(super) fn new(
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
            step: None,
            events,
            grace: spec.grace,
            stop: None,
            own,
            restarts: Vec::new(),
            requeue: spec.requeue.clone(),
            over: false,
            talk,
        })
    }

    pub(super) fn event(&mut self, event: &JobEvent<'_>) {
        self.events.write(self.roster.plan.attempt, event);
    }

    pub(super) fn start(&mut self) {
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
        let plural = |count: usize| if count == 1 { "" } else { "s" };
        let world = plan.members.len();
        let line = format!("{world} member{} on {hosts} host{}", plural(world), plural(hosts));
        let left = plan.deadline.and_then(|end| end.duration_since(SystemTime::now()).ok());
        let line = match left {
            Some(left) => format!("{line}; {} left until the time limit", hours(left)),
            None => line,
        };
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
    pub(super) async fn run(mut self, signals: &mut Signals) -> u8 {
        while !self.over {
            let wake = self.executor.wake.clone();
            let give_up = self.others.as_ref().and_then(|others| others.give_up);
            let restart = self.restarts.iter().map(|(at, _)| *at).min();
            let word = self.stop.map(|(_, word)| word);
            let next = [self.executor.next_poll(), give_up, restart, word].into_iter().flatten().min();
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
            self.look_after_step();
            self.restart_due();
            self.name_the_lingering();
            self.give_up_on_the_silent();
        }
        self.close().await
    }

    fn happened(&mut self, happened: Vec<Happened>) {
        for happened in happened {
            match happened {
                Happened::Started { rank, pid, served } => self.started(rank, pid, served),
                Happened::Listening { rank } => self.listening(rank),
                Happened::Ended { rank, ended } => self.apply(Event::Ended { rank, ended }),
            }
        }
    }

    fn started(&mut self, rank: u32, pid: u32, served: bool) {
        let member = &self.roster.plan.members[rank as usize];
        let host = self.roster.plan.host(member).unwrap_or("?");
        let (role, index) = (member.role.as_str(), member.index);
        let event = JobEvent::Started { rank, role, index, host, pid, served };
        self.events.write(self.roster.plan.attempt, &event);
        self.apply(Event::Started { rank, pid, served });
    }

    fn listening(&mut self, rank: u32) {
        let member = &self.roster.plan.members[rank as usize];
        let event = JobEvent::Listening { rank, role: member.role.as_str(), index: member.index };
        self.events.write(self.roster.plan.attempt, &event);
    }

    fn apply(&mut self, event: Event) {
        let ended = match &event {
            Event::Ended { rank, .. } | Event::Lost { rank, .. } => {
                Some(*rank).filter(|rank| self.job.is_alive(*rank))
            }
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
                let before = self.job.members()[rank as usize].restarts.saturating_sub(1);
                let pause = FIRST_PAUSE.saturating_mul(1 << before.min(10)).min(LONGEST_PAUSE);
                self.restarts.push((Instant::now() + pause, rank));
            }
            Action::StopAll => {
                self.forget_restarts();
                // Below a launcher there is no member, but the step itself, which ends when all have.
                if self.step.is_none() {
                    self.executor.stop(self.grace);
                }
                let grace_ms = self.grace.as_millis() as u64;
                self.say_all(&ToMember::Stop { grace_ms });
                let now = Instant::now();
                self.stop = Some((now, now + FIRST_WORD));
                if let Some(others) = &mut self.others {
                    others.give_up = Some(Instant::now() + self.grace + LAST_REPORT);
                }
            }
            Action::KillAll => {
                if self.step.is_none() {
                    self.executor.kill();
                }
                self.say_all(&ToMember::Kill);
            }
            // Agents that a scheduler has started get their own.
            Action::PassOn(number) if self.step.is_some() => self.say_all(&ToMember::Signal { number }),
            Action::PassOn(number) => self.executor.signal(number),
            Action::Over => self.over = true,
        }
    }

    /// Notices that the step has ended under its members: nobody would hear them any more.
    fn look_after_step(&mut self) {
        let strays = std::mem::take(&mut self.executor.strays);
        let Some(step) = &mut self.step else { return };
        let before = step.ended().is_some();
        strays.iter().for_each(|reaped| step.note(reaped));
        if let (false, Some(end)) = (before, step.ended()) {
            (self.talk)(Notice::Line(format!("srun ended {end} while members were running: stopping")));
            self.apply(Event::SignalElsewhere(libc::SIGTERM));
        }
    }

    /// Starts those whose pause is over.
    fn restart_due(&mut self) {
        let now = Instant::now();
        let due: Vec<u32> =
            self.restarts.iter().filter(|(at, _)| *at <= now).map(|(_, rank)| *rank).collect();
        self.restarts.retain(|(at, _)| *at > now);
        for rank in due {
            if self.own.contains(&rank) {
                let happened = self.executor.start(rank);
                self.happened(happened.into_iter().collect());
            } else {
                self.say(rank, ToMember::Restart);
            }
        }
    }

    /// The job ends: who waits to be started again never will be.
    fn forget_restarts(&mut self) {
        for (_, rank) in std::mem::take(&mut self.restarts) {
            let ended = Ended {
                end: End::NotStarted("the job ended before it was started again".to_owned()),
                seconds: 0.0,
                peak_kib: 0,
                tail: Vec::new(),
                reason: None,
            };
            self.apply(Event::Ended { rank, ended });
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
            Incoming::Offer { offer, remote } => self.latecomer(&offer, remote),
            Incoming::Stranger { peer, why } => {
                (self.talk)(Notice::Line(format!("a stranger at {peer} was turned away: {why}")));
            }
            Incoming::Gone { connection, why } => {
                if let Some(others) = &mut self.others {
                    others.latecomers.retain(|remote| remote.connection != connection);
                }
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
                    ToLeader::Started { pid, served } => self.started(rank, pid, served),
                    ToLeader::Listening => self.listening(rank),
                    ToLeader::Ended(ended) => self.apply(Event::Ended { rank, ended }),
                    ToLeader::Interrupted { signal } => {
                        let member = name(&self.roster.plan.members[rank as usize]);
                        (self.talk)(Notice::Line(format!(
                            "{} came to {member}: stopping",
                            signal::name(signal)
                        )));
                        self.apply(Event::SignalElsewhere(signal));
                    }
                    ToLeader::Alive | ToLeader::Offer(_) => {}
                }
            }
        }
    }

    /// Somebody comes when all have come already. One that the scheduler has started again means that its
    /// earlier run is over, even if we have not noticed; it belongs to the next attempt.
    fn latecomer(&mut self, offer: &Offer, remote: Remote) {
        let Some(others) = &mut self.others else { return };
        let known = offer.rank.filter(|_| others.leader.is_for_this_job(offer));
        let Some(rank) = known else { return refuse(&remote) };
        match others.runs.get_mut(rank as usize) {
            Some(runs) if offer.runs > *runs => *runs = offer.runs,
            _ => return refuse(&remote),
        }
        let member = name(&self.roster.plan.members[rank as usize]);
        let why = format!("{member} was started again on {} while its job runs", offer.host);
        (self.talk)(Notice::Line(why.clone()));
        remote.send(ToMember::Later {
            why: "an earlier attempt of this job still runs; waiting for its end".to_owned(),
        });
        others.latecomers.push(remote);
        if let Some(earlier) = others.remotes.remove(&rank) {
            earlier.send(ToMember::Stop { grace_ms: self.grace.as_millis() as u64 });
        }
        if self.own.contains(&rank) {
            self.apply(Event::SignalElsewhere(signal::TERMINATE));
        } else {
            self.apply(Event::Lost { rank, why });
        }
    }

    /// A stop that takes its time says for whom.
    fn name_the_lingering(&mut self) {
        let now = Instant::now();
        let Some((since, _)) = self.stop.filter(|(_, word)| *word <= now) else { return };
        self.stop = Some((since, now + NEXT_WORD));
        let left = (since + self.grace).saturating_duration_since(now);
        let world = self.roster.plan.world();
        let lingering: Vec<u32> = (0..world).filter(|&rank| self.job.is_alive(rank)).collect();
        if !left.is_zero() && !lingering.is_empty() {
            let names = describe(&self.roster.plan, &lingering);
            let left = left.as_secs_f64().ceil();
            (self.talk)(Notice::Line(format!("still ending: {names}; SIGKILL in {left} s")));
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
        let Conductor { roster, job, executor, mut others, step, mut events, requeue, talk, .. } = self;
        let verdict = job.verdict().cloned().unwrap_or(Verdict::Success);
        let code = verdict.code();
        let summary = verdict.lines(&roster.plan);
        if let Some(mut step) = step {
            // Its tasks end when they have heard; then it has written all that they wrote.
            say_goodbye(&mut others, code, &summary).await;
            step.see_out().await;
        }
        let left = executor.finish_all().await;
        if left > 0 {
            talk(Notice::Line(format!(
                "{left} process{} left behind by members: ended",
                if left == 1 { "" } else { "es" }
            )));
        }
        events.write(roster.plan.attempt, &JobEvent::Over { code });
        talk(Notice::Closing(closing_rows(&roster.plan, job.members())));
        for line in &summary {
            talk(Notice::Verdict(line.clone()));
        }
        say_goodbye(&mut others, code, &summary).await;
        if let (Verdict::Failed(failure), Some(requeue)) = (&verdict, requeue)
            && job.rules().asks_for_requeue(&failure.ended.end)
        {
            let who = name(&roster.plan.members[failure.rank as usize]);
            talk(Notice::Line(format!(
                "{who} asks for another run: job {} goes back into the queue",
                requeue.job
            )));
            let mut command = Command::new(&requeue.command[0]);
            if let Err(reason) = run_with_limit(command.args(&requeue.command[1..]), REQUEUE_LIMIT) {
                talk(Notice::Failure(format!("job {} cannot be requeued: {reason}", requeue.job)));
            }
        }
        code
    }
}

/// `2:05 h`, `17 min`, `40 s`
fn hours(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds / 60),
        seconds => format!("{}:{:02} h", seconds / 3600, seconds % 3600 / 60),
    }
}

fn refuse(remote: &Remote) {
    let why = "the job is running already; hint: another job needs another --meet directory or --job name";
    remote.send(ToMember::Refused { why: why.to_owned() });
}

/// Tells all agents how it went, and waits a moment for them to hang up.
async fn say_goodbye(others: &mut Option<Others>, code: u8, summary: &[String]) {
    let Some(mut others) = others.take() else { return };
    for remote in others.remotes.values().chain(&others.latecomers) {
        remote.send(ToMember::Goodbye { code, summary: summary.to_vec() });
    }
    let hang_up = async {
        while !(others.remotes.is_empty() && others.latecomers.is_empty()) {
            if let Some(Incoming::Gone { connection, .. }) = others.leader.receive().await {
                others.remotes.retain(|_, remote| remote.connection != connection);
                others.latecomers.retain(|remote| remote.connection != connection);
            }
        }
    };
    _ = tokio::time::timeout(HANG_UP, hang_up).await;
}

async fn receive(others: &mut Option<Others>) -> Option<Incoming> {
    match others {
        Some(others) => others.leader.receive().await,
        None => std::future::pending().await,
    }
}

fn closing_rows(plan: &Plan, outcomes: &[MemberOutcome]) -> Vec<ClosingRow> {
    plan.members
        .iter()
        .zip(outcomes)
        .map(|(member, outcome)| {
            let served = if outcome.served { "served, " } else { "" };
            let end = match &outcome.ended {
                None => "not started".to_owned(),
                Some(ended) if ended.end.is_success() && outcome.served => "served until stopped".to_owned(),
                Some(ended) if ended.end.is_success() => "finished".to_owned(),
                Some(ended) if outcome.stopped => format!("{served}stopped ({})", ended.end),
                Some(ended) => format!("{served}failed ({})", ended.end),
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
