//! `rallypoint run --meet` when things go wrong: every wait ends, says what it waits for, and tells the true cause.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod job;

use job::{Job, Running, Scratch};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

const SERVE_OR_WORK: &str = "echo $RALLYPOINT_RANK; [ $RALLYPOINT_ROLE = ps ] && exec sleep 100; sleep 0.3";

/// One of three members: a ps and two workers.
fn member(place: &str, args: &[&str], script: &str) -> Job {
    let common = ["--ps", "1", "--workers", "2", "--meet", place, "--prefix", ""];
    Job::here(&[&common, args].concat()).script(script)
}

/// A key file, and an address where nobody listens.
fn key_and_address(scratch: &Scratch) -> (String, u16) {
    let key = scratch.path("key");
    std::fs::write(&key, "5e".repeat(32)).unwrap();
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    (key, port)
}

/// A stranger that says something, and is hung up on: the leader's side of the connection lingers then.
fn stranger(port: u16) {
    let mut stranger = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stranger.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stranger.write_all(&[7; 40]).unwrap();
    assert_eq!(stranger.read(&mut [0; 1]).unwrap(), 0, "it is turned away");
}

#[test]
fn at_an_address_a_survivor_leads_at_once() {
    let scratch = Scratch::new("address-succession");
    let (key, port) = key_and_address(&scratch);
    let start = |rank: &str| {
        let args = ["--rank", rank, "--grace", "15s", "--meet-timeout", "30s"];
        member(&format!("127.0.0.1:{port}"), &args, SERVE_OR_WORK)
            .variable("RALLYPOINT_KEY_FILE", &key)
            .start()
    };
    let leader = start("0");
    leader.wait_for_output("1 of 3");
    stranger(port);
    let survivor = start("1");
    leader.wait_for_output("2 of 3");
    job::kill(leader.agent(), "KILL");
    assert_eq!(leader.wait().code, 198);
    survivor.wait_for_output("1 of 3 members have come (");
    let rest = [start("0"), start("2")];
    for run in rest.into_iter().chain([survivor]).map(Running::wait) {
        assert_eq!(run.code, 0, "{}", run.stderr);
    }
}

#[test]
fn at_an_address_the_next_job_follows_at_once() {
    let scratch = Scratch::new("address-next");
    let (key, port) = key_and_address(&scratch);
    let address = format!("127.0.0.1:{port}");
    for _ in 0..2 {
        let start = |rank: &str| {
            let args = ["--rank", rank, "--meet-timeout", "20s"];
            member(&address, &args, SERVE_OR_WORK).variable("RALLYPOINT_KEY_FILE", &key).start()
        };
        let leader = start("0");
        leader.wait_for_output("1 of 3");
        stranger(port);
        for run in [start("1"), start("2"), leader].map(Running::wait) {
            assert_eq!(run.code, 0, "{}", run.stderr);
        }
    }
}

/// Two of three members in a directory, rank 0 as the leader, and the leader's agent.
fn two_of_three(folder: &str, args: &[&str]) -> (Running, Running, u32) {
    let start = |rank: &str| member(folder, &[&["--rank", rank], args].concat(), SERVE_OR_WORK).start();
    let leader = start("0");
    leader.wait_for_output("1 of 3");
    let waiting = start("1");
    leader.wait_for_output("2 of 3");
    let agent = leader.agent();
    (leader, waiting, agent)
}

#[test]
fn a_meeting_has_one_limit_however_many_leaders_are_lost() {
    let scratch = Scratch::new("one-limit");
    let limits = ["--meet-timeout", "12s", "--grace", "60s"];
    let (leader, waiting, agent) = two_of_three(&scratch.path("meet"), &limits);
    leader.wait_for_output("(6 s of 12 s)");
    job::kill(agent, "KILL");
    leader.wait();
    let run = waiting.wait();
    assert_eq!(run.code, 193, "{}", run.stderr);
    assert!(run.stderr.contains("the leader was lost before all had come"), "{}", run.stderr);
    assert!(run.stderr.contains("1 of 3 members have come"), "it led in the end: {}", run.stderr);
    assert!(run.seconds < 16.5, "{} s of 12 s", run.seconds);
}

#[test]
fn a_member_that_is_cut_off_ends_at_its_limit() {
    let scratch = Scratch::new("cut-off");
    let limits = ["--meet-timeout", "20s", "--grace", "60s"];
    let (leader, waiting, agent) = two_of_three(&scratch.path("meet"), &limits);
    job::kill(agent, "STOP");
    let run = waiting.wait();
    job::kill(agent, "KILL");
    leader.wait();
    assert_eq!(run.code, 193, "{}", run.stderr);
    assert!(run.seconds < 30.0, "{} s of 20 s", run.seconds);
    let silent = format!("nothing was heard of the leader (pid {agent} on ");
    assert!(run.stderr.contains(&silent), "{}", run.stderr);
}

