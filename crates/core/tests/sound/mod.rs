//! What holds for every allocation and every plan, however it came about.

use rallypoint::allocation::Allocation;
use rallypoint::plan::Plan;
use std::collections::{BTreeMap, BTreeSet};

pub(crate) fn check_allocation(allocation: &Allocation) {
    if let Some(me) = allocation.me {
        assert!(me < allocation.world());
        assert!(allocation.slots[me as usize].place.is_some() || allocation.hosts.is_empty());
    }
    let names: BTreeSet<_> = allocation.hosts.iter().map(|host| host.name.as_str()).collect();
    assert_eq!(names.len(), allocation.hosts.len(), "a host stands there twice");
    let mut last: BTreeMap<u32, u32> = BTreeMap::new();
    for place in allocation.slots.iter().filter_map(|slot| slot.place) {
        assert!((place.host as usize) < allocation.hosts.len());
        let before = last.insert(place.host, place.local_rank);
        assert!(before.is_none_or(|before| before < place.local_rank), "local ranks go by ranks: {place:?}");
    }
    let ports = allocation.ports.iter().flatten();
    let distinct: BTreeSet<_> = ports.clone().collect();
    assert_eq!(distinct.len(), ports.count(), "a port stands there twice");
    assert!(!distinct.contains(&0));
}

/// Ranks are 0 to n-1, indices count up within each role, no device of a host is given twice.
pub(crate) fn check_plan(plan: &Plan) {
    let ranks: Vec<u32> = plan.members().iter().map(|member| member.rank).collect();
    assert_eq!(ranks, (0..plan.world()).collect::<Vec<_>>());
    for (role, count) in plan.role_counts() {
        let indices: Vec<u32> =
            plan.members().iter().filter(|member| member.role == role).map(|member| member.index).collect();
        assert_eq!(indices, (0..count).collect::<Vec<_>>());
    }
    let mut given = BTreeSet::new();
    for member in plan.members() {
        for device in member.devices.iter().flat_map(|devices| devices.iter()) {
            let host = member.place.map(|place| place.host);
            assert!(given.insert((host, device.clone())), "{device} of {host:?} is given twice");
        }
    }
}
