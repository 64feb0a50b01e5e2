//! `rallypoint run --meet`: members that find each other, whoever comes first, whatever happens.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod job;

use job::{Job, Ran, Running, Scratch, wait_until};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

const SERVE_OR_WORK: &str = "echo $RALLYPOINT_RANK; [ $RALLYPOINT_ROLE = ps ] && exec sleep 100; sleep 0.3";

/// One of three members: a ps and two workers.
fn member(folder: &str, args: &[&str], script: &str) -> Running {
    let common = ["--ps", "1", "--workers", "2", "--meet", folder, "--prefix", ""];
    let grace: &[&str] = if args.contains(&"--grace") { &[] } else { &["--grace", "2s"] };
    Job::here(&[&common, grace, args].concat()).script(script).start()
}

fn meeting_file(folder: &str) -> Option<serde_json::Value> {
    let file = std::fs::read_dir(folder)
        .ok()?
        .flatten()
        .find(|entry| entry.path().extension().is_some_and(|e| e == "meet"))?;
    let read = |path| serde_json::from_str(&std::fs::read_to_string(path).ok()?).ok();
    let mut contact: serde_json::Value = read(file.path())?;
    // One that has replaced another stands in a file behind it.
    while let Some(behind) = read(format!("{folder}/.rallypoint-takeover-{}", contact["id"].as_str()?).into())
    {
        contact = behind;
    }
    Some(contact)
}

/// Waits until somebody leads, and tells where it listens.
fn leader_port(folder: &str) -> u16 {
    job::wait_for("a leader", || meeting_file(folder)?["port"].as_u64()).try_into().unwrap()
}

/// All three, rank 0 as the leader.
fn three(folder: &str, args: &[&str], script: &str) -> Vec<Running> {
    let start = |rank: &str| member(folder, &[&["--rank", rank], args].concat(), script);
    let leader = start("0");
    leader.wait_for_output("1 of 3");
    vec![leader, start("1"), start("2")]
}

fn entries(folder: &str) -> usize {
    std::fs::read_dir(folder).unwrap().count()
}

#[test]
fn three_find_each_other_whoever_comes_first() {
    let scratch = Scratch::new("three");
    for ranks in [["0", "1", "2"], ["2", "0", "1"]] {
        let folder = scratch.path(ranks[0]);
        let members: Vec<Running> = ranks
            .iter()
            .map(|rank| {
                let member = member(&folder, &["--rank", rank], SERVE_OR_WORK);
                std::thread::sleep(Duration::from_millis(150));
                member
            })
            .collect();
        for (rank, member) in ranks.iter().zip(members) {
            let run = member.wait();
            assert_eq!((run.code, run.stdout.trim()), (0, *rank), "{}", run.stderr);
        }
        assert_eq!(entries(&folder), 0, "nothing is left");
    }
}

#[test]
fn without_ranks_each_takes_the_next_free_one() {
    let scratch = Scratch::new("free");
    let folder = scratch.path("meet");
    let members: Vec<Running> = (0..3).map(|_| member(&folder, &[], SERVE_OR_WORK)).collect();
    let mut ranks: Vec<String> = members
        .into_iter()
        .map(|member| {
            let run = member.wait();
            assert_eq!(run.code, 0, "{}", run.stderr);
            run.stdout.trim().to_owned()
        })
        .collect();
    ranks.sort();
    assert_eq!(ranks, ["0", "1", "2"]);
}

#[test]
fn the_wait_has_a_limit_and_names_the_missing() {
    let scratch = Scratch::new("missing");
    let folder = scratch.path("meet");
    let first = member(&folder, &["--rank", "1", "--meet-timeout", "2s"], SERVE_OR_WORK);
    leader_port(&folder);
    let second = member(&folder, &["--rank", "0", "--meet-timeout", "2s"], SERVE_OR_WORK);
    for run in [first.wait(), second.wait()] {
        assert_eq!(run.code, 193, "{}", run.stderr);
        assert!(run.stderr.contains("missing: worker 1 (rank 2)"), "{}", run.stderr);
        assert!(run.seconds < 6.0);
    }
    assert_eq!(entries(&folder), 0);
}

