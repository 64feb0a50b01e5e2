//! Descriptors that whoever started this process left open for it.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{FdFlags, fcntl_setfd};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

/// Takes over a socket by its number and closes it for children. To be called once for each number.
#[expect(unsafe_code, reason = "a number in a variable becomes an owned descriptor")]
pub fn take_inherited_socket(number: i32) -> io::Result<OwnedFd> {
    use std::os::fd::{BorrowedFd, FromRawFd};
    if number <= 2 {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no number of a socket"));
    }
    // SAFETY: the call only asks about a number; one that is not open is an error.
    let kind = rustix::net::sockopt::socket_type(unsafe { BorrowedFd::borrow_raw(number) })?;
    if kind != rustix::net::SocketType::STREAM {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a stream socket"));
    }
    // SAFETY: it is open, as the line above has seen; nothing in this process knows the number but the
    // variable, which is read once.
    let owned = unsafe { OwnedFd::from_raw_fd(number) };
    fcntl_setfd(&owned, FdFlags::CLOEXEC)?;
    Ok(owned)
}

/// Closes for children what a path such as `/dev/fd/7` names. Whoever reads it would otherwise wait for all of them, and
/// for what they leave behind. The three standard ones are left alone.
#[expect(unsafe_code, reason = "a number in a path is looked up")]
pub fn close_for_children(path: &Path) {
    let folders = ["/dev/fd", "/proc/self/fd"];
    let number = || folders.iter().find_map(|folder| path.strip_prefix(folder).ok()?.to_str()?.parse().ok());
    if let Some(number) = number().filter(|&number: &i32| number > 2) {
        // SAFETY: the call changes a flag of a number; one that is not open is an error.
        let descriptor = unsafe { std::os::fd::BorrowedFd::borrow_raw(number) };
        // Opening it will say what is wrong with it.
        _ = fcntl_setfd(descriptor, FdFlags::CLOEXEC);
    }
}

/// True if a read would not wait.
pub(crate) fn is_readable(descriptor: impl AsFd) -> io::Result<bool> {
    is_readable_within(descriptor, Duration::ZERO)
}

/// Waits until a read would not, or until the time is over.
pub(crate) fn is_readable_within(descriptor: impl AsFd, limit: Duration) -> io::Result<bool> {
    let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: limit.subsec_nanos().into() };
    match poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&limit)) {
        Ok(ready) => Ok(ready > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
