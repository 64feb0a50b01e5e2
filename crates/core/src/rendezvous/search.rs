//! Finding the leader, or becoming it.

use super::join::Answer;
use super::seeking::{Decision, Search, Seen, Step, Where};
use super::{Contact, JoinRequest, Leader, Link, RendezvousError, Seeker, Wait};
use crate::clock;
use crate::event::{Obstacle, RunEvent};
use crate::network::pid_namespace;
use crate::outcome::Farewell;
use crate::process;
use std::cell::Cell;
use std::future::Future;
use std::ops::ControlFlow;
use std::pin::pin;

/// The part that this agent plays.
#[derive(Debug)]
pub enum Part {
    /// It leads, and is to gather the others.
    Leader(Box<Leader>),
    /// The leader has taken its offer.
    Member(Link),
    /// The attempt that ran when this agent came has ended without it.
    Over {
        /// The exit code of that attempt.
        code: u8,
        /// How it ended, as its leader tells.
        farewell: Farewell,
    },
}

/// Finds the leader or becomes it. `say` hears what is in the way.
pub async fn meet(
    way: &mut Seeker,
    join_request: &JoinRequest,
    wait: Wait,
    say: &mut dyn FnMut(RunEvent),
) -> Result<Part, RendezvousError> {
    search(way, join_request, wait, &Cell::new(false), say).await
}

/// The same; `offered` is true while the answer of a leader is awaited, which may count on this agent already.
pub(super) async fn search(
    way: &mut Seeker,
    join_request: &JoinRequest,
    wait: Wait,
    offered: &Cell<bool>,
    say: &mut dyn FnMut(RunEvent),
) -> Result<Part, RendezvousError> {
    let place = Where {
        name: way.name().to_owned(),
        awaited: way.awaited().map(str::to_owned),
        longest_pause: way.longest_pause(),
    };
    let search = Search::new(place, wait, clock::now());
    let mut searcher = Searcher { way, join_request, wait, say, offered, search };
    let mut seen = Seen::Nothing;
    loop {
        match searcher.follow_up(seen).await? {
            ControlFlow::Continue(next) => seen = next,
            ControlFlow::Break(part) => return Ok(part),
        }
    }
}

/// Does what [`Search`] decides.
struct Searcher<'a> {
    way: &'a mut Seeker,
    join_request: &'a JoinRequest,
    wait: Wait,
    say: &'a mut dyn FnMut(RunEvent),
    offered: &'a Cell<bool>,
    search: Search,
}

/// The part that this agent plays, or what was seen instead.
type Came = ControlFlow<Part, Seen>;

