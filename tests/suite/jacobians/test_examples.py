"""Every kind of operator passes `check_operator`."""

import inspect
import tracemalloc
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.sparse.linalg import aslinearoperator

from check_operator import TIGHT, check_operator
from onnxjac.jacobians import Convolution, Dense, Diagonal, Jacobian
from onnxjac.jacobians import convolution as convolutions
from onnxjac.jacobians.errors import InputError
from onnxjac.jacobians.sparse import entries

from .convolutions import GEOMETRIES, PAIRS, convolution, geometry
from .examples import EXAMPLES, Draw

every_example = pytest.mark.parametrize("name", EXAMPLES)
every_geometry = pytest.mark.parametrize("name", GEOMETRIES)
every_pair = pytest.mark.parametrize("pair", PAIRS, ids=" to ".join)


@every_example
def test_operator(name):
    kind, example = EXAMPLES[name]
    J, dense = example(Draw(1))
    assert type(J) is kind
    check_operator(J, dense)


@every_example
def test_transposed_operator(name):
    J, dense = EXAMPLES[name][1](Draw(2))
    check_operator(J.T, dense.T)


@every_geometry
@every_pair
def test_convolution(name, pair):
    J, dense = convolution(Draw(3), *pair, GEOMETRIES[name])
    assert type(J) is Convolution
    check_operator(J, dense)


@every_geometry
@pytest.mark.parametrize("pair", ["xw", "uw", "wx", "wu"], ids=" to ".join)
def test_correlations_of_large_kernels_are_taken_apart(name, pair, monkeypatch):
    J, dense = convolution(Draw(3), *pair, GEOMETRIES[name])
    monkeypatch.setattr(convolutions, "GATHERED_ENTRIES", 1)
    check_operator(J, dense)


def test_a_correlation_gathers_no_more_than_it_may(monkeypatch):
    J, _ = convolution(Draw(3), "u", "w", geometry(c=1, m=1, size=(400,), kernel=(150,)))
    monkeypatch.setattr(convolutions, "GATHERED_ENTRIES", 2**12)
    v = np.ones(J.shape[1])
    tracemalloc.start()
    J @ v
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**18 < 8 * 150 * 251


@every_example
def test_single_precision_stays_single(name):
    check_single(*EXAMPLES[name][1](Draw(4, np.float32)))


@every_geometry
@every_pair
def test_single_precision_convolution_stays_single(name, pair):
    check_single(*convolution(Draw(5, np.float32), *pair, GEOMETRIES[name]))


@every_example
def test_complex_numbers(name):
    check_complex(*EXAMPLES[name][1](Draw(7, np.complex128)))


@every_geometry
@every_pair
def test_a_convolution_of_complex_numbers(name, pair):
    check_complex(*convolution(Draw(8, np.complex128), *pair, GEOMETRIES[name]))


@every_example
def test_an_operator_after_complex_numbers(name):
    """The product of a real and a complex operator is complex."""
    J, dense = EXAMPLES[name][1](Draw(9))
    d = Draw(10, np.complex128).normal(*J.in_shape)
    check_complex(J @ Diagonal(d), dense * d.ravel())


def check_complex(J, dense):
    """J.T is the transpose; J.H, rmatvec and rmatmat are the adjoint."""
    (m, n), draw = J.shape, Draw(11, np.complex128)
    u, v, U, V = (draw.normal(*shape) for shape in ((m,), (n,), (m, 2), (n, 2)))
    adjoint = dense.conj().T
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert J.dtype == np.complex128
        for K, matrix in ((J, dense), (J.T, dense.T), (J.H, adjoint), (J.H.H, dense),
                          (J.T.H, dense.conj()), (J.adjoint(), adjoint)):  # fmt: skip
            assert K.dtype == np.complex128
            assert_allclose(K.toarray(), matrix, **TIGHT)
            assert_allclose(K.tosparse().toarray(), matrix, **TIGHT)
            assert_allclose(K.diagonal(), np.diagonal(matrix), **TIGHT)
        assert_allclose(J @ v, dense @ v, **TIGHT)
        assert_allclose(J @ v.real, dense @ v.real, **TIGHT)
        assert_allclose(J @ V, dense @ V, **TIGHT)
        assert_allclose(u @ J, u @ dense, **TIGHT)
        assert_allclose(J.rmatvec(u), adjoint @ u, **TIGHT)
        assert_allclose(J.rmatmat(U), adjoint @ U, **TIGHT)
        assert_allclose((J.H @ J).toarray(), adjoint @ dense, **TIGHT)
        assert_allclose((2j * J).H @ u, -2j * (adjoint @ u), **TIGHT)
        assert_allclose(aslinearoperator(dense).H @ u, J.H @ u, **TIGHT)
        if m == n:
            assert_allclose(J.trace(), np.trace(dense), **TIGHT)


