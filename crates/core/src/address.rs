//! Addresses: which name or number of a host the others are to use.
//!
//! Pure rules over host names ([`HostRule`]) for sites whose InfiniBand names follow from the node
//! names, and a choice among this machine's own interfaces ([`Choice`]).

use crate::hint;
use crate::hint::{Hint, Hinted};
use regex_lite::Regex;
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;
use thiserror::Error;

/// How a host's name becomes the address others use.
#[derive(Debug, Clone, Default)]
pub enum HostRule {
    /// The name itself.
    #[default]
    Name,
    /// `n01` with `-ib` is `n01-ib`.
    Suffix(String),
    /// `s/^c(\d\d)(\d\d)$/172.28.\1.\2/`
    Map(HostMap),
}

/// A sed-like substitution over host names.
#[derive(Debug, Clone)]
pub struct HostMap {
    text: String,
    pattern: Regex,
    replacement: String,
    everywhere: bool,
}

/// An IPv4 or IPv6 network, `10.1.0.0/16`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

/// Which of this machine's addresses to use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    /// That of the interface with this name, `ib0`.
    Interface(String),
    /// One in this network.
    Network(Network),
    /// This very one.
    Address(IpAddr),
}

/// Why there is no address.
#[derive(Debug, Error)]
pub enum AddressError {
    /// A host map is not written as sed writes a substitution.
    #[error("the host map {text}: {reason}")]
    Map {
        /// As the user wrote it.
        text: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A host's name is not of the form that the host map expects.
    #[error("the host map {rule} does not match host {host}")]
    NoMatch {
        /// The host map, as the user wrote it.
        rule: String,
        /// The name that it does not match.
        host: String,
    },
    /// A text is not a network.
    #[error("{text} is not a network")]
    Network {
        /// As the user wrote it.
        text: String,
    },
    /// The interface that was chosen does not exist, or has no address that others can use.
    #[error("interface {name} has no address here; there are {there}")]
    NoInterface {
        /// The interface that was chosen.
        name: String,
        /// All interfaces with their addresses: `lo (127.0.0.1), ib0 (10.1.0.7)`.
        there: String,
    },
    /// The address that was chosen is another machine's.
    #[error("{address} is no address of this machine, which has {there}")]
    NotOurs {
        /// As the user wrote it.
        address: IpAddr,
        /// The interfaces with their addresses.
        there: String,
    },
    /// No interface has an address in the network that was chosen.
    #[error("no interface has an address in {network}; there are {there}")]
    NotInNetwork {
        /// The network that was chosen.
        network: String,
        /// All interfaces with their addresses.
        there: String,
    },
    /// The system does not list its interfaces.
    #[error("this machine's interfaces cannot be read: {0}")]
    Unreadable(#[from] std::io::Error),
}

impl Hinted for AddressError {
    fn hint(&self) -> Option<Hint> {
        match self {
            AddressError::Map { .. } => {
                Some(hint!(r"write it as sed does, 's/^c(\d\d)(\d\d)$/172.28.\1.\2/'"))
            }
            AddressError::NoMatch { .. } => Some(hint!("the pattern must match every host")),
            AddressError::Network { .. } => Some(hint!("write 10.1.0.0/16")),
            AddressError::NotOurs { .. } => Some(hint!("choose one of these")),
            AddressError::NoInterface { .. }
            | AddressError::NotInNetwork { .. }
            | AddressError::Unreadable(_) => None,
        }
    }
}

impl HostRule {
    /// The address of the host called `name`.
    pub(crate) fn apply(&self, name: &str) -> Result<String, AddressError> {
        match self {
            HostRule::Name => Ok(name.to_owned()),
            HostRule::Suffix(suffix) => Ok(match name.split_once('.') {
                // The suffix belongs to the host's own name: n01.lab is n01-ib.lab.
                Some((host, domain)) if !name.starts_with(|c: char| c.is_ascii_digit()) => {
                    format!("{host}{suffix}.{domain}")
                }
                _ => format!("{name}{suffix}"),
            }),
            HostRule::Map(map) => map.apply(name),
        }
    }
}

impl HostMap {
    fn apply(&self, name: &str) -> Result<String, AddressError> {
        if !self.pattern.is_match(name) {
            return Err(AddressError::NoMatch { rule: self.text.clone(), host: name.to_owned() });
        }
        let limit = if self.everywhere { 0 } else { 1 };
        let address = self.pattern.replacen(name, limit, self.replacement.as_str());
        Ok(without_leading_zeros(&address).unwrap_or_else(|| address.into_owned()))
    }
}

/// `172.28.01.02` is `172.28.1.2`: resolvers read a leading zero as octal, or refuse it.
fn without_leading_zeros(address: &str) -> Option<String> {
    let octets: Vec<u8> = address
        .split('.')
        .map(|octet| {
            let digits = !octet.is_empty() && octet.bytes().all(|byte| byte.is_ascii_digit());
            digits.then(|| octet.parse().ok()).flatten()
        })
        .collect::<Option<_>>()?;
    let octets: [u8; 4] = octets.try_into().ok()?;
    Some(Ipv4Addr::from(octets).to_string())
}

impl FromStr for HostMap {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<HostMap, AddressError> {
        let bad = |reason: &str| AddressError::Map { text: text.to_owned(), reason: reason.to_owned() };
        let mut rest = text.strip_prefix('s').ok_or_else(|| bad("it does not begin with s"))?.chars();
        let delimiter = rest
            .next()
            .filter(|c| !c.is_alphanumeric() && *c != '\\')
            .ok_or_else(|| bad("there is no delimiter behind the s"))?;
        let parts = split_unescaped(rest.as_str(), delimiter);
        let [pattern, replacement, flags] = parts.as_slice() else {
            return Err(bad("it does not have three parts"));
        };
        let (mut everywhere, mut ignore_case) = (false, false);
        for flag in flags.chars() {
            match flag {
                'g' => everywhere = true,
                'i' | 'I' => ignore_case = true,
                _ => return Err(bad(&format!("flag {flag:?} is not known"))),
            }
        }
        let pattern = if ignore_case { format!("(?i){pattern}") } else { pattern.clone() };
        let pattern = Regex::new(&pattern).map_err(|error| bad(&error.to_string()))?;
        let replacement = replacement_from_sed(replacement);
        Ok(HostMap { text: text.to_owned(), pattern, replacement, everywhere })
    }
}

/// Splits at `delimiter`; `\` before it makes it an ordinary character.
fn split_unescaped(text: &str, delimiter: char) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let last = parts.len() - 1;
        if c == delimiter {
            parts.push(String::new());
        } else if c == '\\' && chars.peek() == Some(&delimiter) {
            parts[last].extend(chars.next());
        } else {
            parts[last].push(c);
        }
    }
    parts
}

