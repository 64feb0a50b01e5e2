//! Output that nobody reads, that is read slowly, or that cannot be written: it holds up nothing and is never lost in silence.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod job;

use job::{Job, Scratch, kill, wait_until};
use std::fs::{File, read_dir, read_to_string};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

fn entries(folder: &str) -> Vec<String> {
    let entries = read_dir(folder).unwrap().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn a_stderr_that_nobody_reads_holds_up_nothing() {
    let scratch = Scratch::new("unread");
    let private = scratch.path("private");
    std::fs::create_dir(&private).unwrap();
    let job = |args: &[&str]| Job::here(args).variable("TMPDIR", &private);
    assert_eq!(job(&["--workers", "2"]).script("echo hello; echo hello >&2").start_unread().wait(), 0);
    let ready = scratch.path("ready");
    let endless = format!("touch {ready}; while :; do echo flood; echo flood >&2; done");
    for (signal, expected) in [("TERM", 196), ("INT", 196)] {
        _ = std::fs::remove_file(&ready);
        let unread = job(&["--workers", "2", "--grace", "1s"]).script(&endless).start_unread();
        wait_until("a member", || Path::new(&ready).exists());
        kill(unread.pid(), signal);
        assert_eq!(unread.wait(), expected, "{signal}");
    }
    _ = std::fs::remove_file(&ready);
    let unread = job(&["--workers", "2", "--grace", "1s"]).script(&endless).start_unread();
    wait_until("a member", || Path::new(&ready).exists());
    kill(unread.agent(), "KILL");
    assert_eq!(unread.wait(), 198);
    assert_eq!(entries(&private), Vec::<String>::new(), "no private folder is left");
}

#[test]
fn a_leader_whose_stderr_nobody_reads_tells_the_others_the_truth() {
    let scratch = Scratch::new("unread-leader");
    let (meeting, private) = (scratch.path("meeting"), scratch.path("private"));
    std::fs::create_dir(&private).unwrap();
    let args = ["--workers", "2", "--meet", &meeting, "--grace", "2s"];
    let script = "[ $RALLYPOINT_RANK = 1 ] && exit 7; exec sleep 100";
    let leader = Job::here(&args).variable("TMPDIR", &private).script(script).start_unread();
    wait_until("the leader", || Path::new(&meeting).is_dir() && !entries(&meeting).is_empty());
    let follower = Job::here(&args).variable("TMPDIR", &private).script(script).start();
    assert_eq!((follower.wait().code, leader.wait()), (7, 7));
    assert_eq!((entries(&meeting), entries(&private)), (vec![], vec![]), "nothing is left");
}

#[test]
fn bytes_that_cannot_be_written_are_told_and_make_the_job_fail() {
    let scratch = Scratch::new("full");
    let logs = scratch.path("logs");
    std::fs::create_dir_all(format!("{logs}/attempt-0")).unwrap();
    symlink("/dev/full", format!("{logs}/attempt-0/worker-0.out")).unwrap();
    let job = |more: &[&str]| {
        Job::here(&[&["--workers", "1", "--log-dir", &logs], more].concat()).habit(&["floods", "1"]).run()
    };
    let run = job(&[]);
    assert_eq!(run.code, 199, "{}", run.stderr);
    let lost =
        format!("1000000 bytes of output are lost: {logs}/attempt-0/worker-0.out: No space left on device");
    assert!(run.stderr.contains(&lost), "{}", run.stderr);
    assert!(run.stderr.contains("; still trying"), "at once: {}", run.stderr);
    let run = job(&["--log-errors", "ignore"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(run.stderr.contains(&lost), "{}", run.stderr);

    let full = || File::options().write(true).open("/dev/full").unwrap();
    let run = Job::here(&["--workers", "1"]).stdout(full()).script("echo hello").start().wait();
    assert_eq!(run.code, 199, "{}", run.stderr);
    assert!(run.stderr.contains("bytes of output are lost: standard output: No space"), "{}", run.stderr);
    let run = Job::here(&["--workers", "1", "--events", "/dev/full"]).script("true").run();
    assert_eq!(run.code, 199, "{}", run.stderr);
    assert!(run.stderr.contains("bytes of output are lost: /dev/full: No space"), "{}", run.stderr);
    // A member's failure is the cause, and the loss is told too.
    let run = Job::here(&["--workers", "1", "--events", "/dev/full"]).script("exit 5").run();
    assert_eq!(run.code, 5);
    assert!(run.stderr.contains("are lost: /dev/full"), "{}", run.stderr);
    // Whoever reads our output and has enough loses nothing.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let run = Job::here(&["--workers", "1"]).stdout(writer).script("echo hello").start().wait();
    assert_eq!(run.code, 0, "{}", run.stderr);
}

#[test]
fn what_a_follower_loses_is_told_by_the_leader_and_is_everyones_code() {
    let scratch = Scratch::new("full-follower");
    let (meeting, logs) = (scratch.path("meeting"), scratch.path("logs"));
    std::fs::create_dir_all(format!("{logs}/attempt-0")).unwrap();
    symlink("/dev/full", format!("{logs}/attempt-0/worker-1.out")).unwrap();
    let start = |rank: &str| {
        let args = ["--workers", "2", "--meet", &meeting, "--rank", rank, "--log-dir", &logs];
        Job::here(&args).habit(&["floods", "1"]).start()
    };
    let leader = start("0");
    wait_until("the leader", || Path::new(&meeting).is_dir() && !entries(&meeting).is_empty());
    let follower = start("1");
    let (leader, follower) = (leader.wait(), follower.wait());
    assert_eq!((leader.code, follower.code), (199, 199), "{} {}", leader.stderr, follower.stderr);
    assert!(leader.stderr.contains("1000000 bytes of output are lost: "), "{}", leader.stderr);
}

#[test]
fn a_file_has_room_again_and_says_what_is_missing() {
    let scratch = Scratch::new("room-again");
    let logs = scratch.path("logs");
    // A file may not grow beyond 200 blocks, until the limit is lifted: a disk that is full for a while.
    let script = "head -c 300000 /dev/zero | tr '\\0' x; touch written; while [ ! -e room ]; do sleep 0.05; done; echo end";
    let job = Job::here(&["--workers", "1", "--log-dir", &logs])
        .script(&format!("cd {}; {script}", scratch.path("")));
    let running = job.after("ulimit -S -f 200; trap '' XFSZ").start();
    wait_until("the flood", || Path::new(&scratch.path("written")).exists());
    running.wait_for_output("bytes of output are lost");
    let limit =
        Command::new("prlimit").args(["--pid", &running.agent().to_string(), "--fsize=unlimited"]).status();
    assert!(limit.unwrap().success());
    std::fs::write(scratch.path("room"), "").unwrap();
    let run = running.wait();
    assert_eq!(run.code, 199, "{}", run.stderr);
    let log = read_to_string(format!("{logs}/attempt-0/worker-0.out")).unwrap();
    let (kept, rest) = log.split_once("\n... rallypoint: ").unwrap();
    assert!(rest.ends_with(" bytes are missing here, which could not be written\nend\n"), "{rest}");
    let missing: usize = rest.split(' ').next().unwrap().parse().unwrap();
    assert_eq!(kept.len() + missing, 300_000);
}

#[test]
fn what_a_slow_reader_has_not_read_yet_is_not_lost() {
    let (reader, writer) = std::io::pipe().unwrap();
    let running =
        Job::here(&["--workers", "1", "--prefix", ""]).stdout(writer).habit(&["floods", "1"]).start();
    // The member writes more than all queues hold; a pipe's worth at a time, with pauses, is enough to go on.
    let slowly = std::thread::spawn(move || {
        let (mut reader, mut total, mut chunk) = (reader, 0, vec![0; 65536]);
        while let Ok(count @ 1..) = std::io::Read::read(&mut reader, &mut chunk) {
            total += count;
            std::thread::sleep(Duration::from_millis(150));
        }
        total
    });
    assert_eq!(running.wait().code, 0);
    assert_eq!(slowly.join().unwrap(), 1_000_000);
}

#[test]
fn a_write_beyond_the_file_limit_is_lost_output_and_no_end() {
    let scratch = Scratch::new("file-limit");
    let logs = scratch.path("logs");
    let job = Job::here(&["--workers", "1", "--log-dir", &logs]).habit(&["floods", "1"]);
    let run = job.after("ulimit -f 200").start().wait();
    assert_eq!(run.code, 199, "{}", run.stderr);
    assert!(run.stderr.contains("File too large"), "{}", run.stderr);
}

/// A log file whose file system is as slow as its reader: a named pipe in its place.
fn slow_log(logs: &str, name: &str) -> File {
    let path = format!("{logs}/attempt-0/{name}");
    std::fs::create_dir_all(format!("{logs}/attempt-0")).unwrap();
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    // For writing too: opening it for reading alone would wait for a writer.
    File::options().read(true).write(true).open(&path).unwrap()
}

/// Reads what is there by now, without a wait.
fn read_what_is_there(mut pipe: &File) -> usize {
    let flags = rustix::fs::OFlags::NONBLOCK;
    rustix::fs::fcntl_setfl(pipe, flags).unwrap();
    let (mut total, mut chunk) = (0, vec![0; 65536]);
    while let Ok(count @ 1..) = std::io::Read::read(&mut pipe, &mut chunk) {
        total += count;
    }
    total
}

#[test]
fn log_files_that_are_slow_at_the_end_have_every_byte_or_the_rest_is_told() {
    let scratch = Scratch::new("slow-logs");
    let logs = scratch.path("logs");
    let pipe = slow_log(&logs, "worker-0.out");
    let job = || Job::here(&["--workers", "1", "--log-dir", &logs]);
    // It stands still for longer than a stream may stay open, then it goes on.
    let mut running = job().habit(&["floods", "3"]).start();
    std::thread::sleep(Duration::from_secs(3));
    let mut total = 0;
    while running.is_running() {
        total += read_what_is_there(&pipe);
        std::thread::sleep(Duration::from_millis(5));
    }
    total += read_what_is_there(&pipe);
    let run = running.wait();
    assert_eq!((run.code, total), (0, 3_000_000), "{}", run.stderr);
    // It stands still for ever: more pieces than the pipe and the queue hold, but not more than the member can write.
    let pieces = "for i in $(seq 40); do head -c 3000 /dev/zero; sleep 0.01; done";
    let run = job().script(pieces).run();
    let kept = read_what_is_there(&pipe);
    assert_eq!(run.code, 199, "{}", run.stderr);
    let file =
        format!(" bytes of output are lost: {logs}/attempt-0/worker-0.out: its file system took too long");
    let told = run.stderr.lines().find_map(|line| line.strip_prefix("rallypoint: ")?.split_once(&file));
    let lost: Option<usize> = told.and_then(|(bytes, _)| bytes.parse().ok());
    assert_eq!(lost.map(|lost| kept + lost), Some(40 * 3000), "{kept} kept: {}", run.stderr);
}

#[test]
fn many_members_whose_output_nobody_reads_end_together() {
    let scratch = Scratch::new("many-unread");
    let ready = scratch.path("ready");
    let script = format!("touch {ready}-$RALLYPOINT_RANK; seq 100000 & exec seq 100000 >&2");
    let unread = Job::here(&["--workers", "24", "--grace", "1s"]).script(&script).start_unread();
    let is_ready = |rank| Path::new(&format!("{ready}-{rank}")).exists();
    wait_until("all members", || (0..24).all(is_ready));
    let asked = std::time::Instant::now();
    kill(unread.pid(), "TERM");
    assert_eq!(unread.wait(), 196);
    // Not 2 s for each of the 48 streams.
    assert!(asked.elapsed() < Duration::from_secs(20), "{:?}", asked.elapsed());
}

#[test]
fn the_last_lines_wait_for_a_stderr_that_is_full_for_a_moment() {
    let (reader, writer) = std::io::pipe().unwrap();
    let mut fill = writer.try_clone().unwrap();
    std::io::Write::write_all(&mut fill, &[b'.'; 65536]).unwrap();
    rustix::fs::fcntl_setfl(&writer, rustix::fs::OFlags::NONBLOCK).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_rallypoint"))
        .args(["run", "--workers", "1", "--", "sh", "-c", "exit 7"])
        .stdin(std::process::Stdio::null())
        .stderr(writer)
        .spawn()
        .unwrap();
    drop(fill);
    std::thread::sleep(Duration::from_millis(1000));
    let mut said = String::new();
    std::io::Read::read_to_string(&mut std::io::BufReader::new(reader), &mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(7));
    assert!(said.contains("first failure: worker 0"), "{}", said.trim_start_matches('.'));
}

#[test]
fn whoever_reads_little_at_a_time_but_steadily_gets_all() {
    let (reader, writer) = std::io::pipe().unwrap();
    // Less than a whole piece of 64 KiB within the 2 s that a reader may stand still.
    let script = "head -c 300000 /dev/zero | tr '\\0' x | fold -w 99";
    let running = Job::here(&["--workers", "1", "--prefix", ""]).stdout(writer).script(script).start();
    let slowly = std::thread::spawn(move || {
        let (mut reader, mut total, mut chunk) = (reader, 0, vec![0; 4096]);
        while let Ok(count @ 1..) = std::io::Read::read(&mut reader, &mut chunk) {
            total += count;
            std::thread::sleep(Duration::from_millis(150));
        }
        total
    });
    let run = running.wait();
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(!run.stderr.contains("is not shown"), "{}", run.stderr);
    assert_eq!(slowly.join().unwrap(), 303_031);
}

#[test]
fn a_second_ctrl_c_ends_a_job_whose_output_is_read_slowly() {
    let scratch = Scratch::new("slow-end");
    let done = scratch.path("done");
    let (mut reader, writer) = std::io::pipe().unwrap();
    // Many small pieces: more than the pipe and the queue hold, but not more than the member can write.
    let script = format!("for i in $(seq 45); do yes | head -c 3000; sleep 0.01; done; touch {done}");
    let running =
        Job::here(&["--workers", "1", "--grace", "30s", "--prefix", ""]).stdout(writer).script(&script);
    let running = running.start();
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    // A reader that needs half a minute.
    let slowly = std::thread::spawn(move || {
        while stopped.recv_timeout(Duration::from_millis(1200)).is_err() {
            _ = std::io::Read::read(&mut reader, &mut [0; 4096]);
        }
    });
    wait_until("the member to end", || Path::new(&done).exists());
    std::thread::sleep(Duration::from_millis(1500));
    let asked = std::time::Instant::now();
    running.signal("INT");
    std::thread::sleep(Duration::from_millis(700));
    running.signal("INT");
    let run = running.wait();
    let took = asked.elapsed();
    stop.send(()).unwrap();
    slowly.join().unwrap();
    assert!(took < Duration::from_secs(12), "{took:?}: {}", run.stderr);
    assert!(run.stderr.contains("is not shown"), "{}", run.stderr);
}
