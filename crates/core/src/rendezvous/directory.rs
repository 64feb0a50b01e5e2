//! Meeting through a directory that all members can see, mounted or reached in a scheduler's way.
//!
//! The leader's contact stands in a file of mode 0600 that is created exclusively, so that exactly one
//! agent leads. Its name holds the job and the attempt, so a leftover of an earlier attempt is never
//! even looked at; one of the same name whose leader is gone is replaced, and by one contender alone.
//! A file that belongs to somebody else, or that others could read, is refused.

use super::file_system::{FileSystem, MountedDirectory};
use super::{Contact, ContestedLeader, RendezvousError};
use crate::hint;
use crate::hint::{Hint, Setting};
use crate::trace::OrLog;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// A contender that takes longer to replace a leader has died.
const TAKEOVER_LIMIT: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct Directory {
    folder: Box<dyn FileSystem>,
    file: String,
    ours: Option<String>,
}

impl Directory {
    /// `job` and `attempt` tell this meeting from others in the same directory.
    pub(crate) fn new(path: &Path, job: Option<&str>, attempt: u32) -> Result<Directory, RendezvousError> {
        let (folder, mode) = MountedDirectory::new(path).map_err(|error| bad(path, error.to_string()))?;
        Directory::in_folder(Box::new(folder), mode, job, attempt)
    }

