"""The laws of linear operators: each law for every example, and those of the algebra for pairs of
kinds and for expressions that hypothesis draws, of real, single, complex and whole numbers.

For closed forms and inverses of pairs, see also `test_closed.py::test_laws`.
"""

import inspect
import tracemalloc
import warnings
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.sparse.linalg import aslinearoperator

from check_operator import TIGHT, check_operator
from onnxjac.jacobians import (
    Convolution,
    Dense,
    Diagonal,
    Embed,
    Eye,
    Identity,
    Jacobian,
    Kron,
    Slice,
    Zero,
)
from onnxjac.jacobians import convolution as convolutions
from onnxjac.jacobians.errors import InputError
from onnxjac.jacobians.sparse import entries

from .convolutions import CONVOLUTIONS, GEOMETRIES, convolution, geometry
from .examples import EXAMPLES, Draw
from .test_closed import CLOSE, KINDS
from .test_closed import drawn as regular

ALL = EXAMPLES | CONVOLUTIONS
FEW = EXAMPLES | {name: found for name, found in CONVOLUTIONS.items()
                  if name.startswith(f"convolution {next(iter(GEOMETRIES))},")}  # fmt: skip
"""Every kind, with fewer convolutions."""

# -- laws of one operator --------------------------------------------------------------------------


def check_transpose(J, dense):
    check_operator(J.T, dense.T)


def check_norm(J, dense):
    """‖J‖ = ‖Jᵀ‖ = √(Σ Jᵢⱼ²)."""
    for K in (J, J.T):
        assert_allclose(K.norm(), np.linalg.norm(dense), **TIGHT)


def check_neutral(J, dense):
    """I J I is J, and 0 J and J 0 are 0, without a product."""
    before, after = Identity(J.out_shape, J.dtype), Identity(J.in_shape, J.dtype)
    assert type(before @ J @ after) is type(J)
    assert_allclose((before @ J @ after).toarray(), dense, **TIGHT)
    assert type(Zero((2,), J.out_shape, J.dtype) @ J) is Zero
    assert type(J @ Zero(J.in_shape, (2,), J.dtype)) is Zero


def check_single(J, dense):
    """Single precision stays single."""
    for K, matrix in ((J, dense), (J.T, dense.T), (2 * J - J / 2, 1.5 * dense)):
        V = Draw(6, np.float32).normal(K.shape[1], 2)
        assert K.dtype == (K @ V).dtype == K.toarray().dtype == K.diagonal().dtype == np.float32
        assert (V.T @ K.T).dtype == np.float32
        assert (K @ V.astype(float)).dtype == np.float64
        assert_allclose(K @ V, matrix @ V, rtol=1e-4, atol=1e-5)


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


def check_after_complex(J, dense):
    """The product of a real and a complex operator is complex."""
    d = Draw(10, np.complex128).normal(*J.in_shape)
    check_complex(J @ Diagonal(d), dense * d.ravel())


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


def check_refusals(J, dense):
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


LAWS = {
    "matrix": (np.float64, check_operator),
    "transpose": (np.float64, check_transpose),
    "norm": (np.float64, check_norm),
    "neutral": (np.float64, check_neutral),
    "wrong shapes": (np.float64, check_refusals),
    "after complex": (np.float64, check_after_complex),
    "float32": (np.float32, check_single),
    "complex128": (np.complex128, check_complex),
    "int64": (np.int64, check_whole),
    "int8": (np.int8, check_whole),
    "uint8": (np.uint8, check_whole),
}
"""name -> (dtype, check of an operator of this dtype and its matrix)."""

OF_ANY_GEOMETRY = {"neutral", "wrong shapes", "int8", "uint8"}
"""Laws that do not depend on the geometry of a convolution."""

CASES = [(law, name) for law in LAWS for name in (FEW if law in OF_ANY_GEOMETRY else ALL)]


@pytest.mark.parametrize(("law", "name"), CASES)
def test_every_example_keeps_every_law(law, name):
    (kind, example), (dtype, check) = ALL[name], LAWS[law]
    J, dense = example(Draw([*LAWS].index(law), dtype))
    assert type(J) is kind
    check(J, dense)


