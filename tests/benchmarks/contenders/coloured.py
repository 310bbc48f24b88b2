"""Sparse Jacobians by coloured products in JAX: colours computed once, products compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from scipy.sparse import csr_array, diags_array, kronsum

from ..workloads import Workload
from .contender import Task
from .jax import Jax


class Coloured(Jax):
    """Base class: the residual of a flat vector, at alternating points."""

    only: ClassVar[tuple[str, ...]] = ("sparse",)

    @classmethod
    def suits(cls, workload: Workload) -> bool:
        return workload.stencil

    def vector(self, x: Any) -> Any:
        """The flat residual as a function of a flat vector."""
        return self.f(x.reshape(self.point[0].shape)).ravel()

    def by(self, sparse: Callable[[Any], Any]) -> Task:
        """The compiled function of a flat point, run to completion."""
        fast = jax.jit(sparse)
        return self.in_turn(lambda u: jax.block_until_ready(fast(u.ravel())))

    def pattern(self) -> csr_array:
        """The five-point stencil: each grid point and its four neighbours."""
        n = self.point[0].shape[0]
        line = diags_array([1.0, 1.0, 1.0], offsets=[-1, 0, 1], shape=(n, n))
        return csr_array(kronsum(line, line))


class Asdex(Coloured):
    """asdex finds the pattern and its colouring."""

    def sparse(self) -> Task:
        import asdex

        return self.by(asdex.jacobian(self.vector, self.point[0].ravel()))


class Sparsejac(Coloured):
    """sparsejac is given the pattern and finds the colouring."""

    def sparse(self) -> Task:
        import sparsejac
        from jax.experimental.sparse import BCOO

        return self.by(sparsejac.jacfwd(self.vector, BCOO.from_scipy_sparse(self.pattern())))


class Expert(Coloured):
    """Code that an expert writes by hand: five colours, gathered in CSR order."""

    def sparse(self) -> Task:
        (u,) = self.point
        pattern, n = self.pattern(), u.shape[0]
        rows = np.repeat(np.arange(n * n), np.diff(pattern.indptr))
        colours = np.add.outer(np.arange(n), 2 * np.arange(n)) % 5
        seeds = jnp.asarray(np.equal.outer(np.arange(5), colours).astype(u.dtype))
        chosen = colours.ravel()[pattern.indices], rows

        @jax.jit
        def entries(x: Any) -> Any:
            push = jax.linearize(self.f, x)[1]
            return jax.vmap(push)(seeds).reshape(5, -1)[chosen]

        def sparse(x: Any) -> csr_array:
            parts = np.asarray(entries(x)), pattern.indices, pattern.indptr
            return csr_array(parts, shape=pattern.shape)

        return self.in_turn(sparse)


CONTENDERS = {"jax asdex": Asdex, "jax sparsejac": Sparsejac, "jax colours expert": Expert}
