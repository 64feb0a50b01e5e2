//! Which rank is on which host, as far as a task's own variables prove it.
//!
//! Slurm tells a task the step's hosts, the tasks on each, the *name* of the distribution, and this
//! task's own position. The layout computed from the first three is believed only if it puts this
//! task and its neighbours (`SLURM_GTIDS`) where they are. What real jobs taught:
//!
//! - cyclic skips hosts that are full; plane deals up to its size to each host, then goes round again;
//! - `SLURM_STEP_NODELIST` is sorted and `SLURM_STEP_TASKS_PER_NODE` goes with it, but in a step over
//!   several het groups `SLURM_NODEID` and the ranks go by group: group 0 on `n[03-04]` has the first ranks;
//! - there `SLURM_DISTRIBUTION` is the one of *some* group (22.05 to 26.05: two tasks of one step were
//!   shown different ones), so nothing is concluded from it.

use crate::allocation::Place;

/// How `srun` dealt the ranks over the hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Distribution {
    Block,
    Cyclic,
    Plane(u32),
    /// A host per rank, from the host file where it could be read.
    Arbitrary(Option<Vec<String>>),
    /// A word this version does not know.
    Unknown(String),
}

/// The hosts of a step and the tasks on each, by index into one list.
#[derive(Debug)]
pub(super) struct Shape<'a> {
    pub(super) hosts: &'a [String],
    pub(super) counts: &'a [u32],
    pub(super) groups: Groups,
}

/// Het groups of a step.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Groups {
    /// An ordinary step.
    One(Distribution),
    /// Several, each with its hosts in order; how each is dealt is not told.
    Several(Vec<Vec<usize>>),
    /// Several, but which host is in which is not told.
    Untold,
}

/// What a task knows about its own place for certain.
#[derive(Debug, Clone)]
pub(super) struct Position {
    pub(super) rank: u32,
    /// Index of its host in the shape.
    pub(super) host: usize,
    pub(super) node_id: Option<u32>,
    pub(super) local_rank: Option<u32>,
    /// All ranks of its host, its own among them, ascending.
    pub(super) neighbours: Vec<u32>,
}

/// A place a rank, `None` where it is not proved.
pub(super) type Layout = Vec<Option<Place>>;

/// Plane sizes beyond this are not told apart from block.
const MAX_PLANE: u32 = 64;

/// Places all ranks as far as the evidence goes. The second value says why some are left out.
pub(super) fn place(shape: &Shape<'_>, position: &Position) -> (Layout, Option<String>) {
    let world = shape.counts.iter().map(|&count| count as usize).sum();
    let mut layout: Layout = vec![None; world];
    for (local_rank, &rank) in position.neighbours.iter().enumerate() {
        layout[rank as usize] = Some(Place { host: position.host as u32, local_rank: local_rank as u32 });
    }
    let reason = match &shape.groups {
        Groups::One(distribution) => match by_distribution(shape, distribution) {
            Ok(hosts) if agrees(&hosts, position, position.host) => {
                let places = crate::allocation::places(hosts, shape.hosts.len());
                return (places.into_iter().map(Some).collect(), None);
            }
            Ok(_) => Some(format!(
                "the {} layout contradicts SLURM_GTIDS or SLURM_NODEID, so it is not claimed for other hosts",
                distribution.name()
            )),
            Err(reason) => Some(reason),
        },
        Groups::Several(groups) => {
            place_groups(shape, groups, position, &mut layout);
            Some("the step spans several het groups, whose distributions Slurm does not tell".to_owned())
        }
        Groups::Untold => Some(
            "the step spans several het groups, and Slurm does not tell which host is in which".to_owned(),
        ),
    };
    fill_the_only_gap(shape, &mut layout);
    let reason = reason.filter(|_| layout.iter().any(Option::is_none));
    (layout, reason)
}

/// The host of every rank by an ordinary step's distribution.
fn by_distribution(shape: &Shape<'_>, distribution: &Distribution) -> Result<Vec<u32>, String> {
    let all: Vec<usize> = (0..shape.hosts.len()).collect();
    match distribution {
        Distribution::Block => Ok(deal(&all, shape.counts, u32::MAX)),
        Distribution::Cyclic => Ok(deal(&all, shape.counts, 1)),
        Distribution::Plane(size) => Ok(deal(&all, shape.counts, *size)),
        Distribution::Arbitrary(Some(lines)) => by_host_file(shape, lines),
        Distribution::Arbitrary(None) => {
            Err("the layout is arbitrary and the file in SLURM_HOSTFILE cannot be read here".to_owned())
        }
        Distribution::Unknown(word) => Err(format!("SLURM_DISTRIBUTION={word} is not known here")),
    }
}

