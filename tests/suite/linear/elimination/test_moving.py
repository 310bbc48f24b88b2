"""One program for all points: it equals a fresh Jacobian, and is built once."""

import numpy as np
import onnx.parser
import pytest
from numpy.testing import assert_allclose

import onnxjac as oj
from onnxjac.modes.linear.elimination import adaptive
from onnxjac.modes.model.programs import numpy, onnxruntime

pytest.importorskip("onnxruntime")
RNG = np.random.default_rng(11)
HEAD = '<ir_version: 10, opset_import: ["": 21]>'

MODELS = {
    "layers": """g (double[4,3] x, double[3,5] w, double[5,2] v) => (double[4,2] y)
        { a = MatMul(x, w) h = Tanh(a) b = MatMul(h, v) y = Softmax(b) }""",
    "diagonals": "g (double[4] x) => (double[4] y) { s = Sin(x) t = Tanh(s) y = Mul(t, s) }",
    "a mask": "g (double[4] x) => (double[4] y) { s = Sin(x) r = Relu(s) y = Exp(r) }",
    "a norm": """g (double[4,3] x) => (double[4,3] y) <int64[1] last = {-1}>
        { m = ReduceMean(x, last) c = Sub(x, m) q = Mul(c, c) v = ReduceMean(q, last)
          s = Sqrt(v) y = Div(c, s) }""",
    "a factor": "g (double[4] x, double[1] c) => (double[4] y) { s = Sin(x) y = Mul(s, c) }",
    "a pool": """g (float[1,1,6,6] x, float[2,1,3,3] w) => (float[1,2,2,2] y)
        { c = Conv(x, w) r = Relu(c) y = MaxPool<kernel_shape=[2, 2], strides=[2, 2]>(r) }""",
    "places": """g (double[3,4] x, int64[5] i) => (double[5,4] y)
        { e = Exp(x) y = Gather(e, i) }""",
    "choices": """g (double[6] x, bool[6] c) => (double[6] y)
        <double zero = {0}> { r = Sqrt(x) y = Where(c, r, zero) }""",
    "one number": """g (double[3] x, double w) => (double[3] y)
        { y = Einsum<equation="i,->i">(x, w) }""",
    "a turned weight": """g (double[4,3] x, double[5,3] w, double[5,5] v) => (double[4,5] y)
        { t = Transpose<perm=[1, 0]>(w) a = MatMul(x, t) h = Tanh(a) u = Transpose(v)
          i = Transpose<perm=[0, 1]>(u) b = MatMul(h, i) y = Exp(b) }""",
    "a sum": """g (double[3] x) => (double y) { e = Exp(x) y = ReduceSumSquare<keepdims=0>(e) }""",
    "a loss": """g (double[4,3] x, int64[4] t) => (double y)
        { y = SoftmaxCrossEntropyLoss(x, t) }""",
}

def model(name):
    return oj.load(onnx.parser.parse_model(HEAD + MODELS[name]))


def point(m):
    """Random numbers for all inputs."""
    made = {}
    for name, spec in m.inputs.items():
        kind = np.dtype(spec.dtype).kind
        made[name] = (RNG.integers(0, 3, spec.shape) if kind == "i"
                      else RNG.integers(0, 2, spec.shape).astype(bool) if kind == "b"
                      else RNG.uniform(0.1, 1.5, spec.shape).astype(spec.dtype))  # fmt: skip
    return made


@pytest.fixture
def by_program(inside):
    """J ↦ (v ↦ J v) by the shared program, built at once."""

    def made(J, columns=()):
        shared = inside.shared(J)
        program = shared.prepare(columns)
        assert program is not None
        return lambda v: shared.product(program, J.at, v)

    return made


@pytest.mark.parametrize("name", MODELS)
def test_a_program_is_right_at_all_points(name, by_program):
    m = model(name)
    J = oj.linearize(m, point(m))
    for _ in range(4):
        at = point(m)
        J = J.relinearize(at)
        fresh = oj.linearize(model(name), at).toarray()
        for A, matrix in ((J, fresh), (J.T, fresh.T)):
            n = A.shape[1]
            made = by_program(A, (n,))(np.eye(n, dtype=A.dtype)).T
            near = 100 * np.finfo(A.dtype).eps
            assert_allclose(made, matrix, rtol=near, atol=near)