    /// In a folder that was looked at; its mode.
    pub(crate) fn in_folder(
        folder: Box<dyn FileSystem>,
        mode: u32,
        job: Option<&str>,
        attempt: u32,
    ) -> Result<Directory, RendezvousError> {
        // In a directory that anybody may write to without the sticky bit, our file could be swapped.
        if mode & 0o1002 == 0o0002 {
            return Err(RendezvousError::Directory {
                path: folder.path().to_owned(),
                reason: "anybody may replace files in it".to_owned(),
                hint: Some(hint!("chmod o-w, or choose another")),
            });
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

    fn refuse<T>(&self, reason: String, hint: Hint) -> Result<T, RendezvousError> {
        Err(RendezvousError::MeetingFile { path: self.folder.path().join(&self.file), reason, hint })
    }
}

fn bad(path: &Path, reason: String) -> RendezvousError {
    RendezvousError::Directory { path: path.to_owned(), reason, hint: None }
}

fn another() -> Hint {
    hint!("choose another ", Setting::Meet, " directory or ", Setting::Job, " name")
}

fn remove_it() -> Hint {
    hint!("remove it")
}

fn takeover_file(gone: &Contact) -> String {
    let id: String = gone.id.chars().filter(char::is_ascii_alphanumeric).take(64).collect();
    format!(".rallypoint-takeover-{id}")
}

impl ContestedLeader for Directory {
    fn name(&self) -> String {
        self.folder.name()
    }

    fn longest_pause(&self) -> Duration {
        self.folder.pause()
    }

    fn look(&mut self) -> Result<Option<Contact>, RendezvousError> {
        let found = match self.folder.read(&self.file) {
            Ok(found) => found,
            Err(error) => {
                return match error.kind() {
                    io::ErrorKind::NotFound => Ok(None),
                    _ if self.folder.may_recover(&error) => {
                        Err(RendezvousError::unsteady(&self.folder.name(), &error))
                    }
                    io::ErrorKind::PermissionDenied => {
                        self.refuse("it belongs to somebody else".to_owned(), another())
                    }
                    io::ErrorKind::InvalidData => {
                        self.refuse(format!("it is not a meeting file: {error}"), remove_it())
                    }
                    _ => self.refuse(error.to_string(), another()),
                };
            }
        };
        if !found.is_file {
            return self.refuse("it is not a file".to_owned(), remove_it());
        }
        if found.uid != self.folder.own_uid() {
            return self.refuse(format!("it belongs to user {}", found.uid), another());
        }
        if found.mode & 0o077 != 0 {
            let reason = format!("others may read it (mode {:o}), and it holds the key", found.mode & 0o777);
            return self.refuse(reason, remove_it());
        }
        match serde_json::from_str::<Contact>(&found.text) {
            Ok(contact) => Ok(Some(contact)),
            Err(error) => self.refuse(format!("it is not a meeting file: {error}"), remove_it()),
        }
    }

    fn claim(&mut self, contact: &Contact) -> Result<bool, RendezvousError> {
        let prepared = self.prepare(contact)?;
        // A link appears with all its content at once, and fails if the name is taken, on NFS too.
        let linked = self.folder.link(&prepared, &self.file);
        self.folder.remove(&prepared).or_log("a prepared meeting file stays");
        // Checked before it is removed: an answer may be lost when the file has been made.
        self.ours = Some(contact.id.clone());
        match linked {
            Ok(()) => Ok(true),
            // NFS may ask twice where the first answer was lost, and hear that the name is taken, by itself.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Ok(self.look()?.is_some_and(|there| there.id == contact.id))
            }
            Err(error) => Err(bad(self.folder.path(), format!("no meeting file can be made: {error}"))),
        }
    }

    fn replace(&mut self, gone: &Contact, contact: &Contact) -> Result<bool, RendezvousError> {
        let Some(takeover) = self.take_over(gone, contact)? else { return Ok(false) };
        // Only the holder of the takeover file gets here. It is its own contact, so that renaming it publishes it: one
        // that was so slow that another has removed its file cannot overwrite what that one has published since.
        self.ours = Some(contact.id.clone());
        let renamed = self.rename_takeover(gone, contact, &takeover);
        self.release(&takeover, &contact.id);
        renamed?;
        Ok(self.look()?.is_some_and(|there| there.id == contact.id))
    }

    fn retract_for(&mut self, dead: &Contact) {
        self.ours = Some(dead.id.clone());
        self.retract();
    }

    fn retract(&mut self) {
        let Some(ours) = self.ours.take() else { return };
        let Ok(Some(there)) = self.look() else { return };
        if there.id != ours {
            return;
        }
        // Somebody may be about to replace us, and what stands there then is not ours to remove. Its takeover file says
        // so; while we hold it, nobody replaces anybody. It is our own contact: what is gone already, whoever publishes it.
        let takeover = match self.take_over(&there, &there) {
            // Left behind by one that died, perhaps, and removed now.
            Ok(None) => self.take_over(&there, &there),
            taken => taken,
        };
        let takeover = match takeover {
            Ok(Some(takeover)) => takeover,
            Ok(None) => return,
            // A full directory has no room for it.
            Err(_) => {
                self.folder.remove(&self.file).or_log("the meeting file stays");
                return;
            }
        };
        if matches!(self.look(), Ok(Some(there)) if there.id == ours) {
            self.folder.remove(&self.file).or_log("the meeting file stays");
        }
        self.release(&takeover, &ours);
    }
}

impl Directory {
    /// The file that only one of those has who want to replace `gone`; `None` if another has it.
    fn take_over(&mut self, gone: &Contact, contact: &Contact) -> Result<Option<String>, RendezvousError> {
        let takeover = takeover_file(gone);
        let prepared = self.prepare(contact)?;
        let linked = self.folder.link(&prepared, &takeover);
        self.folder.remove(&prepared).or_log("a prepared meeting file stays");
        match linked {
            Ok(()) => Ok(Some(takeover)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                if self.folder.age(&takeover).is_ok_and(|age| age > TAKEOVER_LIMIT) {
                    self.folder.remove(&takeover).or_log("a takeover file stays");
                }
                Ok(None)
            }
            Err(error) if self.folder.may_recover(&error) => {
                Err(RendezvousError::unsteady(&self.folder.name(), &error))
            }
            Err(error) => Err(bad(self.folder.path(), format!("no leader can be replaced: {error}"))),
        }
    }

