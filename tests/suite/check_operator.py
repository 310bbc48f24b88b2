"""The checker of an operator: every operation on a Jacobian agrees with its matrix.

Raises AssertionError where a promise is broken. Everything is float64.
"""

import warnings

import numpy as np
from numpy.testing import assert_allclose

from onnxjac.jacobians import Jacobian, reading
from onnxjac.modes.model.loading.load import load
from onnxjac.ops.graphs import Recorder, build

TIGHT = {"rtol": 1e-12, "atol": 1e-12}


def check_operator(J, dense=None, *, seed=0):
    """J agrees with the matrix `dense` in every operation that SciPy and NumPy offer.

    Without an independent `dense`, the columns J eᵢ are the reference.
    """
    rng = np.random.default_rng(seed)
    with warnings.catch_warnings(), np.errstate(all="raise", under="ignore"):
        warnings.simplefilter("error")
        if dense is None:
            dense = np.stack([J.matvec(e) for e in np.eye(J.shape[1])], axis=1)
        assert J.dtype == dense.dtype == np.float64
        assert J.shape == dense.shape == (np.prod(J.out_shape), np.prod(J.in_shape))
        check_products(J, dense, rng)
        check_right_hand_sides(J, dense, rng)
        check_algebra(J, dense)
        check_views(J, dense, rng)
        check_leading_axes(J, dense, rng)
        check_dot_test(J, rng)
        check_hygiene(J, rng)


def check_products(J, dense, rng):
    """J v, J V, Jᵀ u, Jᵀ U, u J."""
    m, n = J.shape
    u, v, U, V = (rng.standard_normal(s) for s in (m, n, (m, 3), (n, 3)))
    assert_allclose(J.matvec(v), dense @ v, **TIGHT)
    assert_allclose(J @ v[:, None], (dense @ v)[:, None], **TIGHT)
    assert_allclose(J @ v, dense @ v, **TIGHT)
    assert_allclose(J.matmat(V), dense @ V, **TIGHT)
    assert_allclose(J.matmat(V), np.stack([J.matvec(c) for c in V.T], axis=1), **TIGHT)
    assert_allclose(J.rmatvec(u), dense.T @ u, **TIGHT)
    assert_allclose(J.rmatmat(u[:, None]), (dense.T @ u)[:, None], **TIGHT)
    assert_allclose(J.rmatmat(U), dense.T @ U, **TIGHT)
    assert_allclose(J.T @ U, dense.T @ U, **TIGHT)
    assert_allclose(u @ J, u @ dense, **TIGHT)
    assert_allclose(U.T @ J, U.T @ dense, **TIGHT)
    assert (J @ np.zeros((n, 0))).shape == (m, 0)


def check_right_hand_sides(J, dense, rng):
    """Complex and integer right-hand sides; strided ones; float32 in, float64 out."""
    n = J.shape[1]
    z = rng.standard_normal((n, 2)) + 1j * rng.standard_normal((n, 2))
    whole = rng.integers(-3, 4, n)
    assert_allclose(J @ z, dense @ z, **TIGHT)
    assert_allclose(J.H @ (dense @ z), dense.T @ dense @ z, rtol=1e-11, atol=1e-11)
    assert_allclose(J @ whole, dense @ whole, **TIGHT)
    assert_allclose(J @ z.real[::-1].T.copy().T[::-1], dense @ z.real, **TIGHT)
    assert (J @ whole).dtype == (J @ whole.astype(np.float32)).dtype == np.float64


