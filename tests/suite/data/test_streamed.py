"""OverBatches: the operator of all data, with one batch in memory at a time."""

import gc
import weakref
from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose

import onnxjac as oj
from check_operator import check_operator
from data.makers import gram, hessian_maker, logits_maker
from data.regressions import DATA, LABELS, UNEVEN, W, X, jacobian, noisy, softmax_hessian
from onnxjac.jacobians import Dense
from onnxjac.jacobians.errors import InputError, OnnxJacWarning
from onnxjac.modes.data import stream
from onnxjac.modes.data.batches import batches_of
from onnxjac.modes.data.shares import Share, streamed

TIGHT = {"rtol": 1e-12, "atol": 1e-12}


@pytest.mark.parametrize(("reduction", "scale"), [("mean", 1 / 23), ("sum", 1.0)])
@pytest.mark.parametrize(("data", "size"), [(UNEVEN, None), (DATA, 5), (UNEVEN.copy, None)])
def test_the_hessian_of_softmax_regression(reduction, scale, data, size):
    options = {"reduction": reduction, "batch_size": size, "check": False}
    C = streamed(hessian_maker(reduction), data, keep=2**20, **options)
    assert C.T is C
    check_operator(C, scale * softmax_hessian(X))
    assert_allclose(C["W", "W"].toarray(), scale * softmax_hessian(X), **TIGHT)
    assert_allclose(C.apply({"W": W})["W"].ravel(), C @ W.ravel(), **TIGHT)
    D = streamed(hessian_maker(reduction), data, **options)
    assert_allclose(D @ np.eye(12), scale * softmax_hessian(X), **TIGHT)


def test_the_rows_of_linear_regression():
    J = streamed(logits_maker(), UNEVEN, reduction="stack")
    check_operator(J, jacobian(X))
    check_operator(J.T, jacobian(X).T)


def test_a_sum_that_is_not_symmetric():
    first = [{"x": b["x"][:1], "y": b["y"][:1]} for b in UNEVEN]
    C = streamed(logits_maker(), first, reduction="sum")
    check_operator(C, jacobian(sum(b["x"] for b in first)))


def test_one_batch_is_its_operator():
    make = hessian_maker("mean")
    assert isinstance(streamed(make, DATA, reduction="mean"), oj.Hessian)


def test_compiled_batches_give_the_same_products():
    C = streamed(hessian_maker("mean"), UNEVEN, reduction="mean", keep=2**30, check=False)
    J = streamed(logits_maker(), UNEVEN, reduction="stack", keep=2**30, check=False)
    V = np.random.default_rng(0).standard_normal((12, 3))
    fast = C.operator.compile("numpy", products=3)
    assert_allclose(fast @ V, C @ V, **TIGHT)
    assert_allclose(J.compile("numpy") @ V, J @ V, **TIGHT)
    assert all("numpy" in repr(one) or one.structure for one in fast.stream.kept)


class Counted:
    """A maker that counts its operators, and how many are alive when it makes the next one."""

    def __init__(self, make):
        self.make, self.made, self.alive, self.most = make, 0, weakref.WeakSet(), 0

    def __call__(self, batch):
        self.most = max(self.most, len(self.alive))
        C = self.make(batch)
        self.made += 1
        self.alive.add(getattr(C, "dag", C))
        return C


@pytest.mark.parametrize(("make", "reduction"), [(gram, "sum"), (gram, "stack")])
def test_no_operator_is_alive_when_the_next_one_is_made(make, reduction):
    counted = Counted(make)
    C = streamed(counted, UNEVEN, reduction=reduction, check=False)
    for product in (lambda: C @ X[0], lambda: C.T @ np.ones(C.shape[0]), C.toarray, C.diagonal):
        product()
    assert counted.made > 4 * len(UNEVEN)
    assert counted.most == 0


def test_waste_is_collected(monkeypatch):
    """A linearisation and its transpose form a cycle, but memory stays bounded."""
    monkeypatch.setattr(stream, "WASTE", 0)
    counted = Counted(logits_maker())
    J = streamed(counted, DATA, reduction="stack", batch_size=4, check=False)
    gc.disable()
    try:
        J.T @ np.ones(J.shape[0])
    finally:
        gc.enable()
    assert counted.most <= 2


