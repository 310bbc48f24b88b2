"""`J.check()`: it detects and names every wrong operation, and passes every correct J."""

import tracemalloc
import warnings

import numpy as np
import pytest
from onnx import numpy_helper, parser
from scipy.sparse import csr_array

import onnxjac as oj
from house import ROOT
from onnxjac.jacobians import Diagonal, sparse
from onnxjac.modes.linear.check import (
    DIFFERENCES,
    NOT_COMPARED,
    POWERS,
    RIGHT,
    Near,
    against_differences,
    beside,
)
from onnxjac.modes.linear.elimination import dense
from onnxjac.modes.linear.linearization import Linearization
from onnxjac.modes.linear.products.compiled import Compiled
from test_models import below, stored

RNG = np.random.default_rng(0)
RUNS = 1 + 2 * len(POWERS)
X = RNG.standard_normal((2, 3))
W = RNG.standard_normal((3, 3))


def model(body, signature="(double[2,3] x) => (double[2,3] y)", **weights):
    """A loaded model in ONNX's text format, with initializers."""
    proto = parser.parse_model(
        f'<ir_version: 10, opset_import: ["": 21]> g {signature} {{ {body} }}'
    )
    for name, array in weights.items():
        proto.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
    return oj.load(proto)


def linearized(
    body, signature="(double[2,3] x) => (double[2,3] y)", *, wrt=None, weights=None, **x
):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", oj.OnnxJacWarning)
        return oj.linearize(model(body, signature, **(weights or {})), x or {"x": X}, wrt=wrt)


def failed(outcome):
    return [o.name for o in outcome.outcomes if not o.passed]


def net():
    """y = tanh(x W) ∘ x."""
    return linearized("m = MatMul(x, w) t = Tanh(m) y = Mul(t, x)", weights={"w": W})


# -- errors are named ----------------------------------------------------------------------------

ARRAY, SPARSE, DIAGONAL = (
    f"J.{way}() against products" for way in ("toarray", "tosparse", "diagonal")
)


