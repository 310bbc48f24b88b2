"""Batches of tensors: results of ranks are where their own batches are."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import onnxjac as oj
from data.regressions import UNEVEN, W, softmax_regression

from .threads import on_ranks

pytestmark = pytest.mark.peers
torch = pytest.importorskip("torch")

TIGHT = {"rtol": 1e-12, "atol": 1e-12}
LOSS = {"of": "loss", "wrt": "W", "reduction": "mean"}


def tensors(batch):
    return {name: torch.tensor(array) for name, array in batch.items()}


def test_products_gradients_and_factors_are_tensors():
    model, v = softmax_regression(), np.arange(12.0)
    H = oj.hessian(model, UNEVEN, shared={"W": W}, **LOSS)
    K = oj.kfac(model, UNEVEN, at="logits", wrt="W", shared={"W": W})

    def script(comm):
        own = [tensors(batch) for batch in UNEVEN[comm.rank :: comm.size]]
        options = {"shared": tensors({"W": W}), "engine": "torch", "comm": comm}
        C = oj.hessian(model, own, **LOSS, **options)
        G = oj.kfac(model, own, at="logits", wrt="W", **options)
        u = torch.tensor(v)
        for found, expected in [
            (C @ u, H @ v), (C.gradient["W"], H.gradient["W"]), (G @ u, K @ v),
        ]:  # fmt: skip
            assert isinstance(found, torch.Tensor)
            assert_allclose(found, expected, **TIGHT)
        assert_allclose(C @ v, H @ v, **TIGHT)

    on_ranks(3, script)


def test_gradients_over_tensors_in_one_process():
    batches = [tensors(batch) for batch in UNEVEN]
    g = oj.grad(softmax_regression(), batches, shared=tensors({"W": W}), engine="torch", **LOSS)
    expected = oj.grad(softmax_regression(), UNEVEN, shared={"W": W}, **LOSS)
    assert isinstance(g["W"], torch.Tensor)
    assert_allclose(g["W"], expected["W"], **TIGHT)


def test_a_library_without_a_group_is_refused():
    with pytest.raises(oj.InputError, match="is no communicator: give mpi4py"):
        oj.gram(softmax_regression(), UNEVEN, of="logits", wrt="W", comm=torch.distributed)