def test_kept_operators_are_made_once_and_their_data_is_read_once():
    passes = []

    def data():
        passes.append(1)
        yield from UNEVEN

    counted = Counted(gram)
    C = streamed(counted, data, reduction="sum", keep=2**20, check=False)
    for _ in range(3):
        assert_allclose(C @ X[0], X.T @ X @ X[0], **TIGHT)
    assert counted.made == len(UNEVEN)
    assert len(passes) == 2  # the first batch determines the shape


def test_as_many_are_kept_as_fit():
    counted = Counted(gram)
    C = streamed(counted, UNEVEN, reduction="sum", keep=2 * 4 * 4 * 8, check=False)
    assert_allclose(C @ X[0], X.T @ X @ X[0], **TIGHT)
    before = counted.made
    assert_allclose(C @ X[0], X.T @ X @ X[0], **TIGHT)
    assert counted.made - before == len(UNEVEN) - 2
    assert C.nbytes == 2 * 4 * 4 * 8


def test_shared_weights_are_counted_once():
    shared = np.eye(4)
    C = streamed(lambda b: Dense(shared, (4,), (4,)), UNEVEN, reduction="sum", keep=shared.nbytes)
    C @ X[0]
    assert len(C.stream.kept) == len(UNEVEN)


def shuffled(rng):
    order = rng.permutation(23)
    return [{"x": X[k], "y": LABELS[k]} for k in np.array_split(order, 4)]


def test_a_random_operator_is_warned_of():
    model = noisy()
    make = partial(oj.linearize, model, of="y", wrt="W", engine="numpy")
    data = [{"x": b["x"], "W": W} for b in UNEVEN]
    with pytest.warns(OnnxJacWarning, match="their operators are random"):
        streamed(make, data, reduction="stack")


def test_other_batches_in_the_next_pass_are_warned_of():
    rng = np.random.default_rng(0)
    with pytest.warns(OnnxJacWarning, match="batch 0 is another one"):
        streamed(logits_maker(), lambda: shuffled(rng), reduction="stack")


def test_the_order_of_a_sum_is_no_reason_to_warn(recwarn):
    rng = np.random.default_rng(0)
    streamed(hessian_maker("sum"), lambda: shuffled(rng), reduction="sum")
    assert not recwarn.list


def test_the_check_can_be_left_out(recwarn):
    rng = np.random.default_rng(0)
    streamed(logits_maker(), lambda: shuffled(rng), reduction="stack", check=False)
    assert not recwarn.list


@pytest.mark.parametrize(
    ("data", "reduction", "message"),
    [
        ([], "sum", "no batches"),
        ([], "stack", "no batches"),
        (UNEVEN, "average", "not one of 'sum', 'mean', 'stack'"),
        (UNEVEN, "sum", "batch 1 has an operator of shape"),
    ],
)
def test_streamed_rejects_batches_that_do_not_compose(data, reduction, message):
    with pytest.raises(InputError, match=message):
        streamed(logits_maker(), data, reduction=reduction)


@pytest.mark.parametrize("reduction", ["mean", "stack"])
@pytest.mark.parametrize(("counts", "found"), [((2, 3, 3), "more"), ((3, 2, 2), "2")])
def test_another_number_of_batches_in_a_later_pass_is_refused(reduction, counts, found):
    """The first pass counts the samples, or the rows; the others multiply."""
    left = iter(counts)

    def data():
        return iter(UNEVEN[:1] * next(left))

    message = f"{counts[0]} batches in the first pass and {found} in a later one"
    C = streamed(hessian_maker(), data, reduction=reduction, check=False)
    with pytest.raises(InputError, match=message):
        C @ np.ones(12)


def test_batches_without_samples_have_no_mean():
    data = [{"x": X[:0], "y": LABELS[:0]}]
    with pytest.raises(InputError, match="no samples"):
        streamed(hessian_maker(), data, reduction="mean")


def test_the_samples_are_counted_once():
    """One sum over all batches, not one for each of them."""
    sizes = [Added(1) for _ in range(100)]
    batches = batches_of([{"k": k} for k in range(100)])
    share = Share(gram, 0, lambda batch: sizes[batch["k"]], batches).measured()
    assert sum(share.sizes) == 100
    assert sum(n.count for n in sizes) == 100


class Added(int):
    """A number that counts how often it is added."""

    count = 0

    def __radd__(self, other):
        self.count += 1
        return int(other) + int(self)
