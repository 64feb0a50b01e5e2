//! A directory that all hosts see.

use super::World;
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;
use std::time::Duration;

/// What is asked of it.
#[derive(Debug, Clone)]
pub(crate) enum Request {
    Read(String),
    Create(String, Vec<u8>),
    Link(String, String),
    Remove(String),
    Age(String),
    /// Nothing; some time passes.
    Pause(Duration),
}

/// What it answers.
#[derive(Debug)]
pub(crate) enum Answer {
    Done,
    Text(String),
    Age(Duration),
}

/// A file as it was from a moment on; `None` where there was none.
type Version = (Duration, Option<File>);

#[derive(Debug, Clone)]
struct File {
    text: Rc<str>,
    written: Duration,
}

/// The files with their past, and what is wrong with the server.
#[derive(Debug, Default)]
pub(crate) struct Disk {
    files: BTreeMap<String, Vec<Version>>,
    /// When each host has last changed something: it sees everything before that.
    changed: BTreeMap<usize, Duration>,
    /// How long a request takes at most, in milliseconds.
    pub(crate) slowness: u64,
    /// How far back a look may be, in milliseconds.
    pub(crate) staleness: u64,
    pub(crate) is_full: bool,
    /// How far its clock is ahead.
    pub(crate) ahead: Duration,
}

impl Disk {
    fn newest(&self, name: &str) -> Option<&File> {
        self.files.get(name)?.last()?.1.as_ref()
    }

    fn set(&mut self, name: &str, file: Option<File>, host: usize, now: Duration) {
        self.files.entry(name.to_owned()).or_default().push((now, file));
        self.changed.insert(host, now);
    }

    /// As a host sees it that may not have heard of the last changes.
    fn seen(&self, name: &str, since: Duration) -> Option<&File> {
        let versions = self.files.get(name)?;
        versions.iter().rev().find(|(at, _)| *at <= since)?.1.as_ref()
    }

    /// The names that are there.
    pub(crate) fn names(&self) -> Vec<String> {
        self.files.keys().filter(|name| self.newest(name).is_some()).cloned().collect()
    }
}

impl World {
    /// How long the next request takes.
    pub(crate) fn disk_latency(&self) -> Duration {
        let most = self.disk.borrow().slowness.max(2);
        Duration::from_millis(self.draw(most + 1))
    }

    /// Does it now.
    pub(crate) fn do_on_disk(&self, host: usize, request: &Request) -> io::Result<Answer> {
        let now = self.now();
        let lag = match self.disk.borrow().staleness {
            0 => 0,
            most => self.draw(most + 1),
        };
        let mut disk = self.disk.borrow_mut();
        let not_found = || io::Error::from(io::ErrorKind::NotFound);
        let taken = || io::Error::from(io::ErrorKind::AlreadyExists);
        let full = || io::Error::from_raw_os_error(libc::ENOSPC);
        match request {
            Request::Pause(_) => Ok(Answer::Done),
            Request::Read(name) => {
                let own = disk.changed.get(&host).copied().unwrap_or_default();
                let since = now.saturating_sub(Duration::from_millis(lag)).max(own);
                let file = disk.seen(name, since).ok_or_else(not_found)?;
                Ok(Answer::Text(file.text.to_string()))
            }
            Request::Create(name, content) => {
                if disk.newest(name).is_some() {
                    return Err(taken());
                }
                if disk.is_full {
                    return Err(full());
                }
                let text: Rc<str> = String::from_utf8_lossy(content).into();
                let written = now + disk.ahead;
                disk.set(name, Some(File { text, written }), host, now);
                Ok(Answer::Done)
            }
            Request::Link(from, to) => {
                let file = disk.newest(from).cloned().ok_or_else(not_found)?;
                if disk.newest(to).is_some() {
                    return Err(taken());
                }
                disk.set(to, Some(file), host, now);
                Ok(Answer::Done)
            }
            Request::Remove(name) => {
                disk.newest(name).ok_or_else(not_found)?;
                disk.set(name, None, host, now);
                Ok(Answer::Done)
            }
            Request::Age(name) => {
                let there = disk.newest(name).ok_or_else(not_found)?;
                Ok(Answer::Age((now + disk.ahead).saturating_sub(there.written)))
            }
        }
    }
}
