//! `--events FILE`: what happened, a JSON object a line, for other tools.

use crate::outcome::End;
use serde::Serialize;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::time::SystemTime;

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
    Restarted {
        rank: u32,
        role: &'a str,
        index: u32,
    },
    Over {
        code: u8,
    },
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RosterEntry<'a> {
    pub rank: u32,
    pub role: &'a str,
    pub index: u32,
    pub host: &'a str,
    pub address: String,
}

/// The file, if one is wanted.
#[derive(Debug, Default)]
pub struct EventLog {
    file: Option<File>,
}

#[derive(Serialize)]
struct Line<'a> {
    time: f64,
    attempt: u32,
    #[serde(flatten)]
    event: &'a JobEvent<'a>,
}

impl EventLog {
    pub fn create(path: Option<&Path>) -> io::Result<EventLog> {
        let file = path.map(|path| File::options().create(true).append(true).open(path)).transpose()?;
        Ok(EventLog { file })
    }

    /// Appends a line in one write; an event log that cannot be written does not end a job.
    pub fn write(&mut self, attempt: u32, event: &JobEvent<'_>) {
        let Some(file) = &mut self.file else { return };
        let time =
            SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |now| now.as_secs_f64());
        if let Ok(mut line) = serde_json::to_vec(&Line { time, attempt, event }) {
            line.push(b'\n');
            _ = file.write_all(&line);
        }
    }
}
