//! `rallypoint serve` and `run --serve` as far as they go without TensorFlow: what is said when it cannot be.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod job;

use job::{Job, Scratch, children, exists, rallypoint, wait_for, wait_until};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};

/// A TF_CONFIG file of ps 0 at this port.
fn config(scratch: &Scratch, port: u16) -> String {
    let file = scratch.path("ps.json");
    let text = format!(
        r#"{{"cluster": {{"ps": ["127.0.0.1:{port}"], "worker": ["127.0.0.1:1"]}}, "task": {{"type": "ps", "index": 0}}}}"#
    );
    std::fs::write(&file, text).unwrap();
    file
}

fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}

/// A package whose library is one indeed, but not TensorFlow's.
fn wrong_library(scratch: &Scratch) -> String {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let library = maps.split_whitespace().find(|word| word.contains("/libgcc_s.so"));
    let folder = scratch.path("tensorflow");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::create_dir_all(scratch.path("tensorflow_cpu-2.3.4.dist-info")).unwrap();
    std::fs::copy(library.unwrap(), format!("{folder}/libtensorflow_cc.so.2")).unwrap();
    folder
}

#[test]
fn nothing_to_serve() {
    let ran = rallypoint(&["serve"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""));
    assert!(ran.stderr.contains("TF_CONFIG is not set") && ran.stderr.contains("hint: "), "{}", ran.stderr);
    let ran = rallypoint(&["serve", "--server-def", "/no/such/file"]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("cannot read /no/such/file"), "{}", ran.stderr);
}