def test_vertices_are_eliminated_once_for_all_points(inside):
    m = model("diagonals")
    J = oj.linearize(m, point(m)).relinearize(point(m))
    dag = inside.shared(J).eliminated
    assert len(dag.edges) == 1 < len(J.dag.edges)
    K = J.relinearize(point(m))
    assert inside.shared(K).eliminated is dag
    x = K.point["x"]
    _, names = inside.shared(K).prepare()
    (d,) = K.at.arrays(names).values()
    s = np.sin(x)
    assert_allclose(d, np.cos(x) * (np.tanh(s) + s / np.cosh(s) ** 2), rtol=1e-12)


def test_an_entry_that_is_left_out_has_no_part_where_its_derivative_is_infinite(by_program, inside):
    m = model("choices")
    J = oj.linearize(m, point(m)).relinearize(point(m))
    x, c = np.array([0.0, 1, 0, 4, 9, 0]), np.array([0, 1, 0, 1, 1, 0], bool)
    by_program(J)
    K = J.relinearize({"x": x, "c": c})
    assert inside.shared(K) is None  # a program multiplies by all entries
    for side in (K, K.T):
        assert_allclose(side @ np.ones(6), [0, 1 / 2, 0, 1 / 4, 1 / 6, 0])


def test_nothing_is_recorded_at_a_new_point(monkeypatch, by_program, inside):
    m = model("layers")
    J = oj.linearize(m, point(m)).relinearize(point(m))
    by_program(J)
    monkeypatch.setattr(adaptive, "product_values", None)
    monkeypatch.setattr(adaptive, "compiler", None)
    K = J.relinearize(point(m))
    v = RNG.standard_normal(J.shape[1])
    fresh = oj.linearize(model("layers"), K.point).toarray()
    assert_allclose(K @ v, fresh @ v, rtol=1e-12)
    assert K.structure.choice == "by the program of all points"
    assert not inside.has_dag(K)


def test_a_block_and_a_transpose_have_programs_of_their_own(by_program):
    m = model("layers")
    J = oj.linearize(m, point(m)).relinearize(point(m))
    matrix, block = J.toarray(), J["y", "v"]
    v, u = RNG.standard_normal(10), RNG.standard_normal(8)
    assert_allclose(by_program(block)(v), matrix[:, 27:] @ v, rtol=1e-12)
    assert_allclose(by_program(block.T)(u), u @ matrix[:, 27:], rtol=1e-12)
    assert_allclose(by_program(J.T)(u), u @ matrix, rtol=1e-12)


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
def test_a_row_that_is_masked_out_at_one_point_only(op):
    text = f"g (double[2,3] x, double[2,3] w) => (double[2,3] y) {{ a = Add(x, w) y = {op}(a) }}"
    m = oj.load(onnx.parser.parse_model(HEAD + text))
    mask = np.array([[0, 0, 0], [-np.inf] * 3])
    J = oj.linearize(m, {"x": RNG.standard_normal((2, 3)), "w": np.zeros((2, 3))})
    for w in (0 * mask[:1] + np.zeros((2, 3)), mask, np.zeros((2, 3)), mask):
        x = RNG.standard_normal((2, 3))
        with pytest.warns(oj.OnnxJacWarning) if np.isinf(w).any() else no_warning():
            J = J.relinearize({"x": x, "w": w})
            fresh = oj.linearize(oj.load(onnx.parser.parse_model(HEAD + text)), J.point)
        v = RNG.standard_normal(12)
        assert_allclose(J @ v, fresh @ v, rtol=1e-12, atol=1e-14)
        assert_allclose(J.toarray(), fresh.toarray(), rtol=1e-12, atol=1e-14)


def test_a_nan_where_another_step_is_read_at_every_point():
    """The scores of LogSoftmax are inspected before the operators are built."""
    text = """g (double[2,3] x, double[2,3] w) => (double[2,3] z) <int64 n = {60}, bool t = {1}>
        { a = Add(x, w) y = LogSoftmax(a) z = Loop(n, t, y) <body = b (int64 i, bool c,
          double[2,3] s) => (bool d, double[2,3] r) { d = Less(i, n) r = Sin(s) }> }"""
    m = oj.load(onnx.parser.parse_model(HEAD + text))
    J = oj.linearize(m, {"x": RNG.standard_normal((2, 3)), "w": np.zeros((2, 3))})
    for _ in range(3):
        J = J.relinearize({"x": RNG.standard_normal((2, 3)), "w": np.zeros((2, 3))})
        fresh = oj.linearize(oj.load(onnx.parser.parse_model(HEAD + text)), J.point)
        assert not J.at.derivative.closed
        assert_allclose(J.toarray(), fresh.toarray(), rtol=1e-12, atol=1e-14)


def no_warning():
    import contextlib

    return contextlib.nullcontext()


