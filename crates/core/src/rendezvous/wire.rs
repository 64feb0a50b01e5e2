//! The authenticated and encrypted connection between two agents.
//!
//! Both sides first prove that they know the job's key, with fresh random numbers from each, before anything else is
//! read. Then every frame is sealed ([`Seal`]) under a key of this connection and this direction alone.
//!
//! ```text
//! joiner -> leader   "RALLYPT3" nonce(32)
//! leader -> joiner   "RALLYPT3" nonce(32)
//! joiner -> leader   mac(32)
//! leader -> joiner   1 mac(32) (welcome) or 0 (wrong key)
//! then both ways     length(4) sealed content, tag(16)
//! ```
//!
//! The joiner proves first: whoever connects to a leader without the key gets random numbers and a no.

use super::RendezvousError;
use super::key::{Key, random_bytes};
use super::seal::{Broken, Direction, Seal, TAG};
use crate::hint;
use crate::hint::{Hint, Hinted};
use crate::network::{OwnedReadHalf, OwnedWriteHalf, TcpStream};
use crate::trace::OrLog;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

const MAGIC: &[u8; 8] = b"RALLYPT3";
/// What the magic of every version begins with.
const ANY_VERSION: &[u8] = b"RALLYPT";

/// A peer that does not speak within this is a stranger.
pub(super) const HANDSHAKE_LIMIT: Duration = Duration::from_secs(5);

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

/// One direction's reading end.
#[derive(Debug)]
pub(super) struct Reader<R = OwnedReadHalf> {
    stream: R,
    seal: Seal,
    limit: usize,
}

