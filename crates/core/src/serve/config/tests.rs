//! ConfigProto's text, read and refused.

use super::*;
use proptest::prelude::*;

#[test]
fn every_kind_of_field_becomes_its_bytes() {
    for (text, bytes) in [
        ("", &b""[..]),
        ("# nothing\n\n", b""),
        ("intra_op_parallelism_threads: 4", b"\x10\x04"),
        ("intra_op_parallelism_threads: 0x10, inter_op_parallelism_threads: 010;", b"\x10\x10\x28\x08"),
        ("placement_period: -1", b"\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
        ("allow_soft_placement: true log_device_placement: False", b"\x38\x01\x40\x00"),
        ("device_filters: '/job:ps' device_filters: \"a\" 'b'", b"\x22\x07/job:ps\x22\x02ab"),
        ("device_filters: [\"a\", \"b\\n\\x41\\101\\\"\"]", b"\x22\x01a\x22\x05b\nAA\""),
        ("device_filters: []", b""),
        ("gpu_options { allow_growth: true }", b"\x32\x02\x20\x01"),
        ("gpu_options: < allow_growth: 1 >", b"\x32\x02\x20\x01"),
        (
            "gpu_options {\n per_process_gpu_memory_fraction: 0.5\n}",
            b"\x32\x09\x09\x00\x00\x00\x00\x00\x00\xe0\x3f",
        ),
        ("device_count { key: \"GPU\" value: 0 }", b"\x0a\x07\x0a\x03GPU\x10\x00"),
        ("operation_timeout_in_ms: 60000", b"\x58\xe0\xd4\x03"),
        ("rpc_options { num_channels_per_target: 2 }", b"\x6a\x02\x30\x02"),
    ] {
        assert_eq!(encode(text).as_deref(), Ok(bytes), "{text}");
    }
}

#[test]
fn what_is_wrong_is_named_with_its_line() {
    for (text, says) in [
        (
            "\n\nintra_op_threads: 4",
            "line 3: unknown field \"intra_op_threads\"; hint: the fields here are device_count, ",
        ),
        ("graph_options {}", "a serialized tensorflow.ConfigProto"),
        (
            "gpu_options { growth: true }",
            "line 1: unknown field \"growth\"; hint: the fields here are per_process",
        ),
        ("placement_period: 1\nplacement_period: 2", "line 2: placement_period is given twice"),
        (
            "placement_period: 4294967296",
            "placement_period is \"4294967296\", expected a whole number of 32 bits",
        ),
        ("placement_period: 1.5", "expected a whole number"),
        ("placement_period 1", "line 1: expected a colon, found \"1\""),
        ("allow_soft_placement: yes", "expected true or false"),
        ("device_filters: /job", "expected a text in quotes"),
        ("device_filters: \"/job\n\"", "expected a closing quote"),
        ("device_filters: \"\\q\"", "found \"\\\\q\""),
        ("device_filters: [\"a\" 5]", "expected a comma or ], found \"5\""),
        ("gpu_options { allow_growth: true", "expected a field's name, found the end"),
        ("gpu_options { allow_growth: true >", "expected a field's name, found '>'"),
        ("}", "found '}'"),
        ("allow_soft_placement:", "expected true or false"),
    ] {
        let error = hint::in_full(&encode(text).expect_err(text));
        assert!(error.contains(says), "{text:?}: {error}");
    }
}

/// The table is the `.proto` file, whose numbers are compared with TensorFlow's own elsewhere.
#[test]
fn the_table_is_the_proto_file() {
    let proto = include_str!("../../../proto/server_def.proto");
    let body = |message: &str| {
        let start = proto.find(&format!("message {message} {{")).expect(message);
        let end = proto[start..].find("\n}").expect(message);
        proto[start..start + end].to_owned()
    };
    for (message, fields) in [
        ("ConfigProto", CONFIG),
        ("GPUOptions", GPU_OPTIONS),
        ("ThreadPoolOptionProto", THREAD_POOL),
        ("RPCOptions", RPC_OPTIONS),
    ] {
        let body = body(message);
        for field in fields {
            let kind = match field.kind {
                Kind::Int32 => "int32",
                Kind::Int64 => "int64",
                Kind::Bool => "bool",
                Kind::Double => "double",
                Kind::Text => "string",
                Kind::Message(_) if field.name == "device_count" => "map<string, int32>",
                Kind::Message(_) => "",
            };
            let end = format!("{kind} {} = {};", field.name, field.number);
            let line = body.lines().find(|line| line.ends_with(&end));
            let line = line.unwrap_or_else(|| panic!("{message}: {end}"));
            assert_eq!(line.contains("repeated ") || line.contains("map<"), field.repeated, "{line}");
        }
        assert_eq!(body.matches(" = ").count(), fields.len(), "{message}");
    }
}

proptest! {
    #[test]
    fn any_text_is_a_message_or_an_error(text in "\\PC*") {
        _ = encode(&text);
    }

    #[test]
    fn text_that_is_nearly_right_too(text in r#"([a-z_]{0,12}|gpu_options|device_filters|[:{}<>\[\],;"'\\0-9. \n-]){0,20}"#) {
        _ = encode(&text);
    }

    #[test]
    fn a_quoted_text_comes_back(text in "\\PC{0,40}") {
        let bytes = encode(&format!("device_filters: {}", quote(&text))).unwrap();
        prop_assert!(bytes.ends_with(text.as_bytes()));
    }
}
