//! Members: processes that run for a while, listen, write, fork, and heed signals or do not.

use super::net::{ReadEnd, WriteEnd};
use super::{World, here};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

/// How a process ends, as the kernel has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Exit {
    /// With this code.
    Code(u8),
    /// By this signal.
    Signal(i32),
}

impl Exit {
    /// What `wait` says.
    fn status(self) -> i32 {
        match self {
            Exit::Code(code) => i32::from(code) << 8,
            Exit::Signal(number) => number,
        }
    }
}

/// What a process does by itself, in milliseconds since its start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Habit {
    /// When and how it ends, if nobody asks it to.
    pub ends: Option<(u64, Exit)>,
    /// How long after SIGTERM it ends, and how; nothing if it ignores that.
    pub asked: Option<(u64, Exit)>,
    /// When it listens at its port.
    pub listens: Option<u64>,
    /// How often it writes a line.
    pub writes: Option<u64>,
    /// A child in its group that outlives it.
    pub child: Option<Child>,
}

/// A child of a member: it never ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Child {
    /// How long after SIGTERM it ends; nothing if it ignores that.
    pub asked: Option<u64>,
}

/// A process that runs, or has ended and was not waited for.
#[derive(Debug)]
pub(crate) struct Process {
    agent: usize,
    parent: u32,
    group: u32,
    habit: Habit,
    port: Option<u16>,
    listens: bool,
    stopped: bool,
    ended: Option<Exit>,
    /// How it ends when it goes on.
    due: Option<Exit>,
    output: Vec<Rc<WriteEnd>>,
}

/// What happened to one, for those who check.
#[derive(Debug, Clone)]
pub(crate) struct Fate {
    pub(crate) agent: usize,
    pub(crate) rank: Option<u32>,
    /// The port that is held for it.
    pub(crate) port: Option<u16>,
    /// The roster, the attempt and all else that it was started with.
    pub(crate) variables: BTreeMap<String, String>,
    /// What had happened before its start.
    pub(crate) step: usize,
    pub(crate) asked: Vec<Duration>,
    pub(crate) killed: Option<Duration>,
    pub(crate) ended: Option<(Duration, Exit)>,
}

#[derive(Debug, Default)]
pub(crate) struct Processes {
    running: BTreeMap<u32, Process>,
    pub(crate) fates: BTreeMap<u32, Fate>,
    last: u32,
    /// What the members of each rank do, one after the other.
    pub(crate) habits: BTreeMap<u32, Vec<Habit>>,
}

/// A child's end, as its parent hears it: its number, and what `wait` says.
pub(crate) type Reaped = (u32, i32);

/// A process as its descendants' ancestor sees it: its number, its parent's, its group.
pub(crate) type Seen = (u32, u32, u32);

const FIRST: u32 = 5000;

impl World {
    fn start_process(self: &Rc<World>, process: Process, fate: Fate) -> u32 {
        let pid = {
            let mut all = self.processes.borrow_mut();
            all.last += 1;
            let pid = FIRST + all.last;
            let group = if process.group == 0 { pid } else { process.group };
            all.running.insert(pid, Process { group, ..process });
            all.fates.insert(pid, fate);
            pid
        };
        let habit = self.processes.borrow().running[&pid].habit.clone();
        if let Some((after, exit)) = habit.ends {
            self.later(Duration::from_millis(after), move |world| world.end_process(pid, exit));
        }
        if let Some(after) = habit.listens {
            self.later(Duration::from_millis(after), move |world| {
                if let Some(process) = world.processes.borrow_mut().running.get_mut(&pid) {
                    process.listens = process.ended.is_none();
                }
            });
        }
        if let Some(pause) = habit.writes {
            self.write_again(pid, Duration::from_millis(pause));
        }
        pid
    }

    fn write_again(&self, pid: u32, pause: Duration) {
        self.later(pause, move |world| {
            let output = match world.processes.borrow().running.get(&pid) {
                Some(process) if process.ended.is_none() => process.output.clone(),
                _ => return,
            };
            output.iter().for_each(|output| output.push(b"a line\n"));
            world.write_again(pid, pause);
        });
    }

