"""float16 and bfloat16 are multiplied and added in float32, and rounded once."""

import re

import ml_dtypes
import numpy as np
import pytest

import onnxjac as oj
from onnxjac.ops.numbers import numbers as op

from ..jacobians.examples import EXAMPLES, Draw
from .models import ENGINES, model

HALVES = [np.float16, ml_dtypes.bfloat16]
MANY = 10_000
"""The number of ones to add: a sum in float16 stops at 2048, in bfloat16 at 256."""

halves = pytest.mark.parametrize("dtype", HALVES, ids=lambda d: np.dtype(d).name)


def ones(dtype, *shape):
    return np.ones(shape, dtype)


PLACES = np.zeros((MANY, 1), np.int64)

SUMS = {
    "ReduceSum": lambda d: op.ReduceSum(ones(d, MANY)),
    "ReduceMean": lambda d: (MANY * op.ReduceMean(ones(d, MANY)).astype(float)).astype(d),
    "CumSum": lambda d: op.CumSum(ones(d, MANY), 0)[-1],
    "MatMul": lambda d: op.MatMul(ones(d, 1, MANY), ones(d, MANY, 1)),
    "Gemm": lambda d: op.Gemm(ones(d, 1, MANY), ones(d, MANY, 1)),
    "Einsum": lambda d: op.Einsum(ones(d, MANY), ones(d, MANY), equation="i,i->"),
    "Conv": lambda d: op.Conv(ones(d, 1, 1, MANY), ones(d, 1, 1, MANY)),
    "ConvTranspose": lambda d: op.ConvTranspose(ones(d, 1, MANY, 1), ones(d, MANY, 1, 1)),
    "ScatterND": lambda d: op.ScatterND(np.zeros(1, d), PLACES, ones(d, MANY), reduction="add"),
    "ScatterElements": lambda d: op.ScatterElements(
        np.zeros(1, d), PLACES[:, 0], ones(d, MANY), reduction="add"
    ),
    "Sum": lambda d: op.Sum(*[ones(d, 1)] * MANY),
}


@halves
@pytest.mark.parametrize("name", SUMS)
def test_kernels_add_up_in_float32(name, dtype):
    found = np.ravel(SUMS[name](dtype)).astype(float)
    assert found == float(np.array(MANY, dtype))


NETS = {
    "a product of matrices": ("y = MatMul(x, w)", "[1,N]", "[1,1]", ones(np.float32, MANY, 1)),
    "a sum": ("y = ReduceSum<keepdims = 1>(x)", "[1,N]", "[1,1]", None),
    "a broadcast": ("y = Mul(x, w)", "[1,N]", "[1,N]", ones(np.float32, 1, 1)),
    "a choice": ("y = Gather<axis = 1>(w, i)", "[1,N]", "[1,N]", ones(np.float32, 1, 1)),
    "branches": (" ".join(f"a{k} = Neg(x)" for k in range(300))
                 + " y = Sum(" + ", ".join(f"a{k}" for k in range(300)) + ")", "[1,N]", "[1,N]",
                 None),
}  # fmt: skip


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
@pytest.mark.parametrize("case", NETS)
@pytest.mark.parametrize("engine", [None, *ENGINES])
def test_products_add_up_in_float32(case, kind, engine):
    """J v or Jᵀ u adds up many ones, or minus ones, one per entry."""
    body, of_x, of_y, w = NETS[case]
    dtype = np.dtype(getattr(ml_dtypes, kind, kind))
    weights = {} if w is None else {"w": w.astype(dtype)}
    if "Gather" in body:
        weights["i"] = np.zeros(MANY, np.int64)
    m = model(body, f"({kind}{of_x} x) => ({kind}{of_y} y)", **weights)
    n = 8 if case == "branches" else MANY
    J = oj.linearize(m, {"x": ones(dtype, 1, n)}, wrt=list(weights)[:1] or "x", engine="numpy")
    J = J if engine is None else J.compile(engine)
    for K, paths in ((J, MANY / J.shape[0]), (J.T, MANY / J.shape[1])):
        expected = -300 if case == "branches" else max(paths, 1)
        found = K @ ones(dtype, K.shape[1])
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, np.array(expected, dtype))