#[test]
fn a_definition_that_does_not_fit() {
    let scratch = Scratch::new("serve-definition");
    let file = scratch.path("worker.json");
    std::fs::write(&file, r#"{"cluster": {"ps": ["a:1"]}, "task": {"type": "worker", "index": 2}}"#).unwrap();
    let ran = rallypoint(&["serve", "--tf-config", &file]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("its task is worker 2, but its cluster has no worker"), "{}", ran.stderr);
    let ran = rallypoint(&["serve", "--server-def", &file]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("not a serialized tensorflow.ServerDef"), "{}", ran.stderr);
    assert!(ran.stderr.contains("--tf-config"), "{}", ran.stderr);
}

#[test]
fn a_config_with_an_unknown_field() {
    let scratch = Scratch::new("serve-config");
    let file = scratch.path("config.pbtxt");
    std::fs::write(&file, "allow_soft_placement: true\ngpu_options { allow_grow: true }\n").unwrap();
    let ran = rallypoint(&["serve", "--tf-config", &config(&scratch, 2), "--config", &file]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("line 2: unknown field \"allow_grow\""), "{}", ran.stderr);
    assert!(ran.stderr.contains("allow_growth"), "{}", ran.stderr);
    let ran = rallypoint(&["serve", "--inter-op-threads", "1"]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("coordinator waits for ever"), "{}", ran.stderr);
}

#[test]
fn without_tensorflow_every_place_is_named() {
    let scratch = Scratch::new("serve-nowhere");
    let ran =
        rallypoint(&["serve", "--tf-config", &config(&scratch, free_port()), "--tensorflow", "/no/such"]);
    assert_eq!(ran.code, 197);
    assert!(
        ran.stderr.contains("no TensorFlow was found\n  the place that was given, /no/such: "),
        "{}",
        ran.stderr
    );
    assert!(ran.stderr.contains("hint: "), "{}", ran.stderr);
}

#[test]
fn a_library_without_the_symbols_is_named_with_its_version() {
    let scratch = Scratch::new("serve-symbols");
    let folder = wrong_library(&scratch);
    let config = config(&scratch, free_port());
    let ran = rallypoint(&["serve", "--tf-config", &config, "--tensorflow", &folder]);
    assert_eq!(ran.code, 197);
    for says in ["libtensorflow_cc.so.2 has no TF_Version, ", "TF_NewServer", "TensorFlow 2.3.4 cannot serve"]
    {
        assert!(ran.stderr.contains(says), "{says}: {}", ran.stderr);
    }
    let ran = rallypoint(&["serve", "--tf-config", &config, "--tensorflow", &folder, "--dry-run"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stdout.contains("ps 0 would serve on port "), "{}", ran.stdout);
    assert!(ran.stdout.contains(&format!("{folder}/libtensorflow_cc.so.2")), "{}", ran.stdout);
    std::fs::write(format!("{folder}/libtensorflow_cc.so.2"), "no library").unwrap();
    let ran = rallypoint(&["serve", "--tf-config", &config, "--tensorflow", &folder]);
    assert_eq!(ran.code, 197);
    assert!(ran.stderr.contains("libtensorflow_cc.so.2 cannot be loaded: "), "{}", ran.stderr);
}

#[test]
fn a_port_in_use_names_the_process() {
    let scratch = Scratch::new("serve-port");
    let folder = wrong_library(&scratch);
    let other = TcpListener::bind(("0.0.0.0", 0)).unwrap();
    let port = other.local_addr().unwrap().port();
    let ran = rallypoint(&["serve", "--tf-config", &config(&scratch, port), "--tensorflow", &folder]);
    assert_eq!(ran.code, 197);
    let says = format!("port {port} is in use: pid {} (", std::process::id());
    assert!(ran.stderr.contains(&says), "{}", ran.stderr);
}

#[test]
fn told_to_stop_while_it_looks_for_tensorflow_it_ends_with_0_and_leaves_nobody() {
    let scratch = Scratch::new("serve-stop");
    // Installed by another process: what a neighbour test's child has open for writing cannot be run.
    std::fs::write(scratch.path("script"), "#!/bin/sh\nexec sleep 1000\n").unwrap();
    let python = scratch.path("python3");
    let install = Command::new("install").args(["-m", "755", &scratch.path("script"), &python]).status();
    assert!(install.unwrap().success());
    let folder = Path::new(&python).parent().unwrap();
    for signal in ["TERM", "INT", "HUP"] {
        let mut serve = Command::new(env!("CARGO_BIN_EXE_rallypoint"))
            .args(["serve", "--tf-config", &config(&scratch, free_port())])
            .env_clear()
            .env("PATH", format!("{}:/usr/bin:/bin", folder.display()))
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let asked = wait_for("python3", || children(serve.id()).first().copied());
        job::kill(serve.id(), signal);
        assert_eq!(wait_for("the end", || serve.try_wait().unwrap()).code(), Some(0), "{signal}");
        wait_until("python3's end", || !exists(asked));
    }
}

#[test]
fn roles_that_cannot_be_served() {
    for (args, says) in [
        (
            &["--ps", "1", "--workers", "2", "--serve", "chief"][..],
            "no member of this job has that role, there are ps, worker",
        ),
        (&["--ps", "1", "--workers", "2", "--serve", "ps,worker"], "give --chief"),
        (&["--ps", "1", "--workers", "1", "--serve", "ps", "--framework", "torch"], "leave --framework out"),
        (&["--ps", "1", "--workers", "1", "--serve", "p s"], "is not a name"),
    ] {
        let ran = Job::here(args).program("true").run();
        assert_eq!(ran.code, 2, "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(says) && ran.stderr.contains("hint: "), "{args:?}: {}", ran.stderr);
    }
}

#[test]
fn a_member_that_cannot_serve_is_the_first_failure() {
    let scratch = Scratch::new("serve-member");
    let folder = wrong_library(&scratch);
    let args = ["--ps", "1", "--workers", "1", "--serve", "ps", "--tensorflow", &folder];
    let ran = Job::here(&args).script("sleep 100").run();
    assert_eq!(ran.code, 197, "{}", ran.stderr);
    assert!(ran.stderr.contains("first failure: ps 0 on "), "{}", ran.stderr);
    assert!(ran.stderr.contains("served, failed (exit code 197)"), "{}", ran.stderr);
    assert!(ran.stderr.contains("| error: ") && ran.stderr.contains("has no TF_Version"), "{}", ran.stderr);
}
