"""`compare`: a model and its twin, against matrices by hand, optimised and quantised twins."""

import json

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

import onnxjac as oj
from house import ROOT
from onnxjac.__main__ import main
from onnxjac.modes.comparison.slopes import difference_of, worst_of
from show.markup import Markup
from show.running import DIGITS, SAMPLES

RNG = np.random.default_rng(0)
W, V = RNG.standard_normal((5, 7)), RNG.standard_normal((7, 3))
X = RNG.standard_normal((6, 5))


def proto(body, signature, opset='"": 21', **weights):
    made = parser.parse_model(
        f"<ir_version: 10, opset_import: [{opset}]> g {signature} {{ {body} }}"
    )
    made.graph.initializer.extend(
        numpy_helper.from_array(np.asarray(a), n) for n, a in weights.items()
    )
    return made


SIGNATURE = "(double[n,5] x) => (double[n,3] y)"


def mlp(W=W, V=V, names="xhay", signature=None):
    x, h, a, y = names
    body = f"{h} = MatMul({x}, W) {a} = Tanh({h}) {y} = MatMul({a}, V)"
    signature = signature or f"(double[n,5] {x}) => (double[n,3] {y})"
    return oj.load(proto(body, signature, W=W, V=V))


def slopes(x, W, V):
    """∂y/∂x of one sample."""
    return ((W * (1 - np.tanh(x @ W) ** 2)) @ V).T


@pytest.mark.parametrize("batch_size", [None, 2])
def test_norm_and_direction_agree_with_the_matrices(batch_size):
    other = W + 0.1 * RNG.standard_normal(W.shape)
    found = oj.compare(mlp(), mlp(other), {"x": X}, batch_size=batch_size)
    apart = [slopes(x, W, V) - slopes(x, other, V) for x in X]
    row, sizes = found.outputs[0], [np.linalg.norm(D, 2) for D in apart]
    if batch_size is None:
        k, norm = int(np.argmax(sizes)), max(np.linalg.norm(slopes(x, W, V), 2) for x in X)
        assert row.sigma == pytest.approx(max(sizes), rel=1e-6)
        assert row.norm == pytest.approx(norm, rel=1e-2)
        _, _, Vt = np.linalg.svd(apart[k])
        assert abs(row.direction["x"][k] @ Vt[0]) == pytest.approx(1, abs=1e-6)
        assert abs(np.linalg.norm(row.response[k]) - 1) < 1e-6
    else:
        parts = [max(np.linalg.norm(D, 2) for D in apart[b : b + 2])
                 / max(np.linalg.norm(slopes(x, W, V), 2) for x in X[b : b + 2])
                 for b in (0, 2, 4)]  # fmt: skip
        assert row.batch == int(np.argmax(parts))
        assert row.slopes == pytest.approx(max(parts), rel=1e-2)
    assert (found.verdict, bool(found)) == ("wrong", False)
    y, z = np.tanh(X @ W) @ V, np.tanh(X @ other) @ V
    if batch_size is None:
        assert row.values == pytest.approx(np.linalg.norm(y - z) / np.linalg.norm(y))
    assert row.largest == pytest.approx(abs(y - z).max())


def test_layers_show_where_a_difference_begins():
    found = oj.compare(mlp(), mlp(V=1.001 * V), {"x": X})
    assert [row.pair.a for row in found.layers] == ["h", "a"]
    assert [(row.values, row.slopes) for row in found.layers] == [(0, 0), (0, 0)]
    assert found.outputs[0].slopes == pytest.approx(1e-3, rel=1e-2)
    assert found.verdict == "wrong"
    assert oj.compare(mlp(), mlp(V=1.001 * V), {"x": X}, rtol=2e-3)


def test_a_slope_may_differ_where_values_do_not():
    """Beside x = 0 in values of order 1, x is small and 3 x has three times its slope."""
    a = oj.load(proto("o = Add(x, one) y = Identity(o)", "(double[2] x) => (double[2] y)", one=1.0))
    steep = proto("t = Mul(x, c) y = Add(t, one)", "(double[2] x) => (double[2] y)", one=1.0, c=3.0)
    b = oj.load(steep)
    found = oj.compare(a, b, {"x": np.full(2, 1e-9)})
    assert [o.verdict for o in found.check.outcomes] == ["right", "wrong"]
    assert found.outputs[0].slopes == pytest.approx(2)


