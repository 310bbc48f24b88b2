"""Exported matrices, sparse entries, several tangents, several points, several modes: each equals
the operator, in ONNX Runtime and onnx.reference, at other sizes and in other branches.
"""

import json

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx.reference import ReferenceEvaluator
from scipy.sparse import coo_array

import onnxjac as oj

from .test_export import run

HEAD = '<ir_version: 10, opset_import: ["": 21]> g '

FIT = """(double[batch, 4] x, double[batch, 2] t) => (double loss)
<double[4, 2] W = {0.1, 0.2, -0.3, 0.4, 0.5, -0.6, 0.7, 0.8}>
{ z = MatMul(x, W)  y = Tanh(z)  e = Sub(y, t)  s = Mul(e, e)  loss = ReduceMean<keepdims = 0>(s) }
"""

BRANCH = """(double[n] x, bool go) => (double y)
{ h = If (go) <
    then_branch = then () => (double[n] a) { p = Mul(x, x)  a = Mul(p, x) },
    else_branch = other () => (double[n] b) { b = Sin(x) }
  >
  s = Mul(h, h)  y = ReduceSum<keepdims = 0>(s) }
"""

TURNS = """(double[n] x, int64 count) => (double y) <bool yes = {1}>
{ h = Loop (count, yes, x) <
    body = turn (int64 i, bool before, double[n] state) => (bool after, double[n] fresh)
    { after = Identity(before)  q = Mul(state, x)  fresh = Sin(q) }
  >
  y = ReduceSumSquare<keepdims = 0>(h) }
"""

STENCIL = """(double[6] u, bool go) => (double[6] r)
<double[6, 6] L = {-2, 1, 0, 0, 0, 0, 1, -2, 1, 0, 0, 0, 0, 1, -2, 1, 0, 0,
                   0, 0, 1, -2, 1, 0, 0, 0, 0, 1, -2, 1, 0, 0, 0, 0, 1, -2}>
{ d = MatMul(L, u)  e = If (go) <
    then_branch = then () => (double[6] a) { a = Mul(u, u) },
    else_branch = other () => (double[6] b) { k = ReduceSum<keepdims = 1>(u)  b = Mul(k, u) }
  >
  w = Exp(u)  f = Mul(u, w)  r = Sum(d, e, f) }
"""

GATHERED = """(double[5] x, int64[3] which) => (double[3] y)
{ p = Gather(x, which)  y = Mul(p, p) }
"""

SCALARS = {"batch": FIT, "if": BRANCH, "loop": TURNS}


def load(text):
    return oj.load(onnx.parser.parse_model(HEAD + text))


def points(case, size):
    """Points of a size, in each branch and for several turns."""
    rng = np.random.default_rng(size)
    x = rng.standard_normal(size)
    if case == "batch":
        return [{"x": rng.standard_normal((size, 4)), "t": rng.standard_normal((size, 2))}]
    if case == "if":
        return [{"x": x, "go": np.array(go)} for go in (True, False)]
    return [{"x": x, "count": np.array(count)} for count in (1, 3)]


def everywhere(proto, feeds):
    """The outputs in ONNX Runtime, and in onnx.reference where it can: it scans forwards alone."""
    found = run(proto, feeds)
    try:
        others = ReferenceEvaluator(proto).run(None, feeds)
    except RuntimeError as error:
        assert "Scan is not implemented" in str(error)  # noqa: PT017 - else the values are compared
        return found
    for value, other in zip(found.values(), others, strict=True):
        np.testing.assert_allclose(other, value, rtol=1e-6, atol=1e-9)
    return found


def wrt_of(case):
    return ["W", "x"] if case == "batch" else ["x"]


@pytest.mark.parametrize("case", SCALARS)
def test_the_dense_hessian_is_the_operator(case):
    model, wrt = load(SCALARS[case]), wrt_of(case)
    (of,) = model.outputs
    proto = oj.export(model, "hessian", points(case, 3)[0], wrt=wrt)
    for point in (*points(case, 3), *points(case, 5)):
        H = oj.hessian(model, point, wrt=wrt).toarray()
        found = everywhere(proto, point)
        np.testing.assert_allclose(found[f"{of}_hessian"], H, atol=1e-10)
        assert [*found] == [of, f"{of}_hessian"]