CORRELATIONS = [name for name in CONVOLUTIONS if not name.endswith(("x to u", "u to x"))]


@pytest.mark.parametrize("name", CORRELATIONS)
def test_correlations_of_large_kernels_are_taken_apart(name, monkeypatch):
    J, dense = CONVOLUTIONS[name][1](Draw(3))
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


# -- laws of the algebra ---------------------------------------------------------------------------

OF_KIND = {kind: [name for name, (own, _) in FEW.items() if own is kind]
           for kind, _ in FEW.values()}  # fmt: skip
DTYPES = np.float64, np.complex128, np.int64, np.float32

law = hypothesis.settings(derandomize=True, deadline=None, max_examples=150, database=None)
seeds, dtypes = st.integers(0, 2**32 - 1), st.sampled_from(DTYPES)
pairs = st.tuples(*[st.sampled_from(sorted(KINDS))] * 2)


class Drawn(NamedTuple):
    """An operator, its matrix, and the coarsest rounding error of its parts."""

    J: Jacobian
    matrix: np.ndarray
    eps: float


def fitted(m, n):
    """The first rows of x, or x and zeros below; the identity where sizes agree."""
    if m == n:
        return Identity((n,), float), np.eye(n)
    kind, small, large = (Slice, m, n) if m < n else (Embed, n, m)
    return kind(((0, 1, small),), (large,), float), np.eye(m, n)


def close(J, matrix, eps):
    """Products from both sides and the dense matrix, up to rounding."""
    draw = Draw(0)
    v, u = draw.normal(J.shape[1], 2), draw.normal(J.shape[0])
    check = partial(assert_close, eps=eps, size=np.abs(matrix).max(initial=1))
    assert J.shape == matrix.shape
    check(J @ v, matrix @ v)
    check(J.T @ u, matrix.T @ u)
    check(J.H @ u, matrix.conj().T @ u)
    check(J.toarray(), matrix)


def assert_close(found, expected, eps, size, message=""):
    """Up to rounding errors of sums of a few hundred terms."""
    told = {"rtol": 1e3 * eps, "atol": 1e3 * eps * size, "err_msg": message}
    assert_allclose(found, expected, **told)


def leaf(name, seed, dtype):
    J, matrix = FEW[name][1](Draw(seed, dtype))
    return Drawn(J, matrix.astype(J.dtype), float(np.finfo(J.dtype).eps))


def product(one, other):
    """A C B, with the rows or columns between A and B left out or filled with zeros by C."""
    C, c = fitted(one.J.shape[1], other.J.shape[0])
    J, matrix = one.J @ C @ other.J, one.matrix @ c @ other.matrix
    return Drawn(J, matrix, max(one.eps, other.eps))


def like(other, one):
    """L B R, which is B cut or filled to the shape of A."""
    (m, n), (k, j) = one.matrix.shape, other.matrix.shape
    (L, left), (R, right) = fitted(m, k), fitted(j, n)
    return Drawn(L @ other.J @ R, left @ other.matrix @ right, other.eps)


def total(one, other):
    """A + L B R."""
    more = like(other, one)
    return Drawn(one.J + more.J, one.matrix + more.matrix, max(one.eps, more.eps))


def scaled(c, one):
    return Drawn(c * one.J, c * one.matrix, one.eps)


leaves = st.builds(leaf, st.sampled_from(sorted(FEW)), seeds, dtypes)
expressions = st.recursive(leaves, lambda drawn: st.one_of(
    st.builds(product, drawn, drawn), st.builds(total, drawn, drawn),
    drawn.map(lambda x: Drawn(x.J.T, x.matrix.T, x.eps)),
    drawn.map(lambda x: Drawn(x.J.H, x.matrix.conj().T, x.eps)),
    st.builds(scaled, st.sampled_from((-1, 0.5, 3)), drawn),
), max_leaves=4)  # fmt: skip


