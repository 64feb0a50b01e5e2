"""A plain program of TensorFlow 1: `replica_device_setter` and `MonitoredTrainingSession`, and nothing about its end.

Its sessions have no device filters, so each waits for all members of the cluster. Here the last worker comes late, on
purpose, while the others train and end:

    rallypoint run --ps 1 --workers 2 -- python late_worker.py --late 45            # before it listens
    rallypoint run --ps 1 --workers 2 -- python late_worker.py --late-session 45    # it listens, and has no session
    rallypoint run --ps 1 --workers 2 -- python late_worker.py --after DIR          # its session comes after worker 0's end
"""

import argparse
import os
import socket
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=50, help="of each worker")
parser.add_argument("--late", type=float, default=0, help="seconds that the last worker does nothing at first")
parser.add_argument("--late-session", type=float, default=0, help="seconds between its server and its session")
parser.add_argument("--after", type=Path, help="a folder in which worker 0 tells its end to the last worker")
options = parser.parse_args()

import tensorflow as tf

tf1 = tf.compat.v1
tf1.disable_eager_execution()


def wait_for_the_end_of(address: str, file: Path) -> None:
    """Until the file is there and nobody listens any more; a server may soon stand in."""
    until = time.monotonic() + 180
    while not file.exists():
        assert time.monotonic() < until, f"{file} has not come"
        time.sleep(0.05)
    until = time.monotonic() + 10
    host, _, port = address.rpartition(":")
    while time.monotonic() < until:
        try:
            socket.create_connection((host, int(port)), timeout=5).close()
        except OSError:
            return
        time.sleep(0.05)


me = tf.distribute.cluster_resolver.TFConfigClusterResolver()
cluster = me.cluster_spec()
workers = cluster.job_tasks("worker")
is_late = me.task_type == "worker" and me.task_id == len(workers) - 1
if is_late:
    time.sleep(options.late)
server = tf1.train.Server(cluster, job_name=me.task_type, task_index=me.task_id)
if me.task_type == "ps":
    server.join()

if is_late:
    time.sleep(options.late_session)
    if options.after:
        wait_for_the_end_of(workers[0], options.after / "worker-0")
    print(f"worker {me.task_id} comes late", flush=True)

with tf1.device(tf1.train.replica_device_setter(worker_device=f"/job:worker/task:{me.task_id}", cluster=cluster)):
    step = tf1.train.get_or_create_global_step()
    weights = tf1.get_variable("weights", initializer=tf.zeros([8]))
    loss = tf.reduce_sum(tf.square(weights - 1.0))
    train = tf1.train.GradientDescentOptimizer(0.1).minimize(loss, global_step=step)

own = 0
hooks = [tf1.train.StopAtStepHook(num_steps=options.steps)]
with tf1.train.MonitoredTrainingSession(server.target, is_chief=me.task_id == 0, hooks=hooks) as session:
    while not session.should_stop():
        session.run(train)
        own += 1
print(f"worker {me.task_id} has done {own} steps", flush=True)
if options.after:
    (options.after / f"worker-{me.task_id}").touch()
