//! A socket at all addresses of this machine, or at one.

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

/// Beside whom a socket may be bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// Nobody.
    Alone,
    /// Those that do not listen and set `SO_REUSEADDR` too.
    ReuseAddr,
    /// Those that set `SO_REUSEPORT` too.
    ReusePort,
    /// Both.
    ReuseBoth,
}

/// Binds a port (0 is any) at all addresses, as servers do; IPv4 alone where there is no IPv6.
pub(crate) fn bind_everywhere(port: u16, sharing: Sharing, flags: SocketFlags) -> io::Result<OwnedFd> {
    match bind_at((Ipv6Addr::UNSPECIFIED, port).into(), sharing, flags) {
        Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
            bind_at((Ipv4Addr::UNSPECIFIED, port).into(), sharing, flags)
        }
        other => other,
    }
}

/// Binds one address alone.
pub(crate) fn bind_at(address: SocketAddr, sharing: Sharing, flags: SocketFlags) -> io::Result<OwnedFd> {
    let family = if address.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC | flags, None)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, false)?;
    }
    if matches!(sharing, Sharing::ReuseAddr | Sharing::ReuseBoth) {
        sockopt::set_socket_reuseaddr(&socket, true)?;
    }
    if matches!(sharing, Sharing::ReusePort | Sharing::ReuseBoth) {
        sockopt::set_socket_reuseport(&socket, true)?;
    }
    bind(&socket, &address)?;
    Ok(socket)
}
