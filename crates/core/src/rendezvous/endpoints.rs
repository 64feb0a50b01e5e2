//! Which address of each member the roster names: one that is known to work, where there is one.

use super::RendezvousError;
use super::message::{Offer, Seat};
use crate::roster::Endpoint;
use std::collections::HashMap;
use std::net::IpAddr;

/// Host, machine and endpoint of each rank, from the offers in rank order.
///
/// What the user chose is used. Members of one machine meet on loopback. All others have proved one address: that by which
/// they reached the leader, which a joiner puts first in its offer. Those on the leader's own machine reach it by loopback,
/// which proves nothing; but `reached` has the addresses of that machine by which others came. The kernel's first interface
/// is only the last resort: on many machines it is a bridge (docker0, virbr0) that no other machine can reach.
pub(super) fn seats(
    offers: &[&Offer],
    leaders_machine: &str,
    reached: &[IpAddr],
) -> Result<Vec<Seat>, RendezvousError> {
    let one_machine = offers.iter().all(|offer| offer.machine == offers[0].machine);
    let proved = most_common(reached);
    let mut machines: HashMap<(&str, &str), u32> = HashMap::new();
    offers
        .iter()
        .map(|offer| {
            let next = machines.len() as u32;
            let machine = *machines.entry((&offer.host, &offer.machine)).or_insert(next);
            let proved = proved.as_ref().filter(|address| {
                offer.machine == leaders_machine && !offer.chosen && offer.addresses.contains(address)
            });
            let address = match proved {
                _ if one_machine && !offer.chosen => "127.0.0.1".to_owned(),
                Some(proved) => proved.clone(),
                None => {
                    let usable = offer.addresses.iter().find(|address| offer.chosen || !is_loopback(address));
                    usable.cloned().ok_or(RendezvousError::NoAddress)?
                }
            };
            let endpoint = Endpoint { address, port: offer.port };
            Ok(Seat { host: offer.host.clone(), machine, endpoint })
        })
        .collect()
}

/// The addresses of an offer, with the one that the leader was reached from first. A choice of the user stays as it is.
pub(super) fn proved_first(offer: &mut Offer, local: IpAddr) {
    if offer.chosen || local.is_loopback() {
        return;
    }
    let local = local.to_string();
    offer.addresses.retain(|address| *address != local);
    offer.addresses.insert(0, local);
}

/// The one that most have come by, the first of them in a tie.
fn most_common(reached: &[IpAddr]) -> Option<String> {
    let mut counts: HashMap<IpAddr, usize> = HashMap::new();
    for address in reached.iter().filter(|address| !address.is_loopback()) {
        *counts.entry(*address).or_default() += 1;
    }
    let most = counts.values().copied().max()?;
    reached.iter().find(|address| counts.get(address) == Some(&most)).map(ToString::to_string)
}

fn is_loopback(address: &str) -> bool {
    address == "localhost" || address.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// docker0 is the kernel's first, as on a machine whose network came up after it.
    fn offer(rank: u32, machine: &str) -> Offer {
        let addresses = ["172.17.0.1".to_owned(), format!("10.0.0.{}", rank + 1), "127.0.0.1".to_owned()];
        Offer { machine: machine.to_owned(), addresses: addresses.to_vec(), ..Offer::for_tests(rank) }
    }

    fn addresses(offers: &[Offer], reached: &[&str]) -> Vec<String> {
        let reached: Vec<IpAddr> = reached.iter().map(|address| address.parse().unwrap()).collect();
        let offers: Vec<&Offer> = offers.iter().collect();
        let seats = seats(&offers, "leader", &reached).unwrap();
        seats.into_iter().map(|seat| seat.endpoint.address).collect()
    }

    #[test]
    fn an_address_that_is_known_to_work_is_preferred() {
        let mut joiner = offer(1, "other");
        proved_first(&mut joiner, "10.0.0.2".parse().unwrap());
        assert_eq!(joiner.addresses, ["10.0.0.2", "172.17.0.1", "127.0.0.1"]);
        // The leader, and one beside it that came by loopback: as the other machine has reached them.
        let mut beside = Offer { addresses: offer(0, "leader").addresses, ..offer(2, "leader") };
        proved_first(&mut beside, "127.0.0.1".parse().unwrap());
        let reached = ["127.0.0.1", "10.0.0.1"];
        let all = [offer(0, "leader"), joiner.clone(), beside.clone()];
        assert_eq!(addresses(&all, &reached), ["10.0.0.1", "10.0.0.2", "10.0.0.1"]);
        // One that none of its interfaces has (a forwarded port) is of no use to others.
        assert_eq!(addresses(&all, &["192.0.2.9"])[0], "172.17.0.1");
    }

    #[test]
    fn the_users_choice_wins() {
        let chosen = |rank, machine: &str| {
            let mut offer =
                Offer { chosen: true, addresses: vec!["192.168.9.9".to_owned()], ..offer(rank, machine) };
            proved_first(&mut offer, "10.0.0.7".parse().unwrap());
            offer
        };
        let all = [chosen(0, "leader"), chosen(1, "other")];
        assert_eq!(addresses(&all, &["10.0.0.1"]), ["192.168.9.9", "192.168.9.9"]);
    }

    #[test]
    fn one_machine_meets_on_loopback_and_containers_are_machines_of_their_own() {
        let one = [offer(0, "leader"), offer(1, "leader")];
        assert_eq!(addresses(&one, &[]), ["127.0.0.1", "127.0.0.1"]);
        let here = |rank, machine: &str| Offer { host: "localhost".to_owned(), ..offer(rank, machine) };
        let containers = [here(0, "leader"), here(1, "net 2"), here(2, "leader")];
        let offers: Vec<&Offer> = containers.iter().collect();
        let numbers: Vec<u32> =
            seats(&offers, "leader", &[]).unwrap().iter().map(|seat| seat.machine).collect();
        assert_eq!(numbers, [0, 1, 0]);
        let nowhere = Offer { addresses: vec!["127.0.0.1".to_owned()], ..offer(1, "other") };
        assert!(seats(&[&offer(0, "leader"), &nowhere], "leader", &[]).is_err());
    }
}
