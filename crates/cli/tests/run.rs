//! `rallypoint run` on one machine, with programs that each have one bad habit.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod job;

use job::{Job, Scratch, habit, leftovers};

#[test]
fn parameter_servers_end_when_the_workers_have_finished() {
    let run = Job::here(&["--ps", "1", "--workers", "2"])
        .script("[ $RALLYPOINT_ROLE = ps ] && exec sleep 100; echo done")
        .run();
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(run.seconds < 5.0);
    assert_eq!(run.stdout.lines().count(), 2);
    assert!(run.stdout.contains("[worker 0] done\n") && run.stdout.contains("[worker 1] done\n"));
    for words in ["ps 0", "stopped (killed by SIGTERM)", "finished", "PEAK MEMORY"] {
        assert!(run.stderr.contains(words), "{words}: {}", run.stderr);
    }
}

#[test]
fn every_member_gets_its_variables() {
    let run = Job::here(&["--chief", "--ps", "1", "--workers", "1", "--evaluator", "--until", "all", "--prefix", ""])
        .script("echo $RALLYPOINT_ROLE $RALLYPOINT_INDEX $RALLYPOINT_RANK $RALLYPOINT_WORLD $RALLYPOINT_ATTEMPT $(test -s $RALLYPOINT_ROSTER_FILE && echo roster) $TF_CONFIG")
        .run();
    assert_eq!(run.code, 0, "{}", run.stderr);
    let mut lines: Vec<&str> = run.stdout.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines.len(), 4);
    for (line, start) in lines.iter().zip([
        "chief 0 0 4 0 roster",
        "evaluator 0 1 4 0 roster",
        "ps 0 2 4 0 roster",
        "worker 0 3 4 0 roster",
    ]) {
        assert!(line.starts_with(start), "{line}");
        assert!(!line.contains("\"evaluator\":"), "{line}");
    }
}

#[test]
fn torch_and_jax_get_theirs() {
    let torch = Job::here(&["--workers", "2", "--framework", "torch", "--prefix", ""])
        .script("echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $NODE_RANK $MASTER_ADDR ${TF_CONFIG-none}; [ $RANK = 1 ] || echo $MASTER_PORT = $RALLYPOINT_ADDRESS")
        .run();
    assert!(
        torch.stdout.contains("0 2 0 2 0 127.0.0.1 none\n")
            && torch.stdout.contains("1 2 1 2 0 127.0.0.1 none\n"),
        "{}",
        torch.stdout
    );
    let line = torch.stdout.lines().find(|line| line.contains(" = ")).unwrap();
    let (port, address) = line.split_once(" = ").unwrap();
    assert_eq!(address, format!("127.0.0.1:{port}"));
    let jax = Job::here(&["--workers", "2", "--framework", "jax", "--prefix", ""])
        .script("echo $JAX_PROCESS_ID $JAX_NUM_PROCESSES $JAX_LOCAL_DEVICE_IDS $OMPI_COMM_WORLD_RANK $OMPI_COMM_WORLD_SIZE; echo $JAX_COORDINATOR_ADDRESS")
        .run();
    assert!(jax.stdout.contains("0 2 0 0 2\n") && jax.stdout.contains("1 2 0 1 2\n"), "{}", jax.stdout);
}

#[test]
fn threads_and_proxies() {
    let job = || Job::here(&["--workers", "1", "--cpus-per-task", "3", "--prefix", ""]);
    let echo = "echo $OMP_NUM_THREADS $TF_NUM_INTRAOP_THREADS $TF_NUM_INTEROP_THREADS [$no_proxy]";
    assert_eq!(job().script(echo).run().stdout, "3 3 3 []\n");
    assert_eq!(job().arg("--threads").arg("off").script(echo).run().stdout, "[]\n");
    let run = job()
        .variable("OMP_NUM_THREADS", "7")
        .variable("http_proxy", "http://p:1")
        .variable("no_proxy", "a.b")
        .script(echo)
        .run();
    assert_eq!(run.stdout, "7 3 3 [a.b,127.0.0.1,localhost]\n");
    assert!(
        run.stderr.contains("http_proxy is set: the members' hosts are added to no_proxy"),
        "{}",
        run.stderr
    );
    // One inter-op thread makes TF 2's coordinator wait for ever.
    let one = Job::here(&["--workers", "1", "--cpus-per-task", "1", "--prefix", ""]).script(echo).run();
    assert_eq!(one.stdout, "1 1 2 []\n");
}

