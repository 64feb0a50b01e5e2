//! How a leader is searched for, and when to become one. Pure: [`super::meet`] looks, connects, publishes and waits.

use super::message::VERSION;
use super::wire::WireError;
use super::{Contact, RendezvousError, Wait};
use crate::event::{Obstacle, RunEvent};
use crate::hint;
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
    /// Why no leader was found so far.
    obstacle: Obstacle,
    /// What a leader did that takes connections and does not answer, at the last try.
    answer: Option<String>,
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
    /// That attempt ran for the rest of the whole wait.
    StillRunning,
    /// This agent was not published as the leader: another was quicker, or the place could not be asked.
    NotPublished {
        unsteady: Option<Obstacle>,
    },
}

/// What to do next.
#[derive(Debug)]
pub(super) enum Step {
    /// Look who is published in the place.
    Look,
    /// Offer this agent to a leader; what to tell while it does not answer.
    Join {
        contact: Contact,
        waiting: Obstacle,
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

/// What to tell, if anything, and what to do then.
#[derive(Debug)]
pub(super) struct Decision {
    pub(super) say: Option<RunEvent>,
    pub(super) step: Step,
}

impl Search {
    pub(super) fn new(place: Where, wait: Wait, now: Instant) -> Search {
        Search {
            place,
            wait,
            next_word: now + PROGRESS,
            gone: None,
            obstacle: Obstacle::Nobody,
            answer: None,
            pause: FIRST_PAUSE,
        }
    }

    /// What follows from what was seen.
    pub(super) fn saw(&mut self, seen: Seen, now: Instant) -> Decision {
        match seen {
            Seen::Nothing => self.look(now),
            Seen::NoAnswer => {
                self.obstacle = Obstacle::PlaceSilent { place: self.place.name.clone() };
                self.look(now)
            }
            Seen::Unsteady { place, why } => {
                let say = self.meet_with(Obstacle::PlaceUnsteady { place, why }, now);
                Decision { say, step: Step::Rest { until: now + UNSTEADY_PAUSE } }
            }
            Seen::Nobody => match self.place.awaited.clone() {
                None => Decision { say: None, step: Step::Claim },
                Some(awaited) => {
                    let say = self.meet_with(Obstacle::Awaited { awaited }, now);
                    self.rest(say, now)
                }
            },
            Seen::Leader(contact) => {
                let leader = self.who(&contact);
                let waiting = match self.answer.clone() {
                    None => Obstacle::LeaderUnanswered { leader },
                    Some(why) => Obstacle::LeaderMute { leader, why },
                };
                Decision { say: None, step: Step::Join { contact, waiting } }
            }
            Seen::Unanswered(contact) => {
                self.obstacle = Obstacle::LeaderUnanswered { leader: self.who(&contact) };
                self.rest(None, now)
            }
            Seen::NotJoined { contact, error, is_dead } => self.not_joined(contact, error, is_dead, now),
            Seen::EndUnknown => {
                self.gone = None;
                self.rest(None, now)
            }
            Seen::StillRunning => {
                self.obstacle = Obstacle::EarlierAttempt;
                self.rest(None, now)
            }
            Seen::NotPublished { unsteady: None } => self.rest(None, now),
            Seen::NotPublished { unsteady: Some(obstacle) } => {
                let say = self.word(&obstacle, now);
                self.rest(say, now)
            }
        }
    }

    /// Something is in the way: what to tell of it, if it is time for a word.
    fn meet_with(&mut self, obstacle: Obstacle, now: Instant) -> Option<RunEvent> {
        let say = self.word(&obstacle, now);
        self.obstacle = obstacle;
        say
    }

    /// What to tell of an obstacle, if it is time for a word about the wait.
    pub(super) fn word(&mut self, obstacle: &Obstacle, now: Instant) -> Option<RunEvent> {
        (now >= self.next_word).then(|| self.tell(obstacle.clone(), now))
    }

    /// An obstacle that is told now; the next word about the wait is due a while later.
    pub(super) fn tell(&mut self, obstacle: Obstacle, now: Instant) -> RunEvent {
        self.next_word = now + PROGRESS;
        RunEvent::Searching { obstacle, waited: self.wait.so_far(now) }
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
            Step::GiveUp(RendezvousError::NoLeader { waited, obstacle: self.obstacle.clone() })
        } else {
            Step::Look
        };
        Decision { say: None, step }
    }

    /// Each pause is twice as long as the one before.
    fn rest(&mut self, say: Option<RunEvent>, now: Instant) -> Decision {
        let until = (now + self.pause).min(self.wait.end());
        self.pause = (self.pause * 2).min(self.place.longest_pause);
        Decision { say, step: Step::Rest { until } }
    }

    fn not_joined(
        &mut self,
        contact: Contact,
        error: RendezvousError,
        is_dead: bool,
        now: Instant,
    ) -> Decision {
        let leader = self.who(&contact);
        match error {
            RendezvousError::Refused { .. } | RendezvousError::NoKey { .. } => give_up(error),
            // Somebody is there, and suspended or busy with strangers perhaps: that is no reason to take its place.
            RendezvousError::Wire(error @ (WireError::Closed | WireError::Silent(_))) => {
                if contact.version != VERSION {
                    return give_up(RendezvousError::Refused { why: other_version(&contact) });
                }
                let why = error.to_string();
                self.answer = Some(why.clone());
                self.gone = None;
                let say = self.meet_with(Obstacle::LeaderMute { leader, why }, now);
                self.rest(say, now)
            }
            // At a given address somebody else answers: it will go on doing so, and nobody can take its place.
            RendezvousError::Wire(error @ (WireError::WrongKey | WireError::NotRallypoint))
                if contact.id.is_empty() =>
            {
                self.gone = None;
                self.pause = self.pause.max(SOMEBODY_ELSE);
                let say = self.meet_with(Obstacle::SomebodyElse { leader, why: error.to_string() }, now);
                self.rest(say, now)
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
        let (leader, why) = (self.who(&contact), hint::in_full(error));
        let since = match self.gone.take() {
            Some((id, since)) if id == contact.id => since,
            _ => now,
        };
        let is_gone = is_dead || now.saturating_duration_since(since) > PATIENCE;
        if is_gone && self.place.awaited.is_none() {
            self.obstacle = Obstacle::LeaderUnreachable { leader: leader.clone(), why: why.clone() };
            self.next_word = now + PROGRESS;
            let say = Some(RunEvent::LeaderGone { leader, why });
            return Decision { say, step: Step::Replace { gone: contact } };
        }
        self.gone = Some((contact.id, since));
        let say = self.meet_with(Obstacle::LeaderUnreachable { leader, why }, now);
        self.rest(say, now)
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

#[cfg(test)]
mod tests;