#[test]
fn the_first_failure_is_known_to_all() {
    let scratch = Scratch::new("failure");
    let folder = scratch.path("meet");
    let script = "[ $RALLYPOINT_RANK = 2 ] || exec sleep 100; echo why >&2; exit 5";
    let members: Vec<Running> =
        (0..3).map(|rank| member(&folder, &["--rank", &rank.to_string()], script)).collect();
    let mut in_full = 0;
    for member in members {
        let run = member.wait();
        assert_eq!(run.code, 5, "{}", run.stderr);
        assert!(run.stderr.contains("first failure: worker 1 on "), "{}", run.stderr);
        in_full += u32::from(run.stderr.contains("| why"));
    }
    assert_eq!(in_full, 1, "by the leader");
}

#[test]
fn a_member_is_asked_to_end_once_however_many_say_so() {
    let scratch = Scratch::new("once");
    let folder = scratch.path("meet");
    let script =
        "trap 'echo told; told=1' TERM; echo ready; while [ -z \"$told\" ]; do sleep 0.05; done; sleep 1";
    let members = three(&folder, &["--grace", "20s"], script);
    members.iter().for_each(|member| member.wait_for_output("ready"));
    // First a follower's scheduler, then by its word the leader, then the leader's own scheduler.
    for member in [&members[1], &members[0], &members[2]] {
        member.signal("TERM");
        member.wait_for_output("told");
    }
    for member in members {
        let run = member.wait();
        assert_eq!((run.code, run.stdout.as_str()), (196, "ready\ntold\n"), "{}", run.stderr);
    }
}

/// Who is killed, and when.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Stage {
    BetweenOfferAndRoster,
    InTheMiddle,
    DuringTheStop,
}

/// Runs a leader (rank 0) and two followers, kills one agent at a stage, and gives how the others ended.
fn kill_at(stage: Stage, victim: usize) -> (Vec<Ran>, f64) {
    let scratch = Scratch::new(&format!("kill-{stage:?}-{victim}"));
    let folder = scratch.path("meet");
    let mark = scratch.mark();
    // The mark makes the members' processes findable; they heed SIGTERM only slowly during a stop.
    let script = match stage {
        Stage::DuringTheStop => format!(
            "trap 'sleep 1; exit 0' TERM; : {mark}; [ $RALLYPOINT_RANK = 1 ] && {{ sleep 0.5; exit 4; }}; while :; do sleep 0.1; done"
        ),
        _ => format!(": {mark}; while :; do sleep 0.1; done"),
    };
    let count = if stage == Stage::BetweenOfferAndRoster { 2 } else { 3 };
    let mut members = Vec::new();
    for rank in 0..count {
        members.push(member(&folder, &["--rank", &rank.to_string()], &script));
        leader_port(&folder);
    }
    let agents: Vec<u32> = members.iter().map(Running::agent).collect();
    match stage {
        Stage::BetweenOfferAndRoster => members[0].wait_for_output("2 of 3"),
        Stage::InTheMiddle => wait_until("the members", || job::leftovers(&mark).len() >= 3),
        Stage::DuringTheStop => members[0].wait_for_output("has failed"),
    }
    let killed = Instant::now();
    job::kill(agents[victim], "KILL");
    let mut ran: Vec<Ran> = members.into_iter().map(Running::wait).collect();
    let seconds = killed.elapsed().as_secs_f64();
    assert_eq!(ran.remove(victim).code, 198);
    wait_until("everything to end", || job::leftovers(&mark).is_empty());
    assert!(agents.iter().all(|&agent| !job::exists(agent)));
    (ran, seconds)
}

/// Grace plus five seconds.
const LIMIT: f64 = 7.0;

#[test]
fn killing_a_follower_ends_the_others_in_time() {
    let (ran, seconds) = kill_at(Stage::BetweenOfferAndRoster, 1);
    assert!(seconds < LIMIT, "{seconds}");
    assert_eq!(ran[0].code, 193, "{}", ran[0].stderr);
    assert!(ran[0].stderr.contains("worker 0 was lost before all had come"), "{}", ran[0].stderr);
    let (ran, seconds) = kill_at(Stage::InTheMiddle, 1);
    assert!(seconds < LIMIT, "{seconds}");
    for run in &ran {
        assert_eq!(run.code, 195, "{}", run.stderr);
        assert!(
            run.stderr.contains("first failure: worker 0 on ") && run.stderr.contains("its agent is gone"),
            "{}",
            run.stderr
        );
    }
    let (ran, seconds) = kill_at(Stage::DuringTheStop, 2);
    assert!(seconds < LIMIT, "{seconds}");
    for run in &ran {
        assert_eq!(run.code, 4, "the first failure stays the cause: {}", run.stderr);
    }
}

