//! The leader's side: take offers until all have come, hand out the roster, keep the connections.

use super::connections::{self, Incoming, Remote};
use super::endpoints;
use super::message::{Columns, Offer, Seat, ToLeader, ToMember, VERSION};
use super::seal::Shared;
use super::seats::{Ended, Refusal, Seating, Seats, Verdict};
use super::{Contact, JoinRequest, Key, Remotes, RendezvousError, Wait};
use crate::clock;
use crate::event::RunEvent;
use crate::hint;
use crate::names::{Name, Names};
use crate::network::{own_addresses, pid_namespace};
use crate::outcome::Farewell;
use crate::plan::Plan;
use crate::process;
use std::net::IpAddr;
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::{mpsc, oneshot};

/// How often everyone is told who is missing.
const PROGRESS: Duration = Duration::from_secs(3);

/// How long the others may take to hang up after the goodbye.
const HANG_UP: Duration = Duration::from_secs(2);

/// An agent that listens for the others.
#[derive(Debug)]
pub struct Leader {
    incoming: mpsc::Receiver<Incoming>,
    join_request: JoinRequest,
    /// Who has come, and what follows from it.
    seats: Seats,
    /// The others' connections.
    remotes: Remotes,
    /// When the others were last told who is missing.
    told: Option<Instant>,
    /// The scheduler's answer to when it will end the job.
    deadline: Option<oneshot::Receiver<Option<SystemTime>>>,
    wait: Wait,
}

/// All have come.
#[derive(Debug)]
pub struct Gathered {
    /// This agent's own rank.
    pub(crate) rank: u32,
    /// The others, and what they said.
    pub met: Met,
}

/// Who has come, and what they said.
#[derive(Debug)]
pub struct Met {
    pub(crate) attempt: u32,
    /// When the scheduler will end the job, if it was asked.
    pub(crate) deadline: Option<SystemTime>,
    /// How often each rank was started before, where they are started apart.
    pub(crate) runs: Vec<u32>,
    /// Where each rank is.
    pub(crate) members: Vec<Seat>,
    /// The others' connections.
    pub remotes: Remotes,
    /// What they are still to be given.
    pub roster: Handout,
}

/// The roster as it goes out, encoded once for all. It is handed out when the leader itself is ready: nobody is to start a
/// member of a job that has failed already.
#[derive(Debug)]
pub struct Handout(Shared);

impl Leader {
    /// Listens on any port, for a step that is about to be started.
    pub(crate) async fn of_step(join_request: &JoinRequest) -> Result<(Contact, Leader), RendezvousError> {
        let listening = Leader::listen(join_request, Wait::begin(join_request.timeout), 0).await?;
        listening.ok_or_else(|| RendezvousError::Unreachable { reason: "no port is free".to_owned() })
    }

