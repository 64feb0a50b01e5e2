//! Members that do not know each other's hosts and ports find each other.
//!
//! One agent is the leader: it gathers an offer from every other and hands out the roster, and the
//! connections stay for the rest of the job. Only *finding* the leader differs from place to place;
//! that is [`WayToMeet`], one small file a way.

pub mod address;
pub mod chirp;
pub mod directory;
mod exchange;
mod folder;
mod gather;
mod introduction;
pub mod job_ad;
mod join;
pub mod key;
pub mod launched;
mod lines;
pub mod message;
mod place;
pub mod pmi;
mod settle;
pub mod wire;

pub use exchange::{Exchanged, exchange};
pub use gather::{Gathered, Leader, Met, Progress};
pub(crate) use introduction::folded_roles;
pub use introduction::{Introduction, Meeting};
use join::Answer;
pub use join::Link;
pub use key::Key;
pub use lines::{Incoming, Remote};
pub use place::{Place, PlaceError, PlaceRequest, place};
pub use settle::{SettleError, settle};

use crate::allocation::Scheduler;
use crate::outcome::role_name;
use crate::plan::Plan;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use thiserror::Error;
use wire::WireError;

#[derive(Debug, Error)]
pub enum RendezvousError {
    #[error("key file {}: {reason}; hint: make one with `(umask 077; head -c 32 /dev/urandom | base64 > key)`", path.display())]
    KeyFile { path: PathBuf, reason: String },
    #[error(
        "--meet {address} needs a key that all members know; hint: put one in a file and name it in RALLYPOINT_KEY_FILE"
    )]
    NoKey { address: String },
    #[error("meeting directory {}: {reason}", path.display())]
    Directory { path: PathBuf, reason: String },
    #[error("meeting file {}: {reason}; hint: {hint}", path.display())]
    MeetingFile { path: PathBuf, reason: String, hint: &'static str },
    #[error("PMI: {reason}; hint: without `srun --mpi=pmi2` members can meet in a directory, --meet DIR")]
    Pmi { reason: String },
    #[error("{place} does not answer: {reason}")]
    Unsteady { place: String, reason: String },
    #[error("the scheduler has started this member again elsewhere; this run of it ends")]
    Superseded,
    #[error("standard input: {reason}; hint: --launched is for tasks that rallypoint itself has started")]
    Launched { reason: String },
    #[error("the leader cannot be reached: {reason}")]
    Unreachable { reason: String },
    #[error("the leader refuses this member: {why}")]
    Refused { why: String },
    #[error(
        "after {waited} s {come} of {world} members have come; missing: {missing}; hint: --meet-timeout gives them longer"
    )]
    Missing { waited: u64, come: u32, world: u32, missing: String },
    #[error("no leader was found within {waited} s: {reason}; hint: --meet-timeout gives it longer")]
    NoLeader { waited: u64, reason: String },
    #[error(
        "{who} was lost before all had come, and did not come back within {waited} s; missing: {missing}"
    )]
    LostWhileWaiting { who: String, waited: u64, missing: String },
    #[error("srun ended {end} before all members had come; hint: what it wrote says why")]
    StepEnded { end: String },
    #[error("a signal came while waiting for the others: {0}")]
    Interrupted(String),
    #[error(
        "no address of this machine is known that others could use; hint: choose one with --interface or --network"
    )]
    NoAddress,
    #[error("the roster cannot be written: {0}")]
    Roster(#[from] message::CannotFold),
    #[error(transparent)]
    Wire(#[from] wire::WireError),
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// How to reach a leader, as it is published.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contact {
    pub version: u32,
    /// Tells one leader from the next in the same place.
    pub id: String,
    pub host: String,
    pub machine: String,
    pub pid: u32,
    pub job: Option<String>,
    pub attempt: u32,
    pub addresses: Vec<IpAddr>,
    pub port: u16,
    /// The job's key, where the place is as private as a file of mode 0600.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<String>,
}

impl RendezvousError {
    /// A place that may answer the next time.
    fn unsteady(place: &str, error: &std::io::Error) -> RendezvousError {
        RendezvousError::Unsteady { place: place.to_owned(), reason: error.to_string() }
    }
}

/// A place where a leader can be found.
pub trait WayToMeet: Send {
    /// What to tell people: `directory /shared/job`.
    fn name(&self) -> String;
    /// The leader that is published here, if any.
    fn look(&mut self) -> Result<Option<Contact>, RendezvousError>;
    /// Publishes this agent as the leader; false if another was quicker.
    fn claim(&mut self, contact: &Contact) -> Result<bool, RendezvousError>;
    /// Takes the place of a leader that is gone; false if another was quicker.
    fn replace(&mut self, gone: &Contact, contact: &Contact) -> Result<bool, RendezvousError>;
    /// Takes the publication back.
    fn retract(&mut self);
    /// False for an agent that can only wait for another to lead.
    fn may_lead(&self) -> bool {
        true
    }
    /// What an agent that may not lead waits for.
    fn awaited(&self) -> String {
        "a leader".to_owned()
    }
    /// Variables that this way has used up, so that no member may inherit them.
    fn taken_variables(&self) -> &'static [&'static str] {
        &[]
    }
    /// How often it may be looked at, at most.
    fn longest_pause(&self) -> Duration {
        LONGEST_PAUSE
    }
    /// The port that a leader has to listen on here; any otherwise.
    fn port(&self) -> u16 {
        0
    }
}

