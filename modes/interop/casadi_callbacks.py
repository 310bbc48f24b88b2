"""Callbacks of CasADi: functions of Python with exact sparse derivatives, to second order.

x ↦ y has the partial J, and (x, u) ↦ Jᵀ u, behind its reverse mode, the partials H and Jᵀ, with
H = ∂²(uᵀ y)/∂x². J and H are Functions without derivatives whose sparsity never changes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import count
from typing import Any

import numpy as np

from ...jacobians.errors import InputError, optional

CREATED: list[Any] = []
"""All Functions that Python computes, for CasADi keeps no reference to them."""

NUMBERS = count()


def casadi_function(
    value: Callable[..., Any], jac: Callable[..., Any], hess: Callable[..., Any],
    pull: Callable[..., Any], start: np.ndarray, m: int,
) -> Any:  # fmt: skip
    """x ↦ y, from y(x), the sparse J(x) and H(x, u), and Jᵀ u; m numbers from a `start` of n."""
    Called, column = called_type(), optional("casadi", "casadi").Sparsity.dense
    n = len(start)
    J = Called([n], sparsity_of(jac(start)), jac)
    H = Called([n, m], sparsity_of(hess(start, np.ones(m))), hess)
    backward = Called([n, m], column(n, 1), pull, lambda x, u: [H(x, u), J(x).T])
    return Called([n], column(m, 1), value, lambda x: [J(x)], backward)


def sparsity_of(A: Any) -> Any:
    """The pattern of a sparse array."""
    A = A.tocsc()
    return optional("casadi", "casadi").Sparsity(*A.shape, A.indptr.tolist(), A.indices.tolist())


@cache
def called_type() -> Any:
    """The class of Functions of vectors that Python computes."""
    ca = optional("casadi", "casadi")
    Base: Any = ca.Callback

    class Called(Base):
        """Vectors ↦ a vector or a sparse matrix, with `partials` as expressions, if any."""

        def __init__(
            self, sizes: list[int], out: Any, compute: Callable[..., Any],
            partials: Any = None, backward: Any = None,
        ) -> None:  # fmt: skip
            Base.__init__(self)
            self.sizes, self.out, self.compute = sizes, out, compute
            self.partials, self.backward = partials, backward
            CREATED.append(self)
            self.construct(f"onnx{next(NUMBERS)}", {})

        def get_n_in(self) -> int:
            return len(self.sizes)

        def get_n_out(self) -> int:
            return 1

        def get_sparsity_in(self, i: int) -> Any:
            return ca.Sparsity.dense(self.sizes[i], 1)

        def get_sparsity_out(self, i: int) -> Any:
            return self.out

        def eval(self, args: Any) -> list[Any]:
            made = self.compute(*(a.full().ravel() for a in args))
            numbers = made.tocsc().data if hasattr(made, "tocsc") else np.ravel(made)
            if len(numbers) != self.out.nnz():
                raise InputError("the model computes other steps here, so that other entries of "
                                 "its derivative may be nonzero than at the start")  # fmt: skip
            return [ca.DM(self.out, numbers)]

        def symbols(self) -> list[Any]:
            return [ca.MX.sym("x", n) for n in self.sizes]

        def has_jacobian(self) -> bool:
            return self.partials is not None

        def has_forward(self, k: int) -> bool:
            return self.partials is not None

        has_reverse = has_forward

        def has_jac_sparsity(self, o: int, i: int) -> bool:
            return self.partials is not None

        def get_jac_sparsity(self, o: int, i: int, symmetric: bool) -> Any:
            return self.partials(*self.symbols())[i].sparsity()

        def get_jacobian(self, name: str, ins: Any, outs: Any, options: Any) -> Any:
            x = self.symbols()
            y = ca.MX.sym("y", self.out)
            return ca.Function(name, [*x, y], self.partials(*x), ins, outs, options)

        def get_forward(self, k: int, name: str, ins: Any, outs: Any, options: Any) -> Any:
            x, y = self.symbols(), ca.MX.sym("y", self.out)
            V = [ca.MX.sym("v", n, k) for n in self.sizes]
            made = sum(P @ v for P, v in zip(self.partials(*x), V, strict=True))
            return ca.Function(name, [*x, y, *V], [made], ins, outs, options)

        def get_reverse(self, k: int, name: str, ins: Any, outs: Any, options: Any) -> Any:
            x, y = self.symbols(), ca.MX.sym("y", self.out)
            U = ca.MX.sym("u", self.out.size1(), k)
            if self.backward is None:
                made = [P.T @ U for P in self.partials(*x)]
            else:
                made = [ca.horzcat(*(self.backward(*x, u) for u in ca.horzsplit(U)))]
            return ca.Function(name, [*x, y, U], made, ins, outs, options)

    return Called