def composed(one: Drawn, two: Drawn, three: Drawn) -> Iterator[tuple[Jacobian, np.ndarray]]:
    """(A C) B = A (C B), (A C B)ᵀ = Bᵀ Cᵀ Aᵀ, A C (B + D) = A C B + A C D and A + L B R.

    Each as a pair (operator, matrix). C, L and R cut or fill; D has the shape of B.
    """
    (A, a, _), (B, b, _) = one, two
    (D, d, _), (more, other, _) = like(three, two), like(two, one)
    C, c = fitted(A.shape[1], B.shape[0])
    yield from (((A @ C) @ B, a @ c @ b), (A @ (C @ B), a @ c @ b))
    yield from ((K, (a @ c @ b).T) for K in ((A @ C @ B).T, B.T @ C.T @ A.T))
    yield (A @ C @ B).H, (a @ c @ b).conj().T
    for K in (A @ (C @ (B + D)), A @ (C @ B + C @ D), A @ C @ B + A @ C @ D):
        yield K, a @ c @ (b + d)
    yield from ((A + more, a + other), ((A + more).T, (a + other).T), (more - 2 * A, other - 2 * a))


@pytest.mark.parametrize("first", FEW)
def test_every_example_obeys_the_algebra_beside_every_kind(first):
    place = list(FEW).index(first)
    one = leaf(first, place, DTYPES[place % len(DTYPES)])
    for k, names in enumerate(OF_KIND.values()):
        second, turn = names[place % len(names)], place // len(DTYPES) + k
        two = leaf(second, turn, DTYPES[turn % len(DTYPES)])
        draw = Draw(k)
        D = Dense(draw.normal(*two.matrix.shape))
        for J, matrix in composed(one, two, Drawn(D, D.a, 0)):
            v = draw.normal(J.shape[1])
            found, expected = J @ v, matrix @ v
            assert J.shape == matrix.shape
            size = np.abs(expected).max(initial=1)
            assert_close(found, expected, max(one.eps, two.eps), size, f"{second}: {J!r}")


@law
@hypothesis.given(expressions)
def test_every_expression_is_its_matrix(drawn):
    close(*drawn)


@law
@hypothesis.given(expressions, leaves, leaves)
def test_expressions_obey_the_algebra(one, two, three):
    eps = max(one.eps, two.eps, three.eps)
    for J, matrix in composed(one, two, three):
        close(J, matrix, eps)


@law
@hypothesis.given(pairs, st.integers(0, 99), st.booleans())
def test_inverses_of_products(names, seed, is_complex):
    dtype = np.complex128 if is_complex else np.float64
    (A, a), (B, b) = (regular(name, seed + k, dtype) for k, name in enumerate(names))
    hypothesis.assume(max(map(np.linalg.cond, (a, b))) < 1e3)
    v = Draw(seed).normal(len(a))
    inverse = np.linalg.inv(a @ b)
    for J in ((A @ B).inverse(), B.inverse() @ A.inverse()):
        assert_allclose(J @ v, inverse @ v, rtol=1e-7, atol=1e-7 * np.abs(inverse).max())
    assert_allclose((A @ B).slogdet()[1], A.slogdet()[1] + B.slogdet()[1], **CLOSE)


@st.composite
def factors(draw):
    """(A ⊗ B) and (C ⊗ D) with AC and BD, some of them identities, with or without a batch."""
    batch = draw(st.sampled_from(((), (2,), (2, 3))))
    sizes = [draw(st.integers(1, 4)) for _ in range(6)]
    (m, n, k), (p, q, r) = sizes[:3], sizes[3:]

    def kron(shapes):
        identity = draw(st.sampled_from((None, 0, 1)))
        return Kron(*(factor(*shape, k == identity) for k, shape in enumerate(shapes)), batch)

    def factor(rows, columns, is_identity):
        if is_identity and rows == columns:
            return Eye(rows)
        shape = (*batch, rows, columns) if draw(st.booleans()) else (rows, columns)
        return Draw(draw(seeds), draw(dtypes)).normal(*shape)

    return kron(((m, n), (p, q))), kron(((n, k), (q, r)))


@law
@hypothesis.given(factors())
def test_mixed_products(pair):
    """(A ⊗ B)(C ⊗ D) = AC ⊗ BD."""
    K, H = pair
    J = K @ H
    eps = max(np.finfo(one.dtype).eps for one in pair)
    close(J, K.toarray() @ H.toarray(), eps)
    close(H.T @ K.T, (K.toarray() @ H.toarray()).T, eps)