@every_example
@pytest.mark.parametrize("dtype", [np.int64, np.int8, np.uint8], ids=lambda kind: kind.__name__)
def test_integers_are_numbers_like_others(name, dtype):
    check_whole(*EXAMPLES[name][1](Draw(12, dtype)))


@every_geometry
@every_pair
def test_a_convolution_of_integers(name, pair):
    check_whole(*convolution(Draw(13, np.int64), *pair, GEOMETRIES[name]))


def check_whole(J, dense):
    """Operators with integer arrays compute in floating point."""
    dense = dense.astype(float)
    for K, matrix in ((J, dense), (J.T, dense.T), (0.5 * J, dense / 2), (J / 4 + J, 1.25 * dense)):
        v = Draw(14).normal(K.shape[1])
        assert K.dtype == np.float64
        for dtype in (np.float64, np.float32, np.int64):
            w = (4 * v).astype(dtype)
            assert (K @ w).dtype == np.float64
            assert_allclose(K @ w, matrix @ w, rtol=1e-12, atol=1e-12)
        assert_allclose(K.toarray(), matrix, **TIGHT)
        assert_allclose(K.diagonal(), np.diagonal(matrix), **TIGHT)


@every_example
def test_products_reject_wrong_shapes(name):
    check_refusals(EXAMPLES[name][1](Draw(15))[0])


def check_refusals(J):
    """Each error names the kind of operator and the shapes."""
    m, n = J.shape
    kind = type(J).__name__
    wrong = [np.ones(shape) for shape in ((n + 1,), (n + 1, n + 1), (n, n + 1, n + 1))]
    for x in (*wrong, [1.0] * (n + 1)):
        for product in (J.matvec, J.matmat, J.dot, lambda x: J @ x):
            with pytest.raises(InputError, match=f"{kind}.*{m}×{n}.*{np.shape(x)[0]}"):
                product(x)
        for product in (J.rmatvec, J.rmatmat, lambda x: x @ J):
            with pytest.raises(InputError, match=f"{kind}.*×"):
                product(np.ones((m + 1,) * np.ndim(x)))
    other = Dense(np.ones((n + 1, 2)))
    taller = np.ones((m + 1, n))
    for wrong in (
        lambda: J @ other, lambda: J @ aslinearoperator(other.a), lambda: J + Dense(taller),
        lambda: J + aslinearoperator(taller), lambda: J @ 2.0, lambda: J @ np.array(["a"] * n, str),
    ):  # fmt: skip
        with pytest.raises(InputError):
            wrong()


def check_single(J, dense):
    for K, matrix in ((J, dense), (J.T, dense.T), (2 * J - J / 2, 1.5 * dense)):
        V = Draw(6, np.float32).normal(K.shape[1], 2)
        assert K.dtype == (K @ V).dtype == K.toarray().dtype == K.diagonal().dtype == np.float32
        assert (V.T @ K.T).dtype == np.float32
        assert (K @ V.astype(float)).dtype == np.float64
        assert_allclose(K @ V, matrix @ V, rtol=1e-4, atol=1e-5)


def concrete(kind):
    """The concrete subclasses of a class inside jacobians/."""
    for child in kind.__subclasses__():
        if not inspect.isabstract(child) and child.__module__.startswith("onnxjac.jacobians"):
            yield child
        yield from concrete(child)


def test_every_kind_has_an_example():
    shown = {kind for kind, _ in EXAMPLES.values()} | {Convolution}
    assert {kind.__name__ for kind in concrete(Jacobian)} == {kind.__name__ for kind in shown}


def test_every_kind_but_the_composites_says_where_its_entries_stand():
    whole = entries.dispatch(object)
    silent = {kind.__name__ for kind in concrete(Jacobian) if entries.dispatch(kind) is whole}
    assert silent == {"Block", "Dag", "Product", "Sum"}


def test_classes_are_abstract_or_final():
    kinds = list(concrete(Jacobian))
    assert not [(a, b) for a in kinds for b in kinds if a is not b and issubclass(a, b)]
