//! What new users hit first: files that are obeyed or not, words forgotten, programs that cannot run.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod job;

use job::{Job, Scratch};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

/// Exit code, stdout and stderr of `rallypoint ARGS` in a folder, with these variables and PATH alone.
fn rallypoint(folder: &Scratch, args: &[&str], variables: &[(&str, &str)]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_rallypoint"))
        .args(args)
        .current_dir(folder.path(""))
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
}

fn write(folder: &Scratch, name: &str, text: &str, mode: u32) {
    std::fs::write(folder.path(name), text).unwrap();
    std::fs::set_permissions(folder.path(name), PermissionsExt::from_mode(mode)).unwrap();
}

#[test]
fn an_option_may_require_what_stands_in_the_file() {
    let folder = Scratch::new("requires");
    write(&folder, "rallypoint.toml", "[run]\nlog-dir = 'logs'\n", 0o644);
    let (code, stdout, stderr) =
        rallypoint(&folder, &["run", "--workers", "1", "--tee", "--", "echo", "hello"], &[]);
    assert_eq!((code, stdout.as_str()), (0, "[worker 0] hello\n"), "{stderr}");
    assert_eq!(
        std::fs::read_to_string(folder.path("logs/attempt-0/worker-0.out")).unwrap(),
        "hello\n",
        "{stderr}"
    );
}

#[test]
fn a_file_that_others_may_write_is_not_obeyed() {
    let folder = Scratch::new("not-yours");
    let run = ["run", "--workers", "1", "--", "echo", "hello"];
    write(&folder, "rallypoint.toml", "[run]\nps = 0\n", 0o664);
    let (code, stdout, stderr) = rallypoint(&folder, &run, &[]);
    assert_eq!((code, stdout.as_str()), (2, ""), "{stderr}");
    assert!(
        stderr.contains("rallypoint.toml may be written by others than its owner (mode 664)"),
        "{stderr}"
    );
    assert!(stderr.contains("hint: chmod go-w rallypoint.toml"), "{stderr}");
    // Commands that read nothing from it go on.
    let (code, ..) = rallypoint(&folder, &["hostlist", "count", "n[1-3]"], &[]);
    assert_eq!(code, 0);
    write(&folder, "rallypoint.toml", "[run]\nps = 0\n", 0o644);
    write(&folder, "named.toml", "[run]\nps = 0\n", 0o646);
    let (code, _, stderr) = rallypoint(&folder, &run, &[("RALLYPOINT_CONFIG", "named.toml")]);
    assert_eq!(code, 2);
    assert!(stderr.contains("named.toml may be written by others"), "{stderr}");
    let (code, _, stderr) = rallypoint(&folder, &run, &[]);
    assert_eq!(code, 0, "{stderr}");
}

/// Below what the kernel gives out by itself, so that no other test gets them meanwhile.
fn free_ports(count: usize) -> Vec<u16> {
    let start = 21000 + (std::process::id() % 800) as u16 * 10;
    (start..start + 900).step_by(3).filter(|&port| job::port_is_free(port)).take(count).collect()
}

#[test]
fn reserved_ports_are_taken_exactly() {
    let folder = Scratch::new("reserved");
    let ports = free_ports(2);
    let [first, last] = ports[..] else { panic!("{ports:?}") };
    let in_step = |reserved: String| {
        let step = [
            ("SLURM_JOB_ID", "7"),
            ("SLURM_STEP_ID", "0"),
            ("SLURM_STEP_NODELIST", "n1"),
            ("SLURM_STEP_TASKS_PER_NODE", "1"),
            ("SLURM_PROCID", "0"),
            ("SLURMD_NODENAME", "n1"),
            ("SLURM_STEP_RESV_PORTS", &reserved),
        ];
        rallypoint(&folder, &["run", "--", "sh", "-c", "echo ${RALLYPOINT_ADDRESS##*:}"], &step)
    };
    let told = |out: &str| out.trim_start_matches("[worker 0] ").trim().parse::<u16>().unwrap();
    let (code, stdout, stderr) = in_step(first.to_string());
    assert_eq!((code, told(&stdout)), (0, first), "one reserved port: {stderr}");
    // The list's first one is taken: the next one is the last, and nothing between.
    let holder = std::net::TcpListener::bind(("::", first)).unwrap();
    let (code, stdout, stderr) = in_step(format!("{first},{last}"));
    assert_eq!((code, told(&stdout)), (0, last), "a list is no range: {stderr}");
    drop(holder);
}

