//! A job in processes of its own: this one is forked, the child becomes guard and agent, and tells through a pipe.
//!
//! Not in this very process: an agent waits for all its children and ends all its descendants, and those of a program that
//! uses this library need not be ours.

use super::ready::Entered;
use super::{Run, RunError};
use crate::event::RunEvent;
use crate::hint;
use crate::outcome::Outcome;
use crate::process;
use crate::process::calls::{self, Forked};
use crate::process::tree::thread_count;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, WaitOptions, set_parent_process_death_signal, waitpid};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, channel, sync_channel};
use std::time::Duration;

/// Words that may wait to be read.
const QUEUE: usize = 4096;
/// How long the last ones may take.
const LAST_WORDS: Duration = Duration::from_secs(10);

/// What an agent tells the process that has started it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Word {
    Event(Box<RunEvent>),
    Outcome(Outcome),
    Error { code: u8, why: String },
}

pub(super) fn start(run: Run, mut on_event: impl FnMut(RunEvent)) -> Result<Outcome, RunError> {
    let threads = thread_count()?;
    if threads > 1 {
        return Err(RunError::Threads { threads });
    }
    let ready = run.prepare()?;
    let (words, to_caller) = pipe_with(PipeFlags::CLOEXEC).map_err(std::io::Error::from)?;
    let caller = rustix::process::getpid();
    match calls::fork()? {
        Forked::Child => {
            drop(words);
            let told = set_parent_process_death_signal(Some(Signal::TERM));
            // One that is gone already will send no signal.
            let is_alone = told.is_err() || rustix::process::getppid() != Some(caller);
            let entered = if is_alone {
                Err(std::io::ErrorKind::NotConnected.into())
            } else {
                ready.taken_over().enter()
            };
            calls::leave(work(entered, to_caller))
        }
        Forked::Parent { child } => {
            drop(to_caller);
            ready.leave_to_the_child();
            let told = hear(words, &mut on_event);
            let code = wait(child)?;
            told.unwrap_or_else(|| {
                let why = "the job has ended without a word".to_owned();
                Err(if code == RunError::AgentLost.code() {
                    RunError::AgentLost
                } else {
                    RunError::Elsewhere { code, why }
                })
            })
        }
    }
}

/// What the forked process does: the exit code.
fn work(entered: std::io::Result<Entered>, to_caller: OwnedFd) -> u8 {
    match entered {
        Err(error) => RunError::from(error).code(),
        Ok(Entered::Guard(watched)) => watched.code(),
        Ok(Entered::Agent(agent)) => {
            let mut teller = Teller::new(to_caller);
            let result = agent.run(&mut |event| teller.tell(&Word::Event(Box::new(event))));
            let (code, word) = match result {
                Ok(outcome) => (outcome.code(), Word::Outcome(outcome)),
                Err(error) => (error.code(), Word::Error { code: error.code(), why: hint::in_full(&error) }),
            };
            teller.finish(&word);
            code
        }
    }
}

/// Tells on a thread of its own: a caller that does not listen must not hold up the job.
struct Teller {
    words: Option<SyncSender<Vec<u8>>>,
    ended: Receiver<()>,
}

impl Teller {
    fn new(to_caller: OwnedFd) -> Teller {
        let (words, to_write) = sync_channel::<Vec<u8>>(QUEUE);
        let (end, ended) = channel();
        let mut caller = File::from(to_caller);
        let write = move || {
            // One that has gone takes nothing more; its guard hears that it has.
            _ = to_write.iter().try_for_each(|word| caller.write_all(&word));
            _ = end.send(());
        };
        let started = process::start_thread(std::thread::Builder::new().stack_size(128 << 10), write);
        Teller { words: started.is_ok().then_some(words), ended }
    }

    /// An event that finds no room is left out: the outcome has all that counts.
    fn tell(&mut self, word: &Word) {
        let Some(words) = &self.words else { return };
        let Ok(mut line) = serde_json::to_vec(word) else { return };
        line.push(b'\n');
        if let Err(TrySendError::Full(_)) = words.try_send(line) {
            tracing::debug!("the caller does not listen: an event was left out");
        }
    }

    fn finish(mut self, word: &Word) {
        let Some(words) = self.words.take() else { return };
        if let Ok(mut line) = serde_json::to_vec(word) {
            line.push(b'\n');
            _ = words.send(line);
        }
        drop(words);
        _ = self.ended.recv_timeout(LAST_WORDS);
    }
}

/// Hears all that is told, to the end: how it went, if that was told.
fn hear(words: OwnedFd, on_event: &mut dyn FnMut(RunEvent)) -> Option<Result<Outcome, RunError>> {
    let mut result = None;
    for line in BufReader::new(File::from(words)).lines().map_while(Result::ok) {
        match serde_json::from_str(&line) {
            Ok(Word::Event(event)) => on_event(*event),
            Ok(Word::Outcome(outcome)) => result = Some(Ok(outcome)),
            Ok(Word::Error { code, why }) => result = Some(Err(RunError::Elsewhere { code, why })),
            Err(error) => tracing::debug!("a word that cannot be read: {error}"),
        }
    }
    result
}

/// The exit code of the guard; that of a killed agent, if the guard was killed.
fn wait(guard: u32) -> Result<u8, RunError> {
    let pid = i32::try_from(guard).ok().and_then(Pid::from_raw);
    loop {
        match waitpid(pid, WaitOptions::empty()) {
            Err(rustix::io::Errno::INTR) | Ok(None) => {}
            Err(error) => return Err(std::io::Error::from(error).into()),
            Ok(Some((_, status))) => {
                let code = status.exit_status().and_then(|code| u8::try_from(code).ok());
                return Ok(code.unwrap_or(RunError::AgentLost.code()));
            }
        }
    }
}
