//! `rallypoint run --rehearse`: faults on purpose, which are as real as any others, and told as what they are.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod job;

use job::{Job, Running, Scratch, state, wait_until};
use std::path::Path;

/// Says that it was asked to end, and does.
const SAVES: &str = "trap 'echo saved; exit 0' TERM USR1; echo ready; while :; do sleep 0.05; done";

/// The line that tells of a fault.
fn told<'a>(stderr: &'a str, start: &str) -> &'a str {
    stderr.lines().find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("no {start}: {stderr}"))
}

#[test]
fn a_worker_that_is_killed_on_purpose_comes_back() {
    let scratch = Scratch::new("rehearse-kill");
    let (before, done) = (scratch.path("before"), scratch.path("done"));
    let script = format!(
        "if [ $RALLYPOINT_INDEX = 0 ]; then while [ ! -e {done} ]; do sleep 0.02; done; exit 0; fi
         mkdir {before} && exec sleep 100; echo back; : > {done}"
    );
    let run = Job::here(&["--workers", "2", "--restart", "worker=1", "--rehearse", "kill:worker.1@1s"])
        .script(&script)
        .run();
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(run.stdout.contains("[worker 1] back"), "{}", run.stdout);
    let line = told(&run.stderr, "rallypoint: rehearsal: worker 1 (pid ");
    assert!(line.ends_with(") gets SIGKILL, 1 s after its start"), "{line}");
    assert!(run.stderr.contains("worker 1 failed and is started again"), "{}", run.stderr);
    assert!(run.stderr.contains("finished, restarted once"), "{}", run.stderr);
}

#[test]
fn a_death_on_purpose_ends_the_job_as_any_other_and_is_told_as_one() {
    let scratch = Scratch::new("rehearse-death");
    let events = scratch.path("events");
    let args = ["--ps", "1", "--workers", "2", "--rehearse", "kill:worker.1@200ms", "--events", &events];
    let run = Job::here(&args).script("sleep 100 & wait").run();
    assert_eq!(run.code, 137, "{}", run.stderr);
    let first = told(&run.stderr, "rallypoint: first failure: worker 1 on ");
    assert!(first.ends_with(": killed by SIGKILL"), "{first}");
    let reason = "  its reason: a rehearsal: SIGKILL was sent to it on purpose\n";
    assert!(run.stderr.contains(reason), "{}", run.stderr);
    assert!(run.stderr.contains("exit code 137, that of worker 1"), "{}", run.stderr);
    let events = std::fs::read_to_string(&events).unwrap();
    let events: Vec<serde_json::Value> =
        events.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let at = |name: &str| events.iter().position(|event| event["event"] == name).unwrap();
    let rehearsed = &events[at("rehearsed")];
    assert_eq!((&rehearsed["deed"], &rehearsed["rank"]), (&"kill".into(), &2.into()), "{rehearsed}");
    assert_eq!(rehearsed["after"], 0.2, "{rehearsed}");
    assert!(at("started") < at("rehearsed") && at("rehearsed") < at("failed"));
    assert!(!events.iter().any(|event| event["event"] == "not-rehearsed"));
}

#[test]
fn a_member_stands_still_for_a_while_and_goes_on() {
    let scratch = Scratch::new("rehearse-stop");
    let go = scratch.path("go");
    let script = format!("while [ ! -e {go} ]; do sleep 0.05; done; echo went on");
    let running =
        Job::here(&["--workers", "1", "--rehearse", "stop:worker.0@200ms+3s"]).script(&script).start();
    let member = running.member_pids(1)[0];
    running.wait_for_output("gets SIGSTOP and stands still, 0.2 s after its start");
    wait_until("the member to stand still", || matches!(state(member), Some('T' | 'D')));
    std::fs::write(&go, "").unwrap();
    let run = running.wait();
    assert_eq!((run.code, run.stdout.as_str()), (0, "[worker 0] went on\n"), "{}", run.stderr);
    assert!(run.stderr.contains("gets SIGCONT and goes on, 3.2 s after its start"), "{}", run.stderr);
    assert!(run.seconds > 3.2, "{}", run.seconds);
}

