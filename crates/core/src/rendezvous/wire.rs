//! The authenticated and encrypted connection between two agents.
//!
//! Both sides first prove that they know the job's key, with fresh random numbers from each, before anything else is
//! read. Then every frame is sealed ([`Seal`]) under a key of this connection and this direction alone.
//!
//! ```text
//! joiner -> leader   "RALLYPT4" nonce(32)
//! leader -> joiner   "RALLYPT4" nonce(32)
//! joiner -> leader   mac(32), and at once its first frame, the offer
//! leader -> joiner   1 mac(32) (welcome) and at once its first frame, or 0 (wrong key)
//! then both ways     length(4) sealed content, tag(16)
//! or to the member   length(4, highest bit set) sealed key(32), tag(16), content sealed under that key, tag(16)
//! ```
//!
//! The joiner proves first: whoever connects to a leader without the key gets random numbers and a no.

use super::RendezvousError;
use super::key::{Key, random_bytes};
use super::message::ToLeader;
use super::seal::{Broken, Direction, Seal, Shared, TAG};
use crate::clock;
use crate::hint;
use crate::hint::{Hint, Hinted};
use crate::network::{OwnedReadHalf, OwnedWriteHalf, TcpStream};
use crate::trace::OrLog;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};

const MAGIC: &[u8; 8] = b"RALLYPT4";
/// What the magic of every version begins with.
const ANY_VERSION: &[u8] = b"RALLYPT";

/// A peer that does not speak within this is a stranger.
pub(super) const HANDSHAKE_LIMIT: Duration = Duration::from_secs(5);

/// How long one that is turned away may take to hear it.
const LAST_BYTES: Duration = Duration::from_secs(1);

/// An address that does not take a connection within this is not reachable.
const CONNECT_LIMIT: Duration = Duration::from_secs(3);

/// The largest message to a leader: an offer, or the last words of a program.
pub(super) const MAX_TO_LEADER: usize = 256 << 10;
/// The largest message to a member: a roster.
pub(super) const MAX_TO_MEMBER: usize = 64 << 20;

/// Why a peer is not to be talked to.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// The first bytes are not those of any version, or it hung up before it sent them.
    #[error("it did not say what a rallypoint says")]
    NotRallypoint,
    /// The first bytes are those of another version.
    #[error("it is a rallypoint of another version")]
    OtherVersion,
    /// Its proof is not one that the job's key gives, or ours is not one that its key gives.
    #[error("it has another key")]
    WrongKey,
    /// Nothing came for this long.
    #[error("it said nothing for {} s", .0.as_secs())]
    Silent(Duration),
    /// The length of a frame is beyond what its reader takes.
    #[error("it sent a frame of {size} bytes, and {limit} are the most")]
    TooLarge {
        /// The frame's length, as it was announced.
        size: usize,
        /// The most that is taken: 256 KiB to a leader, 64 MiB to a member.
        limit: usize,
    },
    /// A frame's seal does not fit its content, its direction or its number.
    #[error("a frame was changed, repeated or out of order")]
    BadSeal,
    /// A frame is no message, or none that may come now; what it was.
    #[error("a frame could not be understood: {0}")]
    Nonsense(String),
    /// The other side has closed the connection, or its process has ended.
    #[error("the connection was closed")]
    Closed,
    /// The system's error, for any other end of the connection.
    #[error("the connection broke: {0}")]
    Broken(std::io::Error),
}

impl Hinted for WireError {
    fn hint(&self) -> Option<Hint> {
        match self {
            WireError::OtherVersion => Some(hint!("use the same one everywhere")),
            WireError::NotRallypoint
            | WireError::WrongKey
            | WireError::Silent(_)
            | WireError::TooLarge { .. }
            | WireError::BadSeal
            | WireError::Nonsense(_)
            | WireError::Closed
            | WireError::Broken(_) => None,
        }
    }
}

