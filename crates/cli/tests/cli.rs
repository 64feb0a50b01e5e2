//! The real command: what it prints, where, and how it exits.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A command without the variables of whatever runs the tests.
fn rallypoint(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rallypoint"));
    command.args(args).env_clear().stdin(Stdio::null());
    command
}

struct Ran {
    code: i32,
    stdout: String,
    stderr: String,
}

fn ran(output: Output) -> Ran {
    Ran {
        code: output.status.code().unwrap(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

fn run(args: &[&str]) -> Ran {
    ran(rallypoint(args).output().unwrap())
}

/// What a good call prints; it must say nothing else.
fn prints(args: &[&str]) -> String {
    let ran = run(args);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{args:?}");
    ran.stdout
}

/// What a bad call says; it must leave stdout empty.
fn refuses(args: &[&str]) -> String {
    let ran = run(args);
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{args:?}: {}", ran.stderr);
    ran.stderr
}

fn repository(path: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path).to_str().unwrap().to_owned()
}

fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap()
}

/// A folder that goes away with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("rallypoint-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn hostlist_expands_folds_and_counts() {
    assert_eq!(prints(&["hostlist", "expand", "n[08-11]-ib", "m1"]), "n08-ib\nn09-ib\nn10-ib\nn11-ib\nm1\n");
    assert_eq!(prints(&["hostlist", "expand", ""]), "");
    assert_eq!(prints(&["hostlist", "fold", "n10", "n9", "n8"]), "n[8-10]\n");
    assert_eq!(prints(&["hostlist", "fold", "--keep-order", "n10", "n8", "n9"]), "n[10,8-9]\n");
    assert_eq!(prints(&["hostlist", "count", "n[1-1000000]"]), "1000000\n");
}

