//! How `rallypoint run` ends: whose end counts, signals, the grace, and nobody who is left.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod job;

use job::{Job, Scratch, habit, leftovers, port_is_free, wait_until};

/// Takes a second to save what it has, and says how often it was asked to end.
const SAVES: &str = "trap 'echo told; sleep 1.2; echo saved; exit 0' TERM; echo ready; : > ${READY:-/dev/null}; while :; do sleep 0.05; done";

#[test]
fn who_ignores_sigterm_is_killed_after_the_grace() {
    let scratch = Scratch::new("ignores");
    let ready = scratch.path("ready");
    let script = format!(
        "[ $RALLYPOINT_ROLE = ps ] && exec {} ignores-sigterm {ready}; while [ ! -e {ready} ]; do sleep 0.02; done",
        habit()
    );
    let run = Job::here(&["--ps", "1", "--workers", "1", "--grace", "1s"]).script(&script).run();
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!((1.0..9.0).contains(&run.seconds), "{}", run.seconds);
    assert!(run.stderr.contains("stopped (killed by SIGKILL)"), "{}", run.stderr);
}

#[test]
fn until_says_whose_end_counts() {
    let script = "[ $RALLYPOINT_ROLE = chief ] && exit 0; exec sleep 100";
    let run = Job::here(&["--chief", "--workers", "1", "--until", "chief"]).script(script).run();
    assert_eq!(run.code, 0);
    let nobody = Job::here(&["--workers", "1", "--until", "chief"]).script("true").run();
    assert_eq!(nobody.code, 2);
    assert!(nobody.stderr.contains("hint: --until all"), "{}", nobody.stderr);
}

#[test]
fn one_ctrl_c_stops_gracefully_and_two_at_once() {
    let scratch = Scratch::new("ctrl-c");
    let told = scratch.path("told");
    let running = Job::here(&["--workers", "1"]).habit(&["tells-signal", &told]).start();
    running.wait_for_output("ready");
    running.signal("INT");
    let run = running.wait();
    assert_eq!(run.code, 196, "{}", run.stderr);
    assert_eq!(std::fs::read_to_string(&told).unwrap(), "got TERM\n");
    let ready = scratch.path("ready");
    let stubborn =
        Job::here(&["--workers", "1", "--grace", "60s"]).habit(&["ignores-sigterm", &ready]).start();
    wait_until("the member", || std::path::Path::new(&ready).exists());
    stubborn.signal("INT");
    stubborn.wait_for_output("SIGINT came: stopping");
    stubborn.signal("INT");
    let run = stubborn.wait();
    assert_eq!(run.code, 196);
    assert!(run.stderr.contains("SIGINT came again: killing\n"), "{}", run.stderr);
    assert!(run.seconds < 10.0, "{}", run.seconds);
}

#[test]
fn killing_the_agent_or_its_guard_leaves_nothing() {
    for victim in ["guard", "agent"] {
        let scratch = Scratch::new(&format!("kill-{victim}"));
        let mark = scratch.mark();
        let running =
            Job::here(&["--workers", "2", "--grace", "1s"]).habit(&["forks-and-stays", &mark]).start();
        wait_until("the members' children", || leftovers(&mark).len() >= 2);
        let port = running.member_port();
        let (guard, agent) = (running.pid(), running.agent());
        job::kill(if victim == "guard" { guard } else { agent }, "KILL");
        let run = running.wait();
        if victim == "agent" {
            assert_eq!(run.code, 198, "{}", run.stderr);
            assert!(run.stderr.contains("was ended by SIGKILL"), "{}", run.stderr);
        }
        wait_until("everything to end", || leftovers(&mark).is_empty() && !job::exists(agent));
        wait_until("the port", || port_is_free(port));
    }
}

#[test]
fn killing_members_ends_the_job_with_the_right_cause() {
    for (rank, name) in [(0, "ps 0"), (1, "worker 0")] {
        let running = Job::here(&["--ps", "1", "--workers", "2"]).script("exec sleep 100").start();
        let pids = running.member_pids(3);
        job::kill(pids[rank], "KILL");
        let run = running.wait();
        assert_eq!(run.code, 137, "{}", run.stderr);
        assert!(run.stderr.contains(&format!("first failure: {name} on ")), "{}", run.stderr);
        assert!(run.stderr.contains("killed by SIGKILL"));
        assert!(pids.iter().all(|&pid| !job::exists(pid)));
    }
}

