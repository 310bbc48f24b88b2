"""oj.derive: values, Jacobian, adjoint, Hessian and function of an operator, from its formula."""

import re
import warnings

import numpy as np
import onnx
import pytest
import sympy as sp
from onnx import helper, parser
from scipy.special import expit

import onnxjac as oj
from onnxjac.jacobians import Contraction, Diagonal, Identity, Kron
from onnxjac.ops.formulas import parse

RNG = np.random.default_rng(0)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def standardised(x, s, c):
    d = x - x.mean(-1, keepdims=True)
    return d / np.sqrt((d**2).mean(-1, keepdims=True) + 1e-5) * s + c


MEAN = "sum(x[i,k], k)/4"
CASES = {
    "x*tanh(log(1 + exp(x)))": ([(5,)], lambda x: x * np.tanh(np.log1p(np.exp(x)))),
    "x*g*sigmoid(x)": ([(3, 4), (4,)], lambda x, g: x * g / (1 + np.exp(-x))),
    "max(a, b)*c": ([(3,), (3,), ()], lambda a, b, c: np.maximum(a, b) * c),
    "x if abs(x) < 1 else x**2": ([(5,)], lambda x: np.where(abs(x) < 1, x, x**2)),
    "y[i,k] = sum(a[i,j]*b[j,k], j)": ([(2, 3), (3, 4)], lambda a, b: a @ b),
    "y[i,k] = sum(a[j,i]*b[k,j], j)": ([(3, 2), (4, 3)], lambda a, b: a.T @ b.T),
    "y[n,i,k] = sum(a[n,i,j]*b[n,j,k], j)": ([(2, 2, 3), (2, 3, 4)], lambda a, b: a @ b),
    "y[i,l] = sum(a[i,j]*x[j,k]*b[l,k], j, k)": (
        [(2, 3), (3, 4), (5, 4)], lambda a, x, b: a @ x @ b.T),
    "y[i,j] = exp(x[i,j])/sum(exp(x[i,k]), k)": ([(2, 3)], softmax),
    "y[i,j] = x[i,j] - log(sum(exp(x[i,k]), k))": ([(2, 3)], lambda x: np.log(softmax(x))),
    f"y[i,j] = (x[i,j] - {MEAN})/sqrt(sum((x[i,l] - {MEAN})**2, l)/4 + 1e-5)*s[j] + c[j]": (
        [(2, 4), (4,), (4,)], standardised),
    "y[i] = sum(a[i,j,r]*x[j], j, r)": ([(2, 3, 2), (3,)], lambda a, x: a.sum(2) @ x),
    "y[n,i] = sum(a[n,i,j]*x[n,j], j)": (
        [(2, 3, 4), (2, 4)], lambda a, x: np.einsum("nij,nj->ni", a, x)),
    "y = sum((x[i] - t[i])**2, i)": ([(3,), (3,)], lambda x, t: ((x - t) ** 2).sum()),
    "y[i] = x[i,i] + z": ([(3, 3), ()], lambda x, z: np.diag(x) + z),
    "y[o,i] = sum(w[o,c,k]*x[c,2*i + k], c, k)": (
        [(2, 3, 3), (3, 8)],
        lambda w, x: np.stack([(w * x[:, 2 * i : 2 * i + 3]).sum((1, 2)) for i in range(3)], 1)),
}  # fmt: skip
"""definition -> shapes of the inputs, and NumPy's own values."""


def typed(kind, shape):
    """A type in ONNX's syntax."""
    return f"{kind}{list(shape) or ''}"


def model_of(name, kinds, shape=None):
    """A model of one node; `kinds` are the types of its inputs, `shape` is the one of a float y."""
    inputs = ", ".join(f"{kind} x{k}" for k, kind in enumerate(kinds))
    names = ", ".join(f"x{k}" for k in range(len(kinds)))
    proto = parser.parse_model(f"""<ir_version: 10, opset_import: ["": 21, "my.domain": 1]>
    g ({inputs}) => (double y) {{ y = my.domain.{name} ({names}) }}""")
    if shape is None:
        proto.graph.output[0].type.tensor_type.ClearField("shape")
    else:
        proto.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", 1, shape))
    return proto


