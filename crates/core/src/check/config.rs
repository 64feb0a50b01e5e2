//! One TF_CONFIG file, read strictly enough to say what is wrong with it.

use crate::hint;
use crate::hint::{Hint, Hinted};
use serde_json::Value;
use std::collections::BTreeMap;
use thiserror::Error;

/// A TF_CONFIG file of one member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigFile {
    /// As the user named it.
    pub name: String,
    /// Addresses by role; an index that a `{"0": ..., "2": ...}` form leaves out is `None`.
    pub cluster: BTreeMap<String, Vec<Option<String>>>,
    /// The role of the member whose file it is: `task.type`.
    pub role: String,
    /// Its number in the role: `task.index`.
    pub index: u32,
}

/// A text that is no TF_CONFIG.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The text is not JSON.
    #[error("{file}: not JSON: {source}")]
    NotJson {
        /// As the user named it.
        file: String,
        /// What the parser says.
        source: serde_json::Error,
    },
    /// It is JSON, but not of the form of a TF_CONFIG.
    #[error("{file}: expected {expected} at {at}, found {found}")]
    Shape {
        /// As the user named it.
        file: String,
        /// Where in the JSON: `cluster.worker`.
        at: String,
        /// What should be there.
        expected: &'static str,
        /// What is there, shortened.
        found: String,
        /// What to write instead.
        hint: &'static str,
    },
}

impl Hinted for ConfigError {
    fn hint(&self) -> Option<Hint> {
        match self {
            ConfigError::NotJson { .. } => {
                Some(hint!(r#"a TF_CONFIG file holds {"cluster": {...}, "task": {...}}"#))
            }
            ConfigError::Shape { hint, .. } => Some(hint!(*hint)),
        }
    }
}

const CLUSTER_HINT: &str = r#"write "cluster": {"ps": ["host:port"], "worker": ["host:port", "host:port"]}"#;
const TASK_HINT: &str = r#"write "task": {"type": "worker", "index": 0}"#;

/// Indices in the `{"index": "address"}` form may go up to this, and those of all roles together.
const MAX_INDEX: usize = 1 << 20;

impl ConfigFile {
    /// The address of the member that the file is for.
    pub fn own_address(&self) -> Option<&str> {
        self.address_of((&self.role, self.index))
    }

    /// The address that the file has for a member.
    pub(super) fn address_of(&self, (role, index): (&str, u32)) -> Option<&str> {
        self.cluster.get(role)?.get(index as usize)?.as_deref()
    }

    /// Reads the text of a file that the user calls `name`.
    pub fn parse(name: &str, text: &str) -> Result<ConfigFile, ConfigError> {
        let value: Value = serde_json::from_str(text)
            .map_err(|source| ConfigError::NotJson { file: name.to_owned(), source })?;
        let shape = |at: &str, expected, found: Option<&Value>, hint| ConfigError::Shape {
            file: name.to_owned(),
            at: at.to_owned(),
            expected,
            found: found.map_or("nothing".to_owned(), brief),
            hint,
        };
        let cluster = value
            .get("cluster")
            .and_then(Value::as_object)
            .ok_or_else(|| shape("cluster", "an object", value.get("cluster"), CLUSTER_HINT))?;
        let mut roles = BTreeMap::new();
        let mut room = MAX_INDEX;
        for (role, addresses) in cluster {
            let at = format!("cluster.{role}");
            let addresses = match addresses {
                Value::Array(list) => list
                    .iter()
                    .map(|address| address.as_str().map(|text| Some(text.to_owned())))
                    .collect::<Option<Vec<_>>>(),
                Value::Object(by_index) => sparse(by_index, room),
                _ => None,
            };
            let addresses = addresses
                .ok_or_else(|| shape(&at, "a list of \"host:port\"", cluster.get(role), CLUSTER_HINT))?;
            room = room.saturating_sub(addresses.len());
            roles.insert(role.clone(), addresses);
        }
        let task = value.get("task");
        let role = task.and_then(|task| task.get("type")).and_then(Value::as_str);
        let role = role.ok_or_else(|| shape("task.type", "a role", task, TASK_HINT))?;
        let index = match task.and_then(|task| task.get("index")) {
            Some(Value::Number(number)) => number.as_u64().and_then(|number| u32::try_from(number).ok()),
            // TensorFlow itself accepts "0".
            Some(Value::String(text)) => text.parse().ok(),
            _ => None,
        };
        let index = index.ok_or_else(|| {
            shape("task.index", "a number from 0 on", task.and_then(|t| t.get("index")), TASK_HINT)
        })?;
        Ok(ConfigFile { name: name.to_owned(), cluster: roles, role: role.to_owned(), index })
    }

    /// How many members of a role the file lists.
    pub(super) fn count(&self, role: &str) -> usize {
        self.cluster.get(role).map_or(0, |addresses| addresses.iter().flatten().count())
    }

    /// Every listed member with its address.
    pub(super) fn members(&self) -> impl Iterator<Item = ((&str, u32), &str)> {
        self.cluster.iter().flat_map(|(role, addresses)| {
            addresses.iter().enumerate().filter_map(move |(index, address)| {
                address.as_deref().map(|address| ((role.as_str(), index as u32), address))
            })
        })
    }
}

/// A list with room for the largest index, which is below `room`.
fn sparse(by_index: &serde_json::Map<String, Value>, room: usize) -> Option<Vec<Option<String>>> {
    let mut addresses = Vec::new();
    for (index, address) in by_index {
        let index: usize = index.parse().ok().filter(|&index| index < room)?;
        if addresses.len() <= index {
            addresses.resize(index + 1, None);
        }
        addresses[index] = Some(address.as_str()?.to_owned());
    }
    Some(addresses)
}

fn brief(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
