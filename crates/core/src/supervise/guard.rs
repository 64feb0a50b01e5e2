//! The guard: why no process survives, even if the agent is killed with SIGKILL.
//!
//! `rallypoint run` splits into two. The process that the user started becomes the guard; its child
//! is the agent, which does all the work. The guard adopts every orphan of the job (it is a child
//! subreaper), so when the agent is gone, however it went, the guard finds whatever is left below
//! itself and ends it. If the guard is killed, its pipe closes, and the agent stops the job. A child of
//! the agent dies with it (parent-death signal); the guard is there for the children's children.
//!
//! Signals go to the guard, which passes them on through the pipe. The agent stands in a process group
//! of its own, so that Ctrl-C reaches it once. It may write to the terminal all the same, `stty tostop` or not.
//!
//! An agent that is suspended hears nothing, so the guard continues it with every signal, and once the job
//! was asked to end it has a limit: then the guard ends it, and all that is left. If the guard dies, the agent is
//! continued by its parent-death signal, and finds its pipe closed.
//!
//! Ctrl-Z suspends the members, and the guard, which the shell waits for. The agent goes on: it keeps the
//! connections to other agents alive.

use crate::outcome::OwnCode;
use crate::process::calls::{self, Forked};
use crate::process::tree::{self, Asked, STUCK, STUCK_STILL};
use crate::signal;
use crate::trace::OrLog;
use rustix::pipe::PipeFlags;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// How often the guard looks after the agent, once the job is to end; before, it only waits.
const LOOK: Duration = Duration::from_secs(1);
const NO_LOOK: Duration = Duration::from_secs(24 * 3600);
/// Beyond the grace, what an agent may need to end: others' last words, the step, the last output.
const BEYOND_GRACE: Duration = Duration::from_secs(75);

/// A process that sends the same signal twice within this means one.
const AT_ONCE: Duration = Duration::from_millis(100);

/// Added to the number of a signal that no process has sent, but the kernel: Ctrl-C, or a terminal that is gone.
pub(super) const FROM_KERNEL: u8 = 0x80;

/// Which of the two this process now is.
#[derive(Debug)]
pub(crate) enum Side {
    /// The agent, with the pipe from its guard: one byte per signal, closed when the guard is gone.
    Agent(OwnedFd),
    /// The guard, after everything has ended.
    Guard(Watched),
}

/// How the agent ended, as its guard saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Watched {
    /// By itself, with this exit code.
    Ended(u8),
    /// By a signal; its members, and what else was left, were ended.
    Killed {
        /// Its process.
        agent: u32,
        /// Which.
        signal: i32,
        /// How many processes were ended.
        left: usize,
    },
    /// It did not end in time, so the guard ended it and all that was left.
    Overdue {
        /// Its process.
        agent: u32,
        /// What it had, with the grace.
        limit: Duration,
    },
}

impl Watched {
    /// The exit code that follows.
    pub fn code(&self) -> u8 {
        match self {
            Watched::Ended(code) => *code,
            Watched::Killed { .. } | Watched::Overdue { .. } => OwnCode::AgentLost.code(),
        }
    }

    /// The agent, if it could not clean up after itself.
    pub fn dead_agent(&self) -> Option<u32> {
        match self {
            Watched::Ended(_) => None,
            Watched::Killed { agent, .. } | Watched::Overdue { agent, .. } => Some(*agent),
        }
    }
}

/// Under `ulimit -f` a write that is too long is from now on an error that can be told, not an end. Before anything is
/// written; members have it as usual.
pub fn survive_file_limits() -> io::Result<()> {
    calls::ignore(libc::SIGXFSZ)
}

/// Signals by which the process that has started us asks for the end count, even if it ignores them itself.
pub fn heed_the_caller() -> io::Result<()> {
    [libc::SIGTERM, libc::SIGINT, libc::SIGQUIT].into_iter().try_for_each(calls::heed)
}

/// Splits the process. Must be called while there is a single thread. `grace` is the members'.
pub(crate) fn enter(grace: Duration) -> io::Result<Side> {
    let (from_guard, to_agent) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    // Ignored by whoever started us (`trap '' CHLD`), it would never come, and nobody's end could be waited for. Members
    // have it at its default too: those that start programs themselves, as a data loader does, would fail the same way.
    calls::heed(libc::SIGCHLD)?;
    let heeded =
        signal::FORWARDED.into_iter().chain([libc::SIGTSTP]).filter(|&number| !calls::is_ignored(number));
    let watched: Vec<i32> = heeded.chain([libc::SIGCHLD]).collect();
    calls::set_blocked(libc::SIG_BLOCK, &watched)?;
    // A background process that writes to its terminal is stopped under `stty tostop`: nobody would notice why.
    calls::ignore(libc::SIGTTOU)?;
    match calls::fork()? {
        Forked::Child => {
            drop(to_agent);
            calls::set_blocked(libc::SIG_UNBLOCK, &watched)?;
            rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
            // If the guard is gone already, the pipe says so.
            rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::CONT))?;
            // Fails only for a session leader, which a fork is not.
            rustix::process::setpgid(None, None).or_log("the agent stays in its guard's group");
            Ok(Side::Agent(from_guard))
        }
        Forked::Parent { child } => {
            drop(from_guard);
            watch(child, &to_agent, &watched, grace + BEYOND_GRACE).map(Side::Guard)
        }
    }
}

