"""Samples: operators reported to act per sample do so, checked on the matrix."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from onnxjac.jacobians import Diagonal, Eye, Permutation, Take, broadcast, implicit_kron
from onnxjac.modes.linear.elimination.samples import Batch, acts_per_sample, mixing

from ...jacobians.examples import EXAMPLES, Draw


def batches(n):
    """All ways to split n entries into more than one sample."""
    return [Batch(count, inner) for count in range(2, n + 1) for inner in range(1, n + 1)
            if n % (count * inner) == 0]  # fmt: skip


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_kind_tells_the_truth(name):
    """No entry of the matrix couples two samples reported as separate."""
    operator, matrix = EXAMPLES[name][1](Draw(0))
    for batch in batches(operator.shape[1]):
        after = acts_per_sample(operator, batch)
        if after is not None:
            assert operator.shape[0] % (after.count * after.inner) == 0
            rows, columns = after.samples(operator.shape[0]), batch.samples(operator.shape[1])
            assert not matrix[rows[:, None] != columns].any()


def test_most_kinds_know_some_samples():
    known = set()
    for kind, draw in EXAMPLES.values():
        operator, _ = draw(Draw(0))
        if any(acts_per_sample(operator, b) for b in batches(operator.shape[1])):
            known.add(kind.__name__)
    assert known >= {
        "BlockDiagonal", "Broadcast", "Contraction", "Cumulative", "Diagonal", "Embed", "Fourier",
        "Identity", "Kron", "Permutation", "Reshape", "Scalar", "Scatter",
        "Slice", "SumTo", "Take",
    }  # fmt: skip


def test_products_and_sums_know_what_their_parts_know():
    d, turn = Diagonal(np.arange(1.0, 7).reshape(2, 3)), Permutation((1, 0), (2, 3), float)
    rows, columns = Batch(2, 3), Batch(3, 1)
    assert acts_per_sample(turn @ d, rows) == Batch(2, 1)
    assert acts_per_sample(turn @ d, columns) == Batch(3, 2)
    fold = implicit_kron(Eye(2), np.ones((3, 3)))
    assert acts_per_sample(d + fold, rows) == rows
    assert acts_per_sample(d + fold, columns) is None


@pytest.mark.parametrize("operator", [
    implicit_kron(np.arange(12.0).reshape(6, 2), Eye(4)),
    broadcast((4,), (6, 4), np.dtype(float)),
    Take(np.arange(12).reshape(6, 2) % 3, 0, (3, 2), np.dtype(float)),
    broadcast((1, 4), (6, 4), np.dtype(float)),
    implicit_kron(np.arange(12.0).reshape(6, 2), Eye(4)) @ Permutation((1, 0), (4, 2), float),
])  # fmt: skip
def test_rows_of_single_samples_are_multiplied_apart(operator):
    batch = Batch(6, 4)
    rows = np.random.default_rng(0).standard_normal((3, *operator.out_shape))
    split = mixing(operator, batch)
    dense, parts = operator.toarray(), rows.reshape(3, 6, 4)
    for sample, found in enumerate(split.adjoints(rows)):
        expected = parts[:, sample] @ dense[4 * sample : 4 * sample + 4]
        assert_allclose(found.reshape(3, -1), expected, rtol=1e-12)


def test_rows_of_single_samples_behind_a_permutation():
    """The samples are axis 1 of the output, but axis 0 of the factor that mixes them."""
    turn = Permutation((1, 0), (6, 4), np.dtype(float))
    operator = turn @ implicit_kron(np.arange(12.0).reshape(6, 2), Eye(4))
    rows = np.random.default_rng(0).standard_normal((3, 4, 6))
    split = mixing(operator, Batch(6, 1))
    dense = operator.toarray().reshape(4, 6, 8)
    for sample, found in enumerate(split.adjoints(rows)):
        assert_allclose(found.reshape(3, -1), rows[:, :, sample] @ dense[:, sample], rtol=1e-12)
