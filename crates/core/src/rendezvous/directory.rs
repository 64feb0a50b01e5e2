//! Meeting through a directory that all members can see, mounted or reached in a scheduler's way.
//!
//! The leader's contact stands in a file of mode 0600 that is created exclusively, so that exactly one
//! agent leads. Its name holds the job and the attempt, so a leftover of an earlier attempt is never
//! even looked at. A file that belongs to somebody else, or that others could read, is refused.
//!
//! A leader that is gone is replaced by a file beside it, the takeover file, whose name is the gone one's id. Whoever makes
//! it, exclusively too, is the next in a chain, and the last in the chain leads:
//!
//! ```text
//! rallypoint-12-0.meet              A, which is gone
//! .rallypoint-takeover-<A's id>     B, which is gone
//! .rallypoint-takeover-<B's id>     C leads
//! ```
//!
//! Ids are random, so no name comes back, and one that was held up for however long can only make a file behind the one that it
//! has found gone. `crates/model` checks it. The one name that does come back is the meeting file's: it is removed by whoever has
//! closed the chain, by a takeover file of nobody, and the takeover files only behind it.

use super::file_system::{FileSystem, MountedDirectory};
use super::{Contact, ContestedLeader, RendezvousError};
use crate::hint;
use crate::hint::{Hint, Setting};
use crate::trace::OrLog;
use std::io;
use std::path::Path;
use std::time::Duration;

/// One that takes longer to take back its publication has died.
const CLOSED_LIMIT: Duration = Duration::from_secs(60);
/// More leaders were never lost in one meeting.
const LONGEST_CHAIN: usize = 10_000;

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
        let name = self.folder.own_file().to_owned();
        let text = serde_json::to_string_pretty(contact).map_err(io::Error::from)?;
        let created = match self.folder.create(&name, text.as_bytes()) {
            // What could not be removed the last time.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                self.folder.remove(&name).and_then(|()| self.folder.create(&name, text.as_bytes()))
            }
            created => created,
        };
        created.map_err(|error| bad(self.folder.path(), format!("no meeting file can be made: {error}")))?;
        Ok(name)
    }

    /// Removes what was to get another name when its maker was killed: it may hold the key.
    fn remove_prepared(&mut self) {
        let name = self.folder.own_file().to_owned();
        match self.folder.remove(&name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            removed => {
                removed.or_log("a prepared meeting file stays");
            }
        }
    }

    /// Makes a file with all its content at once; false if there is one of another.
    fn make(&mut self, contact: &Contact, file: &str) -> Result<bool, RendezvousError> {
        let prepared = self.prepare(contact)?;
        // A link appears with all its content at once, and fails if the name is taken, on NFS too.
        let linked = self.folder.link(&prepared, file);
        self.folder.remove(&prepared).or_log("a prepared meeting file stays");
        match linked {
            Ok(()) => Ok(true),
            // NFS may ask twice where the first answer was lost, and hear that the name is taken, by itself.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Ok(self.read(file)?.is_some_and(|there| there.id == contact.id))
            }
            Err(error) if self.folder.may_recover(&error) => {
                Err(RendezvousError::unsteady(&self.folder.name(), &error))
            }
            Err(error) => Err(bad(self.folder.path(), format!("no meeting file can be made: {error}"))),
        }
    }

    /// Who stands in a file, if it is there.
    fn read(&mut self, file: &str) -> Result<Option<Contact>, RendezvousError> {
        let path = self.folder.path().join(file);
        let refuse = |reason: String, hint: Hint| Err(RendezvousError::MeetingFile { path, reason, hint });
        let found = match self.folder.read(file) {
            Ok(found) => found,
            Err(error) => {
                return match error.kind() {
                    io::ErrorKind::NotFound => Ok(None),
                    _ if self.folder.may_recover(&error) => {
                        Err(RendezvousError::unsteady(&self.folder.name(), &error))
                    }
                    io::ErrorKind::PermissionDenied => {
                        refuse("it belongs to somebody else".to_owned(), another())
                    }
                    io::ErrorKind::InvalidData => {
                        refuse(format!("it is not a meeting file: {error}"), remove_it())
                    }
                    _ => refuse(error.to_string(), another()),
                };
            }
        };
        if !found.is_file {
            return refuse("it is not a file".to_owned(), remove_it());
        }
        if found.uid != self.folder.own_uid() {
            return refuse(format!("it belongs to user {}", found.uid), another());
        }
        if found.mode & 0o077 != 0 {
            let reason = format!("others may read it (mode {:o}), and it holds the key", found.mode & 0o777);
            return refuse(reason, remove_it());
        }
        match serde_json::from_str::<Contact>(&found.text) {
            Ok(contact) => Ok(Some(contact)),
            Err(error) => refuse(format!("it is not a meeting file: {error}"), remove_it()),
        }
    }

    /// The meeting file and the takeover files behind it: the last one leads.
    fn chain(&mut self) -> Result<Vec<Contact>, RendezvousError> {
        let (mut chain, mut file) = (Vec::new(), self.file.clone());
        while let Some(contact) = self.read(&file)? {
            if chain.len() == LONGEST_CHAIN {
                let (path, reason) = (self.folder.path().join(&file), "it leads in a circle".to_owned());
                return Err(RendezvousError::MeetingFile { path, reason, hint: remove_it() });
            }
            file = takeover_file(&contact);
            chain.push(contact);
        }
        Ok(chain)
    }

    /// Takes back a publication, if it is the last in the chain. Nobody has replaced it then, and nobody can once its own
    /// takeover file is there, which says that the chain is closed.
    fn take_back(&mut self, is_ours: impl Fn(&Contact) -> bool) -> Result<(), RendezvousError> {
        let mut chain = self.chain()?;
        if !chain.last().is_some_and(is_ours) {
            return Ok(());
        }
        // It may have died when it had closed the chain already.
        chain.pop_if(|last| last.is_closed());
        let Some(last) = chain.last() else { return Ok(()) };
        let closing = closing(last);
        let takeover = takeover_file(last);
        match self.make(&closing, &takeover).or_else(|_| self.make(&closing, &takeover)) {
            Ok(true) => {}
            // A successor: what is there is its own to remove.
            Ok(false) => return Ok(()),
            // A full directory has no room for it, nor for a successor's.
            Err(_) => return self.remove_all(&chain),
        }
        // Behind our own change, so it is no earlier state that we see.
        let now = self.chain().or_else(|_| self.chain())?;
        match now.iter().position(|it| it.id == closing.id) {
            Some(at) if at + 1 == now.len() => self.remove_all(&chain),
            // We were so slow that another has taken us for dead, and goes on behind us.
            Some(_) => Ok(()),
            // Somebody else has removed the chain, before our file was there.
            None => {
                self.folder.remove(&takeover).or_log("a takeover file stays");
                Ok(())
            }
        }
    }

    /// First the meeting file: while it stands there, nobody may make any of the others a second time.
    fn remove_all(&mut self, chain: &[Contact]) -> Result<(), RendezvousError> {
        match self.folder.remove(&self.file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(RendezvousError::unsteady(&self.folder.name(), &error));
            }
            _ => {}
        }
        for contact in chain {
            self.folder.remove(&takeover_file(contact)).or_log("there is no takeover file, or it stays");
        }
        Ok(())
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

