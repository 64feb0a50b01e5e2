//! Meeting through a directory that all members can see.
//!
//! The leader's contact stands in a file of mode 0600 that is created exclusively, so that exactly one
//! agent leads. Its name holds the job and the attempt, so a leftover of an earlier attempt is never
//! even looked at; one of the same name whose leader is gone is replaced, and by one contender alone.
//! A file that belongs to somebody else, or that others could read, is refused.

use super::{Contact, RendezvousError, WayToMeet};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Meeting files are small.
const MAX_FILE: u64 = 64 << 10;
/// A contender that takes longer to replace a leader has died.
const TAKEOVER_LIMIT: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub struct Directory {
    folder: PathBuf,
    file: PathBuf,
    ours: Option<String>,
}

impl Directory {
    /// `job` and `attempt` tell this meeting from others in the same directory.
    pub fn new(folder: &Path, job: Option<&str>, attempt: u32) -> Result<Directory, RendezvousError> {
        let bad = |reason: String| RendezvousError::Directory { path: folder.to_owned(), reason };
        std::fs::create_dir_all(folder).map_err(|error| bad(format!("it cannot be made: {error}")))?;
        let meta = folder.metadata().map_err(|error| bad(error.to_string()))?;
        if !meta.is_dir() {
            return Err(bad("it is not a directory".to_owned()));
        }
        // In a directory that anybody may write to without the sticky bit, our file could be swapped.
        if meta.mode() & 0o1002 == 0o0002 {
            return Err(
                bad("anybody may replace files in it; hint: chmod o-w, or choose another".to_owned()),
            );
        }
        let job: String = job
            .unwrap_or("job")
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' })
            .take(100)
            .collect();
        let file = folder.join(format!("rallypoint-{job}-{attempt}.meet"));
        Ok(Directory { folder: folder.to_owned(), file, ours: None })
    }

    /// Writes a complete file under a name of its own, for an atomic step to its place.
    fn prepare(&self, contact: &Contact) -> Result<PathBuf, RendezvousError> {
        let path = self.folder.join(format!(".rallypoint-{}.tmp", contact.id));
        let mut file = std::fs::File::options().write(true).create_new(true).mode(0o600).open(&path)?;
        let text = serde_json::to_string_pretty(contact).map_err(io::Error::from)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        Ok(path)
    }

    fn takeover_file(&self, gone: &Contact) -> PathBuf {
        let id: String = gone.id.chars().filter(char::is_ascii_alphanumeric).take(64).collect();
        self.folder.join(format!(".rallypoint-takeover-{id}"))
    }
}

impl WayToMeet for Directory {
    fn name(&self) -> String {
        format!("directory {}", self.folder.display())
    }

    fn look(&mut self) -> Result<Option<Contact>, RendezvousError> {
        let refuse = |reason: String, hint| {
            Err(RendezvousError::MeetingFile { path: self.file.clone(), reason, hint })
        };
        // Not through a link: it could point anywhere.
        let file = match std::fs::File::options()
            .read(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(&self.file)
        {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return refuse(
                    "it belongs to somebody else".to_owned(),
                    "choose another --meet directory or --job name",
                );
            }
            Err(error) => return refuse(error.to_string(), "choose another --meet directory or --job name"),
        };
        let meta = file.metadata()?;
        if !meta.is_file() {
            return refuse("it is not a file".to_owned(), "remove it");
        }
        if meta.uid() != rustix::process::geteuid().as_raw() {
            return refuse(
                format!("it belongs to user {}", meta.uid()),
                "choose another --meet directory or --job name",
            );
        }
        if meta.mode() & 0o077 != 0 {
            return refuse(
                format!("others may read it (mode {:o}), and it holds the key", meta.mode() & 0o777),
                "remove it",
            );
        }
        let mut text = String::new();
        file.take(MAX_FILE).read_to_string(&mut text)?;
        match serde_json::from_str::<Contact>(&text) {
            Ok(contact) => Ok(Some(contact)),
            Err(error) => refuse(format!("it is not a meeting file: {error}"), "remove it"),
        }
    }

