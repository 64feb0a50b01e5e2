"""However a job ends: signals reach the members in time, exit codes are right, nothing is left on any node."""

import os
import signal
from pathlib import Path

import pytest
from cluster import TESTBED, Cluster, Job, command_of, kill, leaves_nothing, line, processes_of, run
from waiting import wait_for

# A member that, on SIGTERM or SIGUSR1, writes a checkpoint and ends; until then it waits in short sleeps,
# since a shell runs its traps between commands only.
CHECKPOINT = """
trap 'echo $SLURM_RESTART_COUNT > checkpoint-$SLURM_JOB_ID-TERM-$RALLYPOINT_RANK; exit 0' TERM
trap 'echo $SLURM_RESTART_COUNT > checkpoint-$SLURM_JOB_ID-USR1-$RALLYPOINT_RANK; exit 42' USR1
echo up
while :; do sleep 0.1; done
"""
# The same below a shell that dies of SIGTERM at once, and it takes a second.
WRAPPED = """
sh -c "trap 'sleep 1; : > checkpoint-$SLURM_JOB_ID-TERM-$RALLYPOINT_RANK; exit 0' TERM
echo up
while :; do sleep 0.1; done" & wait
"""
TASK, LAUNCHER = "srun ", ""
MODES = pytest.mark.parametrize("mode", [TASK, LAUNCHER], ids=["task", "launcher"])


def training(cluster: Cluster, mode: str, *options: str, sbatch: tuple[str, ...] = (), script: str = CHECKPOINT) -> Job:
    """A job of four members on two nodes, once all of them are up."""
    job = cluster.sbatch(mode + line("--ps", "1", *options, script=script), "-N2", "--ntasks-per-node=2", *sbatch)
    wait_for("all members", lambda: job.log().count("] up") >= 4, now=job.log)
    return job


def checkpoints(job: Job, by: str) -> int:
    """How many members wrote one. Not by what they printed: srun does not listen to a node that it has given up."""
    return len(list(job.cluster.folder.glob(f"checkpoint-{job.id}-{by}-*")))


def members_that_saved(job: Job) -> int:
    """A member that is told to end while it writes for a warning may write twice."""
    return len({file.name.rsplit("-", 1)[1] for file in job.cluster.folder.glob(f"checkpoint-{job.id}-*")})


def seen_by_sacct(job: Job) -> str:
    done = job.cluster.call("sacct", "-c", "-n", "-P", "-j", job.id, "-o", "state")
    return done.out.split()[-1] if done.out.split() else ""


@MODES
def test_servers_end_with_the_workers_and_slurm_sees_success(cluster: Cluster, mode: str) -> None:
    job = cluster.sbatch(mode + line("--ps", "2"), "-N2", "--ntasks-per-node=2")
    assert job.wait() == "COMPLETED", job.log()
    assert job.show()["ExitCode"] == "0:0"
    wait_for("sacct to know", lambda: seen_by_sacct(job) == "COMPLETED", now=lambda: seen_by_sacct(job))
    assert job.log().count("stopped (killed by SIGTERM)") == 2, job.log()
    job.leaves_nothing()


@MODES
def test_a_worker_that_fails_on_one_node(cluster: Cluster, mode: str) -> None:
    fail = "[ $RALLYPOINT_RANK = 3 ] && { echo no data >&2; exit 7; }; exec sleep 1000"
    job = cluster.sbatch(mode + line("--ps", "1", script=fail), "-N2", "--ntasks-per-node=2")
    assert job.wait() == "FAILED", job.log()
    assert job.show()["ExitCode"] == "7:0"
    assert "first failure: worker 2 on n02" in job.log() and "| no data" in job.log()
    job.leaves_nothing()


@pytest.mark.parametrize("script", [CHECKPOINT, WRAPPED], ids=["program", "wrapped"])
@MODES
def test_scancel_gives_time_for_a_checkpoint(cluster: Cluster, mode: str, script: str) -> None:
    job = training(cluster, mode, script=script)
    cluster.call("scancel", job.id)
    assert job.wait() == "CANCELLED"
    job.leaves_nothing()
    assert checkpoints(job, "TERM") == 4, job.log()


@MODES
def test_members_that_ignore_signals_are_gone_too(cluster: Cluster, mode: str) -> None:
    deaf = "trap '' TERM INT HUP; sleep 1000 & echo up; while :; do sleep 1; done"
    job = training(cluster, mode, "--grace", "1s", script=deaf)
    cluster.call("scancel", job.id)
    assert job.wait() == "CANCELLED"
    job.leaves_nothing()


def test_time_limits_and_warnings(cluster: Cluster) -> None:
    # Slurm looks at time limits every 30 s only, so all of these wait at once. A warning of --signal=USR1@60 comes a
    # minute before the limit; B: is for the batch script alone, in whose place rallypoint stands.
    limit = ("--time=5",)
    ended = {mode: training(cluster, mode, sbatch=limit) for mode in (TASK, LAUNCHER)}
    warned = {mode: training(cluster, mode, sbatch=(*limit, "--signal=USR1@60")) for mode in (TASK, LAUNCHER)}
    warned["exec "] = training(cluster, "exec ", sbatch=(*limit, "--signal=B:USR1@60"))
    for job in ended.values():
        cluster.call("scontrol", "update", f"JobId={job.id}", "EndTime=now+1")
    for job in warned.values():
        cluster.call("scontrol", "update", f"JobId={job.id}", "EndTime=now+60")
    for job in ended.values():
        assert job.wait() == "TIMEOUT", job.log()
        job.leaves_nothing()
        assert checkpoints(job, "TERM") == 4, job.log()
    for job in warned.values():
        assert job.wait() == "FAILED", job.log()
        assert job.show()["ExitCode"] == "42:0", job.log()
        # Whoever is first ends the job, and the others with it.
        assert checkpoints(job, "USR1") >= 1 and members_that_saved(job) == 4, job.log()
        job.leaves_nothing()