#[test]
fn a_base_without_room_names_the_true_cause() {
    let folder = Scratch::new("base");
    let args = ["run", "--workers", "2", "--port-base", "65535", "--", "true"];
    let (code, _, stderr) = rallypoint(&folder, &args, &[]);
    assert_eq!(code, 197, "{stderr}");
    assert!(stderr.contains("port base 65535: member 1 of its host"), "{stderr}");
    assert!(stderr.contains("hint: choose a lower base"), "{stderr}");
}

/// Private folders in a folder of temporary files.
fn private_folders(tmp: &str) -> Vec<String> {
    let names = std::fs::read_dir(tmp).unwrap().flatten();
    let names = names.map(|entry| entry.file_name().into_string().unwrap());
    names.filter(|name| name.starts_with("rallypoint-") && !name.starts_with("rallypoint-test-")).collect()
}

#[test]
fn a_refused_requeue_leaves_no_private_folder() {
    let folder = Scratch::new("refused");
    let tmp = folder.path("");
    let (code, _, stderr) =
        rallypoint(&folder, &["run", "--requeue-on", "7", "--", "true"], &[("TMPDIR", &tmp)]);
    assert_eq!(code, 2, "{stderr}");
    assert!(stderr.contains("the job cannot be requeued: a plain machine has no queue"), "{stderr}");
    assert_eq!(private_folders(&tmp), Vec::<String>::new());
}

#[test]
fn the_private_folder_lives_as_long_as_the_guard_or_the_agent() {
    let folder = Scratch::new("private");
    let tmp = folder.path("");
    let start = || {
        let job = job::Job::here(&["--workers", "1", "--grace", "1s"]).variable("TMPDIR", &tmp);
        let running = job.script("echo started; exec sleep 60").start();
        running.wait_for_output("started");
        assert_eq!(private_folders(&tmp).len(), 1);
        running
    };
    // The guard removes it after an agent that was killed, and the agent after such a guard.
    for who in ["agent", "guard"] {
        let running = start();
        let pid = if who == "agent" { running.agent() } else { running.pid() };
        job::kill(pid, "KILL");
        running.wait();
        job::wait_until("the private folder to go", || private_folders(&tmp).is_empty());
    }
}

#[test]
fn a_full_dev_shm_is_not_needed() {
    let folder = Scratch::new("full-shm");
    let namespace = ["--user", "--map-root-user", "--mount"];
    let possible = Command::new("unshare").args(namespace).arg("true").status();
    if !possible.is_ok_and(|status| status.success()) {
        // No namespaces here, so no file system of one's own that could be full.
        return;
    }
    let script = "mount -t tmpfs -o size=16k,mode=1777 none /dev/shm || exit 99
        head -c 16384 /dev/zero > /dev/shm/full
        \"$0\" run --workers 1 -- sh -c 'dirname \"$RALLYPOINT_ROSTER_FILE\"'; code=$?
        ls -A /dev/shm; exit $code";
    let output = Command::new("unshare")
        .args(namespace)
        .args(["sh", "-c", script, env!("CARGO_BIN_EXE_rallypoint")])
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .current_dir(folder.path(""))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{stdout}{stderr}");
    assert!(stdout.contains("[worker 0] /tmp/rallypoint-"), "{stdout}{stderr}");
    assert!(stdout.ends_with("\nfull\n"), "nothing half made is left: {stdout}{stderr}");
}

