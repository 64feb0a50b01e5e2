//! Threads, devices and gRPC's settings, as the message and the variables that TensorFlow takes.

use super::config::{ConfigTextError, encode, quote};
use super::definition::Definition;
use crate::environ::Environ;
use crate::framework::ChildEnv;
use crate::hint;
use crate::hint::{Hint, Hinted, Setting};
use crate::proxy::no_proxy;
use crate::variables as var;
use prost::Message;
use std::fmt::Write;
use thiserror::Error;

/// What a server is asked to be like.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Threads within an op.
    pub intra_op_threads: Option<u32>,
    /// Ops at a time.
    pub inter_op_threads: Option<u32>,
    /// GPU memory is taken as it is needed, not all at once.
    pub memory_growth: bool,
    /// The only devices that its sessions see: `/job:ps`.
    pub device_filters: Vec<String>,
    /// A `ConfigProto`, as text or serialized, and what to call it.
    pub config: Option<(String, Vec<u8>)>,
    /// The largest message that it takes from other members, in bytes.
    pub grpc_max_message_length: Option<u32>,
    /// `grpc.keepalive_time_ms=30000`
    pub grpc_options: Vec<String>,
}

/// Why a server cannot be as it was asked to be.
#[derive(Debug, Error)]
pub enum OptionsError {
    /// The config is text, and no ConfigProto.
    #[error("{file}: {source}")]
    Text {
        /// The file, or `flags`.
        file: String,
        /// What is wrong with it, and where.
        source: ConfigTextError,
    },
    /// The config is not text, and no serialized message.
    #[error("{file}: neither text nor a serialized tensorflow.ConfigProto: {why}")]
    NotConfig {
        /// The file.
        file: String,
        /// What is wrong with its bytes.
        why: String,
    },
    /// An option is not `grpc.keepalive_time_ms=30000` or the like.
    #[error("gRPC's option {found}: expected NAME=VALUE without a comma")]
    GrpcOption {
        /// What was given.
        found: String,
    },
}

impl Hinted for OptionsError {
    fn hint(&self) -> Option<Hint> {
        match self {
            OptionsError::Text { source, .. } => source.hint(),
            OptionsError::NotConfig { .. } => {
                Some(hint!("write lines such as intra_op_parallelism_threads: 4"))
            }
            OptionsError::GrpcOption { .. } => {
                Some(hint!("write ", Setting::GrpcOption.with("grpc.keepalive_time_ms=30000")))
            }
        }
    }
}

/// Reads any message, and keeps nothing of it.
#[derive(Clone, PartialEq, Message)]
struct AnyMessage {}

impl Options {
    /// The serialized `ConfigProto`: the file's, with the flags behind it.
    pub fn config_proto(&self) -> Result<Vec<u8>, OptionsError> {
        let mut bytes = match &self.config {
            None => Vec::new(),
            Some((file, bytes)) => config_file(file, bytes)?,
        };
        let mut text = String::new();
        if let Some(threads) = self.intra_op_threads {
            _ = writeln!(text, "intra_op_parallelism_threads: {threads}");
        }
        if let Some(threads) = self.inter_op_threads {
            _ = writeln!(text, "inter_op_parallelism_threads: {threads}");
        }
        if self.memory_growth {
            text.push_str("gpu_options { allow_growth: true }\n");
        }
        for filter in &self.device_filters {
            _ = writeln!(text, "device_filters: {}", quote(filter));
        }
        let flags =
            encode(&text).map_err(|source| OptionsError::Text { file: "flags".to_owned(), source })?;
        bytes.extend(flags);
        Ok(bytes)
    }

    /// What TensorFlow reads from its environment, and what a person should know about it.
    pub fn variables(&self, environ: &Environ, definition: &Definition) -> Result<ChildEnv, OptionsError> {
        let mut own = ChildEnv { notes: definition.notes.clone(), ..ChildEnv::default() };
        if environ.get(var::TF_CPP_MIN_LOG_LEVEL).is_none() {
            own.variables.insert(var::TF_CPP_MIN_LOG_LEVEL.to_owned(), "2".to_owned());
        }
        let given = environ.get_nonempty(var::TF_GRPC_DEFAULT_OPTIONS).map(str::to_owned);
        let length =
            self.grpc_max_message_length.map(|bytes| format!("grpc.max_receive_message_length={bytes}"));
        let mut options: Vec<String> = given.into_iter().chain(length).collect();
        for option in &self.grpc_options {
            let well_formed = option.split_once('=').is_some_and(|(name, value)| {
                !name.is_empty() && !value.is_empty() && !value.contains('=') && !option.contains(',')
            });
            if !well_formed {
                return Err(OptionsError::GrpcOption { found: option.clone() });
            }
            options.push(option.clone());
        }
        if self.grpc_max_message_length.is_some() || !self.grpc_options.is_empty() {
            own.variables.insert(var::TF_GRPC_DEFAULT_OPTIONS.to_owned(), options.join(","));
        }
        if let Some((spared, note)) = no_proxy(environ, definition.hosts.iter().map(String::as_str)) {
            own.variables.extend(spared);
            own.notes.push(note);
        }
        Ok(own)
    }
}

