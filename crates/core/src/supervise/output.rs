//! What members write: whole lines to the terminal, every byte to the log files, with bounded memory.
//!
//! Each stream has a pump in the event loop. Terminal and files have a thread and a bounded queue each,
//! so that a terminal that has stopped holds up nobody who also writes to a file. A full queue makes
//! the pump of a fast writer wait, and that member alone; only where a log file has every byte may
//! lines for the terminal be left out, and then a line says how many.

use super::log_file::{LogFile, Stream};
use super::silence::LastOutput;
use crate::clock::{self, Deadline};
use crate::lane::{self, Lane, Loss, Losses, Progress};
use crate::process::Pipe;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::io::AsyncReadExt;
use tokio::sync::{Notify, mpsc, oneshot};

/// A line longer than this goes out in pieces.
const LONGEST_LINE: usize = 64 << 10;
/// Pieces that may wait for a thread.
const QUEUE: usize = 16;
/// How long streams may stay open after everyone has ended.
const LAST_OUTPUT: Duration = Duration::from_millis(500);
/// How long the threads may take to write what they have: log files, and a terminal that may be stopped.
const LAST_WRITES: Duration = Duration::from_secs(10);
const LAST_LINES: Duration = Duration::from_secs(2);
/// Last lines that are kept of stderr.
const TAIL_LINES: usize = 20;
/// Characters of each.
const TAIL_WIDTH: usize = 400;

/// Where members' output goes.
#[derive(Debug, Clone, Default)]
pub struct OutputStyle {
    /// Show it on the terminal.
    pub terminal: bool,
    /// What stands before each line, a placeholder a part: `[{role} {index}] `; empty for nothing.
    pub prefix: String,
    /// Colour it by the member's rank.
    pub colour: bool,
}

/// The threads that write, and the style.
#[derive(Debug)]
pub(super) struct Output {
    style: OutputStyle,
    terminal: Option<Lane<(Stream, Vec<u8>)>>,
    files: Option<Lane<ToFile>>,
    /// Those that pumps write to.
    logs: Vec<Arc<LogFile>>,
    pumps: Vec<Pumping>,
    /// Told when a pump ends.
    ended: Rc<Notify>,
}

/// How the output ended.
#[derive(Debug)]
pub(super) struct Drained {
    /// All that was to be shown was shown.
    pub(super) shown: bool,
    /// What has not reached the log files in time.
    pub(super) lost: Vec<Loss>,
}

/// A pump, seen from outside.
#[derive(Debug)]
struct Pumping {
    task: tokio::task::JoinHandle<()>,
    waits: Rc<Cell<Waits>>,
}

/// What a pump waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Waits {
    /// The member, or whoever else holds its stream.
    Source,
    Terminal,
    Files,
}

impl Waits {
    /// How long a pump may wait for it at the end while nothing moves.
    fn patience(self) -> Duration {
        match self {
            Waits::Source => LAST_OUTPUT,
            Waits::Terminal => LAST_LINES,
            Waits::Files => LAST_WRITES,
        }
    }
}

/// What one pump waits for at the end, and since when it does so in vain. Pure.
#[derive(Debug, Clone, Copy)]
struct InVain {
    waits: Waits,
    /// How much was written, by then, of what it waits for.
    written: u64,
    since: Instant,
}

impl InVain {
    /// What it is after another look: begun anew where something has moved.
    fn look(before: Option<InVain>, waits: Waits, written: u64, now: Instant) -> InVain {
        match before {
            Some(before) if before.waits == waits && before.written == written => before,
            _ => InVain { waits, written, since: now },
        }
    }

    /// When the pump is given up, if nothing moves.
    fn until(&self) -> Instant {
        self.since + self.waits.patience()
    }
}

/// What a thread has to do with log files.
#[derive(Debug)]
enum ToFile {
    Write(Arc<LogFile>, Vec<u8>),
    /// All that came before is done.
    Done(oneshot::Sender<()>),
}

/// The last lines of one member's stderr.
#[derive(Debug, Default)]
pub(super) struct Tail {
    lines: VecDeque<String>,
}

/// One member's stream, about to be pumped.
pub(super) struct Source {
    pub(super) stream: Stream,
    pub(super) receiver: Pipe,
    pub(super) prefix: Vec<u8>,
    pub(super) file: Option<Arc<LogFile>>,
    pub(super) tail: Option<Rc<RefCell<Tail>>>,
    pub(super) last: LastOutput,
}