#[test]
fn hostlist_reads_standard_input() {
    let mut child =
        rallypoint(&["hostlist", "fold"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"n3\nn1\nn2\n").unwrap();
    assert_eq!(ran(child.wait_with_output().unwrap()).stdout, "n[1-3]\n");
}

#[test]
fn a_reader_that_has_enough_is_no_error() {
    let mut child = rallypoint(&["hostlist", "expand", "n[1-4000000]"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let ran = ran(child.wait_with_output().unwrap());
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
}

#[test]
fn expanding_a_million_names_does_not_hold_them() {
    let script = format!(
        "ulimit -v 40000; {} hostlist expand 'n[0000001-3000000]' | tail -1",
        env!("CARGO_BIN_EXE_rallypoint")
    );
    let output = Command::new("sh").args(["-c", &script]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "n3000000\n");
}

#[test]
fn plan_for_hosts_given_by_hand() {
    let table = prints(&[
        "plan",
        "--nodes",
        "n[01-02]",
        "--tasks-per-node",
        "4",
        "--gpus-per-node",
        "4",
        "--ps",
        "2",
        "--place",
        "spread",
    ]);
    insta::assert_snapshot!(table, @r"
    Hosts given by hand: 8 members (2 ps, 6 workers) on 2 hosts

    HOST  RANK  ROLE    INDEX  DEVICES  CPUS
    n01      0  ps          0  -           ?
    n01      1  worker      0  0           ?
    n01      2  worker      1  1           ?
    n01      3  worker      2  2           ?

    n02      4  ps          1  -           ?
    n02      5  worker      3  0           ?
    n02      6  worker      4  1           ?
    n02      7  worker      5  2           ?

    note: n[01-02]: 4 GPUs do not divide among 3 members, 1 stay free
    ");
}

#[test]
fn plan_of_a_captured_task() {
    let table = prints(&["plan", "--environ", &repository("examples/sample/job.env"), "--chief"]);
    insta::assert_snapshot!(table, @r"
    Slurm job 2: 4 members (1 chief, 3 workers) on 2 hosts; this is worker 1, rank 2

    HOST  RANK  ROLE    INDEX  DEVICES  CPUS
    n01      0  chief       0  0,1         1
    n01      1  worker      0  2,3         1

    n02      2  worker      1  0,1         1  <- this process
    n02      3  worker      2  2,3         1
    ");
}

#[test]
fn plan_as_json_has_the_documented_keys() {
    let plan =
        json(&prints(&["plan", "--json", "--environ", &repository("examples/sample/job.env"), "--ps", "1"]));
    assert_eq!(plan["scheduler"], "slurm");
    assert_eq!(plan["job"], "2");
    assert_eq!(plan["attempt"], 0);
    assert_eq!(plan["world"], 4);
    assert_eq!(plan["self"]["rank"], 2);
    assert_eq!(
        plan["members"][3],
        serde_json::json!({"rank": 3, "role": "worker", "index": 2, "host": "n02", "local_rank": 1, "devices": ["2", "3"], "cpus": 1})
    );
    let ahead = json(&prints(&["plan", "--json", "--nodes", "n[1-2]"]));
    assert!(ahead.get("self").is_none());
    assert!(ahead["job"].is_null());
}

#[test]
fn plan_of_htcondor_jobs_finds_ads_beside_the_environment() {
    let environ = repository("tests/fixtures/htcondor/parallel_node1/job.env");
    let plan = json(&prints(&["plan", "--json", "--environ", &environ, "--job-ad", "job.ad", "--ps", "1"]));
    assert_eq!(plan["scheduler"], "htcondor");
    assert_eq!(plan["self"]["rank"], 1);
    assert_eq!(plan["members"][0]["host"], "ex2.lab");
    let vanilla = repository("tests/fixtures/htcondor/vanilla_gpu_proc0/job.env");
    let plan = json(&prints(&[
        "plan",
        "--json",
        "--environ",
        &vanilla,
        "--job-ad",
        "job.ad",
        "--machine-ad",
        "machine.ad",
    ]));
    assert_eq!(plan["members"][0]["host"], "ex1.lab");
    assert!(plan["members"][1].get("host").is_none());
    assert!(refuses(&["plan", "--environ", &vanilla, "--job-ad", "nosuch.ad"]).contains("nosuch.ad"));
}

#[test]
fn plan_on_a_plain_machine_has_as_many_members_as_asked_for() {
    let plan = json(&prints(&["plan", "--json", "--ps", "1", "--workers", "2"]));
    assert_eq!(plan["scheduler"], "local");
    assert_eq!(plan["world"], 3);
    assert!(plan.get("self").is_none());
}

#[test]
fn gpus_are_counted_with_nvidia_smi_where_no_mask_is_set() {
    use std::os::unix::fs::PermissionsExt;
    let scratch = Scratch::new("smi");
    let smi = scratch.file(
        "nvidia-smi",
        "#!/bin/sh\necho 'GPU 0: Tesla K80 (UUID: GPU-aa)'\necho 'GPU 1: Tesla K80 (UUID: GPU-bb)'\n",
    );
    std::fs::set_permissions(&smi, std::fs::Permissions::from_mode(0o755)).unwrap();
    let devices = |variables: &[(&str, &str)], args: &[&str]| {
        let output =
            rallypoint(args).env("PATH", &scratch.0).envs(variables.iter().copied()).output().unwrap();
        let plan = json(&ran(output).stdout);
        plan["members"].as_array().unwrap().iter().map(|member| member["devices"].clone()).collect::<Vec<_>>()
    };
    let two = ["plan", "--json", "--workers", "2"];
    assert_eq!(devices(&[], &two), [serde_json::json!(["0"]), serde_json::json!(["1"])]);
    assert_eq!(
        devices(&[("CUDA_VISIBLE_DEVICES", "7,5")], &two),
        [serde_json::json!(["7"]), serde_json::json!(["5"])]
    );
    assert_eq!(
        devices(&[("CUDA_VISIBLE_DEVICES", "")], &two),
        [serde_json::json!([]), serde_json::json!([])]
    );
    assert_eq!(devices(&[("ROCR_VISIBLE_DEVICES", "3")], &["plan", "--json"]), [serde_json::json!(["3"])]);
}

#[test]
fn what_the_user_says_wins() {
    let environ = repository("examples/sample/job.env");
    let plan = |more: &[&str]| json(&prints(&[&["plan", "--json", "--environ", &environ], more].concat()));
    assert_eq!(plan(&["--on", "local"])["scheduler"], "local");
    assert_eq!(plan(&["--gpus-per-task", "1"])["members"][3]["devices"], serde_json::json!(["1"]));
    assert_eq!(plan(&["--gpus-per-node", "2"])["members"][3]["devices"], serde_json::json!(["1"]));
    assert_eq!(plan(&["--no-gpu-binding"])["members"][3]["devices"], serde_json::json!(["0", "1", "2", "3"]));
    assert_eq!(plan(&["--cpus-per-task", "5"])["members"][0]["cpus"], 5);
    assert_eq!(plan(&["--ps", "1", "--ps-gpus", "1"])["members"][0]["devices"], serde_json::json!(["0"]));
    assert!(
        refuses(&["plan", "--environ", &environ, "--gpus-per-node", "8"])
            .contains("n01 has 4 GPUs (0,1,2,3), but 8 per node are asked for")
    );
    assert!(refuses(&["plan", "--environ", &environ, "--gpus-per-task", "3"]).contains("2 tasks x 3"));
}

#[test]
fn env_in_every_format() {
    let base = [
        "env",
        "--nodes",
        "t02n13,t02n41",
        "--tasks-per-node",
        "2",
        "--gpus-per-node",
        "4",
        "--ps",
        "1",
        "--rank",
        "3",
    ];
    let with = |more: &[&str]| prints(&[&base, more].concat());
    assert_eq!(
        with(&["--format", "tf-config", "--port-base", "1337"]),
        "{\"cluster\":{\"ps\":[\"t02n13:1337\"],\"worker\":[\"t02n13:1338\",\"t02n41:1337\",\"t02n41:1338\"]},\"task\":{\"type\":\"worker\",\"index\":2}}\n"
    );
    let variables = json(&with(&["--format", "json"]));
    assert_eq!(variables["CUDA_VISIBLE_DEVICES"], "2,3");
    assert_eq!(variables["RALLYPOINT_ADDRESS"], "t02n41:8889");
    assert_eq!(variables["RALLYPOINT_ROLE"], "worker");
    let shell = with(&["--format", "shell"]);
    assert!(shell.contains("export RALLYPOINT_RANK=3\n"), "{shell}");
    assert!(shell.contains("export TF_CONFIG='{\"cluster\""), "{shell}");
    let evaluator = prints(&[
        "env",
        "--nodes",
        "n1",
        "--evaluator",
        "--workers",
        "1",
        "--rank",
        "0",
        "--format",
        "tf-config",
    ]);
    assert_eq!(
        evaluator,
        "{\"cluster\":{\"worker\":[\"n1:8889\"]},\"task\":{\"type\":\"evaluator\",\"index\":0}}\n"
    );
}

#[test]
fn env_as_a_server_def_is_tensorflows_message() {
    let output = rallypoint(&[
        "env",
        "--nodes",
        "a,b",
        "--ps",
        "1",
        "--workers",
        "1",
        "--rank",
        "1",
        "--format",
        "server-def",
    ])
    .output()
    .unwrap();
    // ServerDef { cluster: { job: [{name: "ps", tasks: {0: "a:8888"}}, {name: "worker", ...}] }, job_name: 2, protocol: 5, port: 6 }
    let job = |name: &[u8], address: &[u8]| {
        let entry = [b"\x12".as_slice(), &[address.len() as u8], address].concat();
        let task = [b"\x12".as_slice(), &[entry.len() as u8], &entry].concat();
        let body = [b"\x0a".as_slice(), &[name.len() as u8], name, &task].concat();
        [b"\x0a".as_slice(), &[body.len() as u8], &body].concat()
    };
    let cluster = [job(b"ps", b"a:8888"), job(b"worker", b"b:8888")].concat();
    let expected = [
        b"\x0a".as_slice(),
        &[cluster.len() as u8],
        &cluster,
        b"\x12\x06worker",
        b"\x2a\x04grpc",
        b"\x30\xb8\x45",
    ]
    .concat();
    assert_eq!(output.stdout, expected);
}

#[test]
fn env_honours_reserved_ports_and_address_rules() {
    let scratch = Scratch::new("ports");
    let sample = std::fs::read_to_string(repository("examples/sample/job.env")).unwrap();
    let environ = scratch.file("job.env", &format!("{sample}SLURM_STEP_RESV_PORTS=12000-12001\n"));
    let address = |more: &[&str]| {
        json(&prints(&[&["env", "--format", "json", "--environ", &environ], more].concat()))["RALLYPOINT_ADDRESS"].clone()
    };
    assert_eq!(address(&[]), "n02:12000");
    assert_eq!(address(&["--rank", "3"]), "n02:12001");
    assert_eq!(address(&["--port-base", "9000"]), "n02:9000");
    assert_eq!(address(&["--host-suffix", "-ib"]), "n02-ib:12000");
    assert_eq!(address(&["--host-map", r"s/^n(\d\d)$/172.28.0.\1/"]), "172.28.0.2:12000");
    assert!(refuses(&["env", "--environ", &environ, "--interface", "lo"]).contains("--host-suffix"));
    let one_port = scratch.file("one.env", &format!("{sample}SLURM_STEP_RESV_PORTS=12000\n"));
    assert!(refuses(&["env", "--environ", &one_port]).contains("reserves 1 ports"));
    let local = json(&prints(&["env", "--format", "json", "--workers", "1", "--network", "127.0.0.0/8"]));
    assert_eq!(local["RALLYPOINT_ADDRESS"], "127.0.0.1:8888");
}

#[test]
fn env_needs_to_know_who_and_where() {
    assert!(refuses(&["env", "--nodes", "n1", "--workers", "2"]).contains("hint: give --rank 0 to --rank 1"));
    assert!(
        refuses(&["env", "--nodes", "n1", "--workers", "2", "--rank", "2"]).contains("rank 2 does not exist")
    );
    let vanilla = repository("tests/fixtures/htcondor/vanilla_proc0/job.env");
    assert!(
        refuses(&["env", "--environ", &vanilla, "--job-ad", "job.ad"])
            .contains("the host of 2 of 3 members is not known")
    );
}

#[test]
fn check_tells_what_is_wrong_and_exits_1() {
    let files: Vec<String> = ["ps", "worker_0", "worker_1"]
        .iter()
        .map(|name| repository(&format!("examples/sample/tf_confs/{name}.json")))
        .collect();
    let args: Vec<&str> = ["check"].into_iter().chain(files.iter().map(String::as_str)).collect();
    let found = run(&args);
    assert_eq!((found.code, found.stderr.as_str()), (1, ""));
    assert!(found.stdout.contains("has port 2223 for worker 1, but"), "{}", found.stdout);
    let found = run(&[&args[..], &["--json"]].concat());
    let report = json(&found.stdout);
    assert_eq!((found.code, report["ok"].as_bool()), (1, Some(false)));
    assert_eq!(report["findings"][0]["kind"], "address-differs");
    assert!(prints(&args[..2]).starts_with("1 file of 3: nothing wrong\n"));
    assert!(refuses(&["check", "nosuch.json"]).contains("cannot read nosuch.json"));
    assert!(refuses(&["check", &repository("README.md")]).contains("not JSON"));
}

#[test]
fn doctor_never_fails() {
    let report = prints(&["doctor"]);
    assert!(report.starts_with("scheduler   a plain machine"), "{report}");
    assert!(report.contains("there is no python3 on PATH"), "{report}");
    let output = rallypoint(&["doctor", "--json"])
        .envs([
            ("SLURM_JOB_ID", "7"),
            ("CUDA_VISIBLE_DEVICES", "x"),
            ("http_proxy", "http://p:1"),
            ("PATH", "/nosuch"),
        ])
        .output()
        .unwrap();
    let ran = ran(output);
    assert_eq!(ran.code, 0);
    let report = json(&ran.stdout);
    assert_eq!(report["scheduler"]["name"], "slurm");
    assert!(report["scheduler"]["context"].as_str().unwrap().contains("start it with srun"));
    assert!(report["gpus"]["how"].as_str().unwrap().contains("is not a GPU"));
    assert_eq!(report["proxies"][0]["name"], "http_proxy");
    assert!(report["interfaces"].as_array().unwrap().iter().any(|interface| interface["kind"] == "loopback"));
}

#[test]
fn bad_input_says_what_and_leaves_stdout_empty() {
    let scratch = Scratch::new("bad");
    let rubbish = scratch.file("rubbish.env", "\u{0}nothing here\n");
    let no_step = scratch.file("job.env", "SLURM_JOB_ID=5\n");
    for (args, words) in [
        (vec!["hostlist", "expand", "n[1-"], "never closed"),
        (vec!["hostlist", "count", "n[a-b]"], "expected a number"),
        (vec!["plan", "--workers", "many"], "hint: --workers rest"),
        (vec!["plan", "--roles", "ps,worker*"], "hint: write worker*3"),
        (
            vec!["plan", "--nodes", "n[1-2]", "--tasks-per-node", "2", "--workers", "3"],
            "3 members asked for (3 workers), but the allocation has 4 tasks",
        ),
        (vec!["plan", "--nodes", "n[1-2]", "--tasks-per-node", "0"], "leaves nobody to run"),
        (vec!["plan", "--nodes", ""], "the nodes name no host"),
        (vec!["plan", "--environ", "nosuch.env"], "cannot read nosuch.env"),
        (vec!["plan", "--environ", &rubbish], "expected KEY=VALUE"),
        (
            vec!["plan", "--environ", &no_step],
            "SLURM_STEP_NODELIST is not set, though SLURM_JOB_ID is\nhint: start it with srun",
        ),
        (vec!["plan", "--on", "htcondor"], "_CONDOR_JOB_AD is not set"),
        (vec!["plan", "--on", "slurm"], "SLURM_JOB_ID is not set"),
        (vec!["env", "--workers", "1", "--network", "10.1"], "is not a network"),
        (vec!["env", "--workers", "1", "--interface", "nosuch0"], "interface nosuch0 has no address here"),
        (vec!["env", "--workers", "1", "--host-map", "s/x"], "three parts"),
        (vec!["env", "--workers", "1", "--port-base", "0"], "--port-base"),
        (vec!["nosuch"], "unrecognized subcommand"),
        (vec!["plan", "--nosuch"], "unexpected argument"),
    ] {
        let said = refuses(&args);
        assert!(said.contains(words), "{args:?}: {said}");
        assert!(said.starts_with("error: "), "{args:?}: {said}");
    }
}

#[test]
fn completions_name_the_commands() {
    for shell in ["bash", "zsh", "fish"] {
        let script = prints(&["completions", shell]);
        assert!(script.contains("hostlist") && script.contains("gpus-per-task"), "{shell}");
    }
}

#[test]
fn help_has_examples() {
    for command in [
        vec!["--help"],
        vec!["plan", "--help"],
        vec!["env", "--help"],
        vec!["check", "--help"],
        vec!["hostlist", "expand", "--help"],
    ] {
        assert!(prints(&command).contains("Example"), "{command:?}");
    }
}