@halves
@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_every_operator_is_rounded_once(name, dtype):
    """J v is within 1.5 ε |J| |v| of exact, by every engine, also for float32 v."""
    J, matrix = EXAMPLES[name][1](Draw(0, dtype))
    matrix = np.asarray(matrix, float)
    eps = float(ml_dtypes.finfo(dtype).eps)
    for K, A in ((J, matrix), (J.T, matrix.T)):
        v = np.random.default_rng(1).standard_normal(K.shape[1]).astype(dtype)
        exact, scale = A @ v.astype(float), np.abs(A) @ np.abs(v.astype(float))
        for found in (K @ v, K.compile("numpy") @ v):
            assert found.dtype == K.dtype
            assert (np.abs(found.astype(float) - exact) <= 1.5 * eps * scale + 1e-30).all()
        fine = (K @ v.astype(np.float32)).astype(float)
        assert (np.abs(fine - exact) <= 1.5 * eps * scale + 1e-30).all()


MIXED = {
    "float32, float16, float32": (
        "a = Cast<to = 10>(x) b = Mul(a, a) c = MatMul(b, w) y = Cast<to = 1>(c)",
        "(float[2,3] x) => (float[2,3] y)", np.float16),
    "float32, bfloat16, float32": (
        "a = Cast<to = 16>(x) b = Mul(a, a) c = MatMul(b, w) y = Cast<to = 1>(c)",
        "(float[2,3] x) => (float[2,3] y)", ml_dtypes.bfloat16),
    "float32, float64, float32": (
        "a = Cast<to = 11>(x) b = Mul(a, a) c = MatMul(b, w) y = Cast<to = 1>(c)",
        "(float[2,3] x) => (float[2,3] y)", np.float64),
    "float16 to bfloat16": (
        "b = MatMul(x, w) y = Cast<to = 16>(b)", "(float16[2,3] x) => (bfloat16[2,3] y)",
        np.float16),
    "outputs of two widths": (
        "b = MatMul(x, w) c = Mul(b, x) y = Cast<to = 11>(c) z = Neg(b)",
        "(float[2,3] x) => (double[2,3] y, float[2,3] z)", np.float32),
    "inputs of two widths": (
        "b = Cast<to = 1>(h) c = MatMul(b, w) y = Mul(c, x)",
        "(float[2,3] x, float16[2,3] h) => (float[2,3] y)", np.float32),
}  # fmt: skip


@pytest.mark.parametrize("case", MIXED)
def test_all_engines_agree_on_mixed_precision(case):
    """All ways to compute a product agree to the precision of J, whatever the inner dtypes."""
    body, signature, dtype = MIXED[case]
    rng = np.random.default_rng(0)
    m = model(body, signature, w=rng.standard_normal((3, 3)).astype(dtype))
    point = {k: rng.standard_normal((2, 3)).astype(spec.dtype) for k, spec in m.inputs.items()}
    J = oj.linearize(m, point, engine="numpy")
    eps = 1e-12 if J.dtype == np.float64 and case != "outputs of two widths" else 1e-6
    for K in (J, J.T):
        v = rng.standard_normal(K.shape[1]).astype(K.dtype)
        expected = K.toarray().astype(float) @ v
        for engine in (None, *ENGINES):
            found = (K if engine is None else K.compile(engine)) @ v
            assert found.dtype == K.dtype
            assert np.linalg.norm(found - expected) <= eps * np.linalg.norm(expected)


WIDTHS = {
    "Pow": ("y = Pow(x, w)", "(float[2,3] x) => (float[2,3] y)"),
    "BatchNormalization": (
        "y = BatchNormalization(x, w, w, w, w)", "(float[2,3] x) => (float[2,3] y)"),
    "BatchNormalization of the batch": (
        "y, m, v = BatchNormalization<training_mode = 1>(x, w, w, w, w)",
        "(float[2,3] x) => (float[2,3] y, double[3] m, double[3] v)"),
}  # fmt: skip


@pytest.mark.parametrize("case", WIDTHS)
def test_operators_whose_inputs_have_two_widths_are_recorded(case):
    """Graphs convert nothing by themselves: every derivative has the type of its tensor."""
    rng = np.random.default_rng(0)
    m = model(*WIDTHS[case], w=rng.random(3) + 0.5)
    point = {"x": rng.random((2, 3), dtype=np.float32) + 0.5}
    J = oj.linearize(m, point, wrt=["x", "w"])
    for mode, kind, K in (("jvp", "tangent", J), ("vjp", "cotangent", J.T)):
        made = oj.load(oj.export(m, mode, point, wrt=["x", "w"]))
        seeds = {s.name: rng.random(s.shape).astype(s.dtype) for s in K.domain}
        named = {f"{name}_{kind}": seed for name, seed in seeds.items()}
        found = made.run({**point, **m.constants, **named}, engine="numpy")
        for spec in K.codomain:
            got, expected = found[f"{spec.name}_{kind}"], K.apply(seeds)[spec.name]
            assert got.dtype == spec.dtype
            np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