/// What closes a chain: nobody listens there.
fn closing(last: &Contact) -> Contact {
    Contact { id: format!("{}closed", last.id), port: 0, addresses: Vec::new(), key: None, ..last.clone() }
}

impl ContestedLeader for Directory {
    fn name(&self) -> String {
        self.folder.name()
    }

    fn longest_pause(&self) -> Duration {
        self.folder.pause()
    }

    fn look(&mut self) -> Result<Option<Contact>, RendezvousError> {
        let mut chain = self.chain()?;
        let Some(last) = chain.pop() else { return Ok(None) };
        match chain.last() {
            // The place is free in a moment, unless whoever frees it has died.
            Some(gone) if last.is_closed() => {
                let age = self.folder.age(&takeover_file(gone));
                Ok(Some(last).filter(|_| age.is_ok_and(|age| age > CLOSED_LIMIT)))
            }
            _ => Ok(Some(last)),
        }
    }

    fn claim(&mut self, contact: &Contact) -> Result<bool, RendezvousError> {
        // Looked for at the end, even if no answer came: the file may have been made.
        self.ours = Some(contact.id.clone());
        let file = self.file.clone();
        self.make(contact, &file)
    }

    fn replace(&mut self, gone: &Contact, contact: &Contact) -> Result<bool, RendezvousError> {
        self.ours = Some(contact.id.clone());
        let takeover = takeover_file(gone);
        if !self.make(contact, &takeover)? {
            return Ok(false);
        }
        // The whole chain may have been removed before our file was there. If it has not been by now, it will not be without us.
        let chain = self.chain().or_else(|_| self.chain())?;
        match chain.iter().position(|it| it.id == contact.id) {
            Some(at) => Ok(at + 1 == chain.len()),
            None => {
                self.folder.remove(&takeover).or_log("a takeover file stays");
                Ok(false)
            }
        }
    }

    fn clean_up_after(&mut self, pid: u32) {
        self.remove_prepared();
        self.take_back(|last| last.is_of(pid)).or_log("the meeting file stays");
    }

    fn retract(&mut self) {
        if let Some(ours) = self.ours.take() {
            self.take_back(|last| last.id == ours).or_log("the meeting file stays");
        }
    }

    fn has_published(&self) -> bool {
        self.ours.is_some()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        self.retract();
    }
}

#[cfg(test)]
mod tests;
