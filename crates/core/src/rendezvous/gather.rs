//! The leader's side: take offers until all have come, hand out the roster, keep the lines.

use super::lines::{self, Incoming, Remote};
use super::message::{Columns, Offer, ToMember, VERSION};
use super::{Contact, Introduction, Key, RendezvousError, describe, own_addresses};
use crate::outcome::name;
use crate::plan::Plan;
use crate::roster::Endpoint;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// How often everyone is told who is missing.
const PROGRESS: Duration = Duration::from_secs(3);

/// An agent that listens for the others.
#[derive(Debug)]
pub struct Leader {
    incoming: mpsc::Receiver<Incoming>,
    introduction: Introduction,
    seats: Vec<Option<Seat>>,
    /// How many seats are taken.
    seated: usize,
    /// Who was lost before all had come, and when.
    lost: BTreeMap<u32, Instant>,
    /// The leader's own rank; a launcher has none.
    own: Option<u32>,
    /// The scheduler has started this very member again, so this run of it is over.
    superseded: bool,
    /// When the others were last told who is missing.
    told: Option<Instant>,
    /// The scheduler's answer to when it will end the job.
    deadline: Option<JoinHandle<Option<SystemTime>>>,
    started: Instant,
}

#[derive(Debug)]
struct Seat {
    offer: Offer,
    /// `None` is the leader itself.
    remote: Option<Remote>,
}

/// All have come.
#[derive(Debug)]
pub struct Gathered {
    /// This agent's own rank.
    pub rank: u32,
    pub met: Met,
}

/// Who has come, and what they said.
#[derive(Debug)]
pub struct Met {
    pub attempt: u32,
    /// When the scheduler will end the job, if it was asked.
    pub deadline: Option<SystemTime>,
    /// How often each rank was started before, where they are started apart.
    pub runs: Vec<u32>,
    /// Host and endpoint a rank.
    pub members: Vec<(String, Endpoint)>,
    /// The others' lines, by rank.
    pub remotes: HashMap<u32, Remote>,
}

impl Leader {
    /// Listens on any port, for a step that is about to be started.
    pub(crate) async fn of_step(introduction: &Introduction) -> Result<(Contact, Leader), RendezvousError> {
        let listening = Leader::listen(introduction, 0).await?;
        listening.ok_or_else(|| RendezvousError::Unreachable { reason: "no port is free".to_owned() })
    }