#[test]
fn killing_the_leader_ends_the_others_in_time() {
    for stage in [Stage::InTheMiddle, Stage::DuringTheStop] {
        let (ran, seconds) = kill_at(stage, 0);
        assert!(seconds < LIMIT, "{stage:?}: {seconds}");
        for run in &ran {
            assert_eq!(run.code, 194, "{stage:?}: {}", run.stderr);
            assert!(run.stderr.contains("the leader is lost"), "{}", run.stderr);
        }
    }
}

#[test]
fn a_leader_that_dies_before_the_roster_is_replaced() {
    let scratch = Scratch::new("replaced");
    let folder = scratch.path("meet");
    let first = member(&folder, &["--rank", "0", "--grace", "8s"], SERVE_OR_WORK);
    let port = leader_port(&folder);
    let waiting = member(&folder, &["--rank", "1", "--grace", "8s"], SERVE_OR_WORK);
    first.wait_for_output("2 of 3");
    job::kill(first.agent(), "KILL");
    assert_eq!(first.wait().code, 198);
    // The one that waited takes over; the lost rank and the missing one come.
    wait_until("another leader", || meeting_file(&folder).is_some_and(|file| file["port"] != port));
    let rest = [
        member(&folder, &["--rank", "0", "--grace", "8s"], SERVE_OR_WORK),
        member(&folder, &["--rank", "2", "--grace", "8s"], SERVE_OR_WORK),
    ];
    for run in rest.into_iter().chain([waiting]).map(Running::wait) {
        assert_eq!(run.code, 0, "{}", run.stderr);
    }
}

#[test]
fn leftovers_are_stepped_over_and_other_jobs_refused() {
    let scratch = Scratch::new("leftovers");
    let folder = scratch.path("meet");
    // A leader that was killed with its guard leaves its file.
    let dead = member(&folder, &["--rank", "0"], SERVE_OR_WORK);
    leader_port(&folder);
    let agent = dead.agent();
    job::kill(dead.pid(), "STOP");
    job::kill(agent, "KILL");
    job::kill(dead.pid(), "KILL");
    drop(dead.wait());
    assert_eq!(entries(&folder), 1);
    let done = scratch.path("done");
    let members = three(&folder, &[], &format!("while [ ! -e {done} ]; do sleep 0.02; done"));
    // A fourth finds the job running.
    members[0].wait_for_output("3 members on 1 host");
    let fourth = member(&folder, &["--rank", "0"], SERVE_OR_WORK).wait();
    assert_eq!(fourth.code, 193, "{}", fourth.stderr);
    assert!(fourth.stderr.contains("the job is running already"), "{}", fourth.stderr);
    std::fs::write(done, "").unwrap();
    for run in members.into_iter().map(Running::wait) {
        assert_eq!(run.code, 0, "{}", run.stderr);
    }
}

#[test]
fn who_does_not_fit_is_refused_with_the_reason() {
    let scratch = Scratch::new("misfit");
    let folder = scratch.path("meet");
    let leader = member(&folder, &["--rank", "0", "--meet-timeout", "20s"], SERVE_OR_WORK);
    leader_port(&folder);
    let same_rank = member(&folder, &["--rank", "0"], SERVE_OR_WORK).wait();
    assert!(
        same_rank.code == 193 && same_rank.stderr.contains("rank 0 (ps 0) is taken by pid"),
        "{}",
        same_rank.stderr
    );
    let other_roles = Job::here(&["--workers", "3", "--meet", &folder]).script("true").start().wait();
    assert!(
        other_roles.code == 193
            && other_roles.stderr.contains("it was asked for worker*3, the leader for ps*1,worker*2"),
        "{}",
        other_roles.stderr
    );
    let rest = [member(&folder, &[], SERVE_OR_WORK), member(&folder, &[], SERVE_OR_WORK)];
    for run in rest.into_iter().chain([leader]).map(Running::wait) {
        assert_eq!(run.code, 0, "{}", run.stderr);
    }
}

