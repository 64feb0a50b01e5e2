//! `--events FILE`: the stream of events in a file, a JSON object per line, for other tools.

use crate::clock::{self, Deadline};
use crate::event::RunEvent;
use crate::lane::{self, Lane, Losses};
use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// The file, if one is wanted. A thread writes it: a file system that hangs holds up nobody.
#[derive(Debug, Default)]
pub(crate) struct EventLog {
    file: Option<EventFile>,
}

#[derive(Debug)]
struct EventFile {
    lane: Lane<Vec<u8>>,
    path: String,
    losses: Losses,
}

/// Lines that may wait to be written.
const QUEUE: usize = 4096;
/// How long the last lines may take.
const LAST_LINES: Duration = Duration::from_secs(5);

impl EventLog {
    /// What cannot be written is told to `losses`.
    pub(crate) fn create(path: Option<&Path>, losses: &Losses) -> io::Result<EventLog> {
        let Some(path) = path else { return Ok(EventLog::default()) };
        // A named pipe that nobody reads is an error, not a wait.
        let file = File::options().create(true).append(true).custom_flags(libc::O_NONBLOCK).open(path)?;
        let path = path.display().to_string();
        let (of_file, mut in_thread) = (path.clone(), losses.clone());
        let lane = Lane::new(QUEUE, move |line: Vec<u8>, progress| {
            if let Err((missing, error)) = lane::write_all(&file, &line, progress) {
                in_thread.tell(&of_file, missing, &error.to_string());
            }
        })?;
        Ok(EventLog { file: Some(EventFile { lane, path, losses: losses.clone() }) })
    }

    /// Appends a line in one write; an event log that cannot be written does not end a job.
    pub(crate) fn write(&mut self, attempt: u32, event: &RunEvent) {
        let Some(EventFile { lane, path, losses }) = &mut self.file else { return };
        if let Ok(mut line) = event.line(SystemTime::now(), attempt) {
            line.push('\n');
            let length = line.len();
            if lane.sender.try_send(line.into_bytes()).is_err() {
                losses.tell(path, length, "it takes no more");
            }
        }
    }

    /// Lets the last lines be written, until the deadline at the latest.
    pub(crate) async fn finish(self, deadline: Deadline) {
        if let Some(EventFile { lane, path, mut losses }) = self.file
            && clock::timeout(LAST_LINES, lane.finish(LAST_LINES, deadline)).await != Some(true)
        {
            losses.tell(&path, 0, "it takes no more");
        }
    }
}
