"""Parameter servers that close when the workers are done, by the names that tf4slurm has for it.

`rallypoint.hooks` has the same under today's names, with a parameter server that also ends when workers die.
"""

from __future__ import annotations

from typing import Any, List, Optional

from .._tensorflow import tf

v1 = tf.compat.v1


def create_done_queue(i: int, WorkersNumber: int) -> Any:
    """The queue of parameter server `i`; each worker puts one item there when it is done."""
    with v1.device(f"/job:ps/task:{i}"):
        return v1.FIFOQueue(WorkersNumber, tf.int32, shared_name=f"done_queue{i}")


def create_done_queues(PSNumber: int, WorkersNumber: int) -> List[Any]:
    """The queues of all parameter servers."""
    return [create_done_queue(i, WorkersNumber) for i in range(PSNumber)]


class QueueManagementHook(tf.compat.v1.train.SessionRunHook):
    """Puts an item into the queue of every parameter server when the session ends well."""

    def __init__(self, NumberOfPS: Optional[int] = None, NumberOfWorkers: Optional[int] = None) -> None:
        if NumberOfPS is None or NumberOfWorkers is None:
            raise ValueError("QueueManagementHook needs both NumberOfPS and NumberOfWorkers")
        self.NumberOfPS = NumberOfPS
        self.NumberOfWorkers = NumberOfWorkers
        self.EnqueueOperations: List[Any] = []

    def begin(self) -> None:
        queues = create_done_queues(self.NumberOfPS, self.NumberOfWorkers)
        self.EnqueueOperations = [queue.enqueue(1) for queue in queues]

    def end(self, session: Any) -> None:
        for operation in self.EnqueueOperations:
            session.run(operation)
