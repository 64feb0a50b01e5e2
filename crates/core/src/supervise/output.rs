//! What members write: whole lines to the terminal, every byte to the log files, with bounded memory.
//!
//! Each stream has a pump in the event loop. Terminal and files have a thread and a bounded queue each,
//! so that a terminal that has stopped holds up nobody who also writes to a file. A full queue makes
//! the pump of a fast writer wait, and that member alone; only where a log file has every byte may
//! lines for the terminal be left out, and then a line says how many.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::sync::{Notify, mpsc};

/// A line longer than this goes out in pieces.
const LONGEST_LINE: usize = 64 << 10;
/// Pieces that may wait for a thread.
const QUEUE: usize = 16;
/// How long streams may stay open after everyone has ended.
const LAST_OUTPUT: Duration = Duration::from_millis(500);
/// Last lines that are kept of stderr.
const TAIL_LINES: usize = 20;
/// Characters of each.
const TAIL_WIDTH: usize = 400;

/// One of a member's two streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stream {
    Stdout,
    Stderr,
}

/// Where members' output goes.
#[derive(Debug, Clone, Default)]
pub struct OutputStyle {
    /// Show it on the terminal.
    pub terminal: bool,
    /// What stands before each line, a placeholder a part: `[{role} {index}] `; empty for nothing.
    pub prefix: String,
    pub colour: bool,
}

/// The threads that write, and the style.
#[derive(Debug)]
pub(super) struct Output {
    style: OutputStyle,
    terminal: Option<Lane<(Stream, Vec<u8>)>>,
    files: Option<Lane<(Arc<File>, Vec<u8>)>>,
    pumps: Vec<tokio::task::JoinHandle<()>>,
}

#[derive(Debug)]
struct Lane<T> {
    sender: mpsc::Sender<T>,
    thread: std::thread::JoinHandle<()>,
}

/// The last lines of one member's stderr.
#[derive(Debug, Default)]
pub(super) struct Tail {
    lines: VecDeque<String>,
}

/// One member's stream, about to be pumped.
pub(super) struct Source {
    pub(super) stream: Stream,
    pub(super) receiver: pipe::Receiver,
    pub(super) prefix: Vec<u8>,
    pub(super) file: Option<Arc<File>>,
    pub(super) tail: Option<Rc<RefCell<Tail>>>,
}

