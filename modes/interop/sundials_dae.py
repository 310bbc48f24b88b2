"""SUNDIALS for DAEs: r(t, u, u̇) = 0 with its exact Jacobian as the callbacks of IDA.

Newton's method solves with A = ∂r/∂u + c ∂r/∂u̇, of which J = ∂r/∂(u, u̇) gives both parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from ...jacobians.errors import InputError, optional
from ..model.primal.inputs import distinct
from ..sparse import pattern
from ..sparse.fixed_pattern import FixedPattern, Placed
from .operators import asoperator

Preconditioner = Callable[[Any], Any]


class Residual:
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

    def parts(self, J: csr_array[Any]) -> tuple[csr_array[Any], csr_array[Any]]:
        """∂r/∂u and ∂r/∂u̇."""
        return J[:, self.u], J[:, self.du]


def dae_callbacks(
    problem: Any, rates: str | Iterable[str], preconditioner: Preconditioner | None
) -> dict[str, Any]:
    """The options of IDA for r(t, u, u̇) = 0, u̇ the tensors `rates` of the problem."""
    f = Residual(problem, rates)
    mass = pattern(f.J(0.0, f.x0[f.u], f.x0[f.du]))[:, f.du]
    algebraic = np.flatnonzero(np.bincount(mass.indices, minlength=len(f.u)) == 0)
    found: dict[str, Any] = {"resfn": f.r}
    if len(algebraic):
        found["algebraic_idx"] = algebraic.tolist()
    by = {"dense": by_dense, "sparse": by_entries}.get(problem.form)
    return {**found, **(by(f) if by else by_products(f, preconditioner))}


def by_dense(f: Residual) -> dict[str, Any]:
    """A for dense LU."""

    def jacfn(t: float, y: Any, dy: Any, _: Any, c: float, A: np.ndarray) -> None:
        J = f.J(t, y, dy).toarray()
        A[:] = J[:, f.u] + c * J[:, f.du]

    return {"linsolver": "dense", "jacfn": jacfn}


def by_entries(f: Residual) -> dict[str, Any]:
    """A for sparse LU: its entries column by column."""
    whole, every = pattern(f.J(0.0, f.x0[f.u], f.x0[f.du])), np.arange(len(f.u))
    total = FixedPattern((len(every),) * 2, [Placed(p, every, every) for p in f.parts(whole)])
    sparsity = total.matrix(np.arange(len(total.keys))).tocsc()
    places, sparsity.data = sparsity.data, np.ones(len(total.keys), bool)

    def jacfn(t: float, y: Any, dy: Any, _: Any, c: float, entries: np.ndarray) -> None:
        by_state, by_rate = f.parts(f.J(t, y, dy).tosparse())
        entries[:] = total.values([by_state, c * by_rate])[places]

    return {"linsolver": "sparse", "sparsity": sparsity, "jacfn": jacfn}


def by_products(f: Residual, preconditioner: Preconditioner | None) -> dict[str, Any]:
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