@pytest.mark.usefixtures("clean_registry")
@pytest.mark.parametrize("text", CASES)
def test_everything_follows_from_the_definition(text):
    shapes, truth = CASES[text]
    oj.derive("my.domain::F", text)
    model = oj.load(model_of("F", [typed("double", s) for s in shapes]))
    point = {f"x{k}": RNG.standard_normal(s) for k, s in enumerate(shapes)}
    J = oj.linearize(model, point)
    np.testing.assert_allclose(J.primal["y"], truth(*point.values()), rtol=1e-12)
    assert J.check()
    dense = J.toarray()
    np.testing.assert_allclose(J.T.toarray().T, dense, atol=1e-14)


CLOSED = [text for text in CASES if "g*" in text or "l]" in text or "exp(x[i,j])" in text]


@pytest.mark.usefixtures("clean_registry")
@pytest.mark.parametrize("text", CLOSED)
def test_second_derivatives_and_exports_follow(text):
    shapes, _ = CASES[text]
    oj.derive("my.domain::F", text)
    model = oj.load(model_of("F", [typed("double", s) for s in shapes]))
    point = {f"x{k}": RNG.standard_normal(s) for k, s in enumerate(shapes)}
    J = oj.linearize(model, point)
    weights = RNG.standard_normal(J.primal["y"].shape)
    H, v = oj.hessian(model, point, of="y", weights=weights), RNG.standard_normal(J.shape[1])
    sides = []
    for step in (1e-5, -1e-5):
        parts = np.split(step * v, np.cumsum([x.size for x in point.values()])[:-1])
        moved = {n: x + d.reshape(x.shape) for (n, x), d in zip(point.items(), parts, strict=True)}
        sides.append(oj.linearize(model, moved).T @ weights.ravel())
    np.testing.assert_allclose(H @ v, (sides[0] - sides[1]) / 2e-5, atol=2e-7)
    exported = oj.export(model, "vjp", point)
    assert not any(node.domain for node in exported.graph.node)


@pytest.mark.usefixtures("clean_registry")
@pytest.mark.parametrize("text", CASES)
def test_the_function_computes_the_values(text):
    shapes, truth = CASES[text]
    selects = "i,i" in text or "2*i" in text
    function = oj.derive("my.domain::F", text).function(*(shapes if selects else ()))
    point = {f"x{k}": RNG.standard_normal(s).astype("f4") for k, s in enumerate(shapes)}
    shape = np.shape(truth(*point.values()))
    proto = model_of("F", [typed("float", s) for s in shapes], shape)
    proto.functions.append(function)
    onnx.checker.check_model(proto, full_check=True)
    y = oj.load(proto).run(point)["y"]
    assert y.dtype == np.float32
    np.testing.assert_allclose(y, truth(*point.values()), rtol=1e-4, atol=1e-5)


def blocks(text, *shapes):
    oj.derive("my.domain::F", text)
    model = oj.load(model_of("F", [typed("double", s) for s in shapes]))
    J = oj.linearize(model, {f"x{k}": RNG.standard_normal(s) for k, s in enumerate(shapes)})
    found = {key[1]: J for entry in J.entries for key, J in entry.blocks.items()}
    return [found[k] for k in sorted(found)]


@pytest.mark.usefixtures("clean_registry")
def test_the_indices_say_the_structure():
    assert all(isinstance(J, Kron) for J in blocks(*KRONECKER))
    assert [type(J) for J in blocks("y[i,j] = x[i,j]*w[i,j]", (2, 3), (2, 3))] == [Diagonal] * 2
    assert [type(J) for J in blocks("a + b", (3,), (3,))] == [Identity, Identity]
    assert [type(J) for J in blocks("y[i,j] = a[i]*b[j]", (2,), (3,))] == [Contraction] * 2
    _, middle, _ = blocks("y[i,l] = sum(a[i,j]*x[j,k]*b[l,k], j, k)", (2, 3), (3, 4), (5, 4))
    assert repr(middle) == "(A[2×3] ⊗ A[5×4])"


KRONECKER = "y[i,k] = sum(a[i,j]*b[j,k], j)", (2, 3), (3, 4)