/// `\1` and `&` as sed has them; `$` is an ordinary character there.
fn replacement_from_sed(text: &str) -> String {
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '$' => out.push_str("$$"),
            '&' => out.push_str("${0}"),
            '\\' => match chars.next() {
                Some(digit) if digit.is_ascii_digit() => out.push_str(&format!("${{{digit}}}")),
                Some('$') => out.push_str("$$"),
                Some(other) => out.push(other),
                None => {}
            },
            other => out.push(other),
        }
    }
    out
}

impl FromStr for Network {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Network, AddressError> {
        let bad = || AddressError::Network { text: text.to_owned() };
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| bad())?;
        let longest = if address.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            None => longest,
            Some(prefix) => prefix.parse().ok().filter(|&prefix| prefix <= longest).ok_or_else(bad)?,
        };
        Ok(Network { address, prefix })
    }
}

impl std::fmt::Display for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

impl Network {
    /// True if the address is one of this network.
    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        let bits = |address: IpAddr| match address {
            IpAddr::V4(v4) => u128::from(v4.to_bits()) << 96,
            IpAddr::V6(v6) => v6.to_bits(),
        };
        let differing = bits(self.address) ^ bits(address);
        self.address.is_ipv4() == address.is_ipv4() && differing.leading_zeros() >= u32::from(self.prefix)
    }
}

