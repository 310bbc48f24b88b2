"""Rules in index notation: stars, splits and broadcasts, what cancels, and the general entry."""

from itertools import product

import numpy as np
import pytest
import sympy as sp
from onnx import parser

import onnxjac as oj
from onnxjac import InputError
from onnxjac.jacobians import Contraction
from onnxjac.modes.verify.case import node_case
from onnxjac.ops import numbers
from onnxjac.ops.derive import find_derivation
from onnxjac.ops.formulas import Mean, Total
from onnxjac.ops.indexed import INDEXED, Indexed
from onnxjac.ops.indices import Indices
from onnxjac.ops.node import node_of

RNG = np.random.default_rng(0)


def rule_of(text, *inputs, outputs=None, **how):
    """The values of a text at some inputs, and its blocks."""
    rule, node = Indexed(text, **how), node_of("F", inputs, {})
    (y,) = rule.define(numbers, node)
    node.outputs = (y,)
    return y, rule(numbers, node)


def slopes(function, x, step=1e-6):
    """Central differences of a function, one column for each entry."""
    columns = []
    for k in range(x.size):
        e = np.zeros(x.size)
        e[k] = step
        ends = [np.ravel(function(x + s * e.reshape(x.shape))) for s in (1, -1)]
        columns.append((ends[0] - ends[1]) / (2 * step))
    return np.stack(columns, 1)


def standardised(x):
    d = x - x.mean(-1, keepdims=True)
    return d / np.sqrt((d**2).mean(-1, keepdims=True) + 0.1)


STANDARD = """
    m[*r] = mean(x[*r, s], s)
    v[*r] = mean((x[*r, s] - m[*r])**2, s)
    y[*r, s] = (x[*r, s] - m[*r])/sqrt(v[*r] + 0.1)
"""


@pytest.mark.parametrize("shape", [(4,), (2, 4), (2, 1, 4), (0, 4)])
def test_a_star_stands_for_any_number_of_axes(shape):
    x = RNG.standard_normal(shape)
    y, blocks = rule_of(STANDARD, x)
    np.testing.assert_allclose(y, standardised(x))
    expected = slopes(standardised, x) if x.size else np.zeros((0, 0))
    np.testing.assert_allclose(blocks[0, 0].toarray(), expected, atol=1e-8)


@pytest.mark.parametrize("shape", [(), (1,), (4,), (3, 1), (2, 1, 4), (1, 1, 1)])
def test_axes_of_length_one_and_missing_ones_are_broadcast(shape):
    x, w = RNG.standard_normal((2, 3, 4)), RNG.standard_normal(shape)
    y, blocks = rule_of("y[*n, i] = x[*n, i]*w[...]", x, w)
    np.testing.assert_allclose(y, x * w)
    np.testing.assert_allclose(blocks[0, 0].toarray(), np.diag(np.ravel(x**0 * w)))
    np.testing.assert_allclose(blocks[0, 1].toarray(), slopes(lambda w: x * w, w), atol=1e-8)


def test_an_axis_is_split_and_joined():
    x = RNG.standard_normal((2, 6))
    text, made = "y[(i, n), c] = x[n, (c, i)]", x.reshape(2, 3, 2).transpose(2, 0, 1)
    y, blocks = rule_of(text, x, sizes=lambda node: {"i": 2})
    np.testing.assert_array_equal(y, made)  # not joined before there is a node with its shape
    np.testing.assert_array_equal(blocks[0, 0] @ x.ravel(), made.ravel())


def test_the_slope_of_a_variance_by_the_mean_cancels():
    """Σ (x - m) = 0, so that the variance has one term."""
    stages = Indexed(STANDARD).stages
    assert list(stages["v"].atoms) != list(stages["v"].slopes)
    (kept,) = (stages["v"].atoms[name] for name in stages["v"].slopes)
    assert kept.name == "x"


@pytest.mark.parametrize("term", [
    "(x[r, s] - m[r])**3", "(x[r, s] - m[r])**2*x[r, s]", "(x[r, s] - m[r])*w[s]",
    "(x[r, s] - 2*m[r])**2",
])  # fmt: skip
def test_nothing_else_cancels(term):
    x, w = RNG.standard_normal((2, 4)), RNG.standard_normal(4)
    text = f"m[r] = mean(x[r, s], s)\ny[r] = sum({term}, s)"
    inputs = (x, w) if "w" in term else (x,)
    _, blocks = rule_of(text, *inputs)

    def truth(x):
        names = {"x": x, "m": x.mean(-1, keepdims=True), "w": w}
        plain = term.replace("[r, s]", "").replace("[r]", "").replace("[s]", "")
        return eval(plain, names).sum(-1)

    np.testing.assert_allclose(blocks[0, 0].toarray(), slopes(truth, x), atol=1e-7)


def test_a_softmax_that_is_the_output_is_not_computed_again():
    x = RNG.standard_normal((3, 4))
    _, blocks = rule_of("y[i, k] = exp(x[i, k])/sum(exp(x[i, j]), j)", x)
    assert blocks[0, 0].nbytes == x.nbytes


def test_a_norm_has_the_derivative_zero_at_zero():
    _, blocks = rule_of("y[i] = sqrt(sum(x[i, j]**2, j))", np.array([[0.0, 0.0], [3.0, 4.0]]))
    np.testing.assert_allclose(blocks[0, 0].toarray(), [[0, 0, 0, 0], [0, 0, 0.6, 0.8]])


