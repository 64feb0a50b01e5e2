"""The examples for Slurm on a real one: `testbed/slurm`, started for these tests. TESTBEDS=none leaves them out."""

import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import rallypoint

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
TESTBED = ROOT / "testbed/slurm"
RALLYPOINT = Path(os.environ.get("RALLYPOINT", str(ROOT / "target/release/rallypoint")))
LIMIT = 300
ENDED = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL"}


@pytest.fixture(scope="module")
def slurm() -> Iterator[dict[str, str]]:
    """The environment of a user at this Slurm: its commands, this Python and the command are on the PATH."""
    if os.environ.get("TESTBEDS") == "none":
        pytest.skip("LEFT OUT: a real Slurm, since TESTBEDS=none")
    # A folder of our own: a Slurm that runs here already is somebody else's. A socket's path must be short.
    folder = tempfile.mkdtemp(prefix="rallypoint-slurm-", dir="/tmp")
    paths = [str(Path(sys.executable).parent), str(RALLYPOINT.parent), os.environ["PATH"]]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "RALLYPOINT", "TF_"))}
    environ = {**kept, "SLURM_TESTBED_DIR": folder, "PATH": ":".join(paths)}
    try:
        shell = ["bash", "-c", 'set -e; exports=$("$0/up"); eval "$exports"; env -0', str(TESTBED)]
        up = subprocess.run(shell, env=environ, stdout=subprocess.PIPE, text=True, timeout=LIMIT)
        assert up.returncode == 0, "no Slurm; is there a network to fetch it from? TESTBEDS=none leaves it out"
        yield dict(line.split("=", 1) for line in up.stdout.split("\0") if line)
    finally:
        subprocess.run([str(TESTBED / "down")], env=environ, timeout=60)  # removes the folder too
        assert not Path(folder).exists()


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The example in a folder of the user's own, with what it needs beside it."""
    shutil.copytree(EXAMPLES, tmp_path / "examples")
    return tmp_path / "examples"


def sbatch(slurm: dict[str, str], folder: Path, *words: str) -> str:
    """Submits, and gives the job's output when it has ended well."""
    done = subprocess.run(
        ["sbatch", "--parsable", "--output=out", *words], cwd=folder, env=slurm, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    job, until, state = done.stdout.strip(), time.monotonic() + LIMIT, ""
    while state not in ENDED:
        assert time.monotonic() < until, f"job {job} is {state}: {(folder / 'out').read_text()}"
        time.sleep(0.2)
        show = subprocess.run(["scontrol", "show", "job", job], env=slurm, capture_output=True, text=True, timeout=60)
        state = re.findall(r"JobState=(\w+)", show.stdout)[0]
    output = (folder / "out").read_text()
    assert state == "COMPLETED", output
    return output


# The nodes of the testbed have names that nobody else knows: --meet.
def test_a_batch_job_with_hooks_in_a_virtual_environment(slurm: dict[str, str], copy: Path) -> None:
    folder = copy / "launch_server_with_hooks"
    output = sbatch(slurm, folder, "-N2", "-n3", "submit.sh", "--meet", "auto", sys.prefix)
    assert "global step 10" in output
    assert "ps 0: 2 of 2 workers are done" in output
    assert "worker 0: done" in output and "worker 1: done" in output
    assert sorted(path.name for path in folder.iterdir() if path.name not in ("out", "__pycache__")) == sorted(
        path.name for path in (EXAMPLES / "launch_server_with_hooks").iterdir() if path.name != "__pycache__"
    )


def test_a_batch_job_without_hooks_is_ended_by_the_command(slurm: dict[str, str], copy: Path) -> None:
    output = sbatch(slurm, copy / "launch_server_with_hooks", "-n2", "submit.sh", "--no-hooks", sys.prefix)
    assert "global step 10" in output
    assert "workers are done" not in output
    assert re.search(r"^ps 0 .* stopped \(killed by SIGTERM\)", output, re.MULTILINE), output


def test_a_step_of_mirrored_workers(slurm: dict[str, str], copy: Path, tmp_path: Path) -> None:
    # The names of nodes have addresses on a real cluster; here they get some, for the step alone.
    (tmp_path / "hosts").write_text("127.0.0.1 localhost n01 n02 n03 n04\n")
    unshare = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--mount"]
    as_on_a_cluster = [*unshare, "sh", "-c", f'mount --bind {tmp_path}/hosts /etc/hosts && exec "$@"', "sh"]
    if subprocess.run([*as_on_a_cluster, "true"], capture_output=True).returncode != 0:
        pytest.skip("LEFT OUT: names for nodes need a mount namespace")
    # One node: the testbed's nodes share this machine's ports.
    ports = random.sample(range(20000, 32000), 1000)
    base = next(port for port in ports if not (rallypoint.port_in_use(port) or rallypoint.port_in_use(port + 1)))
    program = [sys.executable, "tf_example.py", "--steps", "200", "--target", "0.9", "--port-base", str(base)]
    done = subprocess.run(
        ["srun", "-N1", "-n2", "-w", "n03", *as_on_a_cluster, *program],
        cwd=copy / "slurm_resolver",
        env=slurm,
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert {f"worker {rank} of 2 at n03:{base + rank}" for rank in range(2)} <= set(done.stdout.splitlines())
    learned = re.findall(r"step  200  accuracy (0\.\d+)", done.stdout)
    assert len(learned) == 2 and learned[0] == learned[1] and float(learned[0]) > 0.9
