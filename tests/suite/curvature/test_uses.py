"""Kronecker factors from structure: any operator that uses a weight as a matrix."""

import sys
import time

import numpy as np
import onnx.parser
import pytest
from numpy.testing import assert_allclose

import onnxjac as oj
from onnxjac.jacobians import Diagonal, size, threads
from onnxjac.jacobians.errors import UnsupportedOp
from onnxjac.modes.curvature.fisher import LIKELIHOODS, empirical_fisher, fisher
from onnxjac.modes.curvature.gradients import Gradients, per_sample, sample_diagonal
from onnxjac.modes.curvature.kfac import ekfac, gram, kfac, shampoo

from .models import gradients, network, parsed, regression
from .use_cases import CASES, RNG, N, made


@pytest.fixture(autouse=True)
def two_threads():
    """Linear algebra in two threads, as users have it, whatever the environment says."""
    with threads.libraries().limit(limits=2):
        yield


def found_for(model, point, **options):
    return gradients(model, point, at="out", wrt="W", likelihood="gaussian", **options)


@pytest.mark.parametrize("case", CASES)
def test_gradients_of_samples_agree_with_j(case):
    """Σₛ xₙₛ gₙₛᵀ, scattered to W, is Jₙᵀ u for every sample n."""
    model, point = made(case)
    found = found_for(model, point)
    u = RNG.standard_normal((1, *found.z.shape))
    J, total = found.J.toarray().reshape(N, -1, found.J.shape[1]), 0
    for layer, g in found.cotangents(u):
        G = per_sample(layer.x, g)[0]
        total = total + np.stack([layer.start.T @ G[:, n].ravel() for n in range(N)])
    assert_allclose(total, np.einsum("nc,ncw->nw", u[0], J), atol=1e-12)


@pytest.mark.parametrize("case", ["matmul", "gemm, scaled", "transposed, reshaped", "bias"])
def test_one_sample_and_position_is_exact(case):
    model, point = made(case, samples=1)
    options = {"at": "out", "wrt": "W", "likelihood": "gaussian"}
    F = fisher(model, point, **options).toarray()
    for make in (kfac, ekfac):
        assert_allclose(make(model, point, **options).toarray(), F, atol=1e-12)


@pytest.mark.parametrize("case", ["matmul", "matmul, of tokens", "conv", "slices for three uses"])
def test_ekfac_has_the_diagonal_of_fisher_in_its_basis(case):
    """λ = diag(Qᵀ F Q) for each use of W, so that the trace equals that of F."""
    model, point = made(case)
    options = {"at": "out", "wrt": "W", "likelihood": "gaussian", "reduction": "sum"}
    E, F = ekfac(model, point, **options), fisher(model, point, **options).toarray()
    Q = E.eigenvectors().toarray()
    assert_allclose(Q.T @ Q, np.eye(len(Q)), atol=1e-12)
    assert_allclose(E.eigenvalues(), np.diag(Q.T @ F @ Q), atol=1e-10)
    assert_allclose(E.trace(), np.trace(F), rtol=1e-10)


@pytest.mark.parametrize("case", ["matmul", "matmul, a weight for each head", "conv, groups",
                                  "slices for three uses", "table", "beside constants",
                                  "padded kernel", "some rows"])  # fmt: skip
@pytest.mark.parametrize("make", [kfac, ekfac, shampoo])
def test_functions_of_factors_match_the_matrix(case, make):
    """Inverse, trace, determinant and eigendecomposition match the dense matrix."""
    model, point = made(case)
    K = make(model, point, at="out", wrt="W", likelihood="gaussian", reduction="sum")
    A, n = K.toarray(), K.shape[0]
    Q, values = K.eigenvectors().toarray(), K.eigenvalues()
    assert K.T is K
    assert_allclose(A, A.T, atol=1e-12)
    assert_allclose((Q * values) @ Q.T, A, atol=1e-10)
    assert_allclose(K.trace(), np.trace(A), rtol=1e-10)
    assert_allclose(K.inverse(0.1).toarray(), np.linalg.inv(A + 0.1 * np.eye(n)), atol=1e-10)
    sign, logdet = np.linalg.slogdet(A)
    if sign > 0 and values.min() > 1e-6:
        assert_allclose(K.logdet(), logdet, rtol=1e-8)
        assert_allclose(K.det(), np.linalg.det(A), rtol=1e-6)
        assert_allclose(K.inverse().toarray() @ A, np.eye(n), atol=1e-6)


