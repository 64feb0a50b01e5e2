//! The library's front door, as another program uses it: `examples/run_job.rs`.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use rallypoint::outcome::{Outcome, Verdict, Whole};
use rallypoint::{Run, RunError, RunEvent};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

fn run_job(words: &[&str]) -> Command {
    // Beside the tests' own folder.
    let tests = std::env::current_exe().unwrap();
    let program: PathBuf = tests.parent().unwrap().parent().unwrap().join("examples/run_job");
    let mut command = Command::new(program);
    command.args(words).env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin").stdin(Stdio::null());
    command
}

/// What was told: the events, and the outcome.
fn told(output: &Output) -> (Vec<RunEvent>, Whole) {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with('{')).collect();
    let (last, events) = lines.split_last().unwrap_or_else(|| panic!("{output:?}"));
    let events = events.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    match serde_json::from_str(last).unwrap() {
        Outcome::Whole(whole) => (events, whole),
        other @ Outcome::Part { .. } => panic!("{other:?}"),
    }
}

#[test]
fn a_job_that_succeeds_tells_its_story() {
    let output = run_job(&["worker*2", "sh", "-c", "echo rank $RALLYPOINT_RANK"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("worker 0: rank 0\n") && text.contains("worker 1: rank 1\n"), "{text}");
    let (events, whole) = told(&output);
    let started = events.iter().filter(|event| matches!(event, RunEvent::Started { .. })).count();
    let finished = events.iter().filter(|event| matches!(event, RunEvent::Finished { .. })).count();
    assert_eq!((started, finished), (2, 2), "{events:#?}");
    assert!(matches!(events.last(), Some(RunEvent::Over(last)) if **last == whole), "{events:#?}");
    assert_eq!((whole.verdict, whole.members.len(), whole.left_behind), (Verdict::Success, 2, 0));
}

#[test]
fn a_job_that_fails_names_the_first_failure() {
    let script = "[ $RALLYPOINT_RANK = 1 ] && { echo trouble >&2; exit 7; }; exec sleep 100";
    let output = run_job(&["ps,worker*2", "sh", "-c", script]).output().unwrap();
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    let (_, whole) = told(&output);
    let (member, failure) = whole.first_failure().unwrap();
    assert_eq!(
        (member.member.to_string().as_str(), &*failure.ended.tail),
        ("worker 0", &["trouble".to_owned()][..])
    );
    assert!(whole.members.iter().filter(|other| *other != member).all(|other| other.stopped));
}

#[test]
fn what_cannot_run_is_an_error_with_a_hint() {
    let output = run_job(&["worker", "no-such-program"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        said,
        "error: no-such-program is not a program that can be run\nhint: give its path, or put it on PATH\n"
    );
}

#[test]
fn the_job_ends_with_the_program_that_has_started_it() {
    let mark = format!("library-mark-{}", std::process::id());
    let script = format!(": {mark}; echo ready; exec sleep 300");
    let mut child = run_job(&["worker*2", "sh", "-c", &script])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().ends_with("ready")));
    child.kill().unwrap();
    child.wait().unwrap();
    // What was told is read to the end: everyone who could tell something has ended.
    for line in lines {
        line.unwrap();
    }
    let is_left = || {
        let found = std::fs::read_dir("/proc").unwrap().flatten().filter(|entry| {
            let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains(&mark)
        });
        found.count() > 0
    };
    let until = Instant::now() + Duration::from_secs(20);
    while is_left() {
        assert!(Instant::now() < until, "the job runs on");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_process_with_threads_is_not_forked() {
    // The tests' own: each runs on a thread beside the first.
    match Run::new(["true"]).start(|_| {}) {
        Err(RunError::Threads { threads }) => assert!(threads > 1),
        other => panic!("{other:?}"),
    }
}