    fn claim(&mut self, contact: &Contact) -> Result<bool, RendezvousError> {
        let prepared = self.prepare(contact)?;
        // A link appears with all its content at once, and fails if the name is taken, on NFS too.
        let linked = std::fs::hard_link(&prepared, &self.file);
        _ = std::fs::remove_file(&prepared);
        match linked {
            Ok(()) => {
                self.ours = Some(contact.id.clone());
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(RendezvousError::Directory {
                path: self.folder.clone(),
                reason: format!("no meeting file can be made: {error}"),
            }),
        }
    }

    fn replace(&mut self, gone: &Contact, contact: &Contact) -> Result<bool, RendezvousError> {
        let takeover = self.takeover_file(gone);
        match std::fs::File::options().write(true).create_new(true).mode(0o600).open(&takeover) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let age = takeover.metadata().and_then(|meta| meta.modified()).map(|at| at.elapsed());
                if age.is_ok_and(|age| age.is_ok_and(|age| age > TAKEOVER_LIMIT)) {
                    _ = std::fs::remove_file(&takeover);
                }
                return Ok(false);
            }
            Err(error) => return Err(error.into()),
        }
        // Only the holder of the takeover file gets here, so what stands there is still the gone one.
        let still_there = self.look()?.is_some_and(|there| there.id == gone.id);
        if still_there {
            let prepared = self.prepare(contact)?;
            std::fs::rename(&prepared, &self.file)?;
            self.ours = Some(contact.id.clone());
        }
        _ = std::fs::remove_file(&takeover);
        Ok(still_there)
    }

    fn retract(&mut self) {
        let Some(ours) = self.ours.take() else { return };
        if matches!(self.look(), Ok(Some(there)) if there.id == ours) {
            _ = std::fs::remove_file(&self.file);
        }
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        self.retract();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn contact(id: &str) -> Contact {
        Contact {
            version: 1,
            id: id.to_owned(),
            host: "n1".to_owned(),
            machine: "m".to_owned(),
            pid: 1,
            job: None,
            attempt: 0,
            addresses: Vec::new(),
            port: 1,
            key: Some("secret".to_owned()),
        }
    }

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("rallypoint-meet-{name}-{}", std::process::id()));
        _ = std::fs::remove_dir_all(&folder);
        folder
    }

    #[test]
    fn one_claims_and_the_others_find_it() {
        let folder = folder("claim");
        let mut first = Directory::new(&folder, Some("a/b"), 0).unwrap();
        let mut second = Directory::new(&folder, Some("a/b"), 0).unwrap();
        assert_eq!(second.look().unwrap(), None);
        assert!(first.claim(&contact("one")).unwrap());
        assert!(!second.claim(&contact("two")).unwrap());
        assert_eq!(second.look().unwrap().unwrap().id, "one");
        let mut next_attempt = Directory::new(&folder, Some("a/b"), 1).unwrap();
        assert_eq!(next_attempt.look().unwrap(), None, "an earlier attempt is never joined");
        drop(first);
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0, "nothing is left");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_leader_that_is_gone_is_replaced_by_one_alone() {
        let folder = folder("replace");
        let mut dead = Directory::new(&folder, None, 0).unwrap();
        assert!(dead.claim(&contact("dead")).unwrap());
        std::mem::forget(dead);
        let mut a = Directory::new(&folder, None, 0).unwrap();
        let mut b = Directory::new(&folder, None, 0).unwrap();
        let seen = b.look().unwrap().unwrap();
        assert!(a.replace(&seen, &contact("a")).unwrap());
        assert!(!b.replace(&seen, &contact("b")).unwrap(), "what b saw is not there any more");
        assert_eq!(b.look().unwrap().unwrap().id, "a");
        drop((a, b));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn files_that_others_could_read_or_swap_are_refused() {
        let folder = folder("refuse");
        let mut mine = Directory::new(&folder, None, 0).unwrap();
        mine.claim(&contact("x")).unwrap();
        std::fs::set_permissions(&mine.file, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(mine.look().unwrap_err().to_string().contains("others may read it (mode 644)"));
        std::fs::set_permissions(&mine.file, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::write(&mine.file, "nonsense").unwrap();
        assert!(mine.look().unwrap_err().to_string().contains("not a meeting file"));
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o777)).unwrap();
        assert!(Directory::new(&folder, None, 0).unwrap_err().to_string().contains("anybody may replace"));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
