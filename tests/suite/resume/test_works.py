"""Interrupted work goes on from its file, to the bits of work that was not interrupted."""

from itertools import pairwise

import numpy as np
import pytest

import onnxjac as oj
from data.regressions import UNEVEN, W, softmax_regression
from onnxjac.modes import resume
from onnxjac.modes.estimators import estimate

from .works import (
    DATA,
    DEFINITE,
    OVER_TENSORS,
    RIGHT,
    SYMMETRIC,
    WORKS,
    Faulty,
    Interrupted,
    assert_bits,
    counted,
    killed,
)

BY_PRODUCTS_ALONE = [
    "density", "log det", "spectral norm", "condition number", "XTrace", "Hutch++", "exact trace",
    "XDiag", "Frobenius norm", "SVD", "Nyström", "CG", "preconditioned CG",
]  # fmt: skip
"""Works whose arithmetic is the same without a file, by SciPy too: no model adapts to its use."""

every_work = pytest.mark.parametrize("work", [
    *(pytest.param(work, id=name) for name, work in WORKS.items()),
    *(pytest.param(work, id=name, marks=pytest.mark.peers) for name, work in OVER_TENSORS.items()),
])  # fmt: skip


@pytest.fixture(autouse=True)
def _products_of_few_columns(monkeypatch):
    monkeypatch.setattr(estimate, "CHUNK_BYTES", 8 * 60 * 4)


@pytest.fixture
def file(tmp_path):
    return oj.ResumeFile(tmp_path / "run.npz", every=2)


@every_work
def test_interrupted_work_ends_in_the_same_bits(work, file):
    with counted() as turns:
        expected = work(file)
    for after in sorted({len(turns) // 2, len(turns) - 1}):
        file.file.unlink(missing_ok=True)
        with killed(after):
            work(file)
            raise AssertionError("the work was not interrupted")
        with counted() as rest:
            assert_bits(work(file), expected)
        assert len(rest) <= len(turns)
    assert len(rest) < len(turns), "the file saved nothing"


@pytest.mark.parametrize("name", BY_PRODUCTS_ALONE)
def test_a_file_changes_no_bit(name, file):
    assert_bits(WORKS[name](file), WORKS[name](None))


@every_work
def test_a_finished_work_has_its_result_at_once(work, file):
    expected = work(file)
    with counted() as turns:
        assert_bits(work(file), expected)
    assert not turns


@pytest.mark.parametrize("at", [2, 9, 17, 25])
def test_an_error_of_the_operator_loses_no_product(at, file):
    """Of a step of Lanczos with three probes, which are one product of the operator."""

    def density(A):
        given = {"steps": 8, "probes": 3, "exact": False, "resume": file}
        return oj.estimators.spectral_density(A, **given)

    with pytest.raises(Interrupted):
        density(Faulty(SYMMETRIC, at))
    kept = 0 if at < 3 else 2 + (at - 3) // 3 * 3  # a pair of the test for symmetry, and the steps
    whole, rest = Faulty(SYMMETRIC), Faulty(SYMMETRIC)
    found = density(rest)
    file.file.unlink()
    assert_bits((found.nodes, found.weights), (lambda f: (f.nodes, f.weights))(density(whole)))
    assert rest.products == whole.products - kept


def test_an_error_in_cg_loses_no_product(file):
    def solve(A):
        return oj.inverse(oj.asoperator(A), solver="cg", resume=file) @ RIGHT[:, 0]

    with pytest.raises(Interrupted):
        solve(Faulty(DEFINITE, 10))
    whole, rest = Faulty(DEFINITE), Faulty(DEFINITE)
    found = solve(rest)
    file.file.unlink()
    assert np.array_equal(found, solve(whole))
    assert rest.products == whole.products - 9  # of 10, one told that the operator is the same


@pytest.mark.parametrize("every", [1, 7, 24, 1000])
def test_the_file_is_written_as_often_as_asked_for(every, tmp_path, monkeypatch):
    """After every so many of 2 + 24 products, and at the end where the state is not written yet."""
    written = []
    write = resume.replace_file
    monkeypatch.setattr(resume, "replace_file", lambda *args: written.append(1) or write(*args))
    given = {"steps": 8, "probes": 3, "exact": False}
    file = oj.ResumeFile(tmp_path / "run.npz", every=every)
    oj.estimators.spectral_density(Faulty(SYMMETRIC), resume=file, **given)
    counts = [0, 2, *range(5, 27, 3)]
    due = sum(b // every > a // every for a, b in pairwise(counts))
    assert len(written) == due + 1


def test_more_iterations_go_on_where_fewer_ended(file):
    with pytest.raises(oj.NotConverged):
        oj.inverse(DEFINITE, solver="cg", maxiter=5, resume=file) @ RIGHT
    found = oj.inverse(DEFINITE, solver="cg", resume=file) @ RIGHT
    assert np.allclose(DEFINITE @ found, RIGHT)


def test_the_operator_of_a_model_is_compiled(file):
    """Its first products would take another way than later ones, and have other bits."""
    H = oj.hessian(softmax_regression(), {**UNEVEN[0], "W": W}, of="loss", wrt="W")
    given = {"steps": 6, "probes": 2, "exact": False}
    found = oj.estimators.spectral_density(H, resume=file, **given)
    expected = oj.estimators.spectral_density(H.compile(), **given)
    assert np.array_equal(found.nodes, expected.nodes)


def test_solvers_without_a_state_are_refused(file):
    with pytest.raises(oj.InputError, match=r"gmres keeps no state.*cg and minres do"):
        oj.inverse(DEFINITE, solver="gmres", resume=file)
    with pytest.raises(oj.InputError, match="no state to go on from: use tol="):
        oj.newton_cg(softmax_regression(), UNEVEN, options={"gtol": 1}, resume=file, **DATA)