#[test]
fn the_first_failure_is_told_with_its_last_words() {
    let run = Job::here(&["--ps", "1", "--workers", "2"])
        .script("[ $RALLYPOINT_RANK = 2 ] || exec sleep 100; echo 'the last words' >&2; echo 'bad data' > $RALLYPOINT_ERROR_FILE; exit 3")
        .run();
    assert_eq!(run.code, 3);
    for words in ["first failure: worker 1 on ", "exit code 3", "its reason: bad data", "| the last words"] {
        assert!(run.stderr.contains(words), "{words}: {}", run.stderr);
    }
}

#[test]
fn exit_codes_are_the_first_failures() {
    for (arguments, code) in [
        (vec!["exits", "0"], 0),
        (vec!["exits-late", "3"], 3),
        (vec!["dies-of", "SEGV"], 139),
        (vec!["dies-of", "KILL"], 137),
        (vec!["closes-its-stdio", "5"], 5),
    ] {
        let run = Job::here(&["--workers", "2"]).habit(&arguments).run();
        assert_eq!(run.code, code, "{arguments:?}: {}", run.stderr);
    }
}

#[test]
fn who_leaves_processes_behind_leaves_none() {
    for habit in ["forks-and-leaves", "forks-and-stays"] {
        let scratch = Scratch::new(habit);
        let mark = scratch.mark();
        let script = format!("[ $RALLYPOINT_RANK = 0 ] && exec {} {habit} {mark}; sleep 0.4", job::habit());
        let run = Job::here(&["--roles", "ps,worker", "--grace", "1s"]).script(&script).run();
        assert_eq!(run.code, 0, "{habit}: {}", run.stderr);
        assert_eq!(leftovers(&mark), Vec::<u32>::new(), "{habit}");
    }
}

#[test]
fn a_hanging_member_is_ended_with_the_others() {
    for habit in [vec!["hangs"], vec!["never-listens"], vec!["listens"]] {
        let script =
            format!("[ $RALLYPOINT_ROLE = ps ] && exec {} {}; sleep 0.3", job::habit(), habit.join(" "));
        let run = Job::here(&["--ps", "1", "--workers", "1"]).script(&script).run();
        assert_eq!(run.code, 0, "{habit:?}: {}", run.stderr);
        assert!(run.seconds < 5.0, "{habit:?}");
    }
}

#[test]
fn floods_are_written_with_little_memory() {
    let scratch = Scratch::new("flood");
    let folder = scratch.path("logs");
    let run = Job::here(&["--workers", "2", "--log-dir", &folder]).habit(&["floods", "300"]).run();
    assert_eq!(run.code, 0, "{}", run.stderr);
    for index in 0..2 {
        let log = std::fs::metadata(format!("{folder}/attempt-0/worker-{index}.out")).unwrap();
        assert_eq!(log.len(), 300 * 1_000_000);
    }
    assert!(run.peak_mib < 40, "{} MiB", run.peak_mib);
    assert_eq!(run.stdout, "", "without --tee nothing is shown");
}

#[test]
fn half_lines_are_never_mixed() {
    let run = Job::here(&["--workers", "4"]).habit(&["half-lines"]).run_bytes();
    assert_eq!(run.code, 0);
    let text = String::from_utf8_lossy(&run.stdout);
    let whole = text.lines().filter(|line| line.ends_with("] a beginning, an end")).count();
    assert_eq!(whole, 200, "{text}");
    assert_eq!(text.lines().filter(|line| line.ends_with("]  no end")).count(), 4, "{text}");
    assert!(run.stdout.windows(9).any(|bytes| bytes == b"\x00\xff\xfebinary"));
}

#[test]
fn logs_tee_and_quiet() {
    let scratch = Scratch::new("tee");
    let folder = scratch.path("logs");
    let script = "echo out; echo err >&2";
    let teed =
        Job::here(&["--workers", "1", "--log-dir", &folder, "--tee", "--prefix", "<{role}{index} {rank}>"])
            .script(script)
            .run();
    assert_eq!(teed.stdout, "<worker0 0>out\n");
    assert!(teed.stderr.contains("<worker0 0>err\n"));
    let read = |name: &str| std::fs::read_to_string(format!("{folder}/attempt-0/{name}")).unwrap();
    assert_eq!((read("worker-0.out"), read("worker-0.err")), ("out\n".to_owned(), "err\n".to_owned()));
    let quiet = Job::here(&["--workers", "1", "--quiet"]).script(script).run();
    assert_eq!((quiet.stdout.as_str(), quiet.stderr.as_str()), ("", ""));
}

