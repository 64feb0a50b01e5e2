//! Meeting the one who started us: the launcher of a step leads, and says so on our standard input.
//!
//! `srun` hands its own standard input on to all tasks, so a line written to it reaches every one of them
//! and nobody else: no command line, no variable, no file has the key.

use super::{Contact, KnownLeader, RendezvousError};
use crate::process;
use std::io::Read;
use std::time::{Duration, Instant};

/// A contact has a few hundred bytes.
const MAX_LINE: usize = 64 << 10;

/// The launcher, as it has told of itself on our standard input.
#[derive(Debug)]
pub struct Launched {
    contact: Contact,
}

impl Launched {
    /// Reads the launcher's line from standard input.
    pub fn from_stdin(limit: Duration) -> Result<Launched, RendezvousError> {
        let stdin = std::io::stdin();
        let until = Instant::now() + limit;
        let mut line = Vec::new();
        let mut byte = [0; 4096];
        while !line.contains(&b'\n') {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(bad(format!("nothing came within {} s", limit.as_secs())));
            }
            if !process::is_readable_within(&stdin, left.min(Duration::from_secs(1)))? {
                continue;
            }
            match stdin.lock().read(&mut byte)? {
                0 => return Err(bad("it ended before the launcher's line".to_owned())),
                count => line.extend_from_slice(&byte[..count]),
            }
            if line.len() > MAX_LINE {
                return Err(bad(format!("more than {MAX_LINE} bytes came without an end of line")));
            }
        }
        Launched::parse(&String::from_utf8_lossy(&line))
    }

    pub(super) fn parse(text: &str) -> Result<Launched, RendezvousError> {
        let line = text.lines().next().unwrap_or_default();
        let contact = serde_json::from_str(line)
            .map_err(|error| bad(format!("its line is not a launcher's: {error}")))?;
        Ok(Launched { contact })
    }

    /// The job's name, as the launcher calls it.
    pub fn job(&self) -> Option<String> {
        self.contact.job.clone()
    }
}

impl Contact {
    /// What a launcher writes to its step's standard input.
    pub(crate) fn line(&self) -> Result<String, RendezvousError> {
        Ok(serde_json::to_string(self).map_err(std::io::Error::from)? + "\n")
    }
}

fn bad(reason: String) -> RendezvousError {
    RendezvousError::Launched { reason }
}

impl KnownLeader for Launched {
    fn name(&self) -> String {
        format!("the launcher, pid {} on {}", self.contact.pid, self.contact.host)
    }

    fn leads(&self) -> bool {
        false
    }

    fn awaited(&self) -> String {
        "the launcher".to_owned()
    }

    fn look(&mut self) -> Result<Option<Contact>, RendezvousError> {
        Ok(Some(self.contact.clone()))
    }

    fn publish(&mut self, _: &Contact) -> Result<(), RendezvousError> {
        Err(RendezvousError::Unreachable { reason: "the launcher alone leads".to_owned() })
    }

    fn may_block(&self) -> bool {
        false
    }
}
