//! A member's side: connect, prove the key, offer, and keep the connection.

use super::endpoints;
use super::message::{Columns, ToLeader, ToMember};
use super::wire::{self, Reader, WireError, Writer};
use super::{Contact, JoinRequest, Key, RendezvousError, Wait, socket_addresses};
use crate::clock;
use crate::event::RunEvent;
use crate::names::Names;
use crate::outcome::Farewell;
use crate::plan::Plan;
use crate::trace::OrLog;
use std::cell::Cell;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// The leader says something at least this often; three times that in silence and it is lost.
pub(super) const HEARTBEAT: Duration = Duration::from_secs(5);

/// A leader that says nothing for this long is worth a word: it says something more often.
const SILENCE: Duration = Duration::from_secs(6);
/// How long the leader's word is waited for beyond our own limit.
const LAST_WORD: Duration = Duration::from_secs(2);

/// A connection to the leader, after it has taken our offer.
#[derive(Debug)]
pub struct Link {
    pub(crate) rank: u32,
    /// The leader's own rank; a launcher has none.
    pub(crate) leader: Option<u32>,
    world: u32,
    /// The leader's process and host, for people.
    contact: String,
    /// When something was last heard.
    heard: Rc<Cell<Instant>>,
    incoming: mpsc::Receiver<Result<ToMember, WireError>>,
    outgoing: mpsc::UnboundedSender<ToLeader>,
    /// Ends when the last word has left.
    writes: JoinHandle<()>,
}

/// What a leader says to an offer.
#[derive(Debug)]
pub(super) enum Answer {
    Welcome(Link),
    /// An earlier attempt still runs; its end will be told on this connection.
    Later(Link),
}

impl Link {
    /// Connects and offers. Unreachable and broken are told apart from refused.
    pub(super) async fn join(
        contact: &Contact,
        join_request: &JoinRequest,
    ) -> Result<Answer, RendezvousError> {
        let key = join_request
            .key
            .clone()
            .or_else(|| contact.key.as_deref().and_then(Key::from_hex))
            .ok_or_else(|| RendezvousError::NoKey { address: contact.host.clone() })?;
        let own: Vec<IpAddr> =
            join_request.offer.addresses.iter().filter_map(|address| address.parse().ok()).collect();
        let addresses = socket_addresses(contact, &join_request.offer.machine, &own);
        let offer = |local: IpAddr| {
            let mut offer = join_request.offer.clone();
            endpoints::proved_first(&mut offer, local);
            ToLeader::Offer(offer)
        };
        let (mut reader, writer) = wire::reach(&addresses, &key, offer).await?;
        let answer = clock::timeout(wire::HANDSHAKE_LIMIT, reader.read())
            .await
            .ok_or(WireError::Silent(wire::HANDSHAKE_LIMIT))??;
        match answer {
            ToMember::Welcome { rank, leader } if rank.max(leader.unwrap_or(0)) < join_request.world => Ok(
                Answer::Welcome(Link::new(rank, leader, join_request.world, contact.who(), reader, writer)),
            ),
            ToMember::Later => Ok(Answer::Later(Link::new(
                u32::MAX,
                None,
                join_request.world,
                contact.who(),
                reader,
                writer,
            ))),
            ToMember::Refused { why } => Err(RendezvousError::Refused { why }),
            other => Err(WireError::Nonsense(format!("{other:?} is no answer to an offer")).into()),
        }
    }

    fn new(
        rank: u32,
        leader: Option<u32>,
        world: u32,
        contact: String,
        mut reader: Reader,
        mut writer: Writer,
    ) -> Link {
        let heard = Rc::new(Cell::new(clock::now()));
        let last = heard.clone();
        let (to_us, incoming) = mpsc::channel(64);
        // Few, and none may wait: a leader that does not read would hold up what ends the member.
        let (outgoing, mut from_us) = mpsc::unbounded_channel::<ToLeader>();
        tokio::task::spawn_local(async move {
            loop {
                let message = clock::timeout(HEARTBEAT * 3, reader.read::<ToMember>()).await;
                last.set(if message.is_some() { clock::now() } else { last.get() });
                let message = match message {
                    Some(Ok(ToMember::Alive)) => continue,
                    Some(message) => message,
                    None => Err(WireError::Silent(HEARTBEAT * 3)),
                };
                let ended = message.is_err();
                if to_us.send(message).await.is_err() || ended {
                    return;
                }
            }
        });
        let writes = tokio::task::spawn_local(async move {
            loop {
                let message = match tokio::time::timeout(HEARTBEAT, from_us.recv()).await {
                    Ok(Some(message)) => message,
                    Ok(None) => return,
                    Err(_) => ToLeader::Alive,
                };
                if writer.write(&message).await.is_err() {
                    return;
                }
            }
        });
        Link { rank, leader, world, contact, heard, incoming, outgoing, writes }
    }