fn watch(agent: u32, to_agent: &OwnedFd, watched: &[i32], limit: Duration) -> io::Result<Watched> {
    let tell = |number: i32, sender: Option<u32>| {
        let mark = if sender.is_none() { FROM_KERNEL } else { 0 };
        // A full pipe means thousands of unread signals; one more says nothing new.
        _ = rustix::io::write(to_agent, &[number as u8 | mark]);
        calls::kill(agent, libc::SIGCONT, false);
    };
    // Time that the guard itself was stopped does not count: it looks once a second.
    let mut left: Option<Duration> = None;
    let mut twice = Twice::default();
    loop {
        let before = Instant::now();
        let caught = calls::wait_for(watched, if left.is_some() { LOOK } else { NO_LOOK })?;
        if let Some(left) = &mut left {
            *left = left.saturating_sub(before.elapsed().min(LOOK * 2));
            // Whoever has suspended it once may do so again.
            calls::kill(agent, libc::SIGCONT, false);
            if left.is_zero() {
                calls::kill(agent, libc::SIGKILL, false);
                tree::end_all(Duration::ZERO, STUCK, &mut Asked::default());
                return Ok(Watched::Overdue { agent, limit });
            }
        }
        // `timeout` signals its child, and then the group that its child stands in: that is one signal.
        let Some(caught) = caught.filter(|caught| !twice.is_repeated(*caught, Instant::now())) else {
            continue;
        };
        match caught.signal {
            libc::SIGTSTP => {
                tell(libc::SIGTSTP, caught.sender);
                calls::stop_by(libc::SIGTSTP)?;
                tell(libc::SIGCONT, caught.sender);
            }
            libc::SIGCHLD => {
                while let Some(reaped) = calls::reap() {
                    if reaped.pid == agent {
                        return Ok(after(agent, reaped.exit_code()));
                    }
                }
            }
            number => {
                tell(number, caught.sender);
                if signal::ends_the_job(number) {
                    left.get_or_insert(limit);
                }
            }
        }
    }
}

/// Tells one signal that was sent twice from two: the same sender, at once. A terminal's Ctrl-C has no sender.
#[derive(Debug, Default)]
struct Twice {
    last: Option<(calls::Caught, Instant)>,
}

impl Twice {
    fn is_repeated(&mut self, caught: calls::Caught, now: Instant) -> bool {
        let before = self.last.replace((caught, now));
        let is_same = |(last, at): (calls::Caught, Instant)| {
            last == caught && now.saturating_duration_since(at) < AT_ONCE
        };
        caught.signal != libc::SIGCHLD && caught.sender.is_some() && before.is_some_and(is_same)
    }
}

/// The agent has ended: so does everything that it left.
fn after(agent: u32, end: Result<u8, i32>) -> Watched {
    // An agent that has ended by itself has ended all that it could.
    let stuck = if end.is_ok() { STUCK_STILL } else { STUCK };
    let left = tree::end_all(Duration::ZERO, stuck, &mut Asked::default());
    match end {
        Ok(code) => Watched::Ended(code),
        Err(signal) => Watched::Killed { agent, signal, left },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::calls::Caught;

    #[test]
    fn a_signal_that_one_process_sends_twice_at_once_is_one() {
        let start = Instant::now();
        let repeated = |signals: &[(i32, Option<u32>, u64)]| -> Vec<bool> {
            let mut twice = Twice::default();
            let mut is_repeated = |&(signal, sender, ms)| {
                twice.is_repeated(Caught { signal, sender }, start + Duration::from_millis(ms))
            };
            signals.iter().map(&mut is_repeated).collect()
        };
        let (term, int) = (libc::SIGTERM, libc::SIGINT);
        assert_eq!(repeated(&[(term, Some(7), 0), (term, Some(7), 1)]), [false, true], "timeout");
        assert_eq!(repeated(&[(term, Some(7), 0), (term, Some(7), 200)]), [false, false]);
        assert_eq!(repeated(&[(term, Some(7), 0), (term, Some(8), 1)]), [false, false], "two senders");
        assert_eq!(repeated(&[(int, None, 0), (int, None, 1)]), [false, false], "Ctrl-C, twice");
        assert_eq!(repeated(&[(int, Some(7), 0), (term, Some(7), 1)]), [false, false], "two signals");
    }
}
