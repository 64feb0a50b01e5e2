//! Signals as events, from the guard's pipe and straight to the agent.
//!
//! Schedulers signal every process of a job, so the same signal comes both ways at once; what comes the
//! second way is the first one's echo. And a wish for the end may come as several signals: a terminal that is closed
//! sends SIGHUP by its shell and by the kernel, systemd sends SIGTERM and SIGHUP. All of that is one [`Wish`]; a second one
//! would cost the members their grace.

use super::guard::FROM_KERNEL;
use crate::clock;
use crate::process::{Arrivals, Pipe, calls};
use crate::signal::{FORWARDED, ends_the_job};
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};
use tokio::io::AsyncReadExt;
use tokio::sync::mpsc;

/// No signal has this number: the guard was killed.
const GUARD_GONE: i32 = 0;
/// How late a signal may come straight, after the guard has passed it on, and still be the same one.
const ECHO: Duration = Duration::from_secs(1);
/// Signals that ask for the end within this are one wish.
const AT_ONCE: Duration = Duration::from_millis(500);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Guard,
    Direct,
}

/// Who has sent it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sender {
    /// For a person at the terminal, mostly.
    Kernel,
    Process,
}

/// What was noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sensed {
    Signal(i32),
    /// The job is to stand still (Ctrl-Z), or to go on.
    Suspend(bool),
    /// Some child has ended and can be reaped.
    Child,
}

/// Tells another wish for the end from more signals of the first one.
#[derive(Debug, Default)]
struct Wish {
    first: Option<(i32, Sender, Instant)>,
}

impl Wish {
    /// True if a signal that asks for the end says what another has just said.
    ///
    /// Ctrl-C twice is two wishes, however fast a person is; but a wrapper that passes the Ctrl-C on which it has got
    /// itself, from the same terminal, adds none. SIGTERM and SIGHUP say nothing new after the first, however late:
    /// schedulers repeat them. Slurm sends one for the step and one for the job, and `srun` another.
    fn is_known(&mut self, number: i32, sender: Sender, now: Instant) -> bool {
        let Some((first, first_sender, at)) = self.first else {
            self.first = Some((number, sender, now));
            return false;
        };
        let by_hand = |number| matches!(number, libc::SIGINT | libc::SIGQUIT);
        if !by_hand(number) {
            return true;
        }
        let is_second = by_hand(first) && sender == first_sender;
        !is_second && now.saturating_duration_since(at) < AT_ONCE
    }
}

/// Tells a signal from its echo. Each signal by itself: a scheduler that warns and cancels at once sends two
/// different ones, both ways each.
#[derive(Debug, Default)]
struct Echo {
    last: HashMap<i32, Heard>,
}

#[derive(Debug, Clone, Copy)]
struct Heard {
    way: Way,
    at: Instant,
    /// It has come the other way as well.
    echoed: bool,
}

impl Echo {
    /// True if the same signal has come the other way. An echo is the echo of one signal only.
    ///
    /// One that came straight has an echo by the guard however late: a guard that is stopped passes it on when it goes
    /// on. The guard continues the agent, so the other order has a limit.
    fn is_echo(&mut self, way: Way, number: i32, now: Instant) -> bool {
        if let Some(heard) = self.last.get_mut(&number) {
            let since = now.saturating_duration_since(heard.at);
            if heard.way != way && !heard.echoed && (way == Way::Guard || since < ECHO) {
                heard.echoed = true;
                return true;
            }
        }
        self.last.insert(number, Heard { way, at: now, echoed: false });
        false
    }
}

#[derive(Debug)]
pub(super) struct Signals {
    receiver: mpsc::Receiver<(Way, Sender, i32)>,
    echo: Echo,
    wish: Wish,
    /// A signal has asked for the job's end.
    asked_to_end: bool,
    /// The job is to stand still.
    pub(super) suspended: bool,
    children: Arrivals,
}

impl Signals {
    /// From a guard by its pipe, if there is one.
    pub(super) fn of(guard: Option<OwnedFd>) -> io::Result<Signals> {
        Signals::new(guard.map(Pipe::new).transpose()?)
    }

