//! `TF_CONFIG`: `{"cluster": {"ps": [...], "worker": [...]}, "task": {"type": "worker", "index": 0}}`.

use super::{Framework, FrameworkError};
use crate::plan::Member;
use crate::ports::HandOver;
use crate::roles::Role;
use crate::roster::Roster;
use crate::variables as var;
use serde::Serialize;
use std::collections::BTreeMap;

#[derive(Debug)]
pub(crate) struct TensorFlow;

impl Framework for TensorFlow {
    fn name(&self) -> &'static str {
        "tensorflow"
    }

    fn title(&self) -> &'static str {
        "TensorFlow"
    }

    fn about(&self) -> &'static str {
        "TF_CONFIG"
    }

    fn variables(
        &self,
        roster: &Roster,
        member: &Member,
        hand_over: HandOver,
    ) -> Result<Vec<(&'static str, String)>, FrameworkError> {
        let mut variables = vec![(var::TF_CONFIG, tf_config(roster, member))];
        if hand_over == HandOver::ReusePort {
            variables.push((var::TF_GRPC_REUSE_PORT, "1".to_owned()));
        }
        Ok(variables)
    }

    fn threads(&self, cpus: u32) -> Vec<(&'static str, u32)> {
        vec![
            (var::OMP_NUM_THREADS, cpus),
            (var::TF_NUM_INTRAOP_THREADS, cpus),
            // With one, TensorFlow 2's coordinator waits for ever: its own op fills the only thread.
            (var::TF_NUM_INTEROP_THREADS, cpus.max(2)),
        ]
    }

    fn has_servers(&self) -> bool {
        true
    }
}

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
    for member in roster.plan().members().iter().filter(|member| member.role != Role::Evaluator) {
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
