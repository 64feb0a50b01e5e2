//! Whether TensorFlow can have its port, and if not, who has it.

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};
use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

/// A process that listens on a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener {
    pub pid: u32,
    pub name: String,
}

impl fmt::Display for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pid {} ({})", self.pid, self.name)
    }
}

/// Binds as gRPC will and lets go: beside a holder that lets others in, never beside a listener.
pub(super) fn can_be_bound(port: u16, reuse_port: bool) -> io::Result<()> {
    let try_bind = |address: SocketAddr| -> io::Result<()> {
        let family = if address.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
        let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        if address.is_ipv6() {
            sockopt::set_ipv6_v6only(&socket, false)?;
        }
        sockopt::set_socket_reuseaddr(&socket, true)?;
        if reuse_port {
            sockopt::set_socket_reuseport(&socket, true)?;
        }
        Ok(bind(&socket, &address)?)
    };
    match try_bind((Ipv6Addr::UNSPECIFIED, port).into()) {
        Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
            try_bind((Ipv4Addr::UNSPECIFIED, port).into())
        }
        other => other,
    }
}

/// Who listens on a port, as far as `/proc` tells: other users' processes hide their sockets.
pub(super) fn listener(port: u16) -> Option<Listener> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
    let inode = tables.into_iter().find_map(|table| inode(&std::fs::read_to_string(table).ok()?, port))?;
    let wanted = format!("socket:[{inode}]");
    let processes = std::fs::read_dir("/proc").ok()?.flatten();
    processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).find_map(|pid: u32| {
        let mut open = std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten();
        open.any(|file| std::fs::read_link(file.path()).is_ok_and(|link| link.as_os_str() == wanted.as_str()))
            .then(|| {
                let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
                Listener { pid, name: name.trim().to_owned() }
            })
    })
}

/// The inode of the socket that listens, from lines such as
/// `0: 00000000:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000  0 31337 1 ...`.
fn inode(table: &str, port: u16) -> Option<u64> {
    table.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let (_, local) = fields.get(1)?.rsplit_once(':')?;
        let is_it = u16::from_str_radix(local, 16) == Ok(port) && fields.get(3) == Some(&"0A");
        is_it.then(|| fields.get(9)?.parse().ok()).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports::{HandOver, HeldPort, PortChoice};

    #[test]
    fn a_listener_is_named_and_a_holder_is_not_in_the_way() {
        let mut held = HeldPort::take(&PortChoice::Any, 0, HandOver::ReuseAddr).unwrap();
        let port = held.port();
        assert!(can_be_bound(port, false).is_err(), "held for somebody else");
        assert_eq!(listener(port), None);
        held.open().unwrap();
        can_be_bound(port, false).unwrap();
        let child = std::net::TcpListener::bind(("::", port)).unwrap();
        assert_eq!(can_be_bound(port, false).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        assert_eq!(listener(port).map(|listener| listener.pid), Some(std::process::id()));
        drop(child);
        can_be_bound(port, false).unwrap();
    }

    #[test]
    fn inodes_of_listeners_alone() {
        let table = "  sl  local_address rem_address   st\n   0: 0100007F:1F90 0100007F:9999 01 0:0 00:0 0 1000 0 11 1\n   1: 00000000:1F90 00000000:0000 0A 0:0 00:0 0 1000 0 12 1\n";
        assert_eq!(inode(table, 8080), Some(12));
        assert_eq!(inode(table, 8081), None);
    }
}
