//! What agents say to each other, as JSON in authenticated frames.

use crate::hostlist::{FoldError, HostList, Order};
use crate::outcome::{Ended, Farewell};
use crate::rehearsal::Deed;
use crate::roster::Endpoint;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// The protocol's version; agents of different ones do not meet.
pub const VERSION: u32 = 6;

/// From an agent to the leader.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub(crate) enum ToLeader {
    /// First: who I am and where my member will listen.
    Offer(Offer),
    Started {
        pid: u32,
        /// It is a server without Python.
        #[serde(default)]
        served: bool,
    },
    Listening,
    /// The member has written something, now or in the last few seconds.
    Wrote,
    /// The member's process ended.
    Ended(Ended),
    /// Bytes of the member's output are lost.
    OutputLost {
        path: String,
        bytes: u64,
        why: String,
    },
    /// A fault was done on purpose to this process, the member's or the agent's own; to none if the member does not run.
    Rehearsed {
        deed: Deed,
        after_ms: u64,
        pid: Option<u32>,
    },
    /// A signal came to this agent.
    Interrupted {
        signal: i32,
    },
    /// This agent has failed before its member could start; its exit code, and why.
    Failed {
        code: u8,
        why: String,
    },
    Alive,
}

/// From the leader to an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub(crate) enum ToMember {
    /// The offer is taken; this is your rank, and that is the leader's, if it is a member.
    Welcome {
        rank: u32,
        leader: Option<u32>,
    },
    Refused {
        why: String,
    },
    /// An earlier attempt is still running; stay connected to hear its end.
    Later,
    /// Who has come and who is missing: the ranks of the first few, and how many more.
    Waiting {
        come: u32,
        world: u32,
        missing: Vec<u32>,
        more: u32,
    },
    Roster(Columns),
    /// Start the member again.
    Restart,
    /// The member has finished: keep its address alive for the others.
    StandIn,
    Stop {
        grace_ms: u64,
    },
    Kill,
    /// Pass a signal on to the member.
    Signal {
        number: i32,
    },
    Alive,
    /// Everything has ended; how, and the exit code for all.
    Goodbye {
        code: u8,
        farewell: Farewell,
    },
}

impl ToMember {
    /// Whether it may not be left out where a connection is slow: the next word of the others says as much.
    pub(super) fn must_arrive(&self) -> bool {
        !matches!(self, ToMember::Waiting { .. } | ToMember::Alive)
    }
}

/// One agent's offer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Offer {
    /// The [`VERSION`] that it speaks.
    pub version: u32,
    /// The rank it wants, or the next free one.
    pub rank: Option<u32>,
    /// The job's name or id; all must agree.
    pub job: Option<String>,
    /// How often the scheduler has started the whole job before; all must agree.
    pub attempt: u32,
    /// How often it was started before, where members are started again apart from each other.
    pub runs: u32,
    /// The roles it was asked for; all must agree.
    pub roles: String,
    /// Its host's name.
    pub host: String,
    /// Tells machines apart whatever they are called.
    pub machine: String,
    /// Addresses that others may reach it by, the best first.
    pub addresses: Vec<String>,
    /// The user chose the address, so it is used even among members of one machine.
    pub chosen: bool,
    /// Where its member will listen.
    pub port: u16,
    /// The agent's own.
    pub pid: u32,
    /// A random number that only this agent has, and only this time: one that comes back is known by it. Pids of
    /// containers are the same everywhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<u64>,
}

impl Offer {
    /// True if both are known to be of one process.
    pub(super) fn is_of_the_same_process(&self, other: &Offer) -> bool {
        self.process.is_some() && self.process == other.process
    }
}

#[cfg(test)]
impl Offer {
    /// Of a machine of its own.
    pub(super) fn for_tests(rank: u32) -> Offer {
        Offer {
            version: VERSION,
            rank: Some(rank),
            job: None,
            attempt: 0,
            runs: 0,
            roles: String::new(),
            host: format!("n{rank}"),
            machine: format!("machine {rank}"),
            addresses: vec![format!("10.0.0.{}", rank + 1)],
            chosen: false,
            port: 7000,
            pid: 1,
            process: None,
        }
    }
}

/// Where a member is, as all are told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seat {
    /// Its host's name.
    pub host: String,
    /// The machine's number: hosts of one name may be several machines.
    pub machine: u32,
    /// Where it listens.
    pub endpoint: Endpoint,
}

/// The roster as columns, folded: a few bytes a member.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Columns {
    /// The attempt, as all will call it.
    pub(crate) attempt: u32,
    /// When the scheduler will end the job, in seconds since 1970, where the leader had to ask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) deadline: Option<u64>,
    /// A host list: a name for each run of ranks on one host.
    pub(crate) hosts: String,
    /// A host list: an address for each run.
    pub(crate) addresses: String,
    /// How many ranks each run has: `[[8,1250]]` is 1,250 runs of 8.
    pub(crate) counts: Vec<(u32, u32)>,
    /// The machine's number for each run, where the names of the hosts do not tell machines apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) machines: Option<Vec<u32>>,
    /// Four hexadecimal digits a rank.
    pub(crate) ports: String,
}

/// A name that a host list cannot hold.
pub(crate) type CannotFold = FoldError;

