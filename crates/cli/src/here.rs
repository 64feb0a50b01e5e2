//! Whether an address of a TF_CONFIG file is one of this machine's.

use std::net::{IpAddr, ToSocketAddrs};

/// What this machine is called and can be reached at.
pub(crate) struct Here {
    pub(crate) name: String,
    pub(crate) addresses: Vec<IpAddr>,
}

impl Here {
    /// Why `host:port` cannot be a member on this machine; `None` if it can. `find` looks names up.
    pub(crate) fn is_not(&self, address: &str, find: impl Fn(&str) -> Vec<IpAddr>) -> Option<String> {
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host).trim_matches(['[', ']']);
        let short = |name: &str| name.split('.').next().unwrap_or_default().to_ascii_lowercase();
        let found = match host.parse::<IpAddr>() {
            Ok(address) => vec![address],
            Err(_) if host.eq_ignore_ascii_case("localhost") || short(host) == short(&self.name) => {
                return None;
            }
            Err(_) => find(host),
        };
        let is_here = |address: &IpAddr| {
            address.is_loopback() || address.is_unspecified() || self.addresses.contains(address)
        };
        if found.iter().any(is_here) {
            return None;
        }
        let there = match found.first() {
            None => format!("{address}, which nobody here knows"),
            Some(found) if found.to_string() == host => address.to_owned(),
            Some(found) => format!("{address} ({found})"),
        };
        let own: Vec<String> =
            self.addresses.iter().filter(|own| !own.is_loopback()).map(IpAddr::to_string).collect();
        Some(format!("{there}, and this machine is {} ({})", self.name, own.join(", ")))
    }
}

/// The addresses that a name has, as this machine knows it.
pub(crate) fn look_up(host: &str) -> Vec<IpAddr> {
    (host, 0).to_socket_addrs().map(|found| found.map(|address| address.ip()).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_this_machine_and_of_others() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let here = Here {
            name: "n1.site".to_owned(),
            addresses: vec![ip("10.0.0.1"), ip("fd00::1"), ip("127.0.0.1")],
        };
        let find = |name: &str| match name {
            "n1-ib" => vec![ip("10.0.0.1")],
            "n7" => vec![ip("10.0.0.7")],
            _ => Vec::new(),
        };
        let why = |address| here.is_not(address, find);
        for own in [
            "localhost:1",
            "127.0.0.1:1",
            "127.1.2.3:1",
            "[::1]:1",
            "n1:1",
            "N1.site:1",
            "n1-ib:1",
            "10.0.0.1:1",
            "[fd00::1]:1",
            "0.0.0.0:1",
        ] {
            assert_eq!(why(own), None, "{own}");
        }
        let me = "and this machine is n1.site (10.0.0.1, fd00::1)";
        assert_eq!(why("n7:2222"), Some(format!("n7:2222 (10.0.0.7), {me}")));
        assert_eq!(why("10.0.0.7:2222"), Some(format!("10.0.0.7:2222, {me}")));
        assert_eq!(why("n8:2222"), Some(format!("n8:2222, which nobody here knows, {me}")));
    }
}
