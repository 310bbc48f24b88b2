"""Diagonals and column norms from structure, without products, against the dense matrix."""

import time
from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose
from onnx import numpy_helper
from onnx.parser import parse_model

import onnxjac as oj
from estimators.examples import Hidden
from house import ROOT
from onnxjac import InputError
from onnxjac.jacobians import (
    Block,
    Contraction,
    Cumulative,
    Dag,
    Dense,
    Diagonal,
    Edge,
    Identity,
    Jacobian,
    Product,
    Scalar,
    Sum,
)
from onnxjac.jacobians.base import Wrapper
from onnxjac.modes.estimators.density import logdet, spectral_density
from onnxjac.modes.estimators.estimate import Probed
from onnxjac.modes.estimators.exact import STRUCTURE, column_squares, diagonal_of, known_diagonal
from onnxjac.modes.estimators.norms import condition_number, frobenius_norm, spectral_norm
from onnxjac.modes.estimators.squared import block_grid, squared
from onnxjac.modes.estimators.trace import diagonal, trace
from onnxjac.modes.linear.elimination.adaptive import Adaptive
from onnxjac.modes.sparse.choice import Boolean, Symbolic
from sparsity.models import finite_elements, stencil_by_convolution, stencil_by_slices
from test_models import stored

from ..jacobians.examples import EXAMPLES, Draw


class Untouchable(Jacobian):
    """An operator that fails in every product."""

    def __init__(self, operator):
        super().__init__(operator.out_shape, operator.in_shape, operator.dtype)

    def _apply(self, op, v):
        raise AssertionError("a product was taken")

    def _transpose(self):
        return self


KNOWN = {"Identity", "Zero", "Scalar", "Cast", "Reshape", "Permutation", "Diagonal", "Slice",
         "Embed", "Take", "Scatter", "Broadcast", "SumTo", "Cumulative", "Kron", "Dense", "LowRank",
         "BlockDiagonal"}  # fmt: skip
"""Kinds whose squares are always known."""


@pytest.mark.parametrize("name", EXAMPLES)
def test_squared_is_the_matrix_of_squared_entries(name):
    """`squared` gives A ∘ A or None, and not None for the kinds in KNOWN."""
    kind, example = EXAMPLES[name]
    for J, dense in (example(Draw(1)), example(Draw(2))):
        square = squared(J)
        assert square is not None or kind.__name__ not in KNOWN
        if square is not None:
            assert_allclose(square.toarray(), dense**2, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_diagonal_from_structure_agrees_with_the_matrix(name):
    J, dense = EXAMPLES[name][1](Draw(1))
    if J.shape[0] == J.shape[1]:
        found = diagonal_of(J)
        if found is not None:
            assert_allclose(found, np.diag(dense), rtol=1e-12, atol=1e-12)


def grid(make, n):
    """∂f/∂u of a model on an n×n grid at a random point."""
    model = oj.load(make(n))
    u = np.random.default_rng(0).standard_normal(model.inputs["u"].shape)
    return oj.linearize(model, {"u": u})


@pytest.mark.parametrize("make", [stencil_by_convolution, stencil_by_slices, finite_elements])
def test_column_norms_of_grids_agree_with_the_matrix(make):
    J = grid(make, 9)
    squares, _ = column_squares(Probed(J))
    dense = J.toarray()
    assert_allclose(squares, np.sum(dense**2, axis=0), rtol=1e-12)
    assert_allclose(diagonal(J, method="exact").value, np.diag(dense), rtol=1e-12, atol=1e-12)
    assert_allclose(diagonal(J.T @ J, method="exact").value, np.sum(dense**2, axis=0), rtol=1e-12)


@pytest.mark.parametrize("make", [stencil_by_convolution, stencil_by_slices])
def test_norms_of_half_a_million_columns_take_no_product(make):
    """n = 501,264 in seconds, with no product; the dense matrix would take two terabytes."""
    J = grid(make, 708)
    start, P = time.process_time(), Probed(J)
    squares, _ = column_squares(P)
    assert time.process_time() - start < 60
    assert P.products == 0
    for k in (0, 707, 250_000, 501_263):
        unit = np.zeros(J.shape[1])
        unit[k] = 1
        assert_allclose(squares[k], np.sum((J @ unit) ** 2), rtol=1e-12)


@pytest.mark.parametrize("weight", ["6.weight", "6.bias"])
def test_gauss_newton_of_the_last_layer_by_structure(weight):
    """diag(Jᵀ D J) = (J ∘ J)ᵀ d, without a product; layers before ReLUs have many paths."""
    model = oj.load(ROOT / "tests" / "models" / "mlp.onnx", dtype="float64")
    J = oj.linearize(model, {"x": stored("mlp")["x"]}, of="logits", wrt=weight)
    d = np.random.default_rng(0).standard_normal(J.shape[0])
    for G, weights in ((J.T @ J, np.ones_like(d)), (J.T @ Diagonal(d) @ J, d)):
        found = diagonal(G, method="exact")
        assert (found.method, found.products) == (STRUCTURE, 0)
        expected = J.toarray().T @ (weights[:, None] * J.toarray())
        assert_allclose(found.value, np.diag(expected), rtol=1e-12, atol=1e-14)
        assert_allclose(trace(G, method="exact").value, np.trace(expected), rtol=1e-12)
    norm = frobenius_norm(J)
    assert norm.products == 0
    assert_allclose(norm.value, np.linalg.norm(J.toarray()), rtol=1e-12)
    first = oj.linearize(model, {"x": stored("mlp")["x"]}, of="logits", wrt="0.weight")
    assert squared(first) is None


def test_more_than_one_way_is_no_square():
    """(A B) ∘ (A B) ≠ (A ∘ A)(B ∘ B) where an entry is a sum."""
    A, B = (np.random.default_rng(k).standard_normal((6, 6)) for k in (0, 1))
    J = Product((Dense(A), Cumulative(0, (6,), float, exclusive=False, reverse=False), Dense(B)))
    assert squared(J) is None
    one = Product((Diagonal(A[0]), Dense(A), Diagonal(B[0])))
    assert_allclose(squared(one).toarray(), one.toarray() ** 2, rtol=1e-12)


def test_a_label_that_is_summed_over_is_no_square():
    """Σₖ aᵢₖ bₖⱼ is a sum in every entry; aᵢⱼ bⱼ is not."""
    a, b = (np.random.default_rng(k).standard_normal((3, 3)) for k in (0, 1))
    sizes = {"i": 3, "j": 3, "k": 3}
    assert squared(Contraction(((a, "ik"), (b, "kj")), "j", "i", sizes)) is None
    one = Contraction(((a, "ij"), (b[0], "j")), "j", "i", sizes)
    assert_allclose(squared(one).toarray(), one.toarray() ** 2, rtol=1e-12)


def test_foreign_operators_are_left_alone():
    A = Untouchable(Identity((4,), np.float64))
    assert known_diagonal(Probed(A)) is None
    assert known_diagonal(Probed(A + Scalar(2, (4,), np.float64))) is None
    assert squared(A @ Diagonal(np.ones(4))) is None


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0)])
def test_an_empty_operator_has_norm_zero_and_no_condition_number(shape):
    A = Hidden(np.zeros(shape))
    for exact in (None, True, False):
        assert frobenius_norm(A, exact=exact).value == spectral_norm(A, exact=exact).value == 0
        with pytest.raises(InputError, match="no condition number"):
            condition_number(A, exact=exact)