@pytest.mark.parametrize("count", [None, 3, "K"])
@pytest.mark.parametrize("case", SCALARS)
def test_products_with_several_tangents_agree_with_each(case, count):
    model, wrt, rng = load(SCALARS[case]), wrt_of(case), np.random.default_rng(0)
    at = {"batch": "y", "if": "h", "loop": "h"}[case]
    protos = {mode: oj.export(model, mode, points(case, 3)[0], wrt=wrt, tangents=count,
                              at=at if mode == "gauss_newton" else None)
              for mode in ("jvp", "vjp", "hvp", "gauss_newton")}  # fmt: skip
    for point in (*points(case, 3), *points(case, 5)):
        J, H = oj.linearize(model, point, wrt=wrt), oj.hessian(model, point, wrt=wrt)
        G = oj.gauss_newton(model, point, at=at, wrt=wrt)
        for mode, A in {"jvp": J, "vjp": J.T, "hvp": H, "gauss_newton": G}.items():
            kind = "cotangent" if mode == "vjp" else "tangent"
            ends = J.codomain if mode == "vjp" else J.domain
            results = J.codomain if mode == "jvp" else J.domain
            lead = () if count is None else (3 if count == 3 else len(point["x"]),)
            seeds = {s.name: rng.standard_normal((*lead, *s.shape)) for s in ends}
            found = everywhere(protos[mode], point | {f"{n}_{kind}": v for n, v in seeds.items()})
            rows = np.concatenate([v.reshape(*(lead or (1,)), -1) for v in seeds.values()], 1)
            name = {"jvp": "tangent", "vjp": "cotangent"}.get(mode, mode)
            got = [found[f"{s.name}_{name}"] for s in results]
            assert all(y.shape == (*lead, *s.shape) for y, s in zip(got, results, strict=True))
            got = np.concatenate([y.reshape(*(lead or (1,)), -1) for y in got], 1)
            np.testing.assert_allclose(got, (A @ rows.T).T, atol=1e-9)


@pytest.mark.parametrize(("text", "others", "most"), [
    (STENCIL, [{"go": np.array(True)}, {"go": np.array(False)}], 36),
    (GATHERED, [{"which": np.array(w)} for w in ([0, 2, 4], [1, 1, 3])], 15),
])  # fmt: skip
def test_sparse_entries_are_right_in_every_branch(text, others, most):
    model, rng = load(text), np.random.default_rng(0)
    (x, *_), (y,) = model.inputs, model.outputs
    first = {x: rng.random(len_of(model, x)), **others[0]}
    proto = oj.export(model, "sparse_jacobian", first, wrt=x)
    for other in others:
        point = {x: rng.random(len_of(model, x)), **other}
        J = oj.linearize(model, point, wrt=x)
        A = matrix(proto, everywhere(proto, point))
        np.testing.assert_allclose(A.toarray(), J.toarray(), atol=1e-12)
        assert A.nnz == most
    assert y in {value.name for value in proto.graph.output}


def len_of(model, name):
    return model.inputs[name].shape[0]


def matrix(proto, found):
    """The sparse matrix of the outputs, whose places are those of the metadata."""
    (entry,) = [e for e in proto.metadata_props if e.key == "onnxjac.sparse"]
    said = json.loads(entry.value)
    rows, columns = found["jacobian_rows"], found["jacobian_columns"]
    assert rows.dtype == columns.dtype == np.int32
    np.testing.assert_array_equal([rows, columns], [said["rows"], said["columns"]])
    return coo_array((found["jacobian_values"], (rows, columns)), said["shape"])


def test_sparse_entries_of_a_stencil_leave_out_the_zeros_of_constants():
    text = STENCIL.replace("k = ReduceSum<keepdims = 1>(u)  b = Mul(k, u)", "b = Sin(u)")
    text = text[: text.index("{ d = ")] + "{ d = MatMul(L, u)  e = Mul(u, u)  r = Add(d, e) }"
    model, rng = load(text.replace(", bool go", "")), np.random.default_rng(0)
    proto = oj.export(model, "sparse_jacobian", {"u": np.ones(6)})
    point = {"u": rng.random(6)}
    A, J = matrix(proto, everywhere(proto, point)), oj.linearize(model, point)
    assert A.nnz == J.tosparse().nnz == 16
    np.testing.assert_allclose(A.toarray(), J.toarray())
    ops = [node.op_type for node in proto.graph.node]
    assert ops.count("MatMul") + ops.count("Einsum") == 2  # the model's, and one for all colours


def test_sparse_entries_of_samples_apart_fix_the_batch_with_a_warning():
    model = load("(double[batch, 3] x) => (double[batch, 3] y) { s = Sin(x) y = Mul(s, x) }")
    with pytest.warns(oj.OnnxJacWarning, match="'batch' of 'x' is fixed at 2"):
        proto = oj.export(model, "sparse_jacobian", {"x": np.ones((2, 3))})
    point = {"x": np.arange(6.0).reshape(2, 3)}
    A = matrix(proto, everywhere(proto, point))
    assert A.nnz == 6
    np.testing.assert_allclose(A.toarray(), oj.linearize(model, point).toarray())


