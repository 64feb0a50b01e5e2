"""A parameter server without Python beside one with it: time to listening, memory, steps per second and their cost.

    build/venv/bin/python benchmarks/serve.py target/release/rallypoint [ROUNDS]

Rounds are interleaved, so that whatever else the machine does meets both alike. Round 0 brings the libraries into
the page cache and is not counted. Memory is what a process has for itself (anonymous), after a client has worked
with it; library pages are shared by all processes of a machine.
"""

import json
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RALLYPOINT = sys.argv[1] if len(sys.argv) > 1 else str(ROOT / "target/release/rallypoint")
ROUNDS = int(sys.argv[2]) if len(sys.argv) > 2 else 10
TRAININGS = 5
STEPS = 3000
PYTHON_SERVER = """
import tensorflow as tf
me = tf.distribute.cluster_resolver.TFConfigClusterResolver()
tf.distribute.Server(me.cluster_spec(), job_name=me.task_type, task_index=me.task_id).join()
"""
SERVERS = {
    "rallypoint": [RALLYPOINT, "serve", "--tensorflow", sys.prefix],
    "python": [sys.executable, "-c", PYTHON_SERVER],
}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]


def memory(pid: int) -> float:
    """MB of anonymous memory."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"RssAnon:\s+(\d+) kB", status)[1]) / 1000


def use(port: int) -> None:
    """A session's variable on the server, so that all of its parts have started."""
    import tensorflow as tf

    tf1 = tf.compat.v1
    # Without the filter it would wait for the worker that is named and not there.
    config = tf1.ConfigProto(device_filters=["/job:ps"], operation_timeout_in_ms=60000)
    with tf1.Graph().as_default(), tf1.device("/job:ps/task:0"):
        weights = tf1.get_variable("weights", [100, 100])
        product = tf.reduce_sum(weights @ weights)
        with tf1.Session(f"grpc://127.0.0.1:{port}", config=config) as session:
            session.run(weights.initializer)
            session.run(product)


def start_and_stop(command: list[str]) -> tuple[float, float]:
    """Milliseconds from the start to a connection, and MB after a session."""
    port = free_port()
    config = {"cluster": {"ps": [f"127.0.0.1:{port}"], "worker": ["127.0.0.1:1"]}, "task": {"type": "ps", "index": 0}}
    env = {**os.environ, "TF_CONFIG": json.dumps(config), "TF_CPP_MIN_LOG_LEVEL": "2"}
    started = time.perf_counter()
    server = subprocess.Popen(command, env=env, stderr=subprocess.DEVNULL)
    try:
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except ConnectionRefusedError:
                if server.poll() is not None or time.perf_counter() - started > 120:
                    sys.exit(f"{command[0]} did not listen")
                time.sleep(0.001)
        listening = (time.perf_counter() - started) * 1000
        use(port)
        return listening, memory(server.pid)
    finally:
        server.kill()
        server.wait()


def cpu(events: str) -> float:
    """CPU seconds of the ps so far."""
    started = (event for event in map(json.loads, Path(events).read_text().splitlines()) if event["event"] == "started")
    pid = next(event["pid"] for event in started if event["role"] == "ps")
    user, system = Path(f"/proc/{pid}/stat").read_text().rsplit(")")[1].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def train(options: list[str]) -> tuple[float, float]:
    """The digits example with one ps and two workers, from its first report to its last one: steps per second, and
    milliseconds of CPU that the ps takes for 1,000 steps, which a busy machine changes less."""
    with tempfile.TemporaryDirectory() as folder:
        events = f"{folder}/events"
        command = [RALLYPOINT, "run", "--ps", "1", "--workers", "2", *options, "--events", events, "--"]
        command += [sys.executable, str(ROOT / "examples/digits/train.py"), "--steps", str(STEPS)]
        reports = []
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as job:
            for line in job.stdout:
                if report := re.match(r"\[worker 0\] step +(\d+) ", line):
                    reports.append((time.perf_counter(), int(report[1]), cpu(events)))
    if job.returncode != 0 or len(reports) < 2:
        sys.exit(f"the example ended with {job.returncode}")
    seconds, steps, busy = (last - first for first, last in zip(reports[0], reports[-1]))
    return steps / seconds, busy / steps * 1e6


def compare(what: str, ours: list[float], theirs: list[float], unit: str) -> None:
    ratios = [a / b for a, b in zip(ours, theirs)]
    for name, values in (("rallypoint", ours), ("python", theirs)):
        spread = f"{min(values):.0f} to {max(values):.0f}"
        print(f"{what:18} {name:10} median {statistics.median(values):7.1f} {unit} ({spread})")
    print(f"{what:18} {'ratio':10} median {statistics.median(ratios):7.3f} ({min(ratios):.3f} to {max(ratios):.3f})")


def main() -> None:
    measured: dict[str, list[tuple[float, float]]] = {name: [] for name in SERVERS}
    for number in range(ROUNDS + 1):
        for name, command in SERVERS.items():
            result = start_and_stop(command)
            print(f"round {number}: {name:10} listens after {result[0]:5.0f} ms, has {result[1]:4.0f} MB", flush=True)
            if number > 0:
                measured[name].append(result)
    trained: dict[str, list[tuple[float, float]]] = {name: [] for name in SERVERS}
    for number in range(TRAININGS):
        order = {"rallypoint": ["--serve", "ps"], "python": []}
        # Who goes second finds a warmer machine: take turns.
        for name in sorted(order, reverse=number % 2 == 1):
            result = train(order[name])
            print(f"training {number}: {name:10} {result[0]:5.0f} steps/s, {result[1]:5.0f} ms/1000 steps", flush=True)
            trained[name].append(result)
    print()
    compare("time to listening", *([time for time, _ in measured[name]] for name in SERVERS), "ms")
    compare("private memory", *([size for _, size in measured[name]] for name in SERVERS), "MB")
    compare("steps per second", *([rate for rate, _ in trained[name]] for name in SERVERS), "  ")
    compare("CPU of 1000 steps", *([cost for _, cost in trained[name]] for name in SERVERS), "ms")


if __name__ == "__main__":
    main()
