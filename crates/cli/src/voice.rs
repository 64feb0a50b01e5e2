//! Saying something to people without ever waiting for them.
//!
//! A stderr that nobody reads (a full pipe, Ctrl-S, `2>&1 | less`) makes every write wait. So a thread writes, and
//! what it has no room for is left out and counted. At the end it has a moment; then the process ends without it.

use crate::caller;
use rallypoint::process;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{ErrorKind, Write};
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, channel, sync_channel};
use std::time::Duration;

/// Lines that may wait.
const QUEUE: usize = 1000;
/// How long the last lines may take.
const LAST_LINES: Duration = Duration::from_secs(2);

#[derive(Default)]
pub(crate) struct Voice {
    thread: Thread,
    left_out: usize,
}

#[derive(Default)]
enum Thread {
    /// Nothing was said yet: most agents of a large job have nothing to say.
    #[default]
    NotNeeded,
    /// None could be had: then nothing is said.
    None,
    Runs {
        lines: SyncSender<String>,
        ended: Receiver<()>,
    },
}

impl Thread {
    fn start() -> Thread {
        let (lines, to_write) = sync_channel::<String>(QUEUE);
        let (end, ended) = channel();
        let write = move || {
            for line in to_write {
                // Not in the middle of a member's line. Nobody can be told that it failed.
                let mut stderr = std::io::stderr().lock();
                write_all(&mut stderr, line.as_bytes());
            }
            _ = end.send(());
        };
        match process::start_thread(std::thread::Builder::new().stack_size(128 << 10), write) {
            Ok(_) => Thread::Runs { lines, ended },
            Err(_) => Thread::None,
        }
    }

    /// Where its lines go; the thread begins with the first.
    fn lines(&mut self) -> Option<&SyncSender<String>> {
        if let Thread::NotNeeded = self {
            *self = Thread::start();
        }
        match self {
            Thread::Runs { lines, .. } => Some(lines),
            Thread::NotNeeded | Thread::None => None,
        }
    }
}

impl Voice {
    /// Says a text, in one write, if there is room for it.
    pub(crate) fn say(&mut self, text: String) {
        let Some(lines) = self.thread.lines() else { return };
        if self.left_out > 0 {
            let note = format!("rallypoint: ... {} lines were left out here\n", self.left_out);
            if lines.try_send(note).is_err() {
                self.left_out += 1;
                return;
            }
            self.left_out = 0;
        }
        if let Err(TrySendError::Full(_)) = lines.try_send(text) {
            self.left_out += 1;
        }
    }

    /// Where others may say something too, in whole lines. To be given back before [`Voice::finish`].
    pub(crate) fn queue(&mut self) -> Option<SyncSender<String>> {
        self.thread.lines().cloned()
    }

    /// Waits until all is said, but not for ever.
    pub(crate) fn finish(self) {
        if let Thread::Runs { lines, ended } = self.thread {
            drop(lines);
            _ = ended.recv_timeout(LAST_LINES);
        }
    }
}

/// Writes all of it, for as long as it takes. Somebody who shares the stream may have made it non-blocking: then a
/// stream that is full for a moment is waited for all the same.
fn write_all(to: &mut (impl Write + AsFd), mut bytes: &[u8]) {
    while !bytes.is_empty() {
        match to.write(bytes) {
            Ok(0) => return,
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let second = Timespec { tv_sec: 1, tv_nsec: 0 };
                _ = poll(&mut [PollFd::new(to, PollFlags::OUT)], Some(&second));
            }
            Err(_) => return,
        }
    }
}

/// Says one text in the middle of a process that has no thread yet, and must not have one: only if it can be taken now.
pub(crate) fn say_if_heard(text: &str) {
    let stderr = std::io::stderr();
    let second = Timespec { tv_sec: 1, tv_nsec: 0 };
    if poll(&mut [PollFd::new(&stderr, PollFlags::OUT)], Some(&second)).is_ok_and(|ready| ready > 0) {
        _ = stderr.lock().write_all(text.as_bytes());
    }
}

/// Says one text, at the end of a process.
pub(crate) fn say_last(text: String) {
    caller::tell(&text);
    let mut voice = Voice::default();
    voice.say(text);
    voice.finish();
}