FAR = np.array([-800.0, -30.0, -1e-8, 0.0, 1e-8, 30.0, 800.0])
E = np.exp(np.clip(FAR, -300, 300))


@pytest.mark.usefixtures("clean_registry")
@pytest.mark.parametrize(("text", "value", "slope"), [
    ("log(1 + exp(x))", np.maximum(FAR, 0) + np.log1p(np.exp(-abs(FAR))),
     1 / (1 + np.exp(-np.clip(FAR, -700, None)))),
    ("(exp(x) - exp(-x))/(exp(x) + exp(-x))", np.tanh(FAR), 1 - np.tanh(FAR) ** 2),
    ("x/(1 + abs(x))", FAR / (1 + abs(FAR)), (1 + abs(FAR)) ** -2.0),
    ("log(cosh(x))", np.logaddexp(FAR, -FAR) - np.log(2), np.tanh(FAR)),
    ("log(1 + exp(x) + 2*exp(2*x))", np.logaddexp(np.logaddexp(0, FAR), 2 * FAR + np.log(2)),
     (E + 4 * E**2) / (1 + E + 2 * E**2)),
    ("log(sigmoid(x))", -np.logaddexp(0, -FAR), expit(-FAR)),
    ("log(1 - sigmoid(x))", -np.logaddexp(0, FAR), -expit(FAR)),
    ("exp(x)/(1 + exp(x))**2", expit(FAR) * expit(-FAR),
     expit(FAR) * expit(-FAR) * (expit(-FAR) - expit(FAR))),
    ("exp(-exp(-x))", np.exp(-1 / E), np.exp(-1 / E) / E),
])  # fmt: skip
def test_forms_are_stable(text, value, slope):
    """Their plain forms overflow at ±800, or lose their digits."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        oj.derive("my.domain::F", text)
    J = oj.linearize(oj.load(model_of("F", ["double[7]"])), {"x0": FAR})
    np.testing.assert_allclose(J.primal["y"], value, rtol=1e-14, atol=1e-15)
    np.testing.assert_allclose(J.diagonal(), slope, rtol=1e-12, atol=5e-16)


@pytest.mark.usefixtures("clean_registry")
def test_softmax_is_stable():
    oj.derive("my.domain::F", "y[i,j] = exp(x[i,j])/sum(exp(x[i,k]), k)")
    x = np.array([[800.0, 0.0, 799.0], [-800.0, -800.0, 0.0]])
    J = oj.linearize(oj.load(model_of("F", ["double[2, 3]"])), {"x0": x})
    y = softmax(x)
    truth = [np.diag(row) - np.outer(row, row) for row in y]
    np.testing.assert_allclose(J.primal["y"], y, atol=1e-15)
    np.testing.assert_allclose(J.toarray()[:3, :3], truth[0], atol=1e-15)
    np.testing.assert_allclose(J.toarray()[3:, 3:], truth[1], atol=1e-15)


@pytest.mark.usefixtures("clean_registry")
def test_a_form_that_loses_its_digits_is_reported():
    with pytest.warns(oj.OnnxJacWarning, match=r"double precision gives y = .* at x = "):
        oj.derive("my.domain::F", "log(exp(x))*0 + (exp(2*x) - 1)/(exp(x) - 1)")


@pytest.mark.usefixtures("clean_registry")
def test_kinks_are_tried_too():
    """It overflows at its kink, and nowhere on the grid."""
    with pytest.warns(oj.OnnxJacWarning, match="y = inf instead of 1000 at x = 2000"):
        oj.derive("my.domain::F", "x/2 if x > 2000 else log(exp(x/2) - 1)")


@pytest.mark.usefixtures("clean_registry")
@pytest.mark.parametrize(("definition", "kinks"), [
    ("Piecewise((x, x > 1), (x**2, x > -1), (-x, True))", {"x = 1", "x = -1"}),
    ("max(a, b)", {"a = b"}),
    ("x*abs(x)", {"x = 0, in the second derivative only"}),
    ("tanh(x)", set()),
])  # fmt: skip
def test_kinks_are_found(definition, kinks):
    assert set(oj.derive("my.domain::F", definition).kinks) == kinks


JUMPS = [f.replace("u", u) for u in ("x", "(x - 1)", "(2*x + 1)") for f in (
    "sign(u)", "u*sign(u)", "exp(x)*sign(u)", "ceil(u)", "floor(u)", "x*ceil(u)", "abs(u)",
    "max(u, 0)", "min(u, x**2)", "2 if u > 0 else x", "x if u >= 0 else x**2",
    "1 if u == 0 else x**2", "x if u == 0 else x**3", "sign(u)*sign(u)*x", "max(u, 0)**2",
    "x if u > 0 and x < 3 else x**2", "sign(abs(u) - 0.5)")]  # fmt: skip


@pytest.mark.sampled(0.5)
@pytest.mark.usefixtures("clean_registry")
@pytest.mark.filterwarnings("ignore::onnxjac.OnnxJacWarning")
@pytest.mark.parametrize("definition", JUMPS)
def test_every_jump_of_a_formula_is_a_kink(definition):
    """A jump of value, first or second derivative, seen in the values at multiples of 1/2."""
    derived, h = oj.derive("my.domain::F", definition), 1e-3
    proto = model_of("F", ["double[n]"])
    model, places = oj.load(proto), np.arange(-5, 6) / 2
    y = model.run({"x0": np.add.outer(places, h * np.arange(-3, 4)).ravel()})["y"].reshape(-1, 7)
    left, right = y[:, 2::-1], y[:, 4:]  # from the place outwards
    ends = [(3 * a - 3 * b + c, (2.5 * a - 4 * b + 1.5 * c) / h, (a - 2 * b + c) / h**2)
            for a, b, c in (left.T, right.T)]  # fmt: skip
    jumps = [abs(ends[0][0] - ends[1][0]) > 0.01, abs(ends[0][1] + ends[1][1]) > 0.05,
             abs(ends[0][2] - ends[1][2]) > 0.5, abs(y[:, 3] - ends[0][0]) > 0.01]  # fmt: skip
    said = {float(sp.sympify(k.split(" = ")[1].split(",")[0])) for k in derived.kinks if "=" in k}
    line = {float(p) for k in derived.kinks if k.endswith(" whole") for p in places
            if float(eval(k.removesuffix(" whole"), {"x": p})).is_integer()}
    found = {p for p, *told in zip(places, *jumps, strict=True) if any(told)}
    assert found <= said | line
    if not {"==", "sign"} & {*re.findall("==|sign", definition)}:  # the slope of one point alone
        assert said & {*places} <= found


@pytest.mark.usefixtures("clean_registry")
def test_expressions_of_sympy_are_definitions():
    x, g = sp.symbols("x g")
    assert repr(oj.derive("my.domain::F", g * sp.Max(x, 0))) == "Derived(my.domain::F: g*Max(0, x))"
    a, b, y = map(sp.IndexedBase, "aby")
    i, j, n = sp.symbols("i j n", integer=True)
    whole = oj.derive("my.domain::F", sp.Eq(y[i], sp.Sum(a[i, j] * b[j], (j, 0, n - 1))))
    model = oj.load(model_of("F", ["double[2, 3]", "double[3]"]))
    A, v = RNG.standard_normal((2, 3)), RNG.standard_normal(3)
    np.testing.assert_allclose(model.run({"x0": A, "x1": v})["y"], A @ v)
    assert "frac" in whole._repr_latex_()


@pytest.mark.usefixtures("clean_registry")
def test_integer_inputs_select_entries():
    """Gather and a loss over labels: negative labels count from the end."""
    text = "y = sum(log(sum(exp(x[n,k]), k)) - x[n,t[n]], n)"
    oj.derive("my.domain::F", text)
    model = oj.load(model_of("F", ["double[3, 4]", "int64[3]"]))
    x, t = RNG.standard_normal((3, 4)), np.array([1, 0, -1])
    J = oj.linearize(model, {"x0": x, "x1": t})
    np.testing.assert_allclose(J.primal["y"], -np.log(softmax(x))[range(3), t].sum())
    assert J.check()
    with pytest.raises(oj.OnnxJacError, match="leaves the 4 entries"):
        model.run({"x0": x, "x1": np.array([1, 0, 4])})


@pytest.mark.usefixtures("clean_registry")
def test_attributes_have_defaults():
    derived = oj.derive("my.domain::F", "x if x > 0 else slope*x", slope=0.25)
    proto = model_of("F", ["double[2]"])
    x = {"x0": np.array([-2.0, 3.0])}
    np.testing.assert_allclose(oj.linearize(oj.load(proto), x).diagonal(), [0.25, 1])
    proto.graph.node[0].attribute.append(helper.make_attribute("slope", 0.5))
    np.testing.assert_allclose(oj.linearize(oj.load(proto), x).diagonal(), [0.5, 1])
    proto.functions.append(derived.function())
    np.testing.assert_allclose(oj.load(proto).run(x)["y"], [-1.0, 3.0])


@pytest.mark.parametrize("text", [
    "__import__('os').system('true')", "x.__class__", "9**9**9", "lambda: x", "x[0:1]", "(",
    "[x for x in y]", "f'{x}'", "x if x", "exec(x)", "x = y = z", "sum(x)", "'x'", "1e999*x",
    "x" + "+x" * 20000, "(" * 500 + "x" + ")" * 500,
])  # fmt: skip
def test_text_is_never_evaluated(text):
    with pytest.raises(oj.InputError):
        parse(text)


@pytest.mark.usefixtures("clean_registry")
@pytest.mark.parametrize(("text", "message"), [
    ("y[i] = x[j]", "i, j is to be an index"), ("y[i,j] = x[i]", "j is to be"),
    ("y[i] = i*x[i]", "i is an index"), ("x + sum(x[i], i)", "x is an index or has indices"),
    ("3", "its inputs are none"), ("y[i] = x[i*i]", "not like 2"), ("Y*x", "Y is the output"),
    ("gamma(x)", "no function 'gamma'"), ("x > 0", "is a condition, not a number"),
    ("x == 0", "is a condition"), ("exp(x > 0)", "is a condition|cannot be read"),
    ("x and g", "is a condition"), ("x if x else 1", "'x' is a number, not a condition"),
    ("g if not x else 1", "is a number"), ("Piecewise((g, x), (1, True))", "is a number"),
    ("1 if x > 0 and g else 0", "'g' is a number"), ("max(x > 0, 1)", "is a condition|cannot"),
    ("y[i] = sum(a[i,j] > 0, j)", "is a condition"),
    ("y[i] = a[i] if b[i] else 0", "must be a Boolean"),
    ("(x > 0) if g > 0 else 1", "is a condition"),
    ("1 if (x > 0) == g else 0", "is a condition|cannot be read"),
])  # fmt: skip
def test_bad_definitions_say_what_is_wrong(text, message):
    with pytest.raises(oj.InputError, match=message):
        oj.derive("my.domain::F", text)


@pytest.mark.usefixtures("clean_registry")
def test_bad_shapes_say_what_is_wrong():
    oj.derive("my.domain::F", KRONECKER[0])
    model = oj.load(model_of("F", ["double[2, 3]", "double[4, 3]"]))
    with pytest.raises(oj.OnnxJacError, match="the index j runs to 3, and to 4 in axis 0 of b"):
        model.run({"x0": np.ones((2, 3)), "x1": np.ones((4, 3))})


@pytest.mark.usefixtures("clean_registry")
def test_a_maximum_inside_a_minimum():
    clip = oj.derive("my.domain::F", "min(max(x, -1), 1)")
    assert clip.kinks == ("x = -1", "x = 1")
    x = np.array([-2.0, -0.5, 0.0, 0.5, 2.0])
    J = oj.linearize(oj.load(model_of("F", ["double[5]"])), {"x0": x})
    np.testing.assert_array_equal(J.primal["y"], np.clip(x, -1, 1))
    np.testing.assert_array_equal(J.diagonal(), [0, 1, 1, 1, 0])


@pytest.mark.usefixtures("clean_registry")
def test_a_root_of_the_output_is_not_taken():
    """Y^⅓ for √|x| would overflow where |x|^1.5 does, and be slow."""
    slope = oj.derive("my.domain::F", "abs(x)**1.5").derivatives["x"]
    assert str(slope) == "3*sqrt(Abs(x))*sign(x)/2"
