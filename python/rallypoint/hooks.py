"""Session hooks for training in TensorFlow 1 style (`tf.compat.v1`): all start together, and the parameter servers end.

A worker::

    config = session_config(task_index)
    hooks = [StartBarrierHook(num_workers, task_index), DoneQueueHook(num_ps, num_workers, task_index)]
    if task_index > 0:
        wait_for_chief(server.target, config=config)
    with tf.compat.v1.train.MonitoredTrainingSession(
        server.target, is_chief=task_index == 0, hooks=hooks, config=config
    ) as session:
        ...

A parameter server::

    serve_until_done(server, cluster, task_index)

All waits ask again and again instead of blocking in an op: a Ctrl-C is heard, somebody who died is noticed, and
who is missing is told.
"""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, List, Mapping, Sequence, Set, Union

from ._rallypoint import reachable
from .errors import MeetingTimeout, RoleError, WorkersLost
from ._tensorflow import tf
from .tensorflow.resolvers import to_stderr

__all__ = ["DoneQueueHook", "StartBarrierHook", "serve_until_done", "serve_while_alive", "session_config", "wait_for_chief"]

v1 = tf.compat.v1
Cluster = Union[tf.train.ClusterSpec, Mapping[str, Sequence[str]]]

# How often a wait looks, and how often it tells.
POLL = 0.2
TELL = 10.0
# How long a word to a parameter server may take; one that is dead takes for ever.
WORD_LIMIT = 30.0


class DoneQueueHook(tf.compat.v1.train.SessionRunHook):
    """Tells every parameter server that this worker is done, when its session ends well."""

    def __init__(self, num_ps: int, num_workers: int, task_index: int) -> None:
        self._num_ps, self._num_workers, self._task_index = num_ps, num_workers, task_index

    def begin(self) -> None:
        queues = [_queue(f"done_{ps}", f"/job:ps/task:{ps}", 2 * self._num_workers) for ps in range(self._num_ps)]
        self._words = [queue.enqueue(self._task_index) for queue in queues]

    def end(self, session: Any) -> None:
        options = v1.RunOptions(timeout_in_ms=int(WORD_LIMIT * 1000))
        for ps, word in enumerate(self._words):
            try:
                session.run(word, options=options)
            except tf.errors.OpError as error:
                # It notices by itself that this worker has gone.
                to_stderr(f"ps {ps} could not be told that worker {self._task_index} is done: {error.message}")


class StartBarrierHook(tf.compat.v1.train.SessionRunHook):
    """No worker goes on before all workers are there, so that `num_steps` means the same for all.

    Worker 0 counts the others; it waits at most `timeout` seconds, and says who is missing. A worker that is
    started again later finds the barrier open. The queues stand on `device`: the first parameter server by
    default, `"/job:worker/task:0"` where there is none.
    """

    def __init__(
        self,
        num_workers: int,
        task_index: int,
        *,
        timeout: float = 600.0,
        device: str = "/job:ps/task:0",
        progress: Callable[[str], object] = to_stderr,
    ) -> None:
        self._num_workers, self._task_index = num_workers, task_index
        self._timeout, self._device, self._progress = timeout, device, progress
        self._passed = False

    def begin(self) -> None:
        arrivals = _queue("start_arrivals", self._device, 4 * self._num_workers)
        opened = _queue("start_open", self._device, 1)
        self._arrive = arrivals.enqueue(self._task_index)
        self._waiting, self._next = arrivals.size(), arrivals.dequeue()
        self._is_open, self._open = opened.size(), opened.enqueue(0)

    def before_run(self, run_context: Any) -> None:
        # Before the first step, and after all other hooks have looked where the global step stands: so it is the same
        # for all workers. A session that is made anew after a failure does not wait again.
        if not self._passed:
            self._wait(run_context.session)
            self._passed = True

    def _wait(self, session: Any) -> None:
        started = time.monotonic()
        told = started
        come: Set[int] = set()
        # Queues stay as long as their server: one that is full of earlier arrivals needs no more.
        if session.run(self._is_open) == 0:
            session.run(self._arrive, options=v1.RunOptions(timeout_in_ms=int(WORD_LIMIT * 1000)))
        while session.run(self._is_open) == 0:
            if self._task_index == 0:
                for _ in range(session.run(self._waiting)):
                    come.add(int(session.run(self._next)))
                if len(come) == self._num_workers:
                    session.run(self._open)
                    break
            now = time.monotonic()
            missing = sorted(set(range(self._num_workers)) - come)
            who = f"worker {', '.join(map(str, missing))}" if self._task_index == 0 else "worker 0 knows who"
            if now - started > self._timeout:
                raise MeetingTimeout(
                    f"after {now - started:.0f} s not all {self._num_workers} workers have come; missing: {who}",
                    hint="timeout= gives them longer",
                )
            if now - told > TELL:
                told = now
                self._progress(f"waiting for all {self._num_workers} workers to start; missing: {who}")
            time.sleep(POLL)


def session_config(task_index: int, role: str = "worker", **options: Any) -> Any:
    """A `ConfigProto` for a session that needs the parameter servers and this member, and nobody else.

    Without it a session waits for *all* members of the cluster, without a word and for ever: for a worker that has
    died meanwhile, say. `options` are other fields of the `ConfigProto`.
    """
    return v1.ConfigProto(device_filters=["/job:ps", f"/job:{role}/task:{task_index}"], **options)


