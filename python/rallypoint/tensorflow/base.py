"""What all our resolvers share: TensorFlow's interface over a cluster that is known."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple

from .._tensorflow import tf


class Resolver(tf.distribute.cluster_resolver.ClusterResolver):
    """A resolver that knows its cluster, its own place in it and its own GPUs."""

    rpc_layer: Optional[str] = "grpc"
    _cluster_allocation: Dict[str, List[str]]

    def cluster_spec(self) -> tf.train.ClusterSpec:
        """Everybody's address."""
        return tf.train.ClusterSpec(self._cluster_allocation)

    def get_task_info(self) -> Tuple[Optional[str], Optional[int]]:
        """This process's role and its index there."""
        return self.task_type, self.task_id

    def master(
        self, task_type: Optional[str] = None, task_id: Optional[int] = None, rpc_layer: Optional[str] = None
    ) -> str:
        """Where a session connects to: `grpc://host:port`, of this process unless another is named."""
        task_type = task_type if task_type is not None else self.task_type
        task_id = task_id if task_id is not None else self.task_id
        if task_type is None or task_id is None:
            return ""
        address = self.cluster_spec().task_address(task_type, task_id)
        layer = rpc_layer or self.rpc_layer
        return f"{layer}://{address}" if layer else address

    def start_server(self, config: Any = None) -> tf.distribute.Server:
        """Starts this member's server, on the port that was held for it."""
        return tf.distribute.Server(
            self.cluster_spec(),
            job_name=self.task_type,
            task_index=self.task_id,
            protocol=self.rpc_layer or "grpc",
            config=config,
        )
