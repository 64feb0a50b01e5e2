//! Signal numbers and their names.

/// The signals that a scheduler or a person sends to end or to warn a job.
pub(crate) const FORWARDED: [i32; 6] =
    [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGUSR1, libc::SIGUSR2];

/// What asks a job to end.
pub(crate) const TERMINATE: i32 = libc::SIGTERM;

/// `SIGTERM`, or the number where it has no name here.
pub fn name(signal: i32) -> String {
    let name = match signal {
        libc::SIGHUP => "SIGHUP",
        libc::SIGINT => "SIGINT",
        libc::SIGQUIT => "SIGQUIT",
        libc::SIGILL => "SIGILL",
        libc::SIGTRAP => "SIGTRAP",
        libc::SIGABRT => "SIGABRT",
        libc::SIGBUS => "SIGBUS",
        libc::SIGFPE => "SIGFPE",
        libc::SIGKILL => "SIGKILL",
        libc::SIGUSR1 => "SIGUSR1",
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGUSR2 => "SIGUSR2",
        libc::SIGPIPE => "SIGPIPE",
        libc::SIGALRM => "SIGALRM",
        libc::SIGTERM => "SIGTERM",
        libc::SIGXCPU => "SIGXCPU",
        libc::SIGXFSZ => "SIGXFSZ",
        libc::SIGSYS => "SIGSYS",
        libc::SIGSTOP => "SIGSTOP",
        libc::SIGTSTP => "SIGTSTP",
        libc::SIGCONT => "SIGCONT",
        _ => return format!("signal {signal}"),
    };
    name.to_owned()
}

/// True if a signal asks the job to end; the others are only passed on to the members.
pub(crate) fn ends_the_job(signal: i32) -> bool {
    !matches!(signal, libc::SIGUSR1 | libc::SIGUSR2 | libc::SIGTSTP | libc::SIGCONT)
}
