//! `--events FILE`: what happened, a JSON object per line, for other tools.

use crate::clock::{self, Deadline};
use crate::lane::{self, Lane, Losses};
use crate::outcome::End;
use serde::Serialize;
use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// One line of the file. `docs/reference/events.md` describes them.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum JobEvent<'a> {
    /// All members have come.
    Gathered {
        world: u32,
        seconds: f64,
    },
    /// Everyone's address.
    Roster {
        members: Vec<RosterEntry<'a>>,
    },
    Started {
        rank: u32,
        role: &'a str,
        index: u32,
        host: &'a str,
        pid: u32,
        /// It is a server without Python.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        served: bool,
    },
    /// A member listens on its port.
    Listening {
        rank: u32,
        role: &'a str,
        index: u32,
    },
    Finished {
        rank: u32,
        role: &'a str,
        index: u32,
        seconds: f64,
        peak_kib: u64,
    },
    Failed {
        rank: u32,
        role: &'a str,
        index: u32,
        end: &'a End,
        code: u8,
        seconds: f64,
        peak_kib: u64,
    },
    /// Ended because rallypoint asked it to.
    Stopped {
        rank: u32,
        role: &'a str,
        index: u32,
        end: &'a End,
        seconds: f64,
        peak_kib: u64,
    },
    /// Bytes that were to be written are lost.
    OutputLost {
        path: &'a str,
        bytes: u64,
        why: &'a str,
    },
    Restarted {
        rank: u32,
        role: &'a str,
        index: u32,
    },
    Over {
        code: u8,
        /// Whose code it is: a member's own, or one of rallypoint's.
        #[serde(rename = "from")]
        source: CodeSource,
    },
}

/// Whose exit code the job's is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CodeSource {
    Member,
    Rallypoint,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RosterEntry<'a> {
    pub rank: u32,
    pub role: &'a str,
    pub index: u32,
    pub host: &'a str,
    pub address: String,
}

/// The file, if one is wanted. A thread writes it: a file system that hangs holds up nobody.
#[derive(Debug, Default)]
pub struct EventLog {
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

#[derive(Serialize)]
struct Line<'a> {
    time: f64,
    attempt: u32,
    #[serde(flatten)]
    event: &'a JobEvent<'a>,
}

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
    pub fn write(&mut self, attempt: u32, event: &JobEvent<'_>) {
        let Some(EventFile { lane, path, losses }) = &mut self.file else { return };
        let time =
            SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |now| now.as_secs_f64());
        if let Ok(mut line) = serde_json::to_vec(&Line { time, attempt, event }) {
            line.push(b'\n');
            let length = line.len();
            if lane.sender.try_send(line).is_err() {
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
