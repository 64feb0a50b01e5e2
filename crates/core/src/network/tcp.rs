//! Connections: the system's, and simulated ones where a simulation runs.

#[cfg(not(feature = "simulation"))]
pub(crate) use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
#[cfg(not(feature = "simulation"))]
pub(crate) use tokio::net::{TcpListener, TcpStream};

#[cfg(feature = "simulation")]
pub(crate) use either::{OwnedReadHalf, OwnedWriteHalf, TcpListener, TcpStream};

/// Either of the two, with what is used of tokio's own.
#[cfg(feature = "simulation")]
mod either {
    use crate::simulated::net::{self, ReadEnd, SimulatedListener, SimulatedStream, WriteEnd};
    use std::io;
    use std::net::{Ipv4Addr, SocketAddr};
    use std::pin::Pin;
    use std::task::{Context, Poll};
    use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
    use tokio::net::ToSocketAddrs;
    use tokio::net::tcp;

    #[derive(Debug)]
    pub(crate) enum TcpListener {
        Real(tokio::net::TcpListener),
        Simulated(SimulatedListener),
    }

    #[derive(Debug)]
    pub(crate) enum TcpStream {
        Real(tokio::net::TcpStream),
        Simulated(SimulatedStream),
    }

    #[derive(Debug)]
    pub(crate) enum OwnedReadHalf {
        Real(tcp::OwnedReadHalf),
        Simulated(ReadEnd),
    }

    #[derive(Debug)]
    pub(crate) enum OwnedWriteHalf {
        Real(tcp::OwnedWriteHalf),
        Simulated(WriteEnd),
    }

    impl TcpListener {
        pub(crate) fn from_std(listener: std::net::TcpListener) -> io::Result<TcpListener> {
            tokio::net::TcpListener::from_std(listener).map(TcpListener::Real)
        }

        #[cfg(test)]
        pub(crate) async fn bind<A: ToSocketAddrs>(address: A) -> io::Result<TcpListener> {
            tokio::net::TcpListener::bind(address).await.map(TcpListener::Real)
        }

        pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
            match self {
                TcpListener::Real(listener) => listener.local_addr(),
                TcpListener::Simulated(listener) => {
                    Ok(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), listener.port))
                }
            }
        }

        pub(crate) async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
            match self {
                TcpListener::Real(listener) => {
                    listener.accept().await.map(|(stream, peer)| (TcpStream::Real(stream), peer))
                }
                TcpListener::Simulated(listener) => {
                    listener.accept().await.map(|(stream, peer)| (TcpStream::Simulated(stream), peer))
                }
            }
        }
    }

    impl TcpStream {
        pub(crate) async fn connect<A: ToSocketAddrs>(address: A) -> io::Result<TcpStream> {
            if crate::simulated::here().is_some() {
                let address = tokio::net::lookup_host(address).await?.next();
                let address = address.ok_or(io::ErrorKind::InvalidInput)?;
                let unknown = || io::Error::from(io::ErrorKind::NetworkUnreachable);
                return net::connect(address).await.ok_or_else(unknown)?.map(TcpStream::Simulated);
            }
            tokio::net::TcpStream::connect(address).await.map(TcpStream::Real)
        }

        pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
            match self {
                TcpStream::Real(stream) => stream.local_addr(),
                TcpStream::Simulated(stream) => Ok(stream.local),
            }
        }

        pub(crate) fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
            match self {
                TcpStream::Real(stream) => stream.set_nodelay(nodelay),
                TcpStream::Simulated(_) => Ok(()),
            }
        }

        pub(crate) fn into_split(self) -> (OwnedReadHalf, OwnedWriteHalf) {
            match self {
                TcpStream::Real(stream) => {
                    let (read, write) = stream.into_split();
                    (OwnedReadHalf::Real(read), OwnedWriteHalf::Real(write))
                }
                TcpStream::Simulated(SimulatedStream { read, write, .. }) => {
                    (OwnedReadHalf::Simulated(read), OwnedWriteHalf::Simulated(write))
                }
            }
        }
    }

    impl From<tokio::net::TcpStream> for TcpStream {
        fn from(stream: tokio::net::TcpStream) -> TcpStream {
            TcpStream::Real(stream)
        }
    }

    impl AsyncRead for OwnedReadHalf {
        fn poll_read(
            self: Pin<&mut Self>,
            context: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            match self.get_mut() {
                OwnedReadHalf::Real(half) => Pin::new(half).poll_read(context, buffer),
                OwnedReadHalf::Simulated(half) => Pin::new(half).poll_read(context, buffer),
            }
        }
    }

    impl AsyncWrite for OwnedWriteHalf {
        fn poll_write(
            self: Pin<&mut Self>,
            context: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            match self.get_mut() {
                OwnedWriteHalf::Real(half) => Pin::new(half).poll_write(context, bytes),
                OwnedWriteHalf::Simulated(half) => Pin::new(half).poll_write(context, bytes),
            }
        }

        fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
            match self.get_mut() {
                OwnedWriteHalf::Real(half) => Pin::new(half).poll_flush(context),
                OwnedWriteHalf::Simulated(half) => Pin::new(half).poll_flush(context),
            }
        }

        fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
            match self.get_mut() {
                OwnedWriteHalf::Real(half) => Pin::new(half).poll_shutdown(context),
                OwnedWriteHalf::Simulated(half) => Pin::new(half).poll_shutdown(context),
            }
        }
    }
}
