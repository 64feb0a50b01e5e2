//! What can be seen in one file, with the others to tell what was meant: one function per finding.

use super::{Agreed, ConfigFile, Finding, Kind, Strategy, finding, is_loopback, normal, split_address};
use std::collections::{BTreeMap, BTreeSet};

/// Everything wrong with a file by itself.
pub(super) fn findings(
    file: &ConfigFile,
    files: &[ConfigFile],
    strategy: Strategy,
    agreed: &Agreed<'_>,
) -> Vec<Finding> {
    let at_most_one = [
        own_task(file, agreed),
        localhost_among_hosts(file),
        several_chiefs(file),
        ps_without_workers(file, agreed),
        worker_alone(file, files, agreed),
        evaluator_listed(file),
        no_ps(file, strategy, agreed),
    ];
    let mut findings: Vec<Finding> = at_most_one.into_iter().flatten().collect();
    findings.extend(bad_addresses(file));
    findings.extend(duplicate_addresses(file));
    findings
}

fn chiefs(file: &ConfigFile) -> usize {
    file.count("chief") + file.count("master")
}

/// A task that its own cluster does not list.
fn own_task(file: &ConfigFile, agreed: &Agreed<'_>) -> Option<Finding> {
    let (role, index) = (&file.role, file.index);
    match file.cluster.get(role) {
        None if role == "evaluator" => None,
        None => Some(finding(
            file,
            Kind::NoSuchRole,
            format!("its task is {role} {index}, but its cluster has no {role}"),
            format!("add {} to its cluster", agreed.role_json(role)),
        )),
        Some(addresses) if matches!(addresses.get(index as usize), Some(Some(_))) => None,
        Some(addresses) => {
            let (count, last) = (file.count(role), addresses.len().saturating_sub(1));
            let to = if last > 0 { format!(" to {last}") } else { String::new() };
            Some(finding(
                file,
                Kind::NoSuchIndex,
                format!("its task is {role} {index}, but its cluster lists {count} {role} (index 0{to})"),
                format!("list every {role} in every file; the position in the list is the index"),
            ))
        }
    }
}

fn bad_addresses(file: &ConfigFile) -> impl Iterator<Item = Finding> {
    file.members().filter_map(move |((role, index), address)| {
        let reason = split_address(address).err()?;
        Some(finding(
            file,
            Kind::BadAddress,
            format!("{role} {index} has the address {address:?}: {reason}"),
            "write host:port, with a port from 1 to 65535".to_owned(),
        ))
    })
}

fn duplicate_addresses(file: &ConfigFile) -> Vec<Finding> {
    let mut by_address: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for ((role, index), address) in file.members().filter(|(_, address)| split_address(address).is_ok()) {
        by_address.entry(normal(address)).or_default().push(format!("{role} {index}"));
    }
    let duplicates = by_address.iter().filter(|(_, members)| members.len() > 1);
    duplicates
        .map(|(address, members)| {
            finding(
                file,
                Kind::DuplicateAddress,
                format!("{} have the same address {address}", members.join(" and ")),
                "give each member a port of its own; two servers cannot share one".to_owned(),
            )
        })
        .collect()
}

fn localhost_among_hosts(file: &ConfigFile) -> Option<Finding> {
    let hosts: BTreeSet<&str> =
        file.members().filter_map(|(_, address)| split_address(address).ok()).map(|(host, _)| host).collect();
    let local = hosts.iter().find(|host| is_loopback(host))?;
    hosts.iter().any(|host| !is_loopback(host)).then(|| {
        finding(
            file,
            Kind::LocalhostAmongHosts,
            format!("{local} stands beside names of other machines, and means another machine on each"),
            "write the machine's own name or address".to_owned(),
        )
    })
}

fn several_chiefs(file: &ConfigFile) -> Option<Finding> {
    let chiefs = chiefs(file);
    (chiefs > 1).then(|| {
        finding(
            file,
            Kind::SeveralChiefs,
            format!("its cluster lists {chiefs} chiefs"),
            "list one; the others are workers".to_owned(),
        )
    })
}

fn ps_without_workers(file: &ConfigFile, agreed: &Agreed<'_>) -> Option<Finding> {
    if file.role != "ps" || file.count("worker") + chiefs(file) > 0 {
        return None;
    }
    let known = match agreed.count("worker") {
        0 => "\"worker\": [...]".to_owned(),
        _ => agreed.role_json("worker"),
    };
    Some(finding(
        file,
        Kind::PsWithoutWorkers,
        "a parameter server whose cluster has no worker: workers that connect to it wait for ever".to_owned(),
        format!("add {known} to its cluster"),
    ))
}

/// A worker that lists no other, though there are others.
fn worker_alone(file: &ConfigFile, files: &[ConfigFile], agreed: &Agreed<'_>) -> Option<Finding> {
    let has_others = agreed.count("worker") > 1
        || files.iter().any(|other| other.role == "worker" && other.name != file.name);
    let is_alone = file.role == "worker" && file.count("ps") > 0 && file.count("worker") == 1;
    if !is_alone || !has_others {
        return None;
    }
    let all = match agreed.count("worker") > 1 {
        true => agreed.role_json("worker"),
        false => {
            let workers = files.iter().filter(|other| other.role == "worker");
            let known: BTreeSet<&str> =
                workers.filter_map(|other| other.cluster.get("worker")?.first()?.as_deref()).collect();
            format!("\"worker\": {}", serde_json::to_string(&known).unwrap_or_default())
        }
    };
    Some(finding(
        file,
        Kind::WorkerAlone,
        "a worker that knows only itself and the ps: only the one with index 0 trains".to_owned(),
        format!("write {all} in every file, and each worker's own position as its index"),
    ))
}

fn evaluator_listed(file: &ConfigFile) -> Option<Finding> {
    (file.count("evaluator") > 0 && file.count("ps") > 0 && chiefs(file) > 0).then(|| {
        finding(
            file,
            Kind::EvaluatorListed,
            "an evaluator in the cluster of a TF 2 coordinator: the chief waits for it without a word"
                .to_owned(),
            "leave the evaluator out of every cluster; its own file names it in \"task\" only".to_owned(),
        )
    })
}

fn no_ps(file: &ConfigFile, strategy: Strategy, agreed: &Agreed<'_>) -> Option<Finding> {
    let needs_ps = match strategy {
        Strategy::Auto => chiefs(file) > 0,
        Strategy::ParameterServer => true,
        Strategy::MultiWorkerMirrored => false,
    };
    if !needs_ps || file.count("ps") > 0 || file.role == "ps" {
        return None;
    }
    let known = match agreed.count("ps") {
        0 => "\"ps\": [\"host:port\"]".to_owned(),
        _ => agreed.role_json("ps"),
    };
    Some(finding(
        file,
        Kind::NoPs,
        "no ps in its cluster: ParameterServerStrategy needs at least one".to_owned(),
        format!("add {known}; for MultiWorkerMirroredStrategy check with --strategy mirrored"),
    ))
}
