//! `TF_CONFIG`: `{"cluster": {"ps": [...], "worker": [...]}, "task": {"type": "worker", "index": 0}}`.

use crate::plan::Member;
use crate::roles::Role;
use crate::roster::Roster;
use serde::Serialize;
use std::collections::BTreeMap;

#[derive(Serialize)]
struct TfConfig<'a> {
    cluster: &'a Cluster,
    task: Task<'a>,
}

#[derive(Serialize)]
struct Task<'a> {
    #[serde(rename = "type")]
    role: &'a str,
    index: u32,
}

/// Addresses by role, in index order.
///
/// The evaluator is not part of it: TensorFlow 2's coordinator waits without a word for an evaluator
/// that is listed, and no strategy needs one listed.
pub type Cluster = BTreeMap<String, Vec<String>>;

/// The addresses of all members but the evaluators.
pub fn cluster(roster: &Roster) -> Cluster {
    let mut cluster = Cluster::new();
    for member in roster.plan.members.iter().filter(|member| member.role != Role::Evaluator) {
        let address = roster.endpoint(member).to_string();
        match cluster.get_mut(member.role.as_str()) {
            Some(addresses) => addresses.push(address),
            None => _ = cluster.insert(member.role.to_string(), vec![address]),
        }
    }
    cluster
}

/// `TF_CONFIG` of one member.
pub fn tf_config(roster: &Roster, member: &Member) -> String {
    let cluster = cluster(roster);
    let task = Task { role: member.role.as_str(), index: member.index };
    // Maps with string keys and numbers cannot fail to become JSON.
    serde_json::to_string(&TfConfig { cluster: &cluster, task }).unwrap_or_default()
}
