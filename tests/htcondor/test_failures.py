"""`rallypoint submit htcondor --wait` says why a job has failed, and where to look."""

import re
import subprocess
from pathlib import Path

import pytest
from pool import RALLYPOINT, Pool

FAILS = """#!/bin/sh
[ $RALLYPOINT_RANK = 1 ] || exec sleep 600
echo 'no such data set' >&2
exit 7
"""


def wait(pool: Pool, folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return pool.run(RALLYPOINT, "submit", "htcondor", *args, "--wait", "--", "sh", "fails.sh", cwd=folder, check=False)


@pytest.mark.parametrize("universe", ["vanilla", "parallel"])
@pytest.mark.parametrize("place", ["shared", "apart"])
def test_the_first_failure_is_told_with_its_lines(
    pool: Pool, request: pytest.FixtureRequest, place: str, universe: str
) -> None:
    folder: Path = request.getfixturevalue(place)
    (folder / "fails.sh").write_text(FAILS)
    files = ("--no-shared-fs",) if place == "apart" else ()
    done = wait(pool, folder, "--workers", "3", "--grace", "1s", "--logs", "logs", "--universe", universe, *files)
    assert done.returncode == 7, done.stdout + done.stderr
    told = re.search(
        r"^rallypoint: first failure: worker 1 on .*: exit code 7\n"
        r"rallypoint:   its last lines on stderr:\n"
        r"rallypoint:   \| no such data set$",
        done.stderr,
        re.M,
    )
    assert told, done.stderr
    assert done.stderr.count("no such data set") == 1, done.stderr
    files_of = f"logs/sh-{int(done.stdout)}"
    where = f"{files_of}.*.out and {files_of}.*.err; what HTCondor did: {files_of}.log\n"
    assert done.stderr.endswith(f"rallypoint: what the members wrote: {where}"), done.stderr
    assert len(list(folder.glob(f"{files_of}.*.err"))) == 3


def test_an_error_before_the_start_is_told(pool: Pool, shared: Path) -> None:
    (shared / "fails.sh").write_text(FAILS)
    # A port that only root may have.
    done = wait(pool, shared, "--workers", "2", "--port-range", "1-1", "--retries", "0")
    assert done.returncode == 197, done.stdout + done.stderr
    assert re.search(r"^rallypoint: worker \d \(\d+\.\d\) says:$", done.stderr, re.M), done.stderr
    assert "rallypoint:   | error: no port of 1-1 is free\n" in done.stderr, done.stderr
    assert "rallypoint: what the members wrote: sh-" in done.stderr, done.stderr
