//! The few system calls that have no safe form: fork, wait4, and what a child does before exec.
//!
//! Everything between fork and exec is a plain system call: no allocation, no lock.

#![expect(unsafe_code, reason = "fork, wait4, sigwait and pre_exec have no safe form")]

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

/// A child that ended, with the most memory it had (and the children it waited for).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reaped {
    pub(crate) pid: u32,
    status: i32,
    pub(crate) peak_kib: u64,
}

impl Reaped {
    /// The exit code, or else the signal.
    pub(crate) fn exit_code(&self) -> Result<u8, i32> {
        if libc::WIFEXITED(self.status) {
            Ok(libc::WEXITSTATUS(self.status) as u8)
        } else {
            Err(libc::WTERMSIG(self.status))
        }
    }
}

/// The next ended child of this process, adopted ones included; never waits.
pub(crate) fn reap() -> Option<Reaped> {
    #[cfg(feature = "simulation")]
    if let Some(reaped) = crate::simulated::processes::reap() {
        return reaped.map(|(pid, status)| Reaped { pid, status, peak_kib: 0 });
    }
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
pub(crate) fn has_children() -> bool {
    #[cfg(feature = "simulation")]
    if let Some(any) = crate::simulated::processes::has_children() {
        return any;
    }
    // SAFETY: siginfo is plain data, for which zeros are valid; WNOWAIT leaves every child as it is.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        libc::waitid(libc::P_ALL, 0, &mut info, flags) == 0
    }
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
pub(crate) enum Forked {
    Parent { child: u32 },
    Child,
}

/// Splits this process, which must have a single thread.
pub(crate) fn fork() -> io::Result<Forked> {
    // SAFETY: with a single thread no lock can be held by another in the child.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Forked::Child),
        child => Ok(Forked::Parent { child: child as u32 }),
    }
}

/// Ends this process at once, without what the program that was forked would do at its end.
pub(crate) fn leave(code: u8) -> ! {
    // SAFETY: it does not return, and runs no code of anybody's.
    unsafe { libc::_exit(code.into()) }
}

/// Blocks or unblocks signals for this thread: `SIG_BLOCK`, `SIG_UNBLOCK`, `SIG_SETMASK`.
pub(crate) fn set_blocked(how: i32, signals: &[i32]) -> io::Result<()> {
    let set = signal_set(signals);
    // SAFETY: `set` is an initialised signal set; the old mask is not asked for.
    match unsafe { libc::pthread_sigmask(how, &set, std::ptr::null_mut()) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// A signal that came, and the process that sent it; the kernel itself has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Caught {
    pub(crate) signal: i32,
    pub(crate) sender: Option<u32>,
}

/// Waits for one of `signals`, which must be blocked; `None` when the time is over.
pub(crate) fn wait_for(signals: &[i32], limit: Duration) -> io::Result<Option<Caught>> {
    let set = signal_set(signals);
    let limit = libc::timespec { tv_sec: limit.as_secs() as i64, tv_nsec: limit.subsec_nanos().into() };
    // SAFETY: siginfo is plain data, for which zeros are valid; all pointers are to live locals.
    let (signal, info) = unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        (libc::sigtimedwait(&set, &mut info, &limit), info)
    };
    match signal {
        -1 => match io::Error::last_os_error() {
            error if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EINTR)) => Ok(None),
            error => Err(error),
        },
        signal => {
            let by_process = matches!(info.si_code, libc::SI_USER | libc::SI_TKILL | libc::SI_QUEUE);
            // SAFETY: for these codes the kernel has filled in the sender.
            let sender = by_process.then(|| unsafe { info.si_pid() } as u32);
            Ok(Some(Caught { signal, sender }))
        }
    }
}

/// Stops this process by a signal that is blocked, as if it were not: it goes on here when it is continued.
pub(crate) fn stop_by(signal: i32) -> io::Result<()> {
    // SAFETY: raise has no memory effects; the signal's action is the default one.
    unsafe { libc::raise(signal) };
    set_blocked(libc::SIG_UNBLOCK, &[signal])?;
    set_blocked(libc::SIG_BLOCK, &[signal])
}

/// From now on this signal does nothing to this process, nor to what it starts, unless that heeds it again.
pub(crate) fn ignore(signal: i32) -> io::Result<()> {
    set_action(signal, libc::SIG_IGN)
}

/// Gives a signal its usual effect again, whoever has started us.
pub(crate) fn heed(signal: i32) -> io::Result<()> {
    set_action(signal, libc::SIG_DFL)
}

fn set_action(signal: i32, action: libc::sighandler_t) -> io::Result<()> {
    // SAFETY: neither action is a function of ours.
    match unsafe { libc::signal(signal, action) } {
        libc::SIG_ERR => Err(io::Error::last_os_error()),
        _ => Ok(()),
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
    #[cfg(feature = "simulation")]
    if crate::simulated::here().is_some() {
        return false;
    }
    action(signal) == Some(libc::SIG_IGN)
}

/// True if code of this process runs when the signal comes.
pub(crate) fn has_handler(signal: i32) -> bool {
    action(signal).is_some_and(|action| action != libc::SIG_IGN && action != libc::SIG_DFL)
}

/// What a signal does, if there is such a signal.
fn action(signal: i32) -> Option<libc::sighandler_t> {
    // SAFETY: the action is only read, into an initialised local.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        (libc::sigaction(signal, std::ptr::null(), &mut action) == 0).then_some(action.sa_sigaction)
    }
}

/// Does something while no signal can come to this thread.
pub(crate) fn with_all_blocked<T>(act: impl FnOnce() -> T) -> io::Result<T> {
    // SAFETY: signal sets are plain data, for which zeros are valid; all pointers are to live locals.
    unsafe {
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) =
            (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&mut all);
        match libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before) {
            0 => {}
            error => return Err(io::Error::from_raw_os_error(error)),
        }
        let done = act();
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        Ok(done)
    }
}

/// True if anybody is in this process group, who need not have been waited for.
pub(crate) fn group_exists(group: u32) -> bool {
    kill(group, 0, true)
}

/// The number of this process.
pub(crate) fn own_pid() -> u32 {
    #[cfg(feature = "simulation")]
    if let Some(pid) = crate::simulated::own_pid() {
        return pid;
    }
    std::process::id()
}

/// True if a process has this number, ended or not.
pub(crate) fn exists(pid: u32) -> bool {
    #[cfg(feature = "simulation")]
    if let Some(alive) = crate::simulated::is_alive(pid) {
        return alive;
    }
    std::path::PathBuf::from(format!("/proc/{pid}")).exists()
}

/// Sends a signal to a process, or to its whole group.
pub(crate) fn kill(pid: u32, signal: i32, group: bool) -> bool {
    #[cfg(feature = "simulation")]
    if let Some(any) = crate::simulated::processes::kill(pid, signal, group) {
        return any;
    }
    let Ok(pid) = i32::try_from(pid) else { return false };
    if pid <= 1 {
        return false;
    }
    // SAFETY: kill has no memory effects here.
    unsafe { libc::kill(if group { -pid } else { pid }, signal) == 0 }
}
