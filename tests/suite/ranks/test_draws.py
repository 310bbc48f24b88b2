"""Draws belong to samples: batches, ranks and orders of all kinds give the same ones."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import chi2, kstest

import onnxjac as oj
from data.regressions import DATA, W, softmax_regression
from onnxjac.modes.data.draws import GAMMA, SampleSeeds, sample_seeds, scrambled, uniform_numbers

from .threads import on_ranks

MODEL = softmax_regression()
OPTIONS = {"at": "logits", "wrt": "W", "shared": {"W": W}, "seed": 3, "reduction": "mean"}
MAKERS = {
    "fisher": lambda data, **options: oj.fisher(MODEL, data, samples=2, **OPTIONS, **options),
    "gaussian": lambda data, **options: oj.fisher(
        MODEL, data, samples=2, likelihood="gaussian", **OPTIONS, **options
    ),
    "kfac": lambda data, **options: oj.kfac(MODEL, data, fisher_type="mc", **OPTIONS, **options),
}


@pytest.mark.parametrize("name", MAKERS)
def test_draws_do_not_depend_on_batches_ranks_or_order(name):
    make = MAKERS[name]
    expected = make(DATA, batch_size=23).toarray()
    for size in (1, 3, 7):
        assert_allclose(make(DATA, batch_size=size).toarray(), expected, rtol=0, atol=1e-12)
        for ranks in (1, 2, 3, 4):

            def script(comm, size=size):
                own = {name: a[comm.rank :: comm.size] for name, a in DATA.items()}
                return make(own, batch_size=size, comm=comm).toarray()

            for found in on_ranks(ranks, script):
                assert_allclose(found, expected, rtol=0, atol=1e-12)


def test_another_seed_and_other_samples_have_other_draws():
    make = MAKERS["fisher"]
    one, options = make(DATA, batch_size=4).toarray(), {**OPTIONS, "seed": 4}
    other = oj.fisher(MODEL, DATA, samples=2, batch_size=4, **options).toarray()
    assert not np.allclose(one, other)
    u = uniform_numbers(sample_seeds(3, DATA), 2, (23, 1))
    assert len(np.unique(u)) == 46


def test_a_sample_may_have_several_rows_and_any_number_of_them():
    """Rows of logits by tokens; padding adds draws behind those that there were."""
    seeds = sample_seeds(0, DATA)
    u = uniform_numbers(seeds, 3, (23 * 5, 1)).reshape(3, 23, 5)
    longer = uniform_numbers(seeds, 3, (23, 8, 1)).reshape(3, 23, 8)
    some = SampleSeeds(seeds.seeds[4:6])
    assert np.array_equal(u, longer[..., :5])
    assert np.array_equal(uniform_numbers(some, 3, (10, 1)).reshape(3, 2, 5), u[:, 4:6])


def test_inputs_without_a_number_of_samples_have_one_seed():
    assert isinstance(sample_seeds(0, {"x": np.zeros((3, 2)), "y": np.zeros(2)}), int)
    assert uniform_numbers(SampleSeeds(np.arange(3, dtype=np.uint64)), 2, (4, 2)).shape == (2, 4, 2)
    assert uniform_numbers(5, 2, (0, 3)).shape == (2, 0, 3)


def test_numbers_agree_with_splitmix64():
    """The first five of the state 1234567, as published with the generator's reference code."""
    state = np.uint64(1234567) + GAMMA * np.arange(1, 6, dtype=np.uint64)
    assert scrambled(state).tolist() == [
        6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431,
        16408922859458223821,
    ]  # fmt: skip


def test_numbers_of_neighbouring_seeds_are_uniform_and_independent():
    """By samples, by draws and by entries: Kolmogorov and Smirnov, and pairs in 8 × 8 cells."""
    u = uniform_numbers(7, 20, (200, 25))
    assert kstest(u.ravel(), "uniform").pvalue > 1e-3
    for axis in range(3):
        along = np.moveaxis(u, axis, 0)
        first, second = along[1:].ravel(), along[:-1].ravel()
        cells = np.histogram2d(first, second, 8, [[0, 1], [0, 1]])[0]
        mean = first.size / 64
        assert chi2.sf(((cells - mean) ** 2).sum() / mean, 63) > 1e-3
