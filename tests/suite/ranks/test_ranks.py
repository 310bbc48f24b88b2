"""Operators over ranks: what one process gives, whoever holds the batches."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import onnxjac as oj
from data.regressions import DATA, UNEVEN, W, X, jacobian, softmax_regression
from onnxjac.jacobians import Dense
from onnxjac.jacobians.errors import InputError, OnnxJacError
from onnxjac.modes.data.comm import all_reduced

from .threads import on_ranks, outcomes

TIGHT = {"rtol": 1e-12, "atol": 1e-12}
SIZES = [1, 2, 3, 4, 8]
MODEL = softmax_regression()
V = np.random.default_rng(3).standard_normal((12, 5))


def share(comm, batches=UNEVEN):
    """The batches of a rank: unequal numbers, and none from rank 4 on."""
    return batches[comm.rank :: comm.size]


def compose(function, **options):
    """A function of data and a communicator."""
    given = {"wrt": "W", "shared": {"W": W}, **options}

    def composed(data, comm=None):
        return function(MODEL, data, comm=comm, **given)

    return composed


SYMMETRIC = {
    "gauss_newton": compose(oj.gauss_newton, of="loss", at="logits", reduction="mean"),
    "hessian": compose(oj.hessian, of="loss", reduction="mean"),
    "fisher": compose(oj.fisher, at="logits", reduction="mean"),
    "fisher by draws": compose(oj.fisher, at="logits", samples=2, seed=3, reduction="sum"),
    "empirical_fisher": compose(oj.empirical_fisher, of="loss", at="logits", reduction="mean"),
    "gram": compose(oj.gram, of="logits"),
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", SYMMETRIC)
def test_symmetric_operators_agree_with_one_process_on_every_rank(name, size):
    made = SYMMETRIC[name]
    whole = made(UNEVEN)
    dense = whole.toarray()

    def script(comm):
        C = made(share(comm), comm=comm)
        assert C.T is C
        assert C.domain == whole.domain
        comm.sent.clear()
        found = C @ V, C @ V[:, 0], C.toarray(), C.diagonal(), C.apply({"W": W})["W"]
        assert comm.sent == [8 * (n + 1) for n in (60, 12, 144, 12, 12)]
        return found

    expected = dense @ V, dense @ V[:, 0], dense, np.diagonal(dense), whole.apply({"W": W})["W"]
    every = on_ranks(size, script)
    for found in every:
        for one, other, first in zip(found, expected, every[0], strict=True):
            assert_allclose(one, other, **TIGHT)
            assert np.array_equal(one, first)


@pytest.mark.parametrize("size", SIZES)
def test_each_rank_computes_its_own_rows(size):
    """J has the rows of all ranks in their order, of which each computes its own."""
    made = compose(oj.linearize, of="logits")

    def script(comm):
        J = made(share(comm), comm=comm)
        sent = comm.allgather(share(comm))
        A = jacobian(np.concatenate([batch["x"] for own in sent for batch in own]))
        own = [batch["x"] for batch in share(comm)]
        assert_allclose(A[J.rows], jacobian(np.concatenate([X[:0], *own])), **TIGHT)
        comm.sent.clear()
        for found, expected in [(J @ V, A @ V), (J.T @ (A @ V), A.T @ A @ V)]:
            assert_allclose(found, expected, **TIGHT)
        assert comm.sent == [8 * (5 * len(A) + 1), 8 * (5 * 12 + 1)]
        for found, expected in [
            (J.toarray(), A), (J.T.toarray(), A.T), ((J.T @ J).toarray(), A.T @ A),
            (J.diagonal(), np.diagonal(A)), ((J @ J.T).diagonal(), (A * A).sum(1)),
            ((J.T @ J).tosparse().toarray(), A.T @ A),
            (J.compile("numpy") @ V, A @ V),
        ]:  # fmt: skip
            assert_allclose(found, expected, **TIGHT)

    on_ranks(size, script)


@pytest.mark.parametrize("size", [2, 8])
def test_the_tangent_kernel_couples_the_samples_of_all_ranks(size):
    made = compose(oj.ntk, of=["logits", "loss"])
    ordered = [batch for rank in range(size) for batch in UNEVEN[rank::size]]
    whole = made(ordered)

    def script(comm):
        K = made(share(comm), comm=comm)
        assert K.domain == whole.domain
        assert_allclose(K.toarray(), whole.toarray(), **TIGHT)

    on_ranks(size, script)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_the_loss_and_its_gradient(reduction):
    model, over = softmax_regression(reduction), {"reduction": reduction, "shared": {"W": W}}
    f = oj.value_and_grad(model, of="loss", wrt="W")
    loss, slopes = f(UNEVEN, **over)

    def script(comm):
        found, by_name = f(share(comm), comm=comm, **over)
        assert comm.sent == [8 * 13]
        C = oj.hessian(model, share(comm), of="loss", wrt="W", comm=comm, **over)
        g = oj.grad(model, share(comm), of="loss", wrt="W", comm=comm, **over)
        for one in (by_name, C.gradient, g):
            assert_allclose(one["W"], slopes["W"], **TIGHT)
        assert_allclose([found, C.loss], loss, **TIGHT)

    on_ranks(6, script)


def test_a_dict_is_one_batch_and_rows_are_cut():
    """As everywhere, `batch_size` cuts arrays; a function gives batches in every pass."""
    made, whole = SYMMETRIC["hessian"], SYMMETRIC["hessian"](UNEVEN).toarray()

    def script(comm):
        rows = {name: a[comm.rank :: comm.size] for name, a in DATA.items()}
        options = {"of": "loss", "wrt": "W", "shared": {"W": W}, "reduction": "mean"}
        cut = oj.hessian(softmax_regression(), rows, batch_size=3, comm=comm, **options)
        for C in (made(rows, comm=comm), cut, made(lambda: iter(share(comm)), comm=comm)):
            assert_allclose(C.toarray(), whole, **TIGHT)

    on_ranks(3, script)


def test_solvers_run_unchanged():
    from scipy.sparse.linalg import eigsh, svds

    H, J = SYMMETRIC["hessian"](UNEVEN).toarray(), jacobian(X)

    def script(comm):
        C = SYMMETRIC["hessian"](share(comm), comm=comm)
        rows = compose(oj.linearize, of="logits")(share(comm), comm=comm)
        largest = eigsh(C, k=2, v0=np.ones(12), return_eigenvectors=False)
        singular = svds(rows, k=2, v0=np.ones(12), return_singular_vectors=False)
        return largest, singular

    for largest, singular in on_ranks(3, script):
        assert_allclose(np.sort(largest), np.linalg.eigvalsh(H)[-2:], rtol=1e-10)
        assert_allclose(np.sort(singular), np.linalg.svd(J)[1][1::-1], rtol=1e-10)


def test_estimators_and_inverses_run_unchanged():
    """Probes have a seed, so that all ranks draw the same ones."""
    whole = SYMMETRIC["gram"](UNEVEN)

    def results(C):
        damped = C + 0.1 * oj.identity_like(C)
        return [
            oj.estimators.trace(C, method="hutchinson", products=6).value,
            oj.estimators.logdet(damped, exact=False, steps=12).value,
            oj.inverse(damped) @ np.ones(12), oj.preconditioners.jacobi(damped) @ V,
        ]  # fmt: skip

    expected = results(whole)
    for found in on_ranks(3, lambda comm: results(SYMMETRIC["gram"](share(comm), comm=comm))):
        for one, other in zip(found, expected, strict=True):
            assert_allclose(one, other, rtol=1e-9)


def broken(comm, when, batch):
    """Xᵀ X, but an error on rank 2 from the product number `when` on."""
    broken.calls[comm.rank] += 1
    if comm.rank == 2 and broken.calls[2] > when:
        raise ZeroDivisionError("no more")
    return Dense(batch["x"].T @ batch["x"], (4,), (4,))


@pytest.mark.parametrize(("when", "check"), [(0, False), (1, True), (1, False)])
def test_an_error_on_one_rank_is_raised_on_all(when, check):
    """While the operator is made, while it is checked, and in a product."""
    broken.calls = [0] * 4

    def script(comm):
        C = oj.ranked(
            lambda batch: broken(comm, when, batch), DATA, comm, reduction="sum", check=check
        )
        C @ np.ones(4)

    for error in outcomes(4, script):
        assert type(error) is OnnxJacError
        assert str(error) == "rank 2: ZeroDivisionError: no more"


@pytest.mark.parametrize("entries", [1, 2, 4])
def test_a_part_of_another_size_is_an_error_on_all(entries):
    """Not a number that is repeated, and not an error that one rank alone knows of."""

    def script(comm):
        part = np.ones(entries if comm.rank else 3)
        all_reduced(comm, lambda: part, (3,), np.dtype(float))

    for error in outcomes(2, script):
        assert type(error) is OnnxJacError
        assert str(error).startswith("rank 1: ValueError: cannot reshape")


def test_an_error_of_the_package_keeps_its_type():
    def script(comm):
        batch = {"x": X[:, :3] if comm.rank == 1 else X, "y": DATA["y"]}
        SYMMETRIC["hessian"](batch, comm=comm)

    for error in outcomes(3, script):
        assert type(error) is InputError
        assert str(error).startswith("rank 1: ")
    assert str(error).count("rank 1") == 1


def test_ranks_that_differ_are_refused():
    def shapes(comm):
        oj.ranked(lambda b: Dense(np.eye(3 + comm.rank)), [DATA], comm, reduction="sum")

    def reductions(comm):
        oj.gram(softmax_regression(), DATA, of="logits", shared={"W": W}, wrt="W", comm=comm,
                reduction=["sum", "mean"][comm.rank])  # fmt: skip

    def nothing(comm):
        SYMMETRIC["gram"]([], comm=comm)

    for script, text in [
        (shapes, "operators of rank 0 and of rank 1 differ, 3×3 float64"),
        (reductions, "options of rank 0 and of rank 1 differ, reduction='sum'"),
        (nothing, "no rank has a batch"),
    ]:
        for error in outcomes(2, script):
            assert type(error) is InputError
            assert text in str(error)


def test_a_mean_over_no_samples_is_refused():
    empty = {name: a[:0] for name, a in DATA.items()}

    def script(comm):
        oj.ranked(lambda b: Dense(np.eye(3)), [empty], comm, reduction="mean")

    for error in outcomes(2, script):
        assert "the batches have no samples" in str(error)


def test_random_operators_of_one_rank_are_told_on_all(monkeypatch):
    heard = []
    monkeypatch.setattr("onnxjac.modes.data.shares.warn", heard.append)

    def script(comm):
        random = np.random.default_rng()

        def make(batch):
            noise = random.random() if comm.rank == 1 else 1.0
            return Dense(noise * batch["x"].T @ batch["x"])

        oj.ranked(make, DATA, comm, reduction="sum")

    on_ranks(3, script)
    assert len(heard) == 3
    assert all(text.startswith("rank 1: two products of one vector differ") for text in heard)


def test_weights_that_differ_between_ranks_are_told_on_all(monkeypatch):
    heard = []
    monkeypatch.setattr("onnxjac.modes.data.ranks.warn", heard.append)

    def script(comm):
        options = {"of": "logits", "wrt": "W", "comm": comm}
        for size, shift in enumerate((0, 1e-9 * comm.rank)):
            assert len(heard) == 0, size
            oj.gram(softmax_regression(), UNEVEN, shared={"W": W + shift}, **options)

    on_ranks(2, script)
    assert [text[:25] for text in heard] == ["'W' differ between ranks,"] * 2


@pytest.mark.peers
def test_tensors_give_products_gradients_and_factors_that_are_tensors():
    torch = pytest.importorskip("torch")
    loss = {"of": "loss", "wrt": "W", "reduction": "mean"}
    H = oj.hessian(MODEL, UNEVEN, shared={"W": W}, **loss)
    K = oj.kfac(MODEL, UNEVEN, at="logits", wrt="W", shared={"W": W})
    v = V[:, 0]

    def tensors(batch):
        return {name: torch.tensor(array) for name, array in batch.items()}

    over_tensors = {"shared": tensors({"W": W}), "engine": "torch"}

    def script(comm):
        own, options = [*map(tensors, share(comm))], {**over_tensors, "comm": comm}
        C = oj.hessian(MODEL, own, **loss, **options)
        G = oj.kfac(MODEL, own, at="logits", wrt="W", **options)
        u = torch.tensor(v)
        for found, expected in [
            (C @ u, H @ v), (C.gradient["W"], H.gradient["W"]), (G @ u, K @ v),
        ]:  # fmt: skip
            assert isinstance(found, torch.Tensor)
            assert_allclose(found, expected, **TIGHT)
        assert_allclose(C @ v, H @ v, **TIGHT)

    on_ranks(3, script)
    alone = oj.grad(MODEL, [*map(tensors, UNEVEN)], **loss, **over_tensors)["W"]
    assert isinstance(alone, torch.Tensor)
    assert_allclose(alone, H.gradient["W"], **TIGHT)
    with pytest.raises(InputError, match="is no communicator: give mpi4py"):
        oj.gram(MODEL, UNEVEN, of="logits", wrt="W", comm=torch.distributed)


def test_other_communicators_are_refused():
    for comm in (7, "mpi", object()):
        with pytest.raises(InputError, match="is no communicator: give mpi4py"):
            oj.ranked(lambda b: Dense(np.eye(3)), DATA, comm, reduction="sum")
        with pytest.raises(InputError, match="is no communicator: give mpi4py"):
            oj.gram(softmax_regression(), DATA, of="logits", wrt="W", shared={"W": W}, comm=comm)
    with pytest.raises(InputError, match="give one of them"):
        oj.gram(softmax_regression(), DATA, client=object(), comm=object())
