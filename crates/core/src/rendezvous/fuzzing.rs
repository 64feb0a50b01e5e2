//! A peer's bytes, and what is published of a leader, for the fuzzers.

use super::endpoints;
use super::launched::Launched;
use super::message::{Columns, Offer, ToLeader, ToMember, VERSION};
use super::seats::{Seating, Seats};
use super::wire::{Reader, Writer, accept, join};
use super::{Contact, Key, KnownLeader, socket_addresses};
use crate::fuzzing::{comes_back, text};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;

/// Longer inputs would wait for somebody to read them.
const MOST_BYTES: usize = 32 << 10;

/// The most that is said to one that has not proved the key.
const MOST_SAID: usize = 256;

/// One that does not know the key is never let in, by a leader or by a joiner, and hears little.
pub fn handshake(data: &[u8]) {
    let Some((side, said)) = data.split_first() else { return };
    let said = &said[..said.len().min(MOST_BYTES)];
    let key = key();
    block_on(async {
        let (ours, mut stranger) = pair();
        let spoken = async {
            _ = stranger.write_all(said).await;
            _ = stranger.shutdown().await;
            let mut heard = Vec::new();
            _ = stranger.read_to_end(&mut heard).await;
            heard
        };
        let listened = async {
            match side % 2 {
                0 => accept(ours.into(), &key, |_| {}).await.is_ok(),
                _ => join(ours.into(), &key, &ToLeader::Alive).await.is_ok(),
            }
        };
        let (heard, let_in) = tokio::join!(spoken, listened);
        assert!(!let_in, "one without the key was let in");
        assert!(heard.len() <= MOST_SAID, "{} bytes to a stranger", heard.len());
        let of_the_key = key.to_hex();
        assert!(!text(&heard).contains(&of_the_key));
    });
}

/// Frames that somebody on the way has changed, repeated, dropped, mixed or sent back: what is taken is what was sent, from
/// the first on, and never all of it if anything was changed. Bytes of a true peer are a message or an error.
pub fn frames(data: &[u8]) {
    let Some((&how, rest)) = data.split_first() else { return };
    let rest = &rest[..rest.len().min(MOST_BYTES)];
    block_on(async {
        let (leader, joiner, way) = connected(&key()).await;
        match how % 3 {
            0 => {
                let sent = [ToLeader::Started { pid: 7, served: false }, ToLeader::Wrote, ToLeader::Alive];
                let (to_reader, from_writer) = way;
                on_the_way(&sent, ToMember::Kill, leader, joiner, (to_reader, from_writer), rest).await;
            }
            1 => {
                let sent = [ToMember::Later, ToMember::Stop { grace_ms: 5 }, ToMember::Kill];
                let (from_writer, to_reader) = way;
                on_the_way(&sent, ToLeader::Alive, joiner, leader, (to_reader, from_writer), rest).await;
            }
            _ => true_peer(leader.0, joiner.1, way, rest).await,
        }
    });
}

/// What a member says to its leader: it comes back, and offers take seats that make a roster.
pub fn to_leader(data: &[u8]) {
    let world = 3;
    let now = Instant::now();
    let mut seats = Seats::new(offer(0), world, Duration::from_secs(1), now + Duration::from_secs(60));
    seats.take_own().expect("the first offer");
    for line in text(data).lines().take(32) {
        let Some(ToLeader::Offer(offer)) = comes_back::<ToLeader>(line) else { continue };
        match seats.offer(offer) {
            Seating::Seated { rank } | Seating::SeatedAgain { rank } | Seating::Back { rank } => {
                assert!(rank < world && rank > 0);
            }
            Seating::Superseded | Seating::Refused(_) => {}
        }
        assert_eq!(seats.missing().len() + seats.offers().len(), world as usize);
    }
    let offers = seats.offers();
    let reached: Vec<_> = offers.iter().flat_map(|offer| offer.addresses.first()?.parse().ok()).collect();
    let Ok(members) = endpoints::seats(&offers, "machine 0", &reached) else { return };
    assert_eq!(members.len(), offers.len());
    if let Ok(columns) = Columns::of(0, &members) {
        let told: Columns = comes_back(&serde_json::to_string(&columns).expect("columns")).expect("columns");
        assert_eq!(told.members(members.len() as u32), Some(members));
    }
}

