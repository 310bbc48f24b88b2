"""Laws of the algebra for expressions that hypothesis draws: of all kinds, numbers and shapes.

For every pair of kinds in turn, see `test_laws.py` and `test_closed.py::test_laws`.
"""

from typing import NamedTuple

import hypothesis
import numpy as np
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from onnxjac.jacobians import Eye, Jacobian, Kron

from .examples import Draw
from .test_closed import CLOSE, KINDS
from .test_closed import drawn as regular
from .test_laws import ALL, DTYPES, fitted

law = hypothesis.settings(derandomize=True, deadline=None, max_examples=150, database=None)
seeds, dtypes = st.integers(0, 2**32 - 1), st.sampled_from(DTYPES)
pairs = st.tuples(*[st.sampled_from(sorted(KINDS))] * 2)


class Drawn(NamedTuple):
    """An operator, its matrix, and the coarsest rounding error of its parts."""

    J: Jacobian
    matrix: np.ndarray
    eps: float


def close(J, matrix, eps):
    """Products from both sides and the dense matrix, up to rounding."""
    draw = Draw(0)
    v, u = draw.normal(J.shape[1], 2), draw.normal(J.shape[0])
    assert J.shape == matrix.shape
    told = {"rtol": 1e4 * eps, "atol": 1e4 * eps * max(np.abs(matrix).max(initial=0), 1)}
    assert_allclose(J @ v, matrix @ v, **told)
    assert_allclose(J.T @ u, matrix.T @ u, **told)
    assert_allclose(J.H @ u, matrix.conj().T @ u, **told)
    assert_allclose(J.toarray(), matrix, **told)


def leaf(name, seed, dtype):
    J, matrix = ALL[name][1](Draw(seed, dtype))
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


leaves = st.builds(leaf, st.sampled_from(sorted(ALL)), seeds, dtypes)
expressions = st.recursive(leaves, lambda drawn: st.one_of(
    st.builds(product, drawn, drawn), st.builds(total, drawn, drawn),
    drawn.map(lambda x: Drawn(x.J.T, x.matrix.T, x.eps)),
    drawn.map(lambda x: Drawn(x.J.H, x.matrix.conj().T, x.eps)),
    st.builds(scaled, st.sampled_from((-1, 0.5, 3)), drawn),
), max_leaves=4)  # fmt: skip


@law
@hypothesis.given(expressions)
def test_every_expression_is_its_matrix(drawn):
    close(*drawn)


@law
@hypothesis.given(expressions, leaves, leaves)
def test_products_are_associative_and_distribute(one, two, three):
    (A, a, _), (B, b, _), (D, d, _) = one, two, like(three, two)
    eps = max(one.eps, two.eps, three.eps)
    C, c = fitted(A.shape[1], B.shape[0])
    for J in ((A @ C) @ B, A @ (C @ B)):
        close(J, a @ c @ b, eps)
    close((A @ C @ B).T, b.T @ c.T @ a.T, eps)
    for J in (A @ (C @ (B + D)), A @ C @ B + A @ C @ D):
        close(J, a @ c @ (b + d), eps)


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
