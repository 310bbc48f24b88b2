"""Work over tensors of PyTorch goes on to the same bits, on tensors again."""

import numpy as np
import pytest

import onnxjac as oj

from .works import DEFINITE, RIGHT, SYMMETRIC, killed

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.peers


def density(file):
    A = torch.from_numpy(SYMMETRIC)
    return oj.estimators.spectral_density(A, steps=8, probes=3, exact=False, resume=file).nodes


def diagonal(file):
    A = torch.from_numpy(SYMMETRIC)
    return oj.estimators.diagonal(A, method="xdiag", products=30, resume=file).value


def solved(solver):
    A, B = torch.from_numpy(DEFINITE), torch.from_numpy(RIGHT)
    return lambda file: oj.inverse(oj.asoperator(A), solver=solver, resume=file) @ B


WORKS = {"density": density, "XDiag": diagonal, "CG": solved("cg"), "MINRES": solved("minres")}


@pytest.mark.parametrize("name", WORKS)
def test_the_same_bits_after_an_interruption(name, tmp_path):
    expected = WORKS[name](oj.ResumeFile(tmp_path / "whole.npz"))
    file = oj.ResumeFile(tmp_path / "run.npz", every=2)
    with killed(9):
        WORKS[name](file)
    found = WORKS[name](file)
    assert type(found) is type(expected)
    assert np.array_equal(np.asarray(found), np.asarray(expected))