    /// Listens; `None` if the port that the place demands is taken.
    pub(super) async fn listen(
        join_request: &JoinRequest,
        wait: Wait,
        port: u16,
    ) -> Result<Option<(Contact, Leader)>, RendezvousError> {
        let listener = match connections::listen_on(join_request.listen, port) {
            Ok(listener) => listener,
            Err(error) if port != 0 && error.kind() == std::io::ErrorKind::AddrInUse => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let (key, published) = match &join_request.key {
            Some(key) => (key.clone(), None),
            None => {
                let key = Key::random()?;
                let text = key.to_hex();
                (key, Some(text))
            }
        };
        let id: String = super::key::random_bytes()?[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        let contact = Contact {
            version: VERSION,
            id,
            host: join_request.offer.host.clone(),
            machine: join_request.offer.machine.clone(),
            pid: join_request.offer.pid,
            pid_namespace: pid_namespace(),
            job: join_request.offer.job.clone(),
            attempt: join_request.offer.attempt,
            addresses: join_request.listen.map_or_else(own_addresses, |address| vec![address]),
            port: listener.local_addr()?.port(),
            key: published,
        };
        let (sender, incoming) = mpsc::channel(1024);
        tokio::task::spawn_local(connections::accept_all(listener, key, join_request.world, sender));
        let mut seats = seats_of(join_request, join_request.world, wait);
        if let Some(rank) = join_request.lost_leader {
            seats.gone(rank, clock::now());
        }
        let leader = Leader {
            incoming,
            seats,
            remotes: Remotes::default(),
            join_request: join_request.clone(),
            told: None,
            deadline: None,
            wait,
        };
        Ok(Some((contact, leader)))
    }

    /// Asks the scheduler when it will end the job, while the others come. It hears an answer within seconds.
    pub(crate) fn ask_deadline(&mut self, ask: impl FnOnce() -> Option<SystemTime> + Send + 'static) {
        let (tell, answer) = oneshot::channel();
        // Without a thread it stays unknown: nothing depends on it.
        if process::start_thread(std::thread::Builder::new(), move || _ = tell.send(ask())).is_ok() {
            self.deadline = Some(answer);
        }
    }

    /// Waits for everyone. `say` hears who has come and who is missing, and of strangers.
    pub async fn gather(
        &mut self,
        plan: &Plan,
        mut say: impl FnMut(RunEvent),
    ) -> Result<Gathered, RendezvousError> {
        let refused = |refusal: Refusal| RendezvousError::Refused { why: refusal.text(plan) };
        let rank = self.seats.take_own().map_err(refused)?;
        let met = self.gather_all(plan, &mut say).await?;
        Ok(Gathered { rank, met })
    }

    /// Waits for everyone of a step that this leader has started and is no member of.
    ///
    /// How many there are and who is who is what the first of them says: only the step itself knows its size.
    /// `plan_of` makes a plan of its roles, or says why it cannot.
    pub(crate) async fn gather_step(
        &mut self,
        plan_of: impl Fn(&str) -> Result<Plan, String>,
        mut say: impl FnMut(RunEvent),
    ) -> Result<(Plan, Met), RendezvousError> {
        let plan = loop {
            let (offer, remote) = self.first_offer(&mut say).await?;
            let plan = match plan_of(&offer.roles) {
                Ok(plan) => plan,
                Err(why) => {
                    say(RunEvent::Refused { peer: remote.peer.clone(), why: why.clone() });
                    remote.send(ToMember::Refused { why });
                    continue;
                }
            };
            self.join_request.offer.roles = offer.roles.clone();
            self.seats = seats_of(&self.join_request, plan.world(), self.wait);
            self.take(&plan, Incoming::Offer { offer, remote }, &mut say);
            break plan;
        };
        let met = self.gather_all(&plan, &mut say).await?;
        Ok((plan, met))
    }

    async fn first_offer(
        &mut self,
        say: &mut impl FnMut(RunEvent),
    ) -> Result<(Box<Offer>, Remote), RendezvousError> {
        let (world, limit) = (self.join_request.world, self.wait.limit());
        loop {
            let waited = self.wait.waited();
            if self.wait.is_over() {
                let waited = waited.as_secs();
                return Err(RendezvousError::Missing {
                    waited,
                    come: 0,
                    world,
                    missing: "all; the step has not come up yet".to_owned(),
                });
            }
            let pause = PROGRESS.min(limit.saturating_sub(waited));
            match clock::timeout(pause, self.incoming.recv()).await {
                None => {
                    let waited = self.wait.so_far(clock::now());
                    say(RunEvent::Waiting { come: 0, world, missing: None, waited });
                }
                Some(Some(Incoming::Offer { offer, remote })) => return Ok((offer, remote)),
                Some(Some(Incoming::Strangers(event))) => say(event),
                Some(Some(Incoming::Gone { .. } | Incoming::Message { .. })) => {}
                Some(None) => {
                    return Err(RendezvousError::Unreachable { reason: "the listener ended".to_owned() });
                }
            }
        }
    }

    async fn gather_all(
        &mut self,
        plan: &Plan,
        say: &mut impl FnMut(RunEvent),
    ) -> Result<Met, RendezvousError> {
        let mut next_word = clock::now();
        loop {
            let now = clock::now();
            match self.seats.verdict(now) {
                Verdict::Wait => {}
                Verdict::AllHaveCome => return self.complete().await,
                Verdict::Ended(why) => return Err(self.error(plan, why)),
            }
            if now >= next_word {
                let missing = self.seats.missing();
                self.tell(plan, &missing, say);
                next_word = now + PROGRESS;
            }
            let until = next_word.min(self.seats.due());
            let heard = clock::timeout(until.saturating_duration_since(now), self.incoming.recv()).await;
            let Some(heard) = heard else { continue };
            let ended = || RendezvousError::Unreachable { reason: "the listener ended".to_owned() };
            if self.take(plan, heard.ok_or_else(ended)?, say) {
                // Somebody came or went: say so soon, but not once for each of a thousand.
                next_word = next_word.min(clock::now() + Duration::from_millis(500));
            }
        }
    }

    /// What comes after the roster is out.
    pub(crate) async fn receive(&mut self) -> Option<Incoming> {
        self.incoming.recv().await
    }

    /// Whether an offer is for this job, whatever its attempt.
    pub(crate) fn is_for_this_job(&self, offer: &Offer) -> bool {
        let own = &self.join_request.offer;
        offer.version == own.version && offer.job == own.job && offer.roles == own.roles
    }

    /// The rank that the process of this offer has in the roster.
    pub(crate) fn rank_of(&self, offer: &Offer) -> Option<u32> {
        self.seats.rank_of(offer)
    }

    /// The meeting has ended before all had come.
    fn error(&self, plan: &Plan, ended: Ended) -> RendezvousError {
        let missing = self.seats.missing();
        let who = |rank: u32| plan.members()[rank as usize].to_string();
        match ended {
            Ended::Superseded => RendezvousError::Superseded,
            Ended::Failed { rank, code, why } => RendezvousError::MemberFailed { who: who(rank), code, why },
            Ended::Lost { rank, away } => RendezvousError::LostWhileWaiting {
                who: who(rank),
                waited: away.as_secs(),
                missing: Names::of(plan, &missing).to_string(),
            },
            Ended::Missing => RendezvousError::Missing {
                waited: self.wait.waited().as_secs(),
                come: plan.world() - missing.len() as u32,
                world: plan.world(),
                missing: Names::of(plan, &missing).to_string(),
            },
        }
    }

    fn tell(&mut self, plan: &Plan, missing: &[u32], say: &mut impl FnMut(RunEvent)) {
        let come = plan.world() - missing.len() as u32;
        let missing = Names::of(plan, missing);
        // The more there are, the seldomer: a word to ten thousand is ten thousand words.
        let now = clock::now();
        let pause = PROGRESS * (1 + plan.world() / 500);
        if self.told.is_none_or(|at| now.saturating_duration_since(at) > pause) {
            self.told = Some(now);
            for remote in self.remotes.values() {
                let (missing, more) = missing.to_tell();
                remote.send(ToMember::Waiting { come, world: plan.world(), missing, more });
            }
        }
        let waited = self.wait.so_far(now);
        say(RunEvent::Waiting { come, world: plan.world(), missing: Some(missing), waited });
    }

    /// True if somebody came or went.
    fn take(&mut self, plan: &Plan, incoming: Incoming, say: &mut impl FnMut(RunEvent)) -> bool {
        match incoming {
            Incoming::Offer { offer, remote } => self.seat(plan, *offer, remote, say),
            Incoming::Gone { connection, why } => {
                let Some(rank) = self.remotes.hang_up(connection) else { return false };
                self.seats.gone(rank, clock::now());
                plan.member(rank).into_iter().for_each(|member| {
                    say(RunEvent::LostWhileWaiting { member: Name::of(member), why: why.clone() });
                });
                true
            }
            Incoming::Strangers(event) => {
                say(event);
                false
            }
            Incoming::Message { connection, message: ToLeader::Failed { code, why } } => {
                if let Some(rank) = self.remotes.rank_of(connection) {
                    self.seats.failed(rank, code, why);
                }
                false
            }
            Incoming::Message { .. } => false,
        }
    }

    /// Tells the one that has offered itself what becomes of it; true if it has come.
    fn seat(&mut self, plan: &Plan, offer: Offer, remote: Remote, say: &mut impl FnMut(RunEvent)) -> bool {
        let rank = match self.seats.offer(offer) {
            Seating::Seated { rank } => rank,
            Seating::SeatedAgain { rank } => {
                if let Some(earlier) = self.remotes.remove(rank) {
                    let why = "this member was started again elsewhere".to_owned();
                    earlier.send(ToMember::Refused { why });
                }
                rank
            }
            Seating::Back { rank } => {
                // Nothing that comes over its earlier connection counts any more, not even its end.
                self.remotes.remove(rank);
                plan.member(rank).into_iter().for_each(|member| {
                    let why = "it has come back over another connection".to_owned();
                    say(RunEvent::LostWhileWaiting { member: Name::of(member), why });
                });
                rank
            }
            // The connection closes without a word, and it looks for the next leader.
            Seating::Superseded => return false,
            Seating::Refused(refusal) => {
                let why = refusal.text(plan);
                say(RunEvent::Refused { peer: remote.peer.clone(), why: why.clone() });
                remote.send(ToMember::Refused { why });
                return false;
            }
        };
        self.remotes.insert(rank, remote.clone());
        remote.send(ToMember::Welcome { rank, leader: self.seats.own() });
        plan.member(rank).into_iter().for_each(|member| say(RunEvent::Came { member: Name::of(member) }));
        true
    }

    /// Chooses addresses, writes the roster.
    async fn complete(&mut self) -> Result<Met, RendezvousError> {
        // Before anything is taken from its seat: a signal may still end the wait here.
        let deadline = match self.deadline.take() {
            Some(asked) => asked.await.ok().flatten(),
            None => None,
        };
        let offers = self.seats.offers();
        let machine = &self.join_request.offer.machine;
        // From this very machine anything can be reached.
        let from_elsewhere =
            self.remotes.iter().filter(|(rank, _)| offers[*rank as usize].machine != *machine);
        let reached: Vec<IpAddr> = from_elsewhere.map(|(_, remote)| remote.local).collect();
        let members = endpoints::seats(&offers, machine, &reached)?;
        let runs: Vec<u32> = offers.iter().map(|offer| offer.runs).collect();
        let attempt = attempt(self.join_request.offer.attempt, &runs);
        let seconds =
            deadline.and_then(|end| Some(end.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_secs()));
        let roster = ToMember::Roster(Columns { deadline: seconds, ..Columns::of(attempt, &members)? });
        let encoded = Shared::new(serde_json::to_vec(&roster).map_err(std::io::Error::from)?)?;
        let remotes = std::mem::take(&mut self.remotes);
        Ok(Met { attempt, deadline, runs, members, remotes, roster: Handout(encoded) })
    }

    /// Tells everyone who has come that it is over. Where members come back by themselves and this one
    /// had to leave, the others hear nothing: they meet again under another leader.
    pub(crate) async fn dismiss(&mut self, error: &RendezvousError, code: u8) {
        let leaves = matches!(error, RendezvousError::Interrupted(_) | RendezvousError::Superseded);
        if self.join_request.apart && leaves {
            return;
        }
        let remotes = std::mem::take(&mut self.remotes);
        self.say_goodbye(remotes, code, Farewell::Error(hint::in_full(error))).await;
    }

    /// Tells everyone how it ended, and waits a moment for them to hang up: the word has to leave before this process
    /// does.
    pub(crate) async fn say_goodbye(&mut self, mut remotes: Remotes, code: u8, farewell: Farewell) {
        for remote in remotes.values() {
            remote.send(ToMember::Goodbye { code, farewell: farewell.clone() });
        }
        let hang_up = async {
            while !remotes.is_empty() {
                match self.incoming.recv().await {
                    Some(Incoming::Gone { connection, .. }) => _ = remotes.hang_up(connection),
                    Some(_) => {}
                    None => return,
                }
            }
        };
        _ = clock::timeout(HANG_UP, hang_up).await;
    }
}

/// The seats of a meeting, all free.
fn seats_of(join_request: &JoinRequest, world: u32, wait: Wait) -> Seats {
    Seats::new(join_request.offer.clone(), world, join_request.rejoin, wait.end())
}

/// What all will call this attempt. Where members are started again apart from each other it is the sum of their runs, and
/// not the highest of them: a member that never heard the last roster comes with the count that it had then.
fn attempt(of_job: u32, runs: &[u32]) -> u32 {
    runs.iter().fold(of_job, |sum, runs| sum.saturating_add(*runs))
}

impl Handout {
    /// Everyone gets it, and starts its member.
    pub fn hand_out(&self, remotes: &Remotes) {
        remotes.values().for_each(|remote| remote.send_shared(self.0.clone()));
    }
}
#[cfg(test)]
mod tests;
