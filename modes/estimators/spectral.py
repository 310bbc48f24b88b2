"""Spectral: determinants, eigenvalues, singular values and norms, exact for every operator.

By structure where `closed`, `spectrum` or `squared` know it, else from the dense matrix.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...jacobians import Jacobian, hooks, slogdet_of
from ...jacobians.closed import (
    SlogDet,
    check_square,
    determinant,
    is_hermitian,
    of_entries,
    shifted,
)
from ...jacobians.errors import InputError
from ...jacobians.functions import function_of
from ..curvature.kronecker import KroneckerFactored
from ..sparse.unwrap import unwrap
from .exact import known_squares, spectrum


@hooks.slogdet.register
def _(J: Jacobian) -> SlogDet:
    found = slogdet_of(unwrap(J))
    if found is None and J.dtype.kind != "c" and (values := spectrum(J, "eigenvalues")) is not None:
        return of_entries(values)
    if found is None:
        sign, log = np.linalg.slogdet(J.toarray())
        found = sign.item(), float(log)
    return found


@determinant.register
def _(operator: KroneckerFactored) -> SlogDet | None:
    return of_entries(operator.eigenvalues()) if operator.tiled else None


@shifted.register
def _(operator: KroneckerFactored, shift: float) -> Jacobian | None:
    return operator.inverse(shift) if shift >= 0 and operator.tiled else None


@hooks.eigvalsh.register
def _(J: Jacobian) -> np.ndarray:
    check_square(J)
    found = None if J.dtype.kind == "c" else spectrum(J, "eigenvalues")
    if found is not None:
        return np.sort(found)
    matrix = J.toarray()
    if not is_hermitian(matrix):
        raise InputError(f"{J!r} is not Hermitian: it has singular values, svdvals()")
    return np.linalg.eigvalsh(matrix)


@hooks.svdvals.register
def _(J: Jacobian) -> np.ndarray:
    found = spectrum(J, "singular values")
    if found is None:
        return np.linalg.svd(J.toarray(), compute_uv=False)
    return np.sort(np.abs(found))[::-1]


@hooks.function.register
def _(J: Jacobian, name: str, *args: Any) -> Any:
    return function_of(unwrap(J), name, *args)


@hooks.norm.register
def _(J: Jacobian, ord: str | int = "fro") -> float:
    if ord not in NORMS:
        raise InputError(f"norm(ord={ord!r}): ord is one of {', '.join(map(repr, NORMS))}")
    known = known_squares(J) if ord == "fro" and J.dtype.kind != "c" else None
    if known is not None:
        return float(np.sqrt(known[0].sum()))
    if ord == "fro" and spectrum(J, "singular values") is None:
        return float(np.linalg.norm(J.toarray()))
    return float(NORMS[ord](J.svdvals()))


NORMS: dict[str | int, Callable[[np.ndarray], Any]] = {
    "fro": np.linalg.norm, 2: lambda values: values.max(initial=0), "nuc": np.sum,
}  # fmt: skip
"""ord -> the norm from the singular values."""
