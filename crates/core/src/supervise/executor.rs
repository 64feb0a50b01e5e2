//! The members of this agent: started, watched, stopped, reaped.
//!
//! Knows nothing of the job: it is told what to do and tells what happened.

use super::output::{Output, Source, Stream, Tail, open_log};
use super::sys;
use super::tree::{self, Asked};
use crate::outcome::End;
use crate::ports::{self, HeldPort};
use crate::rendezvous::message::Ended;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::unix::pipe;
use tokio::sync::Notify;

/// How often the kernel is asked whether a member listens, at first and at last.
const LISTEN_CHECK: Duration = Duration::from_millis(50);
const SELDOM: Duration = Duration::from_secs(2);
/// A member's last words may take this long to come through its pipe.
const LAST_WORDS: Duration = Duration::from_millis(300);
/// How soon, and then how often, is looked for orphans while all are asked to end.
const FIRST_LOOK: Duration = Duration::from_millis(20);
const LOOK_AGAIN: Duration = Duration::from_millis(100);
const LOOK_SELDOM: Duration = Duration::from_secs(1);
/// What members that ended by themselves have left has this long.
const LEFT_BEHIND: Duration = Duration::from_millis(500);
/// The most that is read of `RALLYPOINT_ERROR_FILE`.
const MAX_REASON: u64 = 2000;

/// Everything needed to start one member.
#[derive(Debug)]
pub(super) struct Launch {
    pub(super) rank: u32,
    pub(super) role: String,
    pub(super) index: u32,
    pub(super) host: String,
    pub(super) command: Vec<OsString>,
    /// The command is a server without Python.
    pub(super) served: bool,
    /// On top of what this process has.
    pub(super) variables: Vec<(String, String)>,
    /// Of what this process has, what the member must not have.
    pub(super) withheld: &'static [&'static str],
    pub(super) error_file: PathBuf,
    pub(super) log_folder: Option<PathBuf>,
    pub(super) port: Option<HeldPort>,
}

/// Something that happened to a member.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Happened {
    Started { rank: u32, pid: u32, served: bool },
    Listening { rank: u32 },
    Ended { rank: u32, ended: Ended },
}

#[derive(Debug)]
struct Running {
    pid: u32,
    since: Instant,
    tail: Rc<RefCell<Tail>>,
    /// Streams that are still open.
    open: Rc<Cell<u32>>,
    listens: bool,
    /// Set when the process has ended and its last words are awaited.
    gone: Option<(sys::Reaped, Instant)>,
}

#[derive(Debug)]
pub(super) struct Executor {
    launches: HashMap<u32, Launch>,
    logs: HashMap<u32, (Arc<File>, Arc<File>)>,
    running: HashMap<u32, Running>,
    output: Output,
    /// Told when a stream ends.
    pub(super) wake: Rc<Notify>,
    next_listen_check: Option<Instant>,
    asked: Asked,
    /// When all were asked to end.
    stopping: Option<Instant>,
    /// All have been ended.
    killed: bool,
    kill_at: Option<Instant>,
    next_look: Option<Instant>,
    /// The groups of members that have ended.
    earlier: HashMap<u32, u32>,
    /// Ended children that are no members: adopted orphans, and what else this agent has started.
    pub(super) strays: Vec<sys::Reaped>,
}

impl Executor {
    /// Becomes the one that orphans of members are given to.
    pub(super) fn new(launches: Vec<Launch>, output: Output) -> std::io::Result<Executor> {
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        let mut logs = HashMap::new();
        for launch in &launches {
            if let Some(folder) = &launch.log_folder {
                let name = format!("{}-{}", launch.role, launch.index);
                let files =
                    (open_log(folder, &name, Stream::Stdout)?, open_log(folder, &name, Stream::Stderr)?);
                logs.insert(launch.rank, files);
            }
        }
        Ok(Executor {
            launches: launches.into_iter().map(|launch| (launch.rank, launch)).collect(),
            logs,
            running: HashMap::new(),
            output,
            wake: Rc::new(Notify::new()),
            next_listen_check: None,
            asked: Asked::default(),
            stopping: None,
            killed: false,
            kill_at: None,
            next_look: None,
            earlier: HashMap::new(),
            strays: Vec::new(),
        })
    }