def test_names_that_differ_are_matched():
    found = oj.compare(mlp(), mlp(names="uvwz"), {"x": X})
    assert found.verdict == "right"
    assert [tuple(pair) for pair in found.inputs] == [("x", "u", "position")]
    assert tuple(found.outputs[0].pair) == ("y", "z", "value")
    assert [tuple(r.pair) for r in found.layers] == [("h", "v", "value"), ("a", "w", "value")]
    assert "x → u" in str(found)


def test_outputs_in_another_order_are_matched_by_value():
    graph = "(double[4] x) => (double[4] {}, double[4] {})"
    a = oj.load(proto("p = Sin(x) q = Exp(x)", graph.format("p", "q")))
    b = oj.load(proto("r = Exp(x) s = Sin(x)", graph.format("r", "s")))
    found = oj.compare(a, b, {"x": np.arange(4.0)})
    assert [tuple(row.pair)[:2] for row in found.outputs] == [("p", "s"), ("q", "r")]
    assert found


def test_torch_runs_both():
    pytest.importorskip("torch")
    found = oj.compare(mlp(), mlp(names="uvwz"), {"x": X}, engine="torch")
    assert found.verdict == "right"
    assert [tuple(r.pair)[:2] for r in found.layers] == [("h", "v"), ("a", "w")]
    assert found.outputs[0].norm == pytest.approx(
        oj.compare(mlp(), mlp(), {"x": X}).outputs[0].norm
    )


def test_numbered_names_that_shift_are_matched_by_value():
    """The same numbers in another file name other tensors of the same shape."""
    a = oj.load(proto("t1 = Sin(x) t2 = Exp(t1) y = Neg(t2)", "(double[9] x) => (double[9] y)"))
    b = oj.load(proto("t2 = Sin(x) t3 = Exp(t2) y = Neg(t3)", "(double[9] x) => (double[9] y)"))
    found = oj.compare(a, b, {"x": RNG.standard_normal(9)})
    assert [tuple(r.pair)[:2] for r in found.layers] == [("t1", "t2"), ("t2", "t3")]


def test_whole_numbers_are_compared_without_slopes():
    graph = "(double[3] x) => (double[3] y, int64 k)"
    body = "y = Mul(x, c) k = ArgMax<axis=0, keepdims=0>(y)"
    a, b = (oj.load(proto(body, graph, c=c)) for c in ([1.0, 1, 1], [1.0, 1, 3]))
    found = oj.compare(a, b, {"x": [1.0, 3.0, 2.0]})
    assert [row.pair.a for row in found.outputs] == ["y", "k"]
    assert found.outputs[1].values == 1
    assert len(found.check.outcomes) == 3


def test_compare_leaves_out_outputs_of_one_model():
    a = oj.load(proto("y = Sin(x) z = ReduceSum<keepdims=0>(x)",
                      "(double[3] x) => (double[3] y, double z)"))  # fmt: skip
    b = oj.load(proto("y = Sin(x)", "(double[3] x) => (double[3] y)"))
    found = oj.compare(a, b, {"x": np.ones(3)})
    assert (found.verdict, found.alone) == ("not compared", ("z",))
    assert oj.compare(a, b, {"x": np.ones(3)}, of="y").verdict == "right"
    with pytest.raises(oj.InputError, match="no tensor of"):
        oj.compare(a, b, {"x": np.ones(3)}, of="z")


def test_tokens_are_compared_by_their_vectors():
    table = RNG.standard_normal((11, 4))
    graph = "(int64[n,t] ids) => (double[n,t,4] y)"
    a, b = (oj.load(proto(f"e{k} = Gather(table, ids) y = Sin(e{k})", graph, table=table))
            for k in "ab")  # fmt: skip
    found = oj.compare(a, b, {"ids": np.array([[1, 4, 9]])})
    assert [tuple(pair) for pair in found.wrt] == [("ea", "eb", "value")]
    assert found.outputs[0].norm == pytest.approx(abs(np.cos(table[[1, 4, 9]])).max(), rel=1e-2)


