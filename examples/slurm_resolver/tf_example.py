"""Synchronous training in a Slurm step, with a resolver that reads the step's variables.

    srun python tf_example.py

In code that uses TensorFlow's own `tf.distribute.cluster_resolver.SlurmClusterResolver`, the import is all that
changes. The training is that of `examples/mirrored`.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "mirrored"))
import train  # first: it sets TensorFlow's log level

import tensorflow as tf

from rallypoint.tensorflow import SlurmClusterResolver


def main() -> None:
    parser = train.arguments("train a digit classifier in a Slurm step")
    parser.add_argument("--port-base", type=int, default=8888, help="port of the first task of each node")
    options = parser.parse_args()

    cluster_resolver = SlurmClusterResolver(port_base=options.port_base)
    cluster = cluster_resolver.cluster_spec()  # from here on this process sees its own GPUs only
    task_type, task_id = cluster_resolver.get_task_info()
    print(f"{task_type} {task_id} of {cluster.num_tasks('worker')} at {cluster.task_address(task_type, task_id)}", flush=True)
    strategy = tf.distribute.MultiWorkerMirroredStrategy(cluster_resolver=cluster_resolver)
    train.train(strategy, options)


if __name__ == "__main__":
    main()