/// One direction's writing end.
#[derive(Debug)]
pub(super) struct Writer<W = OwnedWriteHalf> {
    stream: W,
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
async fn read_greeting(reader: &mut OwnedReadHalf) -> Result<[u8; 32], WireError> {
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

/// The leader's side: wants the key proved before it proves it.
pub(super) async fn accept(stream: TcpStream, key: &Key) -> Result<(Reader, Writer), WireError> {
    stream.set_nodelay(true).or_log("small messages may be late");
    let (mut reader, mut writer) = stream.into_split();
    let session = timeout(HANDSHAKE_LIMIT, async {
        let theirs = read_greeting(&mut reader).await.map_err(|error| match error {
            WireError::Closed => WireError::NotRallypoint,
            other => other,
        })?;
        let (greeting, ours) = greeting()?;
        writer.write_all(&greeting).await?;
        let mut proof = [0; 32];
        reader.read_exact(&mut proof).await?;
        if key.mac(b"joiner", &[&ours, &theirs]) != proof {
            _ = writer.write_all(&[0]).await;
            return Err(WireError::WrongKey);
        }
        let mut welcome = [1; 33];
        welcome[1..].copy_from_slice(key.mac(b"leader", &[&theirs, &ours]).as_bytes());
        writer.write_all(&welcome).await?;
        Ok(key.derive(&[&theirs, &ours]))
    })
    .await
    .map_err(|_| WireError::Silent(HANDSHAKE_LIMIT))??;
    let (to_leader, to_member) = seals(&session);
    Ok((
        Reader { stream: reader, seal: to_leader, limit: MAX_TO_LEADER },
        Writer { stream: writer, seal: to_member },
    ))
}

/// The joiner's side: proves first.
pub(super) async fn join(stream: TcpStream, key: &Key) -> Result<(Reader, Writer), WireError> {
    stream.set_nodelay(true).or_log("small messages may be late");
    let (mut reader, mut writer) = stream.into_split();
    let session = timeout(HANDSHAKE_LIMIT, async {
        let (greeting, ours) = greeting()?;
        writer.write_all(&greeting).await?;
        let theirs = read_greeting(&mut reader).await?;
        writer.write_all(key.mac(b"joiner", &[&theirs, &ours]).as_bytes()).await?;
        if reader.read_u8().await? != 1 {
            return Err(WireError::WrongKey);
        }
        let mut proof = [0; 32];
        reader.read_exact(&mut proof).await?;
        match key.mac(b"leader", &[&ours, &theirs]) == proof {
            true => Ok(key.derive(&[&ours, &theirs])),
            false => Err(WireError::WrongKey),
        }
    })
    .await
    .map_err(|_| WireError::Silent(HANDSHAKE_LIMIT))??;
    let (to_leader, to_member) = seals(&session);
    Ok((
        Reader { stream: reader, seal: to_member, limit: MAX_TO_MEMBER },
        Writer { stream: writer, seal: to_leader },
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
        let size = u32::from_be_bytes(length) as usize;
        if size > self.limit + TAG {
            return Err(WireError::TooLarge { size, limit: self.limit });
        }
        // Grows with what arrives: a liar's length alone takes no memory.
        let mut content = Vec::with_capacity(size.min(64 << 10));
        (&mut self.stream).take(size as u64).read_to_end(&mut content).await?;
        if content.len() < size {
            return Err(WireError::Closed);
        }
        self.seal.open(length, &mut content).map_err(|Broken| WireError::BadSeal)?;
        serde_json::from_slice(&content).map_err(|error| WireError::Nonsense(error.to_string()))
    }
}

impl<W: AsyncWrite + Unpin> Writer<W> {
    pub(super) async fn write<T: Serialize>(&mut self, message: &T) -> Result<(), WireError> {
        let content = serde_json::to_vec(message).map_err(|error| WireError::Nonsense(error.to_string()))?;
        self.write_encoded(&content).await
    }

    /// A message that was encoded once for many.
    pub(super) async fn write_encoded(&mut self, content: &[u8]) -> Result<(), WireError> {
        let too_large = || WireError::TooLarge { size: content.len(), limit: MAX_TO_MEMBER };
        let size = u32::try_from(content.len() + TAG).map_err(|_| too_large())?;
        let mut frame = Vec::with_capacity(4 + content.len() + TAG);
        frame.extend_from_slice(&size.to_be_bytes());
        frame.extend_from_slice(content);
        self.seal.close(&mut frame).map_err(|Broken| too_large())?;
        self.stream.write_all(&frame).await?;
        Ok(())
    }
}

/// Tries a leader's addresses one after the other, until one proves the key: at the others there may be somebody else.
/// Also our own address by which it was reached.
pub(super) async fn reach(
    addresses: &[SocketAddr],
    key: &Key,
) -> Result<(IpAddr, Reader, Writer), RendezvousError> {
    let mut worst = RendezvousError::Unreachable { reason: "it named no address".to_owned() };
    for address in addresses {
        let unreachable =
            |reason: String| RendezvousError::Unreachable { reason: format!("{address}: {reason}") };
        let error = match timeout(CONNECT_LIMIT, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                let local = stream.local_addr()?.ip().to_canonical();
                match join(stream, key).await {
                    Ok((reader, writer)) => return Ok((local, reader, writer)),
                    Err(error) => error.into(),
                }
            }
            Ok(Err(error)) => unreachable(error.to_string()),
            Err(_) => unreachable(format!("no answer within {} s", CONNECT_LIMIT.as_secs())),
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
mod tests {
    use super::*;
    use crate::network::TcpListener;

    fn pair() -> (Writer<tokio::io::DuplexStream>, Reader<tokio::io::DuplexStream>, Key) {
        let (a, b) = tokio::io::duplex(1 << 20);
        let key = Key::random().unwrap();
        let seal = || Seal::new(&key, Direction::ToLeader);
        (Writer { stream: a, seal: seal() }, Reader { stream: b, seal: seal(), limit: 1000 }, key)
    }

    fn block_on<F: Future>(future: F) -> F::Output {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
    }

    /// What a writer sends for a message, as bytes.
    async fn frame(message: &str) -> (Vec<u8>, Key) {
        let (mut writer, mut reader, key) = pair();
        writer.write(&message).await.unwrap();
        drop(writer.stream);
        let mut bytes = Vec::new();
        reader.stream.read_to_end(&mut bytes).await.unwrap();
        (bytes, key)
    }

    async fn read(bytes: &[u8], key: Key) -> Vec<Result<String, String>> {
        let mut reader = Reader { stream: bytes, seal: Seal::new(&key, Direction::ToLeader), limit: 1000 };
        let mut read = Vec::new();
        loop {
            let message = reader.read::<String>().await.map_err(|error| error.to_string());
            let ended = message.is_err();
            read.push(message);
            if ended {
                return read;
            }
        }
    }

    #[test]
    fn frames_arrive_once_unchanged_and_in_order() {
        block_on(async {
            let (bytes, key) = frame("hello").await;
            let closed = || Err("the connection was closed".to_owned());
            let bad = || Err("a frame was changed, repeated or out of order".to_owned());
            assert_eq!(read(&bytes, key.clone()).await, [Ok("hello".to_owned()), closed()]);
            assert_eq!(
                read(&[bytes.clone(), bytes.clone()].concat(), key.clone()).await[1],
                bad(),
                "replayed"
            );
            for at in [4, 10, 20, bytes.len() - 1] {
                let mut changed = bytes.clone();
                changed[at] ^= 1;
                assert_eq!(read(&changed, key.clone()).await, [bad()], "byte {at}");
            }
            assert_eq!(read(&bytes[..bytes.len() - 1], key.clone()).await, [closed()], "truncated");
            assert_eq!(read(&bytes, Key::random().unwrap()).await, [bad()], "another key");
            let huge = [&u32::MAX.to_be_bytes(), &bytes[4..]].concat();
            assert!(read(&huge, key).await[0].as_ref().unwrap_err().contains("4294967295 bytes"));
        });
    }

    #[test]
    fn a_frame_that_goes_the_other_way_is_refused() {
        block_on(async {
            let (bytes, key) = frame("hello").await;
            let seal = Seal::new(&key, Direction::ToMember);
            let mut reader = Reader { stream: bytes.as_slice(), seal, limit: 1000 };
            assert!(matches!(reader.read::<String>().await, Err(WireError::BadSeal)));
        });
    }

    async fn shake(leaders: Key, joiners: Key) -> (Result<(), String>, Result<(), String>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let leader = async {
            let (stream, _) = listener.accept().await.unwrap();
            accept(stream, &leaders).await.map(|_| ()).map_err(|error| error.to_string())
        };
        let joiner = async {
            let stream = TcpStream::connect(address).await.unwrap();
            join(stream, &joiners).await.map(|_| ()).map_err(|error| error.to_string())
        };
        let local = tokio::task::LocalSet::new();
        local.run_until(async { tokio::join!(leader, joiner) }).await
    }

    #[test]
    fn a_wrong_key_is_told_apart_from_a_broken_connection() {
        block_on(async {
            let key = Key::random().unwrap();
            assert_eq!(shake(key.clone(), key.clone()).await, (Ok(()), Ok(())));
            let (leader, joiner) = shake(key, Key::random().unwrap()).await;
            assert_eq!(joiner, Err("it has another key".to_owned()));
            assert!(leader.is_err());
        });
    }

    /// What a leader says to bytes, until it closes the connection.
    async fn said_to(key: &Key, said: &[u8]) -> (Vec<u8>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stranger = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let leader = async { accept(stream, key).await.unwrap_err().to_string() };
        let stranger = async {
            let (mut from_leader, mut to_leader) = stranger.into_split();
            to_leader.write_all(said).await.unwrap();
            let mut heard = Vec::new();
            _ = from_leader.read_to_end(&mut heard).await;
            heard
        };
        let (why, heard) = tokio::join!(leader, stranger);
        (heard, why)
    }

    /// Neither what a stranger hears nor its length depends on the key: there is nothing to guess against.
    #[test]
    fn who_has_not_proved_the_key_gets_nothing_that_depends_on_it() {
        block_on(async {
            let key = Key::random().unwrap();
            let greeting = [MAGIC.as_slice(), &[7; 32]].concat();
            let (heard, why) = said_to(&key, &[greeting.as_slice(), &[9; 32]].concat()).await;
            assert_eq!((heard.len(), heard[40], why.as_str()), (41, 0, "it has another key"));
            let ours = &heard[8..40];
            // The leader's proof, sent back, is no joiner's.
            assert_ne!(key.mac(b"leader", &[&[7; 32], ours]), key.mac(b"joiner", &[ours, &[7; 32]]));
            let (heard, why) = said_to(&key, b"RALLYPT1 an earlier version, of 40 bytes").await;
            assert!(heard.is_empty() && why.contains("another version"), "{why}");
            let (heard, why) = said_to(&key, &[7; 40]).await;
            assert!(heard.is_empty() && why == "it did not say what a rallypoint says", "{why}");
        });
    }

    /// Somebody else at the first address, nobody at the second, the leader at the third.
    #[test]
    fn an_address_where_somebody_else_answers_does_not_stop_the_search() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, async {
            let leader = TcpListener::bind("127.0.0.3:0").await.unwrap();
            let port = leader.local_addr().unwrap().port();
            let foreign = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
            let (key, other) = (Key::random().unwrap(), Key::random().unwrap());
            let addresses: Vec<SocketAddr> = ["127.0.0.1", "127.0.0.2", "127.0.0.3"]
                .map(|ip| SocketAddr::new(ip.parse().unwrap(), port))
                .into();
            // A leader of another job, then one that hangs up, then one that speaks something else.
            for way in 0..3 {
                let foreign = async {
                    let (stream, _) = foreign.accept().await.unwrap();
                    match way {
                        0 => _ = accept(stream, &other).await,
                        1 => drop(stream),
                        _ => {
                            let (mut reader, mut writer) = stream.into_split();
                            writer.write_all(b"SSH-2.0-OpenSSH_9.6\r\n").await.unwrap();
                            _ = reader.read_to_end(&mut Vec::new()).await;
                        }
                    }
                };
                let leader = async {
                    let (stream, _) = leader.accept().await.unwrap();
                    accept(stream, &key).await.unwrap()
                };
                let all = async { tokio::join!(reach(&addresses, &key), foreign, leader).0 };
                let reached = timeout(Duration::from_secs(30), all).await;
                assert!(matches!(reached, Ok(Ok(_))), "{way}: {reached:?}");
            }
            drop(leader);
            let foreign = async {
                let (stream, _) = foreign.accept().await.unwrap();
                accept(stream, &other).await.unwrap_err()
            };
            let (reached, _) = tokio::join!(reach(&addresses, &key), foreign);
            assert_eq!(reached.unwrap_err().to_string(), "it has another key");
        });
    }
}
