//! A member's process: started from its launch, and what it has left to say why it failed.

use super::member::Launch;
use crate::outcome::End;
use crate::process::Pipe;
use crate::process::limits::DescriptorLimit;
use crate::process::spawn::{self, Program, Streams};
use crate::rehearsal::Deed;
use crate::signal;
use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;

/// The most that is read of `RALLYPOINT_ERROR_FILE`.
const MAX_REASON: u64 = 2000;

/// Its number, and what it will write.
pub(super) fn spawn(launch: &Launch, descriptors: DescriptorLimit) -> std::io::Result<(u32, Pipe, Pipe)> {
    #[cfg(feature = "simulation")]
    if let Some((pid, stdout, stderr)) = {
        let port = launch.port.as_ref().map(crate::ports::HeldPort::port);
        crate::simulated::processes::spawn(port, launch.rank, &launch.variables)
    } {
        return Ok((pid, Pipe::simulated(stdout), Pipe::simulated(stderr)));
    }
    let (stdout, child_stdout) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let (stderr, child_stderr) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    _ = std::fs::remove_file(&launch.error_file);
    let variables = launch.variables.iter().map(|(name, value)| (name, value));
    let program = Program::new(&launch.command).without(launch.withheld).variables(variables);
    let stdin = File::open("/dev/null")?;
    // The child's ends are closed at the end of this; only members hold them then.
    let streams =
        Streams { stdin: stdin.as_fd(), stdout: child_stdout.as_fd(), stderr: child_stderr.as_fd() };
    let pid = spawn::spawn(&program, streams, descriptors)?;
    Ok((pid, Pipe::new(stdout)?, Pipe::new(stderr)?))
}

/// The first lines that the program left for us.
pub(super) fn reason(file: &std::path::Path) -> Option<String> {
    let mut bytes = Vec::new();
    // It may have made anything there: a pipe would be waited at.
    let file =
        File::options().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW).open(file).ok()?;
    file.metadata().ok().filter(std::fs::Metadata::is_file)?;
    file.take(MAX_REASON).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let text: String =
        text.trim().chars().map(|c| if c.is_control() && c != '\n' { ' ' } else { c }).collect();
    (!text.is_empty()).then_some(text)
}

/// That a member's end was a rehearsal: it was killed by the signal that was sent on purpose, or failed after it was asked.
pub(super) fn on_purpose(end: &End, rehearsed: Option<Deed>) -> Option<String> {
    let is_it = |deed: &Deed| *deed == Deed::Term || *end == End::Killed(deed.signal());
    let deed = rehearsed.filter(is_it)?;
    Some(format!("a rehearsal: {} was sent to it on purpose", signal::name(deed.signal())))
}
