//! A member's side: connect, prove the key, offer, and keep the line.

use super::message::{Columns, ToLeader, ToMember};
use super::wire::{self, Reader, WireError, Writer};
use super::{Contact, Introduction, Key, RendezvousError, socket_addresses};
use std::time::Duration;
use tokio::sync::mpsc;

/// The leader says something at least this often; three times that in silence and it is lost.
pub(super) const HEARTBEAT: Duration = Duration::from_secs(5);

/// A line to the leader, after it has taken our offer.
#[derive(Debug)]
pub struct Link {
    pub rank: u32,
    /// The leader's own rank; a launcher has none.
    pub leader: Option<u32>,
    incoming: mpsc::Receiver<Result<ToMember, WireError>>,
    outgoing: mpsc::Sender<ToLeader>,
}

/// What a leader says to an offer.
#[derive(Debug)]
pub(super) enum Answer {
    Welcome(Link),
    /// An earlier attempt still runs; its end will be told on this line.
    Later {
        why: String,
        link: Link,
    },
}

impl Link {
    /// Connects and offers. Unreachable and broken are told apart from refused.
    pub(super) async fn join(
        contact: &Contact,
        introduction: &Introduction,
    ) -> Result<Answer, RendezvousError> {
        let key = introduction
            .key
            .clone()
            .or_else(|| contact.key.as_deref().and_then(Key::from_hex))
            .ok_or_else(|| RendezvousError::NoKey { address: contact.host.clone() })?;
        let stream = wire::connect(&socket_addresses(contact, &introduction.offer.machine)).await?;
        let local = stream.local_addr()?.ip();
        let (mut reader, mut writer) = wire::join(stream, &key).await?;
        let mut offer = introduction.offer.clone();
        // The address by which the leader sees us is known to work; a choice of the user stays first.
        if !local.is_loopback() && !offer.addresses.contains(&local.to_string()) {
            offer.addresses.push(local.to_string());
        }
        writer.write(&ToLeader::Offer(offer)).await?;
        let answer = tokio::time::timeout(wire::HANDSHAKE_LIMIT, reader.read())
            .await
            .map_err(|_| WireError::Silent(wire::HANDSHAKE_LIMIT))??;
        match answer {
            ToMember::Welcome { rank, leader } if rank.max(leader.unwrap_or(0)) < introduction.world => {
                Ok(Answer::Welcome(Link::new(rank, leader, reader, writer)))
            }
            ToMember::Later { why } => {
                Ok(Answer::Later { why, link: Link::new(u32::MAX, None, reader, writer) })
            }
            ToMember::Refused { why } => Err(RendezvousError::Refused { why }),
            other => Err(WireError::Nonsense(format!("{other:?} is no answer to an offer")).into()),
        }
    }

    fn new(rank: u32, leader: Option<u32>, mut reader: Reader, mut writer: Writer) -> Link {
        let (to_us, incoming) = mpsc::channel(64);
        let (outgoing, mut from_us) = mpsc::channel::<ToLeader>(64);
        tokio::task::spawn_local(async move {
            loop {
                let message = match tokio::time::timeout(HEARTBEAT * 3, reader.read::<ToMember>()).await {
                    Ok(Ok(ToMember::Alive)) => continue,
                    Ok(message) => message,
                    Err(_) => Err(WireError::Silent(HEARTBEAT * 3)),
                };
                let ended = message.is_err();
                if to_us.send(message).await.is_err() || ended {
                    return;
                }
            }
        });
        tokio::task::spawn_local(async move {
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
        Link { rank, leader, incoming, outgoing }
    }

    /// The leader's next word; an error means that it is lost.
    pub async fn receive(&mut self) -> Result<ToMember, WireError> {
        self.incoming.recv().await.unwrap_or(Err(WireError::Closed))
    }

    /// Says something; a line that is gone is noticed by [`Link::receive`].
    pub async fn send(&self, message: ToLeader) {
        _ = self.outgoing.send(message).await;
    }

    /// Waits for the end of an attempt that this member is not in: its exit code, and how it went.
    pub(super) async fn end(&mut self) -> Result<(u8, Vec<String>), WireError> {
        loop {
            if let ToMember::Goodbye { code, summary } = self.receive().await? {
                return Ok((code, summary));
            }
        }
    }

    /// Waits for the roster.
    pub async fn roster(&mut self, mut say: impl FnMut(u32, u32, &str)) -> Result<Columns, RendezvousError> {
        loop {
            match self.receive().await? {
                ToMember::Roster(columns) => return Ok(columns),
                ToMember::Waiting { come, world, missing } => say(come, world, &missing),
                ToMember::Goodbye { summary, .. } => {
                    return Err(RendezvousError::Refused { why: summary.join("; ") });
                }
                ToMember::Refused { why } => return Err(RendezvousError::Refused { why }),
                _ => {}
            }
        }
    }
}