#[test]
fn events_tell_the_story() {
    let scratch = Scratch::new("events");
    let file = scratch.path("events");
    let script = format!(
        "[ $RALLYPOINT_ROLE = ps ] && exec {} listens; while ! grep -q listening {file}; do sleep 0.02; done",
        habit()
    );
    let run = Job::here(&["--ps", "1", "--workers", "1", "--events", &file]).script(&script).run();
    assert_eq!(run.code, 0, "{}", run.stderr);
    let events: Vec<serde_json::Value> = std::fs::read_to_string(file)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let names: Vec<&str> = events.iter().map(|event| event["event"].as_str().unwrap()).collect();
    assert_eq!(names, ["roster", "begun", "started", "started", "listening", "finished", "stopped", "over"]);
    assert!(events.windows(2).all(|pair| pair[0]["time"].as_f64() <= pair[1]["time"].as_f64()));
    assert_eq!(events[4]["role"], "ps");
    assert_eq!((&events[7]["code"], &events[7]["members"][0]["stopped"]), (&0.into(), &true.into()));
}

#[test]
fn a_failed_member_may_come_back_to_its_port() {
    let scratch = Scratch::new("restart");
    let file = scratch.path("failed");
    let script = format!("echo $RALLYPOINT_ADDRESS; {} fails-once {file}", habit());
    let run = Job::here(&["--workers", "1", "--restart", "worker=1", "--prefix", ""]).script(&script).run();
    assert_eq!(run.code, 0, "{}", run.stderr);
    let addresses: Vec<&str> = run.stdout.lines().collect();
    assert_eq!(addresses.len(), 2);
    assert_eq!(addresses[0], addresses[1]);
    assert!(run.stderr.contains("restarted once"), "{}", run.stderr);
    // It really can listen there again.
    let again = scratch.path("again");
    let script = format!(
        "if mkdir {again}; then timeout 2 {0} listens; exit 1; else exec timeout 2 {0} listens; fi",
        habit()
    );
    let run = Job::here(&["--workers", "1", "--restart", "worker=1", "--prefix", ""]).script(&script).run();
    let lines: Vec<&str> = run.stdout.lines().filter(|line| line.starts_with("listening")).collect();
    assert_eq!(lines.len(), 2, "{} {}", run.stdout, run.stderr);
    assert_eq!(lines[0], lines[1]);
}

#[test]
fn nothing_of_the_earlier_run_is_there_when_a_member_comes_back() {
    let scratch = Scratch::new("earlier");
    let file = scratch.path("left");
    let leave = format!("sh -c \"trap '' TERM; echo \\$\\$ > {file}; while :; do sleep 0.05; done\" &");
    let look = format!("for i in $(seq 100); do kill -0 $(cat {file}) || exit 0; sleep 0.05; done; exit 5");
    let script =
        format!("[ -s {file} ] && {{ {look}; }}; {leave} while [ ! -s {file} ]; do sleep 0.02; done; exit 3");
    let run = Job::here(&["--workers", "1", "--restart", "worker=1"]).script(&script).run();
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(run.stderr.contains("restarted once"), "{}", run.stderr);
}

#[test]
fn a_tolerated_failure_lets_the_others_go_on() {
    let script = "[ $RALLYPOINT_RANK = 0 ] && exit 9; sleep 0.3; echo survived";
    let run = Job::here(&["--workers", "2", "--tolerate", "worker"]).script(script).run();
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(run.stdout.contains("survived") && run.stderr.contains("failed (exit code 9)"), "{}", run.stderr);
}

#[test]
fn ports_may_be_chosen() {
    let echo = "echo ${RALLYPOINT_ADDRESS##*:}";
    let held = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
    let taken = held.local_addr().unwrap().port();
    let run = Job::here(&["--workers", "1", "--port-base", &taken.to_string()]).script(echo).run();
    assert_eq!(run.code, 197);
    assert!(run.stderr.contains(&format!("port {taken} cannot be had")), "{}", run.stderr);
    let run =
        Job::here(&["--workers", "3", "--port-range", "23456-23999", "--prefix", ""]).script(echo).run();
    let ports: Vec<u16> = run.stdout.lines().map(|line| line.parse().unwrap()).collect();
    assert!(ports.len() == 3 && ports.iter().all(|port| (23456..=23999).contains(port)), "{ports:?}");
}

#[test]
fn one_member_from_a_tf_config_file() {
    let scratch = Scratch::new("tf-config");
    let folder = scratch.path("confs");
    let written = job::rallypoint(&[
        "env",
        "--write-dir",
        &folder,
        "--ps",
        "1",
        "--workers",
        "1",
        "--port-base",
        "24680",
        "--nodes",
        "localhost",
    ]);
    assert_eq!(written.stdout, format!("{folder}/ps-0.json\n{folder}/worker-0.json\n"));
    let file = format!("{folder}/worker-0.json");
    let run = Job::here(&["--tf-config", &file, "--prefix", ""])
        .script("echo $TF_CONFIG $RALLYPOINT_ADDRESS")
        .run();
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert_eq!(run.stdout, format!("{} 127.0.0.1:24681\n", std::fs::read_to_string(&file).unwrap().trim()));
    let broken = scratch.path("broken.json");
    std::fs::write(&broken, r#"{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 1}}"#)
        .unwrap();
    let run = Job::here(&["--tf-config", &broken]).script("true").run();
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("its task is worker 1, but its cluster lists 1 worker"), "{}", run.stderr);
}