def one_off(entries):
    """The entries with one of them changed."""
    entries = np.array(entries)
    entries.flat[entries.size // 2] += 0.01
    return entries


def shifted(matrix):
    """A sparse matrix with its entries shifted right by one column."""
    return csr_array(np.roll(matrix.toarray(), 1, axis=1))


WRONG = {
    "a column too few": ("toarray", lambda a: a[:, 1:], ARRAY),
    "one entry": ("toarray", one_off, ARRAY),
    "one column after the other": ("toarray", lambda a: a.T.reshape(a.shape), ARRAY),
    "twice an entry": ("tosparse", lambda a: a * 2, SPARSE),
    "a sparse column too few": ("tosparse", lambda a: a[:, 1:], SPARSE),
    "entries in other places": ("tosparse", shifted, SPARSE),
    "a short diagonal": ("diagonal", lambda d: d[:-1], DIAGONAL),
    "another diagonal": ("diagonal", np.roll, DIAGONAL),
    "a diagonal that is NaN": ("diagonal", lambda d: d * np.nan, DIAGONAL),
}


@pytest.mark.parametrize("case", WRONG)
@pytest.mark.parametrize("transposed", [False, True])
def test_a_wrong_way_to_the_entries_is_named(monkeypatch, case, transposed):
    name, wrong, test = WRONG[case]
    J, right = net(), getattr(Linearization, name)
    if wrong is np.roll:
        wrong = lambda d: np.roll(d, 1)  # noqa: E731

    def broken(K, *arguments, **options):
        found = right(K, *arguments, **options)
        return wrong(found) if K.transposed == transposed else found

    assert J.check()
    monkeypatch.setattr(Linearization, name, broken)
    assert failed(J.check()) == [test.replace("J.", "Jᵀ.") if transposed else test]


def test_an_exception_on_the_way_is_told(monkeypatch):
    monkeypatch.setattr(Linearization, "tosparse", lambda J, **_: 1 / 0)
    outcome = net().check()
    assert set(failed(outcome)) == {SPARSE, SPARSE.replace("J", "Jᵀ")}
    assert "(ZeroDivisionError: division by zero)" in str(outcome)


def test_a_matrix_without_its_blocks_of_zeros_fails(monkeypatch):
    monkeypatch.setattr(dense, "given_of", lambda part: dense.given(part.edges[0].operator))
    J = linearized("y = MatMul(W, x) z = Exp(b)",
                   "(double[2,3] W, double[3] x, double[2] b) => (double[2] y, double[2] z)",
                   wrt=["x", "b"], W=X, x=X[0], b=X[0, :2]).block(("y",), ("x", "b"))  # fmt: skip
    outcome = J.check()
    assert ARRAY in failed(outcome)
    assert "shape 2×3 instead of 2×5" in str(outcome)


def test_entries_counted_too_often_fail(monkeypatch):
    def twice(operator):
        E = einsum(operator)
        doubled = (np.concatenate([a, a]) for a in (E.rows, E.columns))
        held = tuple((a, np.concatenate([at, at])) for a, at in E.held)
        return sparse.Entries(*doubled, E.weights, held)

    einsum = sparse.entries
    monkeypatch.setattr("onnxjac.modes.sparse.program.entries", twice)
    J = linearized('y = Einsum<equation="ij->i">(x)', "(double[2,3] x) => (double[2] y)")
    assert sorted(failed(J.check())) == [SPARSE, SPARSE.replace("J", "Jᵀ")]


@pytest.mark.parametrize("wrong", ["J", "Jᵀ"])
def test_a_wrong_compiled_program_is_named(wrong, inside):
    def broken(right, C, v, columns):
        hit = (C.shape[0] < C.shape[1]) == (wrong == "J")
        return one_off(right(C, v, columns)) if hit else right(C, v, columns)

    J = linearized(
        "y = MatMul(x, w)", "(double[2,3] x) => (double[2,1] y)", weights={"w": W[:, :1]}
    )
    C = J.compile("numpy")
    assert C.check()
    inside.change_products(Compiled, broken)
    name = {"J": "J v against J v before elimination",
            "Jᵀ": "Jᵀ u against Jᵀ u before elimination"}[wrong]  # fmt: skip
    assert name in failed(C.check())
    assert J.check()


@pytest.mark.parametrize(("transposed", "name"), [
    (False, "J V against its columns J v"), (True, "Jᵀ U against its columns Jᵀ u"),
])  # fmt: skip
def test_a_wrong_product_with_many_columns_is_named(transposed, name, inside):
    inside.change_products(Linearization, lambda right, K, v, columns: right(K, v, columns)
                           * (1.01 if K.transposed == transposed and columns == (3,) else 1))
    assert failed(net().check()) == [name]


def test_the_matrices_of_a_hessian_are_its_own(monkeypatch):
    m = model("p = Mul(x, x) q = Mul(p, x) y = ReduceSum<keepdims=0>(q)",
              "(double[2,3] x) => (double y)")  # fmt: skip
    H = oj.hessian(m, {"x": X})
    right = type(H).tosparse
    assert H.check()
    monkeypatch.setattr(type(H), "tosparse", lambda H, *a, **k: 2 * right(H, *a, **k))
    assert failed(H.check()) == [SPARSE]


def test_of_a_large_matrix_some_columns_are_formed():
    J = linearized("y = Tanh(x)", "(double[3000] x) => (double[3000] y)", x=np.ones(3000))
    names = [o.name for o in J.check().outcomes]
    assert ARRAY not in names
    assert {"J[:, sample].toarray() against products", SPARSE} <= {*names}


# -- J v against differences -----------------------------------------------------------------------


def scaled(row, factor):
    """A function that scales one row of J, to make it wrong."""

    def make(J):
        d = np.ones(J.shape[0], J.dtype)
        d[row] = factor
        return Diagonal(d) @ J

    return make


def against(J, make=lambda J: J):
    """The test by differences for an operator built from J, with a neighbouring point."""
    near = Near(J)

    def neighbour(k):
        K, there = beside(J, near, 0, k)
        return make(K), there

    return against_differences(make(J), near, neighbour, 0)


@pytest.mark.parametrize("name", ["cnn", "encoder", "mlp"])
@pytest.mark.parametrize(("dtype", "factor"), [("float64", 1 + 1e-4), (None, 2.0)])
def test_one_wrong_row_of_a_network_fails(name, dtype, factor):
    """In single precision a row may be too small, or too close to kinks, to be tested."""
    values = stored(name)
    m = oj.load(ROOT / "tests" / "models" / f"{name}.onnx", dtype=dtype)
    x = values["x"].astype(next(iter(m.inputs.values())).dtype)
    for wrt in (None, tuple(below("tangent", values))):
        J = oj.linearize(m, dict.fromkeys(m.inputs, x), wrt=wrt)
        assert against(J).passed
        rows = np.linspace(0, J.shape[0] - 1, 5).astype(int)
        found = [not against(J, scaled(row, factor)).passed for row in rows]
        assert sum(found) >= (5 if dtype else 3)


def test_a_small_output_beside_a_large_one_is_compared():
    J = linearized("y = Exp(x) t = Tanh(x) z = Mul(t, tiny)",
                   "(double[2,3] x) => (double[2,3] y, double[2,3] z)",
                   weights={"tiny": 1e-9})  # fmt: skip
    assert against(J).passed
    assert not against(J, scaled(7, 1.001)).passed


def test_a_wrong_zero_and_a_nan_fail():
    J = linearized("y = Tanh(x)")
    for factor in (0, np.nan, np.inf, -1):
        assert not against(J, scaled(2, factor)).passed
    Z = linearized("z = Sub(x, x) y = Add(z, big)", weights={"big": 1e6})
    assert against(Z).passed
    assert not against(Z, lambda _: Diagonal(np.full(6, 1e-1)) @ J).passed


def test_the_model_runs_a_bounded_number_of_times(monkeypatch):
    runs, right = [], Near.__call__
    monkeypatch.setattr(Near, "__call__", lambda near, shift: runs.append(1) or right(near, shift))
    linearized("y = Tanh(x)").check()
    assert len(runs) == 3
    runs.clear()
    linearized("y = Relu(x)", x=np.zeros((2, 3))).check()
    assert RUNS < len(runs) <= 2 * RUNS
    assert f"At most {RUNS} runs" in against_differences.__doc__


FLAT = "(double[3] x) => (double[3] y)"
ON_KINKS = {
    "on it": ("y = Relu(x)", [0.0, 1.0, -1.0], 1),
    "all on it": ("y = Abs(x)", [0.0, 0.0, 0.0], 3),
    "closer than any width": ("y = Relu(x)", [1e-13, 1.0, -1.0], 1),
    "a tie": ("a, b, c = Split<num_outputs=3>(x) m = Max(a, b) y = Concat<axis=0>(m, m, c)",
              [1.0, 1.0, 0.3], 2),
    "a jump": ("y = Floor(x)", [2.0, 0.5, 0.7], 1),
    "the end of a domain": ("y = Log(x)", [1e-13, 1.0, 2.0], 1),
    "a corner": ("p = Relu(x) q = Sqrt(p) y = Mul(p, q)", [1e-13, 1.0, 2.0], 0),
}  # fmt: skip


@pytest.mark.parametrize("case", ON_KINKS)
def test_a_kink_is_reported_as_one(case):
    body, x, count = ON_KINKS[case]
    outcome = linearized(body, FLAT, x=np.array(x)).check()
    assert outcome
    last = outcome.outcomes[-1]
    assert last.name == (f"{DIFFERENCES}, beside a kink" if count else DIFFERENCES)
    assert (f"{count} of 3 entries not compared" in last.note) == bool(count)


def test_another_shape_beside_x_is_a_jump():
    J = linearized("y = Unique(x)", "(double[4] x) => (double[N] y)", x=np.array([1.0, 1, 2, 2]))
    outcome = J.check()
    assert outcome
    assert "2 of 2 entries not compared" in outcome.outcomes[-1].note
    assert not against(J, lambda J: 1.01 * J).passed


def test_a_model_that_does_not_run_beside_x_fails(monkeypatch):
    J = net()
    monkeypatch.setattr(Near, "__call__", lambda near, shift: near.x if not shift.any() else 1 / 0)
    assert "ZeroDivisionError" in against(J).note
    assert not against(J).passed


def test_beside_a_kink_a_wrong_row_fails_where_it_is_smooth():
    J = linearized("y = Relu(x)", FLAT, x=np.array([0.0, 1.0, -1.0]))
    assert not against(J, scaled(1, 1.001)).passed


@pytest.mark.parametrize("cast", [1, 10, 16], ids=["float32", "float16", "bfloat16"])
def test_narrow_tensors_are_named_and_allowed_for(cast):
    J = linearized(f"n = Cast<to={cast}>(x) e = Tanh(n) y = Cast<to=11>(e)")
    outcome = J.check()
    assert outcome
    kind = {1: "float32", 10: "float16", 16: "bfloat16"}[cast]
    assert f"{kind} between the ends: n, e" in outcome.outcomes[-1].note
    assert not against(J, lambda J: 1.5 * J).passed


def test_a_wide_model_names_no_narrow_tensor():
    assert all(o.note == "" for o in net().check().outcomes)


def test_narrow_tensors_aside_of_the_way_are_not_named():
    J = linearized("c = Cast<to=1>(k) d = Cast<to=11>(c) t = Tanh(x) y = Mul(t, d)",
                   weights={"k": np.ones(3)})  # fmt: skip
    assert J.check().outcomes[-1].note == ""


# -- three verdicts --------------------------------------------------------------------------------

QUANTISED = {
    "static": "q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, s, z)",
    "dynamic": "q, t, p = DynamicQuantizeLinear(x) y = DequantizeLinear(q, t, p)",
    "dynamic, and another path": "q, t, p = DynamicQuantizeLinear(x) d = DequantizeLinear(q, t, p) "
    "y = Add(d, x)",
}


@pytest.mark.parametrize("kind", QUANTISED)
@pytest.mark.parametrize("straight_through", [False, True])
def test_where_numbers_are_quantised_nothing_is_compared(kind, straight_through):
    m = model(QUANTISED[kind], "(float[2,3] x) => (float[2,3] y)", s=np.float32(0.1), z=np.int8(3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", oj.OnnxJacWarning)
        J = oj.linearize(m, {"x": X.astype(np.float32)}, straight_through=straight_through)
    outcome = J.check()
    assert (outcome.verdict, bool(outcome), outcome.passed) == (NOT_COMPARED, False, False)
    assert [o.name for o in outcome.outcomes if not o.compared] == [DIFFERENCES]
    said = "estimators" if straight_through else "QuantizeLinear on the way"
    assert said in outcome.outcomes[-1].note
    assert str(outcome).splitlines()[-1].startswith("none")


def test_check_compares_nothing_that_rounding_hides():
    """In float32, x + 1000 moves in steps that are larger than x: no width resolves a slope."""
    J = linearized("a = Add(x, mid) y = Sub(a, mid)", "(float[2,3] x) => (float[2,3] y)",
                   x=1e-5 * X.astype(np.float32), weights={"mid": np.float32(1e3)})  # fmt: skip
    outcome = J.check()
    assert outcome.verdict == NOT_COMPARED
    assert "5 of 6 entries not compared: rounding hides them: 'a' moves in steps of 1.2e-04" in \
        outcome.outcomes[-1].note


@pytest.mark.parametrize("low", [-3.4028234663852886e38, -1e10])
def test_check_compares_nothing_that_a_mask_absorbs(low):
    """Scores plus the least number are that number, so that f stands still where softmax does not;
    the other sample is judged.
    """
    x, off = X.astype(np.float32), np.array([[0.0, 0, 0], [1, 1, 1]], np.float32)
    J = linearized("q = Mul(off, low) s = Add(x, q) y = Softmax(s)",
                   "(float[2,3] x) => (float[2,3] y)", x=x,
                   weights={"low": np.float32(low), "off": off})  # fmt: skip
    found = against(J)
    assert found.verdict == NOT_COMPARED
    assert "3 of 6 entries not compared: rounding hides them: 's' moves in steps" in found.note
    assert "kink" not in found.note + found.name
    assert against(J, scaled(1, 2.0)).verdict == "wrong"


def test_a_wrong_test_outweighs_one_that_compares_nothing(monkeypatch):
    monkeypatch.setattr(Linearization, "tosparse", lambda J, **_: 1 / 0)
    m = model(QUANTISED["static"], "(float[2,3] x) => (float[2,3] y)", s=np.float32(0.1),
              z=np.int8(3))  # fmt: skip
    assert oj.linearize(m, {"x": X.astype(np.float32)}, wrt="s").check().verdict == "wrong"


# -- a Hessian against values, which ask no rule -------------------------------------------------

SCALAR = "(double[2,3] x) => (double l)"
RULES = {
    "right": lambda op, x: op.Mul(3.0, op.Mul(x, x)),
    "of the wrong sign": lambda op, x: op.Mul(-3.0, op.Mul(x, x)),
    "scaled": lambda op, x: op.Mul(3.0 * (1 + 1e-4), op.Mul(x, x)),
    "right at the point alone": lambda op, x: 3 * X**2,
    "right to first order at the point": lambda op, x: op.Sub(op.Mul(6 * X, x), 3 * X**2),
}


@pytest.mark.parametrize("wrong", RULES)
def test_a_hessian_of_a_rule_of_a_user(wrong, clean_registry):
    """x ↦ Σ x³ tanh(w), by rules that are wrong in the gradient, or in H alone."""
    oj.defines("my.domain::Cube")(lambda op, node: (op.Mul(node.x, op.Mul(node.x, node.x)),))
    oj.jacobian("my.domain::Cube")(
        lambda op, node: {(0, 0): Diagonal(RULES[wrong](op, node.x), node.y_shape)}
    )
    m = oj.load(parser.parse_model("""<ir_version: 10, opset_import: ["": 21, "my.domain": 1]>
        g (double[2,3] x, double[2,3] w) => (double l)
        { c = my.domain.Cube(x) t = Tanh(w) p = Mul(c, t) l = ReduceSum<keepdims=0>(p) }"""))
    outcome = oj.hessian(m, {"x": X, "w": W[:2]}, wrt="x").check()
    fine = wrong in ("right", "right to first order at the point")
    assert outcome.verdict == (RIGHT if fine else "wrong")


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("body", [
    "e = Exp(x) s = ReduceLogSumExp<keepdims=0>(e) l = Mul(s, s)",
    "a = MatMul(x, w) r = Relu(a) b = MatMul(r, w) q = Relu(b) s = Mul(q, q) "
    "l = ReduceSum<keepdims=0>(s)",
    "a = MatMul(x, w) l = ReduceSum<keepdims=0>(a)",  # H = 0
    "d = Sub(x, x) l = ReduceSumSquare<keepdims=0>(d)",  # f = 0
])  # fmt: skip
def test_a_right_hessian_passes(body, dtype):
    kind = {"float64": "double", "float32": "float"}[dtype]
    m = model(body, SCALAR.replace("double", kind), w=W.astype(dtype))
    for x in (X, 0 * X, np.round(2 * X) / 2):
        assert oj.hessian(m, {"x": x.astype(dtype)}).check()


def test_weights_and_control_flow_are_in_the_values():
    m = oj.load(parser.parse_model("""<ir_version: 10, opset_import: ["": 21]>
        g (double[2,3] x, double[2,3] w) => (double[2,3] y)
        { n = Constant<value_int=3>() t = Constant<value = bool {1}>()
          y = Loop (n, t, x) <body = b (int64 i, bool go, double[2,3] h)
              => (bool on, double[2,3] k) { on = Identity(go) p = Mul(h, w) k = Sin(p) }> }"""))
    H = oj.hessian(m, {"x": X, "w": W[:2]}, of="y", weights=W[1:])
    assert H.check()


# -- memory ----------------------------------------------------------------------------------------

FULL = "(double[10,3000] x) => (double[N,M] y)"
LARGE = {
    "LpNormalization": ("y = LpNormalization(x)", FULL, (10, 3000)),
    "Softmax": ("y = Softmax(x)", FULL, (10, 3000)),
    "CumSum": ("y = CumSum(x, one)", FULL, (10, 3000)),
    "Tanh": ("y = Tanh(x)", "(double[1000000] x) => (double[N] y)", (1000000,)),
    "a square": ("t = Tanh(x) y = Mul(t, t)", "(double[3000000] x) => (double[N] y)", (3000000,)),
    "an outer product": ("t = Transpose(x) y = Mul(x, t)",
                         "(double[600,1] x) => (double[N,M] y)", (600, 1)),
    "three full matrices": ("a = Softmax(x) b = Softmax(a) y = Softmax(b)",
                            "(double[1,1500] x) => (double[N,M] y)", (1, 1500)),
    "distances": ("p = Reshape(x, sp) q = Reshape(x, sq) d = Sub(p, q) e = Exp(d) "
                  "y = ReduceL2<keepdims=0>(e)",
                  "(double[60,20] x) => (double[N,M] y)", (60, 20)),
}  # fmt: skip
SHAPES = {"sp": np.array([60, 1, 20]), "sq": np.array([1, 60, 20]), "one": np.array(1)}


@pytest.mark.parametrize("case", LARGE)
def test_no_check_takes_more_than_64_mib(case):
    """Beyond what J holds; or five vectors of its rows and columns, where these are more."""
    body, signature, shape = LARGE[case]
    x = np.random.default_rng(0).standard_normal(shape)
    J = linearized(body, signature, weights={k: a for k, a in SHAPES.items() if k in body}, x=x)
    vectors = 5 * 8 * sum(J.shape)
    tracemalloc.start()
    try:
        assert J.check()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak <= J.nbytes + max(2**26, vectors)


# -- correct results pass --------------------------------------------------------------------------

UNARY = ("Abs", "Acos", "Asinh", "Atan", "Celu", "Ceil", "Cosh", "Elu", "Erf", "Exp", "Gelu",
         "HardSigmoid", "HardSwish", "LeakyRelu", "Log", "Mish", "Reciprocal", "Relu", "Round",
         "Selu", "Sigmoid", "Sign", "Sin", "Softmax", "LogSoftmax", "Softplus", "Softsign", "Sqrt",
         "Tan", "Tanh", "ThresholdedRelu")  # fmt: skip
BODIES = [
    *(f"y = {op}(x)" for op in UNARY),
    "z = Sub(x, x) y = Exp(z)",  # constant
    "z = Sub(x, x) y = Add(z, big)",  # constant and large
    "z = Mul(x, tiny) y = Add(z, big)",  # nearly
    "z = Add(x, mid) y = Sub(z, mid)",  # J = I after cancellation
    "m = Mul(x, big) s = Sigmoid(m) y = Add(s, x)",  # saturated
    "m = Mul(x, mid) y = Sin(m)",  # fast
    "m = Mul(x, tiny) y = Tanh(m)",
    "p = Mul(x, x) q = Mul(p, p) r = Mul(q, q) y = Mul(r, q)",
    "p = MatMul(x, w) r = Relu(p) q = MatMul(r, w) s = Relu(q) y = MatMul(s, w)",
    "m = ReduceMean<keepdims=1>(x, one) y = Sub(x, m)",
    "y = LayerNormalization(x, g)",
    "s = ReduceSumSquare(x) r = Sqrt(s) y = Div(x, r)",
    "y = CumSum(x, one0)",
    "a = Abs(x) y = Pow(a, big0)",
    "c = Clip(x, low, high) y = Mul(c, x)",
    "m = ReduceMax<keepdims=1>(x) y = Sub(x, m)",
    "e = Equal(x, x) y = Where(e, x, big)",
    "t = Transpose(x) m = MatMul(x, t) y = MatMul(m, x)",
]
CONSTANTS = {"big": 1e6, "mid": 1e3, "tiny": 1e-8, "w": W, "g": np.ones(3),
             "low": -0.5, "high": 0.5, "one": np.array([1]), "one0": np.array(1),
             "big0": 2.5}  # fmt: skip


@pytest.mark.sampled(0.4)
@pytest.mark.parametrize("size", ["plain", "small", "large", "zero", "half"])
@pytest.mark.parametrize("dtype", ["double", "float"])
@pytest.mark.parametrize("body", BODIES)
@pytest.mark.filterwarnings("ignore")
def test_no_false_alarm(body, dtype, size):
    """At generic points, close to 0, far from 0, and on kinks."""
    x = {"plain": X, "small": 1e-5 * X, "large": 30 * X, "zero": 0 * X, "half": np.round(2 * X) / 2}
    kind = {"double": np.float64, "float": np.float32}[dtype]
    weights = {k: np.asarray(c, kind) if np.asarray(c).dtype.kind == "f" else c
               for k, c in CONSTANTS.items() if k in body}  # fmt: skip
    J = linearized(body, f"({dtype}[2,3] x) => ({dtype}[2,3] y)", weights=weights,
                   x=x[size].astype(kind))  # fmt: skip
    finite = np.isfinite(J.primal["y"]).all() and np.isfinite(J @ np.eye(6, dtype=kind)).all()
    lost = body.startswith("z = Add(x, mid)") and (dtype, size) == ("float", "small")
    assert J.check().verdict == (NOT_COMPARED if lost else RIGHT) or not finite


def test_no_false_alarm_beside_a_kept_loop():
    """Normalised columns of x w, which no scale of a row of x moves: J is 0 up to rounding."""
    J = linearized(
        """l = Loop(n, yes, x) <body = turn (int64 i, bool g, double[2,1] s) =>
            (bool go, double[2,1] z) { z = Sin(s) go = Identity(g) }>
        h = Mul(x, w) y = LpNormalization<axis = 1, p = 2>(h)""",
        "(double[2,1] x) => (double[2,2] y, double[2,1] l)", x=X[:, :1],
        weights={"n": np.array(60), "yes": np.array(True), "w": W[:1, :2]},
    )  # fmt: skip
    assert len(J.dag.edges) < 20  # the loop is one operator
    assert J.check().verdict == RIGHT