/// What a leader says to its members: it comes back, and a roster that fits the world gives the same roster again.
pub fn to_member(data: &[u8]) {
    let Some(ToMember::Roster(columns)) = comes_back::<ToMember>(&text(data)) else { return };
    let world = (columns.ports.len() / 4) as u32;
    assert_eq!(columns.members(world + 1), None);
    let Some(members) = columns.members(world) else { return };
    assert_eq!(members.len(), world as usize);
    // Names with a bracket inside can be told, and not folded again.
    if let Ok(again) = Columns::of(columns.attempt, &members) {
        let hosts = |columns: &Columns| -> Option<Vec<_>> {
            Some(columns.members(world)?.into_iter().map(|seat| (seat.host, seat.endpoint)).collect())
        };
        assert_eq!(hosts(&again), hosts(&columns));
        assert_eq!(again.members(world), Some(members));
    }
}

/// A meeting file and a launcher's line: a contact comes back, hides its key, and leads to no loopback elsewhere.
pub fn contact(data: &[u8]) {
    let text = text(data);
    if let Ok(launched) = Launched::parse(&text) {
        _ = (launched.job(), launched.name());
    }
    let Some(contact) = comes_back::<Contact>(&text) else { return };
    let line = contact.line().expect("a contact that was read");
    let again: Contact = serde_json::from_str(line.trim_end()).expect("what was printed");
    assert_eq!(again, contact);
    let key = contact.key.as_deref().filter(|key| Key::from_hex(key).is_some());
    assert!(key.is_none_or(|key| contact.host.contains(key) || !format!("{contact:?}").contains(key)));
    for machine in ["elsewhere", contact.machine.as_str()] {
        let addresses = socket_addresses(&contact, machine, &contact.addresses);
        assert!(addresses.len() <= contact.addresses.len());
        assert!(addresses.iter().all(|address| address.port() == contact.port));
        let leads_home = addresses.iter().any(|address| address.ip().is_loopback());
        assert!(!leads_home || machine == contact.machine || contact.machine.is_empty());
    }
}

type Ends = (Reader, Writer);

/// A leader and a joiner that have proved the key to each other, and the way between them: the leader's end, the joiner's.
async fn connected(key: &Key) -> (Ends, Ends, (TcpStream, TcpStream)) {
    let ((leader, mut leaders_end), (joiner, mut joiners_end)) = (pair(), pair());
    let leads = async {
        let (mut reader, mut writer) = accept(leader.into(), key, |_| {}).await.expect("the key");
        assert_eq!(reader.read::<ToLeader>().await.ok(), Some(ToLeader::Alive));
        writer.write(&ToMember::Alive).await.expect("room for a few bytes");
        (reader, writer)
    };
    let joins = async {
        let (mut reader, writer) = join(joiner.into(), key, &ToLeader::Alive).await.expect("the key");
        assert_eq!(reader.read::<ToMember>().await.ok(), Some(ToMember::Alive));
        (reader, writer)
    };
    let both = async { tokio::join!(leads, joins) };
    let (accepted, joined) = tokio::select! {
        both = both => both,
        _ = copy_bidirectional(&mut leaders_end, &mut joiners_end) => panic!("the handshake ended too early"),
    };
    (accepted, joined, (leaders_end, joiners_end))
}