#[test]
fn who_stands_still_for_good_hears_that_the_job_ends() {
    let running = Job::here(&["--workers", "1", "--rehearse", "stop:all@1s"]).script(SAVES).start();
    running.wait_for_output("ready");
    running.wait_for_output("stands still");
    running.signal("TERM");
    let run = running.wait();
    assert_eq!(run.code, 196, "{}", run.stderr);
    assert!(run.stdout.contains("saved"), "{}", run.stdout);
}

#[test]
fn who_stands_still_on_purpose_does_so_after_ctrl_z_too() {
    // Not a shell that starts others: stopped in the moment between, it waits for its child and does not count as stopped.
    let running = Job::here(&["--workers", "2", "--rehearse", "stop:worker.0@300ms"])
        .script("exec sleep 600")
        .start_as_a_shell_does();
    let [on_purpose, other] = running.member_pids(2)[..] else { panic!("two members") };
    let stands_still = |pid| state(pid) == Some('T');
    wait_until("one to stand still", || stands_still(on_purpose));
    running.signal("TSTP");
    wait_until("both to stand still", || stands_still(other));
    running.signal("CONT");
    wait_until("the other to go on", || !stands_still(other));
    wait_until("the first to stand still again", || stands_still(on_purpose));
    running.signal("TERM");
    let run = running.wait();
    assert_eq!(run.code, 196, "{}", run.stderr);
}

#[test]
fn members_are_asked_or_warned_on_purpose() {
    let args = [
        "--workers",
        "3",
        "--rehearse",
        "term:worker.0@1s,warn:worker.1@1s",
        "--rehearse",
        "warn:worker.2@1s",
    ];
    let run = Job::here(&args).script(SAVES).run();
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert_eq!(run.stdout.matches("saved").count(), 3, "{}", run.stdout);
    for (index, signal) in [(0, "SIGTERM"), (1, "SIGUSR1"), (2, "SIGUSR1")] {
        let line = told(&run.stderr, &format!("rallypoint: rehearsal: worker {index} "));
        assert!(line.contains(signal), "{line}");
    }
}

#[test]
fn what_was_never_done_is_told() {
    let over = Job::here(&["--workers", "1", "--rehearse", "kill:worker.0@1h"]).script("true").run();
    assert_eq!(over.code, 0, "{}", over.stderr);
    let line = "rallypoint: not rehearsed: kill worker 0 (rank 0), 60 min after the start: the job was over before\n";
    assert!(over.stderr.contains(line), "{}", over.stderr);
    let scratch = Scratch::new("rehearse-never");
    let go = scratch.path("go");
    let script = format!("[ $RALLYPOINT_INDEX = 0 ] && exit 0; while [ ! -e {go} ]; do sleep 0.02; done");
    let running = Job::here(&["--workers", "2", "--rehearse", "kill:worker.0@2s"]).script(&script).start();
    running.wait_for_output("not rehearsed: kill worker 0 (rank 0), 2 s after the start: it does not run\n");
    std::fs::write(&go, "").unwrap();
    let run = running.wait();
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert_eq!(run.stderr.matches("not rehearsed").count(), 1, "{}", run.stderr);
}

#[test]
fn an_agent_of_all_members_is_lost_with_all_of_them() {
    let scratch = Scratch::new("rehearse-lose");
    let mark = scratch.mark();
    let running = Job::here(&["--workers", "2", "--rehearse", "lose:worker.1@1s"])
        .habit(&["forks-and-stays", &mark])
        .start();
    let agent = running.agent();
    let run = running.wait();
    assert_eq!(run.code, 198, "{}", run.stderr);
    let line =
        format!("rehearsal: worker 1 is lost with its agent (pid {agent}), which gets SIGKILL, 1 s after");
    assert!(run.stderr.contains(&line), "{}", run.stderr);
    assert!(run.stderr.contains("was ended by SIGKILL; its members died with it"), "{}", run.stderr);
    assert!(job::processes_with(&mark).is_empty());
}

