//! A folder in which exactly one of many makes a file of a name: what [`Directory`](super::directory)
//! needs of a file system, whether it is mounted here or reached in a scheduler's way.

use crate::trace::OrLog;
use std::fmt::Debug;
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Meeting files are small.
pub(crate) const MAX_FILE: usize = 64 << 10;

/// A file as it stands there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) is_file: bool,
    pub(crate) uid: u32,
    pub(crate) mode: u32,
    pub(crate) text: String,
}

pub(crate) trait FileSystem: Debug + Send {
    /// What to tell people: `directory /shared/job`.
    fn name(&self) -> String;
    fn path(&self) -> &Path;
    /// A name that nobody else uses, for what stands there for a moment only. One that was forked has it too, so that it can remove
    /// what its child was killed over.
    fn own_file(&self) -> &str;
    /// Who we are, as files here have it.
    fn own_uid(&self) -> u32;
    /// No link is followed: it could point anywhere.
    fn read(&mut self, file: &str) -> io::Result<Found>;
    /// Makes a file of mode 0600 that did not exist; one that could not be written whole is removed again.
    fn create(&mut self, file: &str, content: &[u8]) -> io::Result<()>;
    /// A second name, with all its content at once; fails if it is taken.
    fn link(&mut self, from: &str, to: &str) -> io::Result<()>;
    fn remove(&mut self, file: &str) -> io::Result<()>;
    /// How often it may be looked at, at most.
    fn pause(&self) -> Duration {
        Duration::from_millis(100)
    }
    /// Whether the same request may succeed later.
    fn may_recover(&self, _error: &io::Error) -> bool {
        false
    }
    /// How long ago a file was written, by the file system's own clock: ours may be another.
    fn age(&mut self, file: &str) -> io::Result<Duration>;
}

/// A folder that is mounted here.
#[derive(Debug)]
pub(crate) struct MountedDirectory {
    path: PathBuf,
    own_file: String,
}

/// A name that nobody else uses.
pub(crate) fn own_file_name() -> io::Result<String> {
    let random = super::key::random_bytes().map_err(io::Error::other)?;
    let digits: String = random[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!(".rallypoint-{digits}.tmp"))
}

impl MountedDirectory {
    /// Makes the folder if need be; its mode.
    pub(crate) fn new(path: &Path) -> io::Result<(MountedDirectory, u32)> {
        std::fs::create_dir_all(path)
            .map_err(|error| io::Error::new(error.kind(), format!("it cannot be made: {error}")))?;
        let meta = path.metadata()?;
        if !meta.is_dir() {
            return Err(io::Error::other("it is not a directory"));
        }
        Ok((MountedDirectory { path: path.to_owned(), own_file: own_file_name()? }, meta.mode()))
    }
}

impl FileSystem for MountedDirectory {
    fn name(&self) -> String {
        format!("directory {}", self.path.display())
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn own_file(&self) -> &str {
        &self.own_file
    }

    fn own_uid(&self) -> u32 {
        rustix::process::geteuid().as_raw()
    }

    fn read(&mut self, file: &str) -> io::Result<Found> {
        let file = std::fs::File::options()
            .read(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(self.path.join(file))?;
        let meta = file.metadata()?;
        let mut text = String::new();
        if meta.is_file() {
            file.take(MAX_FILE as u64).read_to_string(&mut text)?;
        }
        Ok(Found { is_file: meta.is_file(), uid: meta.uid(), mode: meta.mode(), text })
    }

    fn create(&mut self, file: &str, content: &[u8]) -> io::Result<()> {
        let path = self.path.join(file);
        let mut file = std::fs::File::options().write(true).create_new(true).mode(0o600).open(&path)?;
        let written = file.write_all(content).and_then(|()| file.sync_all());
        if written.is_err() {
            std::fs::remove_file(&path).or_log("half a file stays");
        }
        written
    }

    fn link(&mut self, from: &str, to: &str) -> io::Result<()> {
        std::fs::hard_link(self.path.join(from), self.path.join(to))
    }

    fn remove(&mut self, file: &str) -> io::Result<()> {
        std::fs::remove_file(self.path.join(file))
    }

    fn age(&mut self, file: &str) -> io::Result<Duration> {
        let then = self.path.join(file).symlink_metadata()?.modified()?;
        let probe = self.path.join(&self.own_file);
        let made = std::fs::File::options().write(true).create_new(true).mode(0o600).open(&probe)?;
        let now = made.metadata().and_then(|meta| meta.modified());
        std::fs::remove_file(&probe).or_log("a probe of the file system's clock stays");
        // What was written after the probe is new.
        Ok(now?.duration_since(then).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::SystemTime;

    /// A server that is ahead of us, or behind: only what it says of its own files counts.
    #[test]
    fn the_age_of_a_file_is_told_by_its_file_system() {
        let path = std::env::temp_dir().join(format!("rallypoint-age-{}", std::process::id()));
        _ = std::fs::remove_dir_all(&path);
        let (mut folder, _) = MountedDirectory::new(&path).unwrap();
        folder.create("file", b"").unwrap();
        assert!(folder.age("file").unwrap() < Duration::from_secs(60));
        let file = std::fs::File::options().write(true).open(path.join("file")).unwrap();
        let hour = Duration::from_secs(3600);
        file.set_modified(SystemTime::now() + hour).unwrap();
        assert_eq!(folder.age("file").unwrap(), Duration::ZERO, "ahead of us");
        file.set_modified(SystemTime::now() - hour).unwrap();
        assert!(folder.age("file").unwrap() >= Duration::from_secs(3599));
        assert_eq!(std::fs::read_dir(&path).unwrap().count(), 1, "no probe is left");
        std::fs::remove_dir_all(&path).unwrap();
    }
}