impl From<std::io::Error> for WireError {
    fn from(error: std::io::Error) -> WireError {
        match error.kind() {
            std::io::ErrorKind::UnexpectedEof
            | std::io::ErrorKind::ConnectionReset
            | std::io::ErrorKind::BrokenPipe => WireError::Closed,
            _ => WireError::Broken(error),
        }
    }
}

/// In a frame's length: what it has is sealed for many, under a key that comes first.
const FOR_MANY: u32 = 1 << 31;

/// What is sealed for many, and at most this long, is copied behind its key.
const COPIED: usize = 16 << 10;

/// What is read ahead: most messages fit, so that a frame takes one call of the system instead of three. A leader has one of
/// these per member.
const READ_AHEAD: usize = 1 << 10;

/// One direction's reading end.
#[derive(Debug)]
pub(super) struct Reader<R = OwnedReadHalf> {
    stream: BufReader<R>,
    seal: Seal,
    limit: usize,
}

/// One direction's writing end.
#[derive(Debug)]
pub(super) struct Writer<W = OwnedWriteHalf> {
    stream: W,
    /// What goes out with the first frame.
    unsent: Vec<u8>,
    seal: Seal,
}

/// The greeting of either side: the magic, and a fresh random number.
fn greeting() -> Result<([u8; 40], [u8; 32]), WireError> {
    let nonce = random_bytes().map_err(|error| WireError::Broken(std::io::Error::other(error)))?;
    let mut greeting = [0; 40];
    greeting[..8].copy_from_slice(MAGIC);
    greeting[8..].copy_from_slice(&nonce);
    Ok((greeting, nonce))
}

/// The other side's random number.
async fn read_greeting(reader: &mut BufReader<OwnedReadHalf>) -> Result<[u8; 32], WireError> {
    let mut magic = [0; 8];
    reader.read_exact(&mut magic).await?;
    match &magic {
        MAGIC => {}
        other if other.starts_with(ANY_VERSION) => return Err(WireError::OtherVersion),
        _ => return Err(WireError::NotRallypoint),
    }
    let mut nonce = [0; 32];
    reader.read_exact(&mut nonce).await?;
    Ok(nonce)
}

/// The leader's side: wants the key proved before it proves it. Its own proof goes out with its first frame, the answer to
/// the offer. Of one with another key `tell` is told at once; the answer to it may take a moment more.
pub(super) async fn accept(
    stream: TcpStream,
    key: &Key,
    tell: impl FnOnce(&WireError),
) -> Result<(Reader, Writer), WireError> {
    stream.set_nodelay(true).or_log("small messages may be late");
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::with_capacity(READ_AHEAD, reader);
    let (session, welcome) = clock::timeout(HANDSHAKE_LIMIT, async {
        let theirs = read_greeting(&mut reader).await.map_err(|error| match error {
            WireError::Closed => WireError::NotRallypoint,
            other => other,
        })?;
        let (greeting, ours) = greeting()?;
        writer.write_all(&greeting).await?;
        let mut proof = [0; 32];
        reader.read_exact(&mut proof).await?;
        if key.mac(b"joiner", &[&ours, &theirs]) != proof {
            tell(&WireError::WrongKey);
            refuse(&mut reader, &mut writer).await;
            return Err(WireError::WrongKey);
        }
        let mut welcome = [1; 33];
        welcome[1..].copy_from_slice(key.mac(b"leader", &[&theirs, &ours]).as_bytes());
        Ok((key.derive(&[&theirs, &ours]), welcome))
    })
    .await
    .ok_or(WireError::Silent(HANDSHAKE_LIMIT))??;
    let (to_leader, to_member) = seals(&session);
    Ok((
        Reader { stream: reader, seal: to_leader, limit: MAX_TO_LEADER },
        Writer { stream: writer, unsent: welcome.to_vec(), seal: to_member },
    ))
}