@pytest.mark.parametrize("engines", [1, 2])
def test_products_survive_a_failing_engine(monkeypatch, engines, inside):
    def failing(*arguments):
        raise RuntimeError("no kernel")

    for kind in (onnxruntime.Program, numpy.Program)[:engines]:
        monkeypatch.setattr(kind, "bind", failing)
    m = model("layers")
    J = oj.linearize(m, point(m)).relinearize(point(m))
    assert (inside.shared(J).prepare() is None) == (engines == 2)
    v = RNG.standard_normal(J.shape[1])
    assert_allclose(J @ v, oj.linearize(model("layers"), J.point).toarray() @ v, rtol=1e-12)


@pytest.mark.parametrize("name", MODELS)
def test_numpy_runs_the_program_as_well(name, inside):
    m = model(name)
    J = oj.linearize(m, point(m), engine="numpy").relinearize(point(m))
    fresh = oj.linearize(model(name), J.point).toarray()
    for A, matrix in ((J, fresh), (J.T, fresh.T)):
        program = inside.shared(A).prepare()
        assert isinstance(program[0], numpy.Program)
        v = RNG.standard_normal(A.shape[1]).astype(A.dtype)
        y = inside.shared(A).product(program, A.at, v)
        assert_allclose(y, matrix @ v, rtol=1e-4 if A.dtype == np.float32 else 1e-12, atol=1e-5)


def test_a_default_product_is_by_the_program_once_products_repay_it(inside):
    """The point changes at every step, as in an optimiser's loop."""
    m = model("layers")
    J = oj.linearize(m, point(m))
    while J.structure.choice != "by the program of all points":
        J = J.relinearize(point(m))
        shared = inside.shared(J)
        assert shared.work[()] < 2 * shared.cost
        J @ np.ones(J.shape[1])
    K = J.relinearize(point(m))
    fresh = oj.linearize(model("layers"), K.point).toarray()
    v = RNG.standard_normal(J.shape[1])
    assert_allclose(K @ v, fresh @ v, rtol=1e-12)


def test_programs_for_ever_new_numbers_of_columns_have_a_limit(inside):
    m = model("layers")
    J = oj.linearize(m, point(m)).relinearize(point(m))
    inside.shared(J).cost = 0.0
    matrix = J.toarray()
    for k in range(1, 2 * adaptive.CACHED_PROGRAMS):
        v = RNG.standard_normal((J.shape[1], k))
        assert_allclose(J @ v, matrix @ v, rtol=1e-12)
    assert len(inside.programs(inside.shared(J))) == adaptive.CACHED_PROGRAMS


def test_relinearize_keeps_the_compiled_program():
    m, loss = model("layers"), model("a sum")
    J, G = oj.linearize(m, point(m)), oj.gauss_newton(loss, point(loss), of="y", at="e")
    for C, at in ((J, point(m)), (G, point(loss))):
        v, plain = RNG.standard_normal(C.shape[1]), C.relinearize(at)
        left_open, named = (C.compile(engine).relinearize(at) for engine in (None, "numpy"))
        assert "by numpy" in repr(named.structure)
        assert "by " not in repr(left_open.structure)
        assert_allclose(left_open @ v, plain @ v, rtol=1e-12)
        assert_allclose(named @ v, plain @ v, rtol=1e-12)


def test_where_onnx_runtime_has_no_kernel_rules_are_still_asked_once():
    text = """g (double[1,1,4,4] x) => (double[1,1,2,2] y)
        { s = Sin(x) y = MaxPool<kernel_shape=[2, 2], strides=[2, 2]>(s) }"""
    m = oj.load(onnx.parser.parse_model(HEAD + text))
    J = oj.linearize(m, point(m))
    for _ in range(3):
        J = J.relinearize(point(m))
        assert J.at.derivative is not None
        fresh = oj.linearize(oj.load(onnx.parser.parse_model(HEAD + text)), J.point)
        assert_allclose(J.toarray(), fresh.toarray(), rtol=1e-12)


def test_a_transposed_weight_is_read_where_it_lies(by_program, inside):
    """A copy in another order would take as long as a small product."""
    m = model("layers")
    J = oj.linearize(m, point(m)).relinearize(at := point(m))
    product = by_program(J)
    read = J.at.arrays(inside.shared(J).prepare()[1]).values()
    assert any(np.shares_memory(x, J.point["v"]) for x in read)
    assert_allclose(product(np.eye(J.shape[1])[7].reshape(J.in_shape)).ravel(),
                    oj.linearize(m, at).toarray()[:, 7], rtol=1e-12)  # fmt: skip
