//! The conductor: does what the job decides, here and, as the leader, elsewhere.

use super::closing::Closing;
use super::executor::Executor;
use super::launch::prepare;
use super::launcher::Step;
use super::losses::Tally;
use super::member::Happened;
use super::others::{Others, receive, refuse};
use super::report;
use super::restarts::Restarts;
use super::rollcall::{self, RollCall};
use super::run::{LogErrors, Notice, Requeue, RunError, RunSpec, Talk, io};
use super::signals::{Sensed, Signals, until};
use super::silence::Silence;
use super::standin::no_stand_in;
use crate::clock;
use crate::environ::Environ;
use crate::events::{EventLog, JobEvent};
use crate::framework::Framework;
use crate::job::{Action, Event, Job};
use crate::lane::Loss;
use crate::outcome::{End, Ended, Outcome};
use crate::ports::HeldPort;
use crate::process::limits::DescriptorLimit;
use crate::rendezvous::message::{Offer, ToLeader, ToMember};
use crate::rendezvous::{Incoming, Remote};
use crate::roster::Roster;
use crate::signal;
use std::collections::HashMap;
use std::time::{Duration, Instant, SystemTime};

/// Beyond the grace, a member on another host may take this long to say that it has ended.
const LAST_REPORT: Duration = Duration::from_secs(4);
/// How long all may take to end before it is said who has not, and how often it is said again.
const FIRST_WORD: Duration = Duration::from_secs(2);
const NEXT_WORD: Duration = Duration::from_secs(10);
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
    restarts: Restarts,
    requeue: Option<Requeue>,
    lost: Tally,
    log_errors: LogErrors,
    roll_call: RollCall,
    silence: Silence,
    framework: &'static dyn Framework,
    over: bool,
    talk: Talk<'a>,
}

