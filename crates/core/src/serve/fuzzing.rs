//! What a server is given, for the fuzzers.

use super::Definition;
use super::config::{encode, quote};
use super::options::config_file;
use crate::framework::server_def::ServerDef;
use crate::fuzzing::{said, text};
use prost::Message;

/// A ConfigProto's text is a message or an error, no longer than a few times the text; a quoted text comes back.
pub fn config_proto(data: &[u8]) {
    if let Err(error) = config_file("config.pbtxt", data) {
        said(&error);
    }
    let text = text(data);
    let quoted = encode(&format!("device_filters: {}", quote(&text))).expect("a quoted text");
    assert!(quoted.ends_with(text.as_bytes()));
    match encode(&text) {
        Ok(bytes) => {
            assert!(bytes.len() <= 2 * text.len(), "{} bytes of {}", bytes.len(), text.len());
            // A message, which is taken as bytes too; one behind the other is the two merged.
            for config in [bytes.clone(), [bytes.clone(), bytes].concat()] {
                let server = ServerDef { default_session_config: config.clone(), ..ServerDef::default() };
                let again = ServerDef::decode(server.encode_to_vec().as_slice()).expect("what was encoded");
                assert_eq!(again.default_session_config, config);
            }
        }
        Err(error) => said(&error),
    }
}

/// A ServerDef's bytes are a server or an error; they are kept, and mean the same when they are read again.
pub fn server_def(data: &[u8]) {
    let definition = match Definition::from_server_def("server.bin", data) {
        Ok(definition) => definition,
        Err(error) => return said(&error),
    };
    assert!(definition.bytes().starts_with(data) && definition.bytes().len() <= data.len() + 16);
    assert!(definition.port > 0 && !definition.hosts.is_empty());
    let again = Definition::from_server_def("server.bin", definition.bytes()).expect("what was taken");
    assert_eq!(again, definition);
    let config = encode("intra_op_parallelism_threads: 3").expect("a config");
    let with = definition.with_config(config.clone());
    let server = ServerDef::decode(with.bytes()).expect("what was taken");
    assert_eq!(server.default_session_config, config);
}