/// The part that this agent plays.
#[derive(Debug)]
pub enum Part {
    Leader(Box<Leader>),
    Member(Link),
    /// The attempt that ran when this agent came has ended without it.
    Over {
        code: u8,
        summary: Vec<String>,
    },
}

/// A leader that does not answer for this long is gone.
const PATIENCE: Duration = Duration::from_secs(3);
/// How often a place is looked at: at first, and at last. A step of many tasks is complete in a moment.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);
/// A place that did not answer is left alone for a while.
const UNSTEADY_PAUSE: Duration = Duration::from_secs(1);
/// How often one that waits for a leader says so.
const PROGRESS: Duration = Duration::from_secs(5);

/// Finds the leader or becomes it. `say` is told what a person may want to know.
pub async fn meet(
    way: &mut dyn WayToMeet,
    introduction: &Introduction,
    say: &mut dyn FnMut(String),
) -> Result<Part, RendezvousError> {
    let started = Instant::now();
    let mut gone: Option<(Contact, Instant)> = None;
    let mut last_reason = "nobody has published one".to_owned();
    let mut next_word = started + PROGRESS;
    let mut pause = FIRST_PAUSE;
    loop {
        if started.elapsed() > introduction.timeout {
            return Err(RendezvousError::NoLeader {
                waited: started.elapsed().as_secs(),
                reason: last_reason,
            });
        }
        let found = match way.look() {
            // A busy submit host is no reason to give up.
            Err(RendezvousError::Unsteady { place, reason }) => {
                last_reason = format!("{place} does not answer: {reason}");
                if Instant::now() >= next_word {
                    say(last_reason.clone());
                    next_word = Instant::now() + PROGRESS;
                }
                tokio::time::sleep(UNSTEADY_PAUSE).await;
                continue;
            }
            found => found?,
        };
        match found {
            None if !way.may_lead() => {
                last_reason = format!("still waiting for {}", way.awaited());
                if Instant::now() >= next_word {
                    let (waited, limit) = (started.elapsed().as_secs(), introduction.timeout.as_secs());
                    say(format!("waiting for {} ({waited} s of {limit} s)", way.awaited()));
                    next_word = Instant::now() + PROGRESS;
                }
            }
            None => {
                if let Some(leader) = lead(way, introduction, None).await? {
                    return Ok(Part::Leader(Box::new(leader)));
                }
            }
            Some(contact) => match Link::join(&contact, introduction).await {
                Ok(Answer::Welcome(link)) => return Ok(Part::Member(link)),
                Ok(Answer::Later { why, mut link }) => {
                    say(why.clone());
                    let left = introduction.timeout.saturating_sub(started.elapsed());
                    match tokio::time::timeout(left, link.end()).await {
                        Ok(Ok((code, summary))) => return Ok(Part::Over { code, summary }),
                        Ok(Err(_)) => gone = None,
                        Err(_) => last_reason = why,
                    }
                }
                Err(refused @ (RendezvousError::Refused { .. } | RendezvousError::NoKey { .. })) => {
                    return Err(refused);
                }
                // Somebody is there, and busy with strangers perhaps: that is no reason to take its place.
                Err(error @ RendezvousError::Wire(WireError::Closed | WireError::Silent(_))) => {
                    last_reason = error.to_string();
                    gone = None;
                }
                Err(error) => {
                    last_reason = error.to_string();
                    let since = match &gone {
                        Some((known, since)) if known.id == contact.id => *since,
                        _ => {
                            gone = Some((contact.clone(), Instant::now()));
                            Instant::now()
                        }
                    };
                    if since.elapsed() > PATIENCE || is_dead_here(&contact, introduction) {
                        say(format!(
                            "the leader published in {} (pid {} on {}) is gone: {last_reason}",
                            way.name(),
                            contact.pid,
                            contact.host
                        ));
                        if way.may_lead()
                            && let Some(leader) = lead(way, introduction, Some(&contact)).await?
                        {
                            return Ok(Part::Leader(Box::new(leader)));
                        }
                        gone = None;
                    }
                }
            },
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(way.longest_pause());
    }
}

/// Listens, then publishes; `None` if another was quicker.
async fn lead(
    way: &mut dyn WayToMeet,
    introduction: &Introduction,
    gone: Option<&Contact>,
) -> Result<Option<Leader>, RendezvousError> {
    let Some((contact, leader)) = Leader::listen(introduction, way.port()).await? else { return Ok(None) };
    let won = match gone {
        None => way.claim(&contact)?,
        Some(gone) => way.replace(gone, &contact)?,
    };
    Ok(won.then_some(leader))
}

/// True if the leader ran on this very machine and its process does not exist any more.
fn is_dead_here(contact: &Contact, introduction: &Introduction) -> bool {
    contact.machine == introduction.offer.machine && !PathBuf::from(format!("/proc/{}", contact.pid)).exists()
}

/// A name for this machine that no other has until it boots again.
pub fn machine_id() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    // Containers share a kernel, and their network differs.
    let network =
        std::fs::read_link("/proc/self/ns/net").map(|link| link.display().to_string()).unwrap_or_default();
    format!("{} {network}", boot.trim())
}

