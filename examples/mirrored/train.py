"""Synchronous training with TensorFlow 2's MultiWorkerMirroredStrategy.

    rallypoint run --workers 2 -- python examples/mirrored/train.py

Every worker has a copy of all variables and works on its own part of the images. In each step the
workers add up their gradients, so the copies stay equal. There is no ps.
"""

import argparse
import os
import socket
import sys
import time
from pathlib import Path
from typing import NoReturn

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # read once, at the import

import tensorflow as tf

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import digits_data

HIDDEN = 64
LEARNING_RATE = 0.2
REPORT_EVERY = 100


def leave(strategy: tf.distribute.MultiWorkerMirroredStrategy) -> NoReturn:
    """Ends this process with success, and worker 0 after all others.

    Worker 0 keeps the list of who is alive. If it left first, the others would report it as dead.
    It ends by os._exit, because TensorFlow's own way out takes up to ten seconds, and in that time
    worker 0 reports those as dead who have left before it.
    """
    resolver = strategy.cluster_resolver
    workers = resolver.cluster_spec().as_dict().get("worker", [])
    try:
        # Whoever comes through this knows that all others have done their last step.
        strategy.reduce(tf.distribute.ReduceOp.SUM, tf.constant(1.0), axis=None)
    except tf.errors.OpError:
        pass  # another has come through, and left before this one had fetched the sum from it
    if resolver.task_id == 0:
        deadline = time.monotonic() + 30
        while any(map(is_listening, workers[1:])) and time.monotonic() < deadline:
            time.sleep(0.1)
    elif len(workers) > 1:
        time.sleep(1)  # the others may still be fetching
    os._exit(0)


def is_listening(address: str) -> bool:
    """Whether somebody answers at an address like n01:8888 or [::1]:8888."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=1).close()
    except OSError:
        return False
    return True


def train(strategy: tf.distribute.MultiWorkerMirroredStrategy, options: argparse.Namespace) -> NoReturn:
    """Trains in step with the other workers, and ends this process."""
    digits = digits_data.load()
    tf.keras.utils.set_random_seed(options.seed)
    with strategy.scope():  # variables made in here begin with worker 0's values everywhere
        model = tf.keras.Sequential(
            [
                tf.keras.layers.Input([digits_data.PIXELS]),
                tf.keras.layers.Dense(HIDDEN, activation="relu"),
                tf.keras.layers.Dense(digits_data.CLASSES),
            ]
        )
        optimizer = tf.keras.optimizers.SGD(LEARNING_RATE)
        optimizer.build(model.trainable_variables)

    def batches(context: tf.distribute.InputContext) -> tf.data.Dataset:
        """The endless batches of this worker, from its own part of the images."""
        images = tf.data.Dataset.from_tensor_slices((digits.train_images, digits.train_labels))
        images = images.shard(context.num_input_pipelines, context.input_pipeline_id)
        return images.shuffle(len(digits.train_images), options.seed).repeat().batch(options.batch)

    @tf.function
    def step(iterator: tf.data.Iterator) -> None:
        """One step of all workers. A loop of our own: Keras 3 has no fit for this strategy."""

        def learn(images: tf.Tensor, labels: tf.Tensor) -> None:
            with tf.GradientTape() as tape:
                logits = model(images, training=True)
                losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
                # Divided once more, because the optimizer adds up the gradients of all workers.
                loss = tf.reduce_mean(losses) / strategy.num_replicas_in_sync
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables))

        strategy.run(learn, args=next(iterator))

    iterator = iter(strategy.distribute_datasets_from_function(batches))
    reached = 0.0
    for now in range(1, options.steps + 1):
        step(iterator)
        if now % REPORT_EVERY == 0 or now == options.steps:
            hits = tf.math.in_top_k(digits.test_labels, model(digits.test_images), k=1)
            reached = float(tf.reduce_mean(tf.cast(hits, tf.float32)))
            print(f"step {now:4}  accuracy {reached:.3f}", flush=True)
    if reached < options.target:
        sys.exit(f"accuracy {reached:.3f} is below the target, {options.target}")
    leave(strategy)


def arguments(description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--steps", type=int, default=600, help="that all workers take together")
    parser.add_argument("--batch", type=int, default=32, help="images a step, on each worker")
    parser.add_argument("--seed", type=int, default=1, help="for the first weights and the batches")
    parser.add_argument("--target", type=float, default=0.95, help="accuracy below which it fails")
    return parser


def main() -> None:
    options = arguments("train a digit classifier with workers in step").parse_args()
    # Before anything else of TensorFlow's: it refuses to become a cluster once it has computed.
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    train(strategy, options)


if __name__ == "__main__":
    main()
