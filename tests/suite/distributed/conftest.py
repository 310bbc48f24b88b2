"""A cluster of two processes, shared by the tests of a file."""

import pytest

PATIENCE = {"distributed.deploy.lost-worker-timeout": "300s"}
"""A busy machine may restart a worker more slowly than the cluster's default time-out."""


@pytest.fixture(scope="module")
def client():
    distributed = pytest.importorskip("dask.distributed")
    config = pytest.importorskip("dask.config")
    with (
        config.set(PATIENCE),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=2, dashboard_address=":0"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client