def test_kill_on_bad_exit(cluster: Cluster) -> None:
    fail = "[ $RALLYPOINT_RANK = 3 ] && exit 7; exec sleep 1000"
    done = cluster.call("srun", "-K", "-N2", "--ntasks-per-node=2", *run("--ps", "1", script=fail))
    assert done.code == 7, done.text
    assert "first failure: worker 2" in done.err


@MODES
def test_a_node_that_goes_down(cluster: Cluster, mode: str) -> None:
    job = training(cluster, mode)
    last = job.show()["NodeList"]
    assert last == "n[01-02]"
    cluster.call("scontrol", "update", "nodename=n02", "state=down", "reason=test")
    try:
        assert job.wait_until("NODE_FAIL", "PENDING", "REQUEUED", "FAILED") in ("NODE_FAIL", "PENDING", "REQUEUED"), job.log()
        job.leaves_nothing()
        assert checkpoints(job, "TERM") == 4, job.log()
    finally:
        cluster.call("scancel", job.id)
        cluster.call("scontrol", "update", "nodename=n02", "state=resume")
    wait_for("n02", lambda: "idle" in cluster.call("sinfo", "-h", "-n", "n02", "-o", "%T").out)


@MODES
def test_a_requeued_job_never_meets_its_own_leftovers(cluster: Cluster, mode: str) -> None:
    script = CHECKPOINT.replace("echo up", "echo up; echo attempt $RALLYPOINT_ATTEMPT; [ $RALLYPOINT_ATTEMPT = 1 ] && exit 0")
    job = training(cluster, mode, "--until", "all", script=script)
    # What a leader that was killed would have left.
    stale = cluster.folder / f"rallypoint-{job.id}.0-0.meet"
    cluster.call("scontrol", "requeue", job.id)
    wait_for("the first run's end", lambda: job.state() == "PENDING" and job.processes() == [], now=job.state)
    assert checkpoints(job, "TERM") == 4, job.log()
    stale.write_text("{}")
    stale.chmod(0o600)
    cluster.call("scontrol", "update", f"JobId={job.id}", "StartTime=now+2")
    assert job.wait() == "COMPLETED", job.log()
    assert job.log().count("attempt 0") == 4 and job.log().count("attempt 1") == 4, job.log()
    job.leaves_nothing()


@MODES
def test_a_member_may_ask_for_another_run(cluster: Cluster, mode: str) -> None:
    script = "echo up; [ $RALLYPOINT_ROLE = ps ] && exec sleep 1000; [ $RALLYPOINT_ATTEMPT = 1 ] && exit 0; exit 42"
    job = training(cluster, mode, "--requeue-on", script=script)
    wait_for("the requeue", lambda: job.show().get("Restarts") == "1" and job.state() != "COMPLETING", now=job.log)
    assert "asks for another run" in job.log()
    cluster.call("scontrol", "update", f"JobId={job.id}", "StartTime=now+2")
    assert job.wait() == "COMPLETED", job.log()
    job.leaves_nothing()


def test_ctrl_c_under_salloc(cluster: Cluster) -> None:
    command = ["salloc", "-N2", "--ntasks-per-node=2", *run("--ps", "1", script=CHECKPOINT)]
    running = cluster.start(*command)
    wait_for("all members", lambda: running.text().count("] up") == 4, now=running.text)
    job = cluster.jobs()[0]
    kill(launchers(job)[0], signal.SIGINT)
    assert running.wait() == 196, running.text()
    assert len(list(cluster.folder.glob("checkpoint-*-TERM-*"))) == 4, running.text()
    leaves_nothing(job)


def launchers(job: str) -> list[int]:
    """The guards of agents that are no launched tasks, by their command line."""
    found = []
    for pid in processes_of(job):
        words = command_of(pid)
        if words[0].endswith("rallypoint") and "--launched" not in words:
            found.append(pid)
    return sorted(found)


@pytest.mark.parametrize("victim", ["launcher", "srun"])
def test_nothing_outlives_a_killed_launcher(cluster: Cluster, victim: str) -> None:
    job = training(cluster, LAUNCHER)
    if victim == "launcher":
        for pid in launchers(job.id):
            kill(pid)
    else:
        for pid in [pid for pid in job.processes() if command_of(pid)[0].endswith("/srun")]:
            kill(pid)
    assert job.wait() in ("FAILED", "COMPLETED"), job.log()
    job.leaves_nothing(30)


def test_a_slurmd_that_dies_in_mid_training(cluster: Cluster) -> None:
    job = training(cluster, TASK)
    lab = Path(os.environ["SLURM_CONF"]).parents[1]
    kill(int((lab / "pid/slurmd-n02").read_text()))
    try:
        # Slurm notices after SlurmdTimeout, ends the job on n01, and the leader ends the others.
        job.wait_until("NODE_FAIL", "PENDING", "REQUEUED", "FAILED", "COMPLETING", "CANCELLED")
        job.leaves_nothing(60)
        assert checkpoints(job, "TERM") == 4, job.log()
    finally:
        cluster.call("scancel", job.id)
        assert cluster.call(str(TESTBED / "up")).code == 0
    wait_for("n02", lambda: "idle" in cluster.call("sinfo", "-h", "-n", "n02", "-o", "%T").out)
