"""Repeating an elimination at another point: the same recipe with other numbers."""

import numpy as np
import onnx.parser
import pytest
from numpy.testing import assert_allclose

import onnxjac as oj
from onnxjac.jacobians import Dag, Diagonal, Edge, Identity, Scalar
from onnxjac.modes.elimination import plan
from onnxjac.modes.elimination.plan import eliminated

RNG = np.random.default_rng(8)
HEAD = '<ir_version: 10, opset_import: ["": 21]>'

MODELS = {
    "diagonals": "g (double[4] x) => (double[4] y) { s = Sin(x) t = Tanh(s) y = Mul(t, s) }",
    "a mask": "g (double[4] x) => (double[4] y) { s = Sin(x) r = Relu(s) y = Exp(r) }",
    "a layer": """g (double[4,3] x, double[3,5] w, double[5] b) => (double[4,5] y)
        { m = MatMul(x, w) a = Add(m, b) y = Softmax(a) }""",
    "a norm": """g (double[4,3] x) => (double[4,3] y) <int64[1] last = {-1}>
        { m = ReduceMean(x, last) c = Sub(x, m) q = Mul(c, c) v = ReduceMean(q, last)
          s = Sqrt(v) y = Div(c, s) }""",
    "a number": "g (double[4] x, double[1] c) => (double[4] y) { s = Sin(x) y = Mul(s, c) }",
}
DECIDE = {"a number"}


def point(model):
    return {n: RNG.uniform(-1, 1, spec.shape) for n, spec in model.inputs.items()}


@pytest.fixture
def eliminations(monkeypatch):
    """A list of the DAGs whose elimination recipe was worked out."""
    met, recipe_of = [], plan.recipe_of
    monkeypatch.setattr(plan, "recipe_of", lambda dag: met.append(dag) or recipe_of(dag))
    return met


@pytest.mark.parametrize("name", MODELS)
def test_it_is_decided_once_and_right_at_all_points(name, eliminations):
    text = HEAD + MODELS[name]
    model = oj.load(onnx.parser.parse_model(text))
    wrt = [n for n in model.inputs if n == "x" or name not in DECIDE]
    first = point(model)
    J = oj.linearize(model, first, wrt=wrt)
    for _ in range(4):
        at = point(model)
        J = J.relinearize(at)
        fresh = oj.linearize(oj.load(onnx.parser.parse_model(text)), at, wrt=wrt)
        assert_allclose(eliminated(J.dag) @ np.eye(J.shape[1]), fresh.dag @ np.eye(J.shape[1]),
                        rtol=1e-12, atol=1e-14)  # fmt: skip
    assert (len(eliminations) == 1) == (name not in DECIDE)


def test_arrays_that_were_one_at_a_point_may_be_two_elsewhere():
    def difference(a, b):
        """diag(a) - diag(b), in two steps."""
        d, shapes = np.dtype(float), ((3,),) * 4
        edges = [Edge(0, 1, Diagonal(a)), Edge(0, 2, Diagonal(b)), Edge(1, 3, Identity((3,), d)),
                 Edge(2, 3, Scalar(-1.0, (3,), d))]  # fmt: skip
        return Dag(shapes, edges, (0,), (3,), d)

    one, other = RNG.uniform(1, 2, (2, 3))
    recipe = plan.recipe_of(difference(one, one))
    recipe.made(difference(one, one))
    assert recipe.again(difference(other, other)) is not None
    found = recipe.again(difference(one, other))
    assert found is None or np.allclose(found.after @ np.ones(3), one - other)


def test_nothing_of_a_point_is_kept():
    model = oj.load(onnx.parser.parse_model(HEAD + MODELS["diagonals"]))
    J = oj.linearize(model, point(model)).relinearize(point(model))
    eliminated(J.dag)
    recipe = J.tape.template.known[plan.ELIMINATED]
    assert not recipe.ground.known
    assert recipe.again(J.dag) is not None
    assert not recipe.ground.known


def test_other_shapes_are_refused():
    model = oj.load(onnx.parser.parse_model(HEAD + MODELS["diagonals"]))
    J = oj.linearize(model, point(model)).relinearize(point(model))
    eliminated(J.dag)
    recipe = J.tape.template.known[plan.ELIMINATED]
    other = oj.load(onnx.parser.parse_model(HEAD + MODELS["diagonals"].replace("[4]", "[5]")))
    assert recipe.again(oj.linearize(other, point(other)).dag) is None
