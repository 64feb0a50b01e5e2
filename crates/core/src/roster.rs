//! The roster: a plan plus one agreed endpoint per member.
//!
//! Made here from static ports, without any network.

use crate::address::{AddressError, HostRule, endpoint};
use crate::hint;
use crate::hint::{Hint, Hinted, Setting};
use crate::plan::{Member, Plan};
use crate::variables as var;
use std::net::IpAddr;
use thiserror::Error;

/// A plan whose members all have an address.
#[derive(Debug, Clone)]
pub struct Roster {
    plan: Plan,
    endpoints: Vec<Endpoint>,
}

/// Where a member listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// A host name, or a number without brackets.
    pub address: String,
    /// The port there.
    pub port: u16,
}

/// Ports that follow from a member's number on its host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StaticPorts {
    /// Base plus local rank.
    Base(u16),
    /// The ports that the scheduler reserved, or 8888 plus local rank.
    Reserved,
}

/// How members are addressed.
#[derive(Debug, Clone, Default)]
pub struct Addressing {
    /// How a host's name becomes its address.
    pub rule: HostRule,
    /// One of this machine's own addresses; only good where all members are here.
    pub own: Option<IpAddr>,
}

/// What TensorFlow's own resolver counts from.
pub(crate) const DEFAULT_PORT_BASE: u16 = 8888;

/// Why members have no addresses.
#[derive(Debug, Error)]
pub enum RosterError {
    /// The scheduler does not tell where all members are.
    #[error(
        "the host of {missing} of {world} members is not known ({first} is the first), so their addresses are not"
    )]
    HostUnknown {
        /// How many have no known host.
        missing: usize,
        /// How many members there are.
        world: u32,
        /// The first of them: `worker 1`.
        first: String,
        /// Who does not tell.
        scheduler: &'static str,
    },
    /// The base is so high that no port is left for a member.
    #[error("port {base}+{local_rank} for {member} is beyond 65535")]
    PortRange {
        /// The base.
        base: u16,
        /// The number of the member on its host, from 0.
        local_rank: u32,
        /// The member: `worker 1`.
        member: String,
    },
    /// The scheduler has reserved fewer ports than a host has members.
    #[error(
        "{variable} reserves {there} ports, but {member} is number {local_rank} on its host",
        variable = var::SLURM_STEP_RESV_PORTS
    )]
    TooFewReserved {
        /// How many are reserved.
        there: usize,
        /// The first member without one.
        member: String,
        /// Its number on its host, from 0.
        local_rank: u32,
    },
    /// This machine's own address was chosen for members that are elsewhere too.
    #[error("an interface or a network tells this machine's address alone, and there are {hosts} hosts")]
    OtherHosts {
        /// How many hosts there are.
        hosts: usize,
    },
    /// The members that met told more or fewer addresses than there are members.
    #[error("{there} endpoints were told for {world} members")]
    Endpoints {
        /// How many addresses were told.
        there: usize,
        /// How many members there are.
        world: u32,
    },
    /// A host's name gives no address, or this machine has none that fits.
    #[error(transparent)]
    Address(#[from] AddressError),
}

impl Hinted for RosterError {
    fn hint(&self) -> Option<Hint> {
        match self {
            RosterError::HostUnknown { scheduler, .. } => Some(hint!(format!(
                "{scheduler} does not tell where they are; `rallypoint run` lets them meet and tell"
            ))),
            RosterError::PortRange { .. } => Some(hint!("lower ", Setting::PortBase)),
            RosterError::TooFewReserved { local_rank, .. } => {
                Some(hint!(format!("srun --resv-ports={}, or use ", local_rank + 1), Setting::PortBase))
            }
            RosterError::OtherHosts { .. } => Some(hint!(
                "use ",
                Setting::HostSuffix,
                " or ",
                Setting::HostMap,
                ", or `rallypoint run`, where each member tells its own"
            )),
            RosterError::Endpoints { .. } => None,
            RosterError::Address(error) => error.hint(),
        }
    }
}

