"""The examples, as their READMEs say: real TensorFlow, to the end."""

from __future__ import annotations

import itertools
import os
import random
import re
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import wait_for

import rallypoint

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
RALLYPOINT = os.environ.get("RALLYPOINT", str(ROOT / "target/release/rallypoint"))
LIMIT = 240
# Steps beyond the last one, a worker: the one that it is in when the count is reached, and one more where
# StopAtStepHook has read the count a moment before that step added to it.
OVERRUN = 2


def run(*command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=LIMIT)


def under_run(*args: str, script: str, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    place = (EXAMPLES / script).parent
    return run(RALLYPOINT, "run", *args, "--", sys.executable, Path(script).name, *options, cwd=place)


def together(commands: list[list[str]], cwd: Path, environs: list[dict[str, str]] | None = None) -> list[str]:
    """Runs the commands at the same time; all must end with 0. Gives what each has printed, errors included."""
    processes = [
        subprocess.Popen(
            command, cwd=cwd, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        for command, environ in zip(commands, environs or [dict(os.environ)] * len(commands))
    ]
    try:
        outputs = [process.communicate(timeout=LIMIT)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0] * len(processes), "\n---\n".join(outputs)
    return outputs


def errors(text: str) -> list[str]:
    """Lines that would worry a user: tracebacks, and what TensorFlow and its gRPC log as errors or warnings."""
    return [
        line
        for line in text.splitlines()
        if re.search(r"Traceback|\bError\b|error:|Aborted|Unavailable|^(\[.*\] )?[EFW]\d{4} |: [EFW] ", line)
    ]


def test_parameter_servers_end_by_themselves_with_hooks() -> None:
    options = ("-ps", "2", "-workers", "2", "--seconds", "0.1")
    # --until all: nobody is stopped, so all have to end by themselves.
    done = under_run(
        "--ps", "2", "--workers", "2", "--until", "all", script="launch_server_with_hooks/launch_server.py", options=options
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert errors(done.stdout + done.stderr) == []
    steps = [int(number) for number in re.findall(r"global step (\d+)", done.stdout)]
    assert 10 <= len(steps) <= 10 + OVERRUN * 2
    assert max(steps) >= 10
    for ps in range(2):
        assert f"ps {ps}: 2 of 2 workers are done" in done.stdout
    assert done.stderr.count("finished") == 4


def test_without_hooks_the_command_ends_the_parameter_server() -> None:
    options = ("-ps", "1", "-workers", "1", "--seconds", "0", "--no-hooks")
    done = under_run(
        "--ps", "1", "--workers", "1", script="launch_server_with_hooks/launch_server.py", options=options
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "worker 0: global step 10" in done.stdout
    assert "workers are done" not in done.stdout
    assert re.search(r"^ps 0 .* stopped \(killed by SIGTERM\)", done.stderr, re.MULTILINE)


def test_hooks_need_no_python_on_the_parameter_server() -> None:
    options = ("-ps", "1", "-workers", "2", "--seconds", "0.1")
    done = under_run(
        *("--ps", "1", "--workers", "2", "--serve", "ps"),
        script="launch_server_with_hooks/launch_server.py",
        options=options,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    steps = [int(number) for number in re.findall(r"global step (\d+)", done.stdout)]
    assert 10 <= len(steps) <= 10 + OVERRUN * 2
    assert max(steps) >= 10
    assert re.search(r"^ps 0 .* served until stopped", done.stderr, re.MULTILINE)


SUBMIT = [
    ([], None),
    (["217", "3"], "load python/3.12 tensorflow/2.17"),
    (["215"], "load python/3.11 tensorflow/2.15"),
    (["17", "3"], "load python/3.12 tensorflow/2.17"),
    (["17"], "load python/3.12 tensorflow/2.17"),
]


def submit(tmp_path: Path, *args: str, tasks: str = "3") -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """Runs submit.sh with an srun and a module that only tell how they were called."""
    told = tmp_path / "told"
    for name in ("srun", "module"):
        (tmp_path / name).write_text(f'#!/bin/sh\necho "{name} $*" >>"{told}"\n')
        (tmp_path / name).chmod(0o755)
    environ = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_NTASKS": tasks}
    script = EXAMPLES / "launch_server_with_hooks/submit.sh"
    done = subprocess.run([str(script), *args], cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=LIMIT)
    return done, told.read_text().splitlines() if told.exists() else []


@pytest.mark.parametrize("args, loaded", SUBMIT)
def test_submit_loads_the_environment_of_its_arguments(args: list[str], loaded: str | None, tmp_path: Path) -> None:
    done, told = submit(tmp_path, *args)
    assert done.returncode == 0, done.stderr
    step = "srun --kill-on-bad-exit=1 --cpus-per-task=1 python launch_server.py -ps 1 -workers 2"
    assert told == ([f"module {loaded}"] if loaded else []) + [step]
    assert ("too old" in done.stderr) == (args[:1] == ["17"])


def test_submit_activates_a_virtual_environment(tmp_path: Path) -> None:
    (tmp_path / "venv/bin").mkdir(parents=True)
    (tmp_path / "venv/bin/activate").write_text("srun activated\n")
    done, told = submit(tmp_path, "--no-hooks", "-ps", "2", str(tmp_path / "venv"), tasks="6")
    assert done.returncode == 0, done.stderr
    assert told[0] == "srun activated"
    assert told[1].endswith("rallypoint run --ps 2 --workers 4 -- python launch_server.py -ps 2 -workers 4 --no-hooks")


def test_submit_refuses_an_environment_that_nobody_wrote(tmp_path: Path) -> None:
    done, told = submit(tmp_path, "99", "3")
    assert (done.returncode, told) == (2, [])
    assert "no environment '99 3'" in done.stderr


def steps_done(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"done, (\d+) steps here", text)]


def accuracies(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"accuracy (\d\.\d+)", text)]


def test_three_terminals_start_together_and_end_in_peace(tmp_path: Path) -> None:
    environ = {**os.environ, "TMPDIR": str(tmp_path / "tmp")}
    (tmp_path / "tmp").mkdir()
    logs = [tmp_path / f"terminal-{index}" for index in range(3)]
    terminals: list[subprocess.Popen[bytes]] = []

    def start(index: int) -> None:
        with logs[index].open("w") as log:
            command = [sys.executable, "local.py", "3", str(index)]
            terminals.append(subprocess.Popen(command, cwd=EXAMPLES / "local", env=environ, stdout=log, stderr=log))

    def says(text: str) -> None:
        wait_for(text, lambda: text in logs[0].read_text(), LIMIT, logs[0].read_text, running=terminals)

    try:
        start(0)
        # The first to come hears who is missing.
        says("missing: worker 0 (rank 1), worker 1 (rank 2)")
        start(1)
        says("missing: worker 1 (rank 2)")
        assert "step" not in logs[1].read_text()
        start(2)
        assert [terminal.wait(LIMIT) for terminal in terminals] == [0, 0, 0], [log.read_text() for log in logs]
    finally:
        for terminal in terminals:
            terminal.kill()
    server, *workers = (log.read_text() for log in logs)
    assert "all workers are done" in server
    assert errors(server + "".join(workers)) == []
    assert min(accuracies("".join(workers))) > 0.9
    own = steps_done("".join(workers))
    assert len(own) == 2 and min(own) > 0 and 600 <= sum(own) <= 600 + OVERRUN * 2
    # Nothing is left of the meeting.
    assert [path for path in (tmp_path / "tmp").rglob("*") if not path.is_dir()] == []


def test_the_same_with_one_command() -> None:
    done = under_run("--ps", "1", "--workers", "2", "--until", "all", script="local/local.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert errors(done.stdout + done.stderr) == []
    assert "[ps 0] all workers are done" in done.stdout
    assert len(accuracies(done.stdout)) == 2 and min(accuracies(done.stdout)) > 0.9
    assert done.stderr.count("finished") == 3


@pytest.mark.parametrize("args", [["3", "3"], ["3", "-1"], ["1", "0"], ["3"], []])
def test_terminals_that_there_are_not(args: list[str]) -> None:
    done = run(sys.executable, "local.py", *args, cwd=EXAMPLES / "local")
    assert done.returncode == 2 and "local.py: error:" in done.stderr


def free_ports(count: int) -> list[int]:
    """Ports that nobody has now, from a range that most systems give to nobody by chance."""
    candidates = random.sample(range(20000, 32000), 1000)
    return list(itertools.islice((port for port in candidates if not rallypoint.port_in_use(port)), count))


def test_a_file_for_each_member(tmp_path: Path) -> None:
    members = ["ps", "worker_0", "worker_1"]
    ports = dict(zip(["2222", "2223", "2224"], map(str, free_ports(3))))
    for member in members:
        text = (EXAMPLES / f"custom_conf/tf_confs/localhost/{member}.json").read_text()
        (tmp_path / f"{member}.json").write_text(re.sub(r"222\d", lambda port: ports[port[0]], text))
    files = [str(tmp_path / f"{member}.json") for member in members]
    # Both ways of the README, side by side in one cluster.
    commands = [[RALLYPOINT, "run", "--tf-config", file, "--", sys.executable, "custom_conf.py"] for file in files]
    commands[1] = [sys.executable, "custom_conf.py", files[1]]
    server, *workers = together(commands, EXAMPLES / "custom_conf")
    assert "all workers are done" in server
    assert errors(server + "".join(workers)) == []
    assert min(accuracies("".join(workers))) > 0.9
    assert min(steps_done("".join(workers))) > 0


QUOTE = re.compile(r"^```console\n\$ (rallypoint .*)\n((?:.*\n)*?)```$", re.MULTILINE)
QUOTES = QUOTE.findall((EXAMPLES / "custom_conf/README.md").read_text())


def test_the_readme_tells_of_all_broken_files() -> None:
    folders = {str(file.parent) for file in (EXAMPLES / "custom_conf").glob("tf_confs/**/*.json")}
    quoted = {str(EXAMPLES / "custom_conf" / folder) for folder in re.findall(r"check (\S+)/\*", str(QUOTES))}
    assert folders == quoted and len(folders) > 5


@pytest.mark.parametrize("command, said", QUOTES, ids=[command.split("/")[-2] for command, _ in QUOTES])
def test_the_readme_quotes_what_the_command_says(command: str, said: str) -> None:
    line = command.replace("rallypoint", shlex.quote(RALLYPOINT), 1)
    done = run("sh", "-c", f"{line} 2>&1", cwd=EXAMPLES / "custom_conf")
    assert done.stdout == said
    is_wrong = "/broken/" in command
    assert (done.returncode != 0) == is_wrong


def slurm_environ(rank: int, tasks: int, host: str) -> dict[str, str]:
    """What `srun` gives to a task, as far as the resolver asks; nothing of a job that the tests may run in."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "TF_CONFIG"))}
    return {
        **ours,
        "SLURM_PROCID": str(rank),
        "SLURM_STEP_NUM_TASKS": str(tasks),
        "SLURM_STEP_NODELIST": host,
        "SLURM_STEP_TASKS_PER_NODE": str(tasks),
    }


def this_host() -> str:
    try:
        socket.getaddrinfo(socket.gethostname(), None)
        return socket.gethostname()
    except OSError:
        return "localhost"


def test_mirrored_workers_with_the_slurm_resolver() -> None:
    base = next(port for port in free_ports(100) if not rallypoint.port_in_use(port + 1))
    command = [sys.executable, "tf_example.py", "--steps", "300", "--target", "0.9", "--port-base", str(base)]
    environs = [slurm_environ(rank, 2, this_host()) for rank in range(2)]
    outputs = together([command] * 2, EXAMPLES / "slurm_resolver", environs)
    for rank, output in enumerate(outputs):
        assert f"worker {rank} of 2 at {this_host()}:{base + rank}" in output
        assert errors(output) == []
    # Copies that stay equal: all print the same.
    learned = [accuracies(output) for output in outputs]
    assert learned[0] == learned[1] and learned[0][-1] > 0.9 and len(learned[0]) == 3
