//! The leader's connections: who connects proves itself, makes its offer, and is heard until the connection ends.

use super::Key;
use super::join::HEARTBEAT;
use super::message::{Offer, ToLeader, ToMember};
use super::seal::Shared;
use super::strangers::Strangers;
use super::wire::{self, WireError, Writer};
use crate::clock;
use crate::event::RunEvent;
use crate::hint;
use crate::network::{Sharing, TcpListener, TcpStream, bind_at, bind_everywhere};
use crate::trace::OrLog;
use rustix::net::{SocketFlags, listen};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::sync::mpsc::{self, error::TrySendError};
use tokio::task::AbortHandle;

/// Connections that may be about to prove themselves, beside one for each member.
const MOST_STRANGERS: usize = 256;
/// Connections that the kernel may keep waiting: a whole job may knock at the same moment.
const BACKLOG: i32 = 4096;

/// What came over the network.
#[derive(Debug)]
pub(crate) enum Incoming {
    Offer {
        offer: Box<Offer>,
        remote: Remote,
    },
    Message {
        connection: u64,
        message: ToLeader,
    },
    /// A connection is gone; why.
    Gone {
        connection: u64,
        why: String,
    },
    /// Those who do not belong here were turned away: one, or the counts of many.
    Strangers(RunEvent),
}

/// Words that may wait for a connection.
const QUEUE: usize = 64;
/// Of these, what is kept for words that must arrive: a stop is never late because of who is missing.
const RESERVED: usize = 32;
/// A connection that takes longer to take a word is cut.
const WRITE_LIMIT: Duration = HEARTBEAT.saturating_mul(3);

/// The connection of an agent that has proved itself.
#[derive(Debug, Clone)]
pub(crate) struct Remote {
    pub(crate) connection: u64,
    pub(crate) peer: String,
    /// Our own address by which it came.
    pub(super) local: IpAddr,
    sender: mpsc::Sender<Outgoing>,
    /// Ends the connection; why.
    cut: mpsc::Sender<&'static str>,
}

#[derive(Debug)]
enum Outgoing {
    Message(ToMember),
    /// Encoded and sealed once for everybody.
    Shared(Shared),
}

impl Remote {
    /// Says something without waiting. What must arrive arrives, or the connection is cut and reported as gone.
    pub(crate) fn send(&self, message: ToMember) {
        let must_arrive = message.must_arrive();
        self.queue(Outgoing::Message(message), must_arrive);
    }

    /// The same for what is encoded already, and must arrive.
    pub(super) fn send_shared(&self, message: Shared) {
        self.queue(Outgoing::Shared(message), true);
    }

    fn queue(&self, message: Outgoing, must_arrive: bool) {
        if !must_arrive && self.sender.capacity() <= RESERVED {
            return;
        }
        if let Err(TrySendError::Full(_)) = self.sender.try_send(message) {
            _ = self.cut.try_send("it does not read what it is told");
        }
    }

    #[cfg(test)]
    pub(super) fn unconnected(connection: u64) -> Remote {
        let (sender, cut) = (mpsc::channel(1).0, mpsc::channel(1).0);
        Remote { connection, peer: String::new(), local: Ipv4Addr::LOCALHOST.into(), sender, cut }
    }
}

/// One descriptor per member: up to what the system allows at all.
fn allow_many_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).or_log("the limit of open files stays");
}

