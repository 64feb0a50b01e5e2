//! The sockets of this machine, as the kernel knows them: who listens.
//!
//! Asked by `sock_diag`, for listeners only and for one port where one is enough: the kernel then walks its few
//! listeners, and not all its connections as it does for `/proc/net/tcp`, which stays for kernels without.

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};
use std::collections::HashSet;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;

/// `TCP_LISTEN` and `TCP_TIME_WAIT` of the kernel, as its tables write them.
const LISTEN: u8 = 0x0A;
const TIME_WAIT: u8 = 0x06;

/// Message types and flags of netlink, from `linux/netlink.h` and `linux/sock_diag.h`.
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const REQUEST_DUMP: u16 = 0x301;
/// `struct nlmsghdr`, and behind it `struct inet_diag_req_v2`.
const HEADER: usize = 16;
const REQUEST: usize = HEADER + 56;

/// Ports on which somebody on this machine listens; only `port`, if one is given.
pub(crate) fn listening(port: Option<u16>) -> HashSet<u16> {
    #[cfg(feature = "simulation")]
    if let Some(ports) = crate::simulated::processes::listening() {
        return ports.into_iter().collect();
    }
    by_diagnosis(port).unwrap_or_else(|_| {
        let ports = tables().into_iter().filter(|(_, state)| *state == LISTEN).map(|(port, _)| port);
        ports.filter(|there| port.is_none_or(|port| port == *there)).collect()
    })
}

/// True where the kernel tells who listens.
pub(crate) fn listening_is_known() -> bool {
    by_diagnosis(Some(1)).is_ok() || std::fs::File::open("/proc/net/tcp").is_ok()
}

/// True if the kernel keeps the port for connections that have ended, and for nothing else.
pub(crate) fn only_late_packets(port: u16) -> bool {
    // Who only holds a port is in no table, and cannot be told from nobody once a late packet is there;
    // a held port has had no connections.
    all_are(port, &[TIME_WAIT])
}

/// True if there are connections of this port, and only such as their server has closed.
pub(crate) fn only_lingers(port: u16) -> bool {
    // FIN_WAIT1, FIN_WAIT2, LAST_ACK, CLOSING.
    all_are(port, &[0x04, 0x05, TIME_WAIT, 0x09, 0x0B])
}

/// True if the port has sockets, each in one of these states.
fn all_are(port: u16, states: &[u8]) -> bool {
    let mut there = tables().into_iter().filter(|(there, _)| *there == port).peekable();
    there.peek().is_some() && there.all(|(_, state)| states.contains(&state))
}

fn by_diagnosis(port: Option<u16>) -> io::Result<HashSet<u16>> {
    let socket = socket_with(
        AddressFamily::NETLINK,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        Some(netlink::SOCK_DIAG),
    )?;
    let mut found = HashSet::new();
    for family in [AddressFamily::INET, AddressFamily::INET6] {
        ask(&socket, family, port, &mut found)?;
    }
    Ok(found)
}

fn ask(
    socket: &OwnedFd,
    family: AddressFamily,
    port: Option<u16>,
    found: &mut HashSet<u16>,
) -> io::Result<()> {
    send(socket, &request(family, port), SendFlags::empty())?;
    let mut answer = vec![0; 32 << 10];
    loop {
        let (count, _) = recv(socket, answer.as_mut_slice(), RecvFlags::empty())?;
        if !take(&answer[..count.min(answer.len())], found)? {
            return Ok(());
        }
    }
}

