//! The reading end of a pipe, in the event loop: what a member writes, what the guard passes on.

use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::unix::pipe;

/// A pipe that is read without holding up the event loop.
#[derive(Debug)]
pub(crate) struct Pipe(Inner);

#[derive(Debug)]
enum Inner {
    Real(pipe::Receiver),
    #[cfg(feature = "simulation")]
    Simulated(crate::simulated::net::ReadEnd),
}

impl Pipe {
    /// Must be called in an event loop.
    pub(crate) fn new(descriptor: OwnedFd) -> io::Result<Pipe> {
        pipe::Receiver::from_owned_fd(descriptor).map(|pipe| Pipe(Inner::Real(pipe)))
    }

    #[cfg(feature = "simulation")]
    pub(crate) fn simulated(end: crate::simulated::net::ReadEnd) -> Pipe {
        Pipe(Inner::Simulated(end))
    }

    /// How many bytes are in it; 0 if nobody knows.
    pub(crate) fn unread(&self) -> u64 {
        match &self.0 {
            Inner::Real(pipe) => rustix::io::ioctl_fionread(pipe).unwrap_or(0),
            #[cfg(feature = "simulation")]
            Inner::Simulated(_) => 0,
        }
    }
}

impl AsyncRead for Pipe {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.0 {
            Inner::Real(pipe) => Pin::new(pipe).poll_read(context, buffer),
            #[cfg(feature = "simulation")]
            Inner::Simulated(end) => Pin::new(end).poll_read(context, buffer),
        }
    }
}