def test_an_empty_square_has_trace_zero_and_determinant_one():
    """Its trace is 0 and its determinant 1, by every method."""
    A = np.zeros((0, 0))
    for method in (None, "exact", "xtrace", "hutch++", "hutchinson"):
        assert trace(A, method=method).value == 0
    for found in (diagonal(A), diagonal(A, method="xdiag")):
        assert found.exact
        assert found.value.shape == (0,)
    for exact in (None, True, False):
        assert logdet(A, exact=exact).value == 0
        with pytest.raises(InputError, match="no spectral density"):
            spectral_density(A, exact=exact)


def diamonds(count):
    """2^count paths from vertex 0 to the last one; one more source joins at the end."""
    shapes = [(2,)] * (3 * count + 2)
    edges = []
    for k in range(0, 3 * count, 3):
        for side in (k + 1, k + 2):
            unit = Diagonal(np.random.default_rng(side).uniform(1, 2, 2))
            edges += [Edge(k, side, Dense(unit.toarray() + 0.1)), Edge(side, k + 3, unit)]
    late = 3 * count + 1
    edges.append(Edge(3 * count, late, Dense(np.eye(2))))
    return Dag(tuple(shapes), edges, (0, 3 * count), (late,), np.dtype(float))


def test_the_paths_of_sixty_diamonds_are_not_enumerated():
    """Neither for the source before them nor for the one after."""
    many = diamonds(60)
    ((before, after),) = block_grid(many)
    assert_allclose(before.toarray(), many.toarray()[:, :2], rtol=1e-12)
    assert_allclose(after.toarray(), np.eye(2))


def test_the_diagonal_through_diamonds_is_known():
    J = diamonds(60).between((0,), (181,))
    assert_allclose(diagonal_of(J), np.diagonal(J.toarray()), rtol=1e-12)


def test_estimates_are_right_in_single_precision():
    matrix = np.random.default_rng(0).standard_normal((90, 90)).astype(np.float32)
    found = diagonal(Hidden(matrix), method="exact").value
    assert_allclose(found, np.diag(matrix), rtol=1e-6)
    off = abs(trace(Hidden(matrix), seed=3).value - np.trace(matrix))
    assert off < 4 * trace(Hidden(matrix), seed=3).error