#[test]
fn strangers_are_named_and_hurt_nobody() {
    let scratch = Scratch::new("strangers");
    let folder = scratch.path("meet");
    let leader = member(&folder, &["--rank", "0"], SERVE_OR_WORK);
    let port = leader_port(&folder);
    let connect = || TcpStream::connect(("127.0.0.1", port)).unwrap();
    let send = |bytes: &[u8]| {
        let mut stream = connect();
        _ = stream.write_all(bytes);
        stream
    };
    let silent = connect();
    let mut kept = vec![
        send(b"GET / HTTP/1.1\r\n\r\n"),
        send(&[0xff; 1 << 16]),
        // The right greeting, then nothing, then a wrong proof.
        send(&[b"RALLYPT4".as_slice(), &[7; 32]].concat()),
        send(&[b"RALLYPT4".as_slice(), &[7; 32], &[9; 32]].concat()),
        send(&[b"RALLYPT4".as_slice(), &[7; 16]].concat()),
    ];
    // A greeting is answered with another, and a wrong proof with a no.
    let mut answer = [0; 41];
    kept[3].set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    kept[3].read_exact(&mut answer).unwrap();
    assert_eq!((&answer[..8], answer[40]), (b"RALLYPT4".as_slice(), 0));
    kept.extend((0..1000).map(|_| connect()));
    let workers = [member(&folder, &[], SERVE_OR_WORK), member(&folder, &[], SERVE_OR_WORK)];
    for run in workers.into_iter().map(Running::wait) {
        assert_eq!(run.code, 0, "{}", run.stderr);
    }
    let run = leader.wait();
    assert_eq!(run.code, 0, "{}", run.stderr);
    for words in [
        // As a person writes it, not ::ffff:127.0.0.1.
        "a stranger at 127.0.0.1:",
        "it did not say what a rallypoint says",
        "it has another key",
        "have not proved themselves yet",
    ] {
        assert!(run.stderr.contains(words), "{words}: {}", run.stderr);
    }
    drop((silent, kept));
}

