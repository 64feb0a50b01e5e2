//! Members that do not know each other's hosts and ports find each other.
//!
//! One agent is the leader: it gathers an offer from every other and hands out the roster, and the
//! connections stay for the rest of the job. Only *finding* the leader differs from place to place;
//! that is [`WayToMeet`], one small file per way.

pub(crate) mod address;
mod attend;
mod connections;
pub(crate) mod directory;
mod endpoints;
mod exchange;
pub(crate) mod file_system;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod gather;
mod join;
mod join_request;
mod key;
pub mod launched;
pub mod message;
mod remotes;
mod seal;
mod search;
mod seats;
mod seeker;
mod seeking;
mod settle;
mod strangers;
mod wait;
mod way;
mod wire;

pub(crate) use attend::{Attended, attend};
pub(crate) use connections::{Incoming, Remote};
pub use exchange::{Exchanged, exchange};
pub use gather::{Gathered, Handout, Leader, Met};
pub use join::Link;
pub(crate) use join_request::folded_roles;
pub use join_request::{JoinRequest, Meeting};
pub use key::Key;
pub use remotes::Remotes;
pub use search::{Part, meet};
pub use seeker::Seeker;
pub use settle::{SettleError, settle};
pub use wait::Wait;
pub use way::{ContestedLeader, KnownLeader, WayToMeet};
pub use wire::WireError;

use crate::event::Obstacle;
use crate::hint;
use crate::hint::{Hint, Hinted, Setting};
use crate::network::machine_id;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use thiserror::Error;