    /// The leader's next word; an error means that it is lost.
    pub(crate) async fn receive(&mut self) -> Result<ToMember, WireError> {
        self.incoming.recv().await.unwrap_or(Err(WireError::Closed))
    }

    /// Says something without waiting; a connection that is gone is noticed by [`Link::receive`].
    pub(crate) fn send(&self, message: ToLeader) {
        self.outgoing.send(message).or_log("a word to a leader that is gone");
    }

    /// Ends the connection. What is sent from now on goes nowhere.
    pub(crate) fn hang_up(&mut self) {
        self.outgoing = mpsc::unbounded_channel().0;
    }

    /// Tells that a signal has ended the wait, and hangs up when the word has left.
    pub(super) async fn leave(mut self, signal: i32) {
        self.send(ToLeader::Interrupted { signal });
        self.hang_up();
        _ = clock::timeout(LAST_WORD, self.writes).await;
    }

    /// Tells that this agent has failed before its member could start, and waits a moment for the leader's answer: the
    /// word has to leave before this process does.
    pub(crate) async fn fail(&mut self, code: u8, why: String) {
        self.send(ToLeader::Failed { code, why });
        let heard = async {
            loop {
                match self.receive().await {
                    Ok(ToMember::Stop { .. } | ToMember::Kill | ToMember::Goodbye { .. }) | Err(_) => return,
                    Ok(_) => {}
                }
            }
        };
        _ = clock::timeout(LAST_WORD, heard).await;
    }

    /// Waits for the end of an attempt that this member is not in: its exit code, and how it went.
    pub(super) async fn end(&mut self) -> Result<(u8, Farewell), WireError> {
        loop {
            if let ToMember::Goodbye { code, farewell } = self.receive().await? {
                return Ok((code, farewell));
            }
        }
    }

    /// Waits for the roster.
    ///
    /// The leader ends the meeting and tells all; its own limit may be a little later than ours.
    pub async fn roster(
        &mut self,
        plan: &Plan,
        wait: Wait,
        mut say: impl FnMut(RunEvent),
    ) -> Result<Columns, RendezvousError> {
        let until = wait.end() + LAST_WORD;
        let mut last = (1, self.world, "the leader has not told".to_owned());
        let mut next_word = clock::now() + SILENCE;
        loop {
            let now = clock::now();
            if now >= until {
                let (come, world, missing) = last;
                return Err(RendezvousError::Missing {
                    waited: wait.waited().as_secs(),
                    come,
                    world,
                    missing,
                });
            }
            let Some(heard) = clock::timeout(next_word.min(until) - now, self.receive()).await else {
                let silent = clock::now().saturating_duration_since(self.heard.get());
                if silent >= SILENCE {
                    let leader = self.contact.clone();
                    let waited = wait.so_far(clock::now());
                    say(RunEvent::LeaderSilent { leader, silent, waited });
                }
                next_word = clock::now() + SILENCE;
                continue;
            };
            match heard? {
                ToMember::Roster(columns) => return Ok(columns),
                ToMember::Waiting { come, world, missing, more } => {
                    let missing = Names::told(plan, &missing, more);
                    last = (come, world, missing.to_string());
                    let waited = wait.so_far(clock::now());
                    say(RunEvent::Waiting { come, world, missing: Some(missing), waited });
                }
                ToMember::Goodbye { code, farewell } => return Err(dismissed(code, farewell)),
                ToMember::Refused { why } => return Err(RendezvousError::Refused { why }),
                _ => {}
            }
            next_word = clock::now() + SILENCE;
        }
    }
}

/// The meeting is over without a roster: the leader says why.
pub(super) fn dismissed(code: u8, farewell: Farewell) -> RendezvousError {
    let summary = match farewell {
        Farewell::Error(error) => error,
        Farewell::Over { .. } => format!("the job has ended with exit code {code}"),
    };
    RendezvousError::Dismissed { code, summary }
}
