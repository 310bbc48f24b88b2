"""A matrix concatenated from several weights, or a weight and constants: K-FAC of each part."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from onnxjac.jacobians.errors import UnsupportedOp
from onnxjac.modes.curvature.kfac import kfac

from .models import parsed

RNG = np.random.default_rng(6)


@pytest.mark.parametrize("axis", [0, 1])
def test_weights_that_are_one_matrix(axis):
    """Each weight gets its rows and columns of A and B of the whole matrix."""
    text = """g (double[5, 4] x, double[4, 3] U, %s) => (double[5, 3] out)
        { u = Concat<axis = %d>(V, W) m = MatMul(x, %s) out = Tanh(m) }"""
    sizes = "double[1, 3] V, double[3, 3] W" if axis == 0 else "double[4, 2] V, double[4, 1] W"
    point = {"x": RNG.standard_normal((5, 4)), "U": RNG.standard_normal((4, 3))}
    V, W = np.split(point["U"], [1 if axis == 0 else 2], axis=axis)
    options = {"at": "out", "likelihood": "gaussian"}
    (whole,) = kfac(parsed(text % (sizes, axis, "U")), point | {"V": V, "W": W}, wrt="U",
                    **options).blocks  # fmt: skip
    K = kfac(parsed(text % (sizes, axis, "u")), point | {"V": V, "W": W}, wrt=["V", "W"],
             **options)  # fmt: skip
    full = np.kron(whole.left[0], whole.right[0]).reshape(4, 3, 4, 3)
    split = (slice(0, 1), slice(1, 4)) if axis == 0 else (slice(0, 2), slice(2, 3))
    for name, part in zip("VW", split, strict=True):
        at = (part, slice(None)) if axis == 0 else (slice(None), part)
        n = point["U"][at].size
        assert_allclose(K.block(name).toarray(), full[*at, *at].reshape(n, n), atol=1e-12)


def test_a_part_that_is_no_matrix_is_refused():
    """Three of four outputs, in groups of two."""
    model = parsed("""g (double[5, 4, 5] x, double[3, 2, 3] W) => (double[5, 4, 3] out)
        { c = Constant<value = double[1, 2, 3] {1, 2, 3, 4, 5, 6}>()
          u = Concat<axis = 0>(W, c) out = Conv<group = 2>(x, u) }""")
    point = {"x": RNG.standard_normal((5, 4, 5)), "W": RNG.standard_normal((3, 2, 3))}
    with pytest.raises(UnsupportedOp, match="no Kronecker product"):
        kfac(model, point, at="out", wrt="W", likelihood="gaussian")
