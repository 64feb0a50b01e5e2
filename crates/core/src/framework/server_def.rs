//! The serialized `tensorflow.ServerDef` that TensorFlow's C API takes.
//!
//! The messages are those of `proto/server_def.proto`, written out for prost: no protobuf compiler is
//! needed to build.

use super::tensorflow::cluster;
use crate::hint;
use crate::hint::{Hint, Hinted};
use crate::plan::Member;
use crate::roster::Roster;
use prost::Message;
use std::collections::BTreeMap;
use thiserror::Error;

/// `tensorflow.ServerDef`
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ServerDef {
    #[prost(message, optional, tag = "1")]
    pub cluster: Option<ClusterDef>,
    #[prost(string, tag = "2")]
    pub job_name: String,
    #[prost(int32, tag = "3")]
    pub task_index: i32,
    /// A `tensorflow.ConfigProto`, as bytes: on the wire they are the same, and no field of it is lost.
    #[prost(bytes = "vec", tag = "4")]
    pub default_session_config: Vec<u8>,
    /// `grpc`
    #[prost(string, tag = "5")]
    pub protocol: String,
    #[prost(int32, tag = "6")]
    pub port: i32,
}

/// `tensorflow.ClusterDef`
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ClusterDef {
    #[prost(message, repeated, tag = "1")]
    pub job: Vec<JobDef>,
}

/// `tensorflow.JobDef`
#[derive(Clone, PartialEq, Message)]
pub(crate) struct JobDef {
    #[prost(string, tag = "1")]
    pub name: String,
    /// Addresses by index; sorted, so that equal clusters are equal bytes.
    #[prost(btree_map = "int32, string", tag = "2")]
    pub tasks: BTreeMap<i32, String>,
}

/// Why a member has no server: it is not in the cluster.
#[derive(Debug, Error)]
#[error("{role} {index} is not part of the cluster's servers")]
pub struct NoServer {
    role: String,
    index: u32,
}

impl Hinted for NoServer {
    fn hint(&self) -> Option<Hint> {
        Some(hint!("an evaluator runs by itself"))
    }
}

/// The server that `member` is to run.
pub fn server_def(roster: &Roster, member: &Member) -> Result<Vec<u8>, NoServer> {
    let cluster = cluster(roster);
    if !cluster.contains_key(member.role.as_str()) {
        return Err(NoServer { role: member.role.to_string(), index: member.index });
    }
    let job = cluster
        .into_iter()
        .map(|(name, addresses)| JobDef {
            name,
            tasks: addresses
                .into_iter()
                .enumerate()
                .map(|(index, address)| (index as i32, address))
                .collect(),
        })
        .collect();
    let definition = ServerDef {
        default_session_config: Vec::new(),
        cluster: Some(ClusterDef { job }),
        job_name: member.role.to_string(),
        task_index: member.index as i32,
        protocol: "grpc".to_owned(),
        port: i32::from(roster.endpoint(member).port),
    };
    Ok(definition.encode_to_vec())
}
