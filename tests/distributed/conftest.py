"""Two processes, for all tests of a file."""

import pytest


@pytest.fixture(scope="module")
def client():
    dask = pytest.importorskip("dask.distributed")
    with (
        dask.LocalCluster(n_workers=2, threads_per_worker=2, dashboard_address=":0") as cluster,
        dask.Client(cluster) as client,
    ):
        yield client