/// Says no, and takes what the other has sent already: who closes a connection with unread bytes takes back its last word.
async fn refuse(reader: &mut BufReader<OwnedReadHalf>, writer: &mut OwnedWriteHalf) {
    let said = async {
        writer.write_all(&[0]).await?;
        writer.shutdown().await?;
        tokio::io::copy(&mut reader.take(MAX_TO_LEADER as u64), &mut tokio::io::sink()).await
    };
    _ = clock::timeout(LAST_BYTES, said).await;
}

/// The joiner's side: proves first. Its first frame goes with the proof, since nobody without the key can open it, and is
/// read when the leader has proved itself too.
pub(super) async fn join(
    stream: TcpStream,
    key: &Key,
    first: &ToLeader,
) -> Result<(Reader, Writer), WireError> {
    stream.set_nodelay(true).or_log("small messages may be late");
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::with_capacity(READ_AHEAD, reader);
    let (to_leader, to_member) = clock::timeout(HANDSHAKE_LIMIT, async {
        let (greeting, ours) = greeting()?;
        writer.write_all(&greeting).await?;
        let theirs = read_greeting(&mut reader).await?;
        let (mut to_leader, to_member) = seals(&key.derive(&[&ours, &theirs]));
        let mut proof = key.mac(b"joiner", &[&theirs, &ours]).as_bytes().to_vec();
        proof.append(&mut sealed(&encoded(first)?, &mut to_leader)?);
        writer.write_all(&proof).await?;
        if reader.read_u8().await? != 1 {
            return Err(WireError::WrongKey);
        }
        let mut proof = [0; 32];
        reader.read_exact(&mut proof).await?;
        match key.mac(b"leader", &[&ours, &theirs]) == proof {
            true => Ok((to_leader, to_member)),
            false => Err(WireError::WrongKey),
        }
    })
    .await
    .ok_or(WireError::Silent(HANDSHAKE_LIMIT))??;
    Ok((
        Reader { stream: reader, seal: to_member, limit: MAX_TO_MEMBER },
        Writer { stream: writer, unsent: Vec::new(), seal: to_leader },
    ))
}

/// Of frames to the leader, and of frames to the member.
fn seals(session: &Key) -> (Seal, Seal) {
    (Seal::new(session, Direction::ToLeader), Seal::new(session, Direction::ToMember))
}

impl<R: AsyncRead + Unpin> Reader<R> {
    /// The next message. Cancelling it in the middle of a frame ends the connection.
    pub(super) async fn read<T: DeserializeOwned>(&mut self) -> Result<T, WireError> {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length).await?;
        let told = u32::from_be_bytes(length);
        let size = (told & !FOR_MANY) as usize;
        if size > self.limit + TAG {
            return Err(WireError::TooLarge { size, limit: self.limit });
        }
        // Grows with what arrives: a liar's length alone takes no memory.
        let mut content = Vec::with_capacity(size.min(64 << 10));
        (&mut self.stream).take(size as u64).read_to_end(&mut content).await?;
        if content.len() < size {
            return Err(WireError::Closed);
        }
        let opened = match told & FOR_MANY {
            0 => self.seal.open(length, &mut content),
            _ => self.open_for_many(length, &mut content),
        };
        opened.map_err(|Broken| WireError::BadSeal)?;
        serde_json::from_slice(&content).map_err(|error| WireError::Nonsense(error.to_string()))
    }
}

impl<R> Reader<R> {
    /// First the key, which is for this connection, then the content.
    fn open_for_many(&mut self, length: [u8; 4], content: &mut Vec<u8>) -> Result<(), Broken> {
        if content.len() < 32 + TAG {
            return Err(Broken);
        }
        let shared = content.split_off(32 + TAG);
        self.seal.open(length, content)?;
        let key: [u8; 32] = content.as_slice().try_into().map_err(|_| Broken)?;
        *content = shared;
        Shared::open(&key, content)
    }
}

impl<W: AsyncWrite + Unpin> Writer<W> {
    pub(super) async fn write<T: Serialize>(&mut self, message: &T) -> Result<(), WireError> {
        self.write_encoded(&encoded(message)?).await
    }

