//! The conductor: does what the job decides, here and, as the leader, elsewhere.

use super::closing::Closing;
use super::executor::Executor;
use super::launch::prepare;
use super::launcher::Step;
use super::losses::Tally;
use super::member::Happened;
use super::others::{Others, receive};
use super::rehearsing::Rehearsed;
use super::restarts::Restarts;
use super::rollcall::RollCall;
use super::run::{AgentError, LogErrors, Requeue, RunSpec};
use super::signals::{Sensed, Signals, until};
use super::silence::Silence;
use super::standin::is_not_found;
use super::stream::Stream;
use crate::clock;
use crate::environ::Environ;
use crate::event::RunEvent;
use crate::framework::Framework;
use crate::job::{Action, Event, Job, Standing};
use crate::lane::Loss;
use crate::names::{Name, Names};
use crate::outcome::{End, Ended, LostOutput, Outcome, Verdict};
use crate::ports::HeldPort;
use crate::process::limits::DescriptorLimit;
use crate::rehearsal::Planned;
use crate::rendezvous::message::ToMember;
use crate::roster::Roster;
use crate::signal;
use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

/// Beyond the grace, a member on another host may take this long to say that it has ended.
const LAST_REPORT: Duration = Duration::from_secs(4);
/// How long all may take to end before it is said who has not, and how often it is said again.
const FIRST_WORD: Duration = Duration::from_secs(2);
const NEXT_WORD: Duration = Duration::from_secs(10);
/// Does what the job decides, here and elsewhere.
pub(super) struct Conductor<'a> {
    pub(super) roster: Roster,
    pub(super) job: Job,
    executor: Executor,
    pub(super) others: Option<Others>,
    /// The step that this agent has started, if all members run there and none here.
    pub(super) step: Option<Step>,
    pub(super) stream: Stream<'a>,
    pub(super) grace: Duration,
    /// When all were asked to end, and when it is said who has not.
    stop: Option<(Instant, Instant)>,
    pub(super) own: Vec<u32>,
    restarts: Restarts,
    pub(super) rehearsed: Rehearsed,
    requeue: Option<Requeue>,
    lost: Tally,
    log_errors: LogErrors,
    roll_call: RollCall,
    pub(super) silence: Silence,
    framework: &'static dyn Framework,
    over: bool,
}

