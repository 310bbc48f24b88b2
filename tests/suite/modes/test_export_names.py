"""The tensors of an export: their names, their order, and which of them are inputs.

Names of the model that are those of derivatives, such as `x_grad` beside `x`, change no derivative.
"""

from itertools import permutations

import numpy as np
import onnx
import pytest

import onnxjac as oj

from .test_export import run

HEAD = '<ir_version: 10, opset_import: ["": 21]> g '
KINDS = ("tangent", "cotangent", "grad", "hvp", "grad_tangent", "x_jacobian", "jacobian")
TAKEN = [f"{name}_{kind}" for name in ("x", "y") for kind in KINDS]
AT = np.array([1.5, -0.5, 2.0])

PLACES = {  # y = Σ x³
    "inputs": f"""(double[3] x, {', '.join(f'double {n}' for n in TAKEN)}) => (double y) {{
        s = Sum({', '.join(TAKEN)}) k = Mul(x, s) k2 = Mul(k, x) k3 = Mul(k2, x)
        y = ReduceSum<keepdims=0>(k3) }}""",
    "intermediates": f"""(double[3] x) => (double y) {{
        {' '.join(f'{n} = Identity({o})' for n, o in zip(TAKEN, ['x', *TAKEN], strict=False))}
        k = Mul(x, {TAKEN[-1]}) k2 = Mul(k, {TAKEN[0]}) y = ReduceSum<keepdims=0>(k2) }}""",
    **{f"the output {n}": f"""(double[3] x) => (double {n})
        {{ k = Mul(x, x) k2 = Mul(k, x) {n} = ReduceSum<keepdims=0>(k2) }}"""
       for n in ("x_cotangent", "x_grad", "x_hvp")},
}
RIGHT = {"jvp": (3 * AT**2).sum(), "vjp": 3 * AT**2, "grad": 3 * AT**2, "jacobian": 3 * AT**2,
         "hvp": 6 * AT}  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
def test_names_of_derivatives_may_be_taken(place):
    model = oj.load(onnx.parser.parse_model(HEAD + PLACES[place]))
    point = {n: AT if n == "x" else np.array(1 / len(TAKEN)) for n in model.inputs}
    H = oj.hessian(model, point, wrt="x")
    np.testing.assert_allclose(H.toarray(), np.diag(6 * AT))
    np.testing.assert_allclose(H.gradient["x"], 3 * AT**2)
    np.testing.assert_allclose(H["x", "x"] @ AT, 6 * AT**2)
    for mode, right in RIGHT.items():
        proto = oj.export(model, mode, point, wrt="x")
        seeds = {"jvp": [np.ones(3)], "hvp": [np.ones(3)], "vjp": [np.ones(())]}.get(mode, [])
        names, given = [v.name for v in proto.graph.input], [*point.values(), *seeds]
        found = run(proto, dict(zip(names, given, strict=True)))
        assert len(found) == 2 + (mode == "hvp")
        np.testing.assert_allclose([*found.values()][-1], right)


def test_blocks_whose_names_are_alike_are_two():
    model = oj.load(onnx.parser.parse_model(HEAD + """(double b_c, double c)
        => (double a, double a_b) { a = Mul(b_c, c) a_b = Sub(c, a) }"""))  # fmt: skip
    point = {"b_c": np.array(2.0), "c": np.array(5.0)}
    found = run(oj.export(model, "jacobian", point), point)
    assert [float(x) for x in [*found.values()][2:]] == [5, 2, -5, -1]


@pytest.mark.parametrize("order", list(permutations("xwu")))
def test_blocks_follow_the_order_of_wrt(order):
    """Also where one of them is a block per sample."""
    model = oj.load(onnx.parser.parse_model(HEAD + """(double[n,2] x, double[2,2] w, double[n,2] u)
        => (double[n,2] y, double l) { h = MatMul(x, w) y = Mul(h, u) l = ReduceSum<keepdims=0>(y) }
        """))  # fmt: skip
    point = {name: np.ones((3 - (name == "w"), 2)) for name in order}
    names = [v.name for v in oj.export(model, "jacobian", point, wrt=order).graph.output]
    assert names == ["y", "l", *(f"{o}_{w}_jacobian" for o in "yl" for w in order)]


