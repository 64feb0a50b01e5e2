//! The network of this machine: interfaces, sockets, and what this machine is called among others.
//!
//! | file | subject |
//! |---|---|
//! | `interfaces` | its addresses, with kind and speed |
//! | `bind` | a socket at all its addresses |
//! | `sockets` | who listens, as the kernel knows it |
//! | `tcp` | connections |
//! | `reach` | whether somebody listens elsewhere |
//! | `identity` | names that tell this machine, and its process ids, from others |

mod bind;
mod identity;
mod interfaces;
mod reach;
mod sockets;
mod tcp;

pub(crate) use bind::{Sharing, bind_at, bind_everywhere};
pub(crate) use identity::{machine_id, pid_namespace};
pub use interfaces::{Interface, Kind, interfaces, own_address, own_addresses};
pub use reach::reachable;
pub use sockets::Listener;
pub(crate) use sockets::{listener, listening, listening_is_known, only_late_packets, only_lingers};
pub(crate) use tcp::{OwnedReadHalf, OwnedWriteHalf, TcpListener, TcpStream};
