//! The leader's lines: who connects proves itself, makes its offer, and is heard until its line ends.

use super::Key;
use super::join::HEARTBEAT;
use super::message::{Offer, ToLeader, ToMember};
use super::wire::{self, WireError};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with, sockopt};
use std::cell::Cell;
use std::collections::VecDeque;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

/// Connections that may be about to prove themselves, beside one for each member.
const MOST_STRANGERS: usize = 256;
/// Connections that the kernel may keep waiting: a whole job may knock at the same moment.
const BACKLOG: i32 = 4096;

/// What came over the network.
#[derive(Debug)]
pub enum Incoming {
    Offer {
        offer: Box<Offer>,
        remote: Remote,
    },
    Message {
        connection: u64,
        message: ToLeader,
    },
    /// A line is gone; why.
    Gone {
        connection: u64,
        why: String,
    },
    /// Somebody who does not belong here.
    Stranger {
        peer: String,
        why: String,
    },
}

/// A proved agent's line.
#[derive(Debug, Clone)]
pub struct Remote {
    pub connection: u64,
    pub peer: String,
    sender: mpsc::Sender<Outgoing>,
}

#[derive(Debug)]
enum Outgoing {
    Message(ToMember),
    /// Encoded once for everybody.
    Encoded(Arc<[u8]>),
}

impl Remote {
    /// Says something without waiting; a line whose queue is full is as good as gone.
    pub fn send(&self, message: ToMember) {
        _ = self.sender.try_send(Outgoing::Message(message));
    }

    /// The same for what is encoded already.
    pub(super) fn send_encoded(&self, message: Arc<[u8]>) {
        _ = self.sender.try_send(Outgoing::Encoded(message));
    }
}

/// One descriptor a member: up to what the system allows at all.
fn allow_many_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// All addresses of the machine, with a long queue.
pub(super) fn listen_on(port: u16) -> std::io::Result<TcpListener> {
    allow_many_descriptors();
    let open = |family: AddressFamily, address: SocketAddr| -> std::io::Result<OwnedFd> {
        let socket =
            socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?;
        if family == AddressFamily::INET6 {
            sockopt::set_ipv6_v6only(&socket, false)?;
        }
        if port != 0 {
            sockopt::set_socket_reuseaddr(&socket, true)?;
        }
        bind(&socket, &address)?;
        listen(&socket, BACKLOG)?;
        Ok(socket)
    };
    let v6 = SocketAddr::V6(SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, port, 0, 0));
    let v4 = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port));
    let socket = match open(AddressFamily::INET6, v6) {
        Err(error) if error.kind() != std::io::ErrorKind::AddrInUse => open(AddressFamily::INET, v4)?,
        other => other?,
    };
    TcpListener::from_std(socket.into())
}

/// Serves everyone who connects. Of too many that have not proved themselves the oldest has to go: a
/// member proves itself in a moment, a stranger never.
pub(super) async fn accept_all(listener: TcpListener, key: Key, world: u32, sender: mpsc::Sender<Incoming>) {
    let most = MOST_STRANGERS + world as usize;
    let key = Rc::new(key);
    let mut unproved: VecDeque<(Rc<Cell<bool>>, String, AbortHandle)> = VecDeque::new();
    for connection in 0.. {
        if sender.is_closed() {
            return;
        }
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            // Out of descriptors, most likely: give the others time to end.
            Err(_) => {
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        unproved.retain(|(proved, _, task)| !proved.get() && !task.is_finished());
        if unproved.len() >= most
            && let Some((_, peer, task)) = unproved.pop_front()
        {
            task.abort();
            let why = format!("{most} connections have not proved themselves yet; the oldest is closed");
            _ = sender.try_send(Incoming::Stranger { peer, why });
        }
        let proved = Rc::new(Cell::new(false));
        let serve = serve(connection, stream, peer, key.clone(), sender.clone(), proved.clone());
        let task = tokio::task::spawn_local(serve);
        unproved.push_back((proved, peer.to_string(), task.abort_handle()));
    }
}

/// One connection, from its first byte to its last.
async fn serve(
    connection: u64,
    stream: TcpStream,
    peer: SocketAddr,
    key: Rc<Key>,
    sender: mpsc::Sender<Incoming>,
    is_proved: Rc<Cell<bool>>,
) {
    let peer = peer.to_string();
    let proved = async {
        let (mut reader, writer) = wire::accept(stream, &key).await?;
        let first = tokio::time::timeout(wire::HANDSHAKE_LIMIT, reader.read())
            .await
            .map_err(|_| WireError::Silent(wire::HANDSHAKE_LIMIT))??;
        match first {
            ToLeader::Offer(offer) => Ok((reader, writer, offer)),
            other => Err(WireError::Nonsense(format!("{other:?} before an offer"))),
        }
    }
    .await;
    is_proved.set(true);
    let (mut reader, mut writer, offer) = match proved {
        Ok(proved) => proved,
        Err(error) => {
            _ = sender.send(Incoming::Stranger { peer, why: error.to_string() }).await;
            return;
        }
    };
    let (to_writer, mut outgoing) = mpsc::channel::<Outgoing>(64);
    tokio::task::spawn_local(async move {
        loop {
            let written = match tokio::time::timeout(HEARTBEAT, outgoing.recv()).await {
                Ok(None) => return,
                Ok(Some(Outgoing::Message(message))) => writer.write(&message).await,
                Ok(Some(Outgoing::Encoded(content))) => writer.write_encoded(&content).await,
                Err(_) => writer.write(&ToMember::Alive).await,
            };
            if written.is_err() {
                return;
            }
        }
    });
    let remote = Remote { connection, peer, sender: to_writer };
    if sender.send(Incoming::Offer { offer: Box::new(offer), remote }).await.is_err() {
        return;
    }
    let why = loop {
        match tokio::time::timeout(HEARTBEAT * 3, reader.read::<ToLeader>()).await {
            Ok(Ok(ToLeader::Alive)) => {}
            Ok(Ok(message)) => {
                if sender.send(Incoming::Message { connection, message }).await.is_err() {
                    return;
                }
            }
            Ok(Err(error)) => break error.to_string(),
            Err(_) => break format!("nothing was heard of it for {} s", (HEARTBEAT * 3).as_secs()),
        }
    };
    _ = sender.send(Incoming::Gone { connection, why }).await;
}
