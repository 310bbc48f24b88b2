"""Entries and slices of tensors as names: `of="z[0,3]"`, `wrt="x[:, 1]"`."""

import numpy as np
import onnx
import pytest
from numpy.testing import assert_allclose

import onnxjac as oj
from onnxjac.__main__ import main

TEXT = """<ir_version: 10, opset_import: ["": 21]>
g (double[N,3] x) => (double[N,4] z, double f)
<double[3,4] W = {1, -2, 0.5, 1, -1, 0.3, 2, 0.1, -0.4, 1.5, -1, 0.2}>
{ h = MatMul(x, W) z = Tanh(h) q = Mul(z, z) f = ReduceSum<keepdims=0>(q) }"""
X = np.random.default_rng(0).standard_normal((5, 3))


@pytest.fixture(scope="module")
def model():
    return oj.load(onnx.parser.parse_model(TEXT))


@pytest.fixture(scope="module")
def J(model):
    """∂z/∂x as an array (5, 4, 5, 3)."""
    return oj.linearize(model, {"x": X}, of="z").toarray().reshape(5, 4, 5, 3)


INDICES = ["0,2", "-1, 2", ":, 1", "1:4", "::-2, 1:", "..., 0", "0", ":", "4:0:-3,-1", "2:100",
           "..."]  # fmt: skip


def at(text):
    return eval(f"np.s_[{text}]")


@pytest.mark.parametrize("text", INDICES)
def test_parts_of_results_are_rows(model, J, text):
    part = oj.linearize(model, {"x": X}, of=f"z[{text}]")
    rows = np.arange(20).reshape(5, 4)[at(text)].ravel()
    assert_allclose(part.toarray(), J.reshape(20, 15)[rows], atol=1e-15)
    assert part.codomain[0].name == f"z[{text}]"
    assert_allclose(part.primal[f"z[{text}]"], np.tanh(X @ model.constants["W"])[at(text)])


@pytest.mark.parametrize("text", INDICES)
def test_parts_of_inputs_are_columns(model, J, text):
    part = oj.linearize(model, {"x": X}, of="z", wrt=f"x[{text}]")
    columns = np.arange(15).reshape(5, 3)[at(text)].ravel()
    assert_allclose(part.toarray(), J.reshape(20, 15)[:, columns], atol=1e-15)
    assert_allclose(part.primal["z"], np.tanh(X @ model.constants["W"]))


def test_several_parts_and_both_sides(model, J):
    found = oj.linearize(model, {"x": X}, of=["z[0,3]", "z[:,1]", "f"],
                         wrt=["x[0]", "x[3,2]", "W[0,0]"])  # fmt: skip
    assert found.shape == (7, 5)
    assert_allclose(found["z[0,3]", "x[0]"].toarray()[0], J[0, 3, 0])
    assert_allclose(found["z[:,1]", "x[3,2]"].toarray()[:, 0], J[:, 1, 3, 2])
    z, W = np.tanh(X @ model.constants["W"]), "W[0,0]"
    slope = (2 * z * (1 - z**2))[:, 0] @ X[:, 0]
    assert_allclose(found["f", W].toarray(), [[slope]], rtol=1e-12)
    whole = oj.linearize(model, {"x": 2 * X}, of="f", wrt="W").toarray()
    assert_allclose(found.relinearize({"x": 2 * X})["f", W].toarray(), whole[:, :1])