def wait_for_chief(
    target: str,
    *,
    config: Any = None,
    timeout: float = 600.0,
    progress: Callable[[str], object] = to_stderr,
) -> None:
    """Returns when the chief has given all variables of the graph their first values.

    For the other workers, between building the graph and `MonitoredTrainingSession`: that looks at once and then
    every 30 s only. `target` and `config` are those of that session.
    """
    missing = v1.report_uninitialized_variables()
    started = told = time.monotonic()
    with v1.Session(target, config=config) as session:
        while True:
            names = [name.decode() for name in session.run(missing)]
            if not names:
                return
            now = time.monotonic()
            who = f"{', '.join(names[:4])}{' and others' if len(names) > 4 else ''}"
            if now - started > timeout:
                raise MeetingTimeout(
                    f"after {now - started:.0f} s the chief has not given these variables a value: {who}",
                    hint="look at the output of worker 0; timeout= gives it longer",
                )
            if now - told > TELL:
                told = now
                progress(f"waiting for the chief to start; without a value: {who}")
            time.sleep(POLL)


def serve_until_done(
    server: tf.distribute.Server,
    cluster: Cluster,
    task_index: int,
    *,
    patience: float = 15.0,
    start_timeout: float = 600.0,
    progress: Callable[[str], object] = to_stderr,
) -> None:
    """Serves as parameter server `task_index` until every worker has said that it is done.

    A worker that was there, has not said so and cannot be reached for `patience` seconds has died; when all are
    done or dead, this raises `WorkersLost` with the names of the dead. A worker that nobody has seen within
    `start_timeout` counts as dead too. The workers need a `DoneQueueHook`.
    """
    workers = _addresses(cluster, "worker")
    with v1.Graph().as_default():
        queue = _queue(f"done_{task_index}", f"/job:ps/task:{task_index}", 2 * len(workers))
        size, word = queue.size(), queue.dequeue()
        # Of the whole cluster only this server is needed: nobody is waited for here.
        config = v1.ConfigProto(device_filters=[f"/job:ps/task:{task_index}"])
        with v1.Session(server.target, config=config) as session:

            def heard() -> List[int]:
                return [int(session.run(word)) for _ in range(session.run(size))]

            _watch("worker", workers, heard, patience, start_timeout, progress)


def serve_while_alive(
    cluster: Cluster,
    role: str = "chief",
    *,
    patience: float = 15.0,
    start_timeout: float = 600.0,
    progress: Callable[[str], object] = to_stderr,
) -> None:
    """Returns when the members of `role`, seen before, have gone: for the servers of TensorFlow 2's coordinator.

    The coordinator says nothing at its end; it just goes. Start a server, then call this instead of `join()`.
    """
    members = _addresses(cluster, role)
    try:
        _watch(role, members, list, patience, start_timeout, progress)
    except WorkersLost:
        pass


def _watch(
    role: str,
    members: Mapping[int, str],
    heard: Callable[[], List[int]],
    patience: float,
    start_timeout: float,
    progress: Callable[[str], object],
) -> None:
    """Until every member is done (`heard` tells) or dead; raises if one is dead."""
    started = told = time.monotonic()
    seen: Dict[int, float] = {}
    done: Set[int] = set()
    while True:
        done.update(heard())
        open_ones = [index for index in members if index not in done]
        if not open_ones:
            return
        now = time.monotonic()
        for index, answers in zip(open_ones, reachable([members[index] for index in open_ones], 2.0)):
            if answers:
                seen[index] = time.monotonic()
        dead: List[int] = []
        for index in open_ones:
            quiet = now - seen.get(index, started)
            if quiet > (patience if index in seen else start_timeout):
                dead.append(index)
        if len(dead) == len(open_ones):
            # The last word of one that has just ended may have come meanwhile.
            done.update(heard())
            lost = [index for index in dead if index not in done]
            if lost:
                problem = _obituary(role, members, lost, seen, patience, start_timeout)
                raise WorkersLost(problem, hint="look at the end of its own output")
            return
        if now - told > TELL:
            told = now
            unseen = [index for index in open_ones if index not in seen]
            if unseen:
                progress(f"waiting for {role} {', '.join(map(str, unseen))} to come ({now - started:.0f} s of {start_timeout:.0f} s)")
            if dead:
                progress(f"{role} {', '.join(map(str, dead))} cannot be reached any more; the others go on")
        time.sleep(POLL)


def _obituary(
    role: str, members: Mapping[int, str], lost: List[int], seen: Mapping[int, float], patience: float, start_timeout: float
) -> str:
    words = [
        f"{role} {index} ({members[index]}) "
        + (f"cannot be reached for {patience:.0f} s and never said that it was done" if index in seen else f"never came within {start_timeout:.0f} s")
        for index in lost
    ]
    return "; ".join(words)


def _addresses(cluster: Cluster, role: str) -> Dict[int, str]:
    spec = cluster if isinstance(cluster, tf.train.ClusterSpec) else tf.train.ClusterSpec(dict(cluster))
    if role not in spec.jobs or spec.num_tasks(role) == 0:
        raise RoleError(
            f"the cluster has no {role}, so nobody would ever be done; it has {', '.join(spec.jobs) or 'nobody'}",
            hint="every member needs the whole cluster; `rallypoint check` looks at TF_CONFIG files",
        )
    return {index: spec.task_address(role, index) for index in spec.task_indices(role)}


def _queue(name: str, device: str, capacity: int) -> Any:
    """A queue of worker numbers that all processes know by its name."""
    with v1.device(device):
        return v1.FIFOQueue(capacity, tf.int32, shapes=[()], shared_name=f"rallypoint_{name}", name=f"rallypoint_{name}")