def test_the_diagonal_of_a_large_sparse_jacobian_takes_no_products(inside):
    """Nor does its trace: n products take time quadratic in n."""
    model = oj.load(stencil_by_convolution(60))
    J = oj.linearize(model, {"u": np.random.default_rng(0).random((60, 60))})
    expected = J.tosparse().diagonal()
    inside.forbid_diagonals()
    assert_allclose(J.diagonal(), expected)
    assert_allclose(J.trace(), expected.sum())


# -- closed forms and products, by counted work ----------------------------------------------------

BATCH = 250, 16


def in_a_batch(*lines):
    """y ↦ l = Σ y², for a batch x whose samples do not mix on the way to y."""
    body = "\n".join((*lines, "q = Mul(y, y)", "l = ReduceSum<keepdims=0>(q)"))
    proto = parse_model(f"""<ir_version: 10, opset_import: ["": 21]>
        g (double[250,16] x) => (double l) {{ {body} }}""")
    for k in range(3):
        w = np.random.default_rng(k).standard_normal((16, 16)) / 4
        proto.graph.initializer.append(numpy_helper.from_array(w, f"w{k}"))
    proto.graph.initializer.append(numpy_helper.from_array(np.ones(16), "g"))
    return oj.load(proto)


NETS = {
    "layers": ("a = MatMul(x, w0)", "b = Tanh(a)", "c = MatMul(b, w1)", "d = Tanh(c)",
               "y = MatMul(d, w2)"),
    "residual": ("a = MatMul(x, w0)", "b = Tanh(a)", "c = Add(x, b)", "d = MatMul(c, w1)",
                 "e = Sin(d)", "y = Add(c, e)"),
    "softmax": ("a = MatMul(x, w0)", "y = Softmax(a)"),
    "norm": ("a = MatMul(x, w0)", "b = LayerNormalization(a, g, g)", "y = Tanh(b)"),
}  # fmt: skip

OPERATORS = {
    "J": lambda J, H: J,
    "H": lambda J, H: H,
    "JᵀJ": lambda J, H: J.T @ J,
    "H + 2 I": lambda J, H: H + 2.0 * Identity(H.in_shape, H.dtype),
    "J + JᵀJ": lambda J, H: J + J.T @ J,
    "half of H": lambda J, H: H[: H.shape[0] // 2, : H.shape[0] // 2],
}

FORMS = {
    "diagonal": (lambda A: A.diagonal(), 1),
    "norm": (lambda A: A.norm(), 1), "rows": (lambda A: A[:8].toarray(), 8 / 4000),
    "columns": (lambda A: A[:, :8].toarray(), 8 / 4000),
    "block": (lambda A: A[:8, 4:12].toarray(), 8 / 4000),
    "diagonal of a block": (lambda A: A[:1900, :1900].diagonal(), 1 / 2),
}  # fmt: skip
"""The forms, and the part of all products that gives them by hand."""


class Work:
    """The numbers that operators, and the terms that sparse matrices, read and write."""

    def __init__(self, monkeypatch, inside):
        self.done = 0
        inside.forbid_programs(Adaptive)
        for kind in {type(J) for J, _ in (EXAMPLES[name][1](Draw(1)) for name in EXAMPLES)}:
            if not issubclass(kind, Dag | Product | Sum | Block | Wrapper):
                self.count(monkeypatch, kind, "_apply", self.entries)
        for kind in Symbolic, Boolean:
            self.count(monkeypatch, kind, "under", self.terms)

    def count(self, monkeypatch, kind, name, size):
        plain = getattr(kind, name)

        def counted(*args):
            found = plain(*args)
            self.done += size(*args, found)
            return found

        monkeypatch.setattr(kind, name, counted)

    @staticmethod
    def entries(J, op, v, y):
        return np.size(v) + np.size(y)

    @staticmethod
    def terms(A, operator, found):
        return found.indptr[-1] if isinstance(found, Symbolic) else found.rows.nnz + len(found.of)

    def of(self, task):
        before = self.done
        task()
        return self.done - before


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.sampled(0.4)
@pytest.mark.parametrize("net", NETS)
def test_closed_forms_take_no_more_work_than_products(net, operator, monkeypatch, inside):
    """Nor more than the sparse matrix, in the numbers that are read and written."""
    model, x = in_a_batch(*NETS[net]), np.random.default_rng(3).standard_normal(BATCH)

    def made():
        J = oj.linearize(model, {"x": x}, of="y", wrt="x")
        A = OPERATORS[operator](J, oj.hessian(model, {"x": x}, of="l"))
        return A, np.ones(A.shape[1])

    work = Work(monkeypatch, inside)
    A, v = made()
    A @ v
    product, sparse = work.of(lambda: A @ v), work.of(A.tosparse)
    for name, (form, part) in FORMS.items():
        A, v = made()
        A @ v
        least = min(part * len(v) * product, sparse)
        assert work.of(partial(form, A)) <= 2 * least + len(v), name
