"""Works that go on from a file, each a function of a `ResumeFile`, or of None, to its numbers."""

from contextlib import contextmanager

import numpy as np
import pytest
from scipy.sparse.linalg import LinearOperator

import onnxjac as oj
from curvature.pools import WHOLE, made
from data.regressions import UNEVEN, W, softmax_regression
from onnxjac.modes import resume

RNG = np.random.default_rng(0)
B = RNG.standard_normal((60, 60))
SYMMETRIC, DEFINITE = B + B.T, B @ B.T / 60 + 0.1 * np.eye(60)
RIGHT = RNG.standard_normal((60, 2))
TOKENS = [{name: array[n : n + 1] for name, array in WHOLE.items()} for n in range(7)]
DATA = {"of": "loss", "wrt": "W", "shared": {"W": W}, "reduction": "mean"}


class Interrupted(Exception):
    """What ends a work in the middle."""


class Faulty(LinearOperator):
    """y = A x, which counts its products, and raises `Interrupted` at one of them."""

    def __init__(self, A, at=np.inf):
        super().__init__(A.dtype, A.shape)
        self.A, self.at, self.products = A, at, 0

    def _matmat(self, X):
        self.products += X.shape[1]
        if self.products > self.at:
            raise Interrupted
        return self.A @ X

    def _rmatmat(self, X):
        return Faulty._matmat(self, X) if self.A is SYMMETRIC else self.A.T @ X

    def _matvec(self, x):
        return self._matmat(x.reshape(-1, 1))


@contextmanager
def killed(after):
    """Each work with a file ends after so many turns of its loops, as a process that is killed:
    what the file does not have is lost.
    """
    advance, write = resume.Work.advance, resume.replace_file
    turns, ended = {}, set()

    def advanced(work, *args):
        advance(work, *args)
        if work.resume is not None:
            turns[work] = turns.get(work, 0) + 1
            if turns[work] == after:
                ended.add(work.resume.file)
                raise Interrupted

    def written(file, arrays):
        if file not in ended:
            write(file, arrays)

    resume.Work.advance, resume.replace_file = advanced, written
    try:
        yield
    except Interrupted:
        pass
    finally:
        resume.Work.advance, resume.replace_file = advance, write


@contextmanager
def counted():
    """The turns of all loops with a file in a block, as a list that grows."""
    advance, turns = resume.Work.advance, []

    def advanced(work, *args):
        advance(work, *args)
        turns.extend([1] * (work.resume is not None))

    resume.Work.advance = advanced
    try:
        yield turns
    finally:
        resume.Work.advance = advance


def density(file):
    found = oj.estimators.spectral_density(SYMMETRIC, steps=8, probes=3, exact=False, resume=file)
    return found.nodes, found.weights, found.products


def estimated(name, A=SYMMETRIC, **options):
    def work(file):
        found = getattr(oj.estimators, name)(A, resume=file, **options)
        value = found.value
        return (
            np.asarray(value @ RIGHT if hasattr(value, "u") else value),
            found.error,
            found.products,
        )

    return work


def solved(solver, A, **options):
    return lambda file: (oj.inverse(A, solver=solver, resume=file, **options) @ RIGHT,)


def hessian_density(file):
    H = oj.hessian(softmax_regression(), UNEVEN[:2], **DATA)
    found = oj.estimators.spectral_density(H, steps=6, probes=2, exact=False, resume=file)
    return found.nodes, found.weights, found.products


def minimised(solve, **options):
    def work(file):
        given = {**DATA, "maxiter": 2, **options}
        found = solve(softmax_regression(), UNEVEN[:2], resume=file, **given)
        taken = found.get("nhev", found.get("products"))
        return found.x, found.fun, found.jac, found.nit, found.nfev, taken, found.status

    return work


def least_squares(file):
    options = {"of": "logits", "wrt": "W", "shared": {"W": W}, "maxiter": 3, "resume": file}
    found = oj.levenberg_marquardt(softmax_regression(), UNEVEN[:2], **options)
    return found.x, found.fun, found.cost, found.nit, found.nfev, found.njev, found.products


def factored(name, **options):
    def work(file):
        K = made(name, TOKENS, resume=file, **options)
        return [x for f in K.blocks for x in (f.left, f.right, f.corrected) if x is not None]

    return work


WORKS = {
    "density": density,
    "density of a Hessian over data": hessian_density,
    "log det": estimated("logdet", DEFINITE, exact=False, steps=9, probes=4),
    "spectral norm": estimated("spectral_norm", exact=False),
    "condition number": estimated("condition_number", exact=False, products=40),
    "XTrace": estimated("trace", method="xtrace", products=30),
    "Hutch++": estimated("trace", method="hutch++", products=30),
    "exact trace": estimated("trace", method="exact"),
    "XDiag": estimated("diagonal", method="xdiag", products=30),
    "Frobenius norm": estimated("frobenius_norm", B[:20], exact=True),
    "SVD": estimated("low_rank", B, rank=5),
    "Nyström": estimated("low_rank", DEFINITE, rank=5, method="nystrom"),
    "CG": solved("cg", DEFINITE),
    "preconditioned CG": solved("cg", DEFINITE, preconditioner=np.diag(1 / np.diag(DEFINITE))),
    "MINRES": solved("minres", SYMMETRIC, maxiter=1000),
    "Newton": minimised(oj.newton_cg, maxiter=5),
    "Newton along a line": minimised(oj.newton_cg, globalization="line search"),
    "natural gradient": minimised(oj.natural_gradient, at="logits"),
    "least squares": least_squares,
    "K-FAC": factored("kfac"),
    "K-FAC by draws": factored("kfac", fisher_type="mc", seed=3, joint=True),
    "E-KFAC": factored("ekfac"),
    "E-KFAC of kept batches": factored("ekfac", keep=2**20),
    "Shampoo": factored("shampoo", fisher_type="empirical"),
}


def over_tensors(work, A):
    """A work on a matrix that is a tensor of PyTorch."""
    return lambda file: (work(pytest.importorskip("torch").from_numpy(A), file),)


def solved_over_tensors(solver):
    return over_tensors(lambda A, file: oj.inverse(
        oj.asoperator(A), solver=solver, resume=file) @ A.new_tensor(RIGHT), DEFINITE)  # fmt: skip


OVER_TENSORS = {
    "density over tensors": over_tensors(lambda A, file: oj.estimators.spectral_density(
        A, steps=8, probes=3, exact=False, resume=file).nodes, SYMMETRIC),
    "XDiag over tensors": over_tensors(lambda A, file: oj.estimators.diagonal(
        A, method="xdiag", products=30, resume=file).value, SYMMETRIC),
    "CG over tensors": solved_over_tensors("cg"),
    "MINRES over tensors": solved_over_tensors("minres"),
}  # fmt: skip


def assert_bits(found, expected):
    """The same numbers, to the last bit, in arrays of one kind."""
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert type(one) is type(other)
        assert np.array_equal(one, other)
