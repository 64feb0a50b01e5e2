//! Meeting at a given address: whoever can listen there leads, the others connect.
//!
//! There is no private place to leave a key, so `RALLYPOINT_KEY_FILE` must name one.

use super::{Contact, ContestedLeader, RendezvousError};
use crate::network::own_addresses;
use crate::ports::is_free_for_a_server;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

#[derive(Debug)]
pub(crate) struct Address {
    text: String,
    resolved: Vec<SocketAddr>,
}

impl Address {
    /// `host:port`
    pub(crate) fn new(text: &str) -> Result<Address, RendezvousError> {
        let resolved: Vec<SocketAddr> = text
            .to_socket_addrs()
            .map_err(|error| RendezvousError::Unreachable { reason: format!("{text}: {error}") })?
            .collect();
        Ok(Address { text: text.to_owned(), resolved })
    }

    /// True if one of the addresses is this machine's and nobody listens there.
    fn could_lead(&self) -> bool {
        let own = own_addresses();
        let is_own = |address: IpAddr| address.is_loopback() || own.contains(&address);
        self.resolved.iter().any(|address| is_own(address.ip()) && is_free_for_a_server(address.port()))
    }
}

impl ContestedLeader for Address {
    fn name(&self) -> String {
        format!("address {}", self.text)
    }

    fn look(&mut self) -> Result<Option<Contact>, RendezvousError> {
        if self.could_lead() {
            return Ok(None);
        }
        Ok(Some(Contact {
            version: super::message::VERSION,
            id: String::new(),
            host: self.text.clone(),
            // Never this machine's own: the address is used as given.
            machine: String::new(),
            pid: 0,
            pid_namespace: String::new(),
            job: None,
            attempt: 0,
            addresses: self.resolved.iter().map(SocketAddr::ip).collect(),
            port: self.port(),
            key: None,
        }))
    }

    /// Listening is the claim: a port has one listener.
    fn claim(&mut self, _: &Contact) -> Result<bool, RendezvousError> {
        Ok(true)
    }

    fn replace(&mut self, _: &Contact, _: &Contact) -> Result<bool, RendezvousError> {
        Ok(false)
    }

    fn retract(&mut self) {}

    fn port(&self) -> u16 {
        self.resolved.first().map_or(0, SocketAddr::port)
    }
}
