//! What is to be served: from TF_CONFIG or a `tensorflow.ServerDef` to checked bytes for TensorFlow.

use crate::check::{ConfigError, ConfigFile, Finding, Kind, Strategy, check, split_address};
use crate::framework::server_def::{ClusterDef, JobDef, ServerDef};
use crate::hint;
use crate::hint::{Hint, Hinted, Setting};
use prost::Message;
use thiserror::Error;

/// One server of a cluster, checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Definition {
    /// TensorFlow's job name: `ps`.
    pub role: String,
    /// Its number within the role.
    pub index: u32,
    /// As the others know it: `n1:7000`.
    pub address: String,
    /// Where it will listen.
    pub port: u16,
    /// Everyone's host, for proxies to be kept away from.
    pub hosts: Vec<String>,
    /// What is odd but no reason to refuse.
    pub notes: Vec<String>,
    bytes: Vec<u8>,
}

/// Why a text or message defines no server.
#[derive(Debug, Error)]
pub enum DefinitionError {
    /// The text is no TF_CONFIG.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The TF_CONFIG is one that TensorFlow would refuse, or with which it would reach nobody.
    #[error("{}: {}", .0.file, .0.problem)]
    Finding(Box<Finding>),
    /// The TF_CONFIG is an evaluator's.
    #[error("{file}: its task is an evaluator, which is no server")]
    Evaluator {
        /// The file or variable that it came from.
        file: String,
    },
    /// The bytes are no serialized ServerDef, or one without a cluster.
    #[error("{file}: not a serialized tensorflow.ServerDef: {why}")]
    NotServerDef {
        /// The file or variable that it came from.
        file: String,
        /// What is wrong with them.
        why: String,
        /// What to do about it.
        hint: Hint,
    },
    /// The server's own task is not one of its cluster's.
    #[error("{file}: the server is {role} {index}, but its cluster {has}")]
    NotInCluster {
        /// The file or variable that it came from.
        file: String,
        /// The server's job name.
        role: String,
        /// The server's task index.
        index: i32,
        /// What the cluster has instead: `has 1 ps, the last index is 0`.
        has: String,
    },
    /// The server's own address is not one that others could connect to.
    #[error("{file}: {role} {index} has the address {address:?}: {why}")]
    Address {
        /// The file or variable that it came from.
        file: String,
        /// The server's job name.
        role: String,
        /// The server's task index.
        index: i32,
        /// What the cluster has for it.
        address: String,
        /// What is wrong with it.
        why: &'static str,
    },
}

impl Hinted for DefinitionError {
    fn hint(&self) -> Option<Hint> {
        match self {
            DefinitionError::Config(error) => error.hint(),
            DefinitionError::Finding(finding) => Some(hint!(finding.fix.clone())),
            DefinitionError::Evaluator { .. } => Some(hint!("it runs a program of its own, so start that")),
            DefinitionError::NotServerDef { hint, .. } => Some(hint.clone()),
            DefinitionError::NotInCluster { .. } => {
                Some(hint!("job_name and task_index must name one of the cluster's tasks"))
            }
            DefinitionError::Address { .. } => Some(hint!("write host:port, with a port from 1 to 65535")),
        }
    }
}

impl Definition {
    /// From TF_CONFIG's text; `name` is for messages.
    pub fn from_tf_config(name: &str, text: &str) -> Result<Definition, DefinitionError> {
        let config = ConfigFile::parse(name, text)?;
        let listed =
            config.cluster.get(&config.role).and_then(|list| list.get(config.index as usize)?.clone());
        if listed.is_none() && config.role == "evaluator" {
            return Err(DefinitionError::Evaluator { file: name.to_owned() });
        }
        let (grave, odd): (Vec<Finding>, Vec<Finding>) =
            check(std::slice::from_ref(&config), Strategy::Auto).into_iter().partition(is_grave);
        if let Some(finding) = grave.into_iter().next() {
            return Err(DefinitionError::Finding(Box::new(finding)));
        }
        let job = config.cluster.into_iter().map(|(name, addresses)| {
            let tasks = addresses.into_iter().enumerate();
            let tasks = tasks.filter_map(|(index, address)| Some((index as i32, address?))).collect();
            JobDef { name, tasks }
        });
        let definition = ServerDef {
            cluster: Some(ClusterDef { job: job.collect() }),
            job_name: config.role,
            task_index: i32::try_from(config.index).unwrap_or(i32::MAX),
            protocol: "grpc".to_owned(),
            ..ServerDef::default()
        };
        let mut checked = checked(name, &definition)?;
        checked.notes =
            odd.into_iter().map(|finding| format!("{}: {}", finding.file, finding.problem)).collect();
        checked.bytes = definition.encode_to_vec();
        Ok(checked)
    }

