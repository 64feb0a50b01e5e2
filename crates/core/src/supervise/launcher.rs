//! What starts one agent in each slot, while it runs.

use super::run::{AgentError, io};
use super::signals::{Sensed, Signals};
use crate::clock;
use crate::outcome::End;
use crate::process::calls;
use crate::process::limits::DescriptorLimit;
use crate::process::spawn::{self, Program, Streams};
use crate::rendezvous::{Contact, RendezvousError};
use crate::signal;
use std::ffi::OsString;
use std::io::{Seek, Write};
use std::os::fd::AsFd;
use std::time::Duration;

/// How long the launcher may take to end after all its tasks were told to, and after SIGTERM.
pub(super) const STEP_END: Duration = Duration::from_secs(10);
const AFTER_SIGTERM: Duration = Duration::from_secs(5);

/// What starts one agent in each slot: `srun`, or what another scheduler has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launcher {
    /// What people call it.
    pub name: &'static str,
    /// The program and its arguments. It hands its standard input on to all agents, each from the beginning.
    pub command: Vec<OsString>,
    /// Variables on top of our own.
    pub variables: Vec<(OsString, OsString)>,
}

impl Launcher {
    /// Its words for people: without the agent that it starts.
    pub(super) fn shown(&self) -> Vec<String> {
        let words = self.command.iter().take_while(|word| *word != "--");
        words.map(|word| word.to_string_lossy().into_owned()).collect()
    }
}

/// The step's launcher, which runs.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) name: &'static str,
    pid: u32,
    ended: Option<Result<u8, i32>>,
}

impl Step {
    pub(super) fn start(
        launcher: &Launcher,
        contact: &Contact,
        descriptors: DescriptorLimit,
    ) -> Result<Step, AgentError> {
        let Launcher { name, command, variables } = launcher;
        let program = Program::new(command).variables(variables.iter().map(|(name, value)| (name, value)));
        let line = contact.line()?;
        // In memory alone. Not a pipe: the srun of a het job reads once per group, each from the beginning.
        let mut stdin = std::fs::File::from(
            rustix::fs::memfd_create("rallypoint-leader", rustix::fs::MemfdFlags::CLOEXEC)
                .map_err(|error| io(name)(error.into()))?,
        );
        stdin.write_all(line.as_bytes()).and_then(|()| stdin.rewind()).map_err(io(name))?;
        let (stdout, stderr) = (std::io::stdout(), std::io::stderr());
        let streams = Streams { stdin: stdin.as_fd(), stdout: stdout.as_fd(), stderr: stderr.as_fd() };
        let pid = spawn::spawn(&program, streams, descriptors).map_err(io(name))?;
        Ok(Step { name, pid, ended: None })
    }

    /// The error that keeps the members from meeting: the launcher has ended, or a signal came.
    pub(super) async fn ends_early(&mut self, signals: &mut Signals) -> RendezvousError {
        loop {
            match signals.next().await {
                Sensed::Signal(number) if signal::ends_the_job(number) => {
                    return RendezvousError::Interrupted(signal::name(number));
                }
                Sensed::Signal(_) | Sensed::Suspend(_) => {}
                Sensed::Child => {
                    while let Some(reaped) = calls::reap() {
                        self.note(&reaped);
                    }
                }
            }
            if let Some(ended) = self.ended {
                return RendezvousError::StepEnded { launcher: self.name, end: describe(ended) };
            }
        }
    }

    /// Remembers the end of the launcher, if it is its.
    pub(super) fn note(&mut self, reaped: &calls::Reaped) {
        if reaped.pid == self.pid {
            self.ended = Some(reaped.exit_code());
        }
    }

    /// How the launcher ended, if it has.
    pub(super) fn ended(&self) -> Option<End> {
        self.ended.map(|end| match end {
            Ok(code) => End::Exited(code),
            Err(signal) => End::Killed(signal),
        })
    }

    /// Waits until the launcher has ended; asks it to, when it takes too long.
    pub(super) async fn see_out(&mut self) {
        self.end(STEP_END).await;
    }

    pub(super) async fn end(&mut self, patience: Duration) {
        if !self.ends_within(patience).await {
            // It ends its tasks with it.
            calls::kill(self.pid, libc::SIGTERM, false);
            if !self.ends_within(AFTER_SIGTERM).await {
                calls::kill(self.pid, libc::SIGKILL, false);
                self.ends_within(AFTER_SIGTERM).await;
            }
        }
    }

    async fn ends_within(&mut self, patience: Duration) -> bool {
        let until = clock::now() + patience;
        loop {
            while let Some(reaped) = calls::reap() {
                self.note(&reaped);
            }
            if self.ended.is_some() || clock::now() >= until {
                return self.ended.is_some();
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

fn describe(end: Result<u8, i32>) -> String {
    match end {
        Ok(code) => format!("with exit code {code}"),
        Err(number) => format!("by {}", signal::name(number)),
    }
}
