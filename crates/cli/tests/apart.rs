//! Members that the scheduler starts again one by one, as HTCondor's vanilla universe does: a meeting takes
//! the latest run of each, and no attempt has members of another.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod job;

use job::{Job, Running, Scratch};
use std::path::Path;

/// A proc of a cluster of `world`, in its `run`th run, counted from 1.
fn proc(scratch: &Scratch, world: u32, proc: u32, run: u32, more_of_ad: &str) -> Running {
    let ad = scratch.path(&format!("{proc}-{run}.ad"));
    let text = format!(
        "ClusterId = 12\nProcId = {proc}\nTotalSubmitProcs = {world}\nJobRunCount = {run}\nGlobalJobId = \"cm#12.{proc}#1\"\n{more_of_ad}\n"
    );
    std::fs::write(&ad, text).unwrap();
    let folder = scratch.path("meet");
    Job::here(&["--meet", &folder, "--grace", "5s", "--meet-timeout", "20s", "--prefix", ""])
        .variable("_CONDOR_JOB_AD", &ad)
        .script("echo attempt $RALLYPOINT_ATTEMPT rank $RALLYPOINT_RANK; [ $RALLYPOINT_ATTEMPT != 0 ] || exec sleep 100")
        .start()
}

fn nothing_is_left(scratch: &Scratch) {
    assert_eq!(std::fs::read_dir(Path::new(&scratch.path("meet"))).unwrap().count(), 0);
}

#[test]
fn a_later_run_takes_the_place_of_an_earlier_one_while_all_wait() {
    let scratch = Scratch::new("apart-wait");
    let leader = proc(&scratch, 3, 0, 1, "");
    leader.wait_for_output("1 of 3");
    let earlier = proc(&scratch, 3, 1, 1, "");
    leader.wait_for_output("2 of 3");
    let later = proc(&scratch, 3, 1, 4, "");
    let earlier = earlier.wait();
    assert_eq!(earlier.code, 193);
    assert!(earlier.stderr.contains("this member was started again elsewhere"), "{}", earlier.stderr);
    let last = proc(&scratch, 3, 2, 1, "");
    for (rank, member) in [leader, later, last].into_iter().enumerate() {
        let run = member.wait();
        assert_eq!((run.code, run.stdout), (0, format!("attempt 3 rank {rank}\n")), "{}", run.stderr);
    }
    nothing_is_left(&scratch);
}

#[test]
fn a_leader_that_was_started_again_makes_room_for_its_later_run() {
    let scratch = Scratch::new("apart-leader");
    let earlier = proc(&scratch, 2, 0, 1, "");
    earlier.wait_for_output("1 of 2");
    let later = proc(&scratch, 2, 0, 2, "");
    let earlier = earlier.wait();
    assert_eq!(earlier.code, 193);
    assert!(earlier.stderr.contains("has started this member again elsewhere"), "{}", earlier.stderr);
    let other = proc(&scratch, 2, 1, 1, "");
    for (rank, member) in [later, other].into_iter().enumerate() {
        let run = member.wait();
        assert_eq!((run.code, run.stdout), (0, format!("attempt 1 rank {rank}\n")), "{}", run.stderr);
    }
    nothing_is_left(&scratch);
}

#[test]
fn a_leader_that_is_told_to_end_leaves_the_others_waiting() {
    let scratch = Scratch::new("apart-vacate");
    let leader = proc(&scratch, 3, 0, 1, "");
    leader.wait_for_output("1 of 3");
    let other = proc(&scratch, 3, 1, 1, "");
    leader.wait_for_output("2 of 3");
    leader.signal("TERM");
    assert_eq!(leader.wait().code, 196);
    other.wait_for_output("the leader was lost before all had come");
    let members = [proc(&scratch, 3, 0, 2, ""), other, proc(&scratch, 3, 2, 1, "")];
    for (rank, member) in members.into_iter().enumerate() {
        let run = member.wait();
        assert_eq!((run.code, run.stdout), (0, format!("attempt 1 rank {rank}\n")), "{}", run.stderr);
    }
    nothing_is_left(&scratch);
}

#[test]
fn a_later_run_ends_the_attempt_that_its_earlier_one_was_in() {
    let scratch = Scratch::new("apart-run");
    let leader = proc(&scratch, 2, 0, 1, "");
    leader.wait_for_output("1 of 2");
    let earlier = proc(&scratch, 2, 1, 1, "");
    leader.wait_for_output("attempt 0 rank 0");
    earlier.wait_for_output("attempt 0 rank 1");
    let later = proc(&scratch, 2, 1, 2, "");
    let (leader, earlier, later) = (leader.wait(), earlier.wait(), later.wait());
    assert_eq!(leader.code, 195, "{}", leader.stderr);
    assert!(leader.stderr.contains("worker 1 was started again on"), "{}", leader.stderr);
    assert!([194, 195].contains(&earlier.code), "{}", earlier.stderr);
    assert_eq!((later.code, later.stdout.as_str()), (195, ""), "nobody else would come: {}", later.stderr);
    assert!(later.stderr.contains("an earlier attempt of this job still runs"), "{}", later.stderr);
    nothing_is_left(&scratch);
}

#[test]
fn where_all_are_retried_the_next_attempt_has_them_all() {
    let scratch = Scratch::new("apart-retry");
    let retried = "OnExitRemove = NumJobCompletions > JobMaxRetries || ExitCode =?= 0";
    let leader = proc(&scratch, 2, 0, 1, retried);
    leader.wait_for_output("1 of 2");
    let earlier = proc(&scratch, 2, 1, 1, retried);
    leader.wait_for_output("attempt 0 rank 0");
    earlier.wait_for_output("attempt 0 rank 1");
    let later = proc(&scratch, 2, 1, 2, retried);
    assert_eq!(leader.wait().code, 195);
    assert!([194, 195].contains(&earlier.wait().code));
    later.wait_for_output("meeting for the next one");
    for (rank, member) in [proc(&scratch, 2, 0, 2, retried), later].into_iter().enumerate() {
        let run = member.wait();
        assert_eq!((run.code, run.stdout), (0, format!("attempt 2 rank {rank}\n")), "{}", run.stderr);
    }
    nothing_is_left(&scratch);
}

#[test]
fn an_earlier_run_that_comes_late_is_refused() {
    let scratch = Scratch::new("apart-late");
    let leader = proc(&scratch, 3, 0, 1, "");
    leader.wait_for_output("1 of 3");
    let later = proc(&scratch, 3, 1, 2, "");
    leader.wait_for_output("2 of 3");
    let earlier = proc(&scratch, 3, 1, 1, "").wait();
    assert_eq!(earlier.code, 193);
    assert!(earlier.stderr.contains("rank 1 (worker 1) is taken"), "{}", earlier.stderr);
    leader.signal("TERM");
    later.signal("TERM");
    assert_eq!((leader.wait().code, later.wait().code), (196, 196));
    nothing_is_left(&scratch);
}