#[test]
fn what_is_quoted_cannot_harm_the_terminal() {
    let folder = Scratch::new("printable");
    let hostile = format!("\x1b]0;title\x07\x1b[2J{}", "n".repeat(26_000));
    let step = [
        ("SLURM_JOB_ID", "7"),
        ("SLURM_STEP_ID", "0"),
        ("SLURM_PROCID", "0"),
        ("SLURM_STEP_NODELIST", hostile.as_str()),
        ("SLURM_STEP_TASKS_PER_NODE", hostile.as_str()),
    ];
    for args in [&["plan"][..], &["plan", "--ps", &hostile], &["run", "--", &hostile], &["run", &hostile]] {
        let (code, _, stderr) = rallypoint(&folder, args, &step);
        assert_eq!(code, 2, "{stderr:?}");
        assert!(!stderr.contains(['\x1b', '\x07']), "{stderr:?}");
        // A host list's error points at the place, with a dot for each such character.
        assert!(stderr.contains("\\x1b[2J") || stderr.contains("··[2J"), "{stderr:?}");
        assert!(stderr.contains("more characters"), "{stderr:?}");
        assert!(stderr.len() < 3000, "{} bytes: {stderr:?}", stderr.len());
    }
    // What is printed for people, too.
    let named =
        [("SLURM_JOB_ID", "7\x1b[31m\n8"), ("SLURM_STEP_ID", "0"), ("http_proxy", "x\x1b[2J\nhost  evil")];
    let (code, stdout, stderr) = rallypoint(&folder, &["doctor"], &named);
    assert_eq!(code, 0, "{stderr}");
    assert!(
        stdout.contains("\\x1b[") && !stdout.contains('\x1b') && !stdout.contains("\nhost  evil"),
        "{stdout:?}"
    );
    let job = [
        ("SLURM_JOB_ID", "7\x1b[31m"),
        ("SLURM_STEP_ID", "0"),
        ("SLURM_PROCID", "0"),
        ("SLURM_STEP_NODELIST", "n1"),
        ("SLURM_STEP_TASKS_PER_NODE", "2"),
    ];
    for args in [&["plan"][..], &["run", "--dry-run"]] {
        let (code, stdout, stderr) = rallypoint(&folder, args, &job);
        assert_eq!(code, 0, "{stderr}");
        assert!(stdout.starts_with("Slurm job 7\\x1b[31m: 2 members"), "{stdout:?}");
    }
    let (_, json, _) = rallypoint(&folder, &["plan", "--json"], &job);
    assert!(json.contains("7\\u001b[31m"), "JSON has its own way: {json}");
    // A member's own lines stay as they are; what rallypoint quotes of them does not.
    let script = ["run", "--workers", "1", "--", "sh", "-c", "printf '\\033[31mred\\n' >&2; exit 7"];
    let (code, _, stderr) = rallypoint(&folder, &script, &[]);
    assert_eq!(code, 7);
    assert!(stderr.contains("[worker 0] \x1b[31mred\n"), "{stderr:?}");
    let quoted = stderr.lines().find(|line| line.starts_with("rallypoint:   | ")).unwrap_or_default();
    assert!(quoted.ends_with("[31mred") && !quoted.contains('\x1b'), "{stderr:?}");
}

#[test]
fn a_forgotten_pair_of_dashes_gets_a_hint() {
    let folder = Scratch::new("dashes");
    let (code, stdout, stderr) = rallypoint(&folder, &["run", "--ps", "1", "python", "train.py"], &[]);
    assert_eq!((code, stdout.as_str()), (2, ""));
    assert!(
        stderr.ends_with("hint: put -- before the program: rallypoint run --ps 1 -- python train.py\n"),
        "{stderr}"
    );
}

#[test]
fn a_role_that_nobody_has_is_refused() {
    let folder = Scratch::new("wroker");
    for (option, value) in [("--restart", "wroker=1"), ("--tolerate", "wroker")] {
        let args = ["run", "--ps", "1", "--workers", "1", option, value, "--", "true"];
        let (code, _, stderr) = rallypoint(&folder, &args, &[]);
        assert_eq!(code, 2, "{stderr}");
        let says = format!(
            "error: no member of this job has the role wroker, there are ps, worker\nhint: name one of those for {option}\n"
        );
        assert!(stderr.starts_with(&says), "{stderr}");
    }
}

