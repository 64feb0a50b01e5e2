//! Signals as events, from the guard's pipe and straight to the agent.
//!
//! Schedulers signal every process of a job, so the same signal comes both ways at once; the second
//! way within a second is the first one's echo. Two through the same way are two: Ctrl-C, twice.

use super::sys;
use crate::signal::FORWARDED;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

const ECHO: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Guard,
    Direct,
}

/// What was noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sensed {
    Signal(i32),
    /// Some child has ended and can be reaped.
    Child,
}

#[derive(Debug)]
pub(super) struct Signals {
    receiver: mpsc::Receiver<(Way, i32)>,
    last: Option<(Way, i32, Instant)>,
    children: Signal,
}

impl Signals {
    /// `from_guard` gives a byte a signal; its end means that the guard was killed.
    pub(super) fn new(from_guard: Option<OwnedFd>) -> io::Result<Signals> {
        let (sender, receiver) = mpsc::channel(64);
        for number in FORWARDED.into_iter().filter(|&number| !sys::is_ignored(number)) {
            let mut stream = signal(SignalKind::from_raw(number))?;
            let sender = sender.clone();
            tokio::task::spawn_local(async move {
                while stream.recv().await.is_some() {
                    if sender.send((Way::Direct, number)).await.is_err() {
                        return;
                    }
                }
            });
        }
        if let Some(from_guard) = from_guard {
            let mut pipe = pipe::Receiver::from_owned_fd(from_guard)?;
            tokio::task::spawn_local(async move {
                while let Ok(number) = pipe.read_u8().await {
                    if sender.send((Way::Guard, i32::from(number))).await.is_err() {
                        return;
                    }
                }
                _ = sender.send((Way::Guard, libc::SIGTERM)).await;
            });
        }
        let children = signal(SignalKind::child())?;
        Ok(Signals { receiver, last: None, children })
    }

    /// The next signal that is not an echo, or a child's end.
    pub(super) async fn next(&mut self) -> Sensed {
        loop {
            let received = tokio::select! {
                _ = self.children.recv() => return Sensed::Child,
                received = self.receiver.recv() => received,
            };
            let Some((way, number)) = received else { return std::future::pending().await };
            let now = Instant::now();
            let echo = self
                .last
                .is_some_and(|(before, same, at)| before != way && same == number && now - at < ECHO);
            if !echo {
                self.last = Some((way, number, now));
                return Sensed::Signal(number);
            }
        }
    }
}

/// Waits until a moment, or for ever.
pub(super) async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}