#[test]
fn a_joiner_says_whom_it_waits_for_and_how_long() {
    let scratch = Scratch::new("suspended-leader");
    let folder = scratch.path("meet");
    let start =
        |rank: &str| member(&folder, &["--rank", rank, "--meet-timeout", "17s"], SERVE_OR_WORK).start();
    let leader = start("0");
    leader.wait_for_output("1 of 3");
    let agent = leader.agent();
    job::kill(agent, "STOP");
    let run = start("1").wait();
    job::kill(agent, "KILL");
    leader.wait();
    assert_eq!(run.code, 193, "{}", run.stderr);
    let waits = format!("(pid {agent} on ");
    let words: Vec<&str> =
        run.stderr.lines().filter(|line| line.contains(&waits) && line.contains(" s of 17 s)")).collect();
    assert!(words.len() >= 2, "{}", run.stderr);
    assert!(words.iter().any(|line| line.contains("said nothing for 5 s")), "{}", run.stderr);
    let hint = "hint: look at that process; it may be suspended\n";
    assert!(run.stderr.ends_with(hint), "longer would not help: {}", run.stderr);
}

#[test]
fn the_leaders_own_error_reaches_all_before_anything_starts() {
    let scratch = Scratch::new("leader-error");
    let (folder, file, started) = (scratch.path("meet"), scratch.path("file"), scratch.path("started"));
    std::fs::write(&file, "").unwrap();
    let script = format!("echo > {started}-$RALLYPOINT_RANK; exec sleep 100");
    let leader = member(&folder, &["--rank", "0", "--log-dir", &format!("{file}/logs")], &script).start();
    leader.wait_for_output("1 of 3");
    let others = ["1", "2"].map(|rank| member(&folder, &["--rank", rank], &script).start());
    for run in others.into_iter().chain([leader]).map(Running::wait) {
        assert_eq!(run.code, 197, "{}", run.stderr);
        assert!(run.stderr.contains("Not a directory"), "{}", run.stderr);
        assert!(!run.stderr.contains("lost") && !run.stderr.contains("refuses"), "{}", run.stderr);
    }
    for rank in 0..3 {
        assert!(!std::path::Path::new(&format!("{started}-{rank}")).exists(), "rank {rank} was started");
    }
}

#[test]
fn a_followers_own_error_reaches_all_as_what_it_is() {
    let scratch = Scratch::new("follower-error");
    let (folder, file) = (scratch.path("meet"), scratch.path("file"));
    std::fs::write(&file, "").unwrap();
    let script = "exec sleep 100";
    let leader = member(&folder, &["--rank", "0"], script).start();
    leader.wait_for_output("1 of 3");
    let broken = member(&folder, &["--rank", "1", "--log-dir", &format!("{file}/logs")], script).start();
    let other = member(&folder, &["--rank", "2"], script).start();
    for run in [broken, other, leader].map(Running::wait) {
        assert_eq!(run.code, 197, "{}", run.stderr);
        assert!(run.stderr.contains("Not a directory"), "{}", run.stderr);
        assert!(!run.stderr.contains("is gone") && !run.stderr.contains("lost"), "{}", run.stderr);
    }
}

#[test]
fn the_end_of_a_meeting_is_no_refusal_and_has_the_leaders_code() {
    let scratch = Scratch::new("no-refusal");
    let (leader, waiting, _) = two_of_three(&scratch.path("missing"), &["--meet-timeout", "3s"]);
    for run in [leader, waiting].map(Running::wait) {
        assert_eq!(run.code, 193, "{}", run.stderr);
        assert!(run.stderr.contains("2 of 3 members have come; missing: worker 1"), "{}", run.stderr);
        assert!(!run.stderr.contains("refuses"), "{}", run.stderr);
    }
    let (leader, waiting, _) = two_of_three(&scratch.path("signal"), &[]);
    leader.signal("TERM");
    for run in [leader, waiting].map(Running::wait) {
        assert_eq!(run.code, 196, "{}", run.stderr);
        assert!(run.stderr.contains("SIGTERM") && !run.stderr.contains("refuses"), "{}", run.stderr);
    }
}

#[test]
fn many_strangers_are_counted_and_not_listed() {
    let scratch = Scratch::new("many-strangers");
    let (key, port) = key_and_address(&scratch);
    let start = |rank: &str| {
        member(&format!("127.0.0.1:{port}"), &["--rank", rank], SERVE_OR_WORK)
            .variable("RALLYPOINT_KEY_FILE", &key)
            .start()
    };
    let leader = start("0");
    leader.wait_for_output("1 of 3");
    (0..300).for_each(|_| stranger(port));
    leader.wait_for_output("more strangers were turned away: ");
    let running = [start("1"), start("2")];
    leader.wait_for_output("3 members on 1 host");
    for run in running.map(Running::wait) {
        assert_eq!(run.code, 0, "{}", run.stderr);
    }
    let run = leader.wait();
    assert_eq!(run.code, 0, "{}", run.stderr);
    let lines: Vec<&str> = run.stderr.lines().filter(|line| line.contains("stranger")).collect();
    assert!(lines.len() <= 10, "{} lines: {lines:#?}", lines.len());
    assert!(lines[0].contains("it did not say what a rallypoint says"), "{}", lines[0]);
}

#[test]
fn a_meeting_file_that_cannot_be_written_leaves_nothing() {
    let scratch = Scratch::new("full-directory");
    let folder = scratch.path("meet");
    // A limit on the size of files: some bytes are written and the next fails, as on a disk that is nearly full.
    let long = "x".repeat(100_000);
    let job = Job::here(&["--workers", "2", "--meet", &folder, "--job", &long]).script("true");
    let run = job.after("trap '' XFSZ; ulimit -f 128").start().wait();
    assert_eq!(run.code, 193, "{}", run.stderr);
    assert!(run.stderr.contains("no meeting file can be made: File too large"), "{}", run.stderr);
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0, "a temporary file is left");
}
