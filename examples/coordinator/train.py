"""Asynchronous training with TensorFlow 2's ParameterServerStrategy.

    rallypoint run --chief --ps 1 --workers 2 -- python examples/coordinator/train.py

The chief alone runs the program: it puts the variables on the ps and hands each step to a worker
that is free. Workers and ps are servers that do what they are told.
"""

import argparse
import os
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # read once, at the import

import tensorflow as tf

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # where digits_data is

HIDDEN = 64
LEARNING_RATE = 0.1
REPORT_EVERY = 200


def coordinate(
    resolver: tf.distribute.cluster_resolver.ClusterResolver, options: argparse.Namespace
) -> None:
    """Trains by handing out steps to the workers."""
    import digits_data  # not above: a server has no need of it

    digits = digits_data.load()
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():  # variables made in here go to the ps
        model = tf.keras.Sequential(
            [
                tf.keras.layers.Input([digits_data.PIXELS]),
                tf.keras.layers.Dense(HIDDEN, activation="relu"),
                tf.keras.layers.Dense(digits_data.CLASSES),
            ]
        )
        optimizer = tf.keras.optimizers.SGD(LEARNING_RATE)
        optimizer.build(model.trainable_variables)

    def batches() -> tf.data.Dataset:
        """The endless batches of one worker. Made over there, so each worker has its own order."""
        images = tf.data.Dataset.from_tensor_slices((digits.train_images, digits.train_labels))
        return images.shuffle(len(digits.train_images)).repeat().batch(options.batch)

    @tf.function
    def step(iterator: tf.data.Iterator) -> None:
        """One step on one worker. A loop of our own, since Keras 3 has no fit for this strategy."""

        def learn(images: tf.Tensor, labels: tf.Tensor) -> None:
            with tf.GradientTape() as tape:
                logits = model(images, training=True)
                losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
                loss = tf.reduce_mean(losses)
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables))

        strategy.run(learn, args=next(iterator))

    iterator = iter(coordinator.create_per_worker_dataset(batches))
    reached = 0.0
    for done in range(0, options.steps, REPORT_EVERY):
        now = min(done + REPORT_EVERY, options.steps)
        for _ in range(done, now):
            coordinator.schedule(step, args=(iterator,))  # returns at once
        coordinator.join()  # waits until the workers have done them all
        hits = tf.math.in_top_k(digits.test_labels, model(digits.test_images), k=1)
        reached = float(tf.reduce_mean(tf.cast(hits, tf.float32)))
        print(f"step {now:4}  accuracy {reached:.3f}", flush=True)
    if reached < options.target:
        sys.exit(f"accuracy {reached:.3f} is below the target, {options.target}")


def main() -> None:
    parser = argparse.ArgumentParser(description="train a digit classifier from one coordinator")
    parser.add_argument("--steps", type=int, default=1000, help="of all workers together")
    parser.add_argument("--batch", type=int, default=64, help="images a step")
    parser.add_argument("--target", type=float, default=0.95, help="accuracy below which it fails")
    options = parser.parse_args()

    me = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if not me.task_type:
        sys.exit("TF_CONFIG is not set; hint: start this with rallypoint run")
    if me.task_type == "chief":
        coordinate(me, options)
    else:
        task = {"job_name": me.task_type, "task_index": me.task_id}
        tf.distribute.Server(me.cluster_spec(), **task).join()  # serves until it is stopped


if __name__ == "__main__":
    main()
