//! Ports that are held from before they are offered until the framework listens on them.
//!
//! A held port is bound and never listens, so nobody can connect to it and nobody else can bind it.
//! Two ways hand it to a child without a gap were tried with TensorFlow 2.21 (`docs/design/ports.md`):
//! letting the child bind beside the holder by `SO_REUSEADDR`, set on the holder only while the child
//! starts, is the default, since any server that sets that option itself can take it over.

use crate::hint;
use crate::hint::{Hint, Hinted, Setting};
use crate::network::{self, Sharing};
use crate::trace::OrLog;
use rustix::net::{SocketFlags, getsockname, sockopt};
use std::io;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;
use thiserror::Error;

/// How a held port becomes the child's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HandOver {
    /// `SO_REUSEADDR` on the holder while the child starts.
    #[default]
    ReuseAddr,
    /// `SO_REUSEPORT` on the holder, and `TF_GRPC_REUSE_PORT=1` for the child.
    ReusePort,
    /// The holder lets go just before the child starts: for servers that set neither option.
    Release,
}

/// Where ports come from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum PortChoice {
    /// Whatever the system gives.
    #[default]
    Any,
    /// A site's range.
    Range(RangeInclusive<u16>),
    /// Exactly those that the scheduler reserved; any free one where all of them are taken.
    Prefer(Vec<u16>),
    /// Base plus local rank.
    Base(u16),
}

/// Why a port cannot be had.
#[derive(Debug, Error)]
pub enum PortError {
    /// A port that follows from the base is another process's.
    #[error("port {port} cannot be had: {source}")]
    Taken {
        /// The port.
        port: u16,
        /// What the system says.
        source: io::Error,
    },
    /// The base is so high that no port is left for a member.
    #[error(
        "port base {base}: member {local_rank} of its host, counted from 0, would have port {}, and 65535 is the last one",
        u64::from(*base) + u64::from(*local_rank)
    )]
    BeyondTheLast {
        /// The base.
        base: u16,
        /// The number of the member on its host, from 0.
        local_rank: u32,
    },
    /// All ports of the range are in use.
    #[error("no port of {}-{} is free", range.start(), range.end())]
    NoneFree {
        /// The range.
        range: RangeInclusive<u16>,
    },
    /// The system gives none.
    #[error("no port can be had: {0}")]
    None(io::Error),
}

impl Hinted for PortError {
    fn hint(&self) -> Option<Hint> {
        match self {
            PortError::Taken { .. } => {
                Some(hint!("another process has it; leave ", Setting::PortBase, " out for a free one"))
            }
            PortError::BeyondTheLast { .. } => Some(hint!("choose a lower base")),
            PortError::NoneFree { .. } => Some(hint!("widen ", Setting::PortRange)),
            PortError::None(_) => None,
        }
    }
}

/// A bound socket that keeps its port.
#[derive(Debug)]
pub struct HeldPort {
    socket: Option<OwnedFd>,
    port: u16,
    hand_over: HandOver,
}

impl HeldPort {
    /// Holds a port for the member with this number on its host.
    pub fn take(choice: &PortChoice, local_rank: u32, hand_over: HandOver) -> Result<HeldPort, PortError> {
        match choice {
            PortChoice::Any => HeldPort::bind(0, hand_over).map_err(PortError::None),
            PortChoice::Prefer(ports) => {
                // Each member of a host begins at its own one, as `rallypoint env` gives them out.
                let first = (local_rank as usize).checked_rem(ports.len()).unwrap_or(0);
                let (before, from) = ports.split_at(first);
                let held = from.iter().chain(before).find_map(|&port| HeldPort::bind(port, hand_over).ok());
                held.map_or_else(|| HeldPort::take(&PortChoice::Any, local_rank, hand_over), Ok)
            }
            PortChoice::Base(base) => {
                let port = u16::try_from(local_rank)
                    .ok()
                    .and_then(|offset| base.checked_add(offset))
                    .ok_or(PortError::BeyondTheLast { base: *base, local_rank })?;
                HeldPort::bind(port, hand_over).map_err(|source| PortError::Taken { port, source })
            }
            PortChoice::Range(range) => {
                // Begin at another place in every process, so that two jobs seldom ask for the same.
                let width = u32::from(range.end() - range.start()) + 1;
                let first = (std::process::id().wrapping_mul(7919)).wrapping_add(local_rank) % width;
                (0..width)
                    .map(|step| range.start() + ((first + step) % width) as u16)
                    .find_map(|port| HeldPort::bind(port, hand_over).ok())
                    .ok_or_else(|| PortError::NoneFree { range: range.clone() })
            }
        }
    }