def test_a_choice_drops_what_it_does_not_take():
    """An infinite tangent of an entry that is not chosen."""
    rule = INDEXED["Where"]
    held = np.array([True, False]), np.array([1.0, 2.0]), np.array([3.0, 4.0])
    node = node_of("Where", held, {})
    node.outputs = (np.array([1.0, 4.0]),)
    blocks = rule(numbers, node)
    assert all(J.chooses for J in blocks.values())
    np.testing.assert_array_equal(blocks[0, 1].d, [1, 0])
    np.testing.assert_array_equal(blocks[0, 2].d, [0, 1])


def test_labels_that_always_follow_each_other_are_one():
    """A batch of rows times a matrix is a Kronecker product, not a contraction."""
    a = RNG.standard_normal((2, 3, 4))
    indices = Indices(numbers, {"n": 2, "i": 3, "j": 4, "k": 5}, np.dtype(float))
    J = indices.operator([(a, ("n", "i", "j"))], ("j", "k"), ("n", "i", "k"))
    assert not isinstance(J, Contraction)
    assert "⊗" in repr(J)
    v = RNG.standard_normal((4, 5))
    np.testing.assert_allclose(J @ v.ravel(), (a @ v).ravel())


@pytest.mark.parametrize(("text", "inputs", "why"), [
    ("y[*a, *b] = x[*a, *b]", [(2, 3)], "indices"),
    ("y[i] + 1", [(2,)], "is not like"),
    ("m[i] = sum(x[i, j], j)\ny[j] = m[j]", [(2, 3)], "has the indices of its line"),
    ("y[i, j] = x[i, j] + w[i, j]", [(2, 3), (1, 3)], "runs to"),
])  # fmt: skip
def test_a_text_that_does_not_fit(text, inputs, why):
    with pytest.raises(InputError, match=why):
        rule_of(text, *map(np.ones, inputs))


@pytest.mark.usefixtures("clean_registry")
def test_a_declared_operator_may_have_stars_and_means():
    oj.derive("my.domain::Centre", "y[*r, i] = x[*r, i] - mean(x[*r, j], j)")
    model = oj.load(parser.parse_model("""<ir_version: 10, opset_import: ["": 21, "my.domain": 1]>
    g (double[2,3,4] x) => (double[2,3,4] y) { y = my.domain.Centre (x) }"""))
    x = RNG.standard_normal((2, 3, 4))
    J = oj.linearize(model, {"x": x})
    np.testing.assert_allclose(J.primal["y"], x - x.mean(-1, keepdims=True), atol=1e-15)
    assert J.check()


# -- the general entry -----------------------------------------------------------------------------


def number(expr, tensors, at, lengths):
    """The value of a general entry at some indices."""
    if isinstance(expr, Total):
        names = list(map(str, expr.over))
        places = list(product(*(range(lengths[n.rstrip("'")]) for n in names)))
        terms = [number(expr.term, tensors, {**at, **dict(zip(names, p, strict=True))}, lengths)
                 for p in places]  # fmt: skip
        return sum(terms) / (len(terms) if isinstance(expr, Mean) else 1)
    if isinstance(expr, sp.KroneckerDelta):
        return float(at[str(expr.args[0])] == at[str(expr.args[1])])
    if isinstance(expr, sp.Indexed):
        return tensors[str(expr.base)][tuple(at[str(i)] for i in expr.indices)]
    if expr.func.__name__ == "len":
        return lengths[str(expr.args[0])]
    if not expr.args:
        return float(expr)
    return float(expr.func(*(number(a, tensors, at, lengths) for a in expr.args)))


GENERAL = {
    "Softmax": ([(2, 3)], {"axis": -1}, ("r", "k")),
    "LogSoftmax": ([(2, 3)], {"axis": -1}, ("r", "k")),
    "MatMul": ([(2, 2, 3), (2, 3, 2)], {}, ("n", "i", "k")),
    "ReduceL2": ([(2, 3), np.array([1])], {"keepdims": 0}, ("r",)),
    "ReduceMean": ([(2, 3), np.array([1])], {"keepdims": 0}, ("r",)),
    "ReduceLogSumExp": ([(2, 3), np.array([1])], {"keepdims": 0}, ("r",)),
}
"""Operator -> shapes, attributes, and the indices of y."""


@pytest.mark.parametrize("op_type", GENERAL)
def test_the_general_entry_is_the_entry_of_the_matrix(op_type):
    shapes, attrs, out = GENERAL[op_type]
    found, rule = find_derivation(op_type), INDEXED[op_type]
    case = node_case(op_type, *shapes, **attrs)
    held = [case.point[name] for name in case.names]
    y = case.model.run(case.point, engine="numpy")[case.results[0]]
    node = node_of(op_type, held, case.attrs)
    node.outputs = (y,)
    blocks = rule(numbers, node)
    names, indices = rule.variables, rule.form.indices
    tensors = {**dict(zip(names, held, strict=False)), "y": y}
    lengths = {label: n for name in names for label, n in
               zip(indices[name], np.shape(tensors[name]), strict=True)}  # fmt: skip
    lengths["j"] = lengths.get("j", lengths.get("k"))
    for i, name in enumerate(names):
        primes = [f"{label}'" for label in indices[name]]
        made = [[number(found.jacobian[name], tensors,
                        dict(zip((*out, *primes), (*row, *column), strict=True)), lengths)
                 for column in np.ndindex(tensors[name].shape)]
                for row in np.ndindex(y.shape)]  # fmt: skip
        np.testing.assert_allclose(blocks[0, i].toarray(), made, atol=1e-12)


def test_operators_by_hand_have_no_derivation():
    assert find_derivation("Det") is None
    assert find_derivation("Shape") is None
    assert find_derivation("LSTM") is None
