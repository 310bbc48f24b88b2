"""Guest: how an operator stands with other libraries, which bring arrays and take operators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .arrays import prod_text
from .errors import InputError
from .foreign import native
from .hooks import to_jax, to_pylops, to_torch

if TYPE_CHECKING:  # SciPy's stubs have no place for a subclass whose sums and products are its kind
    LinearOperator = Any
else:
    from scipy.sparse.linalg import LinearOperator


class Guest(LinearOperator):
    """Products take arrays of any library and give NumPy arrays; `to_...` gives what others use."""

    def matvec(self, x: Any) -> np.ndarray:
        """J x for a vector x."""
        return super().matvec(native(x))

    def rmatvec(self, x: Any) -> np.ndarray:
        """Jᵀ x for a vector x."""
        return super().rmatvec(native(x))

    def matmat(self, X: Any) -> np.ndarray:
        """J X for a matrix X, all its columns at once."""
        return super().matmat(native(X))

    def rmatmat(self, X: Any) -> np.ndarray:
        """Jᵀ X for a matrix X, all its columns at once."""
        return super().rmatmat(native(X))

    def dot(self, x: Any) -> Any:
        return super().dot(self._factor(native(x)))

    def _factor(self, x: Any) -> Any:
        """What J can be multiplied by: of arrays a vector of n, or a matrix of n rows."""
        n = self.shape[1]
        if isinstance(x, np.ndarray) and x.ndim and (x.ndim > 2 or len(x) != n):
            said = ": x.ravel() is such a vector" if x.size == n else ""
            named = "; J.apply({name: x}) takes tensors" if hasattr(self, "apply") else ""
            raise InputError(
                f"dimension mismatch: J, {prod_text(self.shape)}, multiplies a vector of {n} or a "
                f"matrix of {n} rows, not an array of shape {list(x.shape)}{said}{named}"
            )
        return x

    def __rmul__(self, x: Any) -> Any:
        return super().__rmul__(native(x))

    def to_torch(self) -> Any:
        """v ↦ J v as a function of PyTorch: (*K, n) -> (*K, m), any leading axes K.

        Autograd pulls cotangents back by Jᵀ, to any order; forward mode and `torch.func` work too.
        Needs `onnxjac[torch]`.
        """
        return to_torch(self)

    def to_jax(self) -> Any:
        """v ↦ J v as a function of JAX: (*K, n) -> (*K, m), any leading axes K.

        It stands `jit`, `vmap`, `jvp`, `grad` and their compositions. Needs `onnxjac[jax]`.
        """
        return to_jax(self)

    def to_pylops(self) -> Any:
        """J as a `pylops.LinearOperator`; a side that is one tensor has its shape as dims or dimsd.

        Needs `onnxjac[pylops]`.
        """
        return to_pylops(self)