    /// All addresses of the machine, as TensorFlow will listen.
    fn bind(port: u16, hand_over: HandOver) -> io::Result<HeldPort> {
        #[cfg(feature = "simulation")]
        if let Some(free) = crate::simulated::net::free_port() {
            return Ok(HeldPort { socket: None, port: free, hand_over });
        }
        // Holders with SO_REUSEPORT would share a port among themselves without a word.
        if hand_over == HandOver::ReusePort && port != 0 {
            HeldPort::bind(port, HandOver::ReuseAddr)?;
        }
        let sharing = if hand_over == HandOver::ReusePort { Sharing::ReusePort } else { Sharing::Alone };
        let socket = network::bind_everywhere(port, sharing, SocketFlags::empty())?;
        let bound = SocketAddr::try_from(getsockname(&socket)?)?.port();
        Ok(HeldPort { socket: Some(socket), port: bound, hand_over })
    }

    /// Which port it is.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Lets a child bind it, just before the child starts.
    pub fn open(&mut self) -> io::Result<()> {
        match (&self.socket, self.hand_over) {
            (Some(socket), HandOver::ReuseAddr) => Ok(sockopt::set_socket_reuseaddr(socket, true)?),
            (Some(_), HandOver::ReusePort) | (None, _) => Ok(()),
            (Some(_), HandOver::Release) => {
                self.socket = None;
                Ok(())
            }
        }
    }

    /// Keeps others away again, after the child has ended: it may come back to the same address.
    pub(crate) fn close(&mut self) {
        match (&self.socket, self.hand_over) {
            (Some(socket), HandOver::ReuseAddr) => {
                sockopt::set_socket_reuseaddr(socket, false).or_log("a port is not held as before");
            }
            (None, HandOver::Release) => {
                self.socket = HeldPort::bind(self.port, HandOver::Release).ok().and_then(|held| held.socket);
            }
            _ => {}
        }
    }
}

/// True if a port is somebody's: listened on, or held. One that only waits for late packets is free.
pub fn is_in_use(port: u16) -> bool {
    match HeldPort::bind(port, HandOver::ReuseAddr) {
        Ok(_) => false,
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => !network::only_late_packets(port),
        // Not ours to bind, for a reason of its own: only a listener makes it used.
        Err(_) => network::listening(Some(port)).contains(&port),
    }
}

/// True if a server that sets `SO_REUSEADDR` may listen here: nobody listens and nobody holds the port.
///
/// Connections of a server that has ended linger for a minute, and keep everyone out that does not set that option.
/// Setting it is not enough to know, though: a port that is held for a child that starts allows it too.
pub(crate) fn is_free_for_a_server(port: u16) -> bool {
    match HeldPort::bind(port, HandOver::ReuseAddr) {
        Ok(_) => true,
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            can_be_shared(port, false).is_ok() && network::only_lingers(port)
        }
        Err(_) => false,
    }
}

