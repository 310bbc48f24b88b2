"""Kronecker factors whose sums are those of many processes."""

import os
from functools import partial

import numpy as np
import pytest

import onnxjac as oj
from curvature.pools import MAKERS, UNEVEN, WHOLE, assert_equal, made, of_other_weights
from data.makers import shuffled, slowly
from data.regressions import W, softmax_regression
from onnxjac.jacobians.errors import InputError, OnnxJacWarning

from .killing import a_worker_killed, traced


@pytest.mark.parametrize("fisher_type", ["type-2", "mc", "empirical"])
@pytest.mark.parametrize("name", MAKERS)
def test_factors_equal_the_local_ones(client, name, fisher_type):
    """Draws too, which do not depend on who makes them."""
    options = {"fisher_type": fisher_type, "joint": name == "kfac", "seed": 3}
    K = made(name, UNEVEN, client=client, **options)
    assert_equal(K, made(name, UNEVEN, **options))
    v = np.ones(K.shape[1])
    P = K.inverse(0.1)
    np.testing.assert_allclose(P @ (K @ v + 0.1 * v), v, rtol=1e-9)


@pytest.mark.parametrize(("approximation", "reduction"), [("expand", "sum"), ("reduce", "mean")])
def test_factors_without_gradients(client, approximation, reduction):
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
    """As without workers: what one batch draws does not depend on its contents."""
    options = {"fisher_type": "mc", "seed": 7}
    assert_equal(made("kfac", WHOLE, client=client, **options), made("kfac", WHOLE, **options))


def test_batches_are_partitioned_over_the_workers(client, tmp_path):
    """One goes through the first two batches of three, the other to the last one."""
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
    assert len(traced(tmp_path)) > 18  # what two passes of both workers read, had none been killed


def test_shuffled_data_is_warned_of(client):
    """Only with many processes: in one, every sample counts once in whatever order."""
    options = {"at": "logits", "wrt": "W", "shared": {"W": W}}
    oj.kfac(softmax_regression(), shuffled, **options)
    with pytest.warns(OnnxJacWarning, match="count some samples twice"):
        oj.kfac(softmax_regression(), shuffled, client=client, **options)


def test_what_cannot_be_pooled_is_refused(client):
    with pytest.raises(InputError, match="no batches"):
        made("kfac", [], client=client)
    with pytest.raises(InputError, match="batch 1 uses the weights in another way than batch 0"):
        of_other_weights(client=client)
    with pytest.raises(InputError, match="'tcp://somewhere:8786' is no client"):
        made("kfac", UNEVEN, client="tcp://somewhere:8786")
