"""Ranks go on together: rank 0 writes, and all read; sums of each rank have a file of its own."""

import numpy as np
import pytest

import onnxjac as oj
from curvature.pools import made
from data.regressions import UNEVEN, softmax_regression
from onnxjac.jacobians.errors import InputError
from ranks.threads import on_ranks, outcomes

from .works import DATA, TOKENS, assert_bits, killed

RANKS = 2


def density(file):
    def script(comm):
        own = UNEVEN[comm.rank :: comm.size]
        H = oj.hessian(softmax_regression(), own, comm=comm, **DATA)
        A = H + 0.1 * oj.identity_like(H)
        found = oj.estimators.spectral_density(A, steps=5, probes=2, exact=False, resume=file)
        return found.nodes, found.weights, found.products

    return script


def solve(file):
    def script(comm):
        own = UNEVEN[comm.rank :: comm.size]
        H = oj.gauss_newton(softmax_regression(), own, at="logits", comm=comm, **DATA)
        A = H + 0.1 * oj.identity_like(H)
        return (oj.inverse(A, solver="cg", resume=file) @ np.arange(12.0),)

    return script


def newton(file):
    def script(comm):
        own = UNEVEN[comm.rank :: comm.size]
        found = oj.newton_cg(softmax_regression(), own, comm=comm, maxiter=5, resume=file, **DATA)
        return found.x, found.fun, found.nhev, found.nfev

    return script


def factors(name):
    def work(file):
        def script(comm):
            own = TOKENS[: 3 if comm.rank else 7]  # passes of different lengths
            K = made(name, own, comm=comm, resume=file)
            return (K.toarray(),)

        return script

    return work


WORKS = {"density": density, "solve": solve, "newton": newton, "kfac": factors("kfac"),
         "ekfac": factors("ekfac")}  # fmt: skip


@pytest.mark.parametrize("name", WORKS)
def test_ranks_go_on_to_the_same_bits(name, tmp_path):
    """Also where one rank has come further than another one, whose sums are its own."""
    expected = on_ranks(RANKS, WORKS[name](oj.ResumeFile(tmp_path / "whole.npz", every=1)))
    file = oj.ResumeFile(tmp_path / "run.npz", every=2)
    with killed(3):
        assert all(isinstance(error, Exception) for error in outcomes(RANKS, WORKS[name](file)))
    found = on_ranks(RANKS, WORKS[name](file))
    for one, other in zip(found, expected, strict=True):
        assert_bits(one, other)
    per_rank = name.endswith("kfac")
    names = [f"run.rank{rank}.npz" for rank in range(RANKS)] if per_rank else ["run.npz"]
    assert [f.name for f in sorted(tmp_path.glob("run*"))] == names


def test_ranks_that_see_different_files_are_refused_together(tmp_path):
    on_ranks(RANKS, density(oj.ResumeFile(tmp_path / "run.npz")))

    def script(comm):
        folder = tmp_path / str(comm.rank)
        folder.mkdir()
        if comm.rank == 0:
            (tmp_path / "run.npz").rename(folder / "run.npz")
        return density(oj.ResumeFile(folder / "run.npz"))(comm)

    for error in outcomes(RANKS, script):
        assert isinstance(error, InputError)
        assert "give a path on a disk that all ranks share" in str(error)


def test_other_work_of_one_rank_is_refused_on_all(tmp_path):
    on_ranks(RANKS, factors("kfac")(oj.ResumeFile(tmp_path / "run.npz")))
    (tmp_path / "run.rank1.npz").write_text("torn")
    for error in outcomes(RANKS, factors("kfac")(oj.ResumeFile(tmp_path / "run.npz"))):
        assert isinstance(error, InputError)
        assert "rank 1: " in str(error)
        assert "is no file that a ResumeFile wrote" in str(error)


def test_another_number_of_ranks_is_refused(tmp_path):
    on_ranks(RANKS, factors("kfac")(oj.ResumeFile(tmp_path / "run.npz")))
    for error in outcomes(3, factors("kfac")(oj.ResumeFile(tmp_path / "run.npz"))):
        assert isinstance(error, InputError)
        assert "another ranks, 2 there and 3 here" in str(error)