/// Why members did not find each other.
#[derive(Debug, Error)]
pub enum RendezvousError {
    /// `RALLYPOINT_KEY_FILE` names a file that holds no key, or that others may read.
    #[error("key file {}: {reason}", path.display())]
    KeyFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The place is an address, where no key can be left, and `RALLYPOINT_KEY_FILE` is not set.
    #[error("meeting at {address} needs a key that all members know")]
    NoKey {
        /// Where they were to meet: `n1:7000`.
        address: String,
    },
    /// Nothing can be published in the directory, or anybody may replace files there.
    #[error("meeting directory {}: {reason}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
        /// What to do about it, where that is known.
        hint: Option<Hint>,
    },
    /// There is a meeting file, and it is not one that this user has written and nobody else can read.
    #[error("meeting file {}: {reason}", path.display())]
    MeetingFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
        /// What to do about it.
        hint: Hint,
    },
    /// A scheduler's own way to meet does not work.
    #[error("{way}: {reason}")]
    Way {
        /// What the way is called: `PMI`.
        way: &'static str,
        /// What is wrong with it.
        reason: String,
        /// What to do about it.
        hint: Hint,
    },
    /// A file server or a submit host does not answer now; it may the next time.
    #[error("{place} does not answer: {reason}")]
    Unsteady {
        /// The place, as people know it: `directory /shared/job`.
        place: String,
        /// The system's error.
        reason: String,
    },
    /// A later run of this agent's own member has come, while this agent led.
    #[error("the scheduler has started this member again elsewhere; this run of it ends")]
    Superseded,
    /// `--launched` was given, and no launcher tells on standard input who leads.
    #[error("standard input: {reason}")]
    Launched {
        /// What came instead.
        reason: String,
    },
    /// No connection to the leader can be made, or the leader cannot listen for one.
    #[error("the leader cannot be reached: {reason}")]
    Unreachable {
        /// What failed, with the address where there is one.
        reason: String,
    },
    /// The leader does not take this agent's offer: another job, other roles, a rank that is taken.
    #[error("the leader refuses this member: {}", hint::problem_of(why))]
    Refused {
        /// In the leader's words, with its hint.
        why: String,
    },
    /// The leader has failed, or the job is over, and it has told so everyone who waits.
    #[error("the leader has ended the meeting: {}", hint::problem_of(summary))]
    Dismissed {
        /// The exit code that the leader gives to all.
        code: u8,
        /// In the leader's words, with its hint.
        summary: String,
    },
    /// The time to meet is over, and not all have come.
    #[error("after {waited} s {come} of {world} members have come; missing: {missing}")]
    Missing {
        /// How long this agent has waited, in seconds.
        waited: u64,
        /// How many have come.
        come: u32,
        /// How many were expected.
        world: u32,
        /// The names of the others: `ps 0, worker 3`.
        missing: String,
    },
    /// The time to meet is over, and no leader was found.
    #[error("no leader was found within {waited} s: {obstacle}")]
    NoLeader {
        /// How long this agent has looked, in seconds.
        waited: u64,
        /// What was in the way in the end.
        obstacle: Obstacle,
    },
    /// An agent had come, its connection was lost, and it did not come back in time.
    #[error(
        "{who} was lost before all had come, and did not come back within {waited} s; missing: {missing}"
    )]
    LostWhileWaiting {
        /// Its member: `worker 3`.
        who: String,
        /// How long it was away, in seconds.
        waited: u64,
        /// The names of all members that are missing.
        missing: String,
    },
    /// Another agent could not start its member, and has told the leader so.
    #[error("{who} has failed before all had come: {}", hint::problem_of(why))]
    MemberFailed {
        /// The member: `worker 3`.
        who: String,
        /// The exit code of its agent.
        code: u8,
        /// In that agent's words, with its hint.
        why: String,
    },
    /// The scheduler's launcher was to start all members, and has ended before they came.
    #[error("{launcher} ended {end} before all members had come")]
    StepEnded {
        /// The program: `srun`.
        launcher: &'static str,
        /// How it ended: `with exit code 1`.
        end: String,
    },
    /// A signal or the caller has ended the wait: the signal's name, or the caller's reason.
    #[error("a signal came while waiting for the others: {0}")]
    Interrupted(String),
    /// Members are on several machines, and one of them has no address but loopback.
    #[error("no address of this machine is known that others could use")]
    NoAddress,
    /// A host has a name that no host list can hold.
    #[error("the roster cannot be written: {0}")]
    Roster(#[from] message::CannotFold),
    /// The connection to the leader has failed, or what came over it could not be understood.
    #[error(transparent)]
    Wire(#[from] wire::WireError),
    /// The system refused something that every meeting needs: a socket, a thread, random numbers.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

impl Hinted for RendezvousError {
    fn hint(&self) -> Option<Hint> {
        match self {
            RendezvousError::KeyFile { .. } => {
                Some(hint!("make one with `(umask 077; head -c 32 /dev/urandom | base64 > key)`"))
            }
            RendezvousError::NoKey { .. } => {
                Some(hint!("put one in a file and name it in RALLYPOINT_KEY_FILE"))
            }
            RendezvousError::Directory { hint, .. } => hint.clone(),
            RendezvousError::MeetingFile { hint, .. } | RendezvousError::Way { hint, .. } => {
                Some(hint.clone())
            }
            RendezvousError::NoLeader { obstacle, .. } => Some(obstacle.hint()),
            RendezvousError::Launched { .. } => {
                Some(hint!(Setting::Launched, " is for tasks that rallypoint itself has started"))
            }
            RendezvousError::Refused { why: told }
            | RendezvousError::Dismissed { summary: told, .. }
            | RendezvousError::MemberFailed { why: told, .. } => hint::hint_of(told),
            RendezvousError::Missing { .. } => Some(hint!(Setting::MeetTimeout, " gives them longer")),
            RendezvousError::StepEnded { .. } => Some(hint!("what it wrote says why")),
            RendezvousError::NoAddress => {
                Some(hint!("choose one with ", Setting::Interface, " or ", Setting::Network))
            }
            RendezvousError::Roster(error) => error.hint(),
            RendezvousError::Wire(error) => error.hint(),
            RendezvousError::Unsteady { .. }
            | RendezvousError::Superseded
            | RendezvousError::Unreachable { .. }
            | RendezvousError::LostWhileWaiting { .. }
            | RendezvousError::Interrupted(_)
            | RendezvousError::Io(_) => None,
        }
    }
}

/// How to reach a leader, as it is published.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contact {
    pub(crate) version: u32,
    /// Tells one leader from the next in the same place.
    pub(crate) id: String,
    pub(crate) host: String,
    pub(crate) machine: String,
    pub(crate) pid: u32,
    /// The pid means something only there.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) pid_namespace: String,
    pub(crate) job: Option<String>,
    pub(crate) attempt: u32,
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) port: u16,
    /// The job's key, where the place is as private as a file of mode 0600.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<String>,
}

