"""Real TensorFlow under the real command: it trains, it ends, and what dies is noticed."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tensorflow_race import undisturbed
from waiting import wait_for

ROOT = Path(__file__).resolve().parents[2]
RALLYPOINT = os.environ.get("RALLYPOINT", str(ROOT / "target/release/rallypoint"))
LIMIT = 240


def command(*args: str, script: str, options: tuple[str, ...] = ()) -> list[str]:
    return [RALLYPOINT, "run", *args, "--", sys.executable, str(ROOT / "examples" / script), *options]


def run(*args: str, script: str, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*args, script=script, options=options), capture_output=True, text=True, timeout=LIMIT
    )


def accuracies(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"accuracy (0\.\d+)", text)]


@pytest.mark.parametrize("hand_over", ["reuse-addr", "reuse-port"])
def test_asynchronous_training_with_a_parameter_server(hand_over: str, tmp_path: Path) -> None:
    events = tmp_path / "events"
    done = run("--ps", "1", "--workers", "2", "--hand-over", hand_over, "--events", str(events), script="digits/train.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert accuracies(done.stdout)[-1] > 0.95
    assert "[worker 1]" in done.stdout
    assert "stopped (killed by SIGTERM)" in done.stderr
    seen = [json.loads(line) for line in events.read_text().splitlines()]
    assert sorted(event["rank"] for event in seen if event["event"] == "listening") == [0, 1, 2]


def test_tf2_coordinator() -> None:
    done = undisturbed(lambda: run("--chief", "--ps", "1", "--workers", "2", script="coordinator/train.py"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert accuracies(done.stdout)[-1] > 0.95


def test_mirrored_workers() -> None:
    done = run("--workers", "2", script="mirrored/train.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert accuracies(done.stdout)[-1] > 0.95


def test_three_agents_that_meet_in_a_directory(tmp_path: Path) -> None:
    args = ("--ps", "1", "--workers", "2", "--meet", str(tmp_path / "meet"))
    agents = [
        subprocess.Popen(
            command(*args, script="digits/train.py"), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        for _ in range(3)
    ]
    outputs = [agent.communicate(timeout=LIMIT)[0] for agent in agents]
    assert [agent.returncode for agent in agents] == [0, 0, 0], "\n".join(outputs)
    assert max(accuracies("".join(outputs))) > 0.95
    assert list((tmp_path / "meet").iterdir()) == []


def members(events: Path) -> dict[tuple[str, int], int]:
    """The pid of every member that was started, the latest one."""
    lines = events.read_text().splitlines() if events.exists() else []
    started = [event for event in map(json.loads, lines) if event["event"] == "started"]
    return {(event["role"], event["index"]): event["pid"] for event in started}


def test_a_killed_parameter_server_ends_the_job(tmp_path: Path) -> None:
    events, log = tmp_path / "events", tmp_path / "log"
    args = ("--ps", "1", "--workers", "2", "--events", str(events), "--grace", "5s")
    with log.open("w") as out:
        job = subprocess.Popen(
            command(*args, script="digits/train.py", options=("--steps", "1000000")), stdout=out, stderr=out, text=True
        )
        wait_for("training", lambda: accuracies(log.read_text()), LIMIT, log.read_text, running=[job])
        killed = time.monotonic()
        os.kill(members(events)[("ps", 0)], signal.SIGKILL)
        assert job.wait(timeout=LIMIT) == 137
    assert time.monotonic() - killed < 10
    assert "first failure: ps 0 on" in log.read_text()


def test_a_coordinators_worker_comes_back_at_its_address(tmp_path: Path) -> None:
    events, log = tmp_path / "events", tmp_path / "log"
    args = ("--chief", "--ps", "1", "--workers", "2", "--restart", "worker=1", "--events", str(events))
    with log.open("w") as out:
        job = subprocess.Popen(command(*args, script="coordinator/train.py"), stdout=out, stderr=out, text=True)
        wait_for("training", lambda: accuracies(log.read_text()), LIMIT, log.read_text, running=[job])
        os.kill(members(events)[("worker", 1)], signal.SIGKILL)
        assert job.wait(timeout=LIMIT) == 0, log.read_text()
    assert "restarted once" in log.read_text()
    assert accuracies(log.read_text())[-1] > 0.95


def test_the_server_def_is_tensorflows_own() -> None:
    from tensorflow.core.protobuf import tensorflow_server_pb2

    args = ["env", "--nodes", "n[1-2]", "--ps", "1", "--workers", "3", "--rank", "2", "--format", "server-def"]
    binary = subprocess.run([RALLYPOINT, *args], capture_output=True, check=True).stdout
    expected = tensorflow_server_pb2.ServerDef(job_name="worker", task_index=1, protocol="grpc", port=8888)
    for job, addresses in {"ps": ["n1:8888"], "worker": ["n1:8889", "n2:8888", "n2:8889"]}.items():
        expected.cluster.job.add(name=job, tasks=dict(enumerate(addresses)))
    assert tensorflow_server_pb2.ServerDef.FromString(binary) == expected
    proto = (ROOT / "crates/core/proto/server_def.proto").read_text()
    known = {}
    found = [tensorflow_server_pb2.ServerDef.DESCRIPTOR]
    while found:
        message = found.pop()
        if message.name not in known:
            known[message.name] = message
            found += [field.message_type for field in message.fields if field.message_type]
    for message, body in re.findall(r"message (\w+) \{(.*?)\n\}", proto, re.S):
        for field, number in re.findall(r"(\w+) = (\d+);", body):
            assert known[message].fields_by_name[field].number == int(number), f"{message}.{field}"