impl Roster {
    /// Addresses by rule, ports by arithmetic: nothing is opened, nobody is asked.
    pub fn from_static(
        plan: Plan,
        ports: &StaticPorts,
        addressing: &Addressing,
    ) -> Result<Roster, RosterError> {
        // Comes before anything that is wrong with the hosts that are known.
        if plan.members().iter().any(|member| member.place.is_none()) {
            return Err(host_unknown(&plan));
        }
        let addresses = addresses(&plan, addressing)?;
        let endpoint = |member: &Member| {
            let Some(place) = member.place else { return Err(host_unknown(&plan)) };
            let port = port(&plan, member, place.local_rank, ports)?;
            Ok(Endpoint { address: addresses[place.host as usize].clone(), port })
        };
        let endpoints = plan.members().iter().map(endpoint).collect::<Result<_, RosterError>>()?;
        Ok(Roster { plan, endpoints })
    }

    /// A plan whose members have met: one endpoint per rank.
    pub(crate) fn met(plan: Plan, endpoints: Vec<Endpoint>) -> Result<Roster, RosterError> {
        match endpoints.len() == plan.members().len() {
            true => Ok(Roster { plan, endpoints }),
            false => Err(RosterError::Endpoints { there: endpoints.len(), world: plan.world() }),
        }
    }

    /// The file that `RALLYPOINT_ROSTER_FILE` names.
    pub(crate) fn to_json(&self) -> String {
        let members: Vec<serde_json::Value> = self
            .plan
            .members()
            .iter()
            .map(|member| {
                serde_json::json!({
                    "rank": member.rank,
                    "role": member.role.as_str(),
                    "index": member.index,
                    "host": self.plan.host(member),
                    "local_rank": member.place.map(|place| place.local_rank),
                    "address": self.endpoint(member).to_string(),
                })
            })
            .collect();
        let roster = serde_json::json!({
            "job": self.plan.job(),
            "attempt": self.plan.attempt(),
            "world": self.plan.world(),
            "members": members,
        });
        format!("{roster}\n")
    }

    /// The plan whose members these are.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Where a member of the plan listens.
    pub fn endpoint(&self, member: &Member) -> &Endpoint {
        &self.endpoints[member.rank as usize]
    }
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&endpoint(&self.address, self.port))
    }
}

/// How many members have no place yet, and which is the first.
fn host_unknown(plan: &Plan) -> RosterError {
    let mut unknown = plan.members().iter().filter(|member| member.place.is_none());
    let first = unknown.next().map_or_else(String::new, ToString::to_string);
    let (missing, world) = (1 + unknown.count(), plan.world());
    RosterError::HostUnknown { missing, world, first, scheduler: plan.scheduler().title }
}

/// An address per host.
fn addresses(plan: &Plan, addressing: &Addressing) -> Result<Vec<String>, RosterError> {
    match &addressing.own {
        Some(_) if plan.hosts().len() > 1 => Err(RosterError::OtherHosts { hosts: plan.hosts().len() }),
        Some(own) => Ok(vec![own.to_string()]),
        // A plain machine's name may not resolve to anything its own processes can reach.
        None if plan.scheduler().is_plain_machine() && matches!(addressing.rule, HostRule::Name) => {
            Ok(vec!["localhost".to_owned(); plan.hosts().len()])
        }
        None => {
            Ok(plan.hosts().iter().map(|host| addressing.rule.apply(&host.name)).collect::<Result<_, _>>()?)
        }
    }
}

fn port(plan: &Plan, member: &Member, local_rank: u32, ports: &StaticPorts) -> Result<u16, RosterError> {
    let from_base = |base: u16| {
        u16::try_from(local_rank)
            .ok()
            .and_then(|offset| base.checked_add(offset))
            .ok_or_else(|| RosterError::PortRange { base, local_rank, member: member.to_string() })
    };
    match (ports, plan.ports()) {
        (StaticPorts::Base(base), _) => from_base(*base),
        (StaticPorts::Reserved, None) => from_base(DEFAULT_PORT_BASE),
        (StaticPorts::Reserved, Some(reserved)) => {
            reserved.get(local_rank as usize).copied().ok_or_else(|| RosterError::TooFewReserved {
                there: reserved.len(),
                member: member.to_string(),
                local_rank,
            })
        }
    }
}