impl RendezvousError {
    /// A place that may answer the next time.
    pub(crate) fn unsteady(place: &str, error: &std::io::Error) -> RendezvousError {
        RendezvousError::Unsteady { place: place.to_owned(), reason: error.to_string() }
    }
}

impl std::fmt::Debug for Contact {
    /// All but the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Contact")
            .field("id", &self.id)
            .field("leader", &self.who())
            .field("addresses", &self.addresses)
            .field("port", &self.port)
            .finish_non_exhaustive()
    }
}

impl Contact {
    /// True if it is that of a process of this machine.
    pub(crate) fn is_of(&self, pid: u32) -> bool {
        self.pid == pid && self.machine == machine_id()
    }

    /// True if nobody listens there: a publication is being taken back.
    pub(super) fn is_closed(&self) -> bool {
        self.port == 0
    }

    /// `pid 4711 on n1`
    pub(super) fn who(&self) -> String {
        match self.pid {
            0 => self.host.clone(),
            pid => format!("pid {pid} on {}", self.host),
        }
    }
}

/// Where to connect to a leader, the best first. On this machine that is loopback alone: a leader that is silent there is
/// silent everywhere. An address that this machine has too (docker0 is 172.17.0.1 everywhere) leads to ourselves and comes
/// last.
fn socket_addresses(contact: &Contact, machine: &str, own: &[IpAddr]) -> Vec<SocketAddr> {
    let here = contact.machine == machine;
    let loopback = contact.addresses.iter().find(|address| here && address.is_loopback());
    let mut addresses: Vec<IpAddr> = match loopback {
        Some(loopback) => vec![*loopback],
        None => contact.addresses.clone(),
    };
    // An address that was given is used as it is.
    if !here && !contact.machine.is_empty() {
        addresses.retain(|address| !address.is_loopback());
        addresses.sort_by_key(|address| own.contains(address));
    }
    addresses.into_iter().map(|address| SocketAddr::new(address, contact.port)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(in crate::rendezvous) fn contact() -> Contact {
        Contact {
            version: message::VERSION,
            id: "9f0c".to_owned(),
            host: "n1".to_owned(),
            machine: "a boot net:[1]".to_owned(),
            pid: 4711,
            pid_namespace: "pid:[1]".to_owned(),
            job: None,
            attempt: 0,
            addresses: ["172.17.0.1", "10.0.0.1", "127.0.0.1"].map(|ip| ip.parse().unwrap()).into(),
            port: 40123,
            key: Some("a secret".to_owned()),
        }
    }

    #[test]
    fn a_contact_is_shown_without_its_key() {
        let text = format!("{:?} {:#?}", contact(), contact());
        assert!(text.contains("pid 4711 on n1") && !text.contains("a secret"), "{text}");
    }

    #[test]
    fn addresses_of_our_own_are_tried_last() {
        let own: Vec<IpAddr> = ["172.17.0.1", "10.0.0.2"].map(|ip| ip.parse().unwrap()).into();
        let order = |machine: &str| -> Vec<String> {
            let addresses = socket_addresses(&contact(), machine, &own);
            addresses.iter().map(|address| address.ip().to_string()).collect()
        };
        assert_eq!(order("elsewhere"), ["10.0.0.1", "172.17.0.1"]);
        assert_eq!(order("a boot net:[1]"), ["127.0.0.1"], "on this machine");
        let given = Contact { machine: String::new(), ..contact() };
        assert_eq!(socket_addresses(&given, "elsewhere", &own).len(), 3, "as it was given");
    }
}
