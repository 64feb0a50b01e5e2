//! What `torch.distributed` reads with `init_method="env://"`, its default.

use crate::plan::Member;
use crate::roster::Roster;

/// Rank 0's held port is the master's.
pub(super) fn variables(roster: &Roster, member: &Member) -> Vec<(&'static str, String)> {
    let members = &roster.plan.members;
    let master = roster.endpoint(&members[0]);
    let host = |member: &Member| member.place.map(|place| place.host);
    let beside = members.iter().filter(|other| host(other) == host(member)).count();
    vec![
        ("MASTER_ADDR", master.address.clone()),
        ("MASTER_PORT", master.port.to_string()),
        ("RANK", member.rank.to_string()),
        ("WORLD_SIZE", members.len().to_string()),
        ("LOCAL_RANK", member.place.map_or(0, |place| place.local_rank).to_string()),
        ("LOCAL_WORLD_SIZE", beside.to_string()),
        ("NODE_RANK", node_rank(members, member).to_string()),
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