/// All listeners of a family, or those of one port.
fn request(family: AddressFamily, port: Option<u16>) -> [u8; REQUEST] {
    let mut request = [0; REQUEST];
    request[0..4].copy_from_slice(&(REQUEST as u32).to_ne_bytes());
    request[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    request[6..8].copy_from_slice(&REQUEST_DUMP.to_ne_bytes());
    let body = &mut request[HEADER..];
    body[0] = family.as_raw() as u8;
    body[1] = libc::IPPROTO_TCP as u8;
    body[4..8].copy_from_slice(&(1u32 << LISTEN).to_ne_bytes());
    body[8..10].copy_from_slice(&port.unwrap_or(0).to_be_bytes());
    request
}

/// Reads some of the kernel's messages; false when the last one was among them.
fn take(mut messages: &[u8], found: &mut HashSet<u16>) -> io::Result<bool> {
    let bad = || io::Error::new(io::ErrorKind::InvalidData, "an answer of the kernel that is cut short");
    while messages.len() >= HEADER {
        let length = u32::from_ne_bytes([messages[0], messages[1], messages[2], messages[3]]) as usize;
        let message = messages.get(..length).filter(|message| message.len() >= HEADER).ok_or_else(bad)?;
        let body = &message[HEADER..];
        match u16::from_ne_bytes([message[4], message[5]]) {
            NLMSG_DONE => return Ok(false),
            NLMSG_ERROR => {
                let code = body.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes)).ok_or_else(bad)?;
                return Err(io::Error::from_raw_os_error(code.saturating_neg()));
            }
            SOCK_DIAG_BY_FAMILY => {
                // `struct inet_diag_msg`: family, state, timer, retransmits, then the port.
                let (state, port) = match body {
                    [_, state, _, _, high, low, ..] => (*state, u16::from_be_bytes([*high, *low])),
                    _ => return Err(bad()),
                };
                if state == LISTEN {
                    found.insert(port);
                }
            }
            _ => {}
        }
        messages = messages.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(true)
}

/// Port and state of every socket in the kernel's tables.
fn tables() -> Vec<(u16, u8)> {
    ["/proc/net/tcp", "/proc/net/tcp6"]
        .into_iter()
        .filter_map(|table| std::fs::read_to_string(table).ok())
        .flat_map(|text| parse_table(&text))
        .collect()
}

/// Lines such as `  0: 0100007F:1F90 00000000:0000 0A ...`
fn parse_table(table: &str) -> Vec<(u16, u8)> {
    table
        .lines()
        .filter_map(|line| {
            let mut fields = line.split_ascii_whitespace().skip(1);
            let (_, port) = fields.next()?.rsplit_once(':')?;
            let state = fields.nth(1)?;
            Some((u16::from_str_radix(port, 16).ok()?, u8::from_str_radix(state, 16).ok()?))
        })
        .collect()
}

/// A process that listens on a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener {
    /// Its process id.
    pub pid: u32,
    /// What its program is called.
    pub name: String,
}

impl fmt::Display for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pid {} ({})", self.pid, self.name)
    }
}

/// Who listens on a port, as far as `/proc` tells: other users' processes hide their sockets.
pub(crate) fn listener(port: u16) -> Option<Listener> {
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
    use std::net::TcpListener;

    #[test]
    fn listeners_are_found_by_their_port_or_among_all() {
        let v4 = TcpListener::bind("127.0.0.1:0").unwrap();
        let v6 = TcpListener::bind("[::]:0").unwrap();
        for listener in [&v4, &v6] {
            let port = listener.local_addr().unwrap().port();
            assert_eq!(by_diagnosis(Some(port)).unwrap(), HashSet::from([port]));
            assert!(by_diagnosis(None).unwrap().contains(&port));
        }
        let port = v4.local_addr().unwrap().port();
        drop(v4);
        assert_eq!(listening(Some(port)), HashSet::new());
    }

    #[test]
    fn what_the_kernel_would_not_say_is_refused() {
        let mut found = HashSet::new();
        let mut message = request(AddressFamily::INET, Some(80));
        message[0] = 200;
        assert!(take(&message, &mut found).is_err(), "longer than what came");
        message[0] = 3;
        assert!(take(&message, &mut found).is_err(), "shorter than its own head");
        assert!(take(&[0; 7], &mut found).unwrap(), "nothing to read");
        let done = [16, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        assert!(!take(&done, &mut found).unwrap());
        assert!(found.is_empty());
    }

    #[test]
    fn listeners_in_the_kernels_table() {
        let table = "  sl  local_address rem_address   st\n   0: 0100007F:1F90 00000000:0000 0A 0\n   1: 0100007F:1F91 0100007F:1F90 01 0\n";
        assert_eq!(parse_table(table), [(8080, LISTEN), (8081, 1)]);
    }

    #[test]
    fn inodes_of_listeners_alone() {
        let table = "  sl  local_address rem_address   st\n   0: 0100007F:1F90 0100007F:9999 01 0:0 00:0 0 1000 0 11 1\n   1: 00000000:1F90 00000000:0000 0A 0:0 00:0 0 1000 0 12 1\n";
        assert_eq!(inode(table, 8080), Some(12));
        assert_eq!(inode(table, 8081), None);
    }
}
