"""Cluster resolvers for TensorFlow, all of them real `tf.distribute.cluster_resolver.ClusterResolver`s.

`SlurmClusterResolver` takes the place of TensorFlow's own: change the import and nothing else. The others
also work where hosts and ports are not known beforehand: their members meet first.
"""

from __future__ import annotations

from .resolvers import ClusterResolver, HTCondorClusterResolver, LocalClusterResolver
from .slurm import SlurmClusterResolver, expand_hostlist, expand_tasks_per_node, get_num_gpus

__all__ = [
    "ClusterResolver",
    "HTCondorClusterResolver",
    "LocalClusterResolver",
    "SlurmClusterResolver",
    "expand_hostlist",
    "expand_tasks_per_node",
    "get_num_gpus",
]