/// Text where it can be read as text, else the serialized message.
pub(super) fn config_file(file: &str, bytes: &[u8]) -> Result<Vec<u8>, OptionsError> {
    let is_text = |text: &&str| text.chars().all(|c| !c.is_control() || c.is_ascii_whitespace());
    match std::str::from_utf8(bytes).ok().filter(is_text) {
        Some(text) => encode(text).map_err(|source| OptionsError::Text { file: file.to_owned(), source }),
        None => match AnyMessage::decode(bytes) {
            Ok(_) => Ok(bytes.to_vec()),
            Err(error) => Err(OptionsError::NotConfig { file: file.to_owned(), why: error.to_string() }),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition() -> Definition {
        let text = r#"{"cluster": {"ps": ["n1:1"], "worker": ["n2:1"]}, "task": {"type": "ps", "index": 0}}"#;
        Definition::from_tf_config("TF_CONFIG", text).unwrap()
    }

    #[test]
    fn flags_come_behind_the_file_whether_it_is_text_or_bytes() {
        let flags = b"\x10\x02\x28\x03\x32\x02\x20\x01\x22\x07/job:ps";
        for file in [&b"intra_op_parallelism_threads: 9"[..], b"\x10\x09", b"\x10\x09\x52\x00"] {
            let options = Options {
                intra_op_threads: Some(2),
                inter_op_threads: Some(3),
                memory_growth: true,
                device_filters: vec!["/job:ps".to_owned()],
                config: Some(("c".to_owned(), file.to_vec())),
                ..Options::default()
            };
            let bytes = options.config_proto().unwrap();
            assert!(bytes.starts_with(b"\x10\x09") && bytes.ends_with(flags), "{bytes:?}");
        }
        assert_eq!(Options::default().config_proto().unwrap(), b"");
        for (file, says) in [
            (&b"threads: 1"[..], "c: line 1: unknown field \"threads\""),
            (b"\xff\xff\x01", "neither text nor"),
        ] {
            let options = Options { config: Some(("c".to_owned(), file.to_vec())), ..Options::default() };
            let error = options.config_proto().unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn variables_are_added_to_what_the_user_set() {
        let options = Options {
            grpc_max_message_length: Some(1 << 20),
            grpc_options: vec!["grpc.keepalive_time_ms=30000".to_owned()],
            ..Options::default()
        };
        let environ = Environ::from_variables([
            ("TF_CPP_MIN_LOG_LEVEL", "0"),
            ("TF_GRPC_DEFAULT_OPTIONS", "grpc.a=1"),
            ("http_proxy", "http://proxy:3128"),
            ("no_proxy", "n2"),
        ]);
        let own = options.variables(&environ, &definition()).unwrap();
        let value = "grpc.a=1,grpc.max_receive_message_length=1048576,grpc.keepalive_time_ms=30000";
        assert_eq!(own.variables["TF_GRPC_DEFAULT_OPTIONS"], value);
        assert_eq!(own.variables["no_proxy"], "n2,127.0.0.1,localhost,n1");
        assert!(own.notes[0].starts_with("http_proxy is set"), "{:?}", own.notes);
        assert!(!own.variables.contains_key("TF_CPP_MIN_LOG_LEVEL"));

        let spared = [("http_proxy", "http://proxy:3128"), ("no_proxy", "n1,n2,localhost,127.0.0.1")];
        let own = Options::default().variables(&Environ::from_variables(spared), &definition()).unwrap();
        let quiet = [("TF_CPP_MIN_LOG_LEVEL".to_owned(), "2".to_owned())].into();
        assert_eq!(own, ChildEnv { variables: quiet, notes: Vec::new() });

        for bad in ["", "grpc.a", "=1", "grpc.a=", "grpc.a=1,grpc.b=2", "grpc.a=1=2"] {
            let options = Options { grpc_options: vec![bad.to_owned()], ..Options::default() };
            assert!(options.variables(&environ, &definition()).is_err(), "{bad}");
        }
    }
}