def test_parts_of_intermediates_and_of_what_branches_read():
    model = oj.load(onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 21]>
    g (double[3] x, bool b) => (double[3] y)
    { h = Mul(x, x) y = If(b) <then_branch = t () => (double[3] u) { u = Mul(h, x) },
                               else_branch = e () => (double[3] v) { v = Identity(x) }> }"""))
    point = {"x": np.array([1.0, 2, 3]), "b": np.array(True)}
    J = oj.linearize(model, point, of="y[1:]", wrt="h[1]")
    assert_allclose(J.toarray(), [[2.0], [0]])
    J = oj.linearize(model, point, of="y", wrt="x[2]")
    assert_allclose(J.toarray(), [[0.0], [0], [27]])


def test_every_derivative_takes_them(model):
    point, whole = {"x": X}, oj.hessian(model, {"x": X}, of="f", wrt="W")
    H = whole.toarray().reshape(3, 4, 3, 4)
    assert_allclose(oj.hessian(model, point, of="f", wrt="W[1]").toarray(), H[1, :, 1])
    g = oj.grad(model, point, of="f", wrt="W")["W"]
    assert_allclose(oj.grad(model, point, of="f", wrt="W[:,2]")["W[:,2]"], g[:, 2])
    assert_allclose(oj.value_and_grad(model, of="f", wrt="W[1,1]")(point)[1]["W[1,1]"], g[1, 1])
    gradient, product = oj.hvp(model, point, {"W[1]": np.ones(4)}, of="f")
    assert_allclose(gradient["W[1]"], g[1])
    assert_allclose(product["W[1]"], H[1, :, 1].sum(1))
    _, dz = oj.jvp(model, point, {"x[0,1]": 2.0}, of="z[0,0]")
    J = oj.linearize(model, point, of="z", wrt="x").toarray().reshape(5, 4, 5, 3)
    assert_allclose(dz["z[0,0]"], 2 * J[0, 0, 0, 1])
    assert_allclose(oj.vjp(model, point, of="z[0,0]")[1](1.0)["x"], J[0, 0])
    assert_allclose(oj.grad(model, point, of="z[1,2]")["x"], J[1, 2])
    G = oj.gauss_newton(model, point, of="f", at="h", wrt="W[1]")
    assert_allclose(G.toarray(), oj.gauss_newton(model, point, of="f", at="h", wrt="W").toarray()
                    .reshape(3, 4, 3, 4)[1, :, 1], atol=1e-13)  # fmt: skip
    batches = [{"x": X[:2]}, {"x": X[2:]}]
    assert_allclose(oj.hessian(model, batches, of="f", wrt="W[1]", reduction="sum").toarray(),
                    H[1, :, 1])  # fmt: skip
    F = oj.fisher(model, point, at="z[:, :2]", wrt="W[0]", likelihood="gaussian")
    Z = oj.linearize(model, point, of="z[:, :2]", wrt="W[0]").toarray()
    assert_allclose(F.toarray(), Z.T @ Z / 5)
    made = oj.export(model, "jacobian", point, of="z[0,3]", wrt="x[0]")
    assert oj.load(made).run(point)[made.graph.output[1].name].ravel() == pytest.approx(J[0, 3, 0])


def test_solvers_take_entries_as_variables(model):
    optimize = pytest.importorskip("scipy.optimize")
    problem = oj.as_scipy(model, {"x": X}, of="f", wrt="x[0]")
    found = optimize.minimize(problem.fun, problem.x0, jac=problem.jac, method="L-BFGS-B")
    assert found.fun < problem.fun(problem.x0)
    moved = problem.unflatten(found.x)
    assert moved["x[0]"].shape == (3,)


def test_the_model_itself_stays(model):
    before = [*model.intermediates], len(model.steps)
    first = oj.linearize(model, {"x": X}, of="z[0,3]", wrt="x[0]")
    assert ([*model.intermediates], len(model.steps)) == before
    second = oj.linearize(model, {"x": X}, of="z[0,3]", wrt="x[0]")
    assert second.route is first.route


@pytest.mark.parametrize(("options", "text"), [
    ({"of": "z[0,4]"}, "axis 1 of z .* has 4 entries, and no entry 4"),
    ({"of": "z[0,0,0]"}, "has 3 indices, but z .* has 2 axes"),
    ({"of": "z[a]"}, "'z\\[a\\]' is no part of 'z': name entries and slices"),
    ({"of": "z[0.5]"}, "is no part of 'z'"), ({"of": "z[]"}, "is no part of 'z'"),
    ({"of": "z[::0]"}, "is no part of 'z'"), ({"of": "z[True]"}, "is no part of 'z'"),
    ({"of": "z[None]"}, "is no part of 'z'"), ({"wrt": "x[..., ...]"}, "two ellipses"),
    ({"of": "y[0]"}, "no tensor 'y\\[0\\]'"), ({"of": "z[0"}, "no tensor 'z\\[0'"),
])  # fmt: skip
def test_linearize_rejects_wrong_entries(model, options, text):
    with pytest.raises(oj.InputError, match=text):
        oj.linearize(model, {"x": X}, **options)


def test_an_entry_that_a_point_lacks(model):
    with pytest.raises(oj.OnnxJacError):
        oj.linearize(model, {"x": X}, of="z[5,0]")


def test_a_tensor_of_such_a_name_comes_first():
    proto = onnx.parser.parse_model(TEXT)
    for node in proto.graph.node:
        node.input[:] = [name.replace("h", "x[0]") for name in node.input]
        node.output[:] = [name.replace("h", "x[0]") for name in node.output]
    J = oj.linearize(oj.load(proto), {"x": X}, of="x[0]")
    assert J.shape == (20, 15)


def test_entries_on_the_command_line(tmp_path, model, J):
    onnx.save(onnx.parser.parse_model(TEXT), tmp_path / "m.onnx")
    np.savez(tmp_path / "p.npz", x=X)
    assert main(["jacobian", str(tmp_path / "m.onnx"), "--input", str(tmp_path / "p.npz"), "--of",
                 "z[0,3]", "--wrt", "x[0]", "-o", str(tmp_path / "J.npz")]) == 0  # fmt: skip
    assert_allclose(np.load(tmp_path / "J.npz")["jacobian"][0], J[0, 3, 0])