/// Deals ranks over `hosts`, up to `size` to each in a round, until every host has its count.
fn deal(hosts: &[usize], counts: &[u32], size: u32) -> Vec<u32> {
    let mut left: Vec<u32> = hosts.iter().map(|&host| counts[host]).collect();
    let total = left.iter().map(|&count| count as usize).sum();
    let mut dealt = Vec::with_capacity(total);
    while dealt.len() < total {
        for (&host, left) in hosts.iter().zip(&mut left) {
            let turn = size.min(*left);
            dealt.extend(std::iter::repeat_n(host as u32, turn as usize));
            *left -= turn;
        }
    }
    dealt
}

/// One line per rank; believed only if it gives every host the number of tasks that Slurm says.
fn by_host_file(shape: &Shape<'_>, lines: &[String]) -> Result<Vec<u32>, String> {
    let index: std::collections::HashMap<&str, u32> =
        shape.hosts.iter().enumerate().map(|(index, name)| (name.as_str(), index as u32)).collect();
    let world: usize = shape.counts.iter().map(|&count| count as usize).sum();
    let stale = || "the file in SLURM_HOSTFILE is not the one the step was started with".to_owned();
    let hosts: Vec<u32> = lines
        .iter()
        .take(world)
        .map(|line| index.get(line.as_str()).copied())
        .collect::<Option<_>>()
        .ok_or_else(stale)?;
    let mut counts = vec![0u32; shape.hosts.len()];
    for &host in &hosts {
        counts[host as usize] += 1;
    }
    if counts == shape.counts { Ok(hosts) } else { Err(stale()) }
}

/// True if a dealt list has this task's host, and nobody else's ranks, where the task sees them.
fn agrees(hosts: &[u32], position: &Position, expected_node_id: usize) -> bool {
    let here = hosts.iter().enumerate().filter(|&(_, &host)| host as usize == position.host);
    here.map(|(rank, _)| rank as u32).eq(position.neighbours.iter().copied())
        && position.node_id.is_none_or(|id| id as usize == expected_node_id)
        && position.local_rank.is_none_or(|local| {
            position.neighbours.iter().position(|&rank| rank == position.rank) == Some(local as usize)
        })
}

/// Within each group, only what every possible distribution agrees on.
fn place_groups(shape: &Shape<'_>, groups: &[Vec<usize>], position: &Position, layout: &mut Layout) {
    let node_order: Vec<usize> = groups.iter().flatten().copied().collect();
    let expected = node_order.iter().position(|&host| host == position.host);
    if let (Some(told), Some(expected)) = (position.node_id, expected)
        && told as usize != expected
    {
        return;
    }
    let mut first_rank = 0;
    for group in groups {
        let tasks: usize = group.iter().map(|&host| shape.counts[host] as usize).sum();
        let mine = group.contains(&position.host);
        let most = group.iter().map(|&host| shape.counts[host]).max().unwrap_or(1);
        let mut common: Option<Vec<Option<Place>>> = None;
        for size in (1..=most.min(MAX_PLANE)).chain([u32::MAX]) {
            let hosts = deal(group, shape.counts, size);
            let consistent =
                !mine || ranks_of(&hosts, position.host, first_rank).eq(position.neighbours.iter().copied());
            if !consistent {
                continue;
            }
            let places = crate::allocation::places(hosts, shape.hosts.len()).into_iter().map(Some);
            common = Some(match common {
                None => places.collect(),
                Some(before) => {
                    before.into_iter().zip(places).map(|(a, b)| if a == b { a } else { None }).collect()
                }
            });
        }
        for (offset, place) in common.into_iter().flatten().enumerate() {
            let known = &mut layout[first_rank + offset];
            *known = known.or(place);
        }
        first_rank += tasks;
    }
}

fn ranks_of(hosts: &[u32], host: usize, first_rank: usize) -> impl Iterator<Item = u32> {
    hosts
        .iter()
        .enumerate()
        .filter(move |&(_, &at)| at as usize == host)
        .map(move |(rank, _)| (first_rank + rank) as u32)
}

/// If only one host still has free slots, all ranks left over are there.
fn fill_the_only_gap(shape: &Shape<'_>, layout: &mut Layout) {
    let mut free = shape.counts.to_vec();
    for place in layout.iter().flatten() {
        free[place.host as usize] = free[place.host as usize].saturating_sub(1);
    }
    let mut with_room = free.iter().enumerate().filter(|&(_, &free)| free > 0);
    let missing = layout.iter().filter(|place| place.is_none()).count();
    if let (Some((host, &room)), None) = (with_room.next(), with_room.next())
        && room as usize == missing
    {
        let mut local_rank = 0;
        for place in layout.iter_mut() {
            let here = place.get_or_insert(Place { host: host as u32, local_rank: 0 });
            if here.host as usize == host {
                here.local_rank = local_rank;
                local_rank += 1;
            }
        }
    }
}

