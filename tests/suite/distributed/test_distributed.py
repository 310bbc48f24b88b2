"""Distributed: the operator of `streamed` on a cluster whose processes come and go."""

import os
import signal
from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose

import onnxjac as oj
from data.makers import hessian_maker, logits_maker, process, random_rows, shuffled, slow
from data.regressions import DATA, UNEVEN, W, X, jacobian, softmax_hessian, softmax_regression
from onnxjac.jacobians.errors import InputError, OnnxJacWarning
from onnxjac.modes.data.cluster import distributed
from onnxjac.modes.data.shares import streamed

from .killing import a_worker_killed, traced

TIGHT = {"rtol": 1e-12, "atol": 1e-12}
V = np.random.default_rng(3).standard_normal((12, 5))


@pytest.mark.parametrize(("reduction", "scale"), [("mean", 1 / 23), ("sum", 1.0)])
@pytest.mark.parametrize("keep", [0, 2**20])
def test_a_sum_equals_the_local_one(client, reduction, scale, keep):
    make, options = hessian_maker(reduction), {"reduction": reduction, "keep": keep}
    local = streamed(make, UNEVEN, **options)
    C = distributed(make, UNEVEN, client, **options)
    assert C.T is C
    assert_allclose(C @ V, local @ V, **TIGHT)
    assert_allclose(C @ V[:, 0], local @ V[:, 0], **TIGHT)
    assert_allclose(C.toarray(), scale * softmax_hessian(X), **TIGHT)
    assert_allclose(C.diagonal(), local.diagonal(), **TIGHT)
    assert_allclose(C.apply({"W": W})["W"], local.apply({"W": W})["W"], **TIGHT)


