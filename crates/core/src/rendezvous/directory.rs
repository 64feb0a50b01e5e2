//! Meeting through a directory that all members can see, mounted or reached in a scheduler's way.
//!
//! The leader's contact stands in a file of mode 0600 that is created exclusively, so that exactly one
//! agent leads. Its name holds the job and the attempt, so a leftover of an earlier attempt is never
//! even looked at; one of the same name whose leader is gone is replaced, and by one contender alone.
//! A file that belongs to somebody else, or that others could read, is refused.

use super::file_system::{FileSystem, MountedDirectory};
use super::{Contact, ContestedLeader, RendezvousError};
use crate::clock;
use crate::hint;
use crate::hint::{Hint, Setting};
use crate::trace::OrLog;
use std::io;
use std::path::Path;
use std::time::Duration;

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
        let started = clock::real();
        if self.look()?.is_none_or(|there| there.id != gone.id)
            || !self.is_of(takeover, &contact.id)
            || clock::real().saturating_duration_since(started) > TAKEOVER_LIMIT / 2
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
mod tests;
