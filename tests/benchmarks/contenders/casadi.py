"""CasADi: the residual as one expression graph, its derivatives as compiled-in functions."""

from __future__ import annotations

from typing import Any, ClassVar

import casadi
import numpy as np
from scipy.sparse import csc_array

from ..workloads import Workload
from .contender import Contender, Task


class Vocabulary:
    """The operations of the residual that CasADi's matrices lack."""

    @staticmethod
    def pad(x: Any, width: int) -> Any:
        """Zeros around both axes of a matrix."""
        n, m = x.shape
        wide = casadi.SX(n + 2 * width, m + 2 * width)
        wide[width : n + width, width : m + width] = x
        return wide


class Casadi(Contender):
    """`jtimes` and `jacobian` of a function of one matrix; CasADi is column-major."""

    library: ClassVar[str] = "casadi"
    only: ClassVar[tuple[str, ...]] = ("jvp", "sparse")

    @classmethod
    def suits(cls, workload: Workload) -> bool:
        return workload.stencil

    def __init__(self, workload: Workload, device: str = "cpu") -> None:
        super().__init__(workload, device)
        self.u = casadi.SX.sym("u", *self.point[0].shape)
        self.y = workload.forward(Vocabulary, {"u": self.u})

    def jvp(self) -> Task:
        v = casadi.SX.sym("v", *self.u.shape)
        product = casadi.jtimes(self.y, self.u, v)
        function = casadi.Function("jvp", [self.u, v], [product])
        point, tangent = casadi.DM(self.point[0]), casadi.DM(*self.split(self.tangent))
        return lambda: function(point, tangent)

    def sparse(self) -> Task:
        """The Jacobian, row-major in the residual and in u, as CasADi's own sparse matrix."""
        matrix = casadi.jacobian(casadi.vec(self.y.T), casadi.vec(self.u.T))
        function = casadi.Function("sparse", [self.u], [matrix])
        return self.in_turn(lambda u: function(casadi.DM(u)))

    def comparable(self, result: Any, product: str) -> np.ndarray:
        matrix = csc_array(result.sparse()) if product == "sparse" else result.full()
        return super().comparable(matrix, product)


CONTENDERS = {"casadi": Casadi}
