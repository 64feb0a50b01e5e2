//! A folder in which of many exactly one makes a file of a name: what [`Directory`](super::directory)
//! needs of a file system, whether it is mounted here or reached by chirp.

use super::chirp::{Chirp, Session};
use std::fmt::Debug;
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Every look goes to the submit host, and many jobs may share one.
pub(super) const CHIRP_PAUSE: Duration = Duration::from_secs(1);
/// Meeting files are small.
const MAX_FILE: usize = 64 << 10;

/// A file as it stands there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) is_file: bool,
    pub(super) uid: u32,
    pub(super) mode: u32,
    pub(super) text: String,
}

pub(super) trait Folder: Debug + Send {
    /// What to tell people: `directory /shared/job`.
    fn name(&self) -> String;
    fn path(&self) -> &Path;
    /// Who we are, as files here have it.
    fn own_uid(&self) -> u32;
    /// No link is followed: it could point anywhere.
    fn read(&mut self, file: &str) -> io::Result<Found>;
    /// Makes a file of mode 0600 that did not exist.
    fn create(&mut self, file: &str, content: &[u8]) -> io::Result<()>;
    /// A second name, with all its content at once; fails if it is taken.
    fn link(&mut self, from: &str, to: &str) -> io::Result<()>;
    fn rename(&mut self, from: &str, to: &str) -> io::Result<()>;
    fn remove(&mut self, file: &str) -> io::Result<()>;
    /// How often it may be looked at, at most.
    fn pause(&self) -> Duration {
        Duration::from_millis(100)
    }
    /// Whether the same request may succeed later.
    fn may_recover(&self, _error: &io::Error) -> bool {
        false
    }
    /// How long ago a file was written.
    fn age(&mut self, file: &str) -> io::Result<Duration>;
}

/// A folder that is mounted here.
#[derive(Debug)]
pub(super) struct Mounted(PathBuf);

impl Mounted {
    /// Makes the folder if need be; its mode.
    pub(super) fn new(path: &Path) -> io::Result<(Mounted, u32)> {
        std::fs::create_dir_all(path)
            .map_err(|error| io::Error::new(error.kind(), format!("it cannot be made: {error}")))?;
        let meta = path.metadata()?;
        if !meta.is_dir() {
            return Err(io::Error::other("it is not a directory"));
        }
        Ok((Mounted(path.to_owned()), meta.mode()))
    }
}

impl Folder for Mounted {
    fn name(&self) -> String {
        format!("directory {}", self.0.display())
    }

    fn path(&self) -> &Path {
        &self.0
    }

    fn own_uid(&self) -> u32 {
        rustix::process::geteuid().as_raw()
    }

    fn read(&mut self, file: &str) -> io::Result<Found> {
        let file = std::fs::File::options()
            .read(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(self.0.join(file))?;
        let meta = file.metadata()?;
        let mut text = String::new();
        if meta.is_file() {
            file.take(MAX_FILE as u64).read_to_string(&mut text)?;
        }
        Ok(Found { is_file: meta.is_file(), uid: meta.uid(), mode: meta.mode(), text })
    }

    fn create(&mut self, file: &str, content: &[u8]) -> io::Result<()> {
        let path = self.0.join(file);
        let mut file = std::fs::File::options().write(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(content)?;
        file.sync_all()
    }

    fn link(&mut self, from: &str, to: &str) -> io::Result<()> {
        std::fs::hard_link(self.0.join(from), self.0.join(to))
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        std::fs::rename(self.0.join(from), self.0.join(to))
    }

    fn remove(&mut self, file: &str) -> io::Result<()> {
        std::fs::remove_file(self.0.join(file))
    }

    fn age(&mut self, file: &str) -> io::Result<Duration> {
        let modified = self.0.join(file).metadata()?.modified()?;
        modified.elapsed().map_err(io::Error::other)
    }
}

/// The submit directory, through chirp. Names are relative to it: the submit host works there.
#[derive(Debug)]
pub(super) struct Submitted {
    chirp: Chirp,
    /// What it is called there.
    path: PathBuf,
    uid: u32,
    /// Tells this process's probes from another's.
    probe: String,
}

impl Submitted {
    /// Looks whether files can be made there, and as whom; also the folder's mode. `path` is for people.
    pub(super) fn new(chirp: Chirp, path: &Path) -> io::Result<(Submitted, u32)> {
        let random = super::key::random_bytes().map_err(io::Error::other)?;
        let digits: String = random[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        let mut folder =
            Submitted { chirp, path: path.to_owned(), uid: 0, probe: format!(".rallypoint-{digits}.tmp") };
        let mut session = folder.chirp.connect()?;
        let made = session
            .create(&folder.probe, b"")
            .map_err(|error| io::Error::new(error.kind(), format!("no file can be made there: {error}")))?;
        session.remove(&folder.probe)?;
        folder.uid = made.uid;
        let mode = session.status(".")?.mode;
        Ok((folder, mode))
    }

    fn session(&self) -> io::Result<Session> {
        self.chirp.connect()
    }
}

impl Folder for Submitted {
    fn name(&self) -> String {
        format!("submit directory {}, by chirp", self.path.display())
    }

    fn path(&self) -> &Path {
        &self.path
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
        self.session()?.create(file, content).map(|_| ())
    }

    fn link(&mut self, from: &str, to: &str) -> io::Result<()> {
        self.session()?.link(from, to)
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        self.session()?.rename(from, to)
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
        let then = session.status(file)?.modified;
        let now = session.create(&self.probe, b"")?.modified;
        session.remove(&self.probe)?;
        Ok(Duration::from_secs(u64::try_from(now - then).unwrap_or(0)))
    }
}
