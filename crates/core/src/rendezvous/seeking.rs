//! How a leader is searched for, and when to become one. Pure: [`super::meet`] looks, connects, publishes and waits.

use super::message::VERSION;
use super::wire::WireError;
use super::{Contact, RendezvousError, Wait};
use crate::hint;
use crate::hint::{Hint, Hinted, Setting};
use std::time::{Duration, Instant};

/// How often somebody with another key is asked again.
const SOMEBODY_ELSE: Duration = Duration::from_secs(1);
/// A leader that nothing can connect to for this long is gone.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long a place is left alone between two looks, at first. A step of many tasks is complete in a moment.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
/// A place that did not answer is left alone for a while.
const UNSTEADY_PAUSE: Duration = Duration::from_secs(1);
/// How often an agent that waits says so.
const PROGRESS: Duration = Duration::from_secs(5);

/// What matters of the place where the leader is searched for.
#[derive(Debug, Clone)]
pub(super) struct Where {
    pub(super) name: String,
    /// What an agent waits for that cannot lead itself.
    pub(super) awaited: Option<String>,
    /// The longest pause between two looks.
    pub(super) longest_pause: Duration,
}

/// A search for the leader.
#[derive(Debug)]
pub(super) struct Search {
    place: Where,
    wait: Wait,
    /// When the next line about the wait is due.
    next_word: Instant,
    /// Since when nothing could connect to the leader of this id.
    gone: Option<(String, Instant)>,
    /// Why no leader was found so far, and what may help.
    reason: String,
    hint: Hint,
    /// What was wrong with a leader that takes connections, at the last try.
    answer: String,
    pause: Duration,
}

/// What came of the last step.
#[derive(Debug)]
pub(super) enum Seen {
    /// Nothing was done yet, or a pause is over.
    Nothing,
    /// The place did not answer for the rest of the whole wait.
    NoAnswer,
    /// The place could not be asked. A busy submit host is no reason to give up.
    Unsteady {
        place: String,
        why: String,
    },
    /// No leader is published.
    Nobody,
    Leader(Contact),
    /// The leader did not answer for the rest of the whole wait.
    Unanswered(Contact),
    NotJoined {
        contact: Contact,
        error: RendezvousError,
        /// The leader's process ran on this machine, and is there no more.
        is_dead: bool,
    },
    /// The leader of an attempt that ran without this agent was lost before it told the end.
    EndUnknown,
    /// That attempt ran for the rest of the whole wait; what its leader said.
    StillRunning {
        why: String,
    },
    /// This agent was not published as the leader: another was quicker, or the place could not be asked, and why.
    NotPublished {
        unsteady: Option<String>,
    },
}

/// What to do next.
#[derive(Debug)]
pub(super) enum Step {
    /// Look who is published in the place.
    Look,
    /// Offer this agent to a leader; what to say while it does not answer.
    Join {
        contact: Contact,
        waiting: String,
    },
    /// Publish this agent as the leader, where there is none.
    Claim,
    /// Publish this agent instead of a leader that is gone.
    Replace {
        gone: Contact,
    },
    Rest {
        until: Instant,
    },
    GiveUp(RendezvousError),
}

/// What to say, if anything, and what to do then.
#[derive(Debug)]
pub(super) struct Decision {
    pub(super) say: Option<String>,
    pub(super) step: Step,
}

impl Search {
    pub(super) fn new(place: Where, wait: Wait, now: Instant) -> Search {
        Search {
            place,
            wait,
            next_word: now + PROGRESS,
            gone: None,
            reason: "nobody has published one".to_owned(),
            hint: longer(),
            answer: String::new(),
            pause: FIRST_PAUSE,
        }
    }

    /// What follows from what was seen.
    pub(super) fn saw(&mut self, seen: Seen, now: Instant) -> Decision {
        match seen {
            Seen::Nothing => self.look(now),
            Seen::NoAnswer => {
                self.note(format!("{} does not answer", self.place.name), longer());
                self.look(now)
            }
            Seen::Unsteady { place, why } => {
                self.note(format!("{place} does not answer: {why}"), longer());
                let say = self.word(&self.reason.clone(), now);
                Decision { say, step: Step::Rest { until: now + UNSTEADY_PAUSE } }
            }
            Seen::Nobody => match self.place.awaited.clone() {
                None => Decision { say: None, step: Step::Claim },
                Some(awaited) => {
                    self.note(format!("still waiting for {awaited}"), longer());
                    self.word_and_rest(&format!("waiting for {awaited}"), now)
                }
            },
            Seen::Leader(contact) => {
                let waiting = format!("waiting for {}{}", self.who(&contact), self.answer);
                Decision { say: None, step: Step::Join { contact, waiting } }
            }
            Seen::Unanswered(contact) => {
                self.note(format!("{} does not answer", self.who(&contact)), suspended());
                self.rest(None, now)
            }
            Seen::NotJoined { contact, error, is_dead } => self.not_joined(contact, error, is_dead, now),
            Seen::EndUnknown => {
                self.gone = None;
                self.rest(None, now)
            }
            Seen::StillRunning { why } => {
                self.note(why, longer());
                self.rest(None, now)
            }
            Seen::NotPublished { unsteady: None } => self.rest(None, now),
            Seen::NotPublished { unsteady: Some(why) } => self.word_and_rest(&why, now),
        }
    }