    /// `from_guard` gives one byte per signal; its end means that the guard was killed.
    pub(super) fn new(from_guard: Option<Pipe>) -> io::Result<Signals> {
        let (sender, receiver) = mpsc::channel(64);
        for number in FORWARDED.into_iter().filter(|&number| !calls::is_ignored(number)) {
            let mut stream = Arrivals::new(number)?;
            let sender = sender.clone();
            tokio::task::spawn_local(async move {
                while stream.recv().await.is_some() {
                    if sender.send((Way::Direct, Sender::Process, number)).await.is_err() {
                        return;
                    }
                }
            });
        }
        if let Some(mut pipe) = from_guard {
            tokio::task::spawn_local(async move {
                while let Ok(byte) = pipe.read_u8().await {
                    let by = if byte & FROM_KERNEL == 0 { Sender::Process } else { Sender::Kernel };
                    let number = i32::from(byte & !FROM_KERNEL);
                    if sender.send((Way::Guard, by, number)).await.is_err() {
                        return;
                    }
                }
                _ = sender.send((Way::Guard, Sender::Process, GUARD_GONE)).await;
            });
        }
        let children = Arrivals::new(libc::SIGCHLD)?;
        let (echo, wish) = (Echo::default(), Wish::default());
        Ok(Signals { receiver, echo, wish, asked_to_end: false, suspended: false, children })
    }

    fn heard(&mut self, number: i32) -> Sensed {
        self.asked_to_end |= ends_the_job(number);
        Sensed::Signal(number)
    }

    /// The next signal that is not an echo, or a child's end.
    pub(super) async fn next(&mut self) -> Sensed {
        loop {
            let received = tokio::select! {
                _ = self.children.recv() => return Sensed::Child,
                received = self.receiver.recv() => received,
            };
            let Some((way, sender, number)) = received else { return std::future::pending().await };
            match number {
                libc::SIGTSTP | libc::SIGCONT => {
                    self.suspended = number == libc::SIGTSTP;
                    return Sensed::Suspend(self.suspended);
                }
                // Like one SIGTERM; but no second one, which would cost the members their grace.
                GUARD_GONE if self.asked_to_end => {}
                GUARD_GONE => {
                    self.wish.is_known(libc::SIGTERM, sender, clock::real());
                    return self.heard(libc::SIGTERM);
                }
                number if self.echo.is_echo(way, number, clock::real()) => {
                    tracing::debug!("signal {number} by {way:?} is an echo");
                }
                number if ends_the_job(number) && self.wish.is_known(number, sender, clock::real()) => {
                    tracing::debug!("signal {number} by {way:?} asks for what was asked for already");
                }
                number => return self.heard(number),
            }
        }
    }
}