/// A ps that leads and two workers, each with an agent of its own and the same faults.
fn three(folder: &str, args: &[&str], script: &str) -> Vec<Running> {
    let start = |rank: &str| {
        let common = ["--ps", "1", "--workers", "2", "--meet", folder, "--rank", rank, "--grace", "2s"];
        Job::here(&[&common, args].concat()).script(script).start()
    };
    let leader = start("0");
    leader.wait_for_output("1 of 3");
    vec![leader, start("1"), start("2")]
}

#[test]
fn an_agent_of_one_member_is_lost_and_the_others_end() {
    let scratch = Scratch::new("rehearse-lose-one");
    let members = three(&scratch.path("meet"), &["--rehearse", "lose:worker.1@500ms"], "exec sleep 100");
    let runs: Vec<_> = members.into_iter().map(Running::wait).collect();
    let codes: Vec<i32> = runs.iter().map(|run| run.code).collect();
    assert_eq!(codes, [195, 195, 198], "{}", runs[0].stderr);
    for said in [&runs[0].stderr, &runs[2].stderr] {
        assert!(said.contains("rehearsal: worker 1 is lost with its agent"), "{said}");
    }
    assert!(runs[0].stderr.contains("lost: its agent is gone, as rehearsed: "), "{}", runs[0].stderr);
    assert!(!runs[1].stderr.contains("rehearsal"), "{}", runs[1].stderr);
}

#[test]
fn each_agent_does_what_is_for_its_own_member_and_the_leader_tells_it() {
    let scratch = Scratch::new("rehearse-meet");
    let (before, events) = (scratch.path("before"), scratch.path("events"));
    let script = format!(
        "[ $RALLYPOINT_ROLE = ps ] && exec sleep 100
         mkdir {before}-$RALLYPOINT_INDEX && exec sleep 100; echo back"
    );
    let args = ["--restart", "worker=1", "--rehearse", "kill:worker@1s", "--events", &events];
    let runs: Vec<_> = three(&scratch.path("meet"), &args, &script).into_iter().map(Running::wait).collect();
    for (rank, run) in runs.iter().enumerate() {
        assert_eq!(run.code, 0, "{}", run.stderr);
        let said = run.stderr.matches("gets SIGKILL, 1 s after its start").count();
        assert_eq!(said, if rank == 0 { 2 } else { 1 }, "{rank}: {}", run.stderr);
        assert_eq!(run.stdout.contains("back"), rank > 0, "{rank}: {}", run.stdout);
    }
    let events = std::fs::read_to_string(Path::new(&events)).unwrap();
    assert_eq!(events.matches("\"event\":\"rehearsed\"").count(), 2, "{events}");
    assert!(!events.contains("not-rehearsed"), "{events}");
}

#[test]
fn faults_that_cannot_be_are_refused_before_anything_starts() {
    let table = [
        ("kill:worker.1", "\"kill:worker.1\" does not say when; hint: write the time"),
        ("explode:worker.1@5s", "is no fault; hint: there are kill, term, warn, stop, continue, lose"),
        ("kill:worker.1@soon", "is no time: expected a time such as 10s, 5min or 2h"),
        ("kill:wroker.1@5s", "no member of this job has that role, there are ps, worker\n"),
        ("kill:worker.2@5s", "a fault is for worker.2, and this job has 2 of that role\n"),
    ];
    for (faults, expected) in table {
        let run = Job::here(&["--ps", "1", "--workers", "2", "--rehearse", faults]).script("echo ran").run();
        assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{faults}: {}", run.stderr);
        assert!(run.stderr.contains(expected), "{faults}: {}", run.stderr);
        assert!(run.stderr.contains("hint: "), "{faults}: {}", run.stderr);
    }
}

#[test]
fn faults_may_stand_in_the_file_of_defaults() {
    let scratch = Scratch::new("rehearse-toml");
    let file = scratch.path("rallypoint.toml");
    std::fs::write(&file, "[run]\nrehearse = ['kill:worker.0@100ms', 'stop:worker.1@1h']\n").unwrap();
    let run =
        Job::here(&["--workers", "2"]).variable("RALLYPOINT_CONFIG", &file).script("exec sleep 100").run();
    assert_eq!(run.code, 137, "{}", run.stderr);
    assert!(
        run.stderr.contains("not rehearsed: stop worker 1 (rank 1), 60 min after the start"),
        "{}",
        run.stderr
    );
}
