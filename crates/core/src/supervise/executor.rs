//! The members of this agent: started, watched, stopped, reaped.
//!
//! Knows nothing of the job: it is told what to do and tells what happened.

use super::log_file::{LogFile, Stream};
use super::member::{Happened, Launch};
use super::output::{Drained, Output, Source, Tail};
use super::rehearsing::Rehearsing;
use super::silence::LastOutput;
use super::standin::StandIns;
use super::starting::{on_purpose, reason, spawn};
use super::stop::{Order, Stop};
use crate::clock::{self, Deadline};
use crate::lane::Loss;
use crate::network;
use crate::outcome::{End, Ended};
use crate::ports::HeldPort;
use crate::process::calls;
use crate::process::limits::DescriptorLimit;
use crate::process::tree::{self, Asked, STUCK, STUCK_STILL};
use crate::rehearsal::{Deed, Planned};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Notify, mpsc};

/// How often the kernel is asked whether a member listens, at first and at last.
const LISTEN_CHECK: Duration = Duration::from_millis(50);
const SELDOM: Duration = Duration::from_secs(60);
/// Whoever does not listen by then may take its time: 200 agents of one machine must not keep it busy by asking.
const STARTING: Duration = Duration::from_secs(3);
/// A member's last words may take this long to come through its pipe.
const LAST_WORDS: Duration = Duration::from_millis(300);
/// What members that ended by themselves have left has this long.
const LEFT_BEHIND: Duration = Duration::from_millis(500);

/// How it all ended.
#[derive(Debug)]
pub(super) struct Finished {
    /// Processes that members left behind.
    pub(super) left: usize,
    /// What became of the output.
    pub(super) drained: Drained,
    /// Where losses are told.
    pub(super) heard: mpsc::Receiver<Loss>,
}

#[derive(Debug)]
struct Running {
    pid: u32,
    since: Instant,
    /// How long its process ran, once it has ended.
    ran: Duration,
    tail: Rc<RefCell<Tail>>,
    /// Streams that are still open.
    open: Rc<Cell<u32>>,
    listens: bool,
    /// What was last done to it on purpose.
    rehearsed: Option<Deed>,
    /// Set when the process has ended and its last words are awaited.
    gone: Option<(calls::Reaped, Instant)>,
}

impl Running {
    fn age(&self) -> Duration {
        clock::real().saturating_duration_since(self.since)
    }
}

#[derive(Debug)]
pub(super) struct Executor {
    launches: BTreeMap<u32, Launch>,
    descriptors: DescriptorLimit,
    /// All stand still, as a person has asked for.
    suspended: bool,
    logs: BTreeMap<u32, (Arc<LogFile>, Arc<LogFile>)>,
    running: BTreeMap<u32, Running>,
    output: Output,
    /// Told when a stream ends.
    pub(super) wake: Arc<Notify>,
    /// What could not be written.
    heard: mpsc::Receiver<Loss>,
    next_listen_check: Option<Instant>,
    asked: Asked,
    stop: Stop,
    /// Some were given up: nobody can end them.
    given_up: bool,
    /// The groups of members that have ended.
    earlier: BTreeMap<u32, u32>,
    /// Ended children that are no members: adopted orphans, and what else this agent has started.
    pub(super) strays: Vec<calls::Reaped>,
    pub(super) stand_ins: StandIns,
    /// Faults on purpose.
    pub(super) rehearsing: Rehearsing,
    /// When members have last written something.
    pub(super) last_output: BTreeMap<u32, LastOutput>,
}

impl Executor {
    /// Becomes the one that orphans of members are given to.
    pub(super) fn new(
        launches: Vec<Launch>,
        output: Output,
        (wake, heard): (Arc<Notify>, mpsc::Receiver<Loss>),
        descriptors: DescriptorLimit,
    ) -> std::io::Result<Executor> {
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        let mut logs = BTreeMap::new();
        for launch in &launches {
            if let Some(folder) = &launch.log_folder {
                let name = format!("{}-{}", launch.role, launch.index);
                let files = (
                    LogFile::open(folder, &name, Stream::Stdout)?,
                    LogFile::open(folder, &name, Stream::Stderr)?,
                );
                logs.insert(launch.rank, files);
            }
        }
        Ok(Executor {
            launches: launches.into_iter().map(|launch| (launch.rank, launch)).collect(),
            descriptors,
            suspended: false,
            logs,
            running: BTreeMap::new(),
            output,
            wake,
            heard,
            next_listen_check: None,
            asked: Asked::default(),
            stop: Stop::No,
            given_up: false,
            earlier: BTreeMap::new(),
            strays: Vec::new(),
            stand_ins: StandIns::default(),
            rehearsing: Rehearsing::default(),
            last_output: BTreeMap::new(),
        })
    }

