"""`rallypoint submit htcondor`, with real TensorFlow: both universes, with and without a shared file system."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from pool import PYTHON, RALLYPOINT, ROOT, Pool
from waiting import wait_for

# Ten CPUs of a host's 24: three members need two hosts.
RESOURCES = ("--request-cpus", "10", "--request-memory", "1500", "--requirements", 'Machine != "ex3.lab"')


def submit(pool: Pool, folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return pool.run(RALLYPOINT, "submit", "htcondor", *args, cwd=folder, check=False, limit=240)


@pytest.mark.parametrize("universe", ["vanilla", "parallel"])
@pytest.mark.parametrize("place", ["shared", "apart"])
def test_tensorflow_trains(
    pool: Pool, hosts: list[str], request: pytest.FixtureRequest, universe: str, place: str
) -> None:
    folder: Path = request.getfixturevalue(place)
    shutil.copy(ROOT / "examples/digits/train.py", folder)
    shutil.copy(ROOT / "examples/digits_data.py", folder)
    files = ("--no-shared-fs", "--input", "digits_data.py") if place == "apart" else ()
    command = ("--universe", universe, "--wait", *files, *RESOURCES, "--ps", "1", "--workers", "2", "--threads", "off")
    done = submit(pool, folder, *command, "--", PYTHON, "train.py")
    written = "".join(file.read_text() for file in sorted(folder.glob("train-*.[eo]*")))
    assert done.returncode == 0, done.stderr + written
    accuracies = [float(found) for found in re.findall(r"final accuracy ([0-9.]+)", written)]
    assert len(accuracies) == 1 and accuracies[0] > 0.95, written
    assert "3 members on 2 hosts" in written, written
    assert "3 landed, 0 ended" in done.stderr and "has ended with 0" in done.stderr, done.stderr
    assert not list(folder.glob("*rallypoint*")), "nothing is left"


def test_a_parameter_server_without_python(pool: Pool, hosts: list[str], apart: Path) -> None:
    for file in ("digits/train.py", "digits_data.py"):
        shutil.copy(ROOT / "examples" / file, apart)
    command = ("--wait", "--no-shared-fs", "--input", "digits_data.py", *RESOURCES, "--ps", "1", "--workers", "2")
    done = submit(pool, apart, *command, "--serve", "ps", "--threads", "off", "--", PYTHON, "train.py")
    written = "".join(file.read_text() for file in sorted(apart.glob("train-*.[eo]*")))
    assert done.returncode == 0, done.stderr + written
    assert re.search(r"final accuracy 0\.9[5-9]", written), written
    assert re.search(r"^ps 0 +ex\d.* served until stopped", written, re.M), written


def test_wait_tells_who_is_where(pool: Pool, shared: Path) -> None:
    script = shared / "fails.sh"
    script.write_text("#!/bin/sh\n[ $RALLYPOINT_RANK = 1 ] && exit 7\nexec sleep 600\n")
    done = submit(pool, shared, "--workers", "2", "--grace", "1s", "--logs", "logs", "--wait", "--", "sh", "fails.sh")
    assert done.returncode == 7, done.stdout + done.stderr
    cluster = int(done.stdout)
    assert f"worker 1 ({cluster}.1) has landed on" in done.stderr, done.stderr
    assert f"worker 0 ({cluster}.0) has ended with 7" in done.stderr, "what the program fails with is final"
    assert "0 landed, 0 ended, 2 not on a host: worker 0" in done.stderr
    assert {file.name for file in (shared / "logs").iterdir()} == {
        f"sh-{cluster}.{rest}" for rest in ("log", "0.out", "0.err", "1.out", "1.err")
    }


# As people write them: comments, parts of a command on several lines, quotes, a backslash.
SETUP = r"""
[env.plain]
setup = ["export WORD='it is'", "export SUM=$((1 + 2))"]
[env.written]
setup = [
    "# what we need", "", "export WORD='it is'  # quoted",
    "if [ -n \"$WORD\" ]", "then", "export SUM=\"$((1 + \\", "2))\"", "fi",
]
"""


@pytest.mark.parametrize("place", ["shared", "apart"])
@pytest.mark.parametrize("name", ["plain", "written"])
def test_an_environment_is_set_up_first(pool: Pool, request: pytest.FixtureRequest, place: str, name: str) -> None:
    folder: Path = request.getfixturevalue(place)
    (folder / "rallypoint.toml").write_text(SETUP)
    files = ("--no-shared-fs",) if place == "apart" else ()
    show = """echo "member $RALLYPOINT_RANK: $WORD $SUM" '$(HOME) #'"""
    done = submit(pool, folder, "--workers", "2", "--env", name, "--wait", *files, "--", "sh", "-c", show)
    written = "".join(file.read_text() for file in sorted(folder.glob("sh-*.out")))
    assert done.returncode == 0, done.stderr + written
    assert sorted(re.findall("member .*", written)) == [f"member {rank}: it is 3 $(HOME) #" for rank in range(2)], written


def test_all_are_started_again_when_one_is_evicted(pool: Pool, apart: Path) -> None:
    script = apart / "once.sh"
    script.write_text("#!/bin/sh\n[ $RALLYPOINT_ATTEMPT != 0 ] || exec sleep 600\n")
    args = ("--workers", "2", "--no-shared-fs", "--line", "stream_error = True", "--", "sh", "once.sh")
    done = submit(pool, apart, *args)
    assert done.returncode == 0, done.stderr
    cluster = int(done.stdout)
    errors = [apart / f"sh-{cluster}.{proc}.err" for proc in range(2)]
    log = apart / f"sh-{cluster}.log"
    wait_for("the start", lambda: any("2 members on" in file.read_text() for file in errors if file.exists()))
    pool.run("condor_vacate_job", f"{cluster}.1")
    wait_for("the end of both", lambda: log.read_text().count("(return value 0)") == 2)


def test_a_dry_run_submits_nothing(pool: Pool, shared: Path) -> None:
    args = ("--ps", "1", "--workers", "2", "--request-gpus", "1", "--dry-run", "--", "sh", "-c", ":")
    done = submit(pool, shared, *args)
    assert done.returncode == 0 and done.stdout.endswith("queue 3\n"), done.stdout + done.stderr
    assert list(shared.iterdir()) == []
    (shared / "job.sub").write_text(done.stdout)
    asked = pool.run("condor_submit", "-dry-run", "-", "job.sub", cwd=shared).stdout
    assert re.findall(r"^RequestGPUs *= *(\d)", asked, re.M | re.I)[:3] in (["0", "1", "1"], ["0", "1"]), asked


@pytest.mark.parametrize(
    ("args", "word"),
    [
        (("--ps", "1", "--", "sh"), "hint: --workers 2"),
        (("--workers", "2", "--line", "queue", "--", "sh"), "expected `name = value`"),
        (("--workers", "2", "--no-shared-fs", "--input", "nothing", "--", "sh"), "there is no such file"),
        (("--workers", "2", "--requirements", "(", "--", "sh"), "condor_submit refuses the job"),
        (("--workers", "2", "--", PYTHON, "nothing.py"), "nothing.py does not exist"),
    ],
)
def test_what_cannot_be_submitted_says_why(pool: Pool, shared: Path, args: tuple[str, ...], word: str) -> None:
    done = submit(pool, shared, *args)
    assert done.returncode == 2 and word in done.stderr, done.stderr
