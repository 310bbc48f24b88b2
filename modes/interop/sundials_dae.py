"""SUNDIALS for DAEs: r(t, u, u̇) = 0 with its exact Jacobian as the callbacks of IDA.

Newton's method solves with A = ∂r/∂u + c ∂r/∂u̇, of which J = ∂r/∂(u, u̇) gives both parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from scipy.sparse import csc_array, csr_array

from ...jacobians.errors import InputError, optional
from ..model.primal.inputs import distinct
from .operators import asoperator

Preconditioner = Callable[[Any], Any]


class DaeResidual:
    """r and its derivatives for a `problem` whose x are states u and `rates` u̇."""

    def __init__(self, problem: Any, rates: str | Iterable[str]) -> None:
        named, start = distinct(rates, "rates"), problem.start
        for name in named:
            if name not in start:
                raise InputError(f"rates={name!r} is not in wrt: {', '.join(start)}")
        rate = np.repeat([name in named for name in start], [x.size for x in start.values()])
        self.problem, self.u, self.du = problem, np.flatnonzero(~rate), np.flatnonzero(rate)
        self.x0 = np.array(problem.x0, float)
        count = len(problem.values(self.x0, *self.time(0.0)))
        if not count == len(self.u) == len(self.du):
            raise InputError(f"{count} residuals for {len(self.u)} states and {len(self.du)} "
                             "rates: name both by wrt=, residuals by of=, time by t=")  # fmt: skip

    def time(self, t: float) -> tuple[float, ...]:
        return () if self.problem.t is None else (t,)

    def joined(self, y: np.ndarray, dy: np.ndarray) -> np.ndarray:
        """(u, u̇) in the order of x."""
        x = np.empty_like(self.x0)
        x[self.u], x[self.du] = y, dy
        return x

    def r(self, t: float, y: np.ndarray, dy: np.ndarray, found: np.ndarray) -> None:
        found[:] = self.problem.values(self.joined(y, dy), *self.time(t))

    def J(self, t: float, y: np.ndarray, dy: np.ndarray) -> Any:
        return self.problem.linearized(self.joined(y, dy), *self.time(t))

    def start(self) -> tuple[csr_array[Any], csr_array[Any]]:
        """Both parts of J at the start, with the entries that they have at all points."""
        return self.parts(self.J(0.0, self.x0[self.u], self.x0[self.du]).tosparse())

    def parts(self, J: csr_array[Any]) -> tuple[csr_array[Any], csr_array[Any]]:
        """∂r/∂u and ∂r/∂u̇."""
        return J[:, self.u], J[:, self.du]


def dae_callbacks(
    problem: Any, rates: str | Iterable[str], preconditioner: Preconditioner | None
) -> dict[str, Any]:
    """The options of IDA for r(t, u, u̇) = 0, u̇ the tensors `rates` of the problem."""
    f = DaeResidual(problem, rates)
    algebraic = np.flatnonzero(np.bincount(f.start()[1].indices, minlength=len(f.u)) == 0)
    found: dict[str, Any] = {"resfn": f.r}
    if len(algebraic):
        found["algebraic_idx"] = algebraic.tolist()
    by = {"dense": dae_by_lu, "sparse": dae_by_sparse_lu}.get(problem.form)
    return {**found, **(by(f) if by else dae_by_gmres(f, preconditioner))}


def dae_by_lu(f: DaeResidual) -> dict[str, Any]:
    """A for dense LU."""

    def jacfn(t: float, y: Any, dy: Any, _: Any, c: float, A: np.ndarray) -> None:
        J = f.J(t, y, dy).toarray()
        A[:] = J[:, f.u] + c * J[:, f.du]

    return {"linsolver": "dense", "jacfn": jacfn}


def dae_by_sparse_lu(f: DaeResidual) -> dict[str, Any]:
    """A for sparse LU: its entries column by column."""
    n, keys = len(f.u), [numbered(part) for part in f.start()]
    every = np.unique(np.concatenate(keys))
    slots = [np.searchsorted(every, each) for each in keys]
    columns, rows = np.divmod(every, n)
    starts = np.searchsorted(columns, np.arange(n + 1)).astype(np.int32)
    sparsity = csc_array((np.ones(len(every), bool), rows.astype(np.int32), starts), (n, n))

    def jacfn(t: float, y: Any, dy: Any, _: Any, c: float, entries: np.ndarray) -> None:
        by_state, by_rate = f.parts(f.J(t, y, dy).tosparse())
        entries[:] = 0.0
        entries[slots[0]] += by_state.data
        entries[slots[1]] += c * by_rate.data

    return {"linsolver": "sparse", "sparsity": sparsity, "jacfn": jacfn}


def numbered(A: csr_array[Any]) -> np.ndarray:
    """The places of the entries of a square matrix, numbered column by column."""
    rows = np.repeat(np.arange(A.shape[0]), np.diff(A.indptr))
    return A.indices.astype(np.int64) * A.shape[0] + rows


def dae_by_gmres(f: DaeResidual, preconditioner: Preconditioner | None) -> dict[str, Any]:
    """A v = J (v, c v) for GMRES, and M ≈ A⁻¹."""
    ida, M = optional("sksundae.ida", "sundials"), None

    def product(t: float, y: Any, dy: Any, _: Any, v: Any, Av: np.ndarray, c: float) -> None:
        Av[:] = f.J(t, y, dy) @ f.joined(v, c * v)

    def setup(t: float, y: Any, dy: Any, _: Any, c: float) -> None:
        nonlocal M
        by_state, by_rate = f.parts(f.J(t, y, dy).tosparse())
        assert preconditioner is not None
        M = preconditioner(asoperator(by_state + c * by_rate))

    def solve(
        t: float, y: Any, dy: Any, _: Any, b: Any, z: np.ndarray, c: float, δ: float
    ) -> None:
        z[:] = M @ b

    found = {"linsolver": "gmres", "jactimes": ida.IDAJacTimes(None, product)}
    return found if preconditioner is None else {**found, "precond": ida.IDAPrecond(setup, solve)}
