"""A parameter server and its workers, each from a JSON file that tells the cluster and its own place in it.

    python custom_conf.py tf_confs/localhost/ps.json            the parameter server
    python custom_conf.py tf_confs/localhost/worker_0.json      the first worker
    python custom_conf.py tf_confs/localhost/worker_1.json      the second worker

`rallypoint run --tf-config FILE -- python custom_conf.py` looks at the file first, and refuses a broken one.
"""

import argparse
import os
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # read once, at the import

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # where digits_member is


def main() -> None:
    parser = argparse.ArgumentParser(description="train as the member that a TF_CONFIG file is for")
    parser.add_argument("file", type=Path, nargs="?", help="a TF_CONFIG file [default: the variable TF_CONFIG]")
    parser.add_argument("--steps", type=int, default=600, help="of all workers together")
    parser.add_argument("--target", type=float, default=0.9, help="accuracy below which it fails")
    options = parser.parse_args()
    if options.file is not None:
        try:
            os.environ["TF_CONFIG"] = options.file.read_text()
        except OSError as error:
            parser.error(str(error))
    if "TF_CONFIG" not in os.environ:
        parser.error("give a FILE, or start it with `rallypoint run --tf-config FILE`")

    # Not above: TensorFlow takes seconds, and a slip of the pen should be told at once.
    import tensorflow as tf

    import digits_member

    me = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    cluster = me.cluster_spec()
    server = tf.distribute.Server(cluster, job_name=me.task_type, task_index=me.task_id)
    digits_member.take_part(server, cluster, me.task_type, me.task_id, options.steps, options.target)


if __name__ == "__main__":
    main()
