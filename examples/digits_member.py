"""What members of the examples `local` and `custom_conf` do: workers learn digits, with the weights on a ps.

Hooks of rallypoint see to a start together and to a parameter server that ends.
"""

import sys

import numpy as np
import tensorflow as tf

from rallypoint import RallypointError
from rallypoint.hooks import DoneQueueHook, StartBarrierHook, serve_until_done, session_config, wait_for_chief

tf1 = tf.compat.v1

LEARNING_RATE = 0.2
BATCH = 64
REPORT_EVERY = 100


class Examine(tf1.train.SessionRunHook):
    """Asks one question at the end, while the ps still has the weights."""

    def __init__(self, question: tf.Tensor, feed: dict[tf.Tensor, np.ndarray]) -> None:
        self.question, self.feed = question, feed

    def end(self, session: tf1.Session) -> None:
        self.answer = float(session.run(self.question, self.feed))


def take_part(
    server: tf.distribute.Server, cluster: tf.train.ClusterSpec, role: str, index: int, steps: int, target: float
) -> None:
    """Serves or learns, as the role asks; ends the program with an error if that fails."""
    if role == "ps":
        print("serving", flush=True)
        try:
            serve_until_done(server, cluster, index)
        except RallypointError as error:  # workers have died, or there are none
            sys.exit(f"error: {error}")
        print("all workers are done", flush=True)
        return
    reached = learn(server, cluster, index, steps)
    if reached < target:
        sys.exit(f"accuracy {reached:.3f} is below the target, {target}")


def learn(server: tf.distribute.Server, cluster: tf.train.ClusterSpec, index: int, steps: int) -> float:
    """Takes part until the workers together have done all steps; gives the accuracy on unseen images."""
    import digits_data  # not above: a ps has no need of it

    digits = digits_data.load()
    num_ps, num_workers = cluster.num_tasks("ps"), cluster.num_tasks("worker")
    here, is_chief = f"/job:worker/task:{index}", index == 0
    tf1.disable_eager_execution()
    with tf1.device(tf1.train.replica_device_setter(worker_device=here, cluster=cluster)):
        step = tf1.train.get_or_create_global_step()
        images = tf1.placeholder(tf.float32, [None, digits_data.PIXELS])
        labels = tf1.placeholder(tf.int32, [None])
        weights = tf1.get_variable("weights", initializer=tf.zeros([digits_data.PIXELS, digits_data.CLASSES]))
        bias = tf1.get_variable("bias", initializer=tf.zeros([digits_data.CLASSES]))
        logits = images @ weights + bias
        loss = tf1.losses.sparse_softmax_cross_entropy(labels, logits)
        train = tf1.train.GradientDescentOptimizer(LEARNING_RATE).minimize(loss, global_step=step)
        accuracy = tf.reduce_mean(tf.cast(tf.math.in_top_k(labels, logits, k=1), tf.float32))
    examine = Examine(accuracy, {images: digits.test_images, labels: digits.test_labels})

    hooks = [
        StartBarrierHook(num_workers, index),  # nobody begins before all are there
        tf1.train.StopAtStepHook(last_step=steps),
        examine,
        DoneQueueHook(num_ps, num_workers, index),  # the last thing: tells each ps that this worker is done
    ]
    # Each worker sees the ps and itself. Without the filter it would fail when another leaves before it.
    config = session_config(index)
    if not is_chief:
        wait_for_chief(server.target, config=config)
    random = np.random.default_rng([1, index])  # other batches on every worker
    own_steps, next_report = 0, REPORT_EVERY
    with tf1.train.MonitoredTrainingSession(server.target, is_chief, hooks=hooks, config=config) as session:
        while not session.should_stop():
            batch = random.choice(len(digits.train_images), BATCH, replace=False)
            feed = {images: digits.train_images[batch], labels: digits.train_labels[batch]}
            _, now, error = session.run([train, step, loss], feed)
            own_steps += 1
            if now >= next_report and not session.should_stop():
                next_report = now - now % REPORT_EVERY + REPORT_EVERY
                print(f"step {now:4}  error {error:.3f}  {own_steps} steps here", flush=True)
    print(f"done, {own_steps} steps here, accuracy {examine.answer:.3f}", flush=True)
    return examine.answer
