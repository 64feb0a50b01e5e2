"""Parameter servers that close when the workers are done, by the names that tf4slurm has for it.

`rallypoint.hooks` has the same under today's names, with a parameter server that also ends when workers die.
"""

from __future__ import annotations

import time
from typing import Any, List, Optional

from .._tensorflow import tf
from ..hooks import POLL, TELL, WORD_LIMIT
from ..tensorflow.resolvers import to_stderr

v1 = tf.compat.v1

# How long a worker that is done waits for a parameter server to ask its queue.
LISTEN_LIMIT = 60.0


class _DoneQueue(tf.compat.v1.FIFOQueue):
    """A queue that tells when its parameter server has begun to ask it."""

    def __init__(self, ps: int, workers: int) -> None:
        super().__init__(workers, tf.int32, shared_name=f"done_queue{ps}")
        # One item each time the queue is asked, and nobody takes them: so it has no bound.
        self.listening = v1.FIFOQueue(-1, tf.int32, shared_name=f"listening_queue{ps}")

    def dequeue(self, name: Optional[str] = None) -> Any:
        with v1.control_dependencies([self.listening.enqueue(1)]):
            return super().dequeue(name)


def create_done_queue(i: int, WorkersNumber: int) -> Any:
    """The queue of parameter server `i`; each worker puts one item there when it is done."""
    with v1.device(f"/job:ps/task:{i}"):
        return _DoneQueue(i, WorkersNumber)


def create_done_queues(PSNumber: int, WorkersNumber: int) -> List[Any]:
    """The queues of all parameter servers."""
    return [create_done_queue(i, WorkersNumber) for i in range(PSNumber)]


class QueueManagementHook(tf.compat.v1.train.SessionRunHook):
    """Puts an item into the queue of every parameter server when the session ends well.

    It waits until all of them ask for it. One that is told earlier ends, and so does this worker; a parameter server
    that makes its session only then would wait for both, for ever.
    """

    def __init__(self, NumberOfPS: Optional[int] = None, NumberOfWorkers: Optional[int] = None) -> None:
        if NumberOfPS is None or NumberOfWorkers is None:
            raise ValueError("QueueManagementHook needs both NumberOfPS and NumberOfWorkers")
        self.NumberOfPS = NumberOfPS
        self.NumberOfWorkers = NumberOfWorkers
        self.EnqueueOperations: List[Any] = []

    def begin(self) -> None:
        queues = create_done_queues(self.NumberOfPS, self.NumberOfWorkers)
        self._asked = [queue.listening.size() for queue in queues]
        self.EnqueueOperations = [queue.enqueue(1) for queue in queues]

    def end(self, session: Any) -> None:
        self._wait_until_asked(session)
        for operation in self.EnqueueOperations:
            session.run(operation)

    def _wait_until_asked(self, session: Any) -> None:
        options = v1.RunOptions(timeout_in_ms=int(WORD_LIMIT * 1000))
        started = told = time.monotonic()
        while True:
            silent = [str(ps) for ps, asked in enumerate(session.run(self._asked, options=options)) if asked == 0]
            if not silent:
                return
            now = time.monotonic()
            if now - started > LISTEN_LIMIT:
                to_stderr(f"ps {', '.join(silent)} did not ask for its done queue in {LISTEN_LIMIT:.0f} s; going on without")
                return
            if now - told > TELL:
                told = now
                to_stderr(f"done; waiting for ps {', '.join(silent)} to ask for its done queue")
            time.sleep(POLL)
