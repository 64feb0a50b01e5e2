"""Keras' own `fit` on several members, mirrored or with parameter servers.

    rallypoint run --workers 2 -- python examples/keras_fit/train.py
    rallypoint run --chief --ps 1 --workers 2 --serve ps,worker -- python examples/keras_fit/train.py

`fit` of Keras 3, which TensorFlow has from 2.16 on, works with neither strategy. Keras 2 does, and is a
package of its own: tf_keras.
"""

import argparse
import os
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ["TF_USE_LEGACY_KERAS"] = "1"  # tf.keras is tf_keras; both are read once, at the import

import tensorflow as tf

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import digits_data
from mirrored.train import leave

HIDDEN = 64
LEARNING_RATE = 0.2
STEPS_PER_EPOCH = 50


def strategy_for(resolver: tf.distribute.cluster_resolver.ClusterResolver) -> tf.distribute.Strategy:
    """Parameter servers where there are some, else workers in step."""
    if "ps" not in resolver.cluster_spec().jobs:
        # Before anything else of TensorFlow's: it refuses to become a cluster once it has computed.
        return tf.distribute.MultiWorkerMirroredStrategy()
    return tf.distribute.ParameterServerStrategy(resolver)


def train(strategy: tf.distribute.Strategy, options: argparse.Namespace) -> float:
    """The accuracy on images that nobody trained on."""
    digits = digits_data.load()
    tf.keras.utils.set_random_seed(options.seed)
    with strategy.scope():
        model = tf.keras.Sequential(
            [
                tf.keras.layers.Input([digits_data.PIXELS]),
                tf.keras.layers.Dense(HIDDEN, activation="relu"),
                tf.keras.layers.Dense(digits_data.CLASSES),
            ]
        )
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(tf.keras.optimizers.SGD(LEARNING_RATE), loss, metrics=["accuracy"])

    # Endless, and with steps_per_epoch: parameter servers need both. Each member takes its part.
    images = tf.data.Dataset.from_tensor_slices((digits.train_images, digits.train_labels))
    batches = images.shuffle(len(digits.train_images), options.seed).repeat().batch(options.batch)
    model.fit(batches, epochs=options.epochs, steps_per_epoch=STEPS_PER_EPOCH, verbose=2)
    hits = tf.math.in_top_k(digits.test_labels, model(digits.test_images), k=1)
    return float(tf.reduce_mean(tf.cast(hits, tf.float32)))


def main() -> None:
    parser = argparse.ArgumentParser(description="train a digit classifier with Keras' fit")
    parser.add_argument("--epochs", type=int, default=10, help=f"of {STEPS_PER_EPOCH} steps")
    parser.add_argument("--batch", type=int, default=64, help="images a step")
    parser.add_argument("--seed", type=int, default=1, help="for the first weights and the batches")
    parser.add_argument("--target", type=float, default=0.95, help="accuracy below which it fails")
    options = parser.parse_args()

    me = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if not me.task_type:
        sys.exit("TF_CONFIG is not set; hint: start this with rallypoint run")
    if "ps" in me.cluster_spec().jobs and me.task_type != "chief":
        task = {"job_name": me.task_type, "task_index": me.task_id}
        tf.distribute.Server(me.cluster_spec(), **task).join()  # serves until it is stopped
    strategy = strategy_for(me)
    reached = train(strategy, options)
    print(f"accuracy {reached:.3f}", flush=True)
    if reached < options.target:
        sys.exit(f"accuracy {reached:.3f} is below the target, {options.target}")
    if isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        leave(strategy)  # worker 0 last, else the others report it as dead


if __name__ == "__main__":
    main()
