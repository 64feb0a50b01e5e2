"""Asynchronous training with a parameter server, in the style of TensorFlow 1.

    rallypoint run --ps 1 --workers 2 -- python examples/digits/train.py

The variables live on the ps. Every worker has a graph of its own, takes batches at its own pace and
sends its gradients without waiting for the others. Worker 0 is the chief: it gives the variables
their first values and prints the accuracy.
"""

import argparse
import os
import sys
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # read once, at the import

import numpy as np
import tensorflow as tf

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # where digits_data is
tf1 = tf.compat.v1

HIDDEN = 64
LEARNING_RATE = 0.1
REPORT_EVERY = 200


class StartTogether(tf1.train.SessionRunHook):
    """Holds each worker until all are here: one could do all the steps before another begins."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.arrived = tf1.get_variable("arrived", initializer=0, trainable=False)
        self.arrive = self.arrived.assign_add(1)

    def after_create_session(self, session: tf1.Session, coord: tf.train.Coordinator) -> None:
        session.run(self.arrive)
        while session.run(self.arrived) < self.workers:
            time.sleep(0.05)


def wait_for_chief(target: str, config: tf1.ConfigProto) -> None:
    """Returns when the variables have values. MonitoredTrainingSession looks every 30 s only."""
    missing = tf1.report_uninitialized_variables()
    with tf1.Session(target, config=config) as session:
        while session.run(missing).size > 0:
            time.sleep(0.1)


def work(server: tf1.train.Server, index: int, options: argparse.Namespace) -> None:
    """Trains until the workers together have done all the steps."""
    import digits_data  # not above: a ps has no need of it

    digits = digits_data.load()
    cluster = tf.train.ClusterSpec(server.server_def.cluster)
    here, is_chief = f"/job:worker/task:{index}", index == 0
    tf1.disable_eager_execution()
    tf1.set_random_seed(options.seed)
    with tf1.device(tf1.train.replica_device_setter(worker_device=here, cluster=cluster)):
        step = tf1.train.get_or_create_global_step()
        images = tf1.placeholder(tf.float32, [None, digits_data.PIXELS])
        labels = tf1.placeholder(tf.int32, [None])
        w1 = tf1.get_variable("w1", [digits_data.PIXELS, HIDDEN])
        b1 = tf1.get_variable("b1", initializer=tf.zeros([HIDDEN]))
        w2 = tf1.get_variable("w2", [HIDDEN, digits_data.CLASSES])
        b2 = tf1.get_variable("b2", initializer=tf.zeros([digits_data.CLASSES]))
        logits = tf.nn.relu(images @ w1 + b1) @ w2 + b2
        loss = tf1.losses.sparse_softmax_cross_entropy(labels, logits)
        train = tf1.train.GradientDescentOptimizer(LEARNING_RATE).minimize(loss, global_step=step)
        accuracy = tf.reduce_mean(tf.cast(tf.math.in_top_k(labels, logits, k=1), tf.float32))
        together = StartTogether(cluster.num_tasks("worker"))
    hooks = [together, tf1.train.StopAtStepHook(last_step=options.steps)]
    test = {images: digits.test_images, labels: digits.test_labels}

    # Each worker sees the ps and itself. Without the filter it would wait for the other workers
    # here, and fail when one of them leaves a moment before it.
    config = tf1.ConfigProto(device_filters=["/job:ps", here])
    if not is_chief:
        wait_for_chief(server.target, config)
    random = np.random.default_rng([options.seed, index])  # other batches on every worker
    own_steps, next_report = 0, REPORT_EVERY
    start = tf1.train.MonitoredTrainingSession
    with start(server.target, is_chief, hooks=hooks, config=config) as session:
        while not session.should_stop():
            batch = random.choice(len(digits.train_images), options.batch, replace=False)
            feed = {images: digits.train_images[batch], labels: digits.train_labels[batch]}
            _, now = session.run([train, step], feed)
            own_steps += 1
            if now >= next_report and not session.should_stop():
                next_report += REPORT_EVERY
                if is_chief:
                    print(f"step {now:4}  accuracy {session.run(accuracy, test):.3f}", flush=True)
                else:
                    print(f"step {now:4}  {own_steps} here", flush=True)
    print(f"done, {own_steps} steps here", flush=True)
    if is_chief:
        # The session above has ended, but the ps still has the variables.
        with tf1.Session(server.target, config=config) as session:
            reached = session.run(accuracy, test)
        print(f"final accuracy {reached:.3f}", flush=True)
        if reached < options.target:
            sys.exit(f"accuracy {reached:.3f} is below the target, {options.target}")


def main() -> None:
    parser = argparse.ArgumentParser(description="train a digit classifier with parameter servers")
    parser.add_argument("--steps", type=int, default=1000, help="of all workers together")
    parser.add_argument("--batch", type=int, default=64, help="images a step")
    parser.add_argument("--seed", type=int, default=1, help="for the first weights and the batches")
    parser.add_argument("--target", type=float, default=0.95, help="accuracy below which it fails")
    options = parser.parse_args()

    me = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if not me.task_type:
        sys.exit("TF_CONFIG is not set; hint: start this with rallypoint run")
    server = tf1.train.Server(me.cluster_spec(), job_name=me.task_type, task_index=me.task_id)
    if me.task_type == "ps":
        server.join()  # never returns: a ps serves until it is stopped
    work(server, me.task_id, options)


if __name__ == "__main__":
    main()