def test_a_sparse_jacobian_of_no_entries_is_exported():
    model = load("(double[3] x) => (double[3] y) { s = Floor(x) y = Add(s, s) }")
    with pytest.warns(oj.OnnxJacWarning, match="does not depend differentiably on 'x'"):
        proto = oj.export(model, "sparse_jacobian", {"x": np.ones(3)})
    assert everywhere(proto, {"x": np.ones(3)})["jacobian_values"].shape == (0,)


POINTS = """(double[n] x, double[n] p) => (double[n] y, double[n] z)
{ q = Exp(p)  s = Sin(x)  y = Mul(s, q)  z = Mul(q, q) }"""


@pytest.mark.parametrize("mode", ["value", "jvp", "vjp", "jacobian"])
def test_many_points_of_an_input_without_a_batch_axis(mode):
    model, rng = load(POINTS), np.random.default_rng(0)
    one = {"x": np.ones(3), "p": np.ones(3)}
    alone = oj.export(model, mode, one, of="y", wrt="x")
    proto = oj.export(model, mode, one, of="y", wrt="x", vmap="x")
    x, v, p = rng.standard_normal((5, 4)), rng.standard_normal((5, 4)), rng.standard_normal(4)
    feeds = {"x": x, "p": p, "x_tangent": v, "y_cotangent": v}
    feeds = {value.name: feeds[value.name] for value in proto.graph.input}
    found = everywhere(proto, feeds)
    for k in range(5):
        each = {n: a if n == "p" else a[k] for n, a in feeds.items()}
        for name, wanted in run(alone, each).items():
            np.testing.assert_allclose(found[name][k], wanted)


def test_vmap_computes_shared_tensors_once():
    one = {"x": np.ones(3), "p": np.ones(3)}
    proto = oj.export(load(POINTS), "value", one, vmap="x")
    found = everywhere(proto, {"x": np.ones((5, 3)), "p": np.ones(3)})
    assert (found["y"].shape, found["z"].shape) == ((5, 3), (3,))
    assert [node.op_type for node in proto.graph.node if node.op_type == "Exp"]


MODES = ["value", "jvp", "vjp", "hvp", "hessian"]


def test_several_modes_are_functions_of_one_file():
    model, rng = load(FIT), np.random.default_rng(0)
    proto = oj.export(model, MODES, points("batch", 3)[0], wrt="W")
    point = points("batch", 5)[0] | {"W_tangent": rng.random((4, 2)), "loss_cotangent": np.ones(())}
    found = everywhere(proto, point)
    for mode in MODES:
        alone = oj.export(model, mode, points("batch", 3)[0], wrt="W")
        for name, wanted in run(alone, {v.name: point[v.name] for v in alone.graph.input}).items():
            np.testing.assert_allclose(found.pop(name, wanted), wanted)
    assert not found
    assert [function.name for function in proto.functions] == MODES
    assert [tensor.name for tensor in proto.graph.initializer] == ["W"]
    J = oj.linearize(oj.load(proto), point, of="loss", wrt="W")
    np.testing.assert_allclose(J.toarray(), oj.linearize(model, point_of(point), wrt="W").toarray())


def point_of(point):
    return {name: point[name] for name in "xt"}


@pytest.mark.parametrize(("mode", "options", "message"), [
    ("jacobian", {"tangents": 2}, "tangents=2 goes with 'jvp'"),
    ("jvp", {"at": "y"}, "at='y' goes with mode='gauss_newton'"),
    ("gauss_newton", {"at": "loss"}, "the loss itself"),
    ("jvp", {"vmap": "nothing"}, "vmap='nothing' is no input"),
    (["jvp", "hesian"], {}, r"mode='hesian' is not one of .* Did you mean 'hessian'"),
    ([], {}, r"mode=\[\] is not one of"),
    (["jvp", "training_step"], {}, "takes the model and inputs= alone"),
])  # fmt: skip
def test_export_rejects_wrong_options(mode, options, message):
    with pytest.raises(oj.InputError, match=message):
        oj.export(load(FIT), mode, points("batch", 3)[0], wrt="W", **options)


@pytest.mark.parametrize("mode", ["hessian", "sparse_jacobian"])
def test_one_matrix_has_numbers_of_one_type(mode):
    model = load("(float[3] x, double[3] w) => (double y) { c = Cast<to = 11>(x) p = Mul(c, w) "
                 "q = Mul(p, c) y = ReduceSum<keepdims = 0>(q) }")  # fmt: skip
    point = {"x": np.ones(3, np.float32), "w": np.ones(3)}
    with pytest.raises(oj.InputError, match=r"not of .*x float32"):
        oj.export(model, mode, point)
