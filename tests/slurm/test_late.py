"""A worker of TensorFlow 1 that opens its session when another has finished, on another node."""

import os
import shlex
import sys

from cluster import RALLYPOINT, ROOT, Cluster, leaves_nothing

LIMIT = 240
# Seconds by hand: LATE=45 make slurm
LATE = os.environ.get("LATE")


def late_worker(cluster: Cluster) -> list[str]:
    how = ["--late-session", LATE] if LATE else ["--after", str(cluster.folder)]
    return [RALLYPOINT, "run", "--ps", "1", "--", sys.executable, str(ROOT / "tests/late_worker.py"), *how]


def test_in_task_mode(cluster: Cluster) -> None:
    done = cluster.call("srun", "--mpi=pmi2", "-N3", "-n3", *late_worker(cluster), limit=LIMIT)
    assert done.code == 0, done.text
    assert [f"worker {index} has done 50 steps" in done.out for index in (0, 1)] == [True, True], done.text


def test_in_launcher_mode(cluster: Cluster) -> None:
    job = cluster.sbatch(shlex.join(late_worker(cluster)), "-N3", "-n3")
    assert job.wait(LIMIT) == "COMPLETED", job.log()
    assert [f"worker {index} has done 50 steps" in job.log() for index in (0, 1)] == [True, True], job.log()
    leaves_nothing(job.id)
