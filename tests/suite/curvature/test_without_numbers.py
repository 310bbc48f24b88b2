"""Curvature of no samples, of NaN and of a used-up iterator: our error or NaN, never a number."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import onnxjac as oj
from solvers.models import parsed

MODEL = """m (float[n, 3] x, int64[n] t) => (float f, float[n, 4] z) <float[3, 4] W =
{1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 0.5, 0.2, 0.1, -1.0, 0.3, 2.0}>
{ z = MatMul (x, W)  f = SoftmaxCrossEntropyLoss (z, t) }"""

OF_KFAC = {"at": "z", "wrt": "W"}
MAKERS = {
    "fisher": (oj.fisher, OF_KFAC),
    "fisher, sampled": (oj.fisher, {**OF_KFAC, "samples": 3}),
    "empirical fisher": (oj.empirical_fisher, {**OF_KFAC, "of": "f"}),
    "K-FAC": (oj.kfac, OF_KFAC),
    "K-FAC, empirical": (oj.kfac, {**OF_KFAC, "of": "f", "fisher_type": "empirical"}),
    "K-FAC, sampled": (oj.kfac, {**OF_KFAC, "fisher_type": "mc"}),
    "E-KFAC": (oj.ekfac, OF_KFAC),
    "Shampoo": (oj.shampoo, OF_KFAC),
    "gram": (oj.gram, {"of": "z", "wrt": "W"}),
    "Gauss-Newton": (oj.gauss_newton, {**OF_KFAC, "of": "f", "reduction": "mean"}),
    "Hessian": (oj.hessian, {"of": "f", "wrt": "W", "reduction": "mean"}),
}
FACTORED = "K-FAC", "E-KFAC", "Shampoo"

GOOD = {"x": np.arange(12.0).reshape(4, 3) / 9, "t": np.array([0, 1, 3, 2])}
EMPTY = {name: a[:0] for name, a in GOOD.items()}
NAN = {**GOOD, "x": np.where(np.arange(12).reshape(4, 3) == 5, np.nan, GOOD["x"])}
HUGE = {**GOOD, "x": np.full((4, 3), 1e308)}

every = pytest.mark.parametrize("name", MAKERS)
pytestmark = pytest.mark.filterwarnings("ignore::onnxjac.OnnxJacWarning", "ignore:overflow")


def numbers(name, data):
    """A product, the diagonal, the trace, of a factored one the inverse; or our error's text."""
    make, options = MAKERS[name]
    try:
        C = make(parsed(MODEL), data, **options)
        found = [C @ np.ones(C.shape[1]), C.diagonal(), C.trace()]
        if name.startswith(FACTORED):
            found.append(C.inverse(1.0) @ np.ones(C.shape[1]))
    except oj.InputError as error:
        return str(error)
    return found


def check(found, expected, *texts):
    """The expected numbers, or an error with one of the texts."""
    if isinstance(found, str):
        assert any(text in found for text in texts)
    else:
        for part, other in zip(found, expected, strict=True):
            assert_allclose(part, other, atol=1e-12)


@every
@pytest.mark.parametrize("data", [NAN, [GOOD, NAN], HUGE], ids=["one", "a batch", "overflow"])
def test_nan_stays_nan(name, data):
    found = numbers(name, data)
    if isinstance(found, str):
        assert "not finite" in found
    else:
        assert not any(np.isfinite(part).all() for part in found)


@every
@pytest.mark.parametrize("data", [EMPTY, [EMPTY], [GOOD, EMPTY]], ids=["one", "alone", "beside"])
def test_a_batch_of_no_samples_adds_nothing_or_is_refused(name, data):
    found, good = numbers(name, data), numbers(name, GOOD)
    expected = good if data == [GOOD, EMPTY] else [0 * part for part in good]
    check(found, expected, "no samples", "another way than batch 0")


@every
@pytest.mark.parametrize("read", [0, 1])
def test_an_iterator_is_read_once(name, read):
    """Given as it is, or again and again by a function; what takes one pass may be right."""
    assert "an iterator can be read once only" in numbers(name, iter([GOOD]))
    left = [GOOD, GOOD][read:]
    iterator = iter(left)
    check(numbers(name, lambda: iterator), numbers(name, left), "no batches", "in the first pass")


@pytest.mark.parametrize("name", ["fisher", "K-FAC"])
def test_a_mean_of_no_samples_says_what_to_do(name):
    wanted = "no samples, and so no mean: leave it out, or take reduction='sum'"
    assert wanted in numbers(name, EMPTY)