impl Distribution {
    /// Reads `SLURM_DISTRIBUTION`: `block`, `cyclic:block`, `block,NoPack`, `plane`, `plane=4`, `*`.
    ///
    /// Unset, as under plain `srun`, is block. Only the first word, over hosts, matters here; pack
    /// and nopack change the tasks on a host, which `SLURM_STEP_TASKS_PER_NODE` already tells.
    pub(super) fn parse(text: Option<&str>, plane_size: Option<u32>) -> Distribution {
        let text = text.unwrap_or("").trim();
        let word = text.split([':', ',']).next().unwrap_or("").to_ascii_lowercase();
        match word.split_once('=').unwrap_or((&word, "")) {
            ("block" | "*" | "" | "pack" | "nopack", _) => Distribution::Block,
            ("cyclic", _) => Distribution::Cyclic,
            ("plane", size) => match size.parse().ok().or(plane_size).filter(|&size| size > 0) {
                Some(size) => Distribution::Plane(size),
                None => Distribution::Unknown(text.to_owned()),
            },
            ("arbitrary", _) => Distribution::Arbitrary(None),
            _ => Distribution::Unknown(text.to_owned()),
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Distribution::Block => "block",
            Distribution::Cyclic => "cyclic",
            Distribution::Plane(_) => "plane",
            Distribution::Arbitrary(_) => "arbitrary",
            Distribution::Unknown(_) => "unknown",
        }
    }
}

/// Ranks on hosts for a step that is not started yet: what the distribution says, unchecked.
pub(super) fn foresee(shape: &Shape<'_>) -> Option<Vec<Place>> {
    let hosts = match &shape.groups {
        Groups::One(distribution) => by_distribution(shape, distribution).ok()?,
        Groups::Several(groups) => {
            groups.iter().flat_map(|group| deal(group, shape.counts, u32::MAX)).collect()
        }
        Groups::Untold => return None,
    };
    Some(crate::allocation::places(hosts, shape.hosts.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dealt(counts: &[u32], size: u32) -> Vec<u32> {
        deal(&(0..counts.len()).collect::<Vec<_>>(), counts, size)
    }

    #[test]
    fn ranks_are_dealt_as_srun_deals_them() {
        assert_eq!(dealt(&[3, 1, 2], u32::MAX), [0, 0, 0, 1, 2, 2]);
        assert_eq!(dealt(&[3, 1, 2], 1), [0, 1, 2, 0, 2, 0]);
        // srun -N3 -n9 -m plane=2 with 7,1,1 tasks
        assert_eq!(dealt(&[7, 1, 1], 2), [0, 0, 1, 2, 0, 0, 0, 0, 0]);
        assert!(dealt(&[], 1).is_empty());
    }

    #[test]
    fn words_of_the_distribution() {
        let parse = |text| Distribution::parse(Some(text), Some(3));
        assert_eq!(parse("block"), Distribution::Block);
        assert_eq!(parse("block,pack"), Distribution::Block);
        assert_eq!(parse("nopack"), Distribution::Block);
        assert_eq!(parse("*:cyclic"), Distribution::Block);
        assert_eq!(parse("cyclic:block"), Distribution::Cyclic);
        assert_eq!(parse("Cyclic,NoPack"), Distribution::Cyclic);
        assert_eq!(parse("plane"), Distribution::Plane(3));
        assert_eq!(parse("plane=4"), Distribution::Plane(4));
        assert_eq!(parse("arbitrary"), Distribution::Arbitrary(None));
        assert_eq!(parse("spiral"), Distribution::Unknown("spiral".to_owned()));
        assert_eq!(Distribution::parse(None, None), Distribution::Block);
        assert_eq!(Distribution::parse(Some("plane"), None), Distribution::Unknown("plane".to_owned()));
    }

    fn hosts(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn a_layout_that_contradicts_the_task_is_not_claimed() {
        // Said to be block, but this task sees ranks 0 and 3 beside it on the first of three hosts.
        let names = hosts(&["n1", "n2", "n3"]);
        let shape = Shape { hosts: &names, counts: &[2, 2, 2], groups: Groups::One(Distribution::Block) };
        let position =
            Position { rank: 0, host: 0, node_id: Some(0), local_rank: Some(0), neighbours: vec![0, 3] };
        let (layout, reason) = place(&shape, &position);
        assert!(reason.unwrap().contains("contradicts"));
        let known: Vec<_> =
            layout.iter().map(|place| place.map(|place| (place.host, place.local_rank))).collect();
        assert_eq!(known, [Some((0, 0)), None, None, Some((0, 1)), None, None]);
    }

    #[test]
    fn with_one_other_host_the_rest_is_there() {
        let names = hosts(&["n1", "n2"]);
        let groups = Groups::One(Distribution::Arbitrary(None));
        let shape = Shape { hosts: &names, counts: &[2, 3], groups };
        let position =
            Position { rank: 4, host: 0, node_id: Some(0), local_rank: Some(1), neighbours: vec![1, 4] };
        let (layout, reason) = place(&shape, &position);
        assert_eq!(reason, None);
        let known: Vec<_> =
            layout.into_iter().flatten().map(|place| (place.host, place.local_rank)).collect();
        assert_eq!(known, [(1, 0), (0, 0), (1, 1), (1, 2), (0, 1)]);
    }
}
