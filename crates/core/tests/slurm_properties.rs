//! Slurm's variables, broken in every way: a real task's, each of them removed, exchanged or given a hostile
//! value, are an allocation that is sound, or an error; never a panic.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod sound;

use proptest::prelude::*;
use proptest::sample::Index;
use rallypoint::environ::Environ;
use rallypoint::plan::{JobSpec, Plan};
use rallypoint::roles::RoleRequest;
use rallypoint::scheduler::{self, On};
use rallypoint::variables::{ALL, Family};
use sound::{check_allocation, check_plan};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::LazyLock;

type Variables = BTreeMap<String, String>;

/// Every captured task; those of het jobs once more behind all, since they are few and have the most variables.
static TASKS: LazyLock<Vec<Variables>> = LazyLock::new(|| {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/slurm");
    let mut files: Vec<PathBuf> = std::fs::read_dir(root)
        .unwrap()
        .flat_map(|version| std::fs::read_dir(version.unwrap().path()).unwrap())
        .map(|file| file.unwrap().path())
        .collect();
    files.sort();
    let mut tasks: Vec<Variables> =
        files.iter().flat_map(|file| tasks(&std::fs::read_to_string(file).unwrap())).collect();
    let het: Vec<Variables> =
        tasks.iter().filter(|task| task.contains_key("SLURM_HET_SIZE")).cloned().collect();
    assert!(tasks.len() > 2000 && het.len() > 100, "{} tasks, {} of het jobs", tasks.len(), het.len());
    while tasks.iter().filter(|task| task.contains_key("SLURM_HET_SIZE")).count() * 2 < tasks.len() {
        tasks.extend(het.iter().cloned());
    }
    tasks
});

/// The names of all variables that are read or were ever captured, and those of het groups.
static NAMES: LazyLock<Vec<String>> = LazyLock::new(|| {
    let read =
        ALL.iter().filter(|variable| matches!(variable.family, Family::Scheduler("slurm") | Family::Devices));
    let mut names: BTreeSet<String> = read.map(|variable| variable.name.to_owned()).collect();
    names.extend(TASKS.iter().flat_map(|task| task.keys().cloned()));
    for variable in ["SLURM_JOB_NODELIST", "SLURM_NTASKS", "SLURM_NTASKS_PER_NODE", "SLURM_TASKS_PER_NODE"] {
        for group in 0..5 {
            names.extend(["HET", "PACK"].map(|word| format!("{variable}_{word}_GROUP_{group}")));
        }
    }
    names.into_iter().collect()
});

/// A file of captured tasks: what all of them have, then a section for each.
fn tasks(text: &str) -> Vec<Variables> {
    let mut common = Variables::new();
    let mut tasks: Vec<Variables> = Vec::new();
    let mut is_common = false;
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        if let Some(heading) = line.strip_prefix("== ") {
            is_common = heading == "every task";
            if !is_common {
                tasks.push(common.clone());
            }
        } else if let Some((name, value)) = line.split_once('=') {
            let into = if is_common { &mut common } else { tasks.last_mut().unwrap() };
            into.insert(name.to_owned(), value.to_owned());
        }
    }
    tasks
}

/// One thing done to a task's variables.
#[derive(Debug, Clone)]
enum Change {
    Remove(Index),
    /// Of any variable, set or not.
    Set(Index, String),
    /// A set variable gets the value of another one.
    Copy(Index, Index),
    /// A set variable gets the value that it has in another task.
    Mix(Index, Index),
    /// A byte of a value becomes another one.
    Edit(Index, Index, char),
    /// All het groups anew, each with some of the step's hosts: hosts in several groups and in none.
    Groups(Vec<Vec<Index>>),
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        any::<Index>().prop_map(Change::Remove),
        (any::<Index>(), value()).prop_map(|(name, value)| Change::Set(name, value)),
        (any::<Index>(), any::<Index>()).prop_map(|(to, from)| Change::Copy(to, from)),
        (any::<Index>(), any::<Index>()).prop_map(|(name, task)| Change::Mix(name, task)),
        (any::<Index>(), any::<Index>(), "[0-9,()x\\[\\]n -]").prop_map(|(name, at, c)| Change::Edit(
            name,
            at,
            c.chars().next().unwrap_or('0')
        )),
        prop::collection::vec(prop::collection::vec(any::<Index>(), 1..4), 2..5).prop_map(Change::Groups),
    ]
}

/// Numbers that overflow something, and what lists are made of.
fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(vec![
            "",
            " ",
            "0",
            "-1",
            "1",
            "2",
            "3",
            "65535",
            "65536",
            "4194304",
            "4194305",
            "2147483648",
            "4294967291",
            "4294967295",
            "4294967296",
            "18446744073709551615",
            "99999999999999999999999",
            "1e3",
            "0x10",
            "٣",
            "NULL",
            "n01",
            "n02",
            "n[01-04]",
            "n[04-01]",
            "n[1-4194305]",
            "n[01-02],n01",
            "n[01",
            "1(x2)",
            "2(x2),1",
            "1(x4294967295)",
            "4294967295(x2)",
            "0(x4)",
            "0,1",
            "1,0",
            "0,0",
            "0-65535",
            "1-65535,1-65535",
            "23001",
            "23001,23009",
            "65535-65536",
            "block",
            "cyclic",
            "plane",
            "plane=0",
            "plane=4294967295",
            "arbitrary",
            "\u{1b}[31m",
        ])
        .prop_map(str::to_owned),
        "[0-9]{1,20}",
        "[0-4](,[0-4]){0,3}",
        "n\\[0[1-3]-0[2-4]\\](,n0[1-4])?",
        "[0-4]\\(x[0-4]\\)(,[0-4])?",
        "\\PC{0,6}",
    ]
}

