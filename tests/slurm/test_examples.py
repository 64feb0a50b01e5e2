"""The examples of this project with real TensorFlow, on several nodes: they train, and they end."""

import re
import sys

from cluster import RALLYPOINT, ROOT, Cluster, Job, Running, leaves_nothing
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
