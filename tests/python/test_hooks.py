"""Hooks with real servers: all start together, parameter servers end, and nobody waits for the dead."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Callable, Dict

import pytest

from conftest import Programs

# A member of 2 ps and 2 workers. What a worker does with its session is the test's.
MEMBER = """
    import json, os, sys, time
    import tensorflow as tf
    from rallypoint import errors, hooks
    from rallypoint.tensorflow import LocalClusterResolver

    tf1 = tf.compat.v1
    tf1.disable_eager_execution()
    rank, extra = int(sys.argv[1]), json.loads(sys.argv[2])
    resolver = LocalClusterResolver({"ps": 2, "worker": 2}, rank=rank, meet="meet", progress=lambda line: None)
    role, index = resolver.get_task_info()
    server = resolver.start_server()
    if role == "ps":
        try:
            hooks.serve_until_done(server, resolver.cluster_spec(), index, patience=3.0, **extra)
        except errors.WorkersLost as error:
            print(error, flush=True)
            os._exit(3)
        print("served", flush=True)
        os._exit(0)
    with tf1.device(tf1.train.replica_device_setter(cluster=resolver.cluster_spec(), worker_device=f"/job:worker/task:{index}")):
        step = tf1.train.get_or_create_global_step()
        advance = tf1.assign_add(step, 1)
    members = [hooks.DoneQueueHook(2, 2, index)]
    if extra.get("barrier"):
        stop = tf1.train.StopAtStepHook(num_steps=10)
        barrier = hooks.StartBarrierHook(2, index, timeout=extra["barrier"])
        members += [barrier, stop] if index == 0 else [stop, barrier]
    if index > 0:
        if "late" in extra:
            until = time.monotonic() + 120
            while not os.path.exists(extra["late"]) and time.monotonic() < until:
                time.sleep(0.05)
        hooks.wait_for_chief(server.target, config=hooks.session_config(index), timeout=60.0)
    else:
        print("session", flush=True)
    config = hooks.session_config(index)
    with tf1.train.MonitoredTrainingSession(server.target, is_chief=index == 0, hooks=members, config=config) as session:
        for _ in range(extra.get("steps", 1000)):
            if session.should_stop():
                break
            last = int(session.run(advance))
        if extra.get("crash"):
            os._exit(7)
    print("worker", index, "stops at", stop._last_step if extra.get("barrier") else None, "saw", last, flush=True)
    os._exit(0)
"""


def start(programs: Programs, extras: Dict[int, Dict[str, Any]]) -> None:
    for rank in range(4):
        programs.start(MEMBER, rank, json.dumps(extras.get(rank, {})))


def test_all_end_by_themselves(programs: Programs) -> None:
    start(programs, {2: {"steps": 5}, 3: {"steps": 3}})
    outputs = programs.end()
    assert programs.codes == [0, 0, 0, 0], "\n".join(outputs)
    assert all("served" in output for output in outputs[:2])


def test_parameter_servers_end_when_all_workers_crash(programs: Programs) -> None:
    crash = {"steps": 2, "crash": True}
    start(programs, {2: crash, 3: crash})
    outputs = programs.end()
    assert programs.codes == [3, 3, 7, 7], "\n".join(outputs)
    for output in outputs[:2]:
        assert "worker 0 (127.0.0.1:" in output and "never said that it was done" in output and "worker 1 (" in output


def test_one_that_crashed_is_named_when_the_other_is_done(programs: Programs) -> None:
    start(programs, {2: {"steps": 2}, 3: {"steps": 2, "crash": True}})
    outputs = programs.end()
    assert programs.codes == [3, 3, 0, 7], "\n".join(outputs)
    for output in outputs[:2]:
        assert "worker 1 (127.0.0.1:" in output and "worker 0" not in output


def test_a_worker_that_never_comes_counts_as_dead(programs: Programs) -> None:
    """Of two workers in the cluster, one has died before its server ever listened."""
    script = """
        import sys
        import tensorflow as tf
        from rallypoint import errors, hold_port, hooks

        with hold_port() as own, hold_port() as never:
            cluster = {"ps": [f"127.0.0.1:{own.port}"], "worker": [f"127.0.0.1:{never.port}"]}
            own.hand_over()
            server = tf.distribute.Server(cluster, job_name="ps", task_index=0)
            try:
                hooks.serve_until_done(server, cluster, 0, start_timeout=1.0)
            except errors.WorkersLost as error:
                sys.exit(f"lost: {error}")
    """
    programs.start(script)
    [output] = programs.end()
    assert programs.codes == [1]
    assert "lost: worker 0 (127.0.0.1:" in output and "never came within 1 s" in output


def test_no_worker_begins_before_all_are_there(programs: Programs, tmp_path: Path) -> None:
    late = tmp_path / "worker-0-has-a-session"
    start(programs, {2: {"barrier": 100.0}, 3: {"barrier": 100.0, "late": str(late)}})
    chief = programs.running[2]
    assert chief.stdout is not None
    while "session" not in chief.stdout.readline():
        assert chief.poll() is None
    late.touch()
    outputs = programs.end()
    assert programs.codes == [0, 0, 0, 0], "\n".join(outputs)
    # Without the barrier the late one would begin where the other has stopped, and go on alone.
    for index, output in enumerate(outputs[2:]):
        assert f"worker {index} stops at 10" in output, output


def test_a_barrier_that_waits_in_vain_names_the_missing(programs: Programs) -> None:
    never = {"barrier": 3.0, "late": "/nonexistent/never"}
    start(programs, {2: {"barrier": 3.0}, 3: never})
    chief = programs.running[2]
    output = chief.communicate(timeout=200)[0]
    assert chief.returncode == 1
    assert "MeetingTimeout: after" in output and "not all 2 workers have come; missing: worker 1" in output


def test_the_queues_of_tf4slurm(programs: Programs) -> None:
    """The code of the old example, on today's TensorFlow, with a parameter server that comes last to its queue."""
    script = """
        import os, sys, time
        import tensorflow as tf
        from rallypoint.tf4slurm import DistributedTFQueueHook as QueueHook
        from rallypoint.tensorflow import LocalClusterResolver

        tf1 = tf.compat.v1
        tf1.disable_eager_execution()
        resolver = LocalClusterResolver({"ps": 2, "worker": 1}, rank=int(sys.argv[1]), meet="meet")
        server = resolver.start_server()
        if resolver.task_type == "ps":
            while resolver.task_id == 1 and not os.path.exists("trained"):
                time.sleep(0.1)
            time.sleep(resolver.task_id)
            queue = QueueHook.create_done_queue(resolver.task_id, 1)
            with tf1.Session(server.target) as session:
                session.run(queue.dequeue())
            print("closed", flush=True)
            os._exit(0)
        assert len(QueueHook.create_done_queues(2, 1)) == 2
        step = tf1.train.get_or_create_global_step()
        advance = tf1.assign_add(step, 1)
        hook = QueueHook.QueueManagementHook(NumberOfPS=2, NumberOfWorkers=1)
        stop = tf1.train.StopAtStepHook(last_step=3)
        with tf1.train.MonitoredTrainingSession(server.target, is_chief=True, hooks=[stop, hook]) as session:
            while not session.should_stop():
                if session.run(advance) == 3:
                    open("trained", "w").close()
        os._exit(0)
    """
    for rank in range(3):
        programs.start(script, rank)
    outputs = programs.end()
    assert programs.codes == [0, 0, 0], "\n".join(outputs)
    assert all("closed" in output for output in outputs[:2])