#[test]
fn nohup_is_respected() {
    let running = Job::here(&["--workers", "1"]).script("sleep 0.8; echo survived").start_ignoring("HUP");
    running.wait_for_output("1 member on 1 host");
    running.signal("HUP");
    let run = running.wait();
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(run.stdout.contains("survived"));
}

#[test]
fn what_a_wrapper_started_has_the_grace_too_and_is_asked_once() {
    // A shell dies of the signal at once; whether its child stands in its group or not, it is saving then.
    for child in ["sh -c \"$SAVES\"", "setsid sh -c \"$SAVES\"", "setsid sh -c 'sh -c \"$SAVES\" & wait'"] {
        let script = format!("{child} & wait");
        let running =
            Job::here(&["--workers", "1", "--grace", "20s"]).variable("SAVES", SAVES).script(&script).start();
        running.wait_for_output("ready");
        running.signal("TERM");
        let run = running.wait();
        assert_eq!(run.code, 196, "{child}: {}", run.stderr);
        let count = |word: &str| run.stdout.matches(word).count();
        assert_eq!((count("told"), count("saved")), (1, 1), "{child}: {}", run.stdout);
        assert!(!run.stderr.contains("left behind"), "{child}: {}", run.stderr);
    }
}

#[test]
fn what_a_member_left_that_ended_by_itself_just_before_is_asked_too() {
    // Its child keeps the output open, so its last words are awaited when the other fails.
    let scratch = Scratch::new("just-before");
    let until_ready = "while [ ! -e $READY ]; do sleep 0.02; done";
    let script = format!(
        "[ $RALLYPOINT_RANK = 0 ] && sh -c \"$SAVES\" & {until_ready}; sleep 0.1; exit $((3 * RALLYPOINT_RANK))"
    );
    let run = Job::here(&["--workers", "2", "--grace", "20s"])
        .variable("SAVES", SAVES)
        .variable("READY", &scratch.path("ready"))
        .script(&script)
        .run();
    assert_eq!(run.code, 3, "{}", run.stderr);
    assert_eq!(run.stdout.matches("told").count(), 1, "{}", run.stdout);
    assert!(run.seconds < 10.0, "{}", run.seconds);
}

#[test]
fn what_a_wrapper_started_has_no_more_than_the_grace() {
    let scratch = Scratch::new("lingers");
    let script =
        format!("sh -c \"trap '' TERM; echo ready; while :; do sleep 0.05; done\" {} & wait", scratch.mark());
    for (grace, signals) in [("1s", 1), ("50s", 2)] {
        let running = Job::here(&["--workers", "1", "--grace", grace]).script(&script).start();
        running.wait_for_output("ready");
        let asked = std::time::Instant::now();
        running.signal("INT");
        running.wait_for_output("SIGINT came: stopping");
        for _ in 1..signals {
            running.signal("INT");
        }
        let run = running.wait();
        assert_eq!(run.code, 196, "{}", run.stderr);
        let took = asked.elapsed().as_secs_f64();
        assert!(took < 20.0 && (signals == 2 || took >= 1.0), "{took}");
        assert!(job::leftovers(&scratch.mark()).is_empty());
    }
}

#[test]
fn a_long_stop_names_those_who_are_awaited() {
    let script =
        "[ $RALLYPOINT_RANK = 0 ] && exec sleep 50; trap '' TERM; echo ready; while :; do sleep 0.05; done";
    let running = Job::here(&["--workers", "2", "--grace", "4s"]).script(script).start();
    running.wait_for_output("ready");
    running.signal("TERM");
    let run = running.wait();
    assert_eq!(run.code, 196, "{}", run.stderr);
    assert!(run.stderr.contains("still ending: worker 1 (rank 1); SIGKILL in "), "{}", run.stderr);
    assert!(run.stderr.contains(" s, or now by another Ctrl-C\n"), "{}", run.stderr);
}