def test_heuristic_damping_agrees_with_the_factors():
    model, point = made("matmul")
    K = kfac(model, point, at="out", wrt="W", likelihood="gaussian")
    (f,) = K.factors["W"]
    (A,), (B,), delta = f.left, f.right, 0.3
    pi = np.sqrt((np.trace(A) / len(A)) / (np.trace(B) / len(B)))
    left = np.linalg.inv(A + pi * np.sqrt(delta) * np.eye(len(A)))
    right = np.linalg.inv(B + np.sqrt(delta) / pi * np.eye(len(B)))
    found = K.inverse(delta, heuristic=True).toarray()
    assert_allclose(found, np.kron(left, right), atol=1e-12)


def test_expand_and_reduce_differ_by_what_they_do_with_positions():
    model, point = made("matmul, of tokens")
    found = found_for(model, point, reduction="sum")
    ((g,),) = found.each(lambda _, x, g: g)
    x = point["x"]
    options = {"at": "out", "wrt": "W", "likelihood": "gaussian", "reduction": "sum"}
    (expand,) = kfac(model, point, **options).factors["W"]
    (reduce,) = kfac(model, point, approximation="reduce", **options).factors["W"]
    assert_allclose(expand.left[0], np.einsum("nsi,nsj->ij", x, x) / (2 * N), atol=1e-12)
    assert_allclose(reduce.left[0], np.einsum("ni,nj->ij", x.mean(1), x.mean(1)) / N, atol=1e-12)
    g = g[:, 0]
    assert_allclose(expand.right[0], np.einsum("knsp,knsq->pq", g, g), atol=1e-12)
    total = g.sum(axis=2)
    assert_allclose(reduce.right[0], np.einsum("knp,knq->pq", total, total), atol=1e-12)


def test_shampoo_is_the_root_of_second_moments():
    model, point = made("matmul")
    found = found_for(model, point, reduction="sum")
    ((G,),) = found.each(lambda _, x, g: per_sample(x, g)[:, 0])
    G = G.reshape(-1, *G.shape[2:])
    options = {"at": "out", "wrt": "W", "likelihood": "gaussian", "reduction": "sum"}
    (f,) = shampoo(model, point, **options).factors["W"]
    assert_allclose(f.left[0] @ f.left[0], np.einsum("nio,njo->ij", G, G), atol=1e-10)
    assert_allclose(f.right[0] @ f.right[0], np.einsum("nip,niq->pq", G, G), atol=1e-10)