    fn end_process(self: &Rc<World>, pid: u32, exit: Exit) {
        let (agent, output) = {
            let mut all = self.processes.borrow_mut();
            let Some(process) = all.running.get_mut(&pid).filter(|process| process.ended.is_none()) else {
                return;
            };
            if process.stopped && exit != Exit::Signal(libc::SIGKILL) {
                process.due.get_or_insert(exit);
                return;
            }
            process.ended = Some(exit);
            process.listens = false;
            let (agent, output) = (process.agent, std::mem::take(&mut process.output));
            // Whoever loses its parent is given to the agent.
            let adopted = super::pid_of(agent);
            all.running
                .values_mut()
                .filter(|child| child.parent == pid)
                .for_each(|child| child.parent = adopted);
            if let Some(fate) = all.fates.get_mut(&pid) {
                fate.ended = Some((self.now(), exit));
            }
            (agent, output)
        };
        self.note(format_args!("agent {agent} process {pid} ends: {exit:?}"));
        drop(output);
        self.signal_agent(agent, libc::SIGCHLD);
    }

    fn signal_process(self: &Rc<World>, pid: u32, number: i32) {
        let mut all = self.processes.borrow_mut();
        let Some(process) = all.running.get_mut(&pid).filter(|process| process.ended.is_none()) else {
            return;
        };
        let (asked, due) = (process.habit.asked, process.due);
        match number {
            libc::SIGSTOP => process.stopped = true,
            libc::SIGCONT => process.stopped = false,
            _ => {}
        }
        let now = self.now();
        if let Some(fate) = all.fates.get_mut(&pid) {
            match number {
                libc::SIGTERM => fate.asked.push(now),
                libc::SIGKILL => fate.killed = fate.killed.or(Some(now)),
                _ => {}
            }
        }
        drop(all);
        match number {
            libc::SIGKILL => self.end_process(pid, Exit::Signal(libc::SIGKILL)),
            libc::SIGCONT => due.into_iter().for_each(|exit| self.end_process(pid, exit)),
            libc::SIGTERM => {
                if let Some((after, exit)) = asked {
                    self.later(Duration::from_millis(after), move |world| world.end_process(pid, exit));
                }
            }
            _ => {}
        }
    }

    /// The agent is gone: its children die with it, and their children by its guard.
    pub(crate) fn end_members_of(self: &Rc<World>, agent: usize) {
        for pid in self.living(agent) {
            self.end_process(pid, Exit::Signal(libc::SIGKILL));
        }
        self.processes.borrow_mut().running.retain(|_, process| process.agent != agent);
    }

    /// All members stand still, or go on.
    pub(crate) fn suspend_members(self: &Rc<World>, on: bool) {
        let all: Vec<u32> = self.processes.borrow().running.keys().copied().collect();
        let number = if on { libc::SIGSTOP } else { libc::SIGCONT };
        all.iter().for_each(|&pid| self.signal_process(pid, number));
    }

    /// Those of an agent that have not ended.
    pub(crate) fn living(&self, agent: usize) -> Vec<u32> {
        let all = self.processes.borrow();
        let living =
            all.running.iter().filter(|(_, process)| process.agent == agent && process.ended.is_none());
        living.map(|(pid, _)| *pid).collect()
    }
}

