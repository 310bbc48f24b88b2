"""Kronecker factors over ranks: those of one process, by one all-reduce a pass."""

import numpy as np
import pytest

import onnxjac as oj
from curvature.models import parsed
from curvature.pools import MAKERS, UNEVEN, WEIGHTS, WHOLE, assert_equal, made
from onnxjac.jacobians.errors import InputError

from .threads import on_ranks, outcomes


@pytest.mark.parametrize("fisher_type", ["type-2", "mc", "empirical"])
@pytest.mark.parametrize("name", MAKERS)
def test_factors_agree_with_one_process(name, fisher_type):
    """Draws too, which belong to batches; the last of five ranks have none."""
    options = {"fisher_type": fisher_type, "joint": name == "kfac", "seed": 3}
    expected = made(name, UNEVEN, **options)
    for size in (1, 2, 5):

        def script(comm):
            return made(name, UNEVEN[comm.rank :: comm.size], comm=comm, **options)

        first, *others = on_ranks(size, script)
        assert_equal(first, expected)
        assert all(np.array_equal(K.toarray(), first.toarray()) for K in others)


def test_forward_factors_over_ranks_agree_with_all_samples():
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


@pytest.mark.parametrize("size", [1, 2, 3, 6])
@pytest.mark.parametrize("name", MAKERS)
def test_shards_are_the_whole_in_parts(name, size):
    """Products, inverses, functions and spectra; the sixth rank has no tensor to hold."""
    whole = made(name, UNEVEN, joint=name == "kfac")
    dense, v = whole.toarray(), np.random.default_rng(1).standard_normal((whole.shape[0], 2))

    def script(comm):
        K = made(name, UNEVEN[comm.rank :: comm.size], comm=comm, shard=True, joint=name == "kfac")
        P, damped = K.inverse(0.1), K + 0.1 * oj.identity_like(K)
        comm.sent.clear()
        found = [K @ v, P @ v]
        assert comm.sent == [8 * (v.size + 1)] * 2
        found += [K.toarray(), K.inverse(0.1, heuristic=True) @ v, K.function(np.sqrt) @ v,
                  K.diagonal(), (3 * K).inverse(0.3) @ v, np.sort(K.eigenvalues()),
                  oj.estimators.trace(K).value, oj.estimators.logdet(damped).value,
                  oj.inverse(damped) @ v, K.apply(WEIGHTS)["V"]]  # fmt: skip
        return found, K.nbytes, sorted(s.name for s in K.local.domain) if K.local else []

    damped = whole + 0.1 * oj.identity_like(whole)
    expected = [dense @ v, whole.inverse(0.1) @ v, dense, whole.inverse(0.1, heuristic=True) @ v,
                whole.function(np.sqrt) @ v, whole.diagonal(), (3 * whole).inverse(0.3) @ v,
                np.sort(whole.eigenvalues()), whole.trace(), oj.estimators.logdet(damped).value,
                oj.inverse(damped) @ v, whole.apply(WEIGHTS)["V"]]  # fmt: skip
    every = on_ranks(size, script)
    for found, _, _ in every:
        for one, other, first in zip(found, expected, every[0][0], strict=True):
            assert np.array_equal(one, first)
            assert np.abs(one - other).max() <= 1e-12 * np.abs(other).max()
    assert sorted(tensor for _, _, held in every for tensor in held) == sorted(WEIGHTS)
    assert sum(held for _, held, _ in every) == whole.nbytes
    if size > 1:
        assert max(held for _, held, _ in every) < whole.nbytes


def test_shards_take_about_as_many_bytes_on_all_ranks():
    """Eight weights of one size, two on each of four ranks."""
    rng = np.random.default_rng(2)
    steps = "".join(f"h{k + 1} = MatMul(h{k}, W{k}) " for k in range(8))
    weights = {f"W{k}": rng.standard_normal((6, 6)) for k in range(8)}
    takes = ", ".join(f"double[6, 6] {name}" for name in weights)
    model = parsed(f"g (double[n, 6] h0, {takes}) => (double[n, 6] h8) {{ {steps} }}")
    batch = {"h0": rng.standard_normal((5, 6))}
    options = {"shared": weights, "wrt": list(weights), "likelihood": "gaussian"}
    whole = oj.kfac(model, [batch], **options)

    def script(comm):
        return oj.kfac(model, [batch], comm=comm, shard=True, **options).nbytes

    assert on_ranks(4, script) == [whole.nbytes // 4] * 4


def test_shards_without_ranks_are_refused():
    with pytest.raises(InputError, match="give comm= too"):
        made("kfac", UNEVEN, shard=True)


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