OPTIONAL = """(double[3] x, double[3] w = {1, 2, 3}, int64[1] k = {0}) => (double y)
    { h = Mul(x, w) s = ReduceSum(h, k) y = ReduceSumSquare<keepdims=0>(s) }"""


@pytest.mark.parametrize("mode", ["jvp", "vjp", "grad", "hvp", "jacobian"])
def test_an_initializer_that_is_an_input_stays_one_where_it_is_given(mode):
    """Its default is the given value; left out, it is a constant, as in the model."""
    model = oj.load(onnx.parser.parse_model(HEAD + OPTIONAL))
    fixed = oj.export(model, mode, {"x": AT}, wrt="x")
    assert "w" not in {v.name for v in fixed.graph.input}
    given, other = np.array([4.0, 5, 6]), np.array([1.0, 0, -1])
    proto = oj.export(model, mode, {"x": AT, "w": given}, wrt="x")
    assert "w" in {v.name for v in proto.graph.input}
    seeds, names = {"x_tangent": np.ones(3), "y_cotangent": np.ones(())}, proto.graph.input
    feeds = {"x": AT} | {v.name: seeds[v.name] for v in names if v.name in seeds}
    for w in (given, other):
        H = 2 * np.outer(w, w)
        right = {"jvp": (H @ AT).sum(), "hvp": H.sum(0)}.get(mode, H @ AT)
        told = {} if w is given else {"w": w}
        np.testing.assert_allclose([*run(proto, feeds | told).values()][-1], right)


def test_lower_gradients_keeps_inputs_that_may_be_left_out():
    """An integer that decides the graph is none any more, which is said."""
    node = 'd = ai.onnx.preview.training.Gradient<xs=["x"], zs=["w", "k"], y="y">(x, w, k) }'
    text = OPTIONAL.replace("(double y)", "(double y, double[3] d)").removesuffix("}") + node
    head = HEAD.replace("21]", '21, "ai.onnx.preview.training": 1]')
    with pytest.warns(oj.OnnxJacWarning, match="no input any more, as the graph depends .*: k"):
        lowered = oj.lower_gradients(onnx.parser.parse_model(head + text))
    assert [v.name for v in lowered.graph.input] == ["x", "w"]
    for w in (np.array([1.0, 2, 3]), np.array([1.0, 0, -1])):
        found = run(lowered, {"x": AT} | ({} if w[1] else {"w": w}))
        np.testing.assert_allclose(found["d"], 2 * np.outer(w, w) @ AT)


@pytest.mark.parametrize("mode", ["jvp", "vjp", "grad", "hvp", "jacobian"])
def test_weights_keep_their_names(mode):
    """So that `wrt` of the next step is that of this one."""
    proto = onnx.parser.parse_model(HEAD + """(double[3] x) => (double y) <double[3] w = {1, 2, 3}>
        { h = Mul(x, w) k = Mul(h, h) y = ReduceSum<keepdims=0>(k) }""")  # fmt: skip
    proto.graph.initializer[0].name = name = "n.0.weight"
    proto.graph.node[0].input[1] = name
    proto.graph.input[0].name = proto.graph.node[0].input[0] = "input.1"
    made = oj.load(oj.export(oj.load(proto), mode, {"input.1": AT}, of="y", wrt=name))
    assert name in made.initializers
    assert "input_1" in made.inputs
    point = {n: AT if n == "input_1" else np.ones(s.shape) for n, s in made.inputs.items()}
    J = oj.linearize(made, point, of="y", wrt=name)
    np.testing.assert_allclose(J.toarray()[0], 2 * AT**2 * [1, 2, 3])


@pytest.mark.parametrize("mode", ["jvp", "vjp", "jacobian"])
def test_a_weight_that_is_an_output_gives_way_to_it(mode):
    """A graph has one definition of each name."""
    graph = "(double[3] x) => (double[2] w) <double[2] w = {1, 2}> {}"
    proto = onnx.parser.parse_model(HEAD + graph)
    made = oj.export(oj.load(proto), mode, {"x": AT}, of="w", wrt="x")
    point = {v.name: np.ones([d.dim_value for d in v.type.tensor_type.shape.dim])
             for v in made.graph.input}  # fmt: skip
    found = run(made, point)
    np.testing.assert_array_equal(found.pop("w"), [1, 2])
    assert not any(y.any() for y in found.values())