def check_algebra(J, dense):
    """+, -, scalar factors from both sides, products with Jᵀ."""
    zero = np.zeros_like(dense)
    for K, expected in (
        (J + J, 2 * dense), (J - J, zero), (-J, -dense), (2 * J, 2 * dense), (J * 0.5, dense / 2),
        (np.float64(3) * J, 3 * dense), (J / 4, dense / 4), (J @ J.T, dense @ dense.T),
        (J.T @ J, dense.T @ dense), (J + 2 * J - 3 * J, zero), (J.T + J.T, 2 * dense.T),
    ):  # fmt: skip
        assert isinstance(K, Jacobian)
        assert K.dtype == np.float64
        assert_allclose(K.toarray(), expected, rtol=1e-11, atol=1e-11)
        assert_allclose(K.T.toarray(), expected.T, rtol=1e-11, atol=1e-11)
    assert_allclose((2j * J) @ np.ones(J.shape[1]), 2j * dense.sum(axis=1), **TIGHT)


def check_views(J, dense, rng):
    """toarray, transposes, diagonal, trace, rows and columns."""
    m, n = J.shape
    assert_allclose(J.toarray(), dense, **TIGHT)
    for K, expected in ((J.T, dense.T), (J.H, dense.T), (J.T.T, dense), (J.T.H, dense)):
        assert K.shape == expected.shape
        assert_allclose(K.toarray(), expected, **TIGHT)
    assert (J.T.in_shape, J.T.out_shape) == (J.out_shape, J.in_shape)
    assert_allclose(J.diagonal(), np.diagonal(dense), **TIGHT)
    assert_allclose(J.T.diagonal(), np.diagonal(dense), **TIGHT)
    if m == n:
        assert_allclose(J.trace(), np.trace(dense), rtol=1e-11, atol=1e-11)
    rows, columns = rng.integers(-m, max(m, 1), 4 if m else 0), np.arange(n) % 2 == 0
    assert_allclose(J[rows, columns].toarray(), dense[rows][:, columns], **TIGHT)
    assert_allclose(J[:, 1:].toarray(), dense[:, 1:], **TIGHT)
    assert_allclose(J[::-2].toarray(), dense[::-2], **TIGHT)
    assert isinstance(repr(J), str)
    assert "object at" not in repr(J)
    assert J.flops >= 0
    assert J.nbytes >= 0


def check_leading_axes(J, dense, rng):
    """Leading axes are batch axes, (2, 3, *in_shape) -> (2, 3, *out_shape), in numbers and in
    graphs.
    """
    for K, matrix in ((J, dense), (J.T, dense.T)):
        v = rng.standard_normal((2, 3, *K.in_shape))
        expected = np.reshape(v.reshape(6, K.shape[1]) @ matrix.T, (2, 3, *K.out_shape))
        for product in (K._apply(reading(v), v), recorded(K, v) if v.size else expected):
            assert product.shape == expected.shape
            assert_allclose(product, expected, **TIGHT)


def recorded(J, v):
    """The product by the ONNX graph that J records, run by ONNX Runtime where possible."""
    recorder = Recorder({"": 21})
    value = recorder.new(v.shape, v.dtype, "v")
    graph = build(recorder, [value], {"y": J._apply(recorder, value)}, "product")
    return load(graph).run({"v": v})["y"]


def check_dot_test(J, rng):
    """⟨u, J v⟩ = ⟨Jᵀ u, v⟩."""
    u, v = (rng.standard_normal(n) for n in J.shape)
    scale = np.linalg.norm(u) * np.linalg.norm(J @ v)
    assert_allclose(u @ (J @ v), (J.T @ u) @ v, rtol=0, atol=1e-12 * (scale + 1))


def check_hygiene(J, rng):
    """Products modify neither their arguments nor J, and results belong to the caller."""
    v = rng.standard_normal(J.shape[1])
    kept, held = v.copy(), [np.array(a) for a in J.arrays()]
    first, entries = J @ v, J.diagonal()
    expected = first.copy(), entries.copy()
    first += 1
    entries += 1
    assert_allclose(v, kept, rtol=0)
    for array, before in zip(J.arrays(), held, strict=True):
        assert_allclose(array, before, rtol=0)
    assert_allclose(J @ v, expected[0], **TIGHT)  # the next product may take a fast path
    assert_allclose(J.diagonal(), expected[1], **TIGHT)
