//! Whoever takes back a publication: the leader at its end, or the guard of one that was killed.
//! Restates `Directory::retract` and `Directory::retract_for` of `rendezvous/directory.rs`.

use crate::{Files, Meeting, Post, Variant};

/// A publication that is being taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cleaner {
    /// Whose it was.
    pub of: Post,
    /// The next request.
    pub step: CleanUp,
}

/// The next request to the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CleanUp {
    /// Read the meeting file.
    Look,
    /// Read on, from this one in the chain.
    Walk {
        /// Where the chain begins.
        root: Post,
        /// Where it reads on.
        at: Post,
    },
    /// It is the last: link its takeover file, so that nobody can replace it any more.
    Close(Post),
    /// Look whether the chain begins where it did.
    Check(Post),
    /// Look whether nobody has taken this for left behind.
    CheckEnd(Post),
    /// Remove the meeting file.
    Remove(Post),
    /// Remove the takeover files, from this one in the chain.
    Sweep(Post),
    /// The chain is gone: remove one's own takeover file.
    Withdraw,
}

impl Cleaner {
    pub(crate) fn new(of: Post) -> Cleaner {
        Cleaner { of, step: CleanUp::Look }
    }

    fn closed(self) -> Post {
        Post { closed: true, ..self.of }
    }

    /// True while it works at what this takeover file tells others to wait for.
    pub(crate) fn holds(self, holder: Post) -> bool {
        let waits = matches!(self.step, CleanUp::Look | CleanUp::Walk { .. } | CleanUp::Close(_));
        !waits && holder == self.closed()
    }

    /// Does the next request; what is left to do then.
    pub(crate) fn ask(self, files: &mut Files, name: usize, meeting: &Meeting) -> Option<Cleaner> {
        let of = self.of;
        let variant = meeting.variant;
        let next = match self.step {
            CleanUp::Look => {
                let root = files.meeting[name]?;
                CleanUp::Walk { root, at: root }
            }
            CleanUp::Walk { root, at } => match files.next(at) {
                Some(at) => CleanUp::Walk { root, at },
                None if at != of => return None,
                None if variant == Variant::BareRetract => CleanUp::Remove(root),
                None => CleanUp::Close(root),
            },
            CleanUp::Close(_) if !files.take(of, self.closed()) => return None,
            CleanUp::Close(root) => CleanUp::Check(root),
            CleanUp::Check(root) if files.meeting[name] == Some(root) => CleanUp::CheckEnd(root),
            CleanUp::Check(_) => CleanUp::Withdraw,
            CleanUp::CheckEnd(_) if files.next(self.closed()).is_some() => return None,
            CleanUp::CheckEnd(root) if variant == Variant::SweepsFirst => CleanUp::Sweep(root),
            CleanUp::CheckEnd(root) => CleanUp::Remove(root),
            CleanUp::Remove(root) => {
                files.put(name, None);
                if variant == Variant::SweepsFirst {
                    return None;
                }
                CleanUp::Sweep(root)
            }
            CleanUp::Sweep(at) => {
                let next = files.drop_takeover(at).map(|file| file.holder);
                match next {
                    _ if at == of && variant == Variant::SweepsFirst => CleanUp::Remove(of),
                    Some(next) if at != of => CleanUp::Sweep(next),
                    _ => return None,
                }
            }
            CleanUp::Withdraw => {
                files.drop_takeover(of);
                return None;
            }
        };
        Some(Cleaner { of, step: next })
    }
}
