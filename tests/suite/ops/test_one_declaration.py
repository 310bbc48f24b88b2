"""What is known of an operator comes from its declaration: one of a user's own, in each mode."""

from importlib import import_module
from importlib.util import find_spec

import numpy as np
import onnx.parser
import pytest

import onnxjac as oj
from onnxjac.jacobians import Diagonal, Reshape, broadcast, shape_of
from onnxjac.jacobians.readings import is_kept, module_of
from onnxjac.ops.conventions import are_zero, kinks
from onnxjac.ops.graphs.shapes import formula

NAME = "my.domain::Hinges"
POINT = {"x": np.array([1.5, 0.0, -2.0]), "n": np.array([2])}
SLOPES = np.repeat(np.diag([3.0, 0.0, 0.0]), 2, axis=0)
MODEL = """<ir_version: 10, opset_import: ["": 21, "my.domain": 1]>
g (double[m] x, int64[1] n) => (double[m, k] y) { y = my.domain.Hinges (x, n) }"""


@pytest.fixture
def calls(clean_registry):
    """Declares yᵢⱼ = max(xᵢ, 0)², n times for every i, and lists the inputs of its kernel."""
    made = []
    if find_spec("torch"):
        import_module("onnxjac.ops.torch")  # which then knows nothing of it

    @oj.defines(NAME, grows=True)
    def definition(op, node):
        y, (n,) = op.Relu(node.x), node.ints(1)
        return (op.Expand(op.Unsqueeze(op.Mul(y, y), (1,)), (shape_of(y)[0], n)),)

    @oj.jacobian(NAME, grows=True)
    def rule(op, node):
        column = (node.x_shape[0], 1)
        slopes = Diagonal(op.Mul(op.Relu(node.x), 2.0))
        lift = broadcast(column, node.y_shape, node.dtype)
        return {(0, 0): lift @ Reshape(column, node.x_shape, node.dtype) @ slopes}

    @oj.kernel(NAME, tensors=True, hosted=True)
    def values(x, n):
        made.append(x)
        y = x.clip(0, None)
        return module_of(x).broadcast_to((y * y)[:, None], (len(x), int(n[0])))

    @formula(NAME, known=(1,))
    def sizes(shapes, held, attrs):
        return [(shapes[0][0], held[1][0])]

    kinks(NAME, where="x = 0", given="0, as on the left")(are_zero)
    return made


@pytest.fixture
def model(calls):
    return oj.load(onnx.parser.parse_model(MODEL))


def test_the_values_agree_with_the_kernel(model, calls):
    expected = np.repeat([[2.25], [0.0], [0.0]], 2, axis=1)
    np.testing.assert_array_equal(model.run(POINT, engine="numpy")["y"], expected)
    assert len(calls) == 1


def test_products_and_second_derivatives(model):
    J = oj.linearize(model, POINT, wrt="x")
    np.testing.assert_array_equal(J.toarray(), SLOPES)
    np.testing.assert_array_equal(J.T @ np.ones(6), SLOPES.sum(0))
    assert "bcast" in str(J.explain())
    _, pullback = oj.vjp(model, POINT, of="y", wrt="x")
    np.testing.assert_array_equal(pullback(np.ones((3, 2)))["x"], [6.0, 0.0, 0.0])
    H = oj.hessian(model, POINT, of="y", wrt="x", weights=np.ones((3, 2)))
    np.testing.assert_array_equal(H.toarray(), np.diag([4.0, 0.0, 0.0]))


def test_one_declaration_exports_plain_onnx_for_other_sizes(model):
    exported = oj.export(model, "vjp", POINT, wrt="x")
    assert not any(node.domain for node in exported.graph.node)
    other = {"x": np.array([1.0, -1.0, 2.0, 3.0]), "n": np.array([3])}
    made = oj.load(exported).run({**other, "y_cotangent": np.ones((4, 3))}, engine="numpy")
    np.testing.assert_array_equal(made["x_cotangent"], [6.0, 0.0, 12.0, 18.0])


def test_the_rule_is_proved_by_the_definition(calls):
    proof = oj.prove(NAME, shapes=[(2,), np.array([2])])
    assert proof.outcome == "exact"
    assert "by its definition in ONNX's operators" in proof.markdown()


