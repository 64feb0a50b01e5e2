"""A distributed TensorFlow server in every task, with parameter servers that end when the workers are done.

    srun -n 3 python launch_server.py -ps 1 -workers 2                                  in a Slurm job
    rallypoint run --ps 1 --workers 2 -- python launch_server.py -ps 1 -workers 2       on any machine

Each task asks for the dictionary of servers and for its own place in it. A worker runs `sleep_example`; put your
own training there.
"""

import argparse
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # read once, at the import

import tensorflow as tf

from rallypoint.tf4slurm import DistributedTFQueueHook, ServerDictionary

from sleep_example import sleep_example

tf1 = tf.compat.v1


def main() -> None:
    parser = argparse.ArgumentParser(description="launch a distributed TensorFlow server in every task")
    parser.add_argument("-ps", type=int, required=True, help="parameter servers")
    parser.add_argument("-workers", type=int, required=True, help="workers")
    parser.add_argument("--no-hooks", action="store_true", help="parameter servers that never end, as TensorFlow's do")
    parser.add_argument("--steps", type=int, default=10, help="of all workers together")
    parser.add_argument("--seconds", type=float, default=1, help="how long a step sleeps")
    parser.add_argument("--meet", metavar="WAY", help="auto or a shared folder, where Slurm's names have no address")
    options = parser.parse_args()

    # One role per task, in the order of their ranks. With several tasks per node, the order says which node has a ps:
    # two nodes of four tasks have one each with ["ps", "worker", "worker", "worker"] * 2.
    tasks = ["ps"] * options.ps + ["worker"] * options.workers
    dictionary, task_type, task_index = ServerDictionary.GetServerDictionary(tasks, meet=options.meet)
    cluster = tf.train.ClusterSpec(dictionary)
    server = tf.distribute.Server(cluster, job_name=task_type, task_index=task_index)
    print(f"{task_type} {task_index} at {dictionary[task_type][task_index]}", flush=True)

    if task_type == "worker":
        hooks = []
        if not options.no_hooks:
            hooks = [DistributedTFQueueHook.QueueManagementHook(options.ps, options.workers)]
        sleep_example(task_index, cluster, server, hooks, options.steps, options.seconds)
    elif options.no_hooks:
        server.join()  # never returns
    else:
        serve(server, task_index, options.workers)


def serve(server: tf.distribute.Server, task_index: int, workers: int) -> None:
    """Serves until each worker has put an item into the queue of this parameter server."""
    queue = DistributedTFQueueHook.create_done_queue(task_index, workers)
    # Of the whole cluster only this server is needed for its own queue.
    config = tf1.ConfigProto(device_filters=[f"/job:ps/task:{task_index}"])
    with tf1.Session(server.target, config=config) as session:
        word = queue.dequeue()
        for done in range(1, workers + 1):
            session.run(word)  # blocks while the queue is empty
            print(f"ps {task_index}: {done} of {workers} workers are done", flush=True)


if __name__ == "__main__":
    tf1.disable_eager_execution()
    main()
