"""A training that only counts its steps and sleeps: a place for your own."""

import time

import tensorflow as tf

from rallypoint.hooks import session_config, wait_for_chief

tf1 = tf.compat.v1


def sleep_example(
    task_index: int,
    cluster: tf.train.ClusterSpec,
    server: tf.distribute.Server,
    hooks: list[tf1.train.SessionRunHook],
    steps: int = 10,
    seconds: float = 1,
) -> None:
    """Counts the global step up to `steps`, together with the other workers."""
    is_chief = task_index == 0
    here = f"/job:worker/task:{task_index}"
    # Variables go to the parameter servers, one after the other, and everything else stays here.
    with tf1.device(tf1.train.replica_device_setter(worker_device=here, cluster=cluster)):
        global_step = tf1.train.get_or_create_global_step()
        increase = tf1.assign_add(global_step, 1)
    # Of the other workers this one needs nobody: the steps are counted on a parameter server.
    config = session_config(task_index)
    if not is_chief:
        wait_for_chief(server.target, config=config)  # MonitoredTrainingSession would look every 30 s only
    with tf1.train.MonitoredTrainingSession(
        master=server.target,
        is_chief=is_chief,
        hooks=[tf1.train.StopAtStepHook(last_step=steps), *hooks],
        config=config,
    ) as session:
        while not session.should_stop():
            time.sleep(seconds)
            print(f"worker {task_index}: global step {session.run(increase)}", flush=True)
    print(f"worker {task_index}: done", flush=True)