    /// Publishes what stands in the takeover file, if the gone one is still published and we were quick.
    fn rename_takeover(
        &mut self,
        gone: &Contact,
        contact: &Contact,
        takeover: &str,
    ) -> Result<(), RendezvousError> {
        let started = Instant::now();
        if self.look()?.is_none_or(|there| there.id != gone.id)
            || !self.is_of(takeover, &contact.id)
            || started.elapsed() > TAKEOVER_LIMIT / 2
        {
            return Ok(());
        }
        match self.folder.rename(takeover, &self.file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(RendezvousError::unsteady(&self.folder.name(), &error))
            }
            // Not found: another has taken it for left behind.
            _ => Ok(()),
        }
    }

    /// Removes a takeover file, if it is this one's.
    fn release(&mut self, takeover: &str, id: &str) {
        if self.is_of(takeover, id) {
            self.folder.remove(takeover).or_log("a takeover file stays");
        }
    }

    /// Whether a file is the contact of this id.
    fn is_of(&mut self, file: &str, id: &str) -> bool {
        let found = self.folder.read(file).ok();
        found
            .and_then(|found| serde_json::from_str::<Contact>(&found.text).ok())
            .is_some_and(|it| it.id == id)
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
    use crate::rendezvous::file_system::Found;
    use std::collections::BTreeMap;
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;
    use std::sync::{Arc, Mutex, MutexGuard};

    fn contact(id: &str) -> Contact {
        Contact {
            version: 1,
            id: id.to_owned(),
            host: "n1".to_owned(),
            machine: "m".to_owned(),
            pid: 1,
            pid_namespace: String::new(),
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

    /// Files of a server with a clock of its own, whose operations can be made to fail.
    #[derive(Debug, Default)]
    struct Server {
        files: BTreeMap<String, (String, Duration)>,
        now: Duration,
        /// Operations until one fails as on a full disk.
        fails_after: Option<usize>,
    }

    #[derive(Debug, Clone, Default)]
    struct Remote(Arc<Mutex<Server>>);

    impl Remote {
        fn server(&self) -> io::Result<MutexGuard<'_, Server>> {
            let mut server = self.0.lock().unwrap();
            match &mut server.fails_after {
                Some(0) => {
                    server.fails_after = None;
                    Err(io::Error::from_raw_os_error(libc::ENOSPC))
                }
                Some(left) => {
                    *left -= 1;
                    Ok(server)
                }
                None => Ok(server),
            }
        }

        fn names(&self) -> Vec<String> {
            self.0.lock().unwrap().files.keys().cloned().collect()
        }

        fn publish(&self, contact: &Contact) {
            let text = serde_json::to_string(contact).unwrap();
            self.0.lock().unwrap().files.insert(self.way().file.clone(), (text, Duration::ZERO));
        }

        fn way(&self) -> Directory {
            Directory::in_folder(Box::new(self.clone()), 0o700, None, 0).unwrap()
        }
    }

    impl FileSystem for Remote {
        fn name(&self) -> String {
            "a server".to_owned()
        }
        fn path(&self) -> &Path {
            Path::new("/server")
        }
        fn own_uid(&self) -> u32 {
            7
        }
        fn read(&mut self, file: &str) -> io::Result<Found> {
            let server = self.server()?;
            let (text, _) = server.files.get(file).ok_or(io::ErrorKind::NotFound)?;
            Ok(Found { is_file: true, uid: 7, mode: 0o600, text: text.clone() })
        }
        fn create(&mut self, file: &str, content: &[u8]) -> io::Result<()> {
            let mut server = self.server()?;
            let entry = (String::from_utf8_lossy(content).into_owned(), server.now);
            match server.files.contains_key(file) {
                true => Err(io::ErrorKind::AlreadyExists.into()),
                false => {
                    server.files.insert(file.to_owned(), entry);
                    Ok(())
                }
            }
        }
        fn link(&mut self, from: &str, to: &str) -> io::Result<()> {
            let mut server = self.server()?;
            let entry = server.files.get(from).ok_or(io::ErrorKind::NotFound)?.clone();
            match server.files.contains_key(to) {
                true => Err(io::ErrorKind::AlreadyExists.into()),
                false => {
                    server.files.insert(to.to_owned(), entry);
                    Ok(())
                }
            }
        }
        fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
            let mut server = self.server()?;
            let entry = server.files.remove(from).ok_or(io::ErrorKind::NotFound)?;
            server.files.insert(to.to_owned(), entry);
            Ok(())
        }
        fn remove(&mut self, file: &str) -> io::Result<()> {
            let mut server = self.0.lock().unwrap();
            server.files.remove(file).map(drop).ok_or(io::ErrorKind::NotFound.into())
        }
        fn age(&mut self, file: &str) -> io::Result<Duration> {
            let server = self.server()?;
            server.files.get(file).map(|(_, then)| server.now - *then).ok_or(io::ErrorKind::NotFound.into())
        }
    }

    /// A contender that was suspended in the middle must not publish itself over the one that has led since.
    #[test]
    fn a_slow_contender_does_not_become_a_second_leader() {
        let remote = Remote::default();
        let gone = contact("gone");
        remote.publish(&gone);
        let (mut slow, mut quick) = (remote.way(), remote.way());
        let takeover = slow.take_over(&gone, &contact("slow")).unwrap().unwrap();
        assert!(!quick.replace(&gone, &contact("quick")).unwrap(), "another is at it");
        remote.0.lock().unwrap().now += TAKEOVER_LIMIT + Duration::from_secs(1);
        assert!(!quick.replace(&gone, &contact("quick")).unwrap(), "left behind: removed");
        assert!(quick.replace(&gone, &contact("quick")).unwrap());
        slow.rename_takeover(&gone, &contact("slow"), &takeover).unwrap();
        assert_eq!(slow.look().unwrap().unwrap().id, "quick");
        assert!(!slow.replace(&gone, &contact("slow")).unwrap());
        drop(slow);
        assert_eq!(quick.look().unwrap().unwrap().id, "quick");
        drop(quick);
        assert!(remote.names().is_empty(), "{:?} is left", remote.names());
    }

    /// A guard that cleans up after its dead agent meets a survivor that replaces it.
    #[test]
    fn what_a_successor_is_about_to_publish_is_not_removed() {
        let remote = Remote::default();
        let gone = contact("gone");
        remote.publish(&gone);
        let (mut guard, mut survivor) = (remote.way(), remote.way());
        let takeover = survivor.take_over(&gone, &contact("survivor")).unwrap().unwrap();
        guard.retract_for(&gone);
        survivor.rename_takeover(&gone, &contact("survivor"), &takeover).unwrap();
        assert_eq!(guard.look().unwrap().unwrap().id, "survivor");
        survivor.retract_for(&contact("survivor"));
        assert!(remote.names().is_empty(), "{:?} is left", remote.names());
    }

    /// Whichever step fails, only what was published before is left.
    #[test]
    fn a_full_directory_keeps_no_temporary_files() {
        let gone = contact("gone");
        for step in 0..12 {
            let remote = Remote::default();
            let mut way = remote.way();
            remote.0.lock().unwrap().fails_after = Some(step);
            if let Err(error) = way.claim(&gone) {
                assert!(error.to_string().contains("No space left on device"), "{error}");
                assert!(remote.names().is_empty(), "claim, step {step}: {:?}", remote.names());
            }
            let remote = Remote::default();
            let mut way = remote.way();
            remote.publish(&gone);
            remote.0.lock().unwrap().fails_after = Some(step);
            let won = way.replace(&gone, &contact("next"));
            let left = remote.names();
            let takeover = left.iter().filter(|name| name.contains("takeover")).count();
            assert!(left.contains(&way.file) && left.len() == 1 + takeover, "step {step}: {left:?}, {won:?}");
            // The one read that tells whose takeover file it is may fail as well: it is removed by its age then.
            assert!(takeover == 0 || won.is_ok(), "step {step}: {left:?}, {won:?}");
        }
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