    fn note(&mut self, reason: String, hint: Hint) {
        self.reason = reason;
        self.hint = hint;
    }

    /// A line about the wait, if it is time for one.
    pub(super) fn word(&mut self, what: &str, now: Instant) -> Option<String> {
        (now >= self.next_word).then(|| self.line(format!("{what} ({})", self.wait.so_far(now)), now))
    }

    /// A line that is said now; the next one about the wait is due a while later.
    pub(super) fn line(&mut self, line: String, now: Instant) -> String {
        self.next_word = now + PROGRESS;
        line
    }

    /// When there is something to say or the whole wait is over, whatever is waited for.
    pub(super) fn due(&self) -> Instant {
        self.next_word.min(self.wait.end())
    }

    pub(super) fn is_over(&self, now: Instant) -> bool {
        now >= self.wait.end()
    }

    fn look(&self, now: Instant) -> Decision {
        let step = if self.is_over(now) {
            let waited = self.wait.waited_at(now).as_secs();
            Step::GiveUp(RendezvousError::NoLeader {
                waited,
                reason: self.reason.clone(),
                hint: self.hint.clone(),
            })
        } else {
            Step::Look
        };
        Decision { say: None, step }
    }

    /// Each pause is twice as long as the one before.
    fn rest(&mut self, say: Option<String>, now: Instant) -> Decision {
        let until = (now + self.pause).min(self.wait.end());
        self.pause = (self.pause * 2).min(self.place.longest_pause);
        Decision { say, step: Step::Rest { until } }
    }

    fn word_and_rest(&mut self, what: &str, now: Instant) -> Decision {
        let say = self.word(what, now);
        self.rest(say, now)
    }

    fn not_joined(
        &mut self,
        contact: Contact,
        error: RendezvousError,
        is_dead: bool,
        now: Instant,
    ) -> Decision {
        let who = self.who(&contact);
        match error {
            RendezvousError::Refused { .. } | RendezvousError::NoKey { .. } => give_up(error),
            // Somebody is there, and suspended or busy with strangers perhaps: that is no reason to take its place.
            RendezvousError::Wire(error @ (WireError::Closed | WireError::Silent(_))) => {
                if contact.version != VERSION {
                    return give_up(RendezvousError::Refused { why: other_version(&contact) });
                }
                self.answer = format!(": it takes connections, but {error}");
                self.note(format!("{who}{}", self.answer), suspended());
                self.gone = None;
                self.word_and_rest(&format!("waiting for {}", self.reason), now)
            }
            // At a given address somebody else answers: it will go on doing so, and nobody can take its place.
            RendezvousError::Wire(error @ (WireError::WrongKey | WireError::NotRallypoint))
                if contact.id.is_empty() =>
            {
                let reason = format!("{who} is somebody else: {error}");
                self.note(reason, hint!("RALLYPOINT_KEY_FILE must name the same key for all members"));
                self.gone = None;
                self.pause = self.pause.max(SOMEBODY_ELSE);
                self.word_and_rest(&hint::together(self.reason.clone(), Some(&self.hint)), now)
            }
            error => self.unreachable(contact, &error, is_dead, now),
        }
    }

    /// Nothing connects to the leader. After a while it is gone, and this agent takes its place.
    fn unreachable(
        &mut self,
        contact: Contact,
        error: &RendezvousError,
        is_dead: bool,
        now: Instant,
    ) -> Decision {
        let who = self.who(&contact);
        self.note(error.to_string(), error.hint().unwrap_or_else(longer));
        let error = hint::in_full(error);
        let since = match self.gone.take() {
            Some((id, since)) if id == contact.id => since,
            _ => now,
        };
        let is_gone = is_dead || now.saturating_duration_since(since) > PATIENCE;
        if is_gone && self.place.awaited.is_none() {
            let say = Some(self.line(format!("{who} is gone: {error}"), now));
            return Decision { say, step: Step::Replace { gone: contact } };
        }
        self.gone = Some((contact.id, since));
        self.word_and_rest(&format!("{who} cannot be reached: {error}"), now)
    }

    fn who(&self, contact: &Contact) -> String {
        format!("the leader in {} ({})", self.place.name, contact.who())
    }
}

fn give_up(error: RendezvousError) -> Decision {
    Decision { say: None, step: Step::GiveUp(error) }
}

fn other_version(contact: &Contact) -> String {
    let problem = format!("its protocol is version {}, ours {VERSION}", contact.version);
    hint::together(problem, Some(&hint!("use the same rallypoint everywhere")))
}

/// What may help where no leader was found.
fn longer() -> Hint {
    hint!(Setting::MeetTimeout, " gives it longer")
}

fn suspended() -> Hint {
    hint!("look at that process; it may be suspended")
}

#[cfg(test)]
mod tests;