/// Sixteen tasks said the same 191 lines; the leader says all of it, everyone else one line.
#[test]
fn a_failure_is_told_in_full_once() {
    let folder = Scratch::new("once");
    let meet = folder.path("meet");
    let script = "[ $RALLYPOINT_RANK = 3 ] || exec sleep 60
        for line in 1 2 3 4 5 6 7 8; do echo trouble $line >&2; done; exit 7";
    let jobs: Vec<_> = (0..16)
        .map(|_| {
            job::Job::here(&["--workers", "16", "--meet", &meet, "--grace", "2s"]).script(script).start()
        })
        .collect();
    let ran: Vec<job::Ran> = jobs.into_iter().map(job::Running::wait).collect();
    let mut in_full = 0;
    for ran in &ran {
        assert_eq!(ran.code, 7, "{}", ran.stderr);
        let about = |words: &str| ran.stderr.lines().filter(|line| line.contains(words)).count();
        assert_eq!(about("first failure: worker 3 on "), 1, "{}", ran.stderr);
        match about("rallypoint:   | trouble") {
            0 => assert_eq!(about("exit code 7; see the leader's lines"), 1, "{}", ran.stderr),
            8 => in_full += 1,
            some => panic!("{some} lines: {}", ran.stderr),
        }
    }
    assert_eq!(in_full, 1);
}

#[test]
fn an_output_that_cannot_be_opened_is_named() {
    let folder = Scratch::new("named");
    write(&folder, "file", "", 0o644);
    for (option, place) in [("--log-dir", "file/logs"), ("--events", "missing/events.jsonl")] {
        let (code, _, stderr) =
            rallypoint(&folder, &["run", "--workers", "1", option, place, "--", "true"], &[]);
        assert_eq!(code, 197, "{stderr}");
        assert!(stderr.contains(place) && stderr.contains(&format!("with {option}\n")), "{stderr}");
    }
}

#[test]
fn a_plan_in_a_step_is_printed_by_task_0() {
    let folder = Scratch::new("plan-once");
    let printed = |rank: &str, args: &[&str]| {
        let step = [
            ("SLURM_JOB_ID", "7"),
            ("SLURM_STEP_ID", "0"),
            ("SLURM_STEP_NODELIST", "n[1-2]"),
            ("SLURM_STEP_TASKS_PER_NODE", "2(x2)"),
            ("SLURM_PROCID", rank),
        ];
        let (code, stdout, stderr) = rallypoint(&folder, args, &step);
        assert_eq!(code, 0, "{stderr}");
        stdout
    };
    for args in [&["plan", "--ps", "1"][..], &["run", "--ps", "1", "--dry-run"]] {
        assert!(printed("0", args).starts_with("Slurm job 7: 4 members (1 ps, 3 workers)"));
        assert_eq!(printed("2", args), "");
    }
    // Each task's script wants its own.
    for rank in ["0", "2"] {
        let json = printed(rank, &["plan", "--ps", "1", "--json"]);
        assert!(json.starts_with('{') && json.contains(&format!("\"self\":{{\"rank\":{rank}}}")), "{json}");
    }
    // Who asks for it in every task gets it.
    assert!(printed("2", &["plan", "--ps", "1", "--all-ranks"]).contains("this is worker 1, rank 2"));
    assert!(printed("2", &["plan", "--ps", "1", "--all-ranks", "--json"]).starts_with('{'));
    write(
        &folder,
        "job.env",
        "SLURM_JOB_ID=7\nSLURM_STEP_ID=0\nSLURM_STEP_NODELIST=n1\nSLURM_STEP_TASKS_PER_NODE=3\nSLURM_PROCID=2\n",
        0o644,
    );
    assert!(printed("1", &["plan", "--environ", "job.env"]).contains("rank 2"), "a captured task");
}

