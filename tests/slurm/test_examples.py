"""The examples of this project with real TensorFlow, on several nodes: they train, and they end."""

import os
import re
import shlex
import sys
from pathlib import Path

from cluster import RALLYPOINT, ROOT, TESTBED, Cluster, Job, Running, kill, leaves_nothing
from waiting import wait_for

LIMIT = 240


def program(script: str, *options: str) -> list[str]:
    return ["--", sys.executable, str(ROOT / "examples" / script), *options]


def accuracies(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"accuracy (0\.\d+)", text)]


def test_tf1_with_a_parameter_server_in_task_mode(cluster: Cluster) -> None:
    member = [RALLYPOINT, "run", "--ps", "1", *program("digits/train.py")]
    done = cluster.call("srun", "--mpi=pmi2", "-N3", "-n3", *member, limit=LIMIT)
    assert done.code == 0, done.text
    assert accuracies(done.out)[-1] > 0.95
    assert re.search(r"^ps 0 +n01 .*stopped \(killed by SIGTERM\)", done.err, re.M), done.text


def test_tf2_coordinator_in_launcher_mode(cluster: Cluster) -> None:
    options = ["-N2", "--ntasks-per-node=2", "--chief", "--ps", "1", "--time", "10", "-o", "%j.out"]
    done = cluster.call(RALLYPOINT, "submit", "slurm", *options, *program("coordinator/train.py"))
    assert done.code == 0, done.text
    job = Job(cluster, done.out.strip())
    assert job.wait(LIMIT) == "COMPLETED", job.log()
    assert accuracies(job.log())[-1] > 0.95, job.log()
    job.leaves_nothing()


def test_served_parameter_servers_in_launcher_mode(cluster: Cluster) -> None:
    options = ["-N2", "--ntasks-per-node=2", "--ps", "2", "--serve", "ps", "--time", "10", "-o", "%j.out"]
    done = cluster.call(RALLYPOINT, "submit", "slurm", *options, *program("digits/train.py"))
    assert done.code == 0, done.text
    job = Job(cluster, done.out.strip())
    assert job.wait(LIMIT) == "COMPLETED", job.log()
    assert accuracies(job.log())[-1] > 0.95, job.log()
    assert len(re.findall(r"^ps \d +n01 .* served until stopped", job.log(), re.M)) == 2, job.log()
    job.leaves_nothing()


def test_only_the_chief_is_python_in_task_mode(cluster: Cluster) -> None:
    member = [RALLYPOINT, "run", "--chief", "--ps", "1", "--serve", "ps,worker", *program("coordinator/train.py")]
    done = cluster.call("srun", "--mpi=pmi2", "-N2", "--ntasks-per-node=2", *member, limit=LIMIT)
    assert done.code == 0, done.text
    assert accuracies(done.out)[-1] > 0.95
    served = re.findall(r"^(\w+ \d) +(n0\d) .* served until stopped", done.err, re.M)
    assert served == [("ps 0", "n01"), ("worker 0", "n02"), ("worker 1", "n02")], done.text


def test_mirrored_workers(cluster: Cluster) -> None:
    done = cluster.call("srun", "-N2", "-n2", RALLYPOINT, "run", *program("mirrored/train.py"), limit=LIMIT)
    assert done.code == 0, done.text
    assert accuracies(done.out)[-1] > 0.95


def test_a_cancelled_training_leaves_nothing(cluster: Cluster) -> None:
    # Mirrored workers swallow SIGTERM, so this takes the grace, which must be shorter than Slurm's KillWait of 5 s.
    member = [RALLYPOINT, "run", "--grace", "2s", *program("mirrored/train.py", "--steps", "1000000")]
    running: Running = cluster.start("srun", "-N2", "-n2", *member)
    wait_for("training", lambda: accuracies(running.text()) != [], LIMIT, running.text)
    job = cluster.jobs()[0]
    cluster.call("scancel", job)
    assert running.wait() != 0
    leaves_nothing(job)


def test_a_slurmd_that_dies_in_mid_training(cluster: Cluster) -> None:
    member = [RALLYPOINT, "run", "--ps", "1", "--grace", "2s", *program("digits/train.py", "--steps", "100000000")]
    job = cluster.sbatch(shlex.join(["srun", *member]), "-N2", "--ntasks-per-node=2", "--no-requeue")
    wait_for("training", lambda: accuracies(job.log()) != [], LIMIT, job.log)
    kill(int((Path(os.environ["SLURM_CONF"]).parents[1] / "pid/slurmd-n02").read_text()))
    try:
        # Slurm notices after SlurmdTimeout, ends the job on n01, and the leader ends the others.
        assert job.wait(LIMIT) == "NODE_FAIL", job.log()
        job.leaves_nothing(60)
    finally:
        cluster.call("scancel", job.id)
        assert cluster.call(str(TESTBED / "up")).code == 0
    wait_for("n02", lambda: "idle" in cluster.call("sinfo", "-h", "-n", "n02", "-o", "%T").out)