impl Columns {
    pub(crate) fn of(attempt: u32, members: &[Seat]) -> Result<Columns, CannotFold> {
        let mut runs: Vec<(&str, &str, u32)> = Vec::new();
        let mut counts: Vec<u32> = Vec::new();
        let mut ports = String::with_capacity(members.len() * 4);
        for Seat { host, machine, endpoint: Endpoint { address, port } } in members {
            let run = (host.as_str(), address.as_str(), *machine);
            match (runs.last(), counts.last_mut()) {
                (Some(last), Some(count)) if *last == run => *count += 1,
                _ => {
                    runs.push(run);
                    counts.push(1);
                }
            }
            ports.push_str(&format!("{port:04x}"));
        }
        let machines: Vec<u32> = runs.iter().map(|(.., machine)| *machine).collect();
        let by_name = by_name(runs.iter().map(|(host, ..)| *host));
        Ok(Columns {
            attempt,
            deadline: None,
            hosts: HostList::fold(runs.iter().map(|(host, ..)| host), Order::Kept)?.to_string(),
            addresses: HostList::fold(runs.iter().map(|(_, address, _)| address), Order::Kept)?.to_string(),
            counts: repeated(&counts),
            machines: Some(machines).filter(|machines| *machines != by_name),
            ports,
        })
    }

    /// Where each rank is; `None` if the columns do not fit each other or the world.
    pub fn members(&self, world: u32) -> Option<Vec<Seat>> {
        let hosts: HostList = self.hosts.parse().ok()?;
        let addresses: HostList = self.addresses.parse().ok()?;
        let (mut total, mut runs) = (0u64, 0u64);
        for (count, times) in &self.counts {
            total = total.checked_add(u64::from(*count) * u64::from(*times))?;
            runs += u64::from(*times);
        }
        let ports_fit = self.ports.len() == world as usize * 4 && self.ports.is_ascii();
        if total != u64::from(world) || hosts.count() != runs || addresses.count() != runs || !ports_fit {
            return None;
        }
        let hosts: Vec<String> = hosts.names().collect();
        let machines = match &self.machines {
            Some(machines) if machines.len() != hosts.len() => return None,
            Some(machines) => machines.clone(),
            None => by_name(hosts.iter().map(String::as_str)),
        };
        let mut ports = self.ports.as_bytes().chunks(4).map(|digits| {
            std::str::from_utf8(digits).ok().and_then(|digits| u16::from_str_radix(digits, 16).ok())
        });
        let mut members = Vec::with_capacity(world as usize);
        let counts = self.counts.iter().flat_map(|(count, times)| (0..*times).map(|_| *count));
        for (((host, machine), address), count) in
            hosts.into_iter().zip(machines).zip(addresses.names()).zip(counts)
        {
            for _ in 0..count {
                let endpoint = Endpoint { address: address.clone(), port: ports.next()?? };
                members.push(Seat { host: host.clone(), machine, endpoint });
            }
        }
        Some(members)
    }
}

/// Each number, and how often it comes in a row.
fn repeated(numbers: &[u32]) -> Vec<(u32, u32)> {
    numbers.chunk_by(|one, next| one == next).map(|row| (row[0], row.len() as u32)).collect()
}

/// Numbers in order of appearance: what a machine's number is where each has a name of its own.
fn by_name<'a>(hosts: impl Iterator<Item = &'a str>) -> Vec<u32> {
    let mut numbers: HashMap<&str, u32> = HashMap::new();
    hosts
        .map(|host| {
            let next = numbers.len() as u32;
            *numbers.entry(host).or_insert(next)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_small_and_come_back() {
        let members: Vec<Seat> = (0..1000u16)
            .map(|i| {
                let host = format!("n{}", i / 8);
                let endpoint = Endpoint { address: host.clone(), port: 40000 + i };
                Seat { host, machine: u32::from(i / 8), endpoint }
            })
            .collect();
        let columns = Columns::of(0, &members).unwrap();
        let json = serde_json::to_string(&columns).unwrap();
        assert!(json.len() < 5 * members.len(), "{} bytes", json.len());
        let again: Columns = serde_json::from_str(&json).unwrap();
        assert_eq!(again.members(1000).unwrap(), members);
        assert_eq!(again.members(999), None);
        for bad in [
            Columns { ports: "zzzz".repeat(1000), ..columns.clone() },
            Columns { hosts: "n[1-".to_owned(), ..columns.clone() },
            Columns { addresses: "n1".to_owned(), ..columns.clone() },
            Columns { counts: vec![(u32::MAX, 125)], ..columns.clone() },
            Columns { counts: vec![(u32::MAX, u32::MAX); 3], ..columns.clone() },
            Columns { counts: vec![(0, u32::MAX), (8, 125)], ..columns.clone() },
            Columns { machines: Some(vec![0; 124]), ..columns.clone() },
        ] {
            assert_eq!(bad.members(1000), None);
        }
        let seat = |host: &str, machine| Seat {
            host: host.to_owned(),
            machine,
            endpoint: Endpoint { address: "x".to_owned(), port: 1 },
        };
        assert!(Columns::of(0, &[seat("a,b", 0)]).is_err());
        // Three containers on two machines, all of one name.
        let namesakes = [seat("localhost", 0), seat("localhost", 1), seat("localhost", 0)];
        let columns = Columns::of(0, &namesakes).unwrap();
        assert_eq!(columns.machines, Some(vec![0, 1, 0]));
        assert_eq!(columns.members(3).unwrap(), namesakes);
    }
}