impl<'a> Conductor<'a> {
    /// The conductor of a job that is settled.
    pub(super) fn of(
        settled: Result<(Roster, Environ, RunSpec), RunError>,
        held: HashMap<u32, HeldPort>,
        descriptors: DescriptorLimit,
        talk: Talk<'a>,
    ) -> Result<Conductor<'a>, RunError> {
        let (roster, environ, spec) = settled?;
        let job = Job::new(roster.plan(), spec.rules.clone()).ok_or_else(|| RunError::nobody(&spec.rules))?;
        Conductor::new(roster, job, held, descriptors, &spec, &environ, talk)
    }

    pub(super) fn new(
        roster: Roster,
        job: Job,
        held: HashMap<u32, HeldPort>,
        descriptors: DescriptorLimit,
        spec: &RunSpec,
        environ: &Environ,
        talk: Talk<'a>,
    ) -> Result<Conductor<'a>, RunError> {
        let mut own: Vec<u32> = held.keys().copied().collect();
        own.sort_unstable();
        let (executor, losses) = prepare(&roster, held, descriptors, spec, environ, talk)?;
        let named = spec.events.as_ref().map(|file| format!("--events {}", file.display()));
        let events = EventLog::create(spec.events.as_deref(), &losses)
            .map_err(io(named.as_deref().unwrap_or("--events")))?;
        let world = roster.plan().members().len();
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
            restarts: Restarts::default(),
            requeue: spec.requeue.clone(),
            lost: Tally::default(),
            log_errors: spec.log_errors,
            roll_call: RollCall::default(),
            silence: Silence::new(world, clock::now()),
            framework: spec.framework,
            over: false,
            talk,
        })
    }

    pub(super) fn event(&mut self, event: &JobEvent<'_>) {
        self.events.write(self.roster.plan().attempt(), event);
    }

    /// Starts all that run here; they stand still where the job does (Ctrl-Z while the others came).
    pub(super) fn begin(&mut self, suspended: bool) {
        if suspended {
            self.suspend(true);
        }
        self.start();
    }

    fn start(&mut self) {
        let plan = self.roster.plan();
        self.events.write(plan.attempt(), &report::roster(&self.roster));
        (self.talk)(Notice::Start(report::start_line(plan, SystemTime::now())));
        for rank in self.own.clone() {
            if self.over {
                break;
            }
            let happened = self.executor.start(rank);
            self.happened(happened.into_iter().collect());
        }
    }

    /// Until nobody is left.
    pub(super) async fn run(mut self, signals: &mut Signals) -> Outcome {
        while !self.over {
            let wake = self.executor.wake.clone();
            let give_up = self.others.as_ref().and_then(|others| others.give_up);
            let word = self.stop.map(|(_, word)| word);
            let next = [self.executor.next_poll(), give_up, word].into_iter();
            let next = next.chain(self.next_while_awake()).flatten().min();
            tokio::select! {
                sensed = signals.next() => match sensed {
                    Sensed::Child => {}
                    Sensed::Suspend(on) => self.suspend(on),
                    Sensed::Signal(number) => {
                        if signal::ends_the_job(number) {
                            let line = signal::told(number, self.job.was_signalled());
                            (self.talk)(Notice::Line(line));
                        }
                        self.apply(Event::Signal(number));
                    }
                },
                () = wake.notified() => {}
                incoming = receive(&mut self.others) => self.incoming(incoming),
                () = until(next) => {}
            }
            let happened = self.executor.poll();
            self.happened(happened);
            self.look_after_step();
            self.name_the_lingering();
            self.give_up_on_the_silent();
            if !self.executor.is_suspended() {
                self.restart_due();
                self.call_the_roll();
                self.break_the_silence();
            }
        }
        let Conductor {
            roster,
            job,
            executor,
            others,
            step,
            events,
            grace,
            requeue,
            lost,
            log_errors,
            talk,
            ..
        } = self;
        let closing =
            Closing { roster, job, executor, others, step, events, grace, requeue, lost, log_errors, talk };
        closing.close(signals).await
    }

    /// When something is to be done that nobody does while the job stands still: behind the prompt nothing is started
    /// and nothing is said.
    fn next_while_awake(&self) -> [Option<Instant>; 3] {
        if self.executor.is_suspended() {
            return [None; 3];
        }
        [self.restarts.next(), self.roll_call.next(), self.silence.next()]
    }

    /// Says who has finished and who still runs, now and then.
    fn call_the_roll(&mut self) {
        if self.roll_call.is_due(self.job.waits_for_some(), clock::now()) {
            let line = rollcall::line(self.roster.plan(), &self.job.standing());
            (self.talk)(Notice::Line(line));
        }
    }

    /// Ctrl-Z, or `fg` after it: the members of this agent, or of the step it has started.
    fn suspend(&mut self, on: bool) {
        if self.step.is_some() {
            let number = if on { libc::SIGTSTP } else { libc::SIGCONT };
            self.say_all(&ToMember::Signal { number });
        } else {
            self.executor.suspend(on);
        }
    }

    fn happened(&mut self, happened: Vec<Happened>) {
        for happened in happened {
            match happened {
                Happened::Started { rank, pid, served } => self.started(rank, pid, served),
                Happened::Listening { rank } => self.listening(rank),
                Happened::Ended { rank, ended } => self.apply(Event::Ended { rank, ended }),
                Happened::OutputLost(loss) => self.output_lost(loss),
                Happened::NoStandIn { rank, why } => {
                    let line = no_stand_in(&self.roster.plan().members()[rank as usize], &why);
                    (self.talk)(Notice::Failure(line));
                }
            }
        }
    }

    fn output_lost(&mut self, loss: Loss) {
        let (path, why) = (loss.path.clone(), loss.why.clone());
        // Seldom, the event too: it may be the events that are lost.
        if let Some((line, bytes)) = self.lost.add(loss, clock::now()) {
            let event = JobEvent::OutputLost { path: &path, bytes, why: &why };
            self.events.write(self.roster.plan().attempt(), &event);
            (self.talk)(Notice::Failure(line));
        }
    }

    fn started(&mut self, rank: u32, pid: u32, served: bool) {
        let member = &self.roster.plan().members()[rank as usize];
        let host = self.roster.plan().host(member).unwrap_or("?");
        let (role, index) = (member.role.as_str(), member.index);
        let event = JobEvent::Started { rank, role, index, host, pid, served };
        self.events.write(self.roster.plan().attempt(), &event);
        self.apply(Event::Started { rank, pid, served });
    }

    fn listening(&mut self, rank: u32) {
        let member = &self.roster.plan().members()[rank as usize];
        let event = JobEvent::Listening { rank, role: member.role.as_str(), index: member.index };
        self.events.write(self.roster.plan().attempt(), &event);
        self.apply(Event::Listening { rank });
    }

    fn apply(&mut self, event: Event) {
        let ended = match &event {
            Event::Ended { rank, .. } | Event::Lost { rank, .. } => {
                Some(*rank).filter(|rank| self.job.is_alive(*rank))
            }
            _ => None,
        };
        tracing::debug!("the job hears {event:?}");
        let actions = self.job.apply(event);
        tracing::debug!("the job decides {actions:?}");
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
        let member = &self.roster.plan().members()[rank as usize];
        let outcome = &self.job.members()[rank as usize];
        let Some(Ended { end, .. }) = &outcome.ended else { return };
        if let Some(event) = report::end(member, outcome) {
            self.events.write(self.roster.plan().attempt(), &event);
        }
        if !end.is_success() && !outcome.stopped {
            (self.talk)(Notice::Line(format!("{member} has failed: {end}")));
        }
    }

    fn perform(&mut self, action: Action) {
        match action {
            Action::Restart(rank) => {
                let member = &self.roster.plan().members()[rank as usize];
                let event = JobEvent::Restarted { rank, role: member.role.as_str(), index: member.index };
                self.events.write(self.roster.plan().attempt(), &event);
                (self.talk)(Notice::Line(format!("{member} failed and is started again")));
                let before = self.job.members()[rank as usize].restarts.saturating_sub(1);
                self.restarts.add(rank, before, clock::now());
            }
            Action::StopAll => {
                self.forget_restarts();
                // Below a launcher there is no member, but the step itself, which ends when all have.
                if self.step.is_none() {
                    self.executor.stop(self.grace);
                }
                let grace_ms = self.grace.as_millis() as u64;
                self.say_all(&ToMember::Stop { grace_ms });
                let now = clock::now();
                self.stop = Some((now, now + FIRST_WORD));
                if let Some(others) = &mut self.others {
                    others.give_up = Some(clock::now() + self.grace + LAST_REPORT);
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
            Action::StandIn(rank) if self.own.contains(&rank) => self.executor.stand_in(rank),
            Action::StandIn(rank) => self.say(rank, ToMember::StandIn),
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
            (self.talk)(Notice::Line(format!("{end} while members were running: stopping")));
            self.apply(Event::SignalElsewhere(libc::SIGTERM));
        }
    }

    /// Starts those whose pause is over.
    fn restart_due(&mut self) {
        for rank in self.restarts.due(clock::now()) {
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
        for rank in self.restarts.forget() {
            let end = End::NotStarted("the job ended before it was started again".to_owned());
            let ended = Ended::without_process(end);
            self.apply(Event::Ended { rank, ended });
        }
    }

    fn say(&self, rank: u32, message: ToMember) {
        if let Some(remote) = self.others.as_ref().and_then(|others| others.remotes.get(rank)) {
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
        match incoming {
            Incoming::Offer { offer, remote } => self.latecomer(&offer, remote),
            Incoming::Strangers { line } => (self.talk)(Notice::Line(line)),
            Incoming::Gone { connection, why } => {
                let Some(others) = &mut self.others else { return };
                others.latecomers.remove(&connection);
                if let Some(rank) = others.remotes.hang_up(connection) {
                    self.apply(Event::Lost { rank, why: format!("its agent is gone: {why}") });
                }
            }
            Incoming::Message { connection, message } => {
                let rank = self.others.as_ref().and_then(|others| others.remotes.rank_of(connection));
                let Some(rank) = rank else { return };
                match message {
                    ToLeader::Started { pid, served } => self.started(rank, pid, served),
                    ToLeader::Listening => self.listening(rank),
                    ToLeader::Wrote => self.silence.heard(rank, clock::now()),
                    ToLeader::Ended(ended) => self.apply(Event::Ended { rank, ended }),
                    ToLeader::OutputLost { path, bytes, why } => {
                        let member = &self.roster.plan().members()[rank as usize];
                        let host = self.roster.plan().host(member).unwrap_or("?");
                        self.output_lost(Loss { path: format!("{path} on {host}"), bytes, why });
                    }
                    ToLeader::Interrupted { signal } => {
                        let member = &self.roster.plan().members()[rank as usize];
                        (self.talk)(Notice::Line(format!(
                            "{} came to {member}: stopping",
                            signal::name(signal)
                        )));
                        self.apply(Event::SignalElsewhere(signal));
                    }
                    ToLeader::Failed { code, why } => {
                        let ended = Ended::without_process(End::AgentFailed { code, why });
                        self.apply(Event::Ended { rank, ended });
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
        let member = &self.roster.plan().members()[rank as usize];
        let why = format!("{member} was started again on {} while its job runs", offer.host);
        (self.talk)(Notice::Line(why.clone()));
        remote.send(ToMember::Later {
            why: "an earlier attempt of this job still runs; waiting for its end".to_owned(),
        });
        others.latecomers.insert(remote.connection, remote);
        if let Some(earlier) = others.remotes.remove(rank) {
            earlier.send(ToMember::Stop { grace_ms: self.grace.as_millis() as u64 });
        }
        if self.own.contains(&rank) {
            self.apply(Event::SignalElsewhere(signal::TERMINATE));
        } else {
            self.apply(Event::Lost { rank, why });
        }
    }

    /// Nobody writes anything: says what is known, and what it may be.
    fn break_the_silence(&mut self) {
        let now = clock::now();
        if self.stop.is_some() {
            self.silence.over();
        }
        if self.silence.next().is_none_or(|at| at > now) {
            return;
        }
        for (&rank, last) in &self.executor.last_output {
            if let Some(at) = last.get() {
                self.silence.heard(rank, at);
            }
        }
        if let Some(lasts) = self.silence.is_due(now) {
            let lines = self.silence.lines(self.roster.plan(), &self.job, self.framework, lasts, now);
            lines.into_iter().for_each(|line| (self.talk)(Notice::Line(line)));
        }
    }

    /// A stop that takes its time says for whom.
    fn name_the_lingering(&mut self) {
        let now = clock::now();
        let Some((since, _)) = self.stop.filter(|(_, word)| *word <= now) else { return };
        self.stop = Some((since, now + NEXT_WORD));
        let left = (since + self.grace).saturating_duration_since(now);
        let world = self.roster.plan().world();
        let lingering: Vec<u32> = (0..world).filter(|&rank| self.job.is_alive(rank)).collect();
        if !left.is_zero() && !lingering.is_empty() {
            let line = report::still_ending(self.roster.plan(), &lingering, left, self.job.verdict());
            (self.talk)(Notice::Line(line));
        }
    }

    fn give_up_on_the_silent(&mut self) {
        let Some(others) = &mut self.others else { return };
        if others.give_up.is_none_or(|at| clock::now() < at) {
            return;
        }
        others.give_up = None;
        let silent: Vec<u32> = others.remotes.ranks().collect();
        for rank in silent {
            if self.job.members()[rank as usize].ended.is_none() {
                // It is told how it went, but its answer is not waited for: it has had its time.
                self.unheard(rank);
                let why = "its agent did not report its end in time".to_owned();
                self.apply(Event::Lost { rank, why });
            }
        }
    }

    /// Gives up on an agent that does not answer.
    fn unheard(&mut self, rank: u32) {
        if let Some(others) = &mut self.others
            && let Some(remote) = others.remotes.remove(rank)
        {
            remote.send(ToMember::Kill);
            others.silent.push(remote);
        }
    }
}