#[test]
fn what_cannot_be_run_is_said_before_anything_starts() {
    let run = job::rallypoint(&["run", "--workers", "1", "--", "no-such-program"]);
    assert_eq!((run.code, run.stdout.as_str()), (2, ""));
    assert!(run.stderr.contains("no-such-program is not a program that can be run"), "{}", run.stderr);
    let dry = job::rallypoint(&["run", "--ps", "1", "--workers", "1", "--dry-run"]);
    assert!(dry.code == 0 && dry.stdout.contains("RANK"), "{}", dry.stderr);
    let folder = Job::here(&["--workers", "1"]).script("true").variable("TMPDIR", "/nosuch").run();
    assert_eq!(folder.code, 2);
    assert!(folder.stderr.contains("hint: set TMPDIR"), "{}", folder.stderr);
}

#[test]
fn a_roster_too_large_for_tensorflow_is_an_error_and_a_file_for_others() {
    let roles = "worker*6000";
    let run = Job::here(&["--roles", roles, "--dry-run"]).script("true").run();
    assert_eq!(run.code, 0);
    let large = job::rallypoint(&["env", "--nodes", "n[00001-12000]", "--rank", "0"]);
    assert_eq!(large.code, 2);
    assert!(
        large.stderr.contains("Linux takes 131071 in one variable")
            && large.stderr.contains("RALLYPOINT_ROSTER_FILE"),
        "{}",
        large.stderr
    );
    let plain = job::rallypoint(&["env", "--nodes", "n[00001-12000]", "--rank", "0", "--framework", "torch"]);
    assert_eq!(plain.code, 0, "{}", plain.stderr);
}

#[test]
fn stdin_is_empty_and_the_private_folder_goes_away() {
    let scratch = Scratch::new("private");
    let run = Job::here(&["--workers", "1", "--prefix", ""])
        .habit(&["reads-stdin"])
        .variable("TMPDIR", &scratch.path(""))
        .run();
    assert_eq!(run.stdout, "stdin had 0 bytes\n");
    assert_eq!(std::fs::read_dir(scratch.path("")).unwrap().count(), 0, "nothing is left");
}

#[test]
fn two_hundred_runs_in_a_row() {
    for number in 0..200 {
        let run = Job::here(&["--workers", "8", "--quiet"]).program("true").run();
        assert_eq!((run.code, run.stderr.as_str()), (0, ""), "run {number}");
    }
}

#[test]
fn two_jobs_at_once_never_share_a_port() {
    let script = format!("[ $RALLYPOINT_ROLE = ps ] && exec {} listens; sleep 0.2", habit());
    for number in 0..20 {
        let start = || Job::here(&["--ps", "4", "--workers", "1"]).script(&script).start();
        let (one, two) = (start(), start());
        for run in [one.wait(), two.wait()] {
            assert_eq!(run.code, 0, "round {number}: {}", run.stderr);
        }
    }
}

#[test]
fn a_member_that_cannot_start_again_gives_up_in_time() {
    let scratch = Scratch::new("vanishes");
    let program = scratch.path("once");
    std::fs::write(&program, "#!/bin/sh\nrm \"$0\"; exit 1\n").unwrap();
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let run = Job::here(&["--workers", "1", "--restart", "worker=3"]).program(&program).run();
    assert_eq!(run.code, 197, "{}", run.stderr);
    assert!(run.stderr.contains("not started") && run.stderr.contains("restarted 3 times"), "{}", run.stderr);
}

#[test]
fn a_process_that_keeps_the_output_open_delays_nobody() {
    let scratch = Scratch::new("keeps");
    let run = Job::here(&["--workers", "1", "--log-dir", &scratch.path("logs")])
        .script("setsid sleep 50 & true")
        .run();
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(run.seconds < 6.0, "{}", run.seconds);
}

#[test]
fn quiet_still_tells_why_it_failed() {
    let run = Job::here(&["--workers", "1", "--quiet"]).script("exit 3").run();
    assert_eq!(run.code, 3);
    assert!(run.stderr.starts_with("rallypoint: first failure: worker 0 on "), "{}", run.stderr);
}
