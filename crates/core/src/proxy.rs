//! Proxies, from which the members' own connections must be spared.

use crate::environ::Environ;
use crate::variables::{self as var, MAX_STRING};
use std::collections::BTreeSet;

/// Variables that gRPC takes for a proxy; the first that is set wins.
pub(crate) const PROXIES: [&str; 3] = [var::GRPC_PROXY, var::HTTPS_PROXY_LOWER, var::HTTP_PROXY_LOWER];

/// gRPC goes through a proxy even to localhost, and hangs: names the members' hosts in `no_proxy`.
/// `None` if there is no proxy, or all of them are named already.
pub(crate) fn no_proxy<'a>(
    environ: &'a Environ,
    hosts: impl Iterator<Item = &'a str>,
) -> Option<(Vec<(String, String)>, String)> {
    let proxy = PROXIES.into_iter().find(|proxy| environ.get_nonempty(proxy).is_some())?;
    let lower = environ.get_nonempty(var::NO_PROXY_LOWER);
    let before = lower.or(environ.get_nonempty(var::NO_PROXY_UPPER));
    let mut spared: Vec<&str> =
        before.unwrap_or("").split(',').map(str::trim).filter(|host| !host.is_empty()).collect();
    let known: BTreeSet<&str> = spared.iter().copied().collect();
    let wanted: BTreeSet<&str> = hosts.chain(["localhost", "127.0.0.1"]).collect();
    if lower.is_some() && wanted.is_subset(&known) {
        return None;
    }
    spared.extend(wanted.difference(&known));
    let value = spared.join(",");
    if value.len() + 16 > MAX_STRING {
        let note = format!("{proxy} is set, and the members' hosts are too many for no_proxy: unset it");
        return Some((Vec::new(), note));
    }
    let note =
        format!("{proxy} is set: the members' hosts are added to no_proxy, since gRPC would go through it");
    let names = [var::NO_PROXY_LOWER, var::NO_PROXY_UPPER];
    Some((names.map(|name| (name.to_owned(), value.clone())).into(), note))
}
