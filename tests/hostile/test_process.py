"""What ended the process, or did not end at all: each is tried in a process of its own."""

import multiprocessing
import os

import numpy as np
import pytest
from onnx import parser

import onnxjac as oj

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system does not fork")

SECONDS = 60


def apart(work):
    """What a function gives, or the `OnnxJacError` that it raises, within a minute."""
    ours, theirs = multiprocessing.get_context("fork").Pipe()

    def tell():
        try:
            theirs.send(work())
        except oj.OnnxJacError as error:
            theirs.send(error)

    process = multiprocessing.get_context("fork").Process(target=tell)
    process.start()
    theirs.close()
    try:
        assert ours.poll(SECONDS), "it hangs"
        return ours.recv()
    except EOFError:
        process.join()
        pytest.fail(f"the process ended with status {process.exitcode}")
    finally:
        process.kill()
        process.join()


def text(graph, opset=21):
    return parser.parse_model(f'<ir_version: 10, opset_import: ["": {opset}]> {graph}')


LEAST = {kind: np.iinfo(kind).min for kind in ("int8", "int16", "int32", "int64")}

DIVISIONS = {
    "inputs": "g ({0}[3] a, {0}[3] b) => ({0}[3] y) {{ y = Div(a, b) }}",
    "constant": "g ({0}[3] a) => ({0}[3] y) <{0}[3] b = {{-1, 3, -1}}> {{ y = Div(a, b) }}",
    "folded": "g () => ({0}[3] y) <{0}[3] a = {{{1}, 7, -8}}, {0}[3] b = {{-1, 3, -1}}>"
              "{{ y = Div(a, b) }}",
    "node": "g ({0}[3] a) => ({0}[3] y) {{ b = Constant<value = {0}[3] {{-1, 3, -1}}>()"
            "y = Div(a, b) }}",
    "loop": """g ({0}[3] a, {0}[3] b) => ({0}[3] y) <int64 n = {{1}}, bool c = {{1}}> {{
        y = Loop(n, c, a) <body = body (int64 i, bool go, {0}[3] s) => (bool on, {0}[3] t) {{
            on = Identity(go) t = Div(s, b) }}> }}""",
    "function": """g ({0}[3] a, {0}[3] b) => ({0}[3] y) {{ y = own.part(a, b) }}
        <opset_import: ["": 21], domain: "own"> part (p, q) => (r) {{ r = Div(p, q) }}""",
}  # fmt: skip


@pytest.mark.parametrize("engine", [None, "onnxruntime", "numpy"])
@pytest.mark.parametrize("kind", LEAST)
@pytest.mark.parametrize("where", DIVISIONS)
def test_the_least_integer_divided_by_minus_one(where, kind, engine):
    model = text(DIVISIONS[where].format(kind, LEAST[kind]))
    if where == "function":
        model.opset_import.add(domain="own", version=1)
    point = {"a": np.array([LEAST[kind], 7, -8], kind), "b": np.array([-1, 3, -1], kind)}
    point = {value.name: point[value.name] for value in model.graph.input}
    y = apart(lambda: oj.load(model).run(point, engine=engine)["y"])
    assert y.dtype == kind
    assert y.tolist() == [LEAST[kind], 2, 8]


def test_a_division_beside_a_derivative():
    """The Jacobian and its compiled product have sessions of their own."""
    model = text("""g (float[3] x, int64[3] a, int64[3] b) => (float[3] y) {
        q = Div(a, b) f = Cast<to = 1>(q) y = Mul(x, f) }""")
    point = {"a": np.array([-(2**63), 7, -8]), "b": np.array([-1, 3, -1])}
    point["x"] = np.ones(3, np.float32)

    def work():
        J = oj.linearize(oj.load(model), point, wrt=["x"])
        return J.toarray(), J.relinearize(point).compile("onnxruntime") @ np.ones(3, np.float32)

    dense, product = apart(work)
    np.testing.assert_array_equal(np.diag(dense), np.float32([-2.0**63, 2, 8]))
    np.testing.assert_array_equal(product, np.float32([-2.0**63, 2, 8]))


@pytest.mark.parametrize("like", ["", "Like"])
@pytest.mark.parametrize(("draw", "match"), [
    ("RandomUniform{}<low = 2.0{}>", "low=2 and high=1"),
    ("RandomUniform{}<high = -1.0{}>", "low=0 and high=-1"),
    ("RandomNormal{}<scale = -1.0{}>", "scale=-1"),
    ("RandomNormal{}<scale = 0.0{}>", "scale=0"),
])  # fmt: skip
@pytest.mark.parametrize("where", ["graph", "branch"])
def test_a_draw_without_a_range(draw, match, like, where):
    made = draw.format(like, "" if like else ", shape = [3]") + ("(x)" if like else "()")
    body = f"y = {made}"
    if where == "branch":
        body = f"""c = Constant<value = bool {{1}}>() y = If(c) <
            then_branch = p () => (float[3] t) {{ t = {made} }},
            else_branch = q () => (float[3] e) {{ e = Neg(x) }}>"""
    model = text(f"g (float[3] x) => (float[3] y) {{ {body} }}")
    x = np.ones(3, np.float32)
    error = apart(lambda: oj.load(model).run({"x": x}, engine="onnxruntime"))
    assert isinstance(error, oj.LoadError)
    assert match in str(error)


@pytest.mark.parametrize("number", ["low", "high", "scale"])
def test_a_draw_of_a_range_that_is_no_number(number):
    operator = "RandomNormal" if number == "scale" else "RandomUniform"
    model = text(f"g () => (float[3] y) {{ y = {operator}<{number} = 1.0, shape = [3]>() }}")
    attribute = next(a for a in model.graph.node[0].attribute if a.name == number)
    attribute.f = np.nan
    assert isinstance(apart(lambda: oj.load(model).run({})), oj.LoadError)
