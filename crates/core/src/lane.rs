//! A thread that writes, so that nothing else has to wait for what it writes to.
//!
//! A terminal may be stopped (Ctrl-S), a pipe may have no reader, a file system may hang: whoever has something to
//! write hands it to a lane, a bounded queue with a thread behind it. What could not be written is counted and told,
//! once it is known, as a [`Loss`].

use crate::clock::{self, Deadline};
use crate::process;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, mpsc, oneshot};

/// Losses that may wait to be heard; those of one path are added up meanwhile.
const UNHEARD: usize = 64;

/// Bytes that were to be written and are not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Loss {
    /// A file, or `standard output`.
    pub(crate) path: String,
    pub(crate) bytes: u64,
    pub(crate) why: String,
}

/// Where losses are told. Never waits.
#[derive(Debug, Clone)]
pub(crate) struct Losses {
    sender: mpsc::Sender<Loss>,
    /// Told when there is something to hear.
    wake: Arc<Notify>,
    unheard: Vec<Loss>,
}

impl Losses {
    pub(crate) fn new(wake: Arc<Notify>) -> (Losses, mpsc::Receiver<Loss>) {
        let (sender, receiver) = mpsc::channel(UNHEARD);
        (Losses { sender, wake, unheard: Vec::new() }, receiver)
    }

    pub(crate) fn tell(&mut self, path: &str, bytes: usize, why: &str) {
        let bytes = bytes as u64;
        match self.unheard.iter_mut().find(|loss| loss.path == path) {
            Some(loss) => loss.bytes += bytes,
            None => self.unheard.push(Loss { path: path.to_owned(), bytes, why: why.to_owned() }),
        }
        self.unheard.retain(|loss| self.sender.try_send(loss.clone()).is_err());
        self.wake.notify_one();
    }
}

/// A queue with a thread that writes what comes.
#[derive(Debug)]
pub(crate) struct Lane<T> {
    pub(crate) sender: mpsc::Sender<T>,
    ended: oneshot::Receiver<()>,
    progress: Progress,
}

/// How many bytes were written so far: a slow reader is told from none by it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Progress(Arc<AtomicU64>);

