"""Kronecker factors summed over many processes."""

import os
import signal
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

import data.regressions
import onnxjac as oj
from curvature.pools import MAKERS, UNEVEN, WHOLE, assert_equal, made, of_other_weights
from data.makers import shuffled, slowly
from data.regressions import W, softmax_regression
from onnxjac.jacobians.errors import InputError, OnnxJacError, OnnxJacWarning
from onnxjac.modes.data import cluster

from .killing import a_worker_killed, traced


@pytest.mark.parametrize("fisher_type", ["type-2", "mc", "empirical"])
@pytest.mark.parametrize("name", MAKERS)
def test_factors_equal_the_local_ones(client, name, fisher_type):
    """Random samples as well, which do not depend on the worker."""
    options = {"fisher_type": fisher_type, "joint": name == "kfac", "seed": 3}
    K = made(name, UNEVEN, client=client, **options)
    assert_equal(K, made(name, UNEVEN, **options))
    v = np.ones(K.shape[1])
    P = K.inverse(0.1)
    np.testing.assert_allclose(P @ (K @ v + 0.1 * v), v, rtol=1e-9)


@pytest.mark.parametrize(("approximation", "reduction"), [("expand", "sum"), ("reduce", "mean")])
def test_forward_factors_over_workers_agree_with_all_samples(client, approximation, reduction):
    options = {
        "fisher_type": "forward-only", "approximation": approximation, "reduction": reduction
    }  # fmt: skip
    assert_equal(made("kfac", UNEVEN, client=client, **options), made("kfac", WHOLE, **options))


def test_the_data_is_opened_by_the_workers(client, tmp_path):
    np.savez(tmp_path / "data.npz", **WHOLE)
    options = {"batch_size": 2, "keep": 2**20}
    K = made("ekfac", tmp_path / "data.npz", client=client, **options)
    assert_equal(K, made("ekfac", WHOLE))


def test_one_batch_keeps_its_seed(client):
    """As without workers: the seed of a single batch does not depend on its contents."""
    options = {"fisher_type": "mc", "seed": 7}
    assert_equal(made("kfac", WHOLE, client=client, **options), made("kfac", WHOLE, **options))


def test_batches_are_partitioned_over_the_workers(client, tmp_path):
    """One worker iterates over the first two batches of three, the other over all three."""
    client.wait_for_workers(2, timeout=120)
    made("kfac", partial(slowly, tmp_path, UNEVEN, os.getpid()), client=client)
    found = traced(tmp_path)
    assert sorted(map(found.count, set(found))) == [2, 3]
    assert set(found) == set(client.run(os.getpid).values())


def test_the_share_of_a_killed_worker_is_gone_through_again(client, tmp_path):
    client.wait_for_workers(2, timeout=120)
    batches = [{name: array[[k]] for name, array in WHOLE.items()} for k in range(6)]
    data = partial(slowly, tmp_path, batches, os.getpid())
    with a_worker_killed(tmp_path):
        K = made("ekfac", data, fisher_type="mc", client=client)
    assert_equal(K, made("ekfac", batches, fisher_type="mc"))
    assert len(traced(tmp_path)) > 18  # two passes of both workers without a kill


def test_shuffled_data_is_warned_of(client):
    """Only with many processes: in one, every sample counts once in any order."""
    options = {"at": "logits", "wrt": "W", "shared": {"W": W}}
    oj.kfac(softmax_regression(), shuffled, **options)
    with pytest.warns(OnnxJacWarning, match="count some samples twice"):
        oj.kfac(softmax_regression(), shuffled, client=client, **options)


def test_pools_reject_wrong_clients_and_batches(client):
    with pytest.raises(InputError, match="no batches"):
        made("kfac", [], client=client)
    with pytest.raises(InputError, match="batch 1 uses the weights in another way than batch 0"):
        of_other_weights(client=client)
    with pytest.raises(InputError, match="'tcp://somewhere:8786' is no client"):
        made("kfac", UNEVEN, client="tcp://somewhere:8786")


# -- clusters that are gone ------------------------------------------------------------------------


def kill(client):
    """Kill one worker without informing the client."""
    os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)


def product(client):
    return oj.gauss_newton(
        softmax_regression(), data.regressions.UNEVEN, of="loss", at="logits", wrt="W",
        reduction="mean", shared={"W": W}, client=client,
    )  # fmt: skip


@pytest.mark.parametrize("name", MAKERS)
def test_a_worker_that_dies_before_the_first_pass(client, name):
    client.wait_for_workers(2, timeout=120)
    kill(client)
    assert_equal(made(name, UNEVEN, client=client), made(name, UNEVEN))


def test_a_worker_that_dies_before_an_operator_is_made(client):
    client.wait_for_workers(2, timeout=120)
    kill(client)
    C = product(client)
    kill(client)
    assert np.isfinite(C @ np.ones(C.shape[1])).all()


@pytest.mark.parametrize("gone", ["client", "cluster"])
def test_a_cluster_that_is_closed(gone):
    """Every operation raises an error that says what to do."""
    dask = pytest.importorskip("dask.distributed")
    cluster = dask.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None
    )
    client = dask.Client(cluster)
    try:
        C = product(client)
        {"client": client, "cluster": cluster}[gone].close()
        asked = [lambda: made("kfac", UNEVEN, client=client), lambda: product(client),
                 lambda: C @ np.ones(C.shape[1]), lambda: C.operator.compile(), C.diagonal,
                 lambda: C.operator.T @ np.ones(C.shape[0])]  # fmt: skip
        for ask in asked:
            with pytest.raises(OnnxJacError, match=r"distributed\.Client\(address\)"):
                ask()
    finally:
        client.close()
        cluster.close()


class Client:
    """A client whose tasks all fail with one error."""

    status = "running"

    def __init__(self, error):
        self.error, self.asked = error, 0

    def ncores(self):
        return {"worker": 1}

    def scatter(self, value, **_):
        self.asked += 1
        raise self.error


@pytest.mark.parametrize(
    ("kind", "text", "tries"),
    [("CommClosedError", "at each of 5 tries", 5), ("KilledWorker", "smaller batches", 1)],
)
def test_workers_that_are_lost_again_and_again(monkeypatch, kind, text, tries):
    monkeypatch.setattr(cluster, "PAUSE_SECONDS", 0)
    errors = {
        "CommClosedError": pytest.importorskip("distributed.comm.core").CommClosedError("gone"),
        "KilledWorker": pytest.importorskip("distributed").KilledWorker(
            "share-1", SimpleNamespace(address="tcp://here"), 3
        ),
    }
    client = Client(errors[kind])
    with pytest.raises(OnnxJacError, match=text):
        made("kfac", UNEVEN, client=client)
    assert client.asked == tries


def test_pools_raise_the_error_of_a_task():
    with pytest.raises(ZeroDivisionError):
        made("kfac", UNEVEN, client=Client(ZeroDivisionError("in a task")))
