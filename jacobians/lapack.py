"""LAPACK: inverses, determinants and eigenvectors of stacks of matrices."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, cast

import numpy as np
import scipy.linalg
from numpy.typing import DTypeLike

from .arrays import dtype_of, host, prod_text, rounded, wide, widened
from .base import Jacobian
from .errors import InputError, warn
from .readings import library_of, module_of

SlogDet = tuple[Any, float]
"""The sign of a determinant, or its phase, and the logarithm of its absolute value."""

ZERO_DET = (0.0, -np.inf)

LOST = 0.1
"""The relative error at which an inverse is none: its operator is singular, up to rounding."""

LAPACK_ROWS = 32
"""LAPACK starts no threads for triangles of twice as many rows."""


class Singular(InputError):
    """A part of an operator has no inverse; `why` says so in numbers."""

    why = ""


def singular(operator: Jacobian, why: str) -> Singular:
    """The error for an operator, or a part of one, that has no inverse."""
    error = Singular(
        f"{operator!r}, {prod_text(operator.shape)}, has no inverse: {why}. Add damping, A + λ * "
        f"identity_like(A), or take the pseudo-inverse, solver='lsmr'"
    )
    error.why = why
    return error


def warn_of_rounding(operator: Jacobian, why: str) -> None:
    """Warns that rounding decides det A."""
    warn(f"{operator!r}, {prod_text(operator.shape)}, may have another determinant, by rounding: "
         f"{why}. Add damping, A + λ * identity_like(A)")  # fmt: skip


def check_regular(whole: Jacobian, values: np.ndarray, rounding: float) -> None:
    """Raises `Singular` where the smallest of some eigenvalues is 0, up to rounding."""
    sizes = np.abs(values)
    if sizes.min(initial=np.inf) <= rounding * sizes.max(initial=0):
        raise singular(whole, f"its smallest eigenvalue is {sizes.min():.2g}")


def inverses(matrices: np.ndarray, whole: Jacobian, name: str = "") -> np.ndarray:
    """A⁻¹ of each matrix in (*batch, n, n); `whole` and `name` say which they are."""
    m, n = matrices.shape[-2:]
    if m != n:
        raise singular(whole, f"its {name} factor is {m}×{n}" if name else f"it holds {m}×{n}")
    work, dtype, norm = widened(matrices), dtype_of(matrices), module_of(matrices).linalg.norm
    with np.errstate(all="ignore"):
        found = library_of(work).inverse(work)
        norms = host(norm(work, 1, (-2, -1)) * norm(found, 1, (-2, -1)))
        bad = ~(norms * eps_of(dtype) < LOST)
    if np.any(bad):
        what = f"its {name} factor" if name else "its matrix" if work.ndim == 2 else "a block"
        first = tuple(map(int, np.argwhere(bad)[0]))
        where = f" {first}" if work.ndim > 2 else ""
        number = float(norms[first])
        text = f"{what}{where} has the condition number {number:.2g}"
        raise singular(whole, text if np.isfinite(number) else f"{what}{where} is singular")
    return rounded(found, dtype)


def inverse_of_each(a: np.ndarray) -> np.ndarray:
    """A⁻¹ of each matrix; not finite where one is singular.

    By NumPy, whose threads multiply by A⁻¹ afterwards: after SciPy's LAPACK they would wait for its
    threads, which spin for milliseconds.
    """
    with suppress(np.linalg.LinAlgError):
        if is_hermitian(a):
            X = inverse_of_root(a)
            return adjoint_of(X) @ X
    try:
        return np.linalg.inv(a)
    except np.linalg.LinAlgError:
        return np.stack([*map(inverse_of_each, a)]) if a.ndim > 2 else np.full_like(a, np.inf)


def solve_lower(R: np.ndarray, B: np.ndarray) -> np.ndarray:
    """R⁻ᵀ B for an upper triangular R."""
    return scipy.linalg.solve_triangular(R, B, trans="T")


def inverse_of_root(a: np.ndarray) -> np.ndarray:
    """L⁻¹ of each matrix L Lᴴ: by LAPACK for small ones, by halves and products for others.

    Raises `LinAlgError` where one is not positive definite.
    """
    k = a.shape[-1] // 2
    if k < LAPACK_ROWS:
        L = np.linalg.cholesky(a)
        trtri: Any = scipy.linalg.get_lapack_funcs("trtri", (L,))
        return np.linalg.inv(L) if a.ndim > 2 or not k else cast(np.ndarray, trtri(L.T)[0].T)
    found = np.zeros_like(a)
    found[..., :k, :k] = upper = inverse_of_root(a[..., :k, :k])
    lower = a[..., k:, :k] @ adjoint_of(upper)
    found[..., k:, k:] = rest = inverse_of_root(a[..., k:, k:] - lower @ adjoint_of(lower))
    np.matmul(-rest @ lower, upper, out=found[..., k:, :k])
    return found


def is_hermitian(a: np.ndarray) -> bool:
    """Whether all of the matrices are Hermitian, exactly."""
    return bool((a == adjoint_of(a)).all())


def of_matrices(matrices: np.ndarray, whole: Jacobian | None = None) -> SlogDet:
    """sign, log |Π det| of matrices; warns where a condition number in `whole` is too large."""
    if matrices.shape[-1] != matrices.shape[-2]:
        return ZERO_DET
    work = widened(matrices)
    if whole is not None and isinstance(work, np.ndarray) and work.ndim == 2:
        return of_matrix(whole, matrices)
    linalg = module_of(work).linalg
    if whole is not None and 0 not in work.shape:
        with np.errstate(all="ignore"):
            check_condition(whole, host(linalg.cond(work, 1)).max(), dtype_of(matrices))
    signs, logs = map(host, linalg.slogdet(work))
    return signs.prod().item(), float(logs.sum(dtype=float))


def of_matrix(whole: Jacobian, a: np.ndarray) -> SlogDet:
    """sign, log |det A| of the matrix of `whole`; warns where its condition number is too large."""
    work = widened(a)
    getrf, gecon = cast(Any, scipy.linalg.get_lapack_funcs(("getrf", "gecon"), (work,)))
    lu, steps, _ = getrf(work)
    with np.errstate(divide="ignore"):
        check_condition(whole, 1 / np.float64(gecon(lu, np.linalg.norm(work, 1))[0]), a.dtype)
    swaps = int(np.count_nonzero(steps != np.arange(len(steps))))
    return multiply_dets(((-1.0) ** swaps, 0.0), of_entries(np.diagonal(lu)))


def check_condition(whole: Jacobian, number: float, dtype: DTypeLike) -> None:
    """Warns where the condition number of a matrix in `whole` lets rounding decide det A."""
    if not number * eps_of(dtype) < LOST:
        said = f"{number:.2g}" if np.isfinite(number) else "infinite"
        warn_of_rounding(whole, f"its condition number is {said} in {np.dtype(dtype)}")


def of_values(whole: Jacobian, values: np.ndarray, sizes: Any) -> SlogDet:
    """sign, log |Π λ| of eigenvalues with the errors ε `sizes`; warns where they are too large.

    These move log |Π λ| by ε ‖sizes / λ‖, if they are independent.
    """
    with np.errstate(all="ignore"):
        parts = np.asarray(sizes / np.abs(values))
    moved = float(np.linalg.norm(parts.ravel()))
    if np.isfinite(moved) and moved * eps_of(whole.dtype) >= LOST:
        number = f"its condition number is {parts.max():.2g} in {whole.dtype}"
        warn_of_rounding(whole, number)
    return of_entries(values)


def of_entries(values: np.ndarray) -> SlogDet:
    """sign, log |Π λ|."""
    values = np.asarray(values, wide(values.dtype))
    return np.prod(np.sign(values)).item(), of_sizes(values)


def of_sizes(values: np.ndarray) -> float:
    """log |Π λ|."""
    with np.errstate(divide="ignore"):
        return float(np.log(np.abs(values)).sum(dtype=float))


def multiply_dets(a: SlogDet, b: SlogDet) -> SlogDet:
    """The determinant of a product."""
    return a[0] * b[0], a[1] + b[1]


def power_of_det(found: SlogDet, times: int) -> SlogDet:
    """The determinant of a power."""
    return (found[0] ** times, found[1] * times) if times else (1.0, 0.0)


def eigen(
    with_vectors: bool, a: np.ndarray, metric: np.ndarray | None = None
) -> tuple[Any, np.ndarray]:
    """V, if wanted, and λ of a stack of Hermitian matrices, or of one matrix with a metric.

    V is where the matrices are, except for the metric, which only LAPACK takes; λ is NumPy's.
    """
    eigh, linalg = cast(Any, scipy.linalg.eigh), module_of(a).linalg
    if metric is not None:
        a, metric = host(a), host(metric)
        found = eigh(a, metric, eigvals_only=not with_vectors, check_finite=False)
    else:
        found = linalg.eigh(a) if with_vectors else linalg.eigvalsh(a)
    return (found[1], host(found[0])) if with_vectors else (None, host(found))


def hermitian(matrices: np.ndarray, eps: float | None = None) -> np.ndarray | None:
    """(A + Aᴴ) / 2 where that is A up to rounding, with matrices accurate to eps; else None."""
    if matrices.shape[-1] != matrices.shape[-2]:
        return None
    a = widened(matrices)
    skew = max_abs(a - adjoint_of(a))
    if skew == 0:
        return a
    rounding = 100 * a.shape[-1] ** 0.5 * (eps or eps_of(dtype_of(a)))
    return (a + adjoint_of(a)) / 2 if skew <= rounding * max_abs(a) else None


def max_abs(a: np.ndarray) -> float:
    """max |aᵢ|, 0 of none."""
    return float(abs(a).max()) if 0 not in a.shape else 0.0


def adjoint_of(matrices: np.ndarray) -> np.ndarray:
    """Aᴴ of each matrix."""
    return matrices.swapaxes(-1, -2).conj()


def eps_of(dtype: DTypeLike) -> float:
    """The rounding error of a dtype; halves count as single precision."""
    return float(np.finfo(wide(np.dtype(dtype))).eps)