#[test]
fn a_script_that_is_not_executable_is_told_as_that() {
    let folder = Scratch::new("not-executable");
    write(&folder, "x.py", "print('hello')\n", 0o644);
    for args in [&["run", "--", "./x.py"][..], &["submit", "slurm", "-n", "1", "--dry-run", "--", "./x.py"]] {
        let (code, _, stderr) = rallypoint(&folder, args, &[]);
        assert_eq!(code, 2, "{stderr}");
        let expected = "error: ./x.py is not executable\nhint: chmod +x ./x.py, or write python ./x.py\n";
        assert_eq!(stderr, expected);
    }
}

const TF_CONFIG: &str = r#"{"cluster": {"ps": ["HOST:23801"], "worker": ["HOST:23802", "HOST:23803"]}, "task": {"type": "worker", "index": 1}}"#;

#[test]
fn a_file_for_another_machine_is_told_with_both_addresses() {
    let folder = Scratch::new("another");
    // For documentation alone (RFC 5737): nobody's address.
    write(&folder, "there.json", &TF_CONFIG.replace("HOST", "192.0.2.7"), 0o644);
    write(&folder, "here.json", &TF_CONFIG.replace("HOST", "localhost"), 0o644);
    let run = |file| rallypoint(&folder, &["run", "--tf-config", file, "--", "true"], &[]);
    let (code, _, stderr) = run("there.json");
    assert_eq!(code, 0, "{stderr}");
    let warning = "warning: there.json is for another machine: the others look for worker 1 at 192.0.2.7:23803, and this machine is ";
    assert!(stderr.contains(warning), "{stderr}");
    let (code, _, stderr) = run("here.json");
    assert!(code == 0 && !stderr.contains("warning"), "{stderr}");
}

#[test]
fn a_check_of_one_file_says_that_it_saw_one() {
    let folder = Scratch::new("one-file");
    write(&folder, "one.json", &TF_CONFIG.replace("HOST", "localhost"), 0o644);
    let (code, stdout, _) = rallypoint(&folder, &["check", "one.json"], &[]);
    assert_eq!(code, 0);
    assert_eq!(
        stdout,
        "1 file of 3: nothing wrong\nThe others were not seen: give the files of all members to have them compared.\n"
    );
    let (_, stdout, _) = rallypoint(&folder, &["check", "--json", "one.json"], &[]);
    assert!(stdout.contains(r#""files":1,"members":3"#), "{stdout}");
}

#[test]
fn make_takes_the_command_from_where_cargo_builds_it() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let output = Command::new("make")
        .args(["--dry-run", "demo"])
        .current_dir(root)
        .env("CARGO_TARGET_DIR", "/elsewhere/target")
        .env_remove("MAKEFLAGS")
        .env_remove("MAKELEVEL")
        .output()
        .unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(told.contains("\n/elsewhere/target/release/rallypoint run --ps 1"), "{told}");
    assert!(!told.contains("touch target/"), "{told}");
}

/// Quiet by default; with `-v` or RALLYPOINT_LOG every decision is told, and never the key.
#[test]
fn decisions_are_told_to_those_who_ask() {
    let scratch = Scratch::new("decisions");
    let job = |args: &[&str], log: &str| {
        let place = scratch.path("meet");
        let all = ["--workers", "1", "--framework", "plain", "--meet", place.as_str()];
        Job::here(&[&all[..], args].concat()).variable("RALLYPOINT_LOG", log).program("true").run()
    };
    assert!(!job(&[], "").stderr.contains("DEBUG"));
    for (args, log) in [(&["-v"][..], ""), (&[][..], "debug")] {
        let ran = job(args, log);
        assert_eq!(ran.code, 0, "{ran:?}");
        assert!(ran.stderr.contains("the search for a leader saw Nobody: Claim"), "{}", ran.stderr);
        assert!(ran.stderr.contains("the job decides [Over]"), "{}", ran.stderr);
        assert!(!ran.stderr.contains("key: Some"), "{}", ran.stderr);
    }
}
