//! What agents say to each other, as JSON in authenticated frames.

use crate::hostlist::{FoldError, HostList, Order};
use crate::outcome::End;
use crate::roster::Endpoint;
use serde::{Deserialize, Serialize};

/// The protocol's version; agents of different ones do not meet.
pub const VERSION: u32 = 2;

/// From an agent to the leader.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum ToLeader {
    /// First: who I am and where my member will listen.
    Offer(Offer),
    Started {
        pid: u32,
        /// It is a server without Python.
        #[serde(default)]
        served: bool,
    },
    Listening,
    /// The member's process ended.
    Ended(Ended),
    /// A signal came to this agent.
    Interrupted {
        signal: i32,
    },
    Alive,
}

/// From the leader to an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum ToMember {
    /// The offer is taken; this is your rank, and that is the leader's, if it is a member.
    Welcome {
        rank: u32,
        leader: Option<u32>,
    },
    Refused {
        why: String,
    },
    /// An earlier attempt is still running; stay on the line to hear its end.
    Later {
        why: String,
    },
    /// Who has come and who is missing.
    Waiting {
        come: u32,
        world: u32,
        missing: String,
    },
    Roster(Columns),
    /// Start the member again.
    Restart,
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
        summary: Vec<String>,
    },
}

/// One agent's offer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Offer {
    pub version: u32,
    /// The rank it wants, or the next free one.
    pub rank: Option<u32>,
    pub job: Option<String>,
    pub attempt: u32,
    /// How often it was started before, where members are started again apart from each other.
    pub runs: u32,
    /// The roles it was asked for; all must agree.
    pub roles: String,
    pub host: String,
    /// Tells machines apart whatever they are called.
    pub machine: String,
    /// Addresses that others may reach it by, the best first.
    pub addresses: Vec<String>,
    /// The user chose the address, so it is used even among members of one machine.
    pub chosen: bool,
    pub port: u16,
    pub pid: u32,
}

/// How a member's process ended, with what may explain it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ended {
    pub end: End,
    pub seconds: f64,
    pub peak_kib: u64,
    /// Its last lines on stderr.
    pub tail: Vec<String>,
    /// What it wrote to `RALLYPOINT_ERROR_FILE`.
    pub reason: Option<String>,
}

/// The roster as columns, folded: a few bytes a member.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Columns {
    /// The attempt, as all will call it.
    pub attempt: u32,
    /// When the scheduler will end the job, in seconds since 1970, where the leader had to ask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<u64>,
    /// A host list: a name for each run of ranks on one host.
    pub hosts: String,
    /// A host list: an address for each run.
    pub addresses: String,
    /// How many ranks each run has.
    pub counts: Vec<u32>,
    /// Four hexadecimal digits a rank.
    pub ports: String,
}

/// A name that a host list cannot hold.
pub type CannotFold = FoldError;

impl Columns {
    pub fn of(attempt: u32, members: &[(String, Endpoint)]) -> Result<Columns, CannotFold> {
        let mut runs: Vec<(&str, &str)> = Vec::new();
        let mut counts: Vec<u32> = Vec::new();
        let mut ports = String::with_capacity(members.len() * 4);
        for (host, Endpoint { address, port }) in members {
            match (runs.last(), counts.last_mut()) {
                (Some(run), Some(count)) if *run == (host.as_str(), address.as_str()) => *count += 1,
                _ => {
                    runs.push((host, address));
                    counts.push(1);
                }
            }
            ports.push_str(&format!("{port:04x}"));
        }
        Ok(Columns {
            attempt,
            deadline: None,
            hosts: HostList::fold(runs.iter().map(|(host, _)| host), Order::Kept)?.to_string(),
            addresses: HostList::fold(runs.iter().map(|(_, address)| address), Order::Kept)?.to_string(),
            counts,
            ports,
        })
    }

    /// A host and an endpoint a rank; `None` if the columns do not fit each other or the world.
    pub fn members(&self, world: u32) -> Option<Vec<(String, Endpoint)>> {
        let hosts: HostList = self.hosts.parse().ok()?;
        let addresses: HostList = self.addresses.parse().ok()?;
        let total: u64 = self.counts.iter().map(|count| u64::from(*count)).sum();
        let runs = self.counts.len() as u64;
        let ports_fit = self.ports.len() == world as usize * 4 && self.ports.is_ascii();
        if total != u64::from(world) || hosts.count() != runs || addresses.count() != runs || !ports_fit {
            return None;
        }
        let mut ports = self.ports.as_bytes().chunks(4).map(|digits| {
            std::str::from_utf8(digits).ok().and_then(|digits| u16::from_str_radix(digits, 16).ok())
        });
        let mut members = Vec::with_capacity(world as usize);
        for ((host, address), count) in hosts.names().zip(addresses.names()).zip(&self.counts) {
            for _ in 0..*count {
                members.push((host.clone(), Endpoint { address: address.clone(), port: ports.next()?? }));
            }
        }
        Some(members)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_small_and_come_back() {
        let members: Vec<(String, Endpoint)> = (0..1000u16)
            .map(|i| {
                let host = format!("n{}", i / 8);
                (host.clone(), Endpoint { address: host, port: 40000 + i })
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
            Columns { counts: vec![u32::MAX; 125], ..columns.clone() },
        ] {
            assert_eq!(bad.members(1000), None);
        }
        let odd = [("a,b".to_owned(), Endpoint { address: "x".to_owned(), port: 1 })];
        assert!(Columns::of(0, &odd).is_err());
    }
}