@pytest.mark.parametrize("also", ["", "more = DequantizeLinear(rows, s, o)"])
def test_vectors_that_are_added_while_quantised(also):
    """They have no twin, or one from which nothing follows; the tensor after them has one."""
    table = RNG.integers(-9, 9, (7, 3))
    plain = proto("words = Gather(table, ids) h = Add(words, words) y = Tanh(h)",
                  "(int64[N,2] ids) => (float[N,2,3] y)", table=np.float32(table / 8))
    other = proto(f"""rows = Gather(table, ids) {also}
        sum = com.microsoft.QLinearAdd(rows, s, o, rows, s, o, t, o)
        h = DequantizeLinear(sum, t, o) y = Tanh(h)""", "(int64[N,2] ids) => (float[N,2,3] y)",
        '"": 21, "com.microsoft": 1', table=np.int8(table), s=np.float32(1 / 8),
        t=np.float32(1 / 4), o=np.int8(0))  # fmt: skip
    found = oj.compare(plain, other, {"ids": RNG.integers(0, 7, (4, 2))})
    assert found.verdict == "right"
    assert [(p.a, p.b) for p in found.wrt] == [("h", "h")]


def test_slopes_by_weights_and_by_layers():
    other = V + 0.1
    found = oj.compare(mlp(), mlp(V=other), {"x": X}, wrt="W", layers=0)
    a = 1 - np.tanh(X @ W) ** 2
    J, K = (np.concatenate([np.einsum("i,h,hy->yih", x, s, B).reshape(3, -1)
                            for x, s in zip(X, a, strict=True)]) for B in (V, other))  # fmt: skip
    assert found.outputs[0].sigma == pytest.approx(np.linalg.norm(J - K, 2), rel=1e-6)
    found = oj.compare(mlp(), mlp(V=other, names="uvwz"), {"x": X}, wrt="a", layers=0)
    assert [tuple(pair) for pair in found.wrt] == [("a", "w", "value")]
    assert found.outputs[0].sigma == pytest.approx(np.linalg.norm(V - other, 2), rel=1e-6)
    renamed = oj.load(proto("z = Neg(x) y = Neg(z)", "(double[5] x) => (double[5] y)"))
    plain = oj.load(proto("y = Mul(x, c)", "(double[5] x) => (double[5] y)", c=1.0))
    with pytest.raises(oj.InputError, match="no twin"):
        oj.compare(plain, renamed, {"x": X[0]}, wrt="c")


def test_a_long_difference_by_lanczos():
    A, B = RNG.standard_normal((2, 90, 70))
    found = worst_of(difference_of(oj.asoperator(A), oj.asoperator(B)))
    U, values, Vt = np.linalg.svd(A - B)
    assert found.sigma == pytest.approx(values[0], rel=1e-4)
    assert abs(found.v @ Vt[0]) > 0.99
    assert abs(found.u @ U[:, 0]) > 0.99


def test_infinite_slopes_differ():
    a = oj.load(proto("y = Sqrt(x)", "(double[3] x) => (double[3] y)"))
    b = oj.load(proto("h = Abs(x) y = Sqrt(h)", "(double[3] x) => (double[3] y)"))
    with np.errstate(all="ignore"):
        found = oj.compare(a, b, {"x": np.zeros(3)}, layers=0)
    assert found.verdict == "wrong"


# -- twins that other tools made -------------------------------------------------------------------


