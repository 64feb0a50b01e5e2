//! `RALLYPOINT_LOG=debug`, or `-v`: every decision with its reason, on stderr.
//!
//! Like everything that is said, lines go through the voice of this process once it has one, and wait for nobody.

use crate::voice;
use rallypoint::variables as var;
use std::io;
use std::sync::Mutex;
use std::sync::mpsc::SyncSender;
use tracing::Level;

/// Where lines go: the voice's queue, if there is one.
static QUEUE: Mutex<Option<SyncSender<String>>> = Mutex::new(None);

/// From now on, what is decided is told, if anybody asked for it.
pub(crate) fn begin(verbose: bool) {
    let level = match std::env::var(var::RALLYPOINT_LOG).ok().as_deref() {
        Some("trace") => Level::TRACE,
        Some("debug") => Level::DEBUG,
        _ if verbose => Level::DEBUG,
        _ => return,
    };
    let told = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_ansi(false)
        .with_timer(tracing_subscriber::fmt::time::uptime())
        .with_writer(|| Line)
        .try_init();
    if let Err(error) = told {
        voice::say_if_heard(&format!("rallypoint: nothing is logged: {error}\n"));
    }
}

/// Whether any decision is to be shown.
pub(crate) fn is_on() -> bool {
    tracing::level_filters::LevelFilter::current() != tracing::level_filters::LevelFilter::OFF
}

/// Lines go to this queue, or, with `None`, wherever they can be taken at once.
pub(crate) fn through(queue: Option<SyncSender<String>>) {
    if let Ok(mut current) = QUEUE.lock() {
        *current = queue;
    }
}

/// One line, in one write.
struct Line;

impl io::Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes).into_owned();
        match QUEUE.lock().ok().and_then(|queue| queue.clone()) {
            // A queue that is full has no room for it.
            Some(queue) => _ = queue.try_send(text),
            None => voice::say_if_heard(&text),
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
