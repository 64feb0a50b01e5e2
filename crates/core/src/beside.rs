//! A thread beside the event loop, for a question that may take long: to a file server, to a submit host.

use crate::process;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

/// Does something on a thread of its own; without one, what was to be done is dropped.
pub(crate) fn start(work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    #[cfg(feature = "simulation")]
    let work = match crate::simulated::beside::spawn(work) {
        Ok(started) => return started,
        Err(work) => work,
    };
    process::start_thread(std::thread::Builder::new(), work).map(drop)
}

/// How often one that waits looks up.
const LOOK: Duration = Duration::from_millis(100);

/// Waits until a thread lets go of the other end. A time in which this process was stopped counts as one look: the thread has had
/// none of it.
pub(crate) fn wait(ended: &Receiver<()>, limit: Duration) -> Result<(), RecvTimeoutError> {
    #[cfg(feature = "simulation")]
    if let Some(ended) = crate::simulated::beside::wait(ended, limit) {
        return ended;
    }
    let mut left = limit;
    loop {
        let look = left.min(LOOK);
        match ended.recv_timeout(look) {
            Err(RecvTimeoutError::Timeout) if left > look => left -= look,
            ended => return ended,
        }
    }
}
