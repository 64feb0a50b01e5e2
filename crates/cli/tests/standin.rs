//! Members that others wait for: some have finished before the others, as far as it goes without TensorFlow: `tests/tensorflow/test_late.py` has
//! the servers that stand in for them.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod job;

use job::{Job, Ran, Running, Scratch, habit, wait_until};
use std::time::{Duration, Instant};

/// Each member listens, and is done when its file is there.
fn script(scratch: &Scratch) -> String {
    format!("exec {} listens-until {}$RALLYPOINT_RANK", habit(), scratch.path("go-"))
}

fn go(scratch: &Scratch, rank: u32) {
    std::fs::write(scratch.path(&format!("go-{rank}")), "").unwrap();
}

fn wait_until_all_listen(events: &str, count: usize) {
    wait_until("members that listen", || {
        let text = std::fs::read_to_string(events).unwrap_or_default();
        text.matches("\"event\":\"listening\"").count() == count
    });
}

const NOBODY: &str = "worker 0 has finished, and no server keeps its address alive: no TensorFlow was found; hint: --tensorflow DIR tells where it is (a virtual environment, say); until then, whoever opens a session of TensorFlow 1 waits for ever\n";

/// A PATH on which there is a shell, and no Python that might have TensorFlow.
fn no_python(scratch: &Scratch) -> String {
    let folder = scratch.path("bin");
    std::fs::create_dir_all(&folder).unwrap();
    std::os::unix::fs::symlink("/bin/sh", scratch.path("bin/sh")).unwrap();
    folder
}

#[test]
fn a_finished_member_that_nobody_can_stand_in_for_is_told_and_changes_nothing() {
    let scratch = Scratch::new("standin");
    let events = scratch.path("events");
    let args = ["--ps", "1", "--workers", "2", "--events", &events];
    let running = Job::here(&args).variable("PATH", &no_python(&scratch)).script(&script(&scratch)).start();
    wait_until_all_listen(&events, 3);
    go(&scratch, 1);
    running.wait_for_output(NOBODY);
    go(&scratch, 2);
    let ran = running.wait();
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(ran.stderr.matches("keeps its address").count(), 1, "{}", ran.stderr);
    assert_eq!(ran.stderr.matches(" finished ").count(), 2, "rows of the table: {}", ran.stderr);
    assert!(!ran.stderr.contains("left behind"), "{}", ran.stderr);
}

/// The program was started by a script, which tells nothing: the kernel says which library it has mapped.
#[test]
fn the_tensorflow_that_a_member_has_loaded_is_taken() {
    let scratch = Scratch::new("standin-mapped");
    let (events, folder) = (scratch.path("events"), scratch.path("tensorflow"));
    std::fs::create_dir_all(&folder).unwrap();
    let library = format!("{folder}/libtensorflow_cc.so.2");
    std::fs::copy(some_library(), &library).unwrap();
    let args = ["--ps", "1", "--workers", "2", "--events", &events];
    let wait = format!("{} listens-until {}$RALLYPOINT_RANK", habit(), scratch.path("go-"));
    // Not by exec: it is a child of the member, and one that the others do not have.
    let script =
        format!("if [ $RALLYPOINT_RANK = 1 ]; then LD_PRELOAD='{library}' {wait}; else exec {wait}; fi");
    let running = Job::here(&args).variable("PATH", &no_python(&scratch)).script(&script).start();
    wait_until_all_listen(&events, 3);
    go(&scratch, 1);
    running.wait_for_output("worker 0 has finished, and no server keeps its address alive: ");
    assert!(running.stderr_so_far().contains(&folder), "{}", running.stderr_so_far());
    go(&scratch, 2);
    assert_eq!(running.wait().code, 0);
}

/// Of this very process: anything that can be mapped.
fn some_library() -> String {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let paths = maps.lines().filter_map(|line| Some(line[line.find('/')?..].to_owned()));
    paths.into_iter().find(|path| path.contains("libgcc_s")).unwrap()
}

#[test]
fn a_mistyped_folder_is_told_before_anything_starts() {
    for more in [&["--ps", "1", "--workers", "1"][..], &["--ps", "1", "--workers", "1", "--serve", "ps"]] {
        let args = [more, &["--tensorflow", "/no/such"]].concat();
        let ran = Job::here(&args).script("echo started").run();
        assert_eq!(ran.code, 197, "{}", ran.stderr);
        assert_eq!(ran.stdout, "");
        let says = "error: no TensorFlow was found\n  the place that was given, /no/such: no tensorflow there\nhint: ";
        assert!(ran.stderr.starts_with(says), "{}", ran.stderr);
    }
    // Nobody needs it there.
    let torch = ["--workers", "1", "--framework", "torch", "--tensorflow", "/no/such"];
    assert_eq!(Job::here(&torch).program("true").run().code, 0);
}

