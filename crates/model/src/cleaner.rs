//! Whoever takes back a publication: the leader at its end, or the guard of one that was killed.
//! Restates `Directory::retract` and `Directory::retract_for` of `rendezvous/directory.rs`.

use crate::{Files, Id, Meeting, Variant};

/// A publication that is being taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cleaner {
    /// Whose it was.
    pub of: Id,
    /// The next request.
    pub step: CleanUp,
}

/// The next request to the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CleanUp {
    /// Look whether it stands there.
    Look,
    /// Link the takeover file of oneself. It is tried twice.
    Take {
        /// This is the second try.
        again: bool,
    },
    /// It is there and was too old: remove it.
    RemoveOld,
    /// Look whether it still stands there.
    LookAgain,
    /// Remove the meeting file.
    Remove,
    /// Look whether the takeover file is one's own.
    Release,
    /// Remove it.
    Drop,
}

impl Cleaner {
    pub(crate) fn new(of: Id) -> Cleaner {
        Cleaner { of, step: CleanUp::Look }
    }

    /// True while it has made the takeover file of this leader.
    pub(crate) fn holds(self, gone: Id) -> bool {
        let holds =
            matches!(self.step, CleanUp::LookAgain | CleanUp::Remove | CleanUp::Release | CleanUp::Drop);
        holds && self.of == gone
    }

    /// Does the next request; what is left to do then.
    pub(crate) fn ask(self, files: &mut Files, name: usize, meeting: &Meeting) -> Option<Cleaner> {
        let of = self.of;
        let is_there = files.meeting[name] == Some(of);
        let own = files.takeover(of).is_some_and(|file| file.holder == of);
        let next = match self.step {
            CleanUp::Look if !is_there => return None,
            CleanUp::Look if meeting.variant == Variant::BareRetract => CleanUp::Remove,
            CleanUp::Look => CleanUp::Take { again: false },
            CleanUp::Take { again } => match files.takeover(of) {
                None => {
                    files.take(of, of);
                    CleanUp::LookAgain
                }
                Some(file) if file.old && !again && meeting.bounds.age_race => CleanUp::RemoveOld,
                Some(file) if file.old && !again => {
                    files.drop_takeover(of);
                    CleanUp::Take { again: true }
                }
                Some(_) if !again => CleanUp::Take { again: true },
                Some(_) => return None,
            },
            CleanUp::RemoveOld => {
                files.drop_takeover(of);
                CleanUp::Take { again: true }
            }
            CleanUp::LookAgain if is_there => CleanUp::Remove,
            CleanUp::LookAgain => CleanUp::Release,
            CleanUp::Remove => {
                if files.meeting[name].is_some() {
                    files.put(name, None);
                }
                CleanUp::Release
            }
            CleanUp::Release if own => CleanUp::Drop,
            CleanUp::Release => return None,
            CleanUp::Drop => {
                files.drop_takeover(of);
                return None;
            }
        };
        Some(Cleaner { of, step: next })
    }
}