impl<'a> Conductor<'a> {
    /// The conductor of a job that is settled.
    pub(super) fn of(
        settled: Result<(Roster, Environ, RunSpec), AgentError>,
        held: BTreeMap<u32, HeldPort>,
        descriptors: DescriptorLimit,
        stream: Stream<'a>,
    ) -> Result<Conductor<'a>, AgentError> {
        let (roster, environ, spec) = settled?;
        let job =
            Job::new(roster.plan(), spec.rules.clone()).ok_or_else(|| AgentError::nobody(&spec.rules))?;
        Conductor::new(roster, job, held, descriptors, &spec, &environ, stream)
    }

    pub(super) fn new(
        roster: Roster,
        job: Job,
        held: BTreeMap<u32, HeldPort>,
        descriptors: DescriptorLimit,
        spec: &RunSpec,
        environ: &Environ,
        mut stream: Stream<'a>,
    ) -> Result<Conductor<'a>, AgentError> {
        let mut own: Vec<u32> = held.keys().copied().collect();
        own.sort_unstable();
        let (executor, notes) = prepare(&roster, held, descriptors, spec, environ, stream.hearing()?)?;
        stream.attempt = roster.plan().attempt();
        notes.into_iter().for_each(|text| stream.emit(RunEvent::Note { text }));
        let world = roster.plan().members().len();
        let planned = spec.rehearsal.planned(roster.plan());
        Ok(Conductor {
            roster,
            job,
            executor,
            others: None,
            step: None,
            stream,
            grace: spec.grace,
            stop: None,
            own,
            restarts: Restarts::default(),
            rehearsed: Rehearsed::new(planned),
            requeue: spec.requeue.clone(),
            lost: Tally::default(),
            log_errors: spec.log_errors,
            roll_call: RollCall::default(),
            silence: Silence::new(world, clock::now()),
            framework: spec.framework,
            over: false,
        })
    }

    /// Who a member is.
    pub(super) fn name(&self, rank: u32) -> Name {
        self.job.members()[rank as usize].member.clone()
    }

    /// Where it runs, `?` if nobody knows.
    pub(super) fn host(&self, rank: u32) -> String {
        self.job.members()[rank as usize].host.clone().unwrap_or_else(|| "?".to_owned())
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
        let left = plan.deadline().and_then(|end| end.duration_since(SystemTime::now()).ok());
        let begun = RunEvent::Begun { world: plan.world(), hosts: plan.hosts().len() as u32, left };
        self.stream.emit(RunEvent::of_roster(&self.roster));
        self.stream.emit(begun);
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
                            let again = self.job.was_signalled();
                            self.stream.emit(RunEvent::Signal { signal: number, again });
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
        self.tell_what_was_not_rehearsed();
        let Conductor {
            roster, job, executor, others, step, stream, grace, requeue, lost, log_errors, ..
        } = self;
        let closing =
            Closing { roster, job, executor, others, step, stream, grace, requeue, lost, log_errors };
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
            let Standing { finished, running } = self.job.standing();
            let plan = self.roster.plan();
            let (finished, running) = (Names::of(plan, &finished), Names::of(plan, &running));
            self.stream.emit(RunEvent::RollCall { finished, running });
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
                Happened::Rehearsed { fault, pid } => self.rehearsed(fault, pid),
                Happened::NoStandIn { rank, why } => {
                    let (member, not_found) = (self.name(rank), is_not_found(&why));
                    self.stream.emit(RunEvent::NoStandIn { member, why, not_found });
                }
            }
        }
    }

    pub(super) fn rehearsed(&mut self, fault: Planned, pid: Option<u32>) {
        self.rehearsed.note(&fault, pid.is_some());
        self.stream.emit(RunEvent::of_fault(self.name(fault.rank), &fault, pid));
    }

    /// Who believes that a fault was survived should know that it never came.
    fn tell_what_was_not_rehearsed(&mut self) {
        for (deed, after, ranks) in self.rehearsed.left() {
            let members = Names::of(self.roster.plan(), &ranks);
            self.stream.emit(RunEvent::NotRehearsed { members, deed, after, over: true });
        }
    }

    pub(super) fn output_lost(&mut self, loss: Loss) {
        // Seldom: it may be the events that are lost.
        if let Some((LostOutput { path, bytes, why }, again)) = self.lost.add(loss, clock::now()) {
            self.stream.emit(RunEvent::OutputLost { path, bytes, why, again });
        }
    }

    pub(super) fn started(&mut self, rank: u32, pid: u32, served: bool) {
        let (member, host) = (self.name(rank), self.host(rank));
        self.stream.emit(RunEvent::Started { member, host, pid, served });
        self.apply(Event::Started { rank, pid, served });
    }

    pub(super) fn listening(&mut self, rank: u32) {
        let member = self.name(rank);
        self.stream.emit(RunEvent::Listening { member });
        self.apply(Event::Listening { rank });
    }

    pub(super) fn apply(&mut self, event: Event) {
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
            let ended = RunEvent::of_end(&self.job.members()[rank as usize]);
            ended.into_iter().for_each(|event| self.stream.emit(event));
        }
        for action in actions {
            self.perform(action);
        }
    }

    fn perform(&mut self, action: Action) {
        match action {
            Action::Restart(rank) => {
                let member = self.name(rank);
                self.stream.emit(RunEvent::Restarted { member });
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
            self.stream.emit(RunEvent::StepEnded { launcher: step.name.to_owned(), end });
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
            let known = self.silence.known(self.roster.plan(), &self.job, self.framework, lasts, now);
            self.stream.emit(RunEvent::Silent(Box::new(known)));
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
            let members = Names::of(self.roster.plan(), &lingering);
            let interrupted = matches!(self.job.verdict(), Some(Verdict::Interrupted(_)));
            self.stream.emit(RunEvent::Lingering { members, kill_in: left, interrupted });
        }
    }
}