    /// Starts a member; a program that cannot be started has ended.
    pub(super) fn start(&mut self, rank: u32) -> Option<Happened> {
        // Whoever is left of its earlier run was asked to go, and may have its port and its devices.
        if let Some(group) = self.earlier.remove(&rank) {
            tree::kill_group(group);
        }
        let launch = self.launches.get_mut(&rank)?;
        let opened = if self.stop.has_begun() {
            Err(std::io::Error::other("the job is ending"))
        } else {
            launch.port.as_mut().map_or(Ok(()), HeldPort::open)
        };
        match opened.and_then(|()| spawn(launch, self.descriptors)) {
            Err(error) => {
                let why = format!("{}: {error}", launch.command[0].to_string_lossy());
                Some(Happened::Ended { rank, ended: Ended::without_process(End::NotStarted(why)) })
            }
            Ok((pid, stdout, stderr)) => {
                self.asked.not_yet(pid);
                if self.suspended {
                    calls::kill(pid, libc::SIGSTOP, false);
                }
                let prefix = self.output.prefix(&launch.role, launch.index, rank, &launch.host);
                let tail = Rc::new(RefCell::new(Tail::default()));
                let open = Rc::new(Cell::new(0));
                let logs = self.logs.get(&rank);
                for (stream, receiver) in [(Stream::Stdout, stdout), (Stream::Stderr, stderr)] {
                    let source = Source {
                        stream,
                        receiver,
                        prefix: prefix.clone(),
                        file: logs.map(
                            |(out, err)| if stream == Stream::Stdout { out.clone() } else { err.clone() },
                        ),
                        tail: (stream == Stream::Stderr).then(|| tail.clone()),
                        last: self.last_output.entry(rank).or_default().clone(),
                    };
                    self.output.pump(source, self.wake.clone(), open.clone());
                }
                let has_port = launch.port.is_some();
                let running = Running {
                    pid,
                    since: clock::real(),
                    ran: Duration::ZERO,
                    tail,
                    open,
                    listens: !has_port,
                    rehearsed: None,
                    gone: None,
                };
                self.running.insert(rank, running);
                self.rehearsing.started(rank, clock::now());
                if has_port {
                    self.next_listen_check.get_or_insert(clock::now() + LISTEN_CHECK);
                }
                Some(Happened::Started { rank, pid, served: launch.served })
            }
        }
    }

    /// Asks every member's whole group to end, once; after the grace they are ended.
    pub(super) fn stop(&mut self, grace: Duration) {
        self.stand_ins.end();
        let order = self.stop.ask(grace, clock::now());
        self.obey(order);
    }

    /// Lets everyone stand still, or go on. By SIGSTOP: members are in sessions of their own, where SIGTSTP does
    /// nothing.
    pub(super) fn suspend(&mut self, on: bool) {
        if self.suspended != on && !(on && self.stop.has_begun()) {
            self.suspended = on;
            if on {
                tree::suspend_all();
            } else {
                tree::continue_all();
                self.rehearsing.still().for_each(|pid| _ = calls::kill(pid, libc::SIGSTOP, true));
            }
        }
    }

    pub(super) fn is_suspended(&self) -> bool {
        self.suspended
    }

    /// Lets a server stand in for a member that has finished.
    pub(super) fn stand_in(&mut self, rank: u32) {
        self.learn_where_tensorflow_is(|_| true);
        self.stand_ins.want(rank, clock::now());
    }

    /// Asks those of the members that run which TensorFlow they have, for servers that stand in.
    fn learn_where_tensorflow_is(&mut self, of: impl Fn(u32) -> bool) {
        let running = self.running.iter().filter(|(rank, running)| running.gone.is_none() && of(**rank));
        self.stand_ins.learn_from(&running.map(|(_, running)| running.pid).collect::<Vec<_>>());
    }

    /// Ends every process below this one, now.
    pub(super) fn kill(&mut self) {
        let order = self.stop.kill(clock::now());
        self.obey(Some(order));
    }

    /// Does what the stop orders.
    fn obey(&mut self, order: Option<Order>) {
        match order {
            None => {}
            Some(Order::Ask) => {
                self.running.values().for_each(|running| self.asked.group(running.pid));
                self.suspend(false);
            }
            // What stands in a group of its own hears nothing from its member's group, which was asked. Once whoever
            // started it is gone, nobody else would pass the signal on.
            Some(Order::AskOrphans) => tree::children().for_each(|child| self.asked.process(child)),
            Some(Order::Kill) => {
                self.stand_ins.end();
                self.signal(libc::SIGKILL);
                for process in tree::descendants() {
                    calls::kill(process.pid, libc::SIGKILL, false);
                }
            }
            // By `poll`, after it has taken leave of those that have ended after all.
            Some(Order::GiveUp) => {}
        }
    }

