"""A worker of TensorFlow 1 that opens its session when another has finished, on another host."""

import os
import sys
from pathlib import Path

import pytest
from pool import ROOT, Pool, description

LIMIT = 300
# Seconds by hand: LATE=45 make htcondor
LATE = os.environ.get("LATE")
# Inside a job, a path through a link may not exist.
PYTHON = str(Path(sys.executable).parent.resolve() / "python")


@pytest.mark.parametrize("universe", ["vanilla", "parallel"])
def test_a_late_worker_of_an_unmodified_program(pool: Pool, shared: Path, universe: str) -> None:
    how = f"--late-session {LATE}" if LATE else f"--after {shared}"
    arguments = f"run --ps 1 -- {PYTHON} {ROOT}/tests/late_worker.py {how}"
    cluster = pool.submit(shared, description(arguments, universe=universe, more="request_memory = 1024"))
    ends = 1 if universe == "parallel" else 3
    assert set(cluster.wait(ends, LIMIT).values()) == {0}, cluster.text()
    for index in (0, 1):
        assert f"worker {index} has done 50 steps" in cluster.text(), cluster.text()