def test_the_server_dictionary(environ: Callable[[Dict[str, str]], None]) -> None:
    from rallypoint import errors
    from rallypoint.tf4slurm import ServerDictionary

    tasks = ["ps", "worker", "worker", "ps", "worker"]
    variables = {
        "SLURM_JOB_ID": "7",
        "SLURM_STEP_ID": "0",
        "SLURM_STEP_NUM_TASKS": "5",
        "SLURM_STEP_NODELIST": "c[0712-0713]",
        "SLURM_STEP_TASKS_PER_NODE": "3,2",
        "SLURM_STEP_RESV_PORTS": "12000-12002",
    }
    dictionary = {"ps": ["c0712:12000", "c0713:12000"], "worker": ["c0712:12001", "c0712:12002", "c0713:12001"]}
    expected = [("ps", 0), ("worker", 0), ("worker", 1), ("ps", 1), ("worker", 2)]
    for rank, task in enumerate(expected):
        environ({**variables, "SLURM_PROCID": str(rank)})
        assert ServerDictionary.GetServerDictionary(tasks, InfiniBand=False) == (dictionary, *task)
        assert ServerDictionary.GetServerDictionary(tasks) == (dictionary, *task)
    infiniband = {role: [address.replace("c0712", "172.28.7.12").replace("c0713", "172.28.7.13") for address in addresses] for role, addresses in dictionary.items()}
    rule = r"s/^c(\d\d)(\d\d)$/172.28.\1.\2/"
    assert ServerDictionary.GetServerDictionary(tasks, InfiniBand=True, host_map=rule)[0] == infiniband
    environ({**variables, "SLURM_PROCID": "0", "RALLYPOINT_IB_MAP": rule})
    assert ServerDictionary.GetServerDictionary(tasks)[0] == infiniband, "the site has a rule"
    assert ServerDictionary.GetServerDictionary(tasks, InfinyBand=False)[0] == dictionary, "the old spelling"
    environ({**variables, "SLURM_PROCID": "0"})
    with pytest.raises(errors.AddressError, match="no interface of this machine is InfiniBand"):
        ServerDictionary.GetServerDictionary(tasks, InfiniBand=True)
    with pytest.raises(ValueError, match="2 members asked for"):
        ServerDictionary.GetServerDictionary(["ps", "worker"], InfiniBand=False)
    environ({})
    with pytest.raises(KeyError):
        ServerDictionary.GetServerDictionary(tasks, InfiniBand=False)