/// Addresses of this machine, the best for others first; loopback last.
pub fn own_addresses() -> Vec<IpAddr> {
    let mut addresses: Vec<IpAddr> = if_addrs::get_if_addrs()
        .unwrap_or_default()
        .into_iter()
        .map(|interface| interface.ip())
        .filter(|address| match address {
            IpAddr::V4(v4) => !v4.is_link_local(),
            IpAddr::V6(v6) => !v6.is_unicast_link_local(),
        })
        .collect();
    addresses.sort_by_key(|address| (address.is_loopback(), address.is_ipv6()));
    addresses
}

/// Where to connect to a leader: through loopback if it is on this machine.
fn socket_addresses(contact: &Contact, machine: &str) -> Vec<SocketAddr> {
    // A given address is used as it is.
    let here = contact.machine == machine || contact.machine.is_empty();
    let mut addresses: Vec<IpAddr> =
        contact.addresses.iter().copied().filter(|address| here || !address.is_loopback()).collect();
    addresses.sort_by_key(|address| here && !address.is_loopback());
    addresses.into_iter().map(|address| SocketAddr::new(address, contact.port)).collect()
}

/// `ps 0, worker 1 (rank 2)`: at most eight by name, the others counted.
pub(crate) fn describe(plan: &Plan, ranks: &[u32]) -> String {
    const MOST: usize = 8;
    let mut names: Vec<String> = ranks
        .iter()
        .take(MOST)
        .map(|&rank| {
            let member = &plan.members[rank as usize];
            // On plain machines nobody knows before they meet.
            let host = plan.host(member).filter(|_| plan.scheduler != Scheduler::Local);
            let host = host.map(|host| format!(", {host}")).unwrap_or_default();
            format!("{} (rank {rank}{host})", role_name(&member.role, member.index))
        })
        .collect();
    if ranks.len() > MOST {
        names.push(format!("and {} more", ranks.len() - MOST));
    }
    names.join(", ")
}
