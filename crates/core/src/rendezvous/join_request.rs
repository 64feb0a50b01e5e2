//! What an agent brings to a meeting: its offer, the key, and how long it will wait.

use super::Key;
use super::key::random_number;
use super::message::{Offer, VERSION};
use crate::address::{AddressError, HostRule};
use crate::allocation::HostNames;
use crate::network::{machine_id, own_addresses};
use crate::plan::Plan;
use crate::ports::{HandOver, HeldPort, PortChoice, PortError};
use crate::process;
use crate::roster::Addressing;
use std::net::IpAddr;
use std::time::Duration;

/// How to meet the others.
#[derive(Debug, Clone)]
pub struct Meeting {
    /// The rank that the user gives this member; the plan's otherwise.
    pub rank: Option<u32>,
    /// From `RALLYPOINT_KEY_FILE`; else the leader makes one and publishes it.
    pub key: Option<Key>,
    /// How long to wait for all to come.
    pub timeout: Duration,
    /// What the user calls this job; the scheduler's id otherwise.
    pub job: Option<String>,
    /// Where this agent listens if it leads; everywhere otherwise.
    pub listen: Option<IpAddr>,
}

/// What an agent brings to a meeting.
#[derive(Debug, Clone)]
pub struct JoinRequest {
    /// What the leader is told of this agent.
    pub offer: Offer,
    /// How many members there are.
    pub world: u32,
    /// From `RALLYPOINT_KEY_FILE`; else it stands in the leader's contact.
    pub key: Option<Key>,
    /// How long to wait for all to come.
    pub timeout: Duration,
    /// How long a member that was lost may take to come back.
    pub rejoin: Duration,
    /// The rank of a leader that was lost while we waited with it.
    pub lost_leader: Option<u32>,
    /// Members are started again apart from each other: one that leaves is likely to come back.
    pub apart: bool,
    /// Where this agent listens if it leads; everywhere otherwise.
    pub listen: Option<IpAddr>,
}

impl Meeting {
    /// This member's rank, as far as it is known beforehand.
    pub fn rank(&self, plan: &Plan) -> Option<u32> {
        self.rank.or(plan.me())
    }

    /// Holds the port that this member will offer.
    pub fn hold_port(
        &self,
        plan: &Plan,
        choice: &PortChoice,
        hand_over: HandOver,
    ) -> Result<HeldPort, PortError> {
        let place = self.rank(plan).and_then(|rank| plan.member(rank)?.place);
        match (choice, place) {
            // Without a rank there is no number on the host: a free one of the 1,024 from the base on.
            (PortChoice::Base(base), None) => {
                HeldPort::take(&PortChoice::Range(*base..=base.saturating_add(1023)), 0, hand_over)
            }
            (choice, place) => HeldPort::take(choice, place.map_or(0, |place| place.local_rank), hand_over),
        }
    }

    /// `port` is held already; `rejoin` is how long a lost member may take to come back.
    pub fn join_request(
        &self,
        plan: &Plan,
        hostname: Option<&str>,
        addressing: &Addressing,
        port: u16,
        rejoin: Duration,
    ) -> Result<JoinRequest, AddressError> {
        let rank = self.rank(plan);
        let me = rank.and_then(|rank| plan.member(rank));
        let host = match plan.scheduler().hosts {
            HostNames::Own | HostNames::GivenByHand => None,
            HostNames::Scheduler => me.and_then(|member| plan.host(member)),
        };
        let host = host.or(hostname).unwrap_or("localhost").to_owned();
        let (addresses, chosen) = match (&addressing.own, &addressing.rule) {
            (Some(own), _) => (vec![own.to_string()], true),
            (None, HostRule::Name) => (own_addresses().iter().map(ToString::to_string).collect(), false),
            (None, rule) => (vec![rule.apply(&host)?], true),
        };
        let roles = folded_roles(plan);
        let offer = Offer {
            version: VERSION,
            rank,
            job: self.job.clone().or_else(|| plan.job().map(str::to_owned)),
            attempt: plan.attempt(),
            runs: plan.restarts().map_or(0, |restarts| restarts.previous_runs),
            roles,
            host,
            machine: machine_id(),
            addresses,
            chosen,
            port,
            pid: process::own_pid(),
            process: random_number(),
        };
        Ok(JoinRequest {
            offer,
            world: plan.world(),
            key: self.key.clone(),
            timeout: self.timeout,
            // The scheduler starts it again when it likes.
            rejoin: if plan.restarts().is_some() { self.timeout } else { rejoin },
            lost_leader: None,
            apart: plan.restarts().is_some(),
            listen: self.listen,
        })
    }
}

/// `ps*1,worker*3`: who is who, in rank order.
pub(crate) fn folded_roles(plan: &Plan) -> String {
    plan.members()
        .chunk_by(|a, b| a.role == b.role)
        .map(|members| format!("{}*{}", members[0].role, members.len()))
        .collect::<Vec<_>>()
        .join(",")
}
