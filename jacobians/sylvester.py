"""Sylvester: A X + X Bᵀ = C solved by the Schur forms of A and B."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import scipy.linalg

from .arrays import Array, Op, dtype_of, factor, host, is_tensor, lead, reading, shape_of, wide
from .base import Jacobian
from .errors import InputError
from .matrices import Dense
from .threads import cached_property


class Sylvester(Jacobian):
    """C ↦ X with A X + X Bᵀ = C, the inverse of A ⊗ I + I ⊗ B, by Schur forms (Bartels, Stewart).

    A = `a` is (m, m) and B = `b` is (n, n), without a sum of two of their eigenvalues that is 0.
    The Schur forms take O(m³ + n³) flops, once; a product takes O(m² n + m n²). The transpose knows
    its `origin`, for the Schur forms.

    >>> S = Sylvester(np.array([[1.0, 2.0], [0.0, 3.0]]), np.array([[5.0]]))
    >>> S @ np.array([8.0, 8.0])
    array([1., 1.])
    """

    holds = ("a", "b")

    def __init__(self, a: Array, b: Array, origin: Sylvester | None = None) -> None:
        self.a, self.b = a, b = factor(a), factor(b)
        sides = [shape_of(f) for f in (a, b)]
        if any(len(shape) != 2 or shape[0] != shape[1] for shape in sides):
            raise InputError(f"Sylvester: A and B are square, not {list(sides[0])} and "
                             f"{list(sides[1])}")  # fmt: skip
        shape = (sides[0][0], sides[1][0])
        super().__init__(shape, shape, np.result_type(dtype_of(a), dtype_of(b)))
        self.origin = origin

    @cached_property
    def schur(self) -> tuple[np.ndarray, ...]:
        """T, U, S, V with A = U T Uᴴ and Bᵀ = V S Vᴴ."""
        if self.origin is not None:
            return self.origin.schur
        dtype = wide(self.dtype)
        output = "complex" if dtype.kind == "c" else "real"
        schur: Any = partial(scipy.linalg.schur, output=output, check_finite=False)
        (T, U), (S, V) = (schur(np.asarray(host(f), dtype)) for f in (self.a, self.b.T))
        return T, U, S, V

    @cached_property
    def matrix(self) -> np.ndarray:
        """The dense matrix."""
        return self.toarray()

    def _apply(self, op: Op, v: Array) -> Array:
        if is_tensor(v):
            return op.by_numbers("Sylvester", lambda x: self._apply(reading(x), x), v)
        if not isinstance(v, np.ndarray) or v.dtype.kind == "O":  # a graph holds the matrix
            return Dense(self.matrix, self.out_shape, self.in_shape)._apply(op, v)
        if np.iscomplexobj(v) and self.dtype.kind != "c":  # a real Schur form takes real columns
            return self._apply(op, v.real) + 1j * self._apply(op, v.imag)
        found = [self._solved(C) for C in v.reshape(-1, *self.in_shape)]
        whole = np.array(found, wide(self.dtype)) if found else v
        return whole.reshape(*lead(v, self.in_shape), *self.out_shape)

    def _solved(self, C: np.ndarray) -> np.ndarray:
        """X; of the transpose, Aᵀ X + X B = C, by the conjugate equation and the same forms."""
        T, U, S, V = self.schur
        flipped = self.origin is not None
        F = U.conj().T @ (C.conj() if flipped else C) @ V
        trsyl: Any = scipy.linalg.get_lapack_funcs("trsyl", (T, S, F))
        Y, scale, _ = trsyl(T, S, F, **({"trana": "C", "tranb": "C"} if flipped else {}))
        X = U @ (Y / scale) @ V.conj().T
        return X.conj() if flipped else X

    def _transpose(self) -> Jacobian:
        return self.origin or Sylvester(self.a.T, self.b.T, self)

    @property
    def values(self) -> np.ndarray:
        """λᵢ + μⱼ for the eigenvalues of A and B."""
        if "schur" in vars(self):
            a, b = map(of_schur, self.schur[::2])
        else:
            a, b = (np.linalg.eigvals(np.asarray(f, wide(self.dtype))) for f in (self.a, self.b))
        return a[:, None] + b

    @property
    def flops(self) -> int:
        m, n = self.in_shape
        return 5 * m * n * (m + n)

    def __repr__(self) -> str:
        m, n = self.in_shape
        return f"sylvester({m}×{m}, {n}×{n})"


def of_schur(T: np.ndarray) -> np.ndarray:
    """The eigenvalues of a Schur form: a ± √(b c) of a block [[a, b], [c, a]] on its diagonal."""
    roots = np.sqrt(np.diagonal(T, 1) * np.diagonal(T, -1) + 0j)
    values = np.diagonal(T) + 0j
    values[:-1] += roots
    values[1:] -= roots
    return values