/// Binds as gRPC will and lets go: beside a holder that lets others in, never beside a listener.
pub(crate) fn can_be_shared(port: u16, reuse_port: bool) -> io::Result<()> {
    let sharing = if reuse_port { Sharing::ReuseBoth } else { Sharing::ReuseAddr };
    network::bind_everywhere(port, sharing, SocketFlags::empty()).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_held_port_is_nobody_elses_until_it_is_opened() {
        let mut held = HeldPort::take(&PortChoice::Any, 0, HandOver::ReuseAddr).unwrap();
        let port = held.port();
        // std's listener sets SO_REUSEADDR, as gRPC does.
        assert!(TcpListener::bind(("0.0.0.0", port)).is_err());
        assert!(HeldPort::take(&PortChoice::Base(port), 0, HandOver::ReuseAddr).is_err());
        held.open().unwrap();
        let child = TcpListener::bind(("0.0.0.0", port)).unwrap();
        assert!(network::listening(Some(port)).contains(&port));
        assert!(TcpListener::bind(("0.0.0.0", port)).is_err(), "one listener at a time");
        drop(child);
        held.close();
        assert!(TcpListener::bind(("0.0.0.0", port)).is_err());
    }

    #[test]
    fn ports_of_others_and_free_ones() {
        let held = HeldPort::take(&PortChoice::Any, 0, HandOver::ReuseAddr).unwrap();
        assert!(is_in_use(held.port()), "held");
        let port = held.port();
        drop(held);
        assert!(!is_in_use(port));
        let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
        assert!(is_in_use(port), "listened on");
        let client = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        let (server, _) = listener.accept().unwrap();
        // Who closes first keeps the connection for late packets, and the port with it.
        drop((server, listener));
        assert!(is_in_use(port), "half closed");
        drop(client);
        let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while is_in_use(port) {
            assert!(std::time::Instant::now() < until, "late packets do not use a port");
        }
    }

    #[test]
    fn a_server_may_follow_another_at_once() {
        let listener = TcpListener::bind(("0.0.0.0", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(!is_free_for_a_server(port), "listened on");
        let clients = [0, 1].map(|_| std::net::TcpStream::connect(("127.0.0.1", port)).unwrap());
        let served = [0, 1].map(|_| listener.accept().unwrap().0);
        drop(listener);
        assert!(!is_free_for_a_server(port), "its connections live");
        drop(served);
        // The clients have not hung up yet.
        let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while !is_free_for_a_server(port) {
            assert!(std::time::Instant::now() < until, "it lingers");
        }
        drop(clients);
        assert!(HeldPort::take(&PortChoice::Base(port), 0, HandOver::ReuseAddr).is_err(), "it lingers");
        assert!(is_free_for_a_server(port), "late packets keep no server away");
        assert!(TcpListener::bind(("0.0.0.0", port)).is_ok());
        let mut held = HeldPort::take(&PortChoice::Any, 0, HandOver::ReuseAddr).unwrap();
        assert!(!is_free_for_a_server(held.port()), "held");
        held.open().unwrap();
        assert!(!is_free_for_a_server(held.port()), "held for a child that starts");
    }

    #[test]
    fn ranges_and_bases() {
        let first = HeldPort::take(&PortChoice::Any, 0, HandOver::ReuseAddr).unwrap();
        let base = PortChoice::Base(first.port());
        let error = HeldPort::take(&base, 0, HandOver::ReuseAddr).unwrap_err().to_string();
        assert!(error.starts_with(&format!("port {} cannot be had", first.port())), "{error}");
        let only = PortChoice::Range(first.port()..=first.port());
        assert!(HeldPort::take(&only, 0, HandOver::ReuseAddr).is_err());
        drop(first);
        assert!(HeldPort::take(&only, 5, HandOver::ReuseAddr).is_ok());
        let beyond =
            HeldPort::take(&PortChoice::Base(65535), 1, HandOver::ReuseAddr).unwrap_err().to_string();
        assert!(beyond.contains("port base 65535: member 1") && beyond.contains("port 65536"), "{beyond}");
        assert!(!beyond.contains("another process"), "{beyond}");
    }

    #[test]
    fn reserved_ports_are_these_and_none_between() {
        let free = || HeldPort::take(&PortChoice::Any, 0, HandOver::ReuseAddr).unwrap();
        let mut reserved: Vec<u16> = [free(), free(), free()].iter().map(HeldPort::port).collect();
        reserved.sort_unstable();
        let preferred = PortChoice::Prefer(reserved.clone());
        let take = |rank| HeldPort::take(&preferred, rank, HandOver::ReuseAddr).unwrap();
        let mut held = vec![take(1), take(4), take(0)];
        let mut ports: Vec<u16> = held.iter().map(HeldPort::port).collect();
        assert_eq!(ports, [reserved[1], reserved[2], reserved[0]]);
        held.push(take(2));
        ports.sort_unstable();
        assert!(!ports.contains(&held[3].port()), "all three are taken");
        let one = PortChoice::Prefer(vec![reserved[0]]);
        drop(held);
        assert_eq!(HeldPort::take(&one, 7, HandOver::ReuseAddr).unwrap().port(), reserved[0]);
    }

    #[test]
    fn holders_that_could_share_a_port_do_not() {
        let first = HeldPort::take(&PortChoice::Any, 0, HandOver::ReusePort).unwrap();
        let same = PortChoice::Range(first.port()..=first.port());
        assert!(HeldPort::take(&same, 0, HandOver::ReusePort).is_err());
    }

    #[test]
    fn a_listener_is_named_and_a_holder_is_not_in_the_way() {
        let mut held = HeldPort::take(&PortChoice::Any, 0, HandOver::ReuseAddr).unwrap();
        let port = held.port();
        assert!(can_be_shared(port, false).is_err(), "held for somebody else");
        assert_eq!(network::listener(port), None);
        held.open().unwrap();
        can_be_shared(port, false).unwrap();
        let child = std::net::TcpListener::bind(("::", port)).unwrap();
        assert_eq!(can_be_shared(port, false).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        assert_eq!(network::listener(port).map(|listener| listener.pid), Some(std::process::id()));
        drop(child);
        can_be_shared(port, false).unwrap();
    }
}