impl Choice {
    /// The first address that fits, IPv4 before IPv6.
    pub(crate) fn among(&self, interfaces: &[(String, IpAddr)]) -> Result<IpAddr, AddressError> {
        let fits = |(name, address): &(String, IpAddr)| match self {
            Choice::Interface(wanted) => name == wanted,
            Choice::Network(network) => network.contains(*address),
            Choice::Address(wanted) => address == wanted,
        };
        // All of 127.0.0.0/8 is this machine's, though its interface names but one.
        if let Choice::Address(address) = self
            && address.is_loopback()
        {
            return Ok(*address);
        }
        let mut fitting: Vec<IpAddr> = interfaces
            .iter()
            .filter(|interface| fits(interface) && !is_link_local(interface.1))
            .map(|(_, address)| *address)
            .collect();
        fitting.sort_by_key(IpAddr::is_ipv6);
        fitting.first().copied().ok_or_else(|| {
            let there = interfaces
                .iter()
                .map(|(name, address)| format!("{name} ({address})"))
                .collect::<Vec<_>>()
                .join(", ");
            match self {
                Choice::Interface(name) => AddressError::NoInterface { name: name.clone(), there },
                Choice::Network(network) => {
                    AddressError::NotInNetwork { network: network.to_string(), there }
                }
                Choice::Address(address) => AddressError::NotOurs { address: *address, there },
            }
        })
    }
}

/// Link-local addresses mean nothing on another host.
pub(crate) fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

/// `host:port`, with brackets around an IPv6 address.
pub(crate) fn endpoint(address: &str, port: u16) -> String {
    if address.contains(':') && !address.starts_with('[') {
        format!("[{address}]:{port}")
    } else {
        format!("{address}:{port}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(rule: &str, host: &str) -> String {
        match rule.parse::<HostMap>().map(HostRule::Map).and_then(|rule| rule.apply(host)) {
            Ok(address) => address,
            Err(error) => format!("error: {error}"),
        }
    }

    #[test]
    fn infiniband_addresses_from_node_names() {
        assert_eq!(map(r"s/^c(\d\d)(\d\d)$/172.28.\1.\2/", "c0712"), "172.28.7.12");
        assert_eq!(map(r"s/$/-ib/", "n01"), "n01-ib");
        assert_eq!(map(r"s|n|ib/|g", "nn1"), "ib/ib/1");
        assert_eq!(map(r"s/a\/b/x/", "a/b"), "x");
        assert_eq!(map(r"s/^N/m$1&/i", "n7"), "m$1n7");
    }

    #[test]
    fn rules_that_cannot_be_say_why() {
        assert!(map("x/a/b/", "n").contains("does not begin with s"));
        assert!(map("s/a/b", "n").contains("three parts"));
        assert!(map("s/(/b/", "n").starts_with("error: the host map s/(/b/"));
        assert!(map("s/a/b/q", "n").contains("flag 'q'"));
        assert!(map("s/^c/d/", "n1").contains("does not match host n1"));
    }

    #[test]
    fn suffixes_go_before_the_domain() {
        let suffix = HostRule::Suffix("-ib".to_owned());
        assert_eq!(suffix.apply("n01").unwrap(), "n01-ib");
        assert_eq!(suffix.apply("n01.lab").unwrap(), "n01-ib.lab");
    }

    #[test]
    fn networks() {
        let network: Network = "10.1.0.0/16".parse().unwrap();
        assert!(network.contains("10.1.255.3".parse().unwrap()));
        assert!(!network.contains("10.2.0.1".parse().unwrap()));
        assert!(!network.contains("::1".parse().unwrap()));
        assert!("0.0.0.0/0".parse::<Network>().unwrap().contains("9.9.9.9".parse().unwrap()));
        assert!("fe80::/10".parse::<Network>().unwrap().contains("fe80::1".parse().unwrap()));
        for bad in ["", "10.1", "10.1.0.0/33", "10.1.0.0/x", "::/129"] {
            assert!(bad.parse::<Network>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_choice_among_interfaces() {
        let interfaces = [("lo", "127.0.0.1"), ("ib0", "fe80::1"), ("ib0", "fd00::1"), ("ib0", "10.1.0.7")]
            .map(|(name, address)| (name.to_owned(), address.parse::<IpAddr>().unwrap()));
        let own = |choice: Choice| choice.among(&interfaces).map(|address| address.to_string());
        assert_eq!(own(Choice::Network("127.0.0.0/8".parse().unwrap())).unwrap(), "127.0.0.1");
        assert_eq!(own(Choice::Interface("ib0".to_owned())).unwrap(), "10.1.0.7", "IPv4 before IPv6");
        assert_eq!(own(Choice::Network("fd00::/8".parse().unwrap())).unwrap(), "fd00::1");
        let text = own(Choice::Interface("nosuch0".to_owned())).unwrap_err().to_string();
        assert!(text.contains("nosuch0") && text.contains("127.0.0.1"), "{text}");
        assert!(own(Choice::Network("fe80::/10".parse().unwrap())).is_err(), "nobody else can use it");
    }
}