impl<T: Send + 'static> Lane<T> {
    fn new(mut write: impl FnMut(T) + Send + 'static) -> io::Result<Lane<T>> {
        let (sender, mut receiver) = mpsc::channel(QUEUE);
        let thread = std::thread::Builder::new().stack_size(128 << 10).spawn(move || {
            while let Some(item) = receiver.blocking_recv() {
                write(item);
            }
        })?;
        Ok(Lane { sender, thread })
    }

    /// Waits until all is written, but not for ever: a stopped terminal must not keep the job.
    fn finish(self, patience: Duration) {
        drop(self.sender);
        let until = std::time::Instant::now() + patience;
        while !self.thread.is_finished() && std::time::Instant::now() < until {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

impl Output {
    pub(super) fn new(style: OutputStyle, logs: bool) -> io::Result<Output> {
        let terminal = if style.terminal { Some(Lane::new(write_terminal)?) } else { None };
        let files = if logs {
            Some(Lane::new(|(file, bytes): (Arc<File>, Vec<u8>)| _ = (&*file).write_all(&bytes))?)
        } else {
            None
        };
        Ok(Output { style, terminal, files, pumps: Vec::new() })
    }

    /// The text before each line of a member, coloured by its rank.
    pub(super) fn prefix(&self, role: &str, index: u32, rank: u32, host: &str) -> Vec<u8> {
        let text = self
            .style
            .prefix
            .replace("{role}", role)
            .replace("{index}", &index.to_string())
            .replace("{rank}", &rank.to_string())
            .replace("{host}", host);
        if !self.style.colour || text.is_empty() {
            return text.into_bytes();
        }
        const COLOURS: [u8; 6] = [36, 33, 32, 35, 34, 31];
        let colour = COLOURS[rank as usize % COLOURS.len()];
        format!("\x1b[{colour}m{text}\x1b[0m").into_bytes()
    }

    /// Pumps a stream until it ends; `done` is told then.
    pub(super) fn pump(&mut self, source: Source, done: Rc<Notify>, open: Rc<std::cell::Cell<u32>>) {
        let terminal = self.terminal.as_ref().map(|lane| lane.sender.clone());
        let files = self.files.as_ref().map(|lane| lane.sender.clone());
        open.set(open.get() + 1);
        self.pumps.retain(|pump| !pump.is_finished());
        let pump = tokio::task::spawn_local(async move {
            Pump { source, terminal, files, buffer: Vec::new(), left_out: 0 }.run().await;
            open.set(open.get() - 1);
            done.notify_one();
        });
        self.pumps.push(pump);
    }

    /// Lets the pumps end and the threads write what they have.
    pub(super) async fn finish(self) {
        let until = tokio::time::Instant::now() + LAST_OUTPUT;
        for mut pump in self.pumps {
            // Whoever still holds a stream has left the job; its pump's sender must not be waited for.
            if tokio::time::timeout_at(until, &mut pump).await.is_err() {
                pump.abort();
                _ = pump.await;
            }
        }
        if let Some(lane) = self.files {
            lane.finish(Duration::from_secs(10));
        }
        if let Some(lane) = self.terminal {
            lane.finish(Duration::from_secs(2));
        }
    }
}

fn write_terminal((stream, bytes): (Stream, Vec<u8>)) {
    // A reader that went away is no reason to stop training.
    _ = match stream {
        Stream::Stdout => {
            let mut stdout = io::stdout().lock();
            stdout.write_all(&bytes).and_then(|()| stdout.flush())
        }
        Stream::Stderr => io::stderr().lock().write_all(&bytes),
    };
}

/// Opens `DIR/attempt-0/worker-1.out`.
pub(super) fn open_log(folder: &Path, name: &str, stream: Stream) -> io::Result<Arc<File>> {
    let ending = match stream {
        Stream::Stdout => "out",
        Stream::Stderr => "err",
    };
    let path = folder.join(format!("{name}.{ending}"));
    File::options().create(true).append(true).open(path).map(Arc::new)
}

struct Pump {
    source: Source,
    terminal: Option<mpsc::Sender<(Stream, Vec<u8>)>>,
    files: Option<mpsc::Sender<(Arc<File>, Vec<u8>)>>,
    /// The beginning of a line whose end has not come.
    buffer: Vec<u8>,
    left_out: usize,
}

impl Pump {
    async fn run(mut self) {
        let mut chunk = Vec::with_capacity(LONGEST_LINE);
        loop {
            chunk.clear();
            match self.source.receiver.read_buf(&mut chunk).await {
                Ok(0) | Err(_) => break,
                Ok(_) => self.take(&chunk).await,
            }
        }
        if !self.buffer.is_empty() {
            let mut rest = std::mem::take(&mut self.buffer);
            rest.push(b'\n');
            self.show(&rest).await;
        }
    }

    async fn take(&mut self, chunk: &[u8]) {
        if let (Some(files), Some(file)) = (&self.files, &self.source.file) {
            _ = files.send((file.clone(), chunk.to_vec())).await;
        }
        if self.terminal.is_none() && self.source.tail.is_none() {
            return;
        }
        let Some(end) = chunk.iter().rposition(|&byte| byte == b'\n') else {
            self.buffer.extend_from_slice(chunk);
            if self.buffer.len() >= LONGEST_LINE {
                let mut piece = std::mem::take(&mut self.buffer);
                piece.push(b'\n');
                self.show(&piece).await;
            }
            return;
        };
        let mut lines = std::mem::take(&mut self.buffer);
        lines.extend_from_slice(&chunk[..=end]);
        self.buffer.extend_from_slice(&chunk[end + 1..]);
        self.show(&lines).await;
    }

    /// Whole lines, each ended by a line end.
    async fn show(&mut self, lines: &[u8]) {
        if let Some(tail) = &self.source.tail {
            tail.borrow_mut().add(lines);
        }
        let Some(terminal) = &self.terminal else { return };
        let prefixed = if self.source.prefix.is_empty() {
            lines.to_vec()
        } else {
            let mut prefixed = Vec::with_capacity(lines.len() + lines.len() / 4 + self.source.prefix.len());
            for line in lines.split_inclusive(|&byte| byte == b'\n') {
                prefixed.extend_from_slice(&self.source.prefix);
                prefixed.extend_from_slice(line);
            }
            prefixed
        };
        if self.source.file.is_none() {
            _ = terminal.send((self.source.stream, prefixed)).await;
            return;
        }
        if self.left_out > 0 {
            let notice = format!("... {} lines are only in the log file\n", self.left_out);
            let notice = [self.source.prefix.as_slice(), notice.as_bytes()].concat();
            if terminal.try_send((self.source.stream, notice)).is_ok() {
                self.left_out = 0;
            }
        }
        let count = lines.iter().filter(|&&byte| byte == b'\n').count();
        if terminal.try_send((self.source.stream, prefixed)).is_err() {
            self.left_out += count;
        }
    }
}

impl Tail {
    fn add(&mut self, lines: &[u8]) {
        // Of a flood only the end can matter.
        let start = lines.len().saturating_sub(TAIL_LINES * TAIL_WIDTH * 4);
        for line in String::from_utf8_lossy(&lines[start..]).lines() {
            if self.lines.len() == TAIL_LINES {
                self.lines.pop_front();
            }
            self.lines.push_back(line.chars().filter(|c| !c.is_control()).take(TAIL_WIDTH).collect());
        }
    }

    pub(super) fn lines(&self) -> Vec<String> {
        self.lines.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_keeps_the_last_lines() {
        let mut tail = Tail::default();
        for number in 0..50 {
            tail.add(format!("line {number}\n\x1b[31mred\x07\n").as_bytes());
        }
        let lines = tail.lines();
        assert_eq!(lines.len(), 20);
        assert_eq!(lines[18..], ["line 49", "[31mred"]);
        tail.add(&vec![b'x'; 1 << 20]);
        assert!(tail.lines().iter().all(|line| line.len() <= TAIL_WIDTH));
    }

    #[test]
    fn prefixes_name_the_member() {
        let style = |colour| OutputStyle { terminal: false, prefix: "[{role} {index}] ".to_owned(), colour };
        let plain = Output::new(style(false), false).unwrap();
        assert_eq!(plain.prefix("worker", 1, 2, "n1"), b"[worker 1] ");
        let coloured = Output::new(style(true), false).unwrap().prefix("worker", 1, 2, "n1");
        assert_eq!(coloured, b"\x1b[32m[worker 1] \x1b[0m");
    }
}