/// Sends messages, changes their frames on the way as `edits` tell, and compares what is taken with what was sent. The other
/// side sends one message too, which may come back to it.
async fn on_the_way<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug, U: Serialize>(
    sent: &[T],
    back: U,
    (mut reader, mut back_writer): Ends,
    (_back_reader, mut writer): Ends,
    (mut to_reader, mut from_writer): (TcpStream, TcpStream),
    edits: &[u8],
) {
    back_writer.write(&back).await.expect("room for a few bytes");
    let foreign = whole_frame(&mut to_reader).await;
    let mut original = Vec::new();
    for message in sent {
        writer.write(message).await.expect("room for a few bytes");
        original.push(whole_frame(&mut from_writer).await);
    }
    let changed = edited(original.clone(), &foreign, edits).concat();
    to_reader.write_all(&changed).await.expect("room for a few bytes");
    to_reader.shutdown().await.expect("an open way");
    let mut taken = Vec::new();
    while let Ok(message) = reader.read::<T>().await {
        taken.push(message);
    }
    assert!(sent.starts_with(&taken), "{taken:?} was never sent");
    let unchanged = changed.starts_with(&original.concat());
    assert_eq!(taken.len() == sent.len(), unchanged, "{taken:?} of {sent:?} was taken");
}

/// What one message became: all that has come, whatever form it has.
async fn whole_frame(way: &mut TcpStream) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    let length = way.read(&mut bytes).await.expect("a frame");
    bytes.truncate(length);
    bytes
}

/// What one on the way may do: three bytes each, what to which frame, and two numbers.
fn edited(mut frames: Vec<Vec<u8>>, foreign: &[u8], edits: &[u8]) -> Vec<Vec<u8>> {
    for edit in edits.chunks(3).take(16) {
        let (&[kind, place, value], 1..) = (edit, frames.len()) else { break };
        let (frame, other) = (usize::from(kind >> 3) % frames.len(), usize::from(place) % frames.len());
        let bytes = &mut frames[frame];
        let at = usize::from(place) * bytes.len() / 256;
        match kind % 8 {
            0 if at < bytes.len() => bytes[at] ^= value,
            1 => bytes.insert(at, value),
            2 if at < bytes.len() => _ = bytes.remove(at),
            3 => bytes.truncate(at),
            4 => frames.insert(other, frames[frame].clone()),
            5 => _ = frames.remove(frame),
            6 => frames.swap(frame, other),
            7 => frames.insert(other, foreign.to_vec()),
            _ => {}
        }
    }
    frames
}

/// A peer that knows the key may still say anything: a message or an error, the same as its bytes alone are.
async fn true_peer(mut reader: Reader, mut writer: Writer, way: (TcpStream, TcpStream), content: &[u8]) {
    let (mut to_reader, mut from_writer) = way;
    writer.write_encoded(content).await.expect("room for a few bytes");
    drop(writer);
    let mut bytes = Vec::new();
    from_writer.read_to_end(&mut bytes).await.expect("what was sent");
    to_reader.write_all(&bytes).await.expect("room for a few bytes");
    to_reader.shutdown().await.expect("an open way");
    let read = reader.read::<ToLeader>().await.ok();
    assert_eq!(read, serde_json::from_slice(content).ok());
}

/// Two ends of a connection. No TCP, of which a fuzzer would use up the ports.
fn pair() -> (TcpStream, TcpStream) {
    let (a, b) = UnixStream::pair().expect("a socket");
    let stream = |end: UnixStream| {
        end.set_nonblocking(true).expect("a socket");
        TcpStream::from_std(OwnedFd::from(end).into()).expect("a runtime")
    };
    (stream(a), stream(b))
}

fn key() -> Key {
    Key::from_hex(&"5a".repeat(32)).expect("64 digits")
}

/// The leader's own.
fn offer(rank: u32) -> Offer {
    Offer {
        version: VERSION,
        rank: Some(rank),
        job: None,
        attempt: 0,
        runs: 0,
        roles: "worker*3".to_owned(),
        host: "n0".to_owned(),
        machine: "machine 0".to_owned(),
        addresses: vec!["10.0.0.1".to_owned()],
        chosen: false,
        port: 7000,
        pid: 1,
        process: None,
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    thread_local! {
        static RUNTIME: Runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    }
    RUNTIME.with(|runtime| runtime.block_on(future))
}