/// Starts a member of the agent that runs.
pub(crate) fn spawn(
    port: Option<u16>,
    rank: u32,
    variables: &[(String, String)],
) -> Option<(u32, ReadEnd, ReadEnd)> {
    let here = here()?;
    let (world, agent, host) = (&here.world, here.agent, here.host());
    let (out, stdout) = world.flow(host, host);
    let (err, stderr) = world.flow(host, host);
    let habit = {
        let mut all = world.processes.borrow_mut();
        let habits = all.habits.entry(rank).or_default();
        if habits.len() > 1 { habits.remove(0) } else { habits.first().cloned()? }
    };
    let variables: BTreeMap<String, String> = variables.iter().cloned().collect();
    let fate = Fate {
        agent,
        rank: Some(rank),
        port,
        variables,
        step: world.step(),
        asked: Vec::new(),
        killed: None,
        ended: None,
    };
    let child = habit.child;
    let process = Process {
        agent,
        parent: super::pid_of(agent),
        group: 0,
        habit,
        port,
        listens: false,
        stopped: false,
        ended: None,
        due: None,
        output: vec![Rc::new(out), Rc::new(err)],
    };
    let pid = world.start_process(process, fate.clone());
    world.note(format_args!("agent {agent} starts rank {rank} as process {pid}"));
    if let Some(Child { asked }) = child {
        let habit = Habit {
            ends: None,
            asked: asked.map(|after| (after, Exit::Code(0))),
            listens: None,
            writes: None,
            child: None,
        };
        let child = Process {
            agent,
            parent: pid,
            group: pid,
            habit,
            port: None,
            listens: false,
            stopped: false,
            ended: None,
            due: None,
            output: Vec::new(),
        };
        world.start_process(child, Fate { rank: None, ..fate });
    }
    Some((pid, stdout, stderr))
}

/// The next child that has ended.
pub(crate) fn reap() -> Option<Option<Reaped>> {
    let here = here()?;
    let me = super::pid_of(here.agent);
    let mut all = here.world.processes.borrow_mut();
    let ended = all.running.iter().find(|(_, process)| process.parent == me && process.ended.is_some());
    let reaped = ended.and_then(|(pid, process)| Some((*pid, process.ended?.status())));
    if let Some((pid, _)) = reaped {
        all.running.remove(&pid);
    }
    Some(reaped)
}

/// Whether the agent that runs has a child, ended or not.
pub(crate) fn has_children() -> Option<bool> {
    let here = here()?;
    let me = super::pid_of(here.agent);
    let all = here.world.processes.borrow();
    Some(all.running.values().any(|process| process.parent == me))
}

/// Sends a signal to one, or to a group; whether there was anybody.
pub(crate) fn kill(pid: u32, number: i32, group: bool) -> Option<bool> {
    let here = here()?;
    let is_meant = |there: u32, process: &Process| if group { process.group == pid } else { there == pid };
    let meant: Vec<u32> = {
        let all = here.world.processes.borrow();
        all.running
            .iter()
            .filter(|(there, process)| is_meant(**there, process))
            .map(|(pid, _)| *pid)
            .collect()
    };
    if number != 0 && !meant.is_empty() {
        here.world.note(format_args!("agent {} sends signal {number} to {meant:?}", here.agent));
        meant.iter().for_each(|&pid| here.world.signal_process(pid, number));
    }
    Some(!meant.is_empty())
}

/// Everyone below the agent that runs.
pub(crate) fn descendants() -> Option<Vec<Seen>> {
    let here = here()?;
    let all = here.world.processes.borrow();
    let living =
        all.running.iter().filter(|(_, process)| process.agent == here.agent && process.ended.is_none());
    Some(living.map(|(pid, process)| (*pid, process.parent, process.group)).collect())
}

/// Ends everyone below the agent that runs; how many there were.
pub(crate) fn end_all() -> Option<usize> {
    let here = here()?;
    let left = here.world.living(here.agent);
    left.iter().for_each(|&pid| here.world.signal_process(pid, libc::SIGKILL));
    while reap().flatten().is_some() {}
    Some(left.len())
}

/// Ports of this machine on which somebody listens.
pub(crate) fn listening() -> Option<BTreeSet<u16>> {
    let here = here()?;
    let host = here.host();
    let agents = here.world.agents.borrow();
    let all = here.world.processes.borrow();
    let there = all.running.values().filter(|process| agents[process.agent].host == host && process.listens);
    Some(there.filter_map(|process| process.port).collect())
}