impl Searcher<'_> {
    async fn follow_up(&mut self, seen: Seen) -> Result<Came, RendezvousError> {
        let shown = format!("{seen:?}");
        let Decision { say, step } = self.search.saw(seen, clock::now());
        tracing::debug!("the search for a leader saw {shown}: {step:?}");
        say.into_iter().for_each(&mut *self.say);
        match step {
            Step::Look => Ok(ControlFlow::Continue(self.look().await?)),
            Step::Join { contact, waiting } => Ok(self.join(contact, &waiting).await),
            Step::Claim => self.lead(None).await,
            Step::Replace { gone } => self.lead(Some(&gone)).await,
            Step::Rest { until } => {
                clock::sleep_until(until).await;
                Ok(ControlFlow::Continue(Seen::Nothing))
            }
            Step::GiveUp(error) => Err(error),
        }
    }

    async fn look(&mut self) -> Result<Seen, RendezvousError> {
        let what = Obstacle::PlaceSilent { place: self.way.name().to_owned() };
        let look = self.way.look();
        Ok(match during(&mut self.search, self.say, &what, look).await {
            None => Seen::NoAnswer,
            Some(Err(RendezvousError::Unsteady { place, reason: why })) => Seen::Unsteady { place, why },
            Some(found) => found?.map_or(Seen::Nobody, Seen::Leader),
        })
    }

    async fn join(&mut self, contact: Contact, waiting: &Obstacle) -> Came {
        let joining = Link::join(&contact, self.join_request);
        self.offered.set(true);
        let joined = during(&mut self.search, self.say, waiting, joining).await;
        self.offered.set(false);
        match joined {
            None => ControlFlow::Continue(Seen::Unanswered(contact)),
            Some(Ok(Answer::Welcome(link))) => ControlFlow::Break(Part::Member(link)),
            Some(Ok(Answer::Later(link))) => self.await_end(link).await,
            Some(Err(error)) => {
                let is_dead = is_dead_here(&contact, &self.join_request.offer.machine, &pid_namespace());
                ControlFlow::Continue(Seen::NotJoined { contact, error, is_dead })
            }
        }
    }

    /// An earlier attempt still runs: its leader tells its end.
    async fn await_end(&mut self, mut link: Link) -> Came {
        (self.say)(self.search.tell(Obstacle::EarlierAttempt, clock::now()));
        match during(&mut self.search, self.say, &Obstacle::EarlierAttempt, link.end()).await {
            Some(Ok((code, farewell))) => ControlFlow::Break(Part::Over { code, farewell }),
            Some(Err(_)) => ControlFlow::Continue(Seen::EndUnknown),
            None => ControlFlow::Continue(Seen::StillRunning),
        }
    }

    /// Listens, then publishes.
    async fn lead(&mut self, gone: Option<&Contact>) -> Result<Came, RendezvousError> {
        let not_published = |unsteady| Ok(ControlFlow::Continue(Seen::NotPublished { unsteady }));
        let listening = Leader::listen(self.join_request, self.wait, self.way.port()).await?;
        let Some((contact, leader)) = listening else { return not_published(None) };
        let what = Obstacle::PlaceSilent { place: self.way.name().to_owned() };
        let publish = async {
            match gone {
                None => self.way.claim(&contact).await,
                Some(gone) => self.way.replace(gone, &contact).await,
            }
        };
        match during(&mut self.search, self.say, &what, publish).await {
            Some(Ok(true)) => Ok(ControlFlow::Break(Part::Leader(Box::new(leader)))),
            Some(Ok(false)) | None => not_published(None),
            Some(Err(RendezvousError::Unsteady { place, reason })) => {
                not_published(Some(Obstacle::PlaceUnsteady { place, why: reason }))
            }
            Some(Err(error)) => Err(error),
        }
    }
}

/// What a future gives, unless the whole wait is over before. Says what is waited for, every few seconds.
async fn during<T>(
    search: &mut Search,
    say: &mut dyn FnMut(RunEvent),
    what: &Obstacle,
    future: impl Future<Output = T>,
) -> Option<T> {
    let mut future = pin!(future);
    loop {
        tokio::select! {
            biased;
            value = &mut future => return Some(value),
            () = clock::sleep_until(search.due()) => {}
        }
        let now = clock::now();
        if search.is_over(now) {
            return None;
        }
        search.word(what, now).into_iter().for_each(&mut *say);
    }
}

/// True if the leader ran on this very machine, its pid means here what it meant there, and no process has it any more.
fn is_dead_here(contact: &Contact, machine: &str, pid_namespace: &str) -> bool {
    let is_here = contact.machine == machine && contact.pid_namespace == pid_namespace;
    is_here && !pid_namespace.is_empty() && !process::exists(contact.pid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pid_is_looked_for_only_where_it_means_something() {
        let alive = Contact { pid: std::process::id(), ..crate::rendezvous::tests::contact() };
        let dead = Contact { pid: u32::MAX, ..alive.clone() };
        let (machine, namespace) = (alive.machine.clone(), alive.pid_namespace.clone());
        assert!(!is_dead_here(&alive, &machine, &namespace));
        assert!(is_dead_here(&dead, &machine, &namespace));
        assert!(!is_dead_here(&dead, "another", &namespace));
        assert!(!is_dead_here(&dead, &machine, "pid:[2]"), "a container beside us");
        let unknown = Contact { pid_namespace: String::new(), ..dead };
        assert!(!is_dead_here(&unknown, &machine, ""));
    }
}