impl Progress {
    fn add(&self, bytes: usize) {
        self.0.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl<T: Send + 'static> Lane<T> {
    /// `write` is also given where to count what it has written.
    pub(crate) fn new(
        queue: usize,
        mut write: impl FnMut(T, &Progress) + Send + 'static,
    ) -> io::Result<Lane<T>> {
        let (sender, mut receiver) = mpsc::channel(queue);
        let (end, ended) = oneshot::channel();
        let progress = Progress::default();
        let count = progress.clone();
        process::start_thread(std::thread::Builder::new().stack_size(128 << 10), move || {
            while let Some(item) = receiver.blocking_recv() {
                write(item, &count);
            }
            // Nobody may be waiting any more.
            _ = end.send(());
        })?;
        Ok(Lane { sender, ended, progress })
    }

    /// How many bytes were written so far.
    pub(crate) fn written(&self) -> u64 {
        self.progress.bytes()
    }

    /// Waits until all is written, for as long as something is written within `patience`, but not beyond the
    /// deadline: a stopped terminal must not keep the job. False if it was not.
    pub(crate) async fn finish(self, patience: Duration, mut deadline: Deadline) -> bool {
        drop(self.sender);
        let mut ended = self.ended;
        loop {
            let before = self.progress.bytes();
            tokio::select! {
                biased;
                _ = &mut ended => return true,
                () = deadline.over() => return false,
                () = clock::sleep_until(clock::now() + patience) => {}
            }
            if self.progress.bytes() == before {
                return false;
            }
        }
    }
}

/// Writes all of it, waiting for as long as it takes; otherwise how much is missing, and why.
pub(crate) fn write_all(
    descriptor: impl AsFd,
    bytes: &[u8],
    progress: &Progress,
) -> Result<(), (usize, io::Error)> {
    let mut written = 0;
    while written < bytes.len() {
        match rustix::io::write(&descriptor, &bytes[written..]) {
            Ok(0) => return Err((bytes.len() - written, io::ErrorKind::WriteZero.into())),
            Ok(count) => {
                written += count;
                progress.add(count);
            }
            Err(Errno::INTR) => {}
            // Somebody who shares it has made it so.
            Err(Errno::AGAIN) => {
                let second = Timespec { tv_sec: 1, tv_nsec: 0 };
                _ = poll(&mut [PollFd::new(&descriptor, PollFlags::OUT)], Some(&second));
            }
            Err(error) => return Err((bytes.len() - written, error.into())),
        }
    }
    Ok(())
}

/// The most that is written to a pipe at once: a write to a full one ends only when all of it is taken, and nothing
/// would tell a reader that takes its time from one that has stopped.
const PIECE: usize = 4096;

/// The same for a terminal or a pipe: a slow reader is seen to read.
pub(crate) fn write_in_pieces(
    descriptor: impl AsFd,
    bytes: &[u8],
    progress: &Progress,
) -> Result<(), (usize, io::Error)> {
    let mut rest = bytes;
    while !rest.is_empty() {
        let (piece, later) = rest.split_at(piece(rest));
        write_all(&descriptor, piece, progress).map_err(|(missing, error)| (missing + later.len(), error))?;
        rest = later;
    }
    Ok(())
}

/// How much is written at once: whole lines, where they fit, since others may write to the same pipe.
fn piece(bytes: &[u8]) -> usize {
    if bytes.len() <= PIECE {
        return bytes.len();
    }
    bytes[..PIECE].iter().rposition(|&byte| byte == b'\n').map_or(PIECE, |end| end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn pieces_are_whole_lines_where_they_can_be() {
        let lines = b"1234567\n".repeat(1000);
        assert_eq!(piece(&lines), 4096);
        assert_eq!(piece(&lines[3..]), 4093);
        assert_eq!(piece(b"a\nb"), 3);
        assert_eq!(piece(&[b'x'; 5000]), 4096);
    }

    #[test]
    fn progress_is_counted_while_a_reader_takes_its_time() {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let lane = Lane::new(1, move |bytes: Vec<u8>, progress: &Progress| {
            _ = write_in_pieces(&writer, &bytes, progress);
        })
        .unwrap();
        // One item, more than the pipe holds: it is not done before the reader has taken some.
        lane.sender.blocking_send(vec![b'x'; 200_000]).unwrap();
        let wait_for = |least: u64| {
            let until = Instant::now() + Duration::from_secs(20);
            while lane.written() < least {
                assert!(Instant::now() < until, "{} of {least}", lane.written());
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        wait_for(61_440);
        let before = lane.written();
        std::io::Read::read_exact(&mut reader, &mut [0; 8192]).unwrap();
        wait_for(before + 4096);
        assert!(lane.written() < 200_000);
        drop(reader);
    }

    #[test]
    fn what_cannot_be_written_is_counted() {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let (missing, error) = write_all(&full, b"hello", &Progress::default()).unwrap_err();
        assert_eq!((missing, error.raw_os_error()), (5, Some(libc::ENOSPC)));
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        assert!(write_all(&writer, b"hello", &Progress::default()).is_ok());
        drop(reader);
        assert!(write_all(&writer, b"hello", &Progress::default()).is_err());
    }

    #[test]
    fn losses_of_a_path_are_added_up_while_nobody_listens() {
        let (mut losses, mut heard) = Losses::new(Arc::default());
        for _ in 0..UNHEARD + 10 {
            losses.tell("a", 2, "full");
        }
        let mut bytes = 0;
        while let Ok(loss) = heard.try_recv() {
            bytes += loss.bytes;
        }
        losses.tell("a", 1, "full");
        assert_eq!(bytes + heard.try_recv().unwrap().bytes, 2 * (UNHEARD as u64 + 10) + 1);
    }
}
