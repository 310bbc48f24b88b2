"""Kronecker factors over ranks: those of one process, by one all-reduce a pass."""

import numpy as np
import pytest

from curvature.pools import MAKERS, UNEVEN, WHOLE, assert_equal, made
from onnxjac.jacobians.errors import InputError

from .threads import on_ranks, outcomes


@pytest.mark.parametrize("fisher_type", ["type-2", "mc", "empirical"])
@pytest.mark.parametrize("name", MAKERS)
def test_factors_are_those_of_one_process(name, fisher_type):
    """Draws too, which belong to batches; the last of five ranks have none."""
    options = {"fisher_type": fisher_type, "joint": name == "kfac", "seed": 3}
    expected = made(name, UNEVEN, **options)
    for size in (1, 2, 5):

        def script(comm):
            return made(name, UNEVEN[comm.rank :: comm.size], comm=comm, **options)

        first, *others = on_ranks(size, script)
        assert_equal(first, expected)
        assert all(np.array_equal(K.toarray(), first.toarray()) for K in others)


def test_factors_without_gradients():
    options = {"fisher_type": "forward-only", "approximation": "reduce"}
    expected = made("kfac", WHOLE, **options)
    for K in on_ranks(3, lambda comm: made("kfac", UNEVEN[comm.rank], comm=comm, **options)):
        assert_equal(K, expected)


def test_one_all_reduce_has_all_factors():
    """And one, for E-KFAC, all eigenvectors, and one all eigenvalues.

    A is (3, 3) and (5, 5), B is (5, 5) and (2, 2); biases have A = (1, 1) and the same B.
    """

    def script(comm):
        made("ekfac", UNEVEN[comm.rank :: comm.size], comm=comm)
        return comm.sent

    sizes = [3, 5, 5, 2, 1, 1]
    factors = sum(n * n for n in sizes)
    eigenvectors, eigenvalues = factors + sum(sizes), 3 * 5 + 5 * 2 + 5 + 2
    assert on_ranks(2, script) == [[8 * n for n in (factors, eigenvectors, eigenvalues)]] * 2


def test_an_error_on_one_rank_is_raised_on_all():
    def script(comm):
        batch = {"x": WHOLE["x"][:, :3] if comm.rank == 1 else WHOLE["x"], "y": WHOLE["y"]}
        made("ekfac", batch, comm=comm)

    for error in outcomes(3, script):
        assert type(error) is InputError
        assert str(error).startswith("rank 1: ")


def test_workers_and_ranks_at_once_are_refused():
    with pytest.raises(InputError, match="give one of them"):
        made("kfac", UNEVEN, client=object(), comm=object())