    /// From a serialized message, of which fields unknown here are kept.
    pub fn from_server_def(name: &str, bytes: &[u8]) -> Result<Definition, DefinitionError> {
        let looks_like_json = bytes.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{');
        let bad = |why: String| DefinitionError::NotServerDef {
            file: name.to_owned(),
            why,
            hint: match looks_like_json {
                true => hint!("JSON such as TF_CONFIG's is given with ", Setting::TfConfig),
                false => hint!("`rallypoint env --format server-def` makes one"),
            },
        };
        let definition = ServerDef::decode(bytes).map_err(|error| bad(error.to_string()))?;
        if definition.cluster.as_ref().is_none_or(|cluster| cluster.job.is_empty()) {
            return Err(bad("it has no cluster".to_owned()));
        }
        let mut checked = checked(name, &definition)?;
        checked.bytes = bytes.to_vec();
        if definition.protocol.is_empty() {
            let protocol = ServerDef { protocol: "grpc".to_owned(), ..ServerDef::default() };
            checked.bytes.extend(protocol.encode_to_vec());
        }
        Ok(checked)
    }

    /// The same with a serialized `ConfigProto`, which wins over what the definition has.
    pub fn with_config(mut self, config: Vec<u8>) -> Definition {
        if !config.is_empty() {
            // Messages one behind the other are merged, the inner ones too.
            let config = ServerDef { default_session_config: config, ..ServerDef::default() };
            self.bytes.extend(config.encode_to_vec());
        }
        self
    }

    /// The serialized `tensorflow.ServerDef`.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// TensorFlow would refuse these, or never reach anyone. Others matter to the cluster as a whole: a server that
/// knows itself alone is told of the others by TF 2's coordinator.
fn is_grave(finding: &Finding) -> bool {
    matches!(finding.kind, Kind::NoSuchRole | Kind::NoSuchIndex | Kind::BadAddress | Kind::DuplicateAddress)
}

fn checked(file: &str, definition: &ServerDef) -> Result<Definition, DefinitionError> {
    let (role, index) = (&definition.job_name, definition.task_index);
    let jobs = definition.cluster.as_ref().map_or(&[][..], |cluster| &cluster.job);
    let missing =
        |has: String| DefinitionError::NotInCluster { file: file.to_owned(), role: role.clone(), index, has };
    let Some(job) = jobs.iter().find(|job| job.name == *role) else {
        let names = jobs.iter().map(|job| job.name.as_str()).collect::<Vec<_>>().join(", ");
        return Err(missing(format!("has no {role}, only {names}")));
    };
    let Some(address) = job.tasks.get(&index) else {
        let count = job.tasks.len();
        let last = job.tasks.keys().last().map(|last| format!(", the last index is {last}"));
        return Err(missing(format!("has {count} {role}{}", last.unwrap_or_default())));
    };
    let (_, port) = split_address(address).map_err(|why| DefinitionError::Address {
        file: file.to_owned(),
        role: role.clone(),
        index,
        address: address.clone(),
        why,
    })?;
    let hosts = jobs.iter().flat_map(|job| job.tasks.values());
    let mut hosts: Vec<String> =
        hosts.filter_map(|address| split_address(address).ok()).map(|(host, _)| host.to_owned()).collect();
    hosts.sort_unstable();
    hosts.dedup();
    Ok(Definition {
        role: role.clone(),
        index: u32::try_from(index).unwrap_or(0),
        address: address.clone(),
        // TensorFlow listens on the definition's own port, where it has one.
        port: u16::try_from(definition.port).ok().filter(|&port| port != 0).unwrap_or(port),
        hosts,
        notes: Vec::new(),
        bytes: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str =
        r#"{"cluster": {"ps": ["a:1"], "worker": ["b:1", "b:2"]}, "task": {"type": "worker", "index": 1}}"#;

    #[test]
    fn tf_config_becomes_a_server_def() {
        let definition = Definition::from_tf_config("TF_CONFIG", CONFIG).unwrap();
        assert_eq!((definition.role.as_str(), definition.index, definition.port), ("worker", 1, 2));
        assert_eq!(definition.hosts, ["a", "b"]);
        let message = ServerDef::decode(definition.bytes()).unwrap();
        assert_eq!((message.job_name.as_str(), message.task_index), ("worker", 1));
        assert_eq!(message.cluster.unwrap().job[1].tasks[&1], "b:2");
        let again = Definition::from_server_def("x", definition.bytes()).unwrap();
        assert_eq!(again, definition);
    }

    #[test]
    fn a_config_is_merged_behind() {
        let config = super::super::config::encode("intra_op_parallelism_threads: 3").unwrap();
        let definition = Definition::from_tf_config("TF_CONFIG", CONFIG).unwrap();
        assert_eq!(definition.clone().with_config(Vec::new()), definition);
        let with = definition.with_config(config.clone());
        assert_eq!(ServerDef::decode(with.bytes()).unwrap().default_session_config, config);
    }

    #[test]
    fn a_server_that_knows_itself_alone_is_noted_not_refused() {
        let text = r#"{"cluster": {"ps": ["a:1"]}, "task": {"type": "ps", "index": 0}}"#;
        let definition = Definition::from_tf_config("ps.json", text).unwrap();
        assert!(definition.notes[0].contains("no worker"), "{:?}", definition.notes);
    }

    #[test]
    fn tf_configs_that_do_not_fit() {
        for (text, says) in [
            (
                r#"{"cluster": {"ps": ["a:1"]}, "task": {"type": "worker", "index": 0}}"#,
                "its cluster has no worker",
            ),
            (r#"{"cluster": {"ps": ["a:1"]}, "task": {"type": "ps", "index": 3}}"#, "its task is ps 3"),
            (
                r#"{"cluster": {"ps": ["a:x"]}, "task": {"type": "ps", "index": 0}}"#,
                "its port is not a number",
            ),
            (
                r#"{"cluster": {"ps": ["a:1", "a:1"]}, "task": {"type": "ps", "index": 0}}"#,
                "have the same address",
            ),
            (
                r#"{"cluster": {"ps": ["a:1"]}, "task": {"type": "evaluator", "index": 0}}"#,
                "which is no server",
            ),
            ("[]", "expected an object at cluster"),
            ("", "not JSON"),
        ] {
            let error = hint::in_full(&Definition::from_tf_config("f.json", text).unwrap_err());
            assert!(
                error.contains(says) && error.contains("f.json") && error.contains("; hint: "),
                "{text}: {error}"
            );
        }
    }

    #[test]
    fn server_defs_that_do_not_fit() {
        let job = |name: &str, address: &str| JobDef {
            name: name.to_owned(),
            tasks: [(0, address.to_owned())].into(),
        };
        let server = |jobs: Vec<JobDef>, role: &str, index| {
            let cluster = Some(ClusterDef { job: jobs });
            ServerDef { cluster, job_name: role.to_owned(), task_index: index, ..Default::default() }
                .encode_to_vec()
        };
        for (bytes, says) in [
            (b"\xff\xff".to_vec(), "not a serialized tensorflow.ServerDef"),
            (b" {\"cluster\": {}}".to_vec(), "--tf-config"),
            (Vec::new(), "it has no cluster"),
            (
                server(vec![job("ps", "a:1")], "worker", 0),
                "the server is worker 0, but its cluster has no worker, only ps",
            ),
            (server(vec![job("ps", "a:1")], "ps", 1), "has 1 ps, the last index is 0"),
            (server(vec![job("ps", "a:0")], "ps", 0), "port 0 is none"),
            (server(vec![job("ps", "a:1")], "ps", -1), "the server is ps -1"),
        ] {
            let error = hint::in_full(&Definition::from_server_def("f.bin", &bytes).unwrap_err());
            assert!(error.contains(says) && error.contains("; hint: "), "{error}");
        }
        let own_port = ServerDef {
            port: 77,
            ..ServerDef::decode(&server(vec![job("ps", "a:1")], "ps", 0)[..]).unwrap()
        };
        let definition = Definition::from_server_def("f", &own_port.encode_to_vec()).unwrap();
        assert_eq!(definition.port, 77);
        assert_eq!(ServerDef::decode(definition.bytes()).unwrap().protocol, "grpc");
    }
}
