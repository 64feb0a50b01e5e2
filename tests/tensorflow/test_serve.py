"""TensorFlow servers without Python: they train as well, stop at once, and come back at their address."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from waiting import wait_for

ROOT = Path(__file__).resolve().parents[2]
RALLYPOINT = os.environ.get("RALLYPOINT", str(ROOT / "target/release/rallypoint"))
OLDEST = ROOT / "build/tensorflow-oldest"
LIMIT = 240


def run_command(*args: str, script: str) -> list[str]:
    return [RALLYPOINT, "run", *args, "--", sys.executable, str(ROOT / "examples" / script)]


def accuracies(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"accuracy (0\.\d+)", text)]


def events(file: Path, name: str) -> list[dict]:
    lines = file.read_text().splitlines() if file.exists() else []
    return [event for event in map(json.loads, lines) if event["event"] == name]


def free_ports(count: int) -> list[int]:
    held = [socket.socket() for _ in range(count)]
    for each in held:
        each.bind(("", 0))
    ports = [each.getsockname()[1] for each in held]
    for each in held:
        each.close()
    return ports


def tf_config(folder: Path, role: str, cluster: dict[str, list[str]]) -> str:
    file = folder / f"{role}.json"
    file.write_text(json.dumps({"cluster": cluster, "task": {"type": role, "index": 0}}))
    return str(file)


def start(*args: str, env: dict[str, str] | None = None) -> subprocess.Popen:
    """A server that finds the TensorFlow of these tests, unless it is given another."""
    variables = {**os.environ, "VIRTUAL_ENV": sys.prefix, **(env or {})}
    return subprocess.Popen([RALLYPOINT, "serve", "--json", *args], stdout=subprocess.PIPE, text=True, env=variables)


@contextmanager
def serving(*args: str, env: dict[str, str] | None = None) -> Iterator[dict]:
    """What a server said when it was ready; at the end it is stopped, and must have been there."""
    process = start(*args, env=env)
    try:
        ready = json.loads(process.stdout.readline())
        assert ready["pid"] == process.pid
        yield ready
        process.terminate()
        assert process.wait(timeout=10) == 0
    finally:
        process.kill()
        process.communicate()


def test_training_with_a_served_parameter_server(tmp_path: Path) -> None:
    log = tmp_path / "events"
    command = run_command("--ps", "1", "--workers", "2", "--serve", "ps", "--events", str(log), script="digits/train.py")
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert accuracies(done.stdout)[-1] > 0.95
    assert re.search(r"^ps 0 .* served until stopped ", done.stderr, re.M), done.stderr
    port = events(log, "roster")[0]["members"][0]["address"].rsplit(":")[-1]
    assert f"[ps 0] rallypoint: ps 0 serves on port {port} after " in done.stderr
    assert {event["rank"]: event.get("served", False) for event in events(log, "started")} == {0: True, 1: False, 2: False}
    assert sorted(event["rank"] for event in events(log, "listening")) == [0, 1, 2]


def test_a_killed_served_worker_comes_back_and_works_on(tmp_path: Path) -> None:
    """TF 2: only the chief is Python. There is one worker, so that without it no step is done."""
    log, output = tmp_path / "events", tmp_path / "output"
    args = ("--chief", "--ps", "1", "--workers", "1", "--serve", "ps,worker", "--restart", "worker=1")
    with output.open("w") as out:
        command = run_command(*args, "--events", str(log), script="coordinator/train.py")
        job = subprocess.Popen(command, stdout=out, stderr=out)
        wait_for("training", lambda: accuracies(output.read_text()), LIMIT, output.read_text, running=[job])
        before = len(accuracies(output.read_text()))
        [worker] = [event for event in events(log, "started") if event["role"] == "worker"]
        os.kill(worker["pid"], signal.SIGKILL)
        assert job.wait(timeout=LIMIT) == 0, output.read_text()
    text = output.read_text()
    assert "served until stopped, restarted once" in text
    ports = re.findall(r"worker 0 serves on port (\d+)", text)
    assert len(ports) == 2 and ports[0] == ports[1]
    assert len(accuracies(text)) > before and accuracies(text)[-1] > 0.95


def test_a_served_ps_that_somebody_else_stops_has_failed(tmp_path: Path) -> None:
    log, output = tmp_path / "events", tmp_path / "output"
    args = ("--ps", "1", "--workers", "1", "--serve", "ps", "--events", str(log))
    with output.open("w") as out:
        job = subprocess.Popen([RALLYPOINT, "run", *args, "--tensorflow", sys.prefix, "--", "sleep", "1000"], stderr=out)
        wait_for("a server", lambda: events(log, "listening"), LIMIT, running=[job])
        os.kill(events(log, "started")[0]["pid"], signal.SIGTERM)
        assert job.wait(timeout=LIMIT) == 143
    assert "somebody else told the server to stop" in output.read_text()


def test_twenty_starts_and_stops_at_one_port(tmp_path: Path) -> None:
    [port] = free_ports(1)
    config = tf_config(tmp_path, "ps", {"ps": [f"127.0.0.1:{port}"], "worker": ["127.0.0.1:1"]})
    for _ in range(20):
        with serving("--tf-config", config) as ready:
            assert (ready["role"], ready["index"], ready["port"]) == ("ps", 0, port)
            # It said that it listens: it does.
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=5)


def test_sigterm_during_load(tmp_path: Path) -> None:
    [port] = free_ports(1)
    config = tf_config(tmp_path, "ps", {"ps": [f"127.0.0.1:{port}"], "worker": ["127.0.0.1:1"]})
    for _ in range(5):
        process = start("--tf-config", config)
        maps = Path(f"/proc/{process.pid}/maps")
        wait_for("the library", lambda: "libtensorflow" in maps.read_text(), running=[process], pause=0.005)
        process.terminate()
        output, _ = process.communicate(timeout=10)
        assert (process.returncode, output) == (0, "")


def test_config_grpc_options_and_a_proxy(tmp_path: Path) -> None:
    """A session over two servers: what --config says, what is too long for --grpc-max-message-length."""
    import tensorflow as tf

    tf1 = tf.compat.v1
    ps, worker = free_ports(2)
    cluster = {"ps": [f"127.0.0.1:{ps}"], "worker": [f"127.0.0.1:{worker}"]}
    config = tmp_path / "config.pbtxt"
    config.write_text('device_count { key: "CPU" value: 3 }  # three of them\n')
    # Nobody listens there: if a server went through it, the session would wait for ever.
    proxied = {"http_proxy": "http://127.0.0.1:9", "no_proxy": "example.org"}
    filters = ("--device-filter", "/job:ps", "--device-filter", "/job:worker", "--intra-op-threads", "1")
    length = ("--grpc-max-message-length", "100000")
    with (
        serving("--tf-config", tf_config(tmp_path, "ps", cluster), "--config", str(config), *length, env=proxied),
        serving("--tf-config", tf_config(tmp_path, "worker", cluster), *filters, env=proxied),
        tf1.Graph().as_default(),
    ):
        with tf1.device("/job:worker/task:0"):
            short, long = tf.random.uniform([1000]), tf.random.uniform([1000000])
        with tf1.device("/job:ps/task:0/device:CPU:2"):
            sums = [tf.reduce_sum(each) for each in (short, long)]
        with tf1.Session(f"grpc://127.0.0.1:{worker}") as session:
            devices = [device.name for device in session.list_devices()]
            assert sum("/job:ps/" in device and "/device:CPU:" in device for device in devices) == 3, devices
            assert 400 < session.run(sums[0]) < 600
            with pytest.raises(tf.errors.ResourceExhaustedError, match="larger than max"):
                session.run(sums[1])


def test_a_device_filter_spares_a_session_from_waiting_for_who_is_not_there(tmp_path: Path) -> None:
    import tensorflow as tf

    tf1 = tf.compat.v1
    [port] = free_ports(1)
    config = tf_config(tmp_path, "ps", {"ps": [f"127.0.0.1:{port}"], "worker": ["127.0.0.1:1"]})
    waits = tf1.ConfigProto(operation_timeout_in_ms=60000)
    with serving("--tf-config", config, "--device-filter", "/job:ps"), tf1.Graph().as_default():
        with tf1.device("/job:ps/task:0"):
            product = tf.constant(6.0) * tf.constant(7.0)
        with tf1.Session(f"grpc://127.0.0.1:{port}", config=waits) as session:
            assert session.run(product) == 42.0


def test_the_oldest_and_the_newest_tensorflow_serve_each_other(tmp_path: Path) -> None:
    import tensorflow as tf

    tf1 = tf.compat.v1
    ps, worker = free_ports(2)
    cluster = {"ps": [f"127.0.0.1:{ps}"], "worker": [f"127.0.0.1:{worker}"]}
    with (
        serving("--tf-config", tf_config(tmp_path, "ps", cluster), "--tensorflow", str(OLDEST)) as oldest,
        serving("--tf-config", tf_config(tmp_path, "worker", cluster)) as newest,
        tf1.Graph().as_default(),
    ):
        assert (oldest["tensorflow"], newest["tensorflow"]) == ("2.12.0", tf.__version__)
        with tf1.device("/job:ps/task:0"):
            count = tf1.get_variable("count", initializer=40.0)
        with tf1.device("/job:worker/task:0"):
            more = count.assign_add(tf.constant(1.0) + tf.constant(1.0))
        for _ in range(2):  # the variable stays on the ps between sessions
            with tf1.Session(f"grpc://127.0.0.1:{worker}") as session:
                session.run(count.initializer)
                assert session.run(more) == 42.0
        with tf1.Session(f"grpc://127.0.0.1:{ps}") as session:
            assert session.run(count) == 42.0


def test_a_server_def_made_by_tensorflow(tmp_path: Path) -> None:
    from tensorflow.core.protobuf import config_pb2, tensorflow_server_pb2

    [port] = free_ports(1)
    server = tensorflow_server_pb2.ServerDef(job_name="worker", task_index=3, protocol="grpc")
    server.cluster.job.add(name="worker", tasks={3: f"localhost:{port}"})
    server.default_session_config.CopyFrom(config_pb2.ConfigProto(device_count={"CPU": 2}, allow_soft_placement=True))
    file, config = tmp_path / "server.bin", tmp_path / "config.bin"
    file.write_bytes(server.SerializeToString())
    config.write_bytes(config_pb2.ConfigProto(inter_op_parallelism_threads=3, device_filters=["/job:worker"]).SerializeToString())
    with serving("--server-def", str(file), "--config", str(config), "--memory-growth") as ready:
        assert (ready["role"], ready["index"], ready["address"]) == ("worker", 3, f"localhost:{port}")


def test_a_port_in_use_by_another_server(tmp_path: Path) -> None:
    [port] = free_ports(1)
    config = tf_config(tmp_path, "ps", {"ps": [f"127.0.0.1:{port}"], "worker": ["127.0.0.1:1"]})
    with serving("--tf-config", config) as first:
        command = [RALLYPOINT, "serve", "--tf-config", config, "--tensorflow", sys.prefix]
        second = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
        assert second.returncode == 197
        assert f"port {port} is in use: pid {first['pid']} (rallypoint)" in second.stderr
