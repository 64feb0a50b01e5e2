//! Ports that are held from before they are offered until the framework listens on them.
//!
//! A held port is bound and never listens, so nobody can connect to it and nobody else can bind it.
//! Two ways hand it to a child without a gap were tried with TensorFlow 2.21 (`docs/design/ports.md`):
//! letting the child bind beside the holder by `SO_REUSEADDR`, set on the holder only while the child
//! starts, is the default, since any server that sets that option itself can take it over.

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with, sockopt};
use std::collections::HashSet;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
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
    /// What the scheduler reserved; any free one where others have taken those.
    Prefer(RangeInclusive<u16>),
    /// Base plus local rank.
    Base(u16),
}

#[derive(Debug, Error)]
pub enum PortError {
    #[error(
        "port {port} cannot be had: {source}; hint: another process has it; leave --port-base out for a free one"
    )]
    Taken { port: u16, source: io::Error },
    #[error("no port of {}-{} is free; hint: widen --port-range", range.start(), range.end())]
    NoneFree { range: RangeInclusive<u16> },
    #[error("no port can be had: {0}")]
    None(io::Error),
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
            PortChoice::Prefer(range) => {
                HeldPort::take(&PortChoice::Range(range.clone()), local_rank, hand_over)
                    .or_else(|_| HeldPort::take(&PortChoice::Any, local_rank, hand_over))
            }
            PortChoice::Base(base) => {
                let port = base.saturating_add(u16::try_from(local_rank).unwrap_or(u16::MAX));
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

    /// All addresses of the machine, as TensorFlow will listen; IPv4 alone where there is no IPv6.
    fn bind(port: u16, hand_over: HandOver) -> io::Result<HeldPort> {
        let flags = SocketFlags::CLOEXEC;
        let try_family = |family: AddressFamily, address: SocketAddr| -> io::Result<OwnedFd> {
            let socket = socket_with(family, SocketType::STREAM, flags, None)?;
            if family == AddressFamily::INET6 {
                sockopt::set_ipv6_v6only(&socket, false)?;
            }
            if hand_over == HandOver::ReusePort {
                sockopt::set_socket_reuseport(&socket, true)?;
            }
            bind(&socket, &address)?;
            Ok(socket)
        };
        // Holders with SO_REUSEPORT would share a port among themselves without a word.
        if hand_over == HandOver::ReusePort && port != 0 {
            HeldPort::bind(port, HandOver::ReuseAddr)?;
        }
        let v6 = SocketAddr::V6(SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, port, 0, 0));
        let v4 = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port));
        let socket = match try_family(AddressFamily::INET6, v6) {
            Err(error) if error.kind() != io::ErrorKind::AddrInUse => try_family(AddressFamily::INET, v4)?,
            other => other?,
        };
        let bound = SocketAddr::try_from(getsockname(&socket)?)?.port();
        Ok(HeldPort { socket: Some(socket), port: bound, hand_over })
    }

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
    pub fn close(&mut self) {
        match (&self.socket, self.hand_over) {
            (Some(socket), HandOver::ReuseAddr) => _ = sockopt::set_socket_reuseaddr(socket, false),
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
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => !only_late_packets(port),
        // Not ours to bind, for a reason of its own: only a listener makes it used.
        Err(_) => listening().contains(&port),
    }
}

/// True if the kernel keeps the port for connections that have ended, and for nothing else.
fn only_late_packets(port: u16) -> bool {
    let states: Vec<String> =
        sockets().into_iter().filter(|(there, _)| *there == port).map(|(_, state)| state).collect();
    // Who only holds a port is in no table, and cannot be told from nobody once a late packet is there;
    // a held port has had no connections.
    !states.is_empty() && states.iter().all(|state| state == "06")
}

/// True where the kernel's tables can be read.
pub fn listening_is_known() -> bool {
    std::fs::File::open("/proc/net/tcp").is_ok()
}

/// Ports on which somebody on this machine listens.
pub fn listening() -> HashSet<u16> {
    sockets().into_iter().filter(|(_, state)| state == "0A").map(|(port, _)| port).collect()
}

/// Port and state of every socket that the kernel's tables show.
fn sockets() -> Vec<(u16, String)> {
    ["/proc/net/tcp", "/proc/net/tcp6"]
        .into_iter()
        .filter_map(|table| std::fs::read_to_string(table).ok())
        .flat_map(|text| parse_sockets(&text))
        .collect()
}

/// Lines such as `  0: 0100007F:1F90 00000000:0000 0A ...`; `0A` is LISTEN, `06` TIME_WAIT.
fn parse_sockets(table: &str) -> Vec<(u16, String)> {
    table
        .lines()
        .filter_map(|line| {
            let mut fields = line.split_ascii_whitespace().skip(1);
            let (_, port) = fields.next()?.rsplit_once(':')?;
            let state = fields.nth(1)?;
            Some((u16::from_str_radix(port, 16).ok()?, state.to_owned()))
        })
        .collect()
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
        assert!(listening().contains(&port));
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
    fn ranges_and_bases() {
        let first = HeldPort::take(&PortChoice::Any, 0, HandOver::ReuseAddr).unwrap();
        let base = PortChoice::Base(first.port());
        let error = HeldPort::take(&base, 0, HandOver::ReuseAddr).unwrap_err().to_string();
        assert!(error.starts_with(&format!("port {} cannot be had", first.port())), "{error}");
        let only = PortChoice::Range(first.port()..=first.port());
        assert!(HeldPort::take(&only, 0, HandOver::ReuseAddr).is_err());
        let preferred = PortChoice::Prefer(first.port()..=first.port());
        assert_ne!(HeldPort::take(&preferred, 0, HandOver::ReuseAddr).unwrap().port(), first.port());
        drop(first);
        assert!(HeldPort::take(&only, 5, HandOver::ReuseAddr).is_ok());
    }

    #[test]
    fn holders_that_could_share_a_port_do_not() {
        let first = HeldPort::take(&PortChoice::Any, 0, HandOver::ReusePort).unwrap();
        let same = PortChoice::Range(first.port()..=first.port());
        assert!(HeldPort::take(&same, 0, HandOver::ReusePort).is_err());
    }

    #[test]
    fn listeners_in_the_kernels_table() {
        let table = "  sl  local_address rem_address   st\n   0: 0100007F:1F90 00000000:0000 0A 0\n   1: 0100007F:1F91 0100007F:1F90 01 0\n";
        let sockets = [(8080, "0A".to_owned()), (8081, "01".to_owned())];
        assert_eq!(parse_sockets(table), sockets);
    }
}
