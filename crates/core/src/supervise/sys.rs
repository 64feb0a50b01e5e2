//! The few system calls that have no safe form: fork, wait4, and what a child does before exec.
//!
//! Everything between fork and exec is a plain system call: no allocation, no lock.

#![expect(unsafe_code, reason = "fork, wait4, sigwait and pre_exec have no safe form")]

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// A child that ended, with the most memory it had (and the children it waited for).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reaped {
    pub(super) pid: u32,
    status: i32,
    pub(super) peak_kib: u64,
}

impl Reaped {
    /// The exit code, or else the signal.
    pub(super) fn exit_code(&self) -> Result<u8, i32> {
        if libc::WIFEXITED(self.status) {
            Ok(libc::WEXITSTATUS(self.status) as u8)
        } else {
            Err(libc::WTERMSIG(self.status))
        }
    }
}

/// The next ended child of this process, adopted ones included; never waits.
pub(super) fn reap() -> Option<Reaped> {
    let mut status = 0;
    // SAFETY: rusage is plain data, for which zeros are valid; both pointers are to live locals.
    let (pid, usage) = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        let pid = libc::wait4(-1, &mut status, libc::WNOHANG, &mut usage);
        (pid, usage)
    };
    let pid = u32::try_from(pid).ok().filter(|&pid| pid > 0)?;
    Some(Reaped { pid, status, peak_kib: u64::try_from(usage.ru_maxrss).unwrap_or(0) })
}

/// True if this process has any child, ended or not.
pub(super) fn has_children() -> bool {
    // SAFETY: siginfo is plain data, for which zeros are valid; WNOWAIT leaves every child as it is.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        libc::waitid(libc::P_ALL, 0, &mut info, flags) == 0
    }
}

/// Starts a command in a session of its own, with no signal blocked, that dies with this thread.
pub(super) fn spawn(command: &mut Command) -> io::Result<u32> {
    let parent = rustix::process::getpid();
    let prepare = move || {
        rustix::process::setsid()?;
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
        // If the parent died before the line above, no signal will come.
        if rustix::process::getppid() != Some(parent) {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        set_blocked(libc::SIG_SETMASK, &[])
    };
    // SAFETY: `prepare` makes system calls only; it neither allocates nor takes a lock.
    unsafe { command.pre_exec(prepare) };
    command.spawn().map(|child| child.id())
}

/// Makes a short-lived helper end with the thread that starts it.
pub(crate) fn dies_with_us(command: &mut Command) -> &mut Command {
    let prepare = || {
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
        Ok(())
    };
    // SAFETY: `prepare` makes a system call only; it neither allocates nor takes a lock.
    unsafe { command.pre_exec(prepare) }
}

/// Which side of a fork this is.
pub(super) enum Forked {
    Parent { child: u32 },
    Child,
}

/// Splits this process, which must have a single thread.
pub(super) fn fork() -> io::Result<Forked> {
    // SAFETY: with a single thread no lock can be held by another in the child.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Forked::Child),
        child => Ok(Forked::Parent { child: child as u32 }),
    }
}

/// Blocks or unblocks signals for this thread: `SIG_BLOCK`, `SIG_UNBLOCK`, `SIG_SETMASK`.
pub(super) fn set_blocked(how: i32, signals: &[i32]) -> io::Result<()> {
    let set = signal_set(signals);
    // SAFETY: `set` is an initialised signal set; the old mask is not asked for.
    match unsafe { libc::pthread_sigmask(how, &set, std::ptr::null_mut()) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Waits for one of `signals`, which must be blocked.
pub(super) fn wait_for(signals: &[i32]) -> io::Result<i32> {
    let set = signal_set(signals);
    let mut signal = 0;
    // SAFETY: both pointers are to live locals.
    match unsafe { libc::sigwait(&set, &mut signal) } {
        0 => Ok(signal),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

fn signal_set(signals: &[i32]) -> libc::sigset_t {
    // SAFETY: sigemptyset initialises the set before it is read; sigaddset refuses bad numbers.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for &signal in signals {
            libc::sigaddset(&mut set, signal);
        }
        set
    }
}

/// True if whoever started us wants this signal ignored, as `nohup` does.
pub(crate) fn is_ignored(signal: i32) -> bool {
    // SAFETY: the action is only read, into an initialised local.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &mut action) == 0 && action.sa_sigaction == libc::SIG_IGN
    }
}

/// True if anybody is in this process group, who need not have been waited for.
pub(super) fn group_exists(group: u32) -> bool {
    kill(group, 0, true)
}

/// Sends a signal to a process, or to its whole group.
pub(super) fn kill(pid: u32, signal: i32, group: bool) -> bool {
    let Ok(pid) = i32::try_from(pid) else { return false };
    if pid <= 1 {
        return false;
    }
    // SAFETY: kill has no memory effects here.
    unsafe { libc::kill(if group { -pid } else { pid }, signal) == 0 }
}
