"""Nodes with addresses of their own, which can be cut off and switched off. Namespaces need root."""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster import TESTBED, Cluster, Done, Running, line, run
from waiting import wait_for

pytestmark = pytest.mark.root

UP = 'echo "up $RALLYPOINT_ADDRESS"; exec sleep 1000'


@pytest.fixture(scope="module")
def lab() -> Iterator[Path]:
    environ = {k: v for k, v in os.environ.items() if k != "SLURM_CONF"}
    up = subprocess.run([TESTBED / "net-up"], env=environ, capture_output=True, text=True, timeout=60)
    assert up.returncode == 0, up.stderr
    yield Path(up.stdout.strip())
    subprocess.run([TESTBED / "net-down"], env=environ, check=True, timeout=60)


@pytest.fixture
def nodes(lab: Path, tmp_path: Path) -> Iterator["Nodes"]:
    nodes = Nodes(tmp_path, lab)
    yield nodes
    for job in nodes.jobs():
        nodes.call("scancel", job)
    wait_for("the queue to be empty", lambda: nodes.jobs() == [], 60)
    wait_for("all nodes", nodes.are_idle, 60, lambda: nodes.call("sinfo", "-N").out)


class Nodes(Cluster):
    """Commands are called where the controller is, which is no node."""

    def __init__(self, folder: Path, lab: Path) -> None:
        super().__init__(folder)
        self.lab = lab

    def call(self, *command: str, limit: float = 120, **environ: str) -> Done:
        return super().call(str(self.lab / "in"), "ctl", *command, limit=limit, **environ)

    def start(self, *command: str, **environ: str) -> Running:
        return super().start(str(self.lab / "in"), "ctl", *command, **environ)

    def do(self, verb: str, node: str) -> None:
        subprocess.run([self.lab / verb, node], check=True, timeout=30)

    def are_idle(self) -> bool:
        return self.call("sinfo", "-h", "-N", "-o", "%T").out.split() == ["idle"] * 3


@pytest.mark.parametrize("mode", ["srun --mpi=none", "srun --mpi=pmi2", "salloc"])
def test_members_have_their_nodes_addresses(nodes: Nodes, mode: str) -> None:
    tell = 'echo "at $RALLYPOINT_RANK $(hostname) $RALLYPOINT_ADDRESS"'
    done = nodes.call(*mode.split(), "-N3", "-n3", *run("--ps", "1", "--until", "all", script=tell))
    assert done.code == 0, done.text
    told = sorted((rank, host, address.split(":")[0]) for rank, host, address in done.told("at"))
    assert told == [("0", "n01", "10.99.0.1"), ("1", "n02", "10.99.0.2"), ("2", "n03", "10.99.0.3")], done.text


# By PMI rank 0 leads, on n01; in a directory anyone may.
@pytest.mark.parametrize("mode", ["srun --mpi=pmi2", "salloc"])
def test_a_node_that_is_switched_off(nodes: Nodes, mode: str) -> None:
    running = nodes.start(*mode.split(), "--no-kill", "-N3", "-n3", *run("--grace", "2s", script=UP))
    wait_for("all members", lambda: running.text().count("] up 10.99.0.") == 3, now=running.text)
    nodes.do("off", "n03")
    try:
        code = running.wait()
        assert code != 0 and re.search(r"first failure: worker 2 on n03, pid \d+: lost: its agent is gone", running.text()), running.text()
    finally:
        nodes.do("on", "n03")


def test_a_node_that_is_cut_off_ends_on_both_sides(nodes: Nodes) -> None:
    script = f"srun --mpi=pmi2 --no-kill {line('--grace', '2s', script=UP)}; echo srun ended"
    job = nodes.sbatch(script, "--no-kill", "--no-requeue", "-N3", "-n3", "-w", "n[01-03]")
    wait_for("all members", lambda: job.log().count("] up 10.99.0.") == 3, now=job.log)
    nodes.do("cut", "n03")
    try:
        # Nothing is heard of it for 15 s; then the others end, and so does the one that was cut off.
        wait_for("its loss", lambda: "first failure: worker 2 on n03" in job.log(), 60, job.log)
        wait_for("its own end", lambda: [pid for pid in job.processes() if is_member(pid)] == [], 60, job.log)
    finally:
        nodes.do("heal", "n03")


def is_member(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip() in ("sleep", "rallypoint")
    except OSError:
        return False
