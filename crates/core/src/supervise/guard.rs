//! The guard: why no process survives, even if the agent is killed with SIGKILL.
//!
//! `rallypoint run` splits into two. The process that the user started becomes the guard; its child
//! is the agent, which does all the work. The guard adopts every orphan of the job (it is a child
//! subreaper), so when the agent is gone, however it went, the guard finds whatever is left below
//! itself and ends it. If the guard is killed, its pipe closes, and the agent stops the job. A child of
//! the agent dies with it (parent-death signal); the guard is there for the children's children.
//!
//! Signals go to the guard, which passes them on through the pipe. The agent stands in a process group
//! of its own, so that Ctrl-C reaches it once.

use super::sys::{self, Forked};
use super::tree::{self, Asked};
use crate::outcome::OwnCode;
use crate::signal;
use rustix::pipe::PipeFlags;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// Which of the two this process now is.
#[derive(Debug)]
pub enum Side {
    /// The agent, with the pipe from its guard: a byte a signal, closed when the guard is gone.
    Agent(OwnedFd),
    /// The guard, after everything has ended; the exit code.
    Guard { code: u8, message: Option<String> },
}

/// Splits the process. Must be called while there is a single thread.
pub fn enter() -> io::Result<Side> {
    let (from_guard, to_agent) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let heeded = signal::FORWARDED.into_iter().filter(|&number| !sys::is_ignored(number));
    let watched: Vec<i32> = heeded.chain([libc::SIGCHLD]).collect();
    sys::set_blocked(libc::SIG_BLOCK, &watched)?;
    match sys::fork()? {
        Forked::Child => {
            drop(to_agent);
            sys::set_blocked(libc::SIG_UNBLOCK, &watched)?;
            rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
            // Fails only for a session leader, which a fork is not.
            _ = rustix::process::setpgid(None, None);
            Ok(Side::Agent(from_guard))
        }
        Forked::Parent { child } => {
            drop(from_guard);
            watch(child, &to_agent, &watched)
        }
    }
}

fn watch(agent: u32, to_agent: &OwnedFd, watched: &[i32]) -> io::Result<Side> {
    loop {
        let number = sys::wait_for(watched)?;
        if number != libc::SIGCHLD {
            // A full pipe means thousands of unread signals; one more says nothing new.
            _ = rustix::io::write(to_agent, &[number as u8]);
            continue;
        }
        while let Some(reaped) = sys::reap() {
            if reaped.pid == agent {
                return Ok(after(agent, reaped.exit_code()));
            }
        }
    }
}

/// The agent has ended: so does everything that it left.
fn after(agent: u32, end: Result<u8, i32>) -> Side {
    let left = tree::end_all(Duration::ZERO, &mut Asked::default());
    match end {
        Ok(code) => Side::Guard { code, message: None },
        Err(number) => {
            let message = format!(
                "the agent (pid {agent}) was ended by {}; {left} processes of the job were ended",
                signal::name(number)
            );
            Side::Guard { code: OwnCode::AgentLost.code(), message: Some(message) }
        }
    }
}