def test_its_kinks_are_counted(model):
    (kink,) = oj.linearize(model, POINT, wrt="x").explain().kinks
    assert (kink.op, kink.where, kink.count, kink.size) == ("Hinges", "x = 0", 1, 3)
    assert kink.declared == "0, as on the left"


def test_its_size_is_checked_before_it_runs(calls):
    model = oj.load(onnx.parser.parse_model(MODEL), limits=oj.Limits(bytes=10**6))
    with pytest.raises(oj.LimitError, match="Hinges"):
        model.run({**POINT, "n": np.array([50_000])}, engine="numpy")
    assert not calls


@pytest.mark.peers
def test_tensors_are_tensors(model, calls, device):
    torch = pytest.importorskip("torch")
    from onnxjac.ops.torch import tensors

    x = torch.tensor(POINT["x"], device=device)
    (y,) = tensors.run("Hinges", [x, POINT["n"]], {}, domain="my.domain")
    assert is_kept(y)
    assert is_kept(calls[-1])
    J = oj.linearize(model, POINT, wrt="x")
    v = torch.ones(3, dtype=torch.float64, device=device)
    np.testing.assert_array_equal((J @ v).cpu().numpy(), SLOPES.sum(1))


# -- kernels that do not keep what they promise ------------------------------------------------


def written(x):
    x *= x
    return x


def sorted_in_place(x):
    x.sort()
    return x


WRONG = {
    "it writes to its input": (written, "read-only"),
    "it sorts its input": (sorted_in_place, "read-only"),
    "a Python number": (lambda x: 3.0, "gives a float, not an array"),
    "a list": (lambda x: [1.0, 2.0, 3.0], "gives a list, not an array"),
    "a tuple of a number": (lambda x: (1.0,), "gives a float, not an array"),
    "too few entries": (lambda x: x[:2], r"gives 'y' as float64\[2\].*y float64\[3\]"),
    "too many axes": (lambda x: x[None], r"gives 'y' as float64\[1, 3\].*y float64\[3\]"),
    "a scalar of NumPy": (lambda x: np.float64(2), r"gives 'y' as float64\[\].*y float64\[3\]"),
    "integers": (lambda x: x.astype(int), r"gives 'y' as int64\[3\].*y float64\[3\]"),
}


@pytest.mark.usefixtures("clean_registry")
@pytest.mark.parametrize("engine", ["numpy", None])
@pytest.mark.parametrize("case", WRONG)
def test_a_kernel_that_is_wrong_is_refused_by_name(case, engine):
    """And nothing that the caller or the model holds is written to."""
    values, message = WRONG[case]
    oj.kernel("my.domain::Own")(values)
    oj.zero("", "my.domain::Own")
    model = oj.load(onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 21,
        "my.domain": 1]> g (double[3] x) => (double[3] y) <double[3] w = {3, 1, 2}>
        { v = Identity(w) z = my.domain.Own(v) y = my.domain.Own(x) }"""))
    x = np.array([3.0, 1.0, 2.0])
    for work in (model.run, lambda point, **k: oj.linearize(model, point, **k)):
        with pytest.raises(oj.OnnxJacError, match=rf"my\.domain::Own \(node 'Own_2'.*{message}"):
            work({"x": x}, engine=engine)
    np.testing.assert_array_equal(x, [3, 1, 2])
    np.testing.assert_array_equal(model.constants["w"], [3, 1, 2])


@pytest.mark.usefixtures("clean_registry")
def test_a_kernel_for_tensors_gets_a_copy():
    torch = pytest.importorskip("torch")
    oj.kernel("my.domain::Own", tensors=True)(lambda x: x.mul_(x) if is_kept(x) else x * x)
    oj.zero("", "my.domain::Own")
    model = oj.load(onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 21,
        "my.domain": 1]> g (double[3] x) => (double[3] y) { y = my.domain.Own(x) }"""))
    x = torch.tensor([3.0, 1.0, 2.0], dtype=torch.float64)
    np.testing.assert_array_equal(model.run({"x": x}, engine="torch")["y"], [9, 1, 4])
    assert x.tolist() == [3, 1, 2]
