//! Meeting through a directory that all members can see: mounted, or the submit host's by chirp.
//!
//! The leader's contact stands in a file of mode 0600 that is created exclusively, so that exactly one
//! agent leads. Its name holds the job and the attempt, so a leftover of an earlier attempt is never
//! even looked at; one of the same name whose leader is gone is replaced, and by one contender alone.
//! A file that belongs to somebody else, or that others could read, is refused.

use super::chirp::Chirp;
use super::folder::{Folder, Mounted, Submitted};
use super::{Contact, RendezvousError, WayToMeet};
use std::io;
use std::path::Path;
use std::time::Duration;

/// A contender that takes longer to replace a leader has died.
const TAKEOVER_LIMIT: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub struct Directory {
    folder: Box<dyn Folder>,
    file: String,
    ours: Option<String>,
}

impl Directory {
    /// `job` and `attempt` tell this meeting from others in the same directory.
    pub fn new(path: &Path, job: Option<&str>, attempt: u32) -> Result<Directory, RendezvousError> {
        let (folder, mode) = Mounted::new(path).map_err(|error| bad(path, error.to_string()))?;
        Directory::in_folder(Box::new(folder), mode, job, attempt)
    }

    /// A directory of HTCondor's submit host.
    pub fn by_chirp(
        chirp: Chirp,
        path: &Path,
        job: Option<&str>,
        attempt: u32,
    ) -> Result<Directory, RendezvousError> {
        let (folder, mode) = Submitted::new(chirp, path).map_err(|error| {
            bad(path, format!("through chirp, {error}; hint: write `+WantIOProxy = true` into the submit description, or give --meet DIR where one is shared"))
        })?;
        Directory::in_folder(Box::new(folder), mode, job, attempt)
    }

    fn in_folder(
        folder: Box<dyn Folder>,
        mode: u32,
        job: Option<&str>,
        attempt: u32,
    ) -> Result<Directory, RendezvousError> {
        // In a directory that anybody may write to without the sticky bit, our file could be swapped.
        if mode & 0o1002 == 0o0002 {
            let reason = "anybody may replace files in it; hint: chmod o-w, or choose another";
            return Err(bad(folder.path(), reason.to_owned()));
        }
        let job: String = job
            .unwrap_or("job")
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' })
            .take(100)
            .collect();
        Ok(Directory { folder, file: format!("rallypoint-{job}-{attempt}.meet"), ours: None })
    }

    /// Writes a complete file under a name of its own, for an atomic step to its place.
    fn prepare(&mut self, contact: &Contact) -> Result<String, RendezvousError> {
        let name = format!(".rallypoint-{}.tmp", contact.id);
        let text = serde_json::to_string_pretty(contact).map_err(io::Error::from)?;
        self.folder
            .create(&name, text.as_bytes())
            .map_err(|error| bad(self.folder.path(), format!("no meeting file can be made: {error}")))?;
        Ok(name)
    }

    fn refuse<T>(&self, reason: String, hint: &'static str) -> Result<T, RendezvousError> {
        Err(RendezvousError::MeetingFile { path: self.folder.path().join(&self.file), reason, hint })
    }
}

fn bad(path: &Path, reason: String) -> RendezvousError {
    RendezvousError::Directory { path: path.to_owned(), reason }
}

fn takeover_file(gone: &Contact) -> String {
    let id: String = gone.id.chars().filter(char::is_ascii_alphanumeric).take(64).collect();
    format!(".rallypoint-takeover-{id}")
}

impl WayToMeet for Directory {
    fn name(&self) -> String {
        self.folder.name()
    }

    fn longest_pause(&self) -> Duration {
        self.folder.pause()
    }

    fn look(&mut self) -> Result<Option<Contact>, RendezvousError> {
        const ANOTHER: &str = "choose another --meet directory or --job name";
        let found = match self.folder.read(&self.file) {
            Ok(found) => found,
            Err(error) => {
                return match error.kind() {
                    io::ErrorKind::NotFound => Ok(None),
                    _ if self.folder.may_recover(&error) => {
                        Err(RendezvousError::unsteady(&self.folder.name(), &error))
                    }
                    io::ErrorKind::PermissionDenied => {
                        self.refuse("it belongs to somebody else".to_owned(), ANOTHER)
                    }
                    io::ErrorKind::InvalidData => {
                        self.refuse(format!("it is not a meeting file: {error}"), "remove it")
                    }
                    _ => self.refuse(error.to_string(), ANOTHER),
                };
            }
        };
        if !found.is_file {
            return self.refuse("it is not a file".to_owned(), "remove it");
        }
        if found.uid != self.folder.own_uid() {
            return self.refuse(format!("it belongs to user {}", found.uid), ANOTHER);
        }
        if found.mode & 0o077 != 0 {
            let reason = format!("others may read it (mode {:o}), and it holds the key", found.mode & 0o777);
            return self.refuse(reason, "remove it");
        }
        match serde_json::from_str::<Contact>(&found.text) {
            Ok(contact) => Ok(Some(contact)),
            Err(error) => self.refuse(format!("it is not a meeting file: {error}"), "remove it"),
        }
    }

    fn claim(&mut self, contact: &Contact) -> Result<bool, RendezvousError> {
        let prepared = self.prepare(contact)?;
        // A link appears with all its content at once, and fails if the name is taken, on NFS too.
        let linked = self.folder.link(&prepared, &self.file);
        _ = self.folder.remove(&prepared);
        match linked {
            Ok(()) => {
                self.ours = Some(contact.id.clone());
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(bad(self.folder.path(), format!("no meeting file can be made: {error}"))),
        }
    }

    fn replace(&mut self, gone: &Contact, contact: &Contact) -> Result<bool, RendezvousError> {
        let takeover = takeover_file(gone);
        match self.folder.create(&takeover, b"") {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                if self.folder.age(&takeover).is_ok_and(|age| age > TAKEOVER_LIMIT) {
                    _ = self.folder.remove(&takeover);
                }
                return Ok(false);
            }
            Err(error) => return Err(error.into()),
        }
        // Only the holder of the takeover file gets here, so what stands there is still the gone one.
        let still_there = self.look()?.is_some_and(|there| there.id == gone.id);
        if still_there {
            let prepared = self.prepare(contact)?;
            self.folder.rename(&prepared, &self.file)?;
            self.ours = Some(contact.id.clone());
        }
        _ = self.folder.remove(&takeover);
        Ok(still_there)
    }

    fn retract(&mut self) {
        let Some(ours) = self.ours.take() else { return };
        if matches!(self.look(), Ok(Some(there)) if there.id == ours) {
            _ = self.folder.remove(&self.file);
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
    use std::path::PathBuf;

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
        let path = folder.join(&mine.file);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(mine.look().unwrap_err().to_string().contains("others may read it (mode 644)"));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::write(&path, "nonsense").unwrap();
        assert!(mine.look().unwrap_err().to_string().contains("not a meeting file"));
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o777)).unwrap();
        assert!(Directory::new(&folder, None, 0).unwrap_err().to_string().contains("anybody may replace"));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
