"""The laws of the algebra for every pair of kinds, of real, single, complex and whole numbers.

For pairs of closed forms, see also `test_closed.py::test_laws`; for mixed products and expressions
of several kinds, `test_laws_of_expressions.py`.
"""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from onnxjac.jacobians import Convolution, Dense, Embed, Identity, Slice

from .convolutions import GEOMETRIES, PAIRS, convolution
from .examples import EXAMPLES, Draw

ALL = EXAMPLES | {
    f"convolution, {' to '.join(pair)}": (Convolution, lambda draw, pair=pair: convolution(
        draw, *pair, next(iter(GEOMETRIES.values()))))
    for pair in PAIRS
}  # fmt: skip
OF_KIND = {kind: [name for name, (own, _) in ALL.items() if own is kind]
           for kind, _ in ALL.values()}  # fmt: skip
DTYPES = np.float64, np.complex128, np.int64, np.float32


def assert_close(found, expected, *operators, message=""):
    """Up to rounding errors in the precision of the operators, of sums of a few hundred terms."""
    eps = max(np.finfo(J.dtype).eps for J in operators)
    size = np.abs(expected).max(initial=1)
    assert_allclose(found, expected, rtol=1e3 * eps, atol=1e3 * eps * size, err_msg=message)


def fitted(m, n):
    """The first rows of x, or x and zeros below; the identity where sizes agree."""
    if m == n:
        return Identity((n,), float), np.eye(n)
    kind, small, large = (Slice, m, n) if m < n else (Embed, n, m)
    return kind(((0, 1, small),), (large,), float), np.eye(m, n)


def drawn(name, place):
    J, dense = ALL[name][1](Draw(place, DTYPES[place % len(DTYPES)]))
    return J, dense.astype(J.dtype)


@pytest.mark.parametrize("first", ALL)
def test_laws_of_all_pairs(first):
    """(A C) B = A (C B), A (C B + D) = A C B + A D, (A C B)ᵀ = Bᵀ Cᵀ Aᵀ and A + B, as matrices.

    A is every example, and B one of each kind.
    """
    place = list(ALL).index(first)
    A, a = drawn(first, place)
    for k, names in enumerate(OF_KIND.values()):
        second = names[place % len(names)]
        B, b = drawn(second, place // len(DTYPES) + k)
        C, c = fitted(A.shape[1], B.shape[0])
        draw = Draw(k)
        D = Dense(draw.normal(A.shape[1], B.shape[1]))
        v, u = draw.normal(B.shape[1], 2), draw.normal(A.shape[0])
        product, total = a @ c @ b, a @ (c @ b + D.a)
        (L, left), (R, right) = fitted(len(a), len(b)), fitted(B.shape[1], A.shape[1])
        other, w = left @ b @ right, draw.normal(A.shape[1])
        for J, matrix, x in (
            ((A @ C) @ B, product, v), (A @ (C @ B), product, v), ((A @ C @ B).T, product.T, u),
            ((A @ C @ B).H, product.conj().T, u), (B.T @ C.T @ A.T, product.T, u),
            (A @ (C @ B + D), total, v), (A @ C @ B + A @ D, total, v),
            (A + L @ B @ R, a + other, w), (L @ B @ R - 2 * A, other - 2 * a, w),
            ((A + L @ B @ R).T, (a + other).T, u),
        ):  # fmt: skip
            found = J @ x
            assert J.shape == matrix.shape
            assert_close(found, matrix @ x, A, B, message=f"{second}: {J!r}")
