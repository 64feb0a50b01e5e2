//! One member of a cluster that a TF_CONFIG file describes: `run --tf-config FILE`.

use super::RunError;
use crate::check::ConfigFile;
use crate::roles::{Role, RoleError};

/// The member that a TF_CONFIG is for.
#[derive(Debug, Clone)]
pub(super) struct Task {
    config: ConfigFile,
    /// What its variable will have.
    pub(super) text: String,
    /// The port that the file gives it; an evaluator has none, so any will do.
    pub(super) port: u16,
}

impl Task {
    pub(super) fn new(config: ConfigFile, text: String) -> Result<Task, RunError> {
        let port = match config.own_address() {
            None if config.role == "evaluator" => 0,
            None => return Err(RunError::NoAddress { config: Box::new(config) }),
            Some(address) => address.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).unwrap_or(0),
        };
        Ok(Task { config, text, port })
    }

    /// Its number in its role.
    pub(super) fn index(&self) -> u32 {
        self.config.index
    }

    /// The role of each member of the cluster.
    pub(super) fn roles(&self) -> Result<Vec<Role>, RoleError> {
        let tasks = self.config.cluster.iter();
        tasks.flat_map(|(role, tasks)| tasks.iter().flatten().map(move |_| role.parse())).collect()
    }

    /// How many of each role there are; an evaluator is none of the cluster.
    pub(super) fn role_counts(&self) -> Result<Vec<(Role, u32)>, RoleError> {
        let own = (self.config.role.as_str(), self.config.index + 1);
        let tasks = self.config.cluster.iter();
        let others = tasks.map(|(role, tasks)| (role.as_str(), tasks.iter().flatten().count() as u32));
        let is_listed = self.config.cluster.contains_key(own.0);
        let all = others.chain((!is_listed).then_some(own));
        all.map(|(role, count)| Ok((role.parse()?, count))).collect()
    }

    /// The names of all roles, its own among them.
    pub(super) fn role_names(&self) -> impl Iterator<Item = &str> {
        self.config.cluster.keys().map(String::as_str).chain([self.config.role.as_str()])
    }
}
