//! Faults that a job must survive, or end of cleanly: suspended processes, signals at once, members that will not go.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod job;

use job::{Job, Scratch, kill, processes_with, state, wait_until};
use std::fs::read_dir;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

fn entries(folder: &str) -> Vec<String> {
    let entries = read_dir(folder).unwrap().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn a_member_that_forks_and_lets_the_parent_exit_does_not_escape() {
    let scratch = Scratch::new("escapes");
    for (round, pause) in ["10", "10", "3", "10", "1", "10", "0", "10"].iter().enumerate() {
        let mark = format!("{}-{round}", scratch.mark());
        let run = Job::here(&["--workers", "3", "--grace", "1s"]).habit(&["escapes", &mark, pause]).run();
        assert_eq!(run.code, 0, "{}", run.stderr);
        assert_eq!(processes_with(&mark), Vec::<u32>::new(), "round {round}, every {pause} ms");
    }
    for round in 0..6 {
        let mark = format!("{}-killed-{round}", scratch.mark());
        let script = format!("{} escapes {mark} 10; exec sleep 100", job::habit());
        let running = Job::here(&["--workers", "2", "--grace", "1s"]).script(&script).start();
        wait_until("the chain", || processes_with(&mark).len() > 4);
        kill(running.agent(), "KILL");
        assert_eq!(running.wait().code, 198);
        assert_eq!(processes_with(&mark), Vec::<u32>::new(), "killed, round {round}");
    }
}

#[test]
fn a_suspended_agent_is_continued_by_its_guard() {
    let scratch = Scratch::new("suspended");
    let mark = scratch.mark();
    let script = format!(": {mark}; sleep 100; :");
    let start = || {
        let running = Job::here(&["--workers", "2", "--grace", "1s"]).script(&script).start();
        running.member_pids(2);
        let agent = running.agent();
        kill(agent, "STOP");
        wait_until("the stop", || state(agent) == Some('T'));
        (running, agent)
    };
    for signal in ["TERM", "INT", "HUP"] {
        let (running, _) = start();
        running.signal(signal);
        let run = running.wait();
        assert_eq!(run.code, 196, "{signal}: {}", run.stderr);
        assert_eq!(processes_with(&mark), Vec::<u32>::new(), "{signal}");
    }
    let (running, agent) = start();
    running.signal("KILL");
    running.wait();
    wait_until("the agent to end", || !job::exists(agent));
    wait_until("its members to end", || processes_with(&mark).is_empty());
}

#[test]
fn a_job_that_is_suspended_as_a_whole_goes_on() {
    let scratch = Scratch::new("suspended-job");
    let meeting = scratch.path("meeting");
    let go = scratch.path("go");
    let script = format!("echo ready; while [ ! -e {go} ]; do sleep 0.05; done");
    let args = ["--workers", "2", "--meet", &meeting, "--grace", "2s"];
    let jobs = [Job::here(&args).script(&script).start(), Job::here(&args).script(&script).start()];
    jobs.iter().for_each(|job| job.wait_for_output("ready"));
    let everyone: Vec<u32> =
        jobs.iter().flat_map(|job| [vec![job.pid(), job.agent()], job.member_pids(1)].concat()).collect();
    everyone.iter().for_each(|&pid| kill(pid, "STOP"));
    // Longer than the 15 s of silence after which an agent is lost.
    std::thread::sleep(Duration::from_secs(18));
    everyone.iter().rev().for_each(|&pid| kill(pid, "CONT"));
    // Some seconds in which the timers of all could fire.
    std::thread::sleep(Duration::from_secs(2));
    std::fs::write(&go, "").unwrap();
    for job in jobs {
        let run = job.wait();
        assert_eq!(run.code, 0, "{}", run.stderr);
    }
}

#[test]
fn a_warning_and_a_cancellation_at_once_leave_the_grace() {
    let scratch = Scratch::new("usr1-term");
    for round in 0..5 {
        let saved = scratch.path(&format!("saved-{round}"));
        let script = format!(
            "trap : USR1; trap 'sleep 0.5; touch {saved}; exit 0' TERM; echo ready; while :; do sleep 0.02; done"
        );
        let running = Job::here(&["--workers", "1", "--grace", "20s"]).script(&script).start();
        running.wait_for_output("ready");
        // As a scheduler does it, to every process.
        let (guard, agent) = (running.pid().to_string(), running.agent().to_string());
        let both = format!("kill -USR1 {guard} {agent}; kill -TERM {guard} {agent}");
        assert!(Command::new("sh").args(["-c", &both]).status().unwrap().success());
        let run = running.wait();
        assert_eq!(run.code, 196, "{}", run.stderr);
        assert!(Path::new(&saved).exists(), "round {round}: {}", run.stderr);
    }
}

#[test]
fn a_guard_that_is_killed_while_the_job_ends_costs_no_grace() {
    let scratch = Scratch::new("guard-while-ending");
    let (saving, saved) = (scratch.path("saving"), scratch.path("saved"));
    let script = format!(
        "trap 'touch {saving}; sleep 1; touch {saved}; exit 0' TERM; echo ready; while :; do sleep 0.02; done"
    );
    let running = Job::here(&["--workers", "1", "--grace", "20s"]).script(&script).start();
    running.wait_for_output("ready");
    let agent = running.agent();
    running.signal("TERM");
    wait_until("the member to save", || Path::new(&saving).exists());
    running.signal("KILL");
    let run = running.wait();
    wait_until("the agent to end", || !job::exists(agent));
    assert!(Path::new(&saved).exists(), "{}", run.stderr);
}

#[test]
fn timeout_costs_no_grace() {
    let scratch = Scratch::new("timeout");
    for round in 0..6 {
        let saved = scratch.path(&format!("saved-{round}"));
        let script = format!("trap 'sleep 0.3; touch {saved}; exit 0' TERM; while :; do sleep 0.02; done");
        let timeout = Command::new("timeout")
            .args([
                "1",
                env!("CARGO_BIN_EXE_rallypoint"),
                "run",
                "--workers",
                "1",
                "--grace",
                "20s",
                "--quiet",
            ])
            .args(["--", "sh", "-c", &script])
            .status()
            .unwrap();
        // Its own code for a time that is over.
        assert_eq!(timeout.code(), Some(124));
        // It does not wait for the one that it has signalled.
        wait_until("the checkpoint", || Path::new(&saved).exists());
    }
}

#[test]
fn whatever_a_member_makes_of_its_error_file_is_not_waited_for() {
    for made in [
        "mkfifo $RALLYPOINT_ERROR_FILE",
        "mkdir $RALLYPOINT_ERROR_FILE",
        "ln -s /dev/zero $RALLYPOINT_ERROR_FILE",
    ] {
        let run = Job::here(&["--workers", "1"]).script(&format!("{made}; exit 3")).run();
        assert_eq!(run.code, 3, "{made}: {}", run.stderr);
    }
}

#[test]
fn a_member_that_cannot_be_ended_is_given_up() {
    // A process that is traced is not reaped by its parent before its tracer has seen its end.
    let trace = "import ctypes, os, sys, time
libc = ctypes.CDLL(None, use_errno=True)
assert libc.ptrace(0x4206, int(sys.argv[1]), None, None) == 0, ctypes.get_errno()
print('traced', flush=True)
time.sleep(40)";
    let running =
        Job::here(&["--workers", "2", "--grace", "1s"]).script("[ $RALLYPOINT_RANK = 1 ] && { while [ ! -e /proc/$PPID/task ]; do :; done; sleep 4; exit 3; }; exec sleep 100").start();
    let stuck = running.member_pids(2)[0];
    let mut tracer = Command::new("python3")
        .args(["-c", trace, &stuck.to_string()])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = [0; 6];
    std::io::Read::read_exact(tracer.stdout.as_mut().unwrap(), &mut line).unwrap();
    let run = running.wait();
    tracer.kill().unwrap();
    tracer.wait().unwrap();
    assert_eq!(run.code, 3, "{}", run.stderr);
}

#[test]
fn ctrl_z_lets_the_whole_job_stand_still() {
    let scratch = Scratch::new("ctrl-z");
    let go = scratch.path("go");
    let running = Job::here(&["--workers", "2"])
        .script(&format!("while [ ! -e {go} ]; do sleep 0.05; done"))
        .start_as_a_shell_does();
    let (guard, members) = (running.pid(), running.member_pids(2));
    // A shell that is stopped while it starts a program waits for that, which is stopped too.
    let stands = |&pid: &u32| matches!(state(pid), Some('T' | 'D'));
    kill(guard, "TSTP");
    wait_until("all to stand still", || members.iter().chain([&guard]).all(stands));
    kill(guard, "CONT");
    wait_until("all to go on", || members.iter().chain([&guard]).all(|&pid| state(pid) != Some('T')));
    // And an end while it stands still.
    kill(guard, "TSTP");
    wait_until("all to stand still", || members.iter().chain([&guard]).all(stands));
    kill(guard, "TERM");
    kill(guard, "CONT");
    let run = running.wait();
    assert_eq!(run.code, 196, "{}", run.stderr);
    assert!(members.iter().all(|&pid| !job::exists(pid)));
}

#[test]
fn a_terminal_that_stops_background_writers_does_not_stop_the_job() {
    let run = "run --workers 1 -- sh -c 'echo a member; exit 3'";
    let script = format!("stty tostop; {} {run}", env!("CARGO_BIN_EXE_rallypoint"));
    let output = Command::new("timeout")
        .args(["40", "script", "--quiet", "--return", "--command", &script, "/dev/null"])
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(text.contains("a member") && text.contains("first failure: worker 0"), "{text}");
}

#[test]
fn the_meeting_file_goes_with_a_leader_that_was_killed() {
    let scratch = Scratch::new("killed-leader");
    let meeting = scratch.path("meeting");
    let leader = Job::here(&["--workers", "2", "--meet", &meeting]).script("true").start();
    wait_until("the leader", || Path::new(&meeting).is_dir() && !entries(&meeting).is_empty());
    leader.wait_for_output("missing");
    kill(leader.agent(), "KILL");
    assert_eq!(leader.wait().code, 198);
    assert_eq!(entries(&meeting), Vec::<String>::new(), "its key is in it");
}

#[test]
fn few_descriptors_are_an_error_that_teaches() {
    let scratch = Scratch::new("few-descriptors");
    for few in ["4", "8"] {
        let job = Job::here(&["--workers", "1"]).variable("TMPDIR", &scratch.path("")).script("true");
        let run = job.after(&format!("ulimit -n {few}")).start().wait();
        assert_eq!(run.code, 197, "{}", run.stderr);
        let allowed = format!("{few} are allowed here");
        assert!(
            run.stderr.contains(&allowed) && run.stderr.contains("hint: raise the limit"),
            "{}",
            run.stderr
        );
        assert!(!run.stderr.contains("panicked"), "{}", run.stderr);
        assert_eq!(entries(&scratch.path("")), Vec::<String>::new());
    }
    // A soft limit is raised for us, and not for the members.
    let run = Job::here(&["--workers", "60"]).script("ulimit -S -n").after("ulimit -S -n 100").start().wait();
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(run.stdout.lines().all(|line| line.ends_with("] 100")), "{}", run.stdout);
}

#[test]
fn two_hundred_agents_run_on_one_machine() {
    let scratch = Scratch::new("many-agents");
    let meeting = scratch.path("meeting");
    let go = scratch.path("go");
    let script = format!("while [ ! -e {go} ]; do sleep 1; done");
    let jobs: Vec<_> = (0..200)
        .map(|_| Job::here(&["--workers", "200", "--meet", &meeting, "--quiet"]).script(&script).start())
        .collect();
    let all_run = || jobs.iter().all(|job| job::children(job.agent()).len() == 1);
    let until = std::time::Instant::now() + Duration::from_secs(60);
    while !all_run() {
        assert!(std::time::Instant::now() < until, "not all members have started");
        std::thread::sleep(Duration::from_millis(500));
    }
    // Longer than an agent may be silent: those that starve would be lost.
    std::thread::sleep(Duration::from_secs(20));
    std::fs::write(&go, "").unwrap();
    for job in jobs {
        let run = job.wait();
        assert_eq!(run.code, 0, "{}", run.stderr);
    }
}

#[test]
fn a_guard_hears_of_the_end_though_sigchld_was_ignored() {
    // A member sees its own children end, too.
    let script =
        "python3 -c 'import subprocess; raise SystemExit(subprocess.run([\"true\"]).returncode)' && exit 4";
    // Of two shells only bash hands it on.
    let output = Command::new("timeout")
        .args(["-k", "1", "30", "bash", "-c", "trap '' CHLD; exec \"$0\" run --workers 1 -- sh -c \"$1\""])
        .args([env!("CARGO_BIN_EXE_rallypoint"), script])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(4), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn signals_that_ask_for_the_end_at_once_leave_the_grace() {
    let scratch = Scratch::new("one-wish");
    for (round, signals) in [["HUP", "HUP"], ["TERM", "HUP"], ["INT", "TERM"]].into_iter().enumerate() {
        let saved = scratch.path(&format!("saved-{round}"));
        let script = format!(
            "trap '' HUP INT; trap 'sleep 1; touch {saved}; exit 0' TERM; echo ready; while :; do sleep 0.02; done"
        );
        let running = Job::here(&["--workers", "1", "--grace", "20s"]).script(&script).start();
        running.wait_for_output("ready");
        // Two senders: two shells, the second one a child of the first.
        let (guard, [first, second]) = (running.pid(), signals);
        let both = format!("kill -{first} {guard}; sh -c 'kill -{second} {guard}; :'");
        assert!(Command::new("sh").args(["-c", &both]).status().unwrap().success());
        let run = running.wait();
        assert_eq!(run.code, 196, "{signals:?}: {}", run.stderr);
        assert!(Path::new(&saved).exists(), "{signals:?}: {}", run.stderr);
    }
}

#[test]
fn a_file_limit_below_what_is_needed_is_an_error_and_leaves_nothing() {
    let scratch = Scratch::new("tiny-file-limit");
    let job = Job::here(&["--workers", "1"]).variable("TMPDIR", &scratch.path("")).script("true");
    let run = job.after("ulimit -f 100").start().wait();
    assert_eq!(run.code, 2, "{}", run.stderr);
    assert!(run.stderr.contains("File too large") && run.stderr.contains("ulimit -f"), "{}", run.stderr);
    assert_eq!(entries(&scratch.path("")), Vec::<String>::new());
}

#[test]
fn a_suspended_guard_does_not_make_two_signals_of_one() {
    let scratch = Scratch::new("suspended-guard");
    let (saving, saved) = (scratch.path("saving"), scratch.path("saved"));
    let script = format!(
        "trap 'touch {saving}; sleep 4; touch {saved}; exit 0' TERM; echo ready; while :; do sleep 0.02; done"
    );
    let running = Job::here(&["--workers", "1", "--grace", "30s"]).script(&script).start();
    running.wait_for_output("ready");
    let (guard, agent) = (running.pid(), running.agent());
    kill(guard, "STOP");
    wait_until("the stop", || state(guard) == Some('T'));
    kill(guard, "TERM");
    kill(agent, "TERM");
    wait_until("the member to save", || Path::new(&saving).exists());
    std::thread::sleep(Duration::from_millis(1500));
    kill(guard, "CONT");
    let run = running.wait();
    assert_eq!(run.code, 196, "{}", run.stderr);
    assert!(Path::new(&saved).exists(), "{}", run.stderr);
}

#[test]
fn members_that_fork_and_let_the_parent_exit_stand_still_too() {
    let scratch = Scratch::new("ctrl-z-forks");
    let mark = scratch.mark();
    // By a variable: the command lines of guard and agent do not have the mark then.
    let chain = "import os, time
end = time.time() + 60
while time.time() < end:
    if os.fork(): os._exit(0)
    os.setsid()
    time.sleep(0.0005)";
    let member = format!("for i in 1 2; do python3 -c '{chain}' $MARK-chain & done; exec sleep 100");
    let running = Job::here(&["--workers", "2", "--grace", "1s"])
        .variable("MARK", &mark)
        .script(&member)
        .start_as_a_shell_does();
    let guard = running.pid();
    let chain = || processes_with(&format!("{mark}-chain"));
    wait_until("the chains", || chain().len() >= 3);
    for _ in 0..8 {
        kill(guard, "TSTP");
        wait_until("the guard to stop", || state(guard) == Some('T'));
        // Or they wait for a child that was stopped before its exec, which is a wait that nothing interrupts.
        let stands = |pid: &u32| matches!(state(*pid), Some('T' | 'D'));
        wait_until("all to stand still, and nobody new to come", || {
            let before = chain();
            std::thread::sleep(Duration::from_millis(200));
            !before.is_empty() && before.iter().all(stands) && chain() == before
        });
        kill(guard, "CONT");
        wait_until("them to go on", || chain().iter().any(|&pid| state(pid) != Some('T')));
    }
    kill(guard, "TERM");
    let run = running.wait();
    assert_eq!(run.code, 196, "{}", run.stderr);
    assert_eq!(chain(), Vec::<u32>::new());
}

#[test]
fn a_member_that_cannot_be_ended_is_given_up_once() {
    let trace = "import ctypes, os, sys, time
libc = ctypes.CDLL(None, use_errno=True)
assert libc.ptrace(0x4206, int(sys.argv[1]), None, None) == 0, ctypes.get_errno()
print('traced', flush=True)
time.sleep(60)";
    let running = Job::here(&["--workers", "1", "--grace", "1s"]).script("exec sleep 100").start();
    let stuck = running.member_pids(1)[0];
    let mut tracer = Command::new("python3")
        .args(["-c", trace, &stuck.to_string()])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = [0; 6];
    std::io::Read::read_exact(tracer.stdout.as_mut().unwrap(), &mut line).unwrap();
    let asked = std::time::Instant::now();
    running.signal("TERM");
    let run = running.wait();
    let took = asked.elapsed();
    tracer.kill().unwrap();
    tracer.wait().unwrap();
    assert_eq!(run.code, 196, "{}", run.stderr);
    // The grace and 3 s, and not 3 s more for the agent and 3 s more for the guard.
    assert!(took < Duration::from_millis(8500), "{took:?}");
}

#[test]
fn a_named_pipe_in_place_of_the_configuration_is_refused() {
    let scratch = Scratch::new("pipe-config");
    assert!(Command::new("mkfifo").arg(scratch.path("rallypoint.toml")).status().unwrap().success());
    let mut child = Command::new(env!("CARGO_BIN_EXE_rallypoint"))
        .args(["run", "--workers", "1", "--", "true"])
        .current_dir(scratch.path(""))
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let pid = child.id();
    let until = std::time::Instant::now() + Duration::from_secs(20);
    while child.try_wait().unwrap().is_none() && std::time::Instant::now() < until {
        std::thread::sleep(Duration::from_millis(10));
    }
    if child.try_wait().unwrap().is_none() {
        kill(pid, "KILL");
    }
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("rallypoint.toml is no regular file"), "{said}");
}