fn apply(variables: &mut Variables, change: &Change) {
    let set: Vec<String> = variables.keys().cloned().collect();
    if set.is_empty() {
        return;
    }
    match change {
        Change::Remove(name) => _ = variables.remove(name.get(&set)),
        Change::Set(name, value) => _ = variables.insert(name.get(&NAMES).clone(), value.clone()),
        Change::Copy(to, from) => {
            let value = variables[from.get(&set)].clone();
            variables.insert(to.get(&set).clone(), value);
        }
        Change::Mix(name, task) => {
            let name = name.get(&set);
            if let Some(value) = task.get(&TASKS).get(name) {
                variables.insert(name.clone(), value.clone());
            }
        }
        Change::Edit(name, at, with) => {
            if let Some(value) = variables.get_mut(name.get(&set)) {
                let mut letters: Vec<char> = value.chars().collect();
                if !letters.is_empty() {
                    let at = at.index(letters.len());
                    letters[at] = *with;
                }
                *value = letters.into_iter().collect();
            }
        }
        Change::Groups(groups) => {
            let list = variables.get("SLURM_STEP_NODELIST").or(variables.get("SLURM_JOB_NODELIST"));
            let Some(Ok(list)) = list.map(|list| list.parse::<rallypoint::hostlist::HostList>()) else {
                return;
            };
            let hosts: Vec<String> = list.names().take(100).collect();
            if hosts.is_empty() {
                return;
            }
            variables.insert("SLURM_HET_SIZE".to_owned(), groups.len().to_string());
            for (group, members) in groups.iter().enumerate() {
                let names: Vec<&str> = members.iter().map(|member| member.get(&hosts).as_str()).collect();
                variables.insert(format!("SLURM_JOB_NODELIST_HET_GROUP_{group}"), names.join(","));
            }
        }
    }
}

fn check(variables: Variables) {
    let hosts = variables.get("SLURM_STEP_NODELIST").cloned().unwrap_or_default();
    let environ = Environ::from_variables(variables).with_file("SLURM_HOSTFILE", &hosts.replace(',', "\n"));
    if let Ok(allocation) =
        scheduler::allocation(&environ, On::Scheduler(&scheduler::slurm::Slurm), &RoleRequest::default())
    {
        // A plan of millions takes its time.
        if allocation.world() > 10_000 {
            return;
        }
        check_allocation(&allocation);
        if let Ok(plan) = Plan::new(allocation, &JobSpec::default()) {
            check_plan(&plan);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6000))]

    #[test]
    fn a_real_task_with_broken_variables_is_an_allocation_or_an_error(
        task in any::<Index>(),
        changes in prop::collection::vec(change(), 1..6),
    ) {
        let mut variables = task.get(&TASKS).clone();
        changes.iter().for_each(|change| apply(&mut variables, change));
        check(variables);
    }

    #[test]
    fn a_part_of_a_real_task_is_an_allocation_or_an_error(
        task in any::<Index>(),
        kept in prop::collection::vec(any::<bool>(), 128),
        changes in prop::collection::vec(change(), 0..3),
    ) {
        let task = task.get(&TASKS);
        let mut variables: Variables =
            task.clone().into_iter().zip(kept).filter(|(_, kept)| *kept).map(|(variable, _)| variable).collect();
        changes.iter().for_each(|change| apply(&mut variables, change));
        check(variables);
    }
}

/// A host in two groups and another one in none: as many as there are hosts, but not the same.
#[test]
fn groups_that_are_not_the_hosts_of_the_step_place_nobody_elsewhere() {
    let environ = Environ::from_variables([
        ("SLURM_JOB_ID", "7"),
        ("SLURM_STEP_ID", "0"),
        ("SLURM_STEP_NODELIST", "n[1-3]"),
        ("SLURM_STEP_TASKS_PER_NODE", "1,4,1"),
        ("SLURM_STEP_NUM_TASKS", "6"),
        ("SLURM_PROCID", "0"),
        ("SLURM_GTIDS", "0"),
        ("SLURMD_NODENAME", "n1"),
        ("SLURM_HET_SIZE", "2"),
        ("SLURM_JOB_NODELIST_HET_GROUP_0", "n[1-2]"),
        ("SLURM_JOB_NODELIST_HET_GROUP_1", "n2"),
    ]);
    let allocation =
        scheduler::allocation(&environ, On::Scheduler(&scheduler::slurm::Slurm), &RoleRequest::default())
            .unwrap();
    check_allocation(&allocation);
    assert_eq!(allocation.slots.iter().filter(|slot| slot.place.is_some()).count(), 1);
    let notes = allocation.notes.join("\n");
    assert!(notes.contains("does not tell which host is in which"), "{notes}");
}