#[test]
fn servers_without_any_tensorflow_have_the_code_of_serve() {
    let scratch = Scratch::new("standin-none");
    let ran = Job::here(&["--ps", "1", "--workers", "1", "--serve", "ps"])
        .variable("PATH", &no_python(&scratch))
        .script("echo started")
        .run();
    assert_eq!((ran.code, ran.stdout.as_str()), (197, ""), "{}", ran.stderr);
}

#[test]
fn a_members_own_agent_stands_in_for_it() {
    let scratch = Scratch::new("standin-meet");
    let path = no_python(&scratch);
    let events = scratch.path("events");
    let meet = scratch.path("meet");
    let start = |rank: &str| -> Running {
        let args = ["--ps", "1", "--workers", "2", "--meet", &meet, "--rank", rank];
        let leads = ["--events", &events];
        let job = Job::here(&args).variable("PATH", &path);
        // Only the leader writes them, and the ps leads.
        let job = if rank == "0" { leads.iter().fold(job, |job, arg| job.arg(arg)) } else { job };
        job.script(&script(&scratch)).start()
    };
    let ps = start("0");
    ps.wait_for_output("1 of 3 members");
    let workers = [start("1"), start("2")];
    wait_until_all_listen(&events, 3);
    go(&scratch, 1);
    workers[0].wait_for_output(NOBODY);
    go(&scratch, 2);
    let ran: Vec<Ran> = workers.into_iter().chain([ps]).map(Running::wait).collect();
    assert_eq!(ran.iter().map(|ran| ran.code).collect::<Vec<_>>(), [0, 0, 0], "{ran:?}");
    let told = ran.iter().map(|ran| ran.stderr.matches("keeps its address").count()).collect::<Vec<_>>();
    assert_eq!(told, [1, 0, 0], "{ran:?}");
}

#[test]
fn until_first_ends_with_worker_0() {
    let ran = Job::here(&["--ps", "1", "--workers", "3", "--until", "first"])
        .script("[ $RALLYPOINT_RANK = 1 ] || exec sleep 300; echo done")
        .run();
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(ran.stdout, "[worker 0] done\n");
    assert_eq!(ran.stderr.matches("stopped (killed by SIGTERM)").count(), 3, "{}", ran.stderr);
}

/// Takes a minute, and does nothing in it.
#[test]
fn after_a_minute_it_is_said_who_still_runs_and_that_nobody_writes() {
    let args = ["--ps", "1", "--workers", "2", "--grace", "1s"];
    let running = Job::here(&args).script("[ $RALLYPOINT_RANK = 1 ] || exec sleep 300").start();
    let until = Instant::now() + Duration::from_secs(150);
    let all = [
        "finished: worker 0 (rank 1); still running: worker 1 (rank 2)\n",
        "no member has written anything for 60 s\n",
        "  ended: worker 0 (rank 1)\n",
        "  running, and not listening: ps 0 (rank 0), worker 1 (rank 2)\n",
        "read docs/guides/it-hangs.md\n",
    ];
    while !all.iter().all(|words| running.stderr_so_far().contains(words)) {
        assert!(Instant::now() < until, "{}", running.stderr_so_far());
        std::thread::sleep(Duration::from_millis(100));
    }
    running.signal("TERM");
    assert_eq!(running.wait().code, 196);
}

#[test]
fn servers_alone_would_never_end_and_are_refused() {
    for args in [
        &["--ps", "1", "--workers", "0"][..],
        &["--roles", "ps*2,evaluator"],
        &["--evaluator", "--workers", "0"],
        &["--ps", "2", "--workers", "0", "--until", "first"],
    ] {
        let ran = Job::here(args).script("exec sleep 300").run();
        assert_eq!(ran.code, 2, "{args:?}: {}", ran.stderr);
        assert!(
            ran.stderr.contains("nobody trains, so the job would never end: a ps serves, an evaluator waits"),
            "{}",
            ran.stderr
        );
        assert!(ran.stderr.contains("hint: give --workers N or --chief, or --until all"), "{}", ran.stderr);
    }
    let ran = Job::here(&["--ps", "2", "--workers", "0", "--until", "all"]).program("true").run();
    assert_eq!(ran.code, 0, "they end by themselves: {}", ran.stderr);
    // A file for one member alone says nothing about who trains elsewhere.
    let scratch = Scratch::new("standin-servers");
    let file = scratch.path("ps.json");
    let text = r#"{"cluster": {"ps": ["127.0.0.1:0"], "worker": ["127.0.0.1:1"]}, "task": {"type": "ps", "index": 0}}"#;
    let port = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    std::fs::write(&file, text.replace("127.0.0.1:0", &format!("127.0.0.1:{port}"))).unwrap();
    let ran = Job::here(&["--tf-config", &file]).program("true").run();
    assert_eq!(ran.code, 0, "{}", ran.stderr);
}