impl Output {
    pub(super) fn new(style: OutputStyle, logs: bool, losses: Losses) -> io::Result<Output> {
        let mut told = losses.clone();
        let terminal = match style.terminal {
            true => Some(Lane::new(QUEUE, move |(stream, bytes): (Stream, Vec<u8>), progress| {
                write_terminal(stream, &bytes, progress, &mut told)
            })?),
            false => None,
        };
        let mut told = losses;
        let files = match logs {
            true => Some(Lane::new(QUEUE, move |item, progress| match item {
                ToFile::Write(file, bytes) => {
                    file.write(&bytes, progress, &mut told);
                    file.pending.fetch_sub(bytes.len() as u64, Ordering::Relaxed);
                }
                ToFile::Done(tell) => _ = tell.send(()),
            })?),
            false => None,
        };
        Ok(Output { style, terminal, files, logs: Vec::new(), pumps: Vec::new(), ended: Rc::default() })
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
    pub(super) fn pump(&mut self, source: Source, done: Arc<Notify>, open: Rc<Cell<u32>>) {
        let terminal = self.terminal.as_ref().map(|lane| lane.sender.clone());
        let files = self.files.as_ref().map(|lane| lane.sender.clone());
        let (waits, ended) = (Rc::new(Cell::new(Waits::Source)), self.ended.clone());
        if let Some(file) =
            source.file.as_ref().filter(|file| !self.logs.iter().any(|log| Arc::ptr_eq(log, file)))
        {
            self.logs.push(file.clone());
        }
        open.set(open.get() + 1);
        self.pumps.retain(|pump| !pump.task.is_finished());
        let pump = Pump { source, terminal, files, waits: waits.clone(), buffer: Vec::new(), left_out: 0 };
        let task = tokio::task::spawn_local(async move {
            pump.run().await;
            open.set(open.get() - 1);
            done.notify_one();
            ended.notify_one();
        });
        self.pumps.push(Pumping { task, waits });
    }

    /// Lets the pumps end and the threads write what they have, all of them at the same time.
    ///
    /// Whoever reads slowly has all the time it needs, until the deadline; one that reads nothing has a moment.
    pub(super) async fn finish(mut self, deadline: &Deadline) -> Drained {
        let stuck = self.pumps_end(deadline.clone()).await;
        // What pumps were given up for has had its time.
        let patience = |waits: Waits| if stuck.contains(&waits) { Duration::ZERO } else { waits.patience() };
        let files = async {
            if let Some(lane) = self.files {
                lane.finish(patience(Waits::Files), deadline.clone()).await;
            }
        };
        let terminal = async {
            match self.terminal {
                Some(lane) => lane.finish(patience(Waits::Terminal), deadline.clone()).await,
                None => true,
            }
        };
        let ((), shown) = tokio::join!(files, terminal);
        let shown = shown && !stuck.contains(&Waits::Terminal);
        let lost = self.logs.iter().filter_map(|log| log.unwritten()).collect();
        Drained { shown, lost }
    }

    /// Waits for all pumps together. Those that wait for the terminal or the files may go on while these take
    /// something; the others wait for somebody who holds their stream and has left the job, and are not waited for.
    /// What those that were given up were waiting for.
    async fn pumps_end(&mut self, mut deadline: Deadline) -> Vec<Waits> {
        let written = |waits| match waits {
            Waits::Source => 0,
            Waits::Terminal => self.terminal.as_ref().map_or(0, Lane::written),
            Waits::Files => self.files.as_ref().map_or(0, Lane::written),
        };
        let mut stuck = Vec::new();
        let mut pumps: Vec<(Pumping, Option<InVain>)> =
            self.pumps.drain(..).map(|pump| (pump, None)).collect();
        loop {
            let (now, end) = (clock::now(), deadline.at());
            pumps.retain(|(pump, _)| !pump.task.is_finished());
            let mut next = end;
            let mut given_up = Vec::new();
            for (pump, in_vain) in &mut pumps {
                let waits = pump.waits.get();
                let looked = InVain::look(*in_vain, waits, written(waits), now);
                *in_vain = Some(looked);
                if now >= end.min(looked.until()) {
                    pump.task.abort();
                    stuck.push(waits);
                    given_up.push(&mut pump.task);
                } else {
                    next = next.min(looked.until());
                }
            }
            for task in given_up {
                // It counts what it leaves unread as it goes.
                _ = task.await;
            }
            if pumps.iter().all(|(pump, _)| pump.task.is_finished()) {
                return stuck;
            }
            tokio::select! {
                () = self.ended.notified() => {}
                () = clock::sleep_until(next) => {}
                () = deadline.over() => {}
            }
        }
    }
}

fn write_terminal(stream: Stream, bytes: &[u8], progress: &Progress, losses: &mut Losses) {
    let (name, written) = match stream {
        Stream::Stdout => {
            ("standard output", lane::write_in_pieces(rustix::stdio::stdout(), bytes, progress))
        }
        Stream::Stderr => {
            // Not in the middle of what rallypoint itself says.
            let stderr = io::stderr().lock();
            ("standard error", lane::write_in_pieces(&stderr, bytes, progress))
        }
    };
    match written {
        // A reader that went away has seen enough; closed from the start, nobody wanted it.
        Err((_, error)) if matches!(error.raw_os_error(), Some(libc::EPIPE | libc::EBADF)) => {}
        Err((missing, error)) => losses.tell(name, missing, &error.to_string()),
        Ok(()) => {}
    }
}

struct Pump {
    source: Source,
    terminal: Option<mpsc::Sender<(Stream, Vec<u8>)>>,
    files: Option<mpsc::Sender<ToFile>>,
    waits: Rc<Cell<Waits>>,
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
                Ok(_) => {
                    self.source.last.set(Some(clock::now()));
                    self.take(&chunk).await;
                }
            }
        }
        if !self.buffer.is_empty() {
            let mut rest = std::mem::take(&mut self.buffer);
            rest.push(b'\n');
            self.show(&rest).await;
        }
        // A member has ended when its last words are in its file, or known to be lost.
        if let Some(files) = &self.files {
            let (tell, done) = oneshot::channel();
            self.waits.set(Waits::Files);
            if files.send(ToFile::Done(tell)).await.is_ok() {
                _ = done.await;
            }
        }
    }

    async fn take(&mut self, chunk: &[u8]) {
        if let (Some(files), Some(file)) = (&self.files, &self.source.file) {
            file.pending.fetch_add(chunk.len() as u64, Ordering::Relaxed);
            self.waits.set(Waits::Files);
            _ = files.send(ToFile::Write(file.clone(), chunk.to_vec())).await;
            self.waits.set(Waits::Source);
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
            self.waits.set(Waits::Terminal);
            _ = terminal.send((self.source.stream, prefixed)).await;
            self.waits.set(Waits::Source);
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

impl Drop for Pump {
    /// A pump that is given up leaves unread what is in its pipe.
    fn drop(&mut self) {
        if let Some(file) = &self.source.file {
            let unread = self.source.receiver.unread();
            file.pending.fetch_add(unread, Ordering::Relaxed);
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
    fn a_pump_is_given_up_when_nothing_moves_where_it_waits() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let given_up_at = |looks: &[(Waits, u64, u64)]| {
            let look = |before, &(waits, written, ms): &(Waits, u64, u64)| {
                Some(InVain::look(before, waits, written, at(ms)))
            };
            (looks.iter().fold(None, look).unwrap().until() - start).as_millis()
        };
        use Waits::{Files, Source, Terminal};
        assert_eq!(given_up_at(&[(Source, 0, 0)]), 500, "somebody holds the stream");
        assert_eq!(given_up_at(&[(Source, 0, 0), (Source, 0, 400)]), 500);
        assert_eq!(given_up_at(&[(Terminal, 9, 0), (Terminal, 9, 1900)]), 2000, "nobody reads");
        assert_eq!(given_up_at(&[(Terminal, 9, 0), (Terminal, 10, 1900)]), 3900, "somebody reads slowly");
        assert_eq!(given_up_at(&[(Files, 9, 0), (Files, 9, 9000)]), 10_000, "a file system that hangs");
        assert_eq!(given_up_at(&[(Files, 9, 0), (Files, 10, 9000)]), 19_000, "a slow one");
        assert_eq!(given_up_at(&[(Files, 9, 0), (Source, 0, 9000)]), 9500, "it has written, and reads on");
    }

    #[test]
    fn prefixes_name_the_member() {
        let style = |colour| OutputStyle { terminal: false, prefix: "[{role} {index}] ".to_owned(), colour };
        let plain = Output::new(style(false), false, Losses::new(Arc::default()).0).unwrap();
        assert_eq!(plain.prefix("worker", 1, 2, "n1"), b"[worker 1] ");
        let coloured = Output::new(style(true), false, Losses::new(Arc::default()).0)
            .unwrap()
            .prefix("worker", 1, 2, "n1");
        assert_eq!(coloured, b"\x1b[32m[worker 1] \x1b[0m");
    }
}