#[test]
fn at_an_address_with_a_key_from_a_file() {
    let scratch = Scratch::new("address");
    let key = scratch.path("key");
    std::fs::write(&key, "a secret of more than thirty-two bytes\n").unwrap();
    let set_mode = |mode: u32| {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let address = format!("127.0.0.1:{port}");
    let start = |key: Option<&str>| {
        let job = Job::here(&["--ps", "1", "--workers", "2", "--meet", &address, "--prefix", ""]);
        let job = match key {
            Some(key) => job.variable("RALLYPOINT_KEY_FILE", key),
            None => job,
        };
        job.script(SERVE_OR_WORK).start()
    };
    let none = start(None).wait();
    assert!(none.code == 2 && none.stderr.contains("RALLYPOINT_KEY_FILE"), "{}", none.stderr);
    set_mode(0o644);
    let open = start(Some(&key)).wait();
    assert!(open.code == 2 && open.stderr.contains("others may read it"), "{}", open.stderr);
    set_mode(0o600);
    let members: Vec<Running> = (0..3).map(|_| start(Some(&key))).collect();
    for run in members.into_iter().map(Running::wait) {
        assert_eq!(run.code, 0, "{}", run.stderr);
    }
}

#[test]
fn a_signal_to_one_stops_all() {
    let scratch = Scratch::new("signal");
    let folder = scratch.path("meet");
    let members = three(&folder, &[], "exec sleep 100");
    members[0].wait_for_output("3 members on 1 host");
    members[2].wait_for_output("this is worker 1");
    members[2].signal("TERM");
    for run in members.into_iter().map(Running::wait) {
        assert_eq!(run.code, 196, "{}", run.stderr);
        assert!(run.seconds < 10.0);
    }
}

#[test]
fn a_member_on_another_agent_may_come_back_too() {
    let scratch = Scratch::new("restart");
    let folder = scratch.path("meet");
    let file = scratch.path("failed");
    let script = format!(
        "[ $RALLYPOINT_ROLE = ps ] && exec sleep 100; [ $RALLYPOINT_RANK = 2 ] || exit 0; {} fails-once {file}",
        job::habit()
    );
    let members: Vec<Running> = (0..3)
        .map(|rank| member(&folder, &["--rank", &rank.to_string(), "--restart", "worker=1"], &script))
        .collect();
    for run in members.into_iter().map(Running::wait) {
        assert_eq!(run.code, 0, "{}", run.stderr);
    }
}

#[test]
fn a_signal_to_all_agents_leaves_the_grace() {
    let scratch = Scratch::new("signal-all");
    let folder = scratch.path("meet");
    let saved = scratch.path("saved");
    let script = format!(
        "trap 'sleep 1; echo saved > {saved}-$RALLYPOINT_RANK; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
    );
    let members = three(&folder, &["--grace", "8s"], &script);
    members.iter().for_each(|member| member.wait_for_output("ready"));
    // As scancel does: every process of the step.
    for member in &members {
        let agent = member.agent();
        member.signal("TERM");
        job::kill(agent, "TERM");
    }
    for run in members.into_iter().map(Running::wait) {
        assert_eq!(run.code, 196, "{}", run.stderr);
    }
    for rank in 0..3 {
        assert!(
            std::path::Path::new(&format!("{saved}-{rank}")).exists(),
            "rank {rank} was not given its time"
        );
    }
}

#[test]
fn a_leader_that_is_only_suspended_is_not_replaced() {
    let scratch = Scratch::new("suspended");
    let folder = scratch.path("meet");
    let leader = member(&folder, &["--rank", "0"], SERVE_OR_WORK);
    let port = leader_port(&folder);
    let agent = leader.agent();
    job::kill(agent, "STOP");
    let others =
        [member(&folder, &["--rank", "1"], SERVE_OR_WORK), member(&folder, &["--rank", "2"], SERVE_OR_WORK)];
    std::thread::sleep(Duration::from_secs(7));
    assert_eq!(meeting_file(&folder).unwrap()["port"], port);
    job::kill(agent, "CONT");
    for run in others.into_iter().chain([leader]).map(Running::wait) {
        assert_eq!(run.code, 0, "{}", run.stderr);
    }
}

#[test]
fn a_leader_listens_only_where_it_is_told_to() {
    let scratch = Scratch::new("listen");
    let meeting = scratch.path("meeting");
    let go = scratch.path("go");
    let script = format!("while [ ! -e {go} ]; do sleep 0.05; done");
    let args = ["--workers", "2", "--meet", &meeting, "--listen", "127.0.0.2"];
    let leader = Job::here(&args).script(&script).start();
    let contact: serde_json::Value = job::wait_for("the meeting file", || {
        let file = std::fs::read_dir(&meeting).ok()?.flatten().next()?;
        serde_json::from_str(&std::fs::read_to_string(file.path()).ok()?).ok()
    });
    assert_eq!(contact["addresses"], serde_json::json!(["127.0.0.2"]));
    let port = u16::try_from(contact["port"].as_u64().unwrap()).unwrap();
    assert!(std::net::TcpStream::connect(("127.0.0.1", port)).is_err(), "it listens elsewhere too");
    let member = Job::here(&args).script(&script).start();
    member.member_pids(1);
    std::fs::write(&go, "").unwrap();
    for job in [leader, member] {
        let run = job.wait();
        assert_eq!(run.code, 0, "{}", run.stderr);
    }
    for wrong in ["nosuch0", "192.0.2.99", "203.0.113.0/24"] {
        let run = Job::here(&["--workers", "2", "--meet", &meeting, "--listen", wrong]).script("true").run();
        assert_eq!(run.code, 2, "{}", run.stderr);
        assert!(run.stderr.contains(wrong), "{}", run.stderr);
    }
}

#[test]
fn what_is_neither_an_address_nor_a_directory_is_refused() {
    let scratch = Scratch::new("no-address");
    for wrong in ["localhost:99999", "node:http"] {
        let run = Job::here(&["--workers", "2", "--meet", wrong]).script("true").run();
        assert_eq!(run.code, 2, "{}", run.stderr);
        assert!(run.stderr.contains(&format!("or ./{wrong} for a directory")), "{}", run.stderr);
    }
    let named = format!("{}/a:b", scratch.path(""));
    let run = Job::here(&["--workers", "1", "--meet", &named]).script("true").run();
    assert_eq!(run.code, 0, "{}", run.stderr);
}
