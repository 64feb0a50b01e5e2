//! TF_CONFIG files that would make a cluster hang, one mistake at a time.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use rallypoint::check::{ConfigFile, Kind, Strategy, check};

fn file(name: &str, cluster: &str, role: &str, index: u32) -> ConfigFile {
    let text = format!(r#"{{"cluster": {cluster}, "task": {{"type": "{role}", "index": {index}}}}}"#);
    ConfigFile::parse(name, &text).unwrap()
}

const GOOD: &str = r#"{"ps": ["localhost:2222"], "worker": ["localhost:2223", "localhost:2224"]}"#;

fn good() -> Vec<ConfigFile> {
    vec![file("ps", GOOD, "ps", 0), file("worker_0", GOOD, "worker", 0), file("worker_1", GOOD, "worker", 1)]
}

/// `file: kind` of everything found.
fn found(files: &[ConfigFile]) -> Vec<String> {
    found_for(files, Strategy::Auto)
}

fn found_for(files: &[ConfigFile], strategy: Strategy) -> Vec<String> {
    check(files, strategy).iter().map(|finding| format!("{}: {:?}", finding.file, finding.kind)).collect()
}

#[test]
fn good_files_have_nothing_wrong() {
    assert_eq!(found(&good()), Vec::<String>::new());
    assert_eq!(found(&good()[1..2]), Vec::<String>::new(), "a single file is looked at alone");
    let mirrored = r#"{"worker": ["a:1", "b:1"]}"#;
    assert_eq!(
        found(&[file("w0", mirrored, "worker", 0), file("w1", mirrored, "worker", 1)]),
        Vec::<String>::new()
    );
}

#[test]
fn a_member_without_a_file_is_missing() {
    assert_eq!(found(&good()[..2]), ["ps: MissingMember"]);
    assert_eq!(found(&good()[1..]), ["worker_0: MissingMember"]);
}

#[test]
fn an_address_twice() {
    let cluster = r#"{"ps": ["localhost:2222"], "worker": ["127.0.0.1:2222"]}"#;
    assert_eq!(found(&[file("w", cluster, "worker", 0)]), ["w: DuplicateAddress"]);
}

#[test]
fn a_port_that_differs_between_files() {
    let mut files = good();
    files[0] = file("ps", &GOOD.replace("2224", "2229"), "ps", 0);
    let findings = check(&files, Strategy::Auto);
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert_eq!(findings[0].kind, Kind::AddressDiffers);
    assert_eq!(findings[0].file, "ps");
    assert!(
        findings[0].problem.contains("has port 2229 for worker 1, but worker_0 has 2224"),
        "{findings:?}"
    );
    assert!(findings[0].fix.contains("localhost:2224"));
}

#[test]
fn an_index_that_does_not_exist() {
    let mut files = good();
    files[2] = file("worker_1", GOOD, "worker", 2);
    assert_eq!(found(&files), ["ps: MissingMember", "worker_1: NoSuchIndex"]);
    assert_eq!(found(&[file("x", GOOD, "chief", 0)]), ["x: NoSuchRole"]);
}

#[test]
fn a_ps_without_workers() {
    let mut files = good();
    files[0] = file("ps", r#"{"ps": ["localhost:2222"]}"#, "ps", 0);
    assert_eq!(found(&files), ["ps: PsWithoutWorkers"]);
    assert!(
        check(&files, Strategy::Auto)[0].fix.contains(r#""worker": ["localhost:2223","localhost:2224"]"#)
    );
}

#[test]
fn a_worker_that_knows_only_itself_and_the_ps() {
    let mut files = good();
    files[1] = file("worker_0", r#"{"ps": ["localhost:2222"], "worker": ["localhost:2223"]}"#, "worker", 0);
    assert_eq!(found(&files), ["worker_0: WorkerAlone"]);
    // Both of them, so that nobody's file lists two workers.
    let alone = |port| format!(r#"{{"ps": ["localhost:2222"], "worker": ["localhost:{port}"]}}"#);
    let files = [
        file("ps", GOOD, "ps", 0),
        file("worker_0", &alone(2223), "worker", 0),
        file("worker_1", &alone(2224), "worker", 0),
    ];
    let found = found(&files);
    assert!(found.contains(&"worker_0: WorkerAlone".to_owned()), "{found:?}");
    assert!(found.contains(&"worker_1: WorkerAlone".to_owned()), "{found:?}");
    assert!(found.contains(&"worker_1: DuplicateTask".to_owned()), "{found:?}");
}

#[test]
fn an_evaluator_in_a_coordinators_cluster() {
    let cluster = r#"{"chief": ["a:1"], "ps": ["b:1"], "worker": ["c:1"], "evaluator": ["d:1"]}"#;
    assert_eq!(found(&[file("chief", cluster, "chief", 0)]), ["chief: EvaluatorListed"]);
    // Named in its own task only, it is fine.
    let cluster = r#"{"chief": ["a:1"], "ps": ["b:1"], "worker": ["c:1"]}"#;
    assert_eq!(found(&[file("evaluator", cluster, "evaluator", 0)]), Vec::<String>::new());
}

#[test]
fn no_ps() {
    let cluster = r#"{"chief": ["a:1"], "worker": ["c:1"]}"#;
    let files = [file("chief", cluster, "chief", 0), file("worker", cluster, "worker", 0)];
    assert_eq!(found(&files), ["chief: NoPs", "worker: NoPs"]);
    assert_eq!(found_for(&files, Strategy::MultiWorkerMirrored), Vec::<String>::new());
    let workers = [file("w", r#"{"worker": ["c:1"]}"#, "worker", 0)];
    assert_eq!(found_for(&workers, Strategy::ParameterServer), ["w: NoPs"]);
}

#[test]
fn addresses_that_cannot_be() {
    for address in ["a", "a:0", "a:70000", "0.0.0.0:1", ":1", "::1:5", "a b:1"] {
        let cluster = format!(r#"{{"worker": ["{address}"]}}"#);
        assert_eq!(found(&[file("w", &cluster, "worker", 0)]), ["w: BadAddress"], "{address}");
    }
    assert_eq!(found(&[file("w", r#"{"worker": ["[::1]:5"]}"#, "worker", 0)]), Vec::<String>::new());
    let mixed = r#"{"ps": ["localhost:1"], "worker": ["n01:1"]}"#;
    assert_eq!(found(&[file("w", mixed, "worker", 0)]), ["w: LocalhostAmongHosts"]);
}

#[test]
fn a_member_that_one_file_does_not_know() {
    let three = r#"{"ps": ["localhost:1", "localhost:2"], "worker": ["localhost:3"]}"#;
    let two = r#"{"ps": ["localhost:1"], "worker": ["localhost:3"]}"#;
    let files = [file("ps_0", three, "ps", 0), file("ps_1", three, "ps", 1), file("w", two, "worker", 0)];
    assert_eq!(found(&files), ["w: MemberUnknown"]);
}

#[test]
fn texts_that_are_no_tf_config() {
    for (text, word) in [
        ("{", "not JSON"),
        ("[]", "expected an object at cluster"),
        (r#"{"cluster": {"ps": 3}, "task": {"type": "ps", "index": 0}}"#, "cluster.ps"),
        (r#"{"cluster": {}, "task": {"type": "ps"}}"#, "task.index"),
        (r#"{"cluster": {}, "task": {"type": "ps", "index": -1}}"#, "task.index"),
        (r#"{"cluster": {}}"#, "task.type"),
    ] {
        let error = rallypoint::hint::in_full(&ConfigFile::parse("f.json", text).unwrap_err());
        assert!(error.starts_with("f.json: ") && error.contains(word), "{error}");
        assert!(error.contains("hint: "), "{error}");
    }
}

#[test]
fn the_sparse_form_and_text_indices_are_understood() {
    let text =
        r#"{"cluster": {"worker": {"0": "a:1", "2": "c:1"}}, "task": {"type": "worker", "index": "2"}}"#;
    let config = ConfigFile::parse("f", text).unwrap();
    assert_eq!(config.index, 2);
    assert_eq!(found(&[config]), Vec::<String>::new());
}

/// A cluster of a thousand whose last member knows nobody: once, each of its findings listed all the others.
#[test]
fn what_is_said_of_a_large_cluster_stays_readable() {
    let workers: Vec<String> = (0..1000).map(|index| format!("\"n{index}:1\"")).collect();
    let all = format!(r#"{{"chief": ["a:1"], "ps": ["b:1"], "worker": [{}]}}"#, workers.join(", "));
    let alone = r#"{"chief": ["a:1"], "ps": ["b:1"]}"#;
    let findings = check(&[file("all", &all, "chief", 0), file("alone", alone, "ps", 0)], Strategy::Auto);
    let unknown: Vec<_> = findings.iter().filter(|finding| finding.kind == Kind::MemberUnknown).collect();
    assert_eq!(unknown.len(), 1000);
    assert!(unknown[0].fix.ends_with(r#""n15:1", and 984 more] in every file"#), "{}", unknown[0].fix);
}

#[test]
fn indices_that_leave_out_millions_are_no_list() {
    let text = |roles: &[&str]| {
        let roles: Vec<String> =
            roles.iter().map(|role| format!(r#""{role}": {{"1000000": "a:1"}}"#)).collect();
        format!(r#"{{"cluster": {{{}}}, "task": {{"type": "a", "index": 0}}}}"#, roles.join(", "))
    };
    assert!(ConfigFile::parse("one", &text(&["a"])).is_ok());
    let error = ConfigFile::parse("two", &text(&["a", "b"])).unwrap_err().to_string();
    assert!(error.contains("at cluster.b"), "{error}");
}
