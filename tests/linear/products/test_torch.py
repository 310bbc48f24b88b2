"""The torch program gives the operator's products, of arrays and of tensors."""

import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose

from check_operator import TIGHT, check_operator
from onnxjac.jacobians import Dense
from onnxjac.jacobians.errors import InputError
from onnxjac.modes.linear.products import compiled
from onnxjac.modes.linear.products.compiled import Compiled

from ...jacobians.convolutions import GEOMETRIES, PAIRS, convolution
from ...jacobians.examples import EXAMPLES, Draw

torch = pytest.importorskip("torch")
from onnxjac.ops.torch.table import host, tensor  # noqa: E402

pytestmark = pytest.mark.peers


def check_compiled(J, dense, device):
    """Products with arrays and tensors, which belong to the caller."""
    check_operator(Compiled(J, f"torch:{device}"), dense)
    C, V = Compiled(J, "torch"), Draw(5).normal(J.shape[1], 2)
    for _ in range(2):
        y = C @ tensor(V, device)
        assert y.device.type == torch.device(device).type
        assert_allclose(host(y), dense @ V, **TIGHT)
        y += 1
    U = tensor(Draw(6).normal(J.shape[0]), device)
    assert_allclose(host(C.T @ U), dense.T @ host(U), **TIGHT)


@pytest.mark.parametrize("name", EXAMPLES)
def test_operator(name, device):
    check_compiled(*EXAMPLES[name][1](Draw(1)), device)


@pytest.mark.parametrize("name", GEOMETRIES)
@pytest.mark.parametrize("pair", PAIRS, ids=" to ".join)
def test_convolution(name, pair, device):
    check_compiled(*convolution(Draw(3), *pair, GEOMETRIES[name]), device)


def test_other_engines_leave_tensors_to_the_operator(device):
    v = torch.ones(4, dtype=torch.float64, device=device)
    assert_allclose(host(Compiled(Dense(np.ones((3, 4))), "numpy") @ v), np.full(3, 4.0))


def test_a_device_is_named_after_a_colon():
    with pytest.raises(InputError, match="cannot use the device 'cloud'"):
        Compiled(Dense(np.ones((3, 4))), "torch:cloud") @ np.ones(4)
    with pytest.raises(InputError, match="not one of"):
        compiled.compiler("numpy:cuda")


def test_without_torch_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(InputError, match=r"onnxjac\[torch\]"):
        compiled.compiler("torch")
