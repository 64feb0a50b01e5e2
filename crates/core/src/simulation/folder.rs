//! The meeting directory, as agents see it: each request is an answer of the simulated disk.

use crate::rendezvous::file_system::{FileSystem, Found};
use crate::simulated::beside::ask;
use crate::simulated::disk::{Answer, Request};
use std::io;
use std::path::Path;
use std::time::Duration;

/// As one agent sees it, and its guard.
#[derive(Debug)]
pub(super) struct Folder {
    pub(super) own_file: String,
}

fn done(request: Request) -> io::Result<()> {
    ask(request).map(drop)
}

impl FileSystem for Folder {
    fn name(&self) -> String {
        "directory /simulated".to_owned()
    }

    fn path(&self) -> &Path {
        Path::new("/simulated")
    }

    fn own_file(&self) -> &str {
        &self.own_file
    }

    fn own_uid(&self) -> u32 {
        1000
    }

    fn read(&mut self, file: &str) -> io::Result<Found> {
        match ask(Request::Read(file.to_owned()))? {
            Answer::Text(text) => Ok(Found { is_file: true, uid: 1000, mode: 0o100_600, text }),
            other => Err(io::Error::other(format!("{other:?}"))),
        }
    }

    fn create(&mut self, file: &str, content: &[u8]) -> io::Result<()> {
        done(Request::Create(file.to_owned(), content.to_vec()))
    }

    fn link(&mut self, from: &str, to: &str) -> io::Result<()> {
        done(Request::Link(from.to_owned(), to.to_owned()))
    }

    fn remove(&mut self, file: &str) -> io::Result<()> {
        done(Request::Remove(file.to_owned()))
    }

    fn age(&mut self, file: &str) -> io::Result<Duration> {
        match ask(Request::Age(file.to_owned()))? {
            Answer::Age(age) => Ok(age),
            other => Err(io::Error::other(format!("{other:?}"))),
        }
    }
}
