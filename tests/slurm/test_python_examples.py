"""The examples of the Python package, as their READMEs start them: sbatch and srun, without `rallypoint run`."""

import os
import random
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cluster import RALLYPOINT, ROOT, Cluster, Job

import rallypoint

EXAMPLES = ROOT / "examples"
LIMIT = 300


@pytest.fixture
def at(cluster: Cluster) -> Callable[[str], Cluster]:
    """In a copy of an example, the user's own; this Python and the command are on the PATH."""
    shutil.copytree(EXAMPLES, cluster.folder / "examples")
    paths = [str(Path(sys.executable).parent), str(Path(RALLYPOINT).parent), os.environ["PATH"]]
    environ = {**cluster.environ, "PATH": ":".join(paths)}
    return lambda name: Cluster(cluster.folder / "examples" / name, environ)


def sbatch(cluster: Cluster, *words: str) -> str:
    """Submits, and gives the job's output when it has ended well."""
    done = cluster.call("sbatch", "--parsable", "--output=%j.out", *words)
    assert done.code == 0, done.text
    job = Job(cluster, done.out.strip())
    assert job.wait(LIMIT) == "COMPLETED", job.log()
    return job.log()


# The nodes of the testbed have names that nobody else knows: --meet.
def test_a_batch_job_with_hooks_in_a_virtual_environment(at: Callable[[str], Cluster]) -> None:
    here = at("launch_server_with_hooks")
    before = {path.name for path in here.folder.iterdir()}
    output = sbatch(here, "-N2", "-n3", "submit.sh", "--meet", "auto", sys.prefix)
    assert "global step 10" in output
    assert "ps 0: 2 of 2 workers are done" in output
    assert "worker 0: done" in output and "worker 1: done" in output
    left = {path.name for path in here.folder.iterdir() if path.suffix != ".out"} - before - {"__pycache__"}
    assert left == set()


def test_a_batch_job_without_hooks_is_ended_by_the_command(at: Callable[[str], Cluster]) -> None:
    output = sbatch(at("launch_server_with_hooks"), "-n2", "submit.sh", "--no-hooks", sys.prefix)
    assert "global step 10" in output
    assert "workers are done" not in output
    assert re.search(r"^ps 0 .* stopped \(killed by SIGTERM\)", output, re.MULTILINE), output


@pytest.mark.root
def test_a_step_of_mirrored_workers(at: Callable[[str], Cluster]) -> None:
    # The names of nodes have addresses on a real cluster; here they get some, for the step alone.
    here = at("slurm_resolver")
    hosts = here.folder / "hosts"
    hosts.write_text("127.0.0.1 localhost n01 n02 n03 n04\n")
    as_on_a_cluster = ["unshare", "--mount", "sh", "-c", f'mount --bind {hosts} /etc/hosts && exec "$@"', "sh"]
    # One node: the testbed's nodes share this machine's ports.
    ports = random.sample(range(20000, 32000), 1000)
    base = next(port for port in ports if not (rallypoint.port_in_use(port) or rallypoint.port_in_use(port + 1)))
    program = [sys.executable, "tf_example.py", "--steps", "200", "--target", "0.9", "--port-base", str(base)]
    done = here.call("srun", "-N1", "-n2", "-w", "n03", *as_on_a_cluster, *program, limit=LIMIT)
    assert done.code == 0, done.text
    assert {f"worker {rank} of 2 at n03:{base + rank}" for rank in range(2)} <= set(done.out.splitlines())
    learned = re.findall(r"step  200  accuracy (0\.\d+)", done.out)
    assert len(learned) == 2 and learned[0] == learned[1] and float(learned[0]) > 0.9
