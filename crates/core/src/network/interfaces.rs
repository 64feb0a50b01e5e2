//! This machine's interfaces, with their kind and speed from `/sys/class/net`, and its own addresses.

use crate::address::{AddressError, Choice, is_link_local};
use serde::Serialize;
use std::net::IpAddr;
use std::path::Path;

/// One address of one interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Interface {
    /// Its name: `ib0`.
    pub name: String,
    /// IPv4 or IPv6, without a prefix.
    pub address: String,
    /// What it is made of.
    pub kind: Kind,
    /// Megabits a second, where the driver tells.
    pub megabits: Option<u64>,
}

/// What an interface is made of, as the kernel tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Ethernet, real or virtual.
    Ethernet,
    /// IP over InfiniBand.
    InfiniBand,
    /// This machine itself.
    Loopback,
    /// Anything else, such as a tunnel.
    Other,
}

/// All addresses; none if the system does not tell.
pub fn interfaces() -> Vec<Interface> {
    let sys = Path::new("/sys/class/net");
    if_addrs::get_if_addrs()
        .unwrap_or_default()
        .into_iter()
        .map(|interface| {
            let (kind, megabits) = kind_and_speed(sys, &interface.name);
            Interface { address: interface.ip().to_string(), name: interface.name, kind, megabits }
        })
        .collect()
}

/// Addresses of this machine, the best for others first; loopback last.
pub fn own_addresses() -> Vec<IpAddr> {
    #[cfg(feature = "simulation")]
    if let Some(addresses) = crate::simulated::own_addresses() {
        return addresses;
    }
    let mut addresses: Vec<IpAddr> = if_addrs::get_if_addrs()
        .unwrap_or_default()
        .into_iter()
        .map(|interface| interface.ip())
        .filter(|address| !is_link_local(*address))
        .collect();
    addresses.sort_by_key(|address| (address.is_loopback(), address.is_ipv6()));
    addresses
}

/// This machine's address by a choice.
pub fn own_address(choice: &Choice) -> Result<IpAddr, AddressError> {
    let interfaces: Vec<(String, IpAddr)> =
        if_addrs::get_if_addrs()?.into_iter().map(|found| (found.name.clone(), found.ip())).collect();
    choice.among(&interfaces)
}

/// The numbers are the kernel's ARPHRD_* types.
fn kind_and_speed(sys: &Path, name: &str) -> (Kind, Option<u64>) {
    let folder = sys.join(name);
    let read = |file: &str| std::fs::read_to_string(folder.join(file)).ok();
    let kind = match read("type").as_deref().map(str::trim) {
        Some("1") => Kind::Ethernet,
        Some("32") => Kind::InfiniBand,
        Some("772") => Kind::Loopback,
        _ => Kind::Other,
    };
    // -1 where a driver does not know.
    let megabits = read("speed").and_then(|speed| speed.trim().parse().ok()).filter(|&speed| speed > 0);
    let megabits = megabits.or_else(|| infiniband_rate(&folder.join("device/infiniband")));
    (kind, megabits)
}

/// `100 Gb/sec (4X EDR)` in `device/infiniband/mlx5_0/ports/1/rate`.
fn infiniband_rate(folder: &Path) -> Option<u64> {
    let adapter = std::fs::read_dir(folder).ok()?.flatten().next()?;
    let rate = std::fs::read_to_string(adapter.path().join("ports/1/rate")).ok()?;
    let gigabits: f64 = rate.split_whitespace().next()?.parse().ok()?;
    Some((gigabits * 1000.0) as u64)
}

impl Kind {
    /// `Ethernet`, `InfiniBand`, as people write it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Ethernet => "Ethernet",
            Kind::InfiniBand => "InfiniBand",
            Kind::Loopback => "loopback",
            Kind::Other => "other",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_and_speeds_as_the_kernel_shows_them() {
        let sys = std::env::temp_dir().join(format!("rallypoint-sys-{}", std::process::id()));
        let write = |path: &str, text: &str| {
            let path = sys.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("eth0/type", "1\n");
        write("eth0/speed", "25000\n");
        write("eth1/type", "1\n");
        write("eth1/speed", "-1\n");
        write("ib0/type", "32\n");
        write("ib0/device/infiniband/mlx5_0/ports/1/rate", "100 Gb/sec (4X EDR)\n");
        assert_eq!(kind_and_speed(&sys, "eth0"), (Kind::Ethernet, Some(25000)));
        assert_eq!(kind_and_speed(&sys, "eth1"), (Kind::Ethernet, None));
        assert_eq!(kind_and_speed(&sys, "ib0"), (Kind::InfiniBand, Some(100_000)));
        assert_eq!(kind_and_speed(&sys, "gone"), (Kind::Other, None));
        std::fs::remove_dir_all(&sys).unwrap();
    }
}
