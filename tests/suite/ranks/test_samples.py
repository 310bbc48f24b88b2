"""Influence, nearest gradients and sensitivities over the samples of all ranks."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import onnxjac as oj
from modes.test_influence import GIVEN, TEST, TRAIN, model

from .threads import on_ranks

CUTS = [(0, 4), (4, 4), (4, 9)]
"""The samples of each of three ranks, one of which has none."""


def own(data, comm):
    """The samples of a rank: whole data in one process."""
    start, stop = CUTS[comm.rank]
    return [{name: a[start:stop] for name, a in data.items()}] if stop > start else []


@pytest.mark.parametrize("curvature", ["gauss_newton", "ekfac", "empirical_fisher", None])
def test_influence_over_ranks_agrees_with_all_samples_in_order(curvature):
    """Training and test samples of all ranks, in their order."""
    options = {**GIVEN, "curvature": curvature, "rtol": 1e-12}
    expected = oj.influence(model(), TRAIN, TEST, **options)

    def script(comm):
        test = [TEST] if comm.rank == 1 else []
        return oj.influence(model(), own(TRAIN, comm), test, comm=comm, **options)

    first, *others = on_ranks(3, script)
    assert_allclose(first, expected, rtol=1e-9)
    assert all(np.array_equal(first, other) for other in others)


@pytest.mark.parametrize("cosine", [True, False])
def test_nearest_gradients_over_ranks_agree_with_all_samples(cosine):
    options = {"of": "loss", "at": "logits", "k": 4, "cosine": cosine}
    expected = oj.nearest_gradients(model(), TRAIN, TEST, **options)

    def script(comm):
        test = [{name: a[[comm.rank]] for name, a in TEST.items()}] if comm.rank < 2 else []
        return oj.nearest_gradients(model(), own(TRAIN, comm), test, comm=comm, **options)

    for found in on_ranks(3, script):
        assert np.array_equal(found.samples, expected.samples)
        assert_allclose(found.similarity, expected.similarity, rtol=1e-12)


@pytest.mark.parametrize("curvature", ["gauss_newton", "hessian", "diagonal", "kfac"])
def test_sensitivities_over_ranks_agree_with_all_samples(curvature):
    options = {"of": "loss", "at": "logits", "bits": (4, 2), "curvature": curvature}
    whole = oj.sensitivities(model(), TRAIN, **options)

    def script(comm):
        found = oj.sensitivities(model(), own(TRAIN, comm), comm=comm, **options)
        measured = found.measured().costs("measured")
        return found.costs(), found.loss, measured, found.scores("obd")["W"], found.hessians()["W"]

    scores, hessian = whole.scores("obd")["W"], whole.hessians()["W"]
    expected = whole.costs(), whole.loss, whole.measured().costs("measured"), scores, hessian
    for found in on_ranks(3, script):
        for one, other in zip(found, expected, strict=True):
            assert_allclose(one, other, rtol=1e-11, atol=1e-13)