    /// Sends a signal to every member's group.
    pub(super) fn signal(&mut self, signal: i32) {
        for running in self.running.values().filter(|running| running.gone.is_none()) {
            calls::kill(running.pid, signal, true);
        }
    }

    /// When [`Executor::poll`] wants to be called, whatever else happens.
    pub(super) fn next_poll(&self) -> Option<Instant> {
        let last_words =
            self.running.values().filter_map(|running| running.gone.map(|(_, until)| until)).min();
        // A member whose last words are over during the stop waits for what it has started: each look for orphans
        // looks at it too.
        let last_words = last_words.filter(|until| !self.stop.has_begun() || *until > clock::now());
        let stand_in = self.stand_ins.next_poll();
        let stop = self.stop.due(!self.running.is_empty());
        let rehearsal = self.rehearsing.next().filter(|_| self.can_rehearse());
        [self.next_listen_check, stop, last_words, stand_in, rehearsal].into_iter().flatten().min()
    }

    /// Reaps, looks who listens, asks orphans to end with the others, and ends whose grace is over.
    pub(super) fn poll(&mut self) -> Vec<Happened> {
        let now = clock::now();
        let mut happened = Vec::new();
        while let Ok(loss) = self.heard.try_recv() {
            happened.push(Happened::OutputLost(loss));
        }
        while let Some(reaped) = calls::reap() {
            if let Some((_, running)) = self.running.iter_mut().find(|(_, running)| running.pid == reaped.pid)
            {
                running.gone = Some((reaped, now + LAST_WORDS));
                running.ran = running.age();
            } else if !self.stand_ins.note(&reaped, now) {
                self.strays.push(reaped);
            }
        }
        happened.extend(self.stand_ins.poll(&mut self.launches, self.descriptors, now));
        if self.next_listen_check.is_some_and(|at| at <= now) {
            happened.extend(self.look_who_listens(now));
        }
        happened.extend(self.rehearse(now));
        let order = self.stop.next(now);
        self.obey(order);
        let all_gone = self.running.values().all(|running| running.gone.is_some());
        let finished: Vec<u32> = self
            .running
            .iter()
            .filter(|(_, running)| {
                running.gone.is_some_and(|(_, until)| until <= now || running.open.get() == 0)
                    && !self.is_awaited(running, all_gone)
            })
            .map(|(rank, _)| *rank)
            .collect();
        for rank in finished {
            happened.extend(self.finish(rank));
        }
        if order == Some(Order::GiveUp) {
            happened.extend(self.give_up());
        }
        happened
    }

    /// Nothing is done on purpose while all stand still, or are asked to end.
    fn can_rehearse(&self) -> bool {
        !self.suspended && !self.stop.has_begun()
    }

    /// Does what is due of the faults on purpose.
    fn rehearse(&mut self, now: Instant) -> Vec<Happened> {
        if self.rehearsing.is_lost(now) {
            // Its members die with it, and what they have started is the guard's to end.
            calls::kill(std::process::id(), libc::SIGKILL, false);
        }
        if !self.can_rehearse() {
            return Vec::new();
        }
        let due = self.rehearsing.due(now).into_iter();
        due.filter_map(|fault| self.do_to_member(fault, now)).collect()
    }

    fn do_to_member(&mut self, fault: Planned, now: Instant) -> Option<Happened> {
        let running = self.running.get_mut(&fault.rank).filter(|running| running.gone.is_none());
        let Some(running) = running else {
            let is_news = fault.deed != Deed::Continue;
            return is_news.then_some(Happened::Rehearsed { fault, pid: None });
        };
        if !self.rehearsing.is_done_to(&fault, running.pid, now) {
            return None;
        }
        let pid = match fault.deed {
            Deed::Lose => std::process::id(),
            deed => {
                running.rehearsed = Some(deed);
                calls::kill(running.pid, deed.signal(), deed != Deed::Term);
                running.pid
            }
        };
        Some(Happened::Rehearsed { fault, pid: Some(pid) })
    }

    /// Whoever has not ended by now cannot be ended: it waits for a device, or a debugger holds it. The job does not
    /// wait for it.
    fn give_up(&mut self) -> Vec<Happened> {
        self.given_up |= !self.running.is_empty();
        let stuck = std::mem::take(&mut self.running).into_iter();
        stuck
            .map(|(rank, running)| {
                let reason = "it has not ended after SIGKILL: it waits for a device, or is being debugged";
                let ended = Ended {
                    end: End::Killed(libc::SIGKILL),
                    seconds: running.age().as_secs_f64(),
                    peak_kib: 0,
                    tail: running.tail.borrow().lines(),
                    reason: Some(reason.to_owned()),
                };
                Happened::Ended { rank, ended }
            })
            .collect()
    }