    /// Listens; `None` if the port that the place demands is taken.
    pub(super) async fn listen(
        introduction: &Introduction,
        port: u16,
    ) -> Result<Option<(Contact, Leader)>, RendezvousError> {
        let listener = match lines::listen_on(port) {
            Ok(listener) => listener,
            Err(error) if port != 0 && error.kind() == std::io::ErrorKind::AddrInUse => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let (key, published) = match &introduction.key {
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
            host: introduction.offer.host.clone(),
            machine: introduction.offer.machine.clone(),
            pid: introduction.offer.pid,
            job: introduction.offer.job.clone(),
            attempt: introduction.offer.attempt,
            addresses: own_addresses(),
            port: listener.local_addr()?.port(),
            key: published,
        };
        let (sender, incoming) = mpsc::channel(1024);
        tokio::task::spawn_local(lines::accept_all(listener, key, introduction.world, sender));
        let leader = Leader {
            incoming,
            seats: (0..introduction.world).map(|_| None).collect(),
            seated: 0,
            introduction: introduction.clone(),
            lost: introduction.lost_leader.map(|rank| (rank, Instant::now())).into_iter().collect(),
            own: None,
            superseded: false,
            told: None,
            deadline: None,
            started: Instant::now(),
        };
        Ok(Some((contact, leader)))
    }

    /// Asks the scheduler when it will end the job, while the others come. It hears an answer within seconds.
    pub fn ask_deadline(&mut self, ask: impl FnOnce() -> Option<SystemTime> + Send + 'static) {
        self.deadline = Some(tokio::task::spawn_blocking(ask));
    }

    /// Waits for everyone. `say` hears who has come and who is missing, and of strangers.
    pub async fn gather(
        &mut self,
        plan: &Plan,
        mut say: impl FnMut(Progress),
    ) -> Result<Gathered, RendezvousError> {
        let own = self.introduction.offer.clone();
        let rank = self.seat(plan, own, None).map_err(|why| RendezvousError::Refused { why })?;
        self.own = Some(rank);
        let met = self.gather_all(plan, &mut say).await?;
        Ok(Gathered { rank, met })
    }

    /// Waits for everyone of a step that this leader has started and is no member of.
    ///
    /// How many there are and who is who is what the first of them says: only the step itself knows its size.
    /// `plan_of` makes a plan of its roles, or says why it cannot.
    pub async fn gather_step(
        &mut self,
        plan_of: impl Fn(&str) -> Result<Plan, String>,
        mut say: impl FnMut(Option<&Plan>, Progress),
    ) -> Result<(Plan, Met), RendezvousError> {
        let plan = loop {
            let (offer, remote) = self.first_offer(|progress| say(None, progress)).await?;
            let plan = match plan_of(&offer.roles) {
                Ok(plan) => plan,
                Err(why) => {
                    say(None, Progress::Refused { peer: remote.peer.clone(), why: why.clone() });
                    remote.send(ToMember::Refused { why });
                    continue;
                }
            };
            self.introduction.offer.roles = offer.roles.clone();
            self.seats = plan.members.iter().map(|_| None).collect();
            self.take(&plan, Incoming::Offer { offer, remote }, &mut |progress| say(Some(&plan), progress));
            break plan;
        };
        let met = self.gather_all(&plan, &mut |progress| say(Some(&plan), progress)).await?;
        Ok((plan, met))
    }

    async fn first_offer(
        &mut self,
        mut say: impl FnMut(Progress),
    ) -> Result<(Box<Offer>, Remote), RendezvousError> {
        let (world, limit) = (self.introduction.world, self.introduction.timeout);
        loop {
            let waited = self.started.elapsed();
            let missing = || "all; the step has not come up yet".to_owned();
            if waited >= limit {
                let waited = waited.as_secs();
                return Err(RendezvousError::Missing { waited, come: 0, world, missing: missing() });
            }
            let pause = PROGRESS.min(limit - waited);
            match tokio::time::timeout(pause, self.incoming.recv()).await {
                Err(_) => say(Progress::Waiting { come: 0, world, missing: missing(), waited, limit }),
                Ok(Some(Incoming::Offer { offer, remote })) => return Ok((offer, remote)),
                Ok(Some(Incoming::Stranger { peer, why })) => say(Progress::Stranger { peer, why }),
                Ok(Some(Incoming::Gone { .. } | Incoming::Message { .. })) => {}
                Ok(None) => {
                    return Err(RendezvousError::Unreachable { reason: "the listener ended".to_owned() });
                }
            }
        }
    }

    async fn gather_all(
        &mut self,
        plan: &Plan,
        say: &mut impl FnMut(Progress),
    ) -> Result<Met, RendezvousError> {
        let mut next_word = Instant::now();
        loop {
            if self.seated == self.seats.len() {
                return self.complete().await;
            }
            let now = Instant::now();
            self.check_limits(plan, now)?;
            if now >= next_word {
                let missing = self.missing();
                self.tell(plan, &missing, say);
                next_word = now + PROGRESS;
            }
            let until = next_word.min(self.started + self.introduction.timeout).min(
                self.lost.values().map(|since| *since + self.introduction.rejoin).min().unwrap_or(next_word),
            );
            let wait = tokio::time::timeout_at(until.into(), self.incoming.recv()).await;
            match wait {
                Err(_) => {}
                Ok(None) => {
                    return Err(RendezvousError::Unreachable { reason: "the listener ended".to_owned() });
                }
                Ok(Some(incoming)) => {
                    if self.take(plan, incoming, say) {
                        // Somebody came or went: say so soon, but not once for each of a thousand.
                        next_word = next_word.min(Instant::now() + Duration::from_millis(500));
                    }
                }
            }
        }
    }

    /// What comes after the roster is out.
    pub async fn receive(&mut self) -> Option<Incoming> {
        self.incoming.recv().await
    }

    /// Whether an offer is for this job, whatever its attempt.
    pub fn is_for_this_job(&self, offer: &Offer) -> bool {
        let own = &self.introduction.offer;
        offer.version == own.version && offer.job == own.job && offer.roles == own.roles
    }

    fn missing(&self) -> Vec<u32> {
        self.seats
            .iter()
            .enumerate()
            .filter(|(_, seat)| seat.is_none())
            .map(|(rank, _)| rank as u32)
            .collect()
    }

    fn check_limits(&self, plan: &Plan, now: Instant) -> Result<(), RendezvousError> {
        if self.superseded {
            return Err(RendezvousError::Superseded);
        }
        let overdue = self.lost.iter().find(|(_, since)| now >= **since + self.introduction.rejoin);
        if let Some((&rank, since)) = overdue {
            return Err(RendezvousError::LostWhileWaiting {
                who: name(&plan.members[rank as usize]),
                waited: since.elapsed().as_secs(),
                missing: describe(plan, &self.missing()),
            });
        }
        if now >= self.started + self.introduction.timeout {
            return Err(RendezvousError::Missing {
                waited: self.started.elapsed().as_secs(),
                come: self.seated as u32,
                world: plan.world(),
                missing: describe(plan, &self.missing()),
            });
        }
        Ok(())
    }

    fn tell(&mut self, plan: &Plan, missing: &[u32], say: &mut impl FnMut(Progress)) {
        let come = plan.world() - missing.len() as u32;
        let text = describe(plan, missing);
        // The more there are, the seldomer: a word to ten thousand is ten thousand words.
        if self.told.is_none_or(|at| at.elapsed() > PROGRESS * (1 + plan.world() / 500)) {
            self.told = Some(Instant::now());
            for remote in self.remotes() {
                remote.send(ToMember::Waiting { come, world: plan.world(), missing: text.clone() });
            }
        }
        say(Progress::Waiting {
            come,
            world: plan.world(),
            missing: text,
            waited: self.started.elapsed(),
            limit: self.introduction.timeout,
        });
    }

    fn remotes(&self) -> impl Iterator<Item = &Remote> {
        self.seats.iter().flatten().filter_map(|seat| seat.remote.as_ref())
    }

    /// True if somebody came or went.
    fn take(&mut self, plan: &Plan, incoming: Incoming, say: &mut impl FnMut(Progress)) -> bool {
        match incoming {
            Incoming::Offer { offer, remote } => match self.seat(plan, *offer, Some(remote.clone())) {
                Ok(rank) => {
                    remote.send(ToMember::Welcome { rank, leader: self.own });
                    say(Progress::Came { rank });
                    true
                }
                // The line closes without a word, and it looks for the next leader.
                Err(_) if self.superseded => false,
                Err(why) => {
                    say(Progress::Refused { peer: remote.peer.clone(), why: why.clone() });
                    remote.send(ToMember::Refused { why });
                    false
                }
            },
            Incoming::Gone { connection, why } => {
                let seat = self.seats.iter().position(|seat| {
                    seat.as_ref()
                        .and_then(|seat| seat.remote.as_ref())
                        .is_some_and(|r| r.connection == connection)
                });
                let Some(rank) = seat else { return false };
                self.seats[rank] = None;
                self.seated -= 1;
                self.lost.insert(rank as u32, Instant::now());
                say(Progress::Lost { rank: rank as u32, why });
                true
            }
            Incoming::Stranger { peer, why } => {
                say(Progress::Stranger { peer, why });
                false
            }
            Incoming::Message { .. } => false,
        }
    }

    /// Gives an offer its seat, or says why not.
    fn seat(&mut self, plan: &Plan, offer: Offer, remote: Option<Remote>) -> Result<u32, String> {
        let own = &self.introduction.offer;
        if offer.version != VERSION {
            return Err(format!(
                "its protocol is version {}, ours {VERSION}; use the same rallypoint everywhere",
                offer.version
            ));
        }
        if offer.job != own.job || offer.attempt != own.attempt {
            return Err(format!(
                "it belongs to job {} attempt {}, this is job {} attempt {}",
                offer.job.as_deref().unwrap_or("none"),
                offer.attempt,
                own.job.as_deref().unwrap_or("none"),
                own.attempt
            ));
        }
        if offer.roles != own.roles {
            return Err(format!(
                "it was asked for {}, the leader for {}; give all the same roles",
                offer.roles, own.roles
            ));
        }
        let rank = match offer.rank {
            Some(rank) if rank >= plan.world() => {
                return Err(format!("rank {rank} does not exist among {}", plan.world()));
            }
            Some(rank) => rank,
            None => match self.seats.iter().position(Option::is_none) {
                Some(rank) => rank as u32,
                None => return Err(format!("all {} members have come already", plan.world())),
            },
        };
        match &self.seats[rank as usize] {
            // A scheduler that started it again knows that the earlier run is over; its line may not.
            Some(Seat { offer: taken, remote: earlier }) if offer.runs > taken.runs => match earlier {
                Some(earlier) => {
                    let why = "this member was started again elsewhere".to_owned();
                    earlier.send(ToMember::Refused { why });
                    self.seated -= 1;
                }
                None => {
                    self.superseded = true;
                    return Err(RendezvousError::Superseded.to_string());
                }
            },
            Some(Seat { offer: taken, .. }) => {
                return Err(format!(
                    "rank {rank} ({}) is taken by pid {} on {}",
                    name(&plan.members[rank as usize]),
                    taken.pid,
                    taken.host
                ));
            }
            None => {}
        }
        self.lost.remove(&rank);
        self.seats[rank as usize] = Some(Seat { offer, remote });
        self.seated += 1;
        Ok(rank)
    }

    /// Chooses addresses, hands out the roster.
    async fn complete(&mut self) -> Result<Met, RendezvousError> {
        // Before anything is taken from its seat: a signal may still end the wait here.
        let deadline = match self.deadline.take() {
            Some(asked) => asked.await.ok().flatten(),
            None => None,
        };
        let seats: Vec<Seat> = self.seats.iter_mut().filter_map(Option::take).collect();
        let one_machine = seats.iter().all(|seat| seat.offer.machine == seats[0].offer.machine);
        let mut members = Vec::with_capacity(seats.len());
        for seat in &seats {
            let offer = &seat.offer;
            let address = if one_machine && !offer.chosen {
                "127.0.0.1".to_owned()
            } else {
                let usable = offer.addresses.iter().find(|address| offer.chosen || !is_loopback(address));
                usable.cloned().ok_or(RendezvousError::NoAddress)?
            };
            members.push((offer.host.clone(), Endpoint { address, port: offer.port }));
        }
        let runs: Vec<u32> = seats.iter().map(|seat| seat.offer.runs).collect();
        let attempt = self.introduction.offer.attempt + runs.iter().max().copied().unwrap_or(0);
        let seconds =
            deadline.and_then(|end| Some(end.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_secs()));
        let roster = ToMember::Roster(Columns { deadline: seconds, ..Columns::of(attempt, &members)? });
        let encoded: Arc<[u8]> = serde_json::to_vec(&roster).map_err(std::io::Error::from)?.into();
        let mut remotes = HashMap::new();
        for (rank, seat) in seats.into_iter().enumerate() {
            if let Some(remote) = seat.remote {
                remote.send_encoded(encoded.clone());
                remotes.insert(rank as u32, remote);
            }
        }
        Ok(Met { attempt, deadline, runs, members, remotes })
    }

    /// Tells everyone who has come that it is over. Where members come back by themselves and this one
    /// had to leave, the others hear nothing: they meet again under another leader.
    pub async fn dismiss(&self, error: &RendezvousError, code: u8) {
        let leaves = matches!(error, RendezvousError::Interrupted(_) | RendezvousError::Superseded);
        if self.introduction.apart && leaves {
            return;
        }
        for remote in self.remotes() {
            remote.send(ToMember::Goodbye { code, summary: vec![error.to_string()] });
        }
        // The word has to leave before this process does.
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// What a leader has to tell while it waits.
#[derive(Debug, Clone, PartialEq)]
pub enum Progress {
    Waiting {
        come: u32,
        world: u32,
        missing: String,
        waited: Duration,
        limit: Duration,
    },
    Came {
        rank: u32,
    },
    Lost {
        rank: u32,
        why: String,
    },
    Stranger {
        peer: String,
        why: String,
    },
    /// One of ours that does not fit.
    Refused {
        peer: String,
        why: String,
    },
}

fn is_loopback(address: &str) -> bool {
    address == "localhost" || address.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}
