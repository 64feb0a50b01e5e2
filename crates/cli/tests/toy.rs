//! A scheduler that was added by `docs/guides/add-a-scheduler.md`, one folder and one line in the list, can do all that
//! the others can: it is detected, its tasks meet, a step is launched, and jobs are submitted to it.
//!
//! Built with the feature `toy-scheduler` alone, which no shipped command has.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod job;

use job::{Job, Scratch};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

/// `toyrun COMMAND`: one task per rank, each with the whole of our standard input.
const TOYRUN: &str = "#!/bin/sh
rank=0
while [ $rank -lt $TOY_TASKS ]
do TOY_RANK=$rank \"$@\" < /proc/$$/fd/0 & rank=$((rank + 1))
done
wait
";

/// `toysub < SCRIPT`: takes a job and tells its id.
const TOYSUB: &str = "#!/bin/sh
cat > \"$TOY_SPOOL/7.sh\"
echo 7
";

/// The scheduler's programs, and a PATH that has them.
fn tools(name: &str) -> (Scratch, String) {
    let scratch = Scratch::new(name);
    for (program, text) in [("toyrun", TOYRUN), ("toysub", TOYSUB)] {
        let file = scratch.path(program);
        std::fs::write(&file, text).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let path = format!("{}:/usr/local/bin:/usr/bin:/bin", scratch.path(""));
    (scratch, path)
}

fn rallypoint(args: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rallypoint"));
    command.args(args).env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin");
    command.envs(variables.iter().copied()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn it_is_detected_and_planned() {
    let task = [("TOY_JOB", "5"), ("TOY_TASKS", "3"), ("TOY_RANK", "0")];
    let plan = rallypoint(&["plan", "--ps", "1"], &task);
    assert!(text(&plan.stdout).starts_with("Toy job 5: 3 members (1 ps, 2 workers)"), "{plan:?}");
    let again = rallypoint(&["plan", "--on", "toy", "--json"], &task);
    assert!(text(&again.stdout).contains("\"scheduler\":\"toy\",\"job\":\"5\""), "{again:?}");
    let doctor = text(&rallypoint(&["doctor"], &task).stdout);
    assert!(doctor.starts_with("scheduler   the toy scheduler, a toy task"), "{doctor}");
    assert!(doctor.contains("TOY_TASKS=3"), "{doctor}");
    let broken = rallypoint(&["plan"], &[("TOY_JOB", "5"), ("TOY_TASKS", "many")]);
    assert_eq!(broken.status.code(), Some(2));
    assert!(text(&broken.stderr).contains("TOY_TASKS=\"many\": expected a number"), "{broken:?}");
}

#[test]
fn its_tasks_meet_in_its_own_way() {
    let (scratch, _) = tools("toy-meets");
    let board = scratch.path("board");
    let tasks: Vec<_> = ["0", "1", "2"]
        .map(|rank| {
            Job::here(&["--ps", "1", "--grace", "2s"])
                .variable("TOY_JOB", "5")
                .variable("TOY_TASKS", "3")
                .variable("TOY_RANK", rank)
                .variable("TOY_BOARD", &board)
                .script(
                    "[ $RALLYPOINT_ROLE = worker ] && { echo I am $RALLYPOINT_RANK; exit 0; }; exec sleep 60",
                )
                .start()
        })
        .into_iter()
        .collect();
    let ran: Vec<_> = tasks.into_iter().map(|task| task.wait()).collect();
    assert!(ran.iter().all(|ran| ran.code == 0), "{ran:#?}");
    assert!(ran[1].stdout.contains("I am 1") && ran[2].stdout.contains("I am 2"), "{ran:#?}");
    assert!(ran[0].stderr.contains(&format!("meeting: directory {board}")), "{}", ran[0].stderr);
}

#[test]
fn a_step_is_launched() {
    let (_scratch, path) = tools("toy-step");
    let ran = Job::here(&["--workers", "3", "--framework", "plain"])
        .variable("PATH", &path)
        .variable("TOY_JOB", "5")
        .variable("TOY_TASKS", "3")
        .script("echo I am $RALLYPOINT_RANK of $RALLYPOINT_WORLD")
        .run();
    assert_eq!(ran.code, 0, "{ran:#?}");
    assert!(ran.stderr.contains("starting the step: ") && ran.stderr.contains("toyrun"), "{}", ran.stderr);
    for rank in 0..3 {
        assert!(ran.stdout.contains(&format!("I am {rank} of 3")), "{ran:#?}");
    }
}

/// The launcher is told what to rehearse; the task that has the member does it, and the launcher tells it.
#[test]
fn a_fault_on_purpose_is_done_in_its_step() {
    let (_scratch, path) = tools("toy-rehearse");
    let ran = Job::here(&["--workers", "3", "--framework", "plain", "--rehearse", "kill:worker.2@300ms"])
        .variable("PATH", &path)
        .variable("TOY_JOB", "5")
        .variable("TOY_TASKS", "3")
        .script("exec sleep 100")
        .run();
    assert_eq!(ran.code, 137, "{ran:#?}");
    assert!(ran.stderr.contains("starting the step: "), "{}", ran.stderr);
    assert_eq!(ran.stderr.matches("rehearsal: worker 2 (pid ").count(), 1, "{}", ran.stderr);
    assert!(ran.stderr.contains("a rehearsal: SIGKILL was sent to it on purpose"), "{}", ran.stderr);
}

#[test]
fn jobs_are_submitted_to_it() {
    let (scratch, path) = tools("toy-submit");
    let spool = scratch.path("");
    let variables = [("PATH", path.as_str()), ("TOY_SPOOL", spool.as_str())];
    let submit = ["submit", "toy", "--tasks", "4", "--ps", "1", "--", "sh", "-c", "echo hello"];
    let done = rallypoint(&submit, &variables);
    assert_eq!(text(&done.stdout), "7\n", "{done:?}");
    let script = std::fs::read_to_string(scratch.path("7.sh")).unwrap();
    assert!(script.starts_with("#!/bin/sh\n#TOY tasks=4\nexec "), "{script}");
    assert!(script.trim_end().ends_with("run --ps=1 -- sh -c 'echo hello'"), "{script}");
    let help = text(&rallypoint(&["submit", "toy", "--help"], &variables).stdout);
    assert!(
        help.contains("Tasks, one per member") && help.contains("Options of run are handed on"),
        "{help}"
    );
}
