//! The directory: the meeting files, the takeover files, and the steps of those that publish themselves.
//!
//! One step of the model is one request to the file system, so that all others can come between two of them; only a
//! search reads the whole chain at once, unless the bounds say otherwise. Temporary files (`Directory::prepare`) have a
//! name of their own that nobody else looks at: they are left out.

use crate::{Id, Meeting, Variant};

/// One publication, as its file tells: each has a random id that never comes back (`Contact::id`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Post {
    /// Whose it is.
    pub id: Id,
    /// How often this run stood in the directory before, and did not lead.
    pub take: u8,
    /// It leads nobody: whoever led before takes back the publication (`Contact::closed`).
    pub closed: bool,
}

impl std::fmt::Debug for Post {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let take = "+".repeat(self.take.into());
        write!(f, "{:?}{take}{}", self.id, if self.closed { " (closed)" } else { "" })
    }
}

/// What stands in the directory.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Files {
    /// The meeting file of each attempt: who was published first.
    pub meeting: [Option<Post>; 2],
    /// Where the chain ended before the last change: what a stale search sees.
    pub before: [Option<Post>; 2],
    /// What the meeting file was before its last change: what a stale second look sees.
    pub root_before: [Option<Post>; 2],
    /// The takeover files, by the one that was replaced.
    pub takeovers: Vec<Takeover>,
}

/// A takeover file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Takeover {
    /// The one that was replaced, which gives the file its name.
    pub gone: Post,
    /// Who stands in it.
    pub holder: Post,
    /// It is older than `CLOSED_LIMIT`.
    pub old: bool,
}

impl Files {
    /// Reads the chain to its end; a stale read sees what it was before.
    pub fn look(&self, name: usize, stale: bool) -> Option<Post> {
        if stale { self.before[name] } else { self.end(self.meeting[name]?) }
    }

    fn end(&self, from: Post) -> Option<Post> {
        let mut at = from;
        while let Some(next) = self.next(at) {
            at = next;
        }
        Some(at)
    }

    /// Reads a takeover file.
    pub fn next(&self, gone: Post) -> Option<Post> {
        self.takeover(gone).map(|file| file.holder)
    }

    /// The takeover file of one that is gone.
    pub fn takeover(&self, gone: Post) -> Option<Takeover> {
        self.takeovers.iter().find(|file| file.gone == gone).copied()
    }

    /// True if this one takes back a publication, and not for long.
    pub fn is_being_closed(&self, post: Post) -> bool {
        post.closed && !self.takeovers.iter().any(|file| file.holder == post && file.old)
    }

    /// Writes or removes a meeting file.
    pub fn put(&mut self, name: usize, content: Option<Post>) {
        self.remember();
        self.root_before[name] = self.meeting[name];
        self.meeting[name] = content;
    }

    fn remember(&mut self) {
        self.before = [0, 1].map(|name| self.look(name, false));
    }

    /// Makes a takeover file; false if there is one. `Directory::succeed`.
    pub fn take(&mut self, gone: Post, holder: Post) -> bool {
        if self.takeover(gone).is_some() {
            return false;
        }
        self.remember();
        self.takeovers.push(Takeover { gone, holder, old: false });
        self.takeovers.sort_unstable();
        true
    }

    /// Removes a takeover file.
    pub fn drop_takeover(&mut self, gone: Post) -> Option<Takeover> {
        self.remember();
        let at = self.takeovers.iter().position(|file| file.gone == gone)?;
        Some(self.takeovers.remove(at))
    }

    /// Time passes: a takeover file is older than the limit.
    pub fn age(&mut self, gone: Post) {
        for file in self.takeovers.iter_mut().filter(|file| file.gone == gone) {
            file.old = true;
        }
    }
}

/// The next request of an agent that publishes itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Publish {
    /// Nobody is published: link the meeting file. `Directory::claim`.
    Claim,
    /// Link the takeover file. `Directory::replace`, as all steps below.
    Take(Post),
    /// Look whether the chain begins where it did.
    Check(Post),
    /// Read on, from this one in the chain.
    Walk {
        /// Whom this agent has replaced.
        gone: Post,
        /// Where it reads on.
        at: Post,
    },
    /// It stands in no chain: remove its takeover file.
    Withdraw(Post),
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
    /// It stood in the directory and does not lead: it searches again, and has another id the next time.
    Spent,
}

impl Publish {
    /// True if this request reads the meeting file behind a change of one's own.
    pub(crate) fn looks(self) -> bool {
        matches!(self, Publish::Check(_))
    }

    /// True if this agent has made a takeover file, and does not lead yet.
    pub(crate) fn holds(self) -> bool {
        matches!(self, Publish::Check(_) | Publish::Walk { .. } | Publish::Withdraw(_))
    }

    /// Does the request for `me`.
    pub(crate) fn ask(
        self,
        files: &mut Files,
        name: usize,
        me: Post,
        stale: bool,
        meeting: &Meeting,
    ) -> Published {
        use Published::{Leads, Next, Not, Spent};
        let variant = meeting.variant;
        match self {
            Publish::Claim if files.meeting[name].is_some() && variant != Variant::NoExclusiveCreate => Not,
            Publish::Claim => {
                files.put(name, Some(me));
                Leads
            }
            Publish::Take(gone) if !files.take(gone, me) => Not,
            Publish::Take(_) if variant == Variant::NoSecondLook => Leads,
            Publish::Take(gone) => Next(Publish::Check(gone)),
            Publish::Check(gone) => {
                let root = if stale { files.root_before[name] } else { files.meeting[name] };
                Next(root.map_or(Publish::Withdraw(gone), |at| Publish::Walk { gone, at }))
            }
            Publish::Walk { gone, at } => match files.next(at) {
                None if at == me => Leads,
                Some(_) if at == me => Spent,
                None => Next(Publish::Withdraw(gone)),
                Some(at) => Next(Publish::Walk { gone, at }),
            },
            Publish::Withdraw(gone) => {
                files.drop_takeover(gone);
                Spent
            }
        }
    }
}