/// At all addresses of the machine, or at one, with a long queue.
pub(super) fn listen_on(address: Option<IpAddr>, port: u16) -> std::io::Result<TcpListener> {
    #[cfg(feature = "simulation")]
    if let Some(listener) = crate::simulated::net::listen(port) {
        return listener.map(TcpListener::Simulated);
    }
    allow_many_descriptors();
    let sharing = if port == 0 { Sharing::Alone } else { Sharing::ReuseAddr };
    let socket = match address {
        None => bind_everywhere(port, sharing, SocketFlags::NONBLOCK)?,
        Some(address) => bind_at(SocketAddr::new(address, port), sharing, SocketFlags::NONBLOCK)?,
    };
    listen(&socket, BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// Serves everyone who connects. Of too many that have not proved themselves the oldest has to go: a
/// member proves itself in a moment, a stranger never.
pub(super) async fn accept_all(listener: TcpListener, key: Key, world: u32, sender: mpsc::Sender<Incoming>) {
    let most = MOST_STRANGERS + world as usize;
    let key = Rc::new(key);
    let strangers = TurnedAway::new(sender.clone());
    let mut unproved: VecDeque<(Rc<Cell<Standing>>, String, AbortHandle)> = VecDeque::new();
    for id in 0.. {
        if sender.is_closed() {
            return;
        }
        let (stream, peer) = match listener.accept().await {
            // A socket for both families says ::ffff:10.0.0.1 for 10.0.0.1.
            Ok((stream, peer)) => (stream, SocketAddr::new(peer.ip().to_canonical(), peer.port())),
            // Out of descriptors, most likely: give the others time to end.
            Err(_) => {
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        // Looked through only when it has grown to the limit, so that a crowd costs no more than its number.
        if unproved.len() >= most {
            unproved.retain(|(standing, _, task)| standing.get() != Standing::Proved && !task.is_finished());
        }
        if unproved.len() >= most
            && let Some((standing, peer, task)) = unproved.pop_front()
        {
            task.abort();
            if standing.get() == Standing::Unproved {
                let why = format!("{most} connections have not proved themselves yet; the oldest is closed");
                strangers.add(&peer, &why);
            }
        }
        let standing = Rc::new(Cell::new(Standing::Unproved));
        let connection = Connection { id, stream, peer, standing: standing.clone() };
        let serve = serve(connection, key.clone(), sender.clone(), strangers.clone());
        let task = tokio::task::spawn_local(serve);
        unproved.push_back((standing, peer.to_string(), task.abort_handle()));
    }
}

/// Strangers of one leader, and who hears of them.
#[derive(Clone)]
struct TurnedAway {
    strangers: Rc<RefCell<Strangers>>,
    wake: Rc<Notify>,
    sender: mpsc::Sender<Incoming>,
}

impl TurnedAway {
    fn new(sender: mpsc::Sender<Incoming>) -> TurnedAway {
        let new = TurnedAway { strangers: Rc::default(), wake: Rc::default(), sender };
        tokio::task::spawn_local(new.clone().summarise());
        new
    }

    fn add(&self, peer: &str, why: &str) {
        let event = self.strangers.borrow_mut().turned_away(peer, why, clock::now());
        self.say(event);
        self.wake.notify_one();
    }

    /// Nobody waits for a word about strangers.
    fn say(&self, event: Option<RunEvent>) {
        if let Some(event) = event {
            _ = self.sender.try_send(Incoming::Strangers(event));
        }
    }

    async fn summarise(self) {
        loop {
            let due = self.strangers.borrow().due();
            match due {
                None => self.wake.notified().await,
                Some(due) => {
                    clock::sleep_until(due).await;
                    let event = self.strangers.borrow_mut().summary(clock::now());
                    self.say(event);
                }
            }
        }
    }
}

/// What is known of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Unproved,
    /// It was told off, and may take a moment to hear it.
    TurnedAway,
    Proved,
}

/// A connection that was taken.
struct Connection {
    id: u64,
    stream: TcpStream,
    peer: SocketAddr,
    standing: Rc<Cell<Standing>>,
}

/// One connection, from its first byte to its last.
async fn serve(connection: Connection, key: Rc<Key>, sender: mpsc::Sender<Incoming>, strangers: TurnedAway) {
    let Connection { id: connection, stream, peer, standing } = connection;
    let peer = peer.to_string();
    let local =
        stream.local_addr().map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |local| local.ip().to_canonical());
    let turn_away = |error: &WireError| {
        standing.set(Standing::TurnedAway);
        strangers.add(&peer, &hint::in_full(error));
    };
    let proved = async {
        let (mut reader, writer) = wire::accept(stream, &key, turn_away).await?;
        let first = clock::timeout(wire::HANDSHAKE_LIMIT, reader.read())
            .await
            .ok_or(WireError::Silent(wire::HANDSHAKE_LIMIT))??;
        match first {
            ToLeader::Offer(offer) => Ok((reader, writer, offer)),
            other => Err(WireError::Nonsense(format!("{other:?} before an offer"))),
        }
    }
    .await;
    let (mut reader, writer, offer) = match proved {
        Ok(proved) => proved,
        Err(error) if standing.get() == Standing::Unproved => return turn_away(&error),
        Err(_) => return,
    };
    standing.set(Standing::Proved);
    let (to_writer, outgoing) = mpsc::channel::<Outgoing>(QUEUE);
    let (cut, mut is_cut) = mpsc::channel(1);
    let writer = tokio::task::spawn_local(write_all(writer, outgoing, cut.clone()));
    let remote = Remote { connection, peer, local, sender: to_writer, cut };
    if sender.send(Incoming::Offer { offer: Box::new(offer), remote }).await.is_err() {
        return;
    }
    let why = loop {
        let heard = tokio::select! {
            heard = clock::timeout(HEARTBEAT * 3, reader.read::<ToLeader>()) => heard,
            Some(why) = is_cut.recv() => break why.to_owned(),
        };
        match heard {
            Some(Ok(ToLeader::Alive)) => {}
            Some(Ok(message)) => {
                if sender.send(Incoming::Message { connection, message }).await.is_err() {
                    return;
                }
            }
            Some(Err(error)) => break error.to_string(),
            None => break format!("nothing was heard of it for {} s", (HEARTBEAT * 3).as_secs()),
        }
    };
    // Both halves are closed, or it would go on hearing a leader that has given it up.
    writer.abort();
    drop(reader);
    _ = sender.send(Incoming::Gone { connection, why }).await;
}

/// Writes what is said on a connection, and that we are alive where there is nothing.
async fn write_all(
    mut writer: Writer,
    mut outgoing: mpsc::Receiver<Outgoing>,
    cut: mpsc::Sender<&'static str>,
) {
    loop {
        let next = tokio::time::timeout(HEARTBEAT, outgoing.recv()).await;
        let written = clock::timeout(WRITE_LIMIT, async {
            match next {
                Ok(None) => None,
                Ok(Some(Outgoing::Message(message))) => Some(writer.write(&message).await),
                Ok(Some(Outgoing::Shared(shared))) => Some(writer.write_shared(&shared).await),
                Err(_) => Some(writer.write(&ToMember::Alive).await),
            }
        });
        match written.await {
            Some(Some(Ok(()))) => {}
            // The reading side tells why, if the connection is gone.
            Some(None | Some(Err(_))) => return,
            None => {
                _ = cut.try_send("it does not read what it is told");
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Farewell;

    fn connection() -> (Remote, mpsc::Receiver<Outgoing>, mpsc::Receiver<&'static str>) {
        let (sender, outgoing) = mpsc::channel(QUEUE);
        let (cut, is_cut) = mpsc::channel(1);
        (Remote { sender, cut, ..Remote::unconnected(1) }, outgoing, is_cut)
    }

    #[test]
    fn a_stop_arrives_or_the_connection_is_cut() {
        let (remote, mut outgoing, mut is_cut) = connection();
        for come in 0..1000 {
            remote.send(ToMember::Waiting { come, world: 1000, missing: Vec::new(), more: 0 });
        }
        remote.send(ToMember::Kill);
        assert!(is_cut.try_recv().is_err(), "there is room for what must arrive");
        let heard: Vec<Outgoing> = std::iter::from_fn(|| outgoing.try_recv().ok()).collect();
        assert!(matches!(heard.last(), Some(Outgoing::Message(ToMember::Kill))), "{heard:?}");
        assert!(heard.len() <= QUEUE);
        for _ in 0..=QUEUE {
            remote.send(ToMember::Stop { grace_ms: 0 });
        }
        assert_eq!(is_cut.try_recv(), Ok("it does not read what it is told"));
    }

    /// It goes on saying that it is alive, and takes nothing: its queue may not grow for ever.
    #[test]
    fn a_member_that_never_reads_is_reported_as_gone() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, async {
            let key = Key::random().unwrap();
            let listener = listen_on(None, 0).unwrap();
            let port = listener.local_addr().unwrap().port();
            let (sender, mut incoming) = mpsc::channel(16);
            tokio::task::spawn_local(accept_all(listener, key.clone(), 1, sender));
            let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            let offer = ToLeader::Offer(Offer::for_tests(0));
            let answer = async {
                let Some(Incoming::Offer { remote, .. }) = incoming.recv().await else { panic!("no offer") };
                remote.send(ToMember::Later);
                remote
            };
            let (joined, remote) = tokio::join!(wire::join(stream, &key, &offer), answer);
            let _kept = joined.unwrap();
            let gone = async {
                loop {
                    for _ in 0..8 {
                        let farewell = Farewell::Error("x".repeat(10_000));
                        remote.send(ToMember::Goodbye { code: 0, farewell });
                    }
                    tokio::select! {
                        gone = incoming.recv() => break gone,
                        () = tokio::time::sleep(Duration::from_millis(1)) => {}
                    }
                }
            };
            let gone = tokio::time::timeout(Duration::from_secs(60), gone).await.unwrap();
            let Some(Incoming::Gone { why, .. }) = gone else { panic!("{gone:?}") };
            assert_eq!(why, "it does not read what it is told");
        });
    }
}