    /// A wrapper dies of the signal at once, while the program that it has started writes its checkpoint. So a member
    /// that was asked to end has ended when all that it started has, or when the grace is over. What has left the group
    /// may belong to any member, and is awaited with the last.
    fn is_awaited(&self, running: &Running, all_gone: bool) -> bool {
        self.stop.is_in_grace()
            && if all_gone { calls::has_children() } else { calls::group_exists(running.pid) }
    }

    /// A member's process is gone: what it left in its group is asked to go too.
    fn finish(&mut self, rank: u32) -> Option<Happened> {
        let running = self.running.remove(&rank)?;
        let (reaped, _) = running.gone?;
        self.asked.group(running.pid);
        self.earlier.insert(rank, running.pid);
        let launch = self.launches.get_mut(&rank)?;
        if let Some(port) = &mut launch.port {
            port.close();
        }
        let end = match reaped.exit_code() {
            Ok(code) => End::Exited(code),
            Err(signal) => End::Killed(signal),
        };
        let ended = Ended {
            reason: match end.is_success() {
                true => None,
                false => reason(&launch.error_file).or_else(|| on_purpose(&end, running.rehearsed)),
            },
            tail: if end.is_success() { Vec::new() } else { running.tail.borrow().lines() },
            seconds: running.ran.as_secs_f64(),
            peak_kib: reaped.peak_kib,
            end,
        };
        Some(Happened::Ended { rank, ended })
    }

    fn look_who_listens(&mut self, now: Instant) -> Vec<Happened> {
        let awaited = |running: &Running| !running.listens && running.gone.is_none();
        if !self.running.values().any(awaited) {
            self.next_listen_check = None;
            return Vec::new();
        }
        let only = match self.launches.len() {
            1 => self.launches.values().next().and_then(|launch| launch.port.as_ref()).map(HeldPort::port),
            _ => None,
        };
        let listening = network::listening(only);
        let mut happened = Vec::new();
        let mut waiting: Option<Duration> = None;
        for (&rank, running) in self.running.iter_mut().filter(|(_, running)| awaited(running)) {
            let port = self.launches.get(&rank).and_then(|launch| launch.port.as_ref());
            if port.is_some_and(|port| listening.contains(&port.port())) {
                running.listens = true;
                happened.push(Happened::Listening { rank });
            } else {
                // The longer it has not listened, the later it is looked again: many never do.
                let pause = listen_pause(running.age());
                waiting = Some(waiting.map_or(pause, |least| least.min(pause)));
            }
        }
        self.next_listen_check = waiting.map(|pause| now + pause);
        if !happened.is_empty() {
            // What serves has loaded it, and may be the only one of this agent.
            self.learn_where_tensorflow_is(|rank| happened.contains(&Happened::Listening { rank }));
        }
        happened
    }

    /// When all of a stop have to have ended.
    pub(super) fn stop_limit(&self) -> Option<Instant> {
        self.stop.limit()
    }

    /// Ends what members left behind, and lets the output be written until the deadline.
    pub(super) async fn finish_all(mut self, deadline: &Deadline) -> Finished {
        self.stand_ins.see_out().await;
        let stuck = if self.given_up { STUCK_STILL } else { STUCK };
        let left = tree::end_all(LEFT_BEHIND, stuck, &mut self.asked);
        let drained = self.output.finish(deadline).await;
        Finished { left, drained, heard: self.heard }
    }
}

/// How long after a look it is looked again whether a member listens that has run for so long. A small part of the time
/// that it took to start; a smaller one at first, since small servers are up at once.
fn listen_pause(age: Duration) -> Duration {
    let part = if age < STARTING { age / 20 } else { age / 8 };
    part.clamp(LISTEN_CHECK, SELDOM)
}

#[cfg(test)]
mod tests {
    use super::listen_pause;
    use std::time::Duration;

    #[test]
    fn it_is_looked_ever_more_seldom_who_listens() {
        let pause = |ms| listen_pause(Duration::from_millis(ms)).as_millis();
        assert_eq!([pause(0), pause(1000), pause(2000)], [50, 50, 100]);
        assert_eq!([pause(4000), pause(8000), pause(80_000)], [500, 1000, 10_000]);
        assert_eq!(pause(10_000_000), 60_000);
        // Looks of one agent between its 5th and its 25th second.
        let mut looks = 0;
        let mut age = 5000;
        while age < 25_000 {
            age += pause(age) as u64;
            looks += 1;
        }
        assert!(looks < 16, "{looks}");
    }
}