/// Waits until a moment, or for ever.
pub(super) async fn until(at: Option<Instant>) {
    match at {
        Some(at) => clock::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use libc::{SIGINT, SIGTERM, SIGUSR1};

    #[test]
    fn signals_that_ask_for_the_end_at_once_are_one_wish() {
        use Sender::{Kernel, Process};
        use libc::{SIGHUP, SIGQUIT};
        let start = Instant::now();
        let wishes = |signals: &[(i32, Sender, u64)]| {
            let mut wish = Wish::default();
            let is_new = |&&(number, sender, ms): &&(i32, Sender, u64)| {
                !wish.is_known(number, sender, start + Duration::from_millis(ms))
            };
            signals.iter().filter(is_new).count()
        };
        type Row<'a> = (&'a str, &'a [(i32, Sender, u64)], usize);
        let table: &[Row<'_>] = &[
            ("one", &[(SIGTERM, Process, 0)], 1),
            ("a terminal is closed", &[(SIGHUP, Process, 0), (SIGHUP, Kernel, 3)], 1),
            ("by a shell that takes its time", &[(SIGHUP, Process, 0), (SIGHUP, Kernel, 4000)], 1),
            ("the shell is last", &[(SIGHUP, Kernel, 0), (SIGHUP, Process, 80)], 1),
            ("systemd", &[(SIGTERM, Process, 0), (SIGHUP, Process, 1)], 1),
            ("the other order", &[(SIGHUP, Process, 0), (SIGTERM, Process, 1)], 1),
            ("two kinds", &[(SIGINT, Process, 0), (SIGTERM, Process, 1)], 1),
            ("three", &[(SIGINT, Process, 0), (SIGTERM, Process, 1), (SIGHUP, Process, 2)], 1),
            ("two senders", &[(SIGTERM, Process, 0), (SIGTERM, Process, 9)], 1),
            ("the step, then the job", &[(SIGTERM, Process, 0), (SIGTERM, Process, 3000)], 1),
            ("much later", &[(SIGHUP, Process, 0), (SIGHUP, Process, 50_000)], 1),
            ("Ctrl-C, then SIGTERM", &[(SIGINT, Kernel, 0), (SIGTERM, Process, 5000)], 1),
            ("Ctrl-C, twice", &[(SIGINT, Kernel, 0), (SIGINT, Kernel, 150)], 2),
            ("Ctrl-C, and Ctrl-\\", &[(SIGINT, Kernel, 0), (SIGQUIT, Kernel, 150)], 2),
            ("kill -INT, twice", &[(SIGINT, Process, 0), (SIGINT, Process, 30)], 2),
            ("Ctrl-C, and by a wrapper", &[(SIGINT, Kernel, 0), (SIGINT, Process, 2)], 1),
            ("a wrapper, twice", &[(SIGINT, Kernel, 0), (SIGINT, Process, 2), (SIGINT, Kernel, 300)], 2),
            ("SIGTERM, then Ctrl-C", &[(SIGTERM, Process, 0), (SIGINT, Kernel, 800)], 2),
        ];
        for (what, signals, expected) in table {
            assert_eq!(wishes(signals), *expected, "{what}");
        }
    }

    #[test]
    fn the_same_signal_by_the_other_way_is_an_echo() {
        let start = Instant::now();
        let heard = |signals: &[(Way, i32, u64)]| -> Vec<i32> {
            let mut echo = Echo::default();
            let is_new = |&&(way, number, ms): &&(Way, i32, u64)| {
                !echo.is_echo(way, number, start + Duration::from_millis(ms))
            };
            signals.iter().filter(is_new).map(|(_, number, _)| *number).collect()
        };
        use Way::{Direct, Guard};
        assert_eq!(heard(&[(Guard, SIGTERM, 0), (Direct, SIGTERM, 5)]), [SIGTERM]);
        assert_eq!(heard(&[(Guard, SIGINT, 0), (Guard, SIGINT, 5)]), [SIGINT, SIGINT], "Ctrl-C, twice");
        assert_eq!(heard(&[(Guard, SIGTERM, 0), (Direct, SIGTERM, 1500)]), [SIGTERM, SIGTERM]);
        // A guard that was suspended passes on late what the agent has got straight; but once only.
        assert_eq!(heard(&[(Direct, SIGTERM, 0), (Guard, SIGTERM, 90_000)]), [SIGTERM]);
        let again = [(Direct, SIGTERM, 0), (Guard, SIGTERM, 90_000), (Guard, SIGTERM, 91_000)];
        assert_eq!(heard(&again), [SIGTERM, SIGTERM]);
        let both_again =
            [(Direct, SIGTERM, 0), (Guard, SIGTERM, 9000), (Direct, SIGTERM, 9500), (Guard, SIGTERM, 9501)];
        assert_eq!(heard(&both_again), [SIGTERM, SIGTERM]);
        assert_eq!(heard(&[(Direct, SIGTERM, 0), (Guard, SIGINT, 1500)]), [SIGTERM, SIGINT], "another one");
        // A warning and a cancellation at once, in any order: one of each, or the checkpoint is lost.
        let mixed = [(Guard, SIGUSR1, 0), (Guard, SIGTERM, 0), (Direct, SIGUSR1, 1), (Direct, SIGTERM, 1)];
        assert_eq!(heard(&mixed), [SIGUSR1, SIGTERM]);
        let crossed = [(Guard, SIGTERM, 0), (Direct, SIGUSR1, 0), (Direct, SIGTERM, 1), (Guard, SIGUSR1, 1)];
        assert_eq!(heard(&crossed), [SIGTERM, SIGUSR1]);
        // The third one is a second Ctrl-C, not an echo of the first.
        let twice =
            [(Guard, SIGTERM, 0), (Direct, SIGTERM, 1), (Guard, SIGTERM, 200), (Direct, SIGTERM, 201)];
        assert_eq!(heard(&twice), [SIGTERM, SIGTERM]);
    }
}
