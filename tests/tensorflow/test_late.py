"""A worker of TensorFlow 1 that opens its session when another has finished: a server stands in for that one."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import wait_for

ROOT = Path(__file__).resolve().parents[2]
RALLYPOINT = os.environ.get("RALLYPOINT", str(ROOT / "target/release/rallypoint"))
LIMIT = 240


def command(*args: str, options: tuple[str, ...] = ()) -> list[str]:
    return [RALLYPOINT, "run", *args, "--", sys.executable, str(ROOT / "tests/late_worker.py"), *options]


def servers(mark: str) -> list[int]:
    """Processes of `rallypoint serve` whose command line has this word."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_text().split("\0")
        except OSError:
            continue
        if len(words) > 1 and words[1] == "serve" and mark in words:
            found.append(int(entry.name))
    return found


@pytest.mark.parametrize("hand_over", ["reuse-addr", "reuse-port", "release"])
def test_a_late_worker_of_an_unmodified_program(tmp_path: Path, hand_over: str) -> None:
    """Without a server in its place, worker 1's session waits for worker 0 for ever."""
    mark = str(tmp_path)
    run = command("--ps", "1", "--workers", "2", "--hand-over", hand_over, options=("--after", mark))
    done = subprocess.run(run, capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [f"[worker {index}] worker {index} has done 50 steps" in done.stdout for index in (0, 1)] == [True, True]
    assert "worker 1 comes late" in done.stdout
    # The table is that of the members; the server is none, and nobody's leftover.
    assert re.search(r"^worker 0 .* finished ", done.stderr, re.M), done.stderr
    assert "serve" not in done.stdout + done.stderr and "left behind" not in done.stderr, done.stderr
    assert servers(mark) == []


@pytest.mark.parametrize("how", ["exec", "child"])
def test_a_program_that_a_script_starts(tmp_path: Path, how: str) -> None:
    """The command tells nothing of TensorFlow; the members that have loaded it do."""
    mark, script = str(tmp_path), tmp_path / "train.sh"
    python = f'"{sys.executable}" "{ROOT / "tests/late_worker.py"}" "$@"'
    script.write_text(f"#!/bin/sh\n{'exec ' if how == 'exec' else ''}{python}\n")
    script.chmod(0o755)
    run = [RALLYPOINT, "run", "--ps", "1", "--workers", "2", "--", str(script), "--after", mark]
    # No other TensorFlow is found by chance.
    variables = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "CONDA_PREFIX")}
    variables["PATH"] = "/usr/bin:/bin"
    done = subprocess.run(run, capture_output=True, text=True, timeout=LIMIT, env=variables)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[worker 1] worker 1 has done 50 steps" in done.stdout, done.stderr
    assert "keeps its address" not in done.stderr
    assert servers(mark) == []


def test_each_agent_stands_in_for_its_own_member(tmp_path: Path) -> None:
    mark = str(tmp_path)
    run = command("--ps", "1", "--workers", "2", "--meet", str(tmp_path / "meet"), options=("--after", mark))
    agents = [
        subprocess.Popen(run, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for _ in range(3)
    ]
    outputs = [agent.communicate(timeout=LIMIT)[0] for agent in agents]
    assert [agent.returncode for agent in agents] == [0, 0, 0], "\n".join(outputs)
    assert "worker 1 has done 50 steps" in "".join(outputs)
    assert servers(mark) == []


def test_who_has_stood_in_ends_with_an_interrupted_job(tmp_path: Path) -> None:
    """Worker 1 never comes; Ctrl-C ends the server with the others."""
    mark, log = str(tmp_path), tmp_path / "log"
    with log.open("w") as out:
        options = ("--after", mark, "--late-session", "10000")
        job = subprocess.Popen(command("--ps", "1", "--workers", "2", options=options), stdout=out, stderr=out)
        wait_for("a server", lambda: servers(mark), LIMIT, log.read_text, running=[job])
        job.terminate()
        assert job.wait(timeout=LIMIT) == 196, log.read_text()
    assert servers(mark) == []
    assert "left behind" not in log.read_text()
