"""A server that has nobody to serve says so: it must neither end as if all were well nor wait for ever."""

import pytest
import tensorflow as tf

from rallypoint import hooks
from rallypoint.errors import RoleError

CLUSTERS = [{"ps": ["localhost:1"]}, {"ps": ["localhost:1"], "worker": []}, tf.train.ClusterSpec({"ps": ["localhost:1"]})]


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_a_ps_whose_cluster_has_no_worker(cluster: hooks.Cluster) -> None:
    server = tf.compat.v1.train.Server.create_local_server()
    with pytest.raises(RoleError, match="the cluster has no worker.*it has ps.*rallypoint check"):
        hooks.serve_until_done(server, cluster, 0)


def test_a_server_whose_cluster_has_no_chief() -> None:
    with pytest.raises(RoleError, match="the cluster has no chief"):
        hooks.serve_while_alive({"worker": ["localhost:1"]})