    pub(super) async fn write_encoded(&mut self, content: &[u8]) -> Result<(), WireError> {
        let mut bytes = std::mem::take(&mut self.unsent);
        bytes.append(&mut sealed(content, &mut self.seal)?);
        self.stream.write_all(&bytes).await?;
        Ok(())
    }

    /// A message that was encoded and sealed once for many.
    pub(super) async fn write_shared(&mut self, shared: &Shared) -> Result<(), WireError> {
        let length = frame_length(32 + TAG + shared.sealed.len())? | FOR_MANY;
        let mut frame = Vec::with_capacity(4 + 32 + TAG);
        frame.extend_from_slice(&length.to_be_bytes());
        frame.extend_from_slice(shared.key.bytes());
        self.seal.close(&mut frame).map_err(|Broken| WireError::BadSeal)?;
        let mut head = std::mem::take(&mut self.unsent);
        head.append(&mut frame);
        // A call of the system costs more than to copy a few bytes.
        if shared.sealed.len() <= COPIED {
            head.extend_from_slice(&shared.sealed);
            self.stream.write_all(&head).await?;
        } else {
            self.stream.write_all(&head).await?;
            self.stream.write_all(&shared.sealed).await?;
        }
        Ok(())
    }
}

fn encoded<T: Serialize>(message: &T) -> Result<Vec<u8>, WireError> {
    serde_json::to_vec(message).map_err(|error| WireError::Nonsense(error.to_string()))
}

/// A whole frame.
fn sealed(content: &[u8], seal: &mut Seal) -> Result<Vec<u8>, WireError> {
    let length = frame_length(content.len() + TAG)?;
    let mut frame = Vec::with_capacity(4 + content.len() + TAG);
    frame.extend_from_slice(&length.to_be_bytes());
    frame.extend_from_slice(content);
    seal.close(&mut frame).map_err(|Broken| WireError::BadSeal)?;
    Ok(frame)
}

/// What a frame may have at most.
fn frame_length(size: usize) -> Result<u32, WireError> {
    match u32::try_from(size) {
        Ok(length) if size <= MAX_TO_MEMBER + TAG => Ok(length),
        _ => Err(WireError::TooLarge { size, limit: MAX_TO_MEMBER }),
    }
}

/// Tries a leader's addresses one after the other, until one proves the key: at the others there may be somebody else.
/// `first` makes the first frame, given our own address by which the leader is reached.
pub(super) async fn reach(
    addresses: &[SocketAddr],
    key: &Key,
    first: impl Fn(IpAddr) -> ToLeader,
) -> Result<(Reader, Writer), RendezvousError> {
    let mut worst = RendezvousError::Unreachable { reason: "it named no address".to_owned() };
    for address in addresses {
        let unreachable =
            |reason: String| RendezvousError::Unreachable { reason: format!("{address}: {reason}") };
        let error = match clock::timeout(CONNECT_LIMIT, TcpStream::connect(address)).await {
            Some(Ok(stream)) => {
                let local = stream.local_addr()?.ip().to_canonical();
                match join(stream, key, &first(local)).await {
                    Ok(joined) => return Ok(joined),
                    Err(error) => error.into(),
                }
            }
            Some(Err(error)) => unreachable(error.to_string()),
            None => unreachable(format!("no answer within {} s", CONNECT_LIMIT.as_secs())),
        };
        if weight(&error) >= weight(&worst) {
            worst = error;
        }
    }
    Err(worst)
}

/// What tells most of several errors: one that takes connections and says nothing may be the leader, suspended.
fn weight(error: &RendezvousError) -> u8 {
    match error {
        RendezvousError::Wire(WireError::Closed | WireError::Silent(_)) => 2,
        RendezvousError::Wire(_) => 1,
        _ => 0,
    }
}

#[cfg(test)]
mod tests;