    /// Starts a member; a program that cannot be started has ended.
    pub(super) fn start(&mut self, rank: u32) -> Option<Happened> {
        // Whoever is left of its earlier run was asked to go, and may have its port and its devices.
        if let Some(group) = self.earlier.remove(&rank) {
            tree::kill_group(group);
        }
        let launch = self.launches.get_mut(&rank)?;
        let opened = if self.stopping.is_some() {
            Err(std::io::Error::other("the job is ending"))
        } else {
            launch.port.as_mut().map_or(Ok(()), HeldPort::open)
        };
        match opened.and_then(|()| spawn(launch)) {
            Err(error) => {
                let why = format!("{}: {error}", launch.command[0].to_string_lossy());
                let ended = Ended {
                    end: End::NotStarted(why),
                    seconds: 0.0,
                    peak_kib: 0,
                    tail: Vec::new(),
                    reason: None,
                };
                Some(Happened::Ended { rank, ended })
            }
            Ok((pid, stdout, stderr)) => {
                self.asked.not_yet(pid);
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
                    };
                    self.output.pump(source, self.wake.clone(), open.clone());
                }
                let has_port = launch.port.is_some();
                let running =
                    Running { pid, since: Instant::now(), tail, open, listens: !has_port, gone: None };
                self.running.insert(rank, running);
                if has_port {
                    self.next_listen_check.get_or_insert(Instant::now() + LISTEN_CHECK);
                }
                Some(Happened::Started { rank, pid, served: launch.served })
            }
        }
    }

    /// Asks every member's whole group to end, once; after the grace they are ended.
    pub(super) fn stop(&mut self, grace: Duration) {
        let now = Instant::now();
        self.kill_at = Some(self.kill_at.map_or(now + grace, |before| before.min(now + grace)));
        if self.stopping.is_none() {
            self.stopping = Some(now);
            self.next_look = Some(now + FIRST_LOOK);
            self.running.values().for_each(|running| self.asked.group(running.pid));
        }
    }

    /// Ends every process below this one, now.
    pub(super) fn kill(&mut self) {
        self.stopping.get_or_insert_with(Instant::now);
        self.killed = true;
        self.kill_at = None;
        self.next_look = None;
        self.signal(libc::SIGKILL);
        for process in tree::descendants() {
            sys::kill(process.pid, libc::SIGKILL, false);
        }
    }

    /// Sends a signal to every member's group.
    pub(super) fn signal(&mut self, signal: i32) {
        for running in self.running.values().filter(|running| running.gone.is_none()) {
            sys::kill(running.pid, signal, true);
        }
    }

    /// When [`Executor::poll`] wants to be called, whatever else happens.
    pub(super) fn next_poll(&self) -> Option<Instant> {
        let last_words =
            self.running.values().filter_map(|running| running.gone.map(|(_, until)| until)).min();
        // Who is kept after its last words is looked at with what it has left.
        let last_words = last_words.filter(|until| self.stopping.is_none() || *until > Instant::now());
        [self.next_listen_check, self.kill_at, self.next_look, last_words].into_iter().flatten().min()
    }

    /// Reaps, looks who listens, asks orphans to end with the others, and ends whose grace is over.
    pub(super) fn poll(&mut self) -> Vec<Happened> {
        let now = Instant::now();
        let mut happened = Vec::new();
        while let Some(reaped) = sys::reap() {
            if let Some((_, running)) = self.running.iter_mut().find(|(_, running)| running.pid == reaped.pid)
            {
                running.gone = Some((reaped, now + LAST_WORDS));
            } else {
                self.strays.push(reaped);
            }
        }
        if self.next_listen_check.is_some_and(|at| at <= now) {
            happened.extend(self.look_who_listens(now));
        }
        if self.kill_at.is_some_and(|at| at <= now) {
            self.kill();
        }
        if let (Some(since), true) = (self.stopping, self.next_look.is_some_and(|at| at <= now)) {
            self.next_look = Some(now + (now - since).clamp(LOOK_AGAIN, LOOK_SELDOM));
            self.ask_orphans();
        }
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
        happened
    }

    /// A wrapper dies of the signal at once, while the program that it has started writes its checkpoint. So who is
    /// asked to end has ended when all that it started has, or when the grace is over. What has left the group is
    /// anybody's, and awaited with the last.
    fn is_awaited(&self, running: &Running, all_gone: bool) -> bool {
        self.stopping.is_some()
            && !self.killed
            && if all_gone { sys::has_children() } else { sys::group_exists(running.pid) }
    }

    /// What stands in a group of its own hears nothing from its member's group, which was asked. Once whoever
    /// started it is gone, nobody else would pass the signal on.
    fn ask_orphans(&mut self) {
        tree::children().for_each(|child| self.asked.process(child));
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
            reason: if end.is_success() { None } else { reason(&launch.error_file) },
            tail: if end.is_success() { Vec::new() } else { running.tail.borrow().lines() },
            seconds: running.since.elapsed().as_secs_f64(),
            peak_kib: reaped.peak_kib,
            end,
        };
        Some(Happened::Ended { rank, ended })
    }

    fn look_who_listens(&mut self, now: Instant) -> Vec<Happened> {
        // The kernel walks all of its connections for the table, so it is not asked about those who have ended.
        let awaited = |running: &Running| !running.listens && running.gone.is_none();
        if !self.running.values().any(awaited) {
            self.next_listen_check = None;
            return Vec::new();
        }
        let listening = ports::listening();
        let mut happened = Vec::new();
        let mut waiting: Option<Duration> = None;
        for (&rank, running) in self.running.iter_mut().filter(|(_, running)| awaited(running)) {
            let port = self.launches.get(&rank).and_then(|launch| launch.port.as_ref());
            if port.is_some_and(|port| listening.contains(&port.port())) {
                running.listens = true;
                happened.push(Happened::Listening { rank });
            } else {
                // A member that has not listened for a minute will not listen the next moment either.
                let pause = (running.since.elapsed() / 20).clamp(LISTEN_CHECK, SELDOM);
                waiting = Some(waiting.map_or(pause, |least| least.min(pause)));
            }
        }
        self.next_listen_check = waiting.map(|pause| now + pause);
        happened
    }

    /// Ends what members left behind, and lets the output be written.
    pub(super) async fn finish_all(mut self) -> usize {
        let left = tree::end_all(LEFT_BEHIND, &mut self.asked);
        self.output.finish().await;
        left
    }
}

fn spawn(launch: &Launch) -> std::io::Result<(u32, pipe::Receiver, pipe::Receiver)> {
    let (stdout, child_stdout) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let (stderr, child_stderr) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    _ = std::fs::remove_file(&launch.error_file);
    let mut command = Command::new(&launch.command[0]);
    launch.withheld.iter().for_each(|name| _ = command.env_remove(name));
    command
        .args(&launch.command[1..])
        .envs(launch.variables.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(child_stdout)
        .stderr(child_stderr);
    let pid = sys::spawn(&mut command)?;
    // The child's ends are closed with the command; only members hold them now.
    drop(command);
    Ok((pid, pipe::Receiver::from_owned_fd(stdout)?, pipe::Receiver::from_owned_fd(stderr)?))
}

/// The first lines that the program left for us.
fn reason(file: &std::path::Path) -> Option<String> {
    let mut bytes = Vec::new();
    File::open(file).ok()?.take(MAX_REASON).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let text: String =
        text.trim().chars().map(|c| if c.is_control() && c != '\n' { ' ' } else { c }).collect();
    (!text.is_empty()).then_some(text)
}