@pytest.fixture(scope="module")
def twins(tmp_path_factory):
    """The digits network, optimised by ONNX Runtime, in half precision, and in 8 bits."""
    runtime = pytest.importorskip("onnxruntime")
    folder = tmp_path_factory.mktemp("twins")
    options = runtime.SessionOptions()
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(folder / "optimised.onnx")
    options.log_severity_level = 4
    runtime.InferenceSession(DIGITS, options, providers=["CPUExecutionProvider"])
    model = onnx.load(DIGITS)
    for tensor in model.graph.initializer:  # weights of 8 bits, as QDQ
        array = numpy_helper.to_array(tensor)
        if array.dtype == np.float32 and array.ndim > 1:
            step = abs(array).max() / 127
            tensor.CopyFrom(numpy_helper.from_array(np.rint(array / step) * step, tensor.name))
    onnx.save(model, folder / "weights8.onnx")
    input_ = model.graph.input[0].name
    for node in model.graph.node:
        node.input[:] = ["quantised" if name == input_ else name for name in node.input]
    scale, zero = np.float32(1 / 16), np.uint8(0)
    model.graph.initializer.extend([numpy_helper.from_array(scale, "scale"),
                                    numpy_helper.from_array(zero, "zero")])  # fmt: skip
    make, levels = onnx.helper.make_node, ["levels", "scale", "zero"]
    steps = [make("QuantizeLinear", [input_, *levels[1:]], ["levels"]),
             make("DequantizeLinear", levels, ["quantised"])]  # fmt: skip
    nodes = [*steps, *model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    onnx.save(model, folder / "int8.onnx")
    return folder


def test_an_optimised_twin_is_equal(twins):
    data = dict(np.load(SAMPLES))
    found = oj.compare(oj.load(DIGITS), oj.load(str(twins / "optimised.onnx")), data, batch_size=5)
    assert found.verdict == "right"
    assert found.outputs[0].values < 1e-5
    assert found.outputs[0].agree == 1
    assert {row.pair.a for row in found.layers} >= {"relu", "tanh"}
    assert all(row.slopes < 1e-4 for row in found.layers)


@pytest.mark.filterwarnings("ignore:.*does not depend differentiably")
def test_steps_have_no_slopes_unless_these_are_estimated(twins):
    data, model, twin = dict(np.load(SAMPLES)), oj.load(DIGITS), oj.load(str(twins / "int8.onnx"))
    found = oj.compare(model, twin, data, rtol=0.1)
    assert found.verdict == "not compared"
    assert "QuantizeLinear" in str(found)
    found = oj.compare(model, twin, data, rtol=0.1, straight_through=True)
    assert found.verdict == "right"
    assert 1e-4 < found.outputs[0].slopes < 0.1


# -- the command -----------------------------------------------------------------------------------


def test_the_exit_status_tells_right_from_wrong(twins, capsys, tmp_path):
    given = ("--input", SAMPLES, "--layers", "0", "--json")
    optimised, rounded, steps = (str(twins / f"{name}.onnx")
                                 for name in ("optimised", "weights8", "int8"))  # fmt: skip
    assert main(["compare", DIGITS, optimised, *given]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["verdict"], found["ok"]) == ("right", True)
    assert main(["compare", DIGITS, rounded, *given, "--batch-size", "5"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["verdict"], found["batches"]) == ("wrong", 2)
    assert found["outputs"][0]["slopes"] > found["rtol"]
    assert main(["compare", DIGITS, rounded, *given, "--rtol", "0.1"]) == 0
    assert main(["compare", DIGITS, steps, *given, "--rtol", "0.1"]) == 3
    capsys.readouterr()
    for tolerance, hint in (((), True), (("--rtol", "1e-4"), False)):
        assert main(["compare", DIGITS, steps, *given[:-1], *tolerance]) == 1
        assert ("quantised numbers have few digits" in capsys.readouterr().out) == hint
    assert main(["compare", DIGITS, str(tmp_path / "nowhere.onnx"), *given]) == 1
    with pytest.raises(SystemExit) as usage:
        main(["compare", DIGITS, rounded, "--rtol", "-1"])
    assert usage.value.code == 2


def test_the_page_needs_no_other_file(twins, capsys, tmp_path):
    target = tmp_path / "compare.html"
    rounded = str(twins / "weights8.onnx")
    assert main(["compare", DIGITS, rounded, "--input", SAMPLES, "--html", str(target)]) == 1
    found = Markup(target.read_text("utf-8"))
    assert not found.elements & {"script", "link"}
    addresses = [value for key, value in found.attributes if key in ("src", "href")]
    assert addresses
    assert all(address.startswith("data:image/png") for address in addresses)
    for text in ("weights8.onnx", "Where logits differs most", "tanh", "slopes"):
        assert text in found.text
    assert "v for image" in found.text
    assert str(ROOT) not in target.read_text("utf-8")


def test_a_notebook_shows_tests_and_table():
    shown = oj.compare(mlp(), mlp(), {"x": X})._repr_html_()
    assert "all 2 tests passed" in shown
    assert "‖J_a − J_b‖" in shown


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rtol": -1}, "rtol=-1"),
        ({"wrt": "z"}, "'z'"),
        ({"of": "q"}, "'q'"),
        ({"layers": -1}, "layers=-1"),
    ],
)
def test_bad_calls_are_refused(options, message):
    with pytest.raises(oj.OnnxJacError) as error:
        oj.compare(mlp(), mlp(), {"x": X}, **options)
    assert message in str(error.value)
    with pytest.raises(oj.InputError, match="no batches"):
        oj.compare(mlp(), mlp(), [])