PARAMETERS = "float[3] s, float[3] b, float[3] m, float[3] v"
TYPED = {
    "BatchNormalization": (f"{{0}}[2,3] x, {PARAMETERS}", "{0}[2,3] y",
                           "y = BatchNormalization(x, s, b, m, v)"),
    "BatchNormalization of the batch": (
        f"{{0}}[2,3] x, {PARAMETERS}", "{0}[2,3] y, float[3] r, float[3] t",
        "y, r, t = BatchNormalization<training_mode = 1>(x, s, b, m, v)"),
    "LayerNormalization": ("{0}[2,3] x, {0}[3] s", "{0}[2,3] y, float[2,1] m, float[2,1] v",
                           "y, m, v = LayerNormalization(x, s)"),
    "RMSNormalization": ("{0}[2,3] x, float[3] s", "float[2,3] y", "y = RMSNormalization(x, s)"),
    "RMSNormalization by halves": ("float[2,3] x, {0}[3] s", "{0}[2,3] y",
                                   "y = RMSNormalization(x, s)"),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::onnxjac.OnnxJacWarning")
@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
@pytest.mark.parametrize("case", TYPED)
@pytest.mark.parametrize("engine", ["numpy", "torch"])
def test_outputs_have_the_types_that_onnx_says(engine, case, kind):
    """Values, Jᵀ u and exports, beside the same model in double precision."""
    pytest.importorskip(engine)
    inputs, outputs, body = (part.format(kind) for part in TYPED[case])
    signature, eps = f"({inputs}) => ({outputs})", 0.05 if kind == "bfloat16" else 0.005
    m = model(body, signature, opset=23)
    fine = model(body, re.sub(rf"({kind}|float)\[", "double[", signature), opset=23)
    rng = np.random.default_rng(0)
    point = {k: (rng.random(s.shape) + 0.5).astype(s.dtype) for k, s in m.inputs.items()}
    J, K = oj.linearize(m, point, engine=engine), oj.linearize(fine, point, engine="numpy")
    u = {name: np.ones_like(y) for name, y in J.primal.items()}
    made = oj.load(oj.export(m, "vjp", point))
    found = made.run({**point, **{f"{k}_cotangent": x for k, x in u.items()}}, engine=engine)
    wanted, products = K.T.apply(u), J.T.apply(u)
    pairs = [(J.primal[k], K.primal[k], m.outputs[k].dtype) for k in u]
    pairs += [(found[f"{k}_cotangent"], wanted[k], m.inputs[k].dtype) for k in wanted]
    for x, exact, dtype in (*pairs, *((products[k], wanted[k], J.dtype) for k in wanted)):
        assert x.dtype == dtype
        np.testing.assert_allclose(x.astype(float), exact, rtol=eps, atol=eps)


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_a_sparse_matrix_of_halves(kind):
    """SciPy has no sparse float16 matrices: the entries are float32, unrounded."""
    m = model("t = Mul(x, w) y = Tanh(t)", f"({kind}[N] x) => ({kind}[N] y)",
              w=np.array([1, 2, 3]).astype(getattr(ml_dtypes, kind, kind)))  # fmt: skip
    J = oj.linearize(m, {"x": [0.5, 1, 2]}, engine="numpy")
    A = J.tosparse()
    assert A.dtype == np.float32
    np.testing.assert_allclose(A.toarray(), J.toarray().astype(np.float32), rtol=2e-2)
    assert J.relinearize({"x": [1, 1, 1]}).tosparse(out=A) is A


def test_solvers_refuse_what_scipy_cannot_hold():
    m = model("y = Mul(x, x)", "(bfloat16[2] x) => (bfloat16[2] y)")
    with pytest.raises(oj.InputError, match="SciPy solves nothing in bfloat16"):
        oj.levenberg_marquardt(m, {"x": [1.0, 2.0]})
