//! The directory: the meeting files, the takeover files, and the steps of those that publish themselves.
//!
//! One step of the model is one request to the file system, so that all others can come between two of them. Temporary
//! files (`Directory::prepare`) have a name of their own that nobody else looks at: they are left out.

use crate::{Id, Meeting, Variant};

/// What stands in the directory.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Files {
    /// The meeting file of each attempt: who is published there.
    pub meeting: [Option<Id>; 2],
    /// What stood there before the last change: what a stale read sees.
    pub before: [Option<Id>; 2],
    /// The takeover files, by the leader that is to be replaced.
    pub takeovers: Vec<Takeover>,
}

/// A takeover file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Takeover {
    /// The leader that is gone, which gives the file its name.
    pub gone: Id,
    /// Whose contact it is.
    pub holder: Id,
    /// It is older than `TAKEOVER_LIMIT`.
    pub old: bool,
}

impl Files {
    /// Reads a meeting file; a stale read sees what stood there before.
    pub fn look(&self, name: usize, stale: bool) -> Option<Id> {
        if stale { self.before[name] } else { self.meeting[name] }
    }

    /// Writes or removes a meeting file.
    pub fn put(&mut self, name: usize, content: Option<Id>) {
        self.before[name] = self.meeting[name];
        self.meeting[name] = content;
    }

    /// The takeover file of a leader that is gone.
    pub fn takeover(&self, gone: Id) -> Option<Takeover> {
        self.takeovers.iter().find(|file| file.gone == gone).copied()
    }

    /// Makes a takeover file; false if there is one. `Directory::take_over`.
    pub fn take(&mut self, gone: Id, holder: Id) -> bool {
        if self.takeover(gone).is_some() {
            return false;
        }
        self.takeovers.push(Takeover { gone, holder, old: false });
        self.takeovers.sort_unstable();
        true
    }

    /// Removes a takeover file, whosever it is.
    pub fn drop_takeover(&mut self, gone: Id) -> Option<Takeover> {
        let at = self.takeovers.iter().position(|file| file.gone == gone)?;
        Some(self.takeovers.remove(at))
    }

    /// Time passes: a takeover file is older than the limit.
    pub fn age(&mut self, gone: Id) {
        for file in self.takeovers.iter_mut().filter(|file| file.gone == gone) {
            file.old = true;
        }
    }

    fn is_of(&self, gone: Id, holder: Id) -> bool {
        self.takeover(gone).is_some_and(|file| file.holder == holder)
    }
}

/// The next request of an agent that publishes itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Publish {
    /// Nobody is published: link the meeting file. `Directory::claim`.
    Claim,
    /// Link the takeover file. `Directory::take_over`, as all steps below from `Directory::replace`.
    Take(Id),
    /// It is there and was too old: remove it, and search again.
    RemoveOld(Id),
    /// Look whether the gone leader still stands there. `Directory::rename_takeover`.
    LookAgain(Id),
    /// Look whether the takeover file is still one's own.
    Check(Id),
    /// Rename the takeover file to the meeting file.
    Rename(Id),
    /// Look whether the takeover file is one's own. `Directory::release`.
    Release(Id),
    /// Remove it.
    Drop(Id),
    /// Look whether this agent is published.
    LastLook,
}

/// What came of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Published {
    /// Go on with the next request.
    Next(Publish),
    /// This agent leads.
    Leads,
    /// Another was quicker: search again.
    Not,
}

impl Publish {
    /// True if this request reads the meeting file behind a change of one's own.
    pub(crate) fn looks(self) -> bool {
        matches!(self, Publish::LookAgain(_) | Publish::LastLook)
    }

    /// The leader whose takeover file this agent has made.
    pub(crate) fn holds(self) -> Option<Id> {
        match self {
            Publish::LookAgain(gone)
            | Publish::Check(gone)
            | Publish::Rename(gone)
            | Publish::Release(gone)
            | Publish::Drop(gone) => Some(gone),
            Publish::Claim | Publish::Take(_) | Publish::RemoveOld(_) | Publish::LastLook => None,
        }
    }

    /// Does the request for agent `me`; `None` where nothing would change.
    pub(crate) fn ask(
        self,
        files: &mut Files,
        name: usize,
        me: Id,
        stale: bool,
        meeting: &Meeting,
    ) -> Option<Published> {
        use Published::{Leads, Next, Not};
        let variant = meeting.variant;
        Some(match self {
            Publish::Claim if files.meeting[name].is_some() && variant != Variant::NoExclusiveCreate => Not,
            Publish::Claim => {
                files.put(name, Some(me));
                Leads
            }
            Publish::Take(gone) => match files.takeover(gone) {
                None => {
                    files.take(gone, me);
                    let is_blind = variant == Variant::NoSecondLook;
                    Next(if is_blind { Publish::Check(gone) } else { Publish::LookAgain(gone) })
                }
                Some(file) if file.old && meeting.bounds.age_race => Next(Publish::RemoveOld(gone)),
                Some(file) if file.old => {
                    return Publish::RemoveOld(gone).ask(files, name, me, stale, meeting);
                }
                // It rests, looks and comes back here: nothing changes while the gone one stands there.
                Some(_) if files.meeting[name] == Some(gone) => return None,
                Some(_) => Not,
            },
            Publish::RemoveOld(gone) => {
                files.drop_takeover(gone);
                Not
            }
            Publish::LookAgain(gone) if files.look(name, stale) == Some(gone) => Next(Publish::Check(gone)),
            Publish::LookAgain(gone) => Next(Publish::Release(gone)),
            Publish::Check(gone) if files.is_of(gone, me) => Next(Publish::Rename(gone)),
            Publish::Check(gone) => Next(Publish::Release(gone)),
            Publish::Rename(gone) => {
                let taken = files.drop_takeover(gone);
                if variant == Variant::RenamesItsOwn {
                    files.put(name, Some(me));
                } else if let Some(file) = taken {
                    files.put(name, Some(file.holder));
                }
                Next(Publish::Release(gone))
            }
            Publish::Release(gone) if files.is_of(gone, me) => Next(Publish::Drop(gone)),
            Publish::Release(_) => Next(Publish::LastLook),
            Publish::Drop(gone) => {
                files.drop_takeover(gone);
                Next(Publish::LastLook)
            }
            Publish::LastLook if files.look(name, stale) == Some(me) => Leads,
            Publish::LastLook => Not,
        })
    }
}