@pytest.mark.parametrize(
    ("function", "options"),
    [
        (oj.gauss_newton, {"of": "loss", "at": "logits", "reduction": "mean"}),
        (oj.fisher, {"at": "logits", "samples": 2, "seed": 3}),
        (oj.linearize, {"of": "logits"}),
        (oj.ntk, {"of": ["logits", "loss"]}),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
@pytest.mark.parametrize("data", [UNEVEN, DATA], ids=["batches", "one batch"])
def test_functions_of_a_point_take_a_client(client, function, options, data):
    """Random samples are also the same as without a client."""
    options = {"wrt": "W", "shared": {"W": W}, **options}
    local = function(softmax_regression(), data, **options)
    C = function(softmax_regression(), data, client=client, **options)
    assert "on workers" in repr(getattr(C, "operator", C))
    assert getattr(C, "domain", None) == (None if function is oj.linearize else local.domain)
    assert_allclose(C.toarray(), local.toarray(), **TIGHT)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_one_point_needs_no_reduction(client, reduction):
    """There is nothing to reduce, whatever the model does."""
    model, point = softmax_regression(reduction), {**DATA, "W": W}
    H = oj.hessian(model, point, of="loss", wrt="W", client=client)
    scale = 1 / len(X) if reduction == "mean" else 1.0
    assert_allclose(H.toarray(), scale * softmax_hessian(X), **TIGHT)


def test_several_points_need_a_reduction_on_workers_too(client):
    with pytest.raises(InputError, match="over several batches needs reduction="):
        oj.hessian(softmax_regression(), UNEVEN, of="loss", wrt="W", shared={"W": W}, client=client)


@pytest.mark.parametrize("parts", [None, 1, 3])
def test_a_stack_equals_the_local_one(client, parts):
    J = distributed(logits_maker(), UNEVEN, client, reduction="stack", parts=parts)
    A = jacobian(X)
    assert_allclose(J @ V, A @ V, **TIGHT)
    assert_allclose(J.T @ (A @ V), A.T @ A @ V, **TIGHT)
    assert_allclose(J.toarray(), A, **TIGHT)
    assert_allclose(J.diagonal(), np.diagonal(A), **TIGHT)
    assert "on workers" in repr(J)


def test_the_kernel_of_summed_jacobians_has_no_names(client):
    options = {"of": ["logits", "loss"], "wrt": "W", "shared": {"W": W}, "reduction": "sum"}
    data = [{name: a[:2] for name, a in DATA.items()}, {name: a[2:4] for name, a in DATA.items()}]
    local = oj.ntk(softmax_regression(), data, **options)
    K = oj.ntk(softmax_regression(), data, client=client, **options)
    assert not hasattr(K, "domain")
    assert_allclose(K.toarray(), local.toarray(), **TIGHT)


def test_batches_are_partitioned_over_the_workers(client):
    J = distributed(process, UNEVEN, client, reduction="stack", check=False)
    first, _, third, _ = J @ np.eye(12)[0]
    assert {first, third} == set(map(float, client.run(os.getpid).values()))


def test_columns_of_one_batch_are_shared_out(client):
    J = distributed(process, [DATA], client, reduction="sum", check=False)
    (found,) = J @ np.ones((12, 4)) / 12
    assert set(found) == set(map(float, client.run(os.getpid).values()))
    C = distributed(hessian_maker(), [DATA], client, reduction="mean")
    z = np.sign(np.random.default_rng(1).standard_normal((12, 64)))  # Hutchinson's probes
    H = softmax_hessian(X) / 23
    assert_allclose(np.sum(z * (C @ z), axis=0), np.sum(z * (H @ z), axis=0), **TIGHT)


def test_the_data_is_opened_by_the_workers(client, tmp_path):
    np.savez(tmp_path / "data.npz", **DATA)
    path = tmp_path / "data.npz"
    C = distributed(hessian_maker(), path, client, reduction="mean", batch_size=4)
    assert_allclose(C.toarray(), softmax_hessian(X) / 23, **TIGHT)


def test_workers_compile_what_they_keep(client):
    J = distributed(logits_maker(), UNEVEN, client, reduction="stack", keep=2**20)
    assert_allclose(J.compile("numpy") @ V, jacobian(X) @ V, **TIGHT)


@pytest.mark.parametrize(("reduction", "keep"), [("mean", 0), ("mean", 2**20), ("stack", 0)])
def test_the_share_of_a_killed_worker_is_computed_again(client, tmp_path, reduction, keep):
    client.wait_for_workers(2, timeout=120)
    make = logits_maker() if reduction == "stack" else hessian_maker()
    A = jacobian(X) if reduction == "stack" else softmax_hessian(X) / 23
    C = distributed(
        partial(slow, tmp_path, make), DATA, client, reduction=reduction, batch_size=2, keep=keep,
        check=False,
    )  # fmt: skip
    before = len(traced(tmp_path))
    with a_worker_killed(tmp_path):
        found = C @ V
    assert_allclose(found, A @ V, **TIGHT)
    assert len(traced(tmp_path)) > before + 12 - (2 if keep else 0)
    assert_allclose(C @ V, A @ V, **TIGHT)
    client.wait_for_workers(2, timeout=120)
    assert_allclose(C.T @ (A @ V), A.T @ A @ V, **TIGHT)


def test_data_lost_with_all_workers_is_sent_again(client):
    """Data lost with the workers is sent again."""
    C = distributed(hessian_maker(), UNEVEN, client, reduction="mean", check=False)
    for pid in client.run(os.getpid).values():
        os.kill(pid, signal.SIGKILL)
    assert_allclose(C @ V, softmax_hessian(X) @ V / 23, **TIGHT)


def test_random_operators_are_warned_of(client):
    with pytest.warns(OnnxJacWarning, match="their operators are random"):
        distributed(random_rows, UNEVEN, client, reduction="stack", keep=2**20)


@pytest.mark.parametrize("reduction", ["mean", "stack"])
def test_other_batches_in_the_next_pass_are_warned_of(client, reduction):
    """Also for a sum: a worker would count some samples twice and omit others."""
    make = hessian_maker() if reduction == "mean" else logits_maker()
    with pytest.warns(OnnxJacWarning, match="is another one in the second pass"):
        distributed(make, shuffled, client, reduction=reduction, parts=2)


def test_distributed_rejects_parts_that_do_not_compose(client):
    with pytest.raises(InputError, match="no batches"):
        distributed(process, [], client, reduction="sum")
    with pytest.raises(InputError, match="is not one of"):
        distributed(process, UNEVEN, client, reduction="average")
    with pytest.raises(InputError, match="operators of part 0 and of part 1 differ, "):
        distributed(logits_maker(), UNEVEN, client, reduction="sum", check=False)
