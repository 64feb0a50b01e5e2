//! The submit directory, reached through chirp: a folder to meet in where no file system is shared.

use super::chirp::{Chirp, Session, Status};
use crate::rendezvous::file_system::{FileSystem, Found, MAX_FILE, own_file_name};
use crate::trace::OrLog;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Every look goes to the submit host, and many jobs may share one.
pub(super) const CHIRP_PAUSE: Duration = Duration::from_secs(1);

/// The submit directory, through chirp. Names are relative to it: the submit host works there.
#[derive(Debug)]
pub(crate) struct SubmitDirectory {
    chirp: Chirp,
    /// What it is called there.
    path: PathBuf,
    uid: u32,
    own_file: String,
}

impl SubmitDirectory {
    /// Looks whether files can be made there, and as whom; also the folder's mode. `path` is for people.
    pub(crate) fn new(chirp: Chirp, path: &Path) -> io::Result<(SubmitDirectory, u32)> {
        let mut folder = SubmitDirectory { chirp, path: path.to_owned(), uid: 0, own_file: own_file_name()? };
        let mut session = folder.chirp.connect()?;
        let made = session
            .create(&folder.own_file, b"")
            .map_err(|error| io::Error::new(error.kind(), format!("no file can be made there: {error}")))?;
        session.remove(&folder.own_file)?;
        folder.uid = made.uid;
        let mode = session.status(".")?.mode;
        Ok((folder, mode))
    }

    fn session(&self) -> io::Result<Session> {
        self.chirp.connect()
    }
}

impl FileSystem for SubmitDirectory {
    fn name(&self) -> String {
        format!("submit directory {}, by chirp", self.path.display())
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn own_file(&self) -> &str {
        &self.own_file
    }

    fn own_uid(&self) -> u32 {
        self.uid
    }

    fn read(&mut self, file: &str) -> io::Result<Found> {
        let (content, status) = self.session()?.read(file, MAX_FILE)?;
        Ok(Found {
            is_file: status.is_file(),
            uid: status.uid,
            mode: status.mode,
            text: String::from_utf8_lossy(&content).into_owned(),
        })
    }

    fn create(&mut self, file: &str, content: &[u8]) -> io::Result<()> {
        let created = self.session()?.create(file, content).map(|_| ());
        if created.as_ref().is_err_and(|error| error.kind() != io::ErrorKind::AlreadyExists) {
            self.remove(file).or_log("half a file stays on the submit host");
        }
        created
    }

    fn link(&mut self, from: &str, to: &str) -> io::Result<()> {
        self.session()?.link(from, to)
    }

    fn remove(&mut self, file: &str) -> io::Result<()> {
        self.session()?.remove(file)
    }

    fn pause(&self) -> Duration {
        CHIRP_PAUSE
    }

    fn may_recover(&self, error: &io::Error) -> bool {
        use io::ErrorKind::{AlreadyExists, InvalidData, PermissionDenied};
        !matches!(error.kind(), AlreadyExists | InvalidData | PermissionDenied)
    }

    fn age(&mut self, file: &str) -> io::Result<Duration> {
        // By the submit host's clock, which a new file tells; ours may be another.
        let mut session = self.session()?;
        let then = session.status(file)?;
        let made = session.create(&self.own_file, b"");
        session.remove(&self.own_file).or_log("a probe stays on the submit host");
        Ok(between(then, made?))
    }
}

/// How long one file was written before another.
pub(super) fn between(then: Status, now: Status) -> Duration {
    Duration::from_secs(u64::try_from(now.modified.saturating_sub(then.modified)).unwrap_or(0))
}
