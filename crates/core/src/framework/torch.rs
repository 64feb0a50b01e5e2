//! What `torch.distributed` reads with `init_method="env://"`, its default.

use super::{Framework, FrameworkError};
use crate::plan::Member;
use crate::ports::HandOver;
use crate::roster::Roster;
use crate::variables as var;

#[derive(Debug)]
pub(crate) struct Torch;

impl Framework for Torch {
    fn name(&self) -> &'static str {
        "torch"
    }

    fn title(&self) -> &'static str {
        "PyTorch"
    }

    fn about(&self) -> &'static str {
        "MASTER_ADDR, RANK, WORLD_SIZE and the like"
    }

    fn variables(
        &self,
        roster: &Roster,
        member: &Member,
        _hand_over: HandOver,
    ) -> Result<Vec<(&'static str, String)>, FrameworkError> {
        Ok(variables(roster, member))
    }
}

/// Rank 0's held port is the master's.
fn variables(roster: &Roster, member: &Member) -> Vec<(&'static str, String)> {
    let members = roster.plan().members();
    let master = roster.endpoint(&members[0]);
    let host = |member: &Member| member.place.map(|place| place.host);
    let beside = members.iter().filter(|other| host(other) == host(member)).count();
    vec![
        (var::MASTER_ADDR, master.address.clone()),
        (var::MASTER_PORT, master.port.to_string()),
        (var::RANK, member.rank.to_string()),
        (var::WORLD_SIZE, members.len().to_string()),
        (var::LOCAL_RANK, member.place.map_or(0, |place| place.local_rank).to_string()),
        (var::LOCAL_WORLD_SIZE, beside.to_string()),
        (var::NODE_RANK, node_rank(members, member).to_string()),
    ]
}

/// The number of the member's host, counted in rank order.
fn node_rank(members: &[Member], member: &Member) -> usize {
    let mut seen = Vec::new();
    for other in members {
        let host = other.place.map(|place| place.host);
        if host == member.place.map(|place| place.host) {
            break;
        }
        if !seen.contains(&host) {
            seen.push(host);
        }
    }
    seen.len()
}
