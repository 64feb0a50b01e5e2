"""A cluster for every test, and a look afterwards: no job, no process, every node as it was.

For an example with real TensorFlow, take `cluster` and run `examples/NAME/train.py` with `sys.executable`;
`test_examples.py` shows how, in task mode and through `rallypoint submit slurm`.
"""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster import Cluster
from waiting import wait_for


@pytest.fixture(scope="session", autouse=True)
def slurm_is_there() -> None:
    if "SLURM_CONF" not in os.environ:
        pytest.exit("no Slurm; run the tests by testbed/slurm/with, as make does", returncode=1)
    nodes = subprocess.run(["sinfo", "-h", "-N", "-o", "%N %t"], capture_output=True, text=True, timeout=30)
    assert nodes.stdout.split() == "n01 idle n02 idle n03 idle n04 idle".split(), nodes.stdout + nodes.stderr


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path)
    yield cluster
    for job in cluster.jobs():
        cluster.call("scancel", job)
    wait_for("the queue to be empty", lambda: cluster.jobs() == [], 60)