@pytest.mark.parametrize("make", [kfac, ekfac])
def test_draws_are_divided_once(make, monkeypatch):
    """Among threads that take the threads of linear algebra: each draw counts once."""
    monkeypatch.setattr(Gradients, "room", 4096)
    model, point = network("mlp")
    options = {"at": "logits", "wrt": "6.weight", "fisher_type": "mc", "samples": 20_000, "seed": 3}
    found = []
    for count in (1, 2):
        threaded = property(lambda self, n=count: 1 if threads.limits else n)
        monkeypatch.setattr(Gradients, "threads", threaded)
        found.append(make(model, point, **options).toarray())
    assert_allclose(*found, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("make", [kfac, ekfac])
def test_empirical_and_monte_carlo(make):
    """E-KFAC has the trace of its Fisher type; B of K-FAC is a second moment of gradients."""
    model, point = network("mlp")
    options = {"at": "logits", "wrt": "6.weight", "reduction": "mean"}
    E = make(model, point, fisher_type="empirical", of="loss", **options)
    F = empirical_fisher(model, point, of="loss", at="logits", wrt="6.weight")
    if make is ekfac:
        assert_allclose(E.trace(), np.trace(F.toarray()), rtol=1e-10)
    else:
        (f,) = E.factors["6.weight"]
        g = oj.grad(model, point, of="loss", wrt="logits")["logits"] * 4
        assert_allclose(f.right[0], g.T @ g / 4, atol=1e-12)
    exact = make(model, point, **options).toarray()
    drawn = make(model, point, fisher_type="mc", samples=20_000, seed=3, **options).toarray()
    assert np.linalg.norm(drawn - exact) < 0.03 * np.linalg.norm(exact)


def test_a_weight_that_is_no_matrix_is_refused():
    model = parsed("g (double[5, 4] x, double[4, 4] W) => (double[5, 4] out) "
                   "{ S = Softmax(W) out = MatMul(x, S) }")  # fmt: skip
    point = {"x": RNG.standard_normal((5, 4)), "W": np.eye(4)}
    with pytest.raises(UnsupportedOp, match="no Kronecker product"):
        kfac(model, point, at="out", wrt="W", likelihood="gaussian")


def test_rows_that_mix_samples_are_refused():
    model = parsed("g (double[5, 4] x, double[5, 5] W) => (double[5, 4] out) "
                   "{ out = MatMul(W, x) }")  # fmt: skip
    point = {"x": RNG.standard_normal((5, 4)), "W": np.eye(5)}
    with pytest.raises(UnsupportedOp, match="each on its own"):
        kfac(model, point, at="out", wrt="W", likelihood="gaussian")


@pytest.mark.parametrize("wrt", ["W", ["V", "W"]])
def test_a_weight_in_a_state_that_the_output_never_reads_has_factors_of_zeros(wrt):
    """A loop that is kept is one operator, in which this state's path to `out` is zero."""
    model = parsed("""g (double[5, 4] x, double[4, 3] V, double[4, 3] W) => (double[5, 3] out)
    <int64 n = {200}, bool yes = {1}> { v = MatMul(x, V) w = MatMul(x, W)
    out, other = Loop(n, yes, v, w) <body = turn (int64 i, bool go, double[5, 3] s, double[5, 3] t)
    => (bool on, double[5, 3] a, double[5, 3] b) { on = Identity(go) a = Sin(s) b = Cos(t) }> }""")
    shapes = {"x": (5, 4), "V": (4, 3), "W": (4, 3)}
    point = {name: RNG.standard_normal(shape) for name, shape in shapes.items()}
    options = {"at": "out", "wrt": wrt, "likelihood": "gaussian"}
    F, K = fisher(model, point, **options), kfac(model, point, **options).toarray()
    of_v, of_w = K[:-12], K[-12:]
    assert not of_w.any()
    assert of_v.any() == (wrt != "W")
    wanted = np.diag(F.toarray())
    assert_allclose(oj.estimators.diagonal(F).value, wanted, rtol=1e-12)
    assert not wanted[-12:].any()


@pytest.mark.parametrize("wrt", ["z", ["W", "z"]])
def test_at_itself_counts_among_the_weights(wrt):
    """∂z/∂z = I: a use of all entries of z, whose rows are no samples."""
    model = parsed("""g (double[4, 2] x, int64[4] t, double[2, 3] W)
    => (double[4, 3] z, double loss) { z = MatMul(x, W) loss = SoftmaxCrossEntropyLoss(z, t) }""")
    point = {"x": RNG.standard_normal((4, 2)), "t": np.array([2, 0, 1, 1]), "W": np.ones((2, 3))}
    G = oj.gauss_newton(model, point, of="loss", at="z", wrt=wrt)
    F = fisher(model, point, at="z", wrt=wrt, likelihood="categorical")
    for A in (G, F):
        assert_allclose(oj.estimators.diagonal(A).value, np.diag(A.toarray()), atol=1e-12)
        assert_allclose(oj.estimators.trace(A).value, np.trace(A.toarray()), rtol=1e-12)
    with pytest.raises(UnsupportedOp, match="each on its own"):
        kfac(model, point, at="z", wrt=wrt, likelihood="categorical")


@pytest.mark.parametrize("body", [
    "z = Reshape(w, s)", "r = Reshape(w, s) z = Neg(r)",
    "a = Slice(v, one, four) z = Reshape(a, s)",
    "a = Concat<axis = 0>(w, one_more) b = Slice(a, one, four) z = Reshape(b, s)",
])  # fmt: skip
def test_a_weight_that_only_moves_to_at(body):
    """Of one sample, its factors are exact, and so is their inverse."""
    kind = "double[6] v" if "v" in body else "double[3] w"
    model = parsed(f"""g ({kind}) => (double[1, 3] z) <int64[2] s = {{1, 3}}, int64[1] one = {{1}},
    int64[1] four = {{4}}, double[1] one_more = {{0.5}}> {{ {body} }}""")
    point = {kind[-1]: RNG.standard_normal(6 if "v" in body else 3)}
    F = fisher(model, point, at="z", likelihood="categorical")
    assert_allclose(oj.estimators.diagonal(F).value, np.diag(F.toarray()), atol=1e-12)
    K = kfac(model, point, at="z", wrt=kind[-1], likelihood="categorical")
    assert_allclose(K.toarray(), F.toarray(), atol=1e-12)
    if K.tiled:
        dense = np.linalg.inv(F.toarray() + 0.1 * np.eye(K.shape[0]))
        assert_allclose(K.inverse(0.1).toarray(), dense, atol=1e-10)


def test_uses_that_overlap_have_no_inverse():
    model = parsed("""g (double[5, 4] x, double[4, 4] W) => (double[5, 4] out)
    { a = MatMul(x, W) t = Transpose<perm = [1, 0]>(W) out = MatMul(a, t) }""")
    point = {"x": RNG.standard_normal((5, 4)), "W": RNG.standard_normal((4, 4))}
    K = kfac(model, point, at="out", wrt="W", likelihood="gaussian")
    assert_allclose(K.trace(), np.trace(K.toarray()), rtol=1e-10)
    with pytest.raises(oj.InputError, match="tile"):
        K.inverse(1.0)
    A = K.toarray()
    assert_allclose(K.diagonal(), np.diag(A), atol=1e-12)
    assert_allclose(oj.estimators.trace(K).value, np.trace(A), rtol=1e-10)


def twice(second):
    """W, used as a matrix twice, the second time as it is or as `t`, its transpose."""
    model = parsed(f"""g (double[9, 4] x, double[4, 4] W) => (double[9, 4] out)
    {{ a = MatMul(x, W) b = Tanh(a) t = Transpose<perm = [1, 0]>(W) out = MatMul(b, {second}) }}""")
    return model, {"x": RNG.standard_normal((9, 4)), "W": RNG.standard_normal((4, 4))}


@pytest.mark.parametrize(("make", "second", "blocks"), [
    (kfac, "W", 1), (ekfac, "W", 1), (shampoo, "W", 1), (kfac, "t", 2)])  # fmt: skip
def test_a_weight_used_twice_has_a_determinant(make, second, blocks):
    """By factors where both uses have one layout; of the dense matrix for W and Wᵀ."""
    model, point = twice(second)
    K = make(model, point, at="out", wrt="W", likelihood="gaussian", reduction="sum")
    assert len(K.blocks) == blocks
    A, delta = K.toarray(), 0.1 * oj.identity_like(K)
    for J, dense in ((K, A), (K + delta, A + 0.1 * np.eye(16)), (2 * K, 2 * A)):
        assert_allclose(J.slogdet(), np.linalg.slogdet(dense), rtol=1e-9)
        assert_allclose(oj.estimators.logdet(J).value, J.logdet(), rtol=1e-9)


@pytest.mark.parametrize("make", [ekfac, shampoo])
def test_a_weight_tied_to_its_transpose_is_refused(make):
    """The trace was wrong by 14 %: a sample's gradient is the sum over both uses."""
    model, point = twice("t")
    with pytest.raises(oj.UnsupportedOp, match=r"'W', whose entries .* more than one matrix"):
        make(model, point, at="out", wrt="W", likelihood="gaussian")


@pytest.mark.parametrize("case", CASES)
def test_the_trace_of_ekfac_is_the_trace_of_the_fisher(case):
    model, point = made(case)
    options = {"at": "out", "wrt": "W", "likelihood": "gaussian"}
    F = fisher(model, point, **options)
    assert_allclose(ekfac(model, point, **options).trace(), np.trace(F.toarray()), rtol=1e-9)


@pytest.mark.parametrize("name", ["mlp", "cnn", "encoder"])
def test_all_weights_of_a_network_have_factors(name):
    model, point = network(name)
    weights = [n for n, s in model.initializers.items()
               if s.dtype.kind == "f" and s.shape and "running" not in n]  # fmt: skip
    K = kfac(model, point, at="logits", wrt=weights)
    assert list(K.factors) == weights
    V = RNG.standard_normal((K.shape[1], 2))
    assert_allclose(K.inverse(1e-3) @ (K @ V + 1e-3 * V), V, atol=1e-9)


@pytest.mark.parametrize("make", [kfac, ekfac, shampoo])
@pytest.mark.parametrize("fisher_type", ["type-2", "mc", "empirical"])
def test_single_precision_stays_single(make, fisher_type):
    text = """<ir_version: 10, opset_import: ["" : 21]>
    g (float[5, 4] x, int64[5] y, float[4, 3] W) => (float loss)
    { logits = MatMul(x, W) loss = SoftmaxCrossEntropyLoss(logits, y) }"""
    model = oj.load(onnx.parser.parse_model(text))
    point = {"x": RNG.random((5, 4), np.float32), "y": np.array([0, 1, 2, 0, 1]),
             "W": RNG.random((4, 3), np.float32)}  # fmt: skip
    K = make(model, point, at="logits", of="loss", wrt="W", fisher_type=fisher_type)
    assert K.dtype == K.inverse(0.1).dtype == np.float32


SQUARED = ("matmul", "matmul, of tokens", "matmul, a weight for each head", "conv, groups",
           "slices for three uses", "table", "bias")  # fmt: skip


@pytest.mark.parametrize("case", SQUARED)
def test_the_diagonal_of_fisher_is_exact(case):
    """By gradients of samples, for a matrix in the middle that may be negative as well."""
    model, point = made(case)
    options = {"at": "out", "wrt": "W", "likelihood": "gaussian", "reduction": "sum"}
    F = fisher(model, point, **options)
    J = F.operator.factors[-1]
    middle = Diagonal(np.full(J.shape[0], -2.0))
    assert_allclose(sample_diagonal(J, middle), -2 * np.diag(F.toarray()), atol=1e-12)


@pytest.mark.parametrize("likelihood", ["categorical", "bernoulli", "gaussian"])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_the_diagonal_of_a_gauss_newton_matrix_is_exact(likelihood, reduction):
    """Whatever the loss: its Hessian couples no two samples."""
    model, point = network("mlp", likelihood, reduction)
    G = oj.gauss_newton(model, point, of="loss", at="logits", wrt=["4.bias", "6.weight"])
    found = oj.estimators.diagonal(G, products=1)
    assert (found.method, found.products) == ("exact by structure", 0)
    assert_allclose(found.value, np.diag(G.toarray()), atol=1e-12)


@pytest.mark.parametrize("joint", [False, True])
def test_layers_found_at_one_point_serve_others(joint):
    (model, point), options = network("mlp"), {"at": "logits", "joint": joint}
    for k in range(4):
        at = {**point, "x": (1 + k / 8) * point["x"]}
        K, other = (kfac(m, at, **options) for m in (model, network("mlp")[0]))
        v = RNG.standard_normal(K.shape[1])
        assert_allclose(K @ v, other @ v, atol=1e-12)


POOLED = """pooled (double[4, 1, 6, 6] x, double[2, 1, 3, 3] W, double[8, 3] V)
    => (double[4, 3] out) <int64[2] flat = {4, 8}>
{ h = Conv (x, W)  t = Tanh (h)  p = MaxPool<kernel_shape = [2, 2], strides = [2, 2]> (t)
  v = Reshape (p, flat)  out = MatMul (v, V) }"""


def test_layers_of_a_pooled_network_are_found_once(inside):
    """What a pool selects differs from point to point, and stays within a sample."""
    model, (made, fixed) = parsed(POOLED), inside.layers_found()
    options = {"at": "out", "wrt": ["W", "V"], "likelihood": "gaussian"}
    for _ in range(200):  # until there is a template, which other threads may be making
        point = {name: RNG.standard_normal(spec.shape) for name, spec in model.inputs.items()}
        K = kfac(model, point, **options)
        if len(fixed) == 3:
            break
        time.sleep(0.05)
    assert fixed == [True] * 3
    assert sum(made) == 1
    assert_allclose(K.toarray(), kfac(parsed(POOLED), point, **options).toarray(), atol=1e-12)


def test_layers_are_not_kept_where_a_selection_may_mix_samples():
    """TopK along the samples keeps their order at one point, and changes it at another."""
    model = parsed("""sorted (double[4, 2] x, double[2, 2] W) => (double[4, 2] out)
        <int64[1] k = {4}> { h = MatMul (x, W)  out, i = TopK<axis = 0> (h, k) }""")
    options = {"at": "out", "wrt": "W", "likelihood": "gaussian"}
    falling = np.outer([4.0, 3, 2, 1], [1, 1])
    for scale in range(1, 9):
        kfac(model, {"x": scale * falling, "W": np.eye(2)}, **options)
    with pytest.raises(UnsupportedOp, match="samples"):
        kfac(model, {"x": falling[[2, 0, 1, 3]], "W": np.eye(2)}, **options)


def test_second_moments_of_rows_in_any_order_of_memory():
    x = RNG.standard_normal((2, 3, 4, 5, 7))
    flat = x.reshape(2, -1, 7)
    for rows in (
        x,
        x.swapaxes(-1, -2).copy().swapaxes(-1, -2),
        np.moveaxis(x.transpose(0, 2, 4, 3, 1).copy(), (4, 1, 3, 2), (1, 2, 3, 4)),
        np.moveaxis(np.moveaxis(x, -1, 1).copy(), 1, -1),
        x[..., :3, ::2],
    ):
        wanted = flat if rows.shape == x.shape else rows.reshape(2, -1, 4)
        assert_allclose(gram(rows), wanted.swapaxes(-1, -2) @ wanted)
    wide = RNG.standard_normal((1, 3, 5, 9)).swapaxes(-1, -2)  # (1, 3, 9, 5): no copy
    assert_allclose(gram(wide)[0], sum(a.T @ a for a in wide[0]))


@pytest.mark.parametrize(
    ("shape", "axis"), [((3, 4), -1), ((3, 4), 1), ((2, 3, 4), 1), ((2, 3, 4), 2), ((3, 1), -1)]
)
@pytest.mark.parametrize("width", [1, 3, 100])
def test_roots_of_a_categorical_have_a_column_less_for_each_term(shape, axis, width):
    z = 3 * np.random.default_rng(0).standard_normal(shape)
    z.reshape(len(z), -1)[-1, -1] = -1e4  # the last class without probability
    family, n = LIKELIHOODS["categorical"], size(shape[1:])
    S = np.concatenate(list(family.roots(z, width, axis))).reshape(-1, len(z), n)
    assert len(S) == n - max(n // shape[axis], 1) or n == 1
    C = family.covariance(z, axis).toarray().reshape(len(z), n, len(z), n)
    for k in range(len(z)):
        assert_allclose(np.einsum("ki,kj->ij", S[:, k], S[:, k]), C[k, :, k], atol=1e-15)


def test_classes_along_the_axis_of_samples_have_no_roots():
    z = np.ones((3, 4))
    with pytest.raises(oj.InputError, match="axis=0"):
        next(LIKELIHOODS["categorical"].roots(z, 1, 0))


@pytest.mark.parametrize("fisher_type", ["type-2", "mc"])
def test_cotangents_a_few_at_a_time(monkeypatch, fisher_type):
    model, point = regression("categorical", "mean"), {"x": RNG.standard_normal((6, 4))}
    point["y"] = np.zeros(6, np.int64)
    options = {"at": "logits", "wrt": "W", "fisher_type": fisher_type, "samples": 5}
    point["W"] = RNG.standard_normal((3, 4))
    whole = kfac(model, point, **options).toarray()
    monkeypatch.setattr(sys.modules[Gradients.__module__], "CHUNK_BYTES", 1)
    found = gradients(model, point, **options)
    assert [len(stack) for stack in found.stacks()] == [1] * (2 if fisher_type == "type-2" else 5)
    assert_allclose(kfac(model, point, **options).toarray(), whole, rtol=1e-12)


def test_a_weight_that_is_repeated_and_multiplied_is_a_matrix():
    """A number for each column, however the product is written."""
    bodies = {"double[2,1,1] x": 'Einsum<equation="ba,abc->ba">(w, x)', "double[2] x": "Mul(w, x)"}
    found = []
    for x, body in bodies.items():
        model = parsed(f"g (double[3,2] w, {x}) => (double[3,2] o) {{ o = {body} }}")
        point = {"w": np.arange(6.0).reshape(3, 2), "x": np.ones(model.inputs["x"].shape)}
        J = oj.linearize(model, point, of="o", wrt=["w", "x"])
        assert_allclose((J.T @ J).diagonal(), np.sum(J.toarray() ** 2, axis=0))
        K = oj.kfac(model, point, at="o", wrt="x", likelihood="gaussian", reduction="sum")
        found.append(K.toarray())
    assert_allclose(found[0], found[1])
    assert_allclose(np.diag(found[0]), np.sum(point["w"] ** 2, axis=0))
