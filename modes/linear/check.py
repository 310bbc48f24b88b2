"""Check: tests of a Jacobian that do not depend on how it was made, and against its model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from onnx.helper import tensor_dtype_to_np_dtype

from ...jacobians import Jacobian, prod_text
from ...jacobians.errors import InputError, LimitError, OnnxJacError
from ...jacobians.hooks import Shown
from ...jacobians.text import clipped, joined
from ...jacobians.threads import cached_property
from ...ops import Step
from ...ops.node import schema_defaults
from ..model.primal.model import TensorSpec
from ..model.primal.names import is_float
from .differences import Near, compared, epsilon, rounding, spread
from .tape.record import active_steps

Neighbour = Callable[[], tuple[Jacobian, Near]]
"""A function that returns the Jacobian and the model at a point close to x."""

Test = tuple[str, Callable[[], float]]
"""The name of a test, and a function that computes its relative error."""

DIFFERENCES = "J v against central differences"

ENTRIES = 2**22
"""The most entries of a dense matrix that is formed for a test."""

PRODUCT, WORK = 2**20, 2**31
"""Entries are compared up to `PRODUCT` flops per product, or `WORK` flops per matrix."""

SPARSE, TERMS = 2**24, 2**25
"""The most bytes of a sparse matrix, and flops to find its entries, slower than other flops."""

COLUMNS = 8
"""The number of columns that are compared entry by entry."""


@dataclass(frozen=True)
class Outcome:
    """One test: its relative error, the largest error that passes, and a note."""

    name: str
    error: float
    tolerance: float
    note: str = ""

    @property
    def passed(self) -> bool:
        return self.error <= self.tolerance

    def __str__(self) -> str:
        sign = "ok  " if self.passed else "FAIL"
        text = f"{sign} {self.name:<46} error {self.error:.1e}, allowed {self.tolerance:.1e}"
        return f"{text} ({self.note})" if self.note else text


@dataclass(frozen=True)
class Check(Shown):
    """The `outcomes` of `J.check()`; true where all passed."""

    outcomes: tuple[Outcome, ...]

    @property
    def passed(self) -> bool:
        return all(outcome.passed for outcome in self.outcomes)

    def __bool__(self) -> bool:
        return self.passed

    def __str__(self) -> str:
        return "\n".join(map(str, self.outcomes))

    __repr__ = __str__


def checked(J: Any, seed: int, face: Jacobian | None = None) -> Check:
    """Tests with random vectors drawn from `seed`; an exception inside counts as a failure.

    - dot test: ⟨u, J v⟩ = ⟨Jᵀ u, v⟩;
    - J V and Jᵀ U against the products of their columns;
    - (Jᵀ)ᵀ v against J v;
    - the dot test before elimination, and the products J v and Jᵀ u there against those of J, which
      may be planned, compiled, or simplified by elimination;
    - the matrices: see `entries`;
    - J v against central differences: see `against_differences`.

    Where tensors from `wrt` to `of` have a lower precision than J, all tolerances follow the lowest
    precision, and a note names the tensors. `face` is the operator that users see if it differs
    from J, such as a Hessian.
    """
    plain, near, narrow, rng = J.dag, Near(J), narrow_in(J), random(seed)
    J, neighbour = face or J, partial(beside, J, near, seed)
    v, u = (rng.standard_normal(n).astype(J.dtype) for n in J.shape[::-1])
    V, U = (rng.standard_normal((n, 3)).astype(J.dtype) for n in J.shape[::-1])
    eps = max(map(epsilon, (J.dtype, *(spec.dtype for spec in narrow))))
    fine, _ = tolerances(eps)
    floor, floor_T = noise(plain, v), noise(plain.T, u)
    tests: tuple[Test, ...] = (
        ("dot test ⟨u, Jv⟩ = ⟨Jᵀu, v⟩", lambda: dot_error(J, u, v, floor)),
        ("J V against its columns J v", lambda: column_error(J, V, floor)),
        ("Jᵀ U against its columns Jᵀ u", lambda: column_error(J.T, U, floor_T)),
        ("(Jᵀ)ᵀ v against J v", lambda: relative(J.T.T @ v, J @ v, floor)),
        ("dot test before elimination", lambda: dot_error(plain, u, v, floor)),
        ("J v against J v before elimination", lambda: relative(J @ v, plain @ v, floor)),
        ("Jᵀ u against Jᵀ u before elimination", lambda: relative(J.T @ u, plain.T @ u, floor_T)),
    )
    products = [outcome_of(name, error, fine) for name, error in tests]
    slopes = against_differences(J, near, neighbour, seed, narrow)
    return Check((*products, *entries(J, seed, fine, floors=(floor, floor_T)), slopes))


def entries(
    J: Jacobian, seed: int, allowed: float, letter: str = "J",
    floors: tuple[float, float] = (0.0, 0.0),
) -> Iterator[Outcome]:  # fmt: skip
    """J.toarray(), J.tosparse() and J.diagonal() against products, for J and for Jᵀ.

    Tests the shape, a few columns entry by entry, and the product of the matrix with a random
    vector, to which all entries contribute. Dense matrices are skipped beyond about 2 · 10⁹ flops
    or 4 million entries, sparse ones beyond 3 · 10⁷ flops or 16 MiB.
    """
    yield from ways(J, letter, seed, allowed, floors[0])
    if J.T is not J:
        yield from ways(J.T, f"{letter}ᵀ", seed, allowed, floors[1])


def ways(J: Jacobian, name: str, seed: int, allowed: float, floor: float) -> Iterator[Outcome]:
    """The tests of the entries of one operator that are cheap enough."""
    (m, n), some = J.shape, Samples(J, seed, floor)
    work = min(m, n) * J.flops
    cheap = J.flops <= PRODUCT or work <= WORK
    limit = min(SPARSE, J.dense_limit)
    tests: dict[str, Callable[[], float]] = {}
    if cheap and m * n <= ENTRIES and m * n * J.dtype.itemsize <= J.dense_limit:
        tests["toarray"] = lambda: some.error(J.toarray(progress=False))
        tests["diagonal"] = lambda: some.diagonal_error(J.diagonal())
    if J.flops <= PRODUCT or work <= TERMS:
        tests["tosparse"] = lambda: some.error(J.tosparse(limit=limit, progress=False))
    for way, error in tests.items():
        with suppress(LimitError):
            yield outcome_of(f"{name}.{way}() against products", error, allowed, but=LimitError)


class Samples:
    """Products of an operator, to be compared with its matrix."""

    def __init__(self, J: Jacobian, seed: int, floor: float) -> None:
        rng = random(seed)
        self.J, self.floor, n = J, floor, J.shape[1]
        self.places = np.sort(rng.choice(n, min(n, COLUMNS), replace=False))
        self.v = rng.standard_normal(n).astype(J.dtype)

    @cached_property
    def columns(self) -> np.ndarray:
        """J e for some unit vectors e."""
        unit = np.zeros((self.J.shape[1], len(self.places)), self.J.dtype)
        unit[self.places, range(len(self.places))] = 1
        return np.asarray(self.J @ unit, np.float64)

    def error(self, matrix: Any) -> float:
        """The largest error of a dense or sparse matrix; raises `InputError` for a wrong shape."""
        check_shape(matrix.shape, self.J.shape)
        matrix = matrix.astype(np.float64)
        some = matrix[:, self.places]
        some = some if isinstance(some, np.ndarray) else some.toarray()
        v = self.v.astype(np.float64)
        pairs = (some, self.columns), (matrix @ v, self.J @ self.v)
        return max(relative(a, b, self.floor) for a, b in pairs)

    def diagonal_error(self, diagonal: np.ndarray) -> float:
        """The largest error of entries of a diagonal; raises `InputError` for a wrong shape."""
        check_shape(diagonal.shape, (min(self.J.shape),))
        here = self.places < len(diagonal)
        places = self.places[here]
        return relative(diagonal[places], self.columns[places, np.flatnonzero(here)], self.floor)


def check_shape(found: tuple[int, ...], expected: tuple[int, ...]) -> None:
    """Raises `InputError` if a matrix does not have the shape of its operator."""
    if tuple(found) != expected:
        raise InputError(f"shape {prod_text(tuple(found))} instead of {prod_text(expected)}")


def against_differences(
    J: Jacobian, near: Near, neighbour: Neighbour, seed: int, narrow: tuple[Any, ...] = ()
) -> Outcome:
    """J v, entry by entry, against (f(x + h v) - f(x - h v)) / 2h for eight widths h.

    One width is enough for most models; the others are tried, extrapolated and compared with each
    other if some entry of J v disagrees. An entry with a kink or jump of f within reach of every
    width is not compared: a note counts such entries, and the test is repeated at a `neighbour` of
    x. The tolerance includes the rounding of f and x, at the lowest precision among the tensors
    from `wrt` to `of`. At most 17 runs of the model at x, and 17 at the neighbour.
    """
    eps = max(map(epsilon, (J.dtype, *(spec.dtype for spec in narrow))))
    _, allowed = tolerances(eps)
    v = random(seed).standard_normal(J.shape[1]).astype(J.dtype)
    notes = [narrow_text(narrow)] if narrow else []
    name, worst = DIFFERENCES, (float("inf"), allowed)
    try:
        here = compared(J, near, v, eps, allowed, seed)
        worst = here.worst
        if not here.judged.all():
            notes.append(here.note)
        if here.on_kinks:
            name = f"{DIFFERENCES}, beside a kink"
            with suppress(Exception):  # no kink, or no Jacobian there
                there = compared(*neighbour(), v, eps, allowed, seed)
                worst = max(worst, there.worst, key=lambda found: found[0] / found[1])
    except Exception as error:  # a check that cannot be made has failed, and says why
        notes.append(said(error))
    return Outcome(name, *worst, "; ".join(notes))


def narrow_text(specs: tuple[Any, ...]) -> str:
    """The dtypes and names of the tensors with a lower precision than J."""
    kinds = ", ".join(dict.fromkeys(str(spec.dtype) for spec in specs))
    names = joined(specs, ", ", lambda spec: clipped(spec.name, 40), 80)
    return f"{kinds} between the ends: {names}"


def tolerances(eps: float) -> tuple[float, float]:
    """The tolerances of products, half of the digits, and of differences, fewer digits."""
    return min(4 * eps ** (1 / 2), 0.1), 1e-6 if eps < 1e-10 else min(2 * eps ** (1 / 3), 0.5)


def random(seed: int) -> np.random.Generator:
    """A generator that differs from `default_rng(seed)`, which may have drawn the point.

    The direction of the point itself is special: a normalisation is constant along it.
    """
    return np.random.default_rng((seed, 1))


def outcome_of(
    name: str, error: Callable[[], float], allowed: float, *, but: type[Exception] | tuple[()] = ()
) -> Outcome:
    """The outcome of a test, with an infinite error if it is NaN or could not be computed.

    Exceptions of the type `but` are passed on.
    """
    try:
        with np.errstate(all="ignore"):
            found = error()
    except but:
        raise
    except Exception as problem:  # a check that cannot be made has failed, and says why
        return Outcome(name, float("inf"), allowed, said(problem))
    if found != found:
        return Outcome(name, float("inf"), allowed, "NaN")
    return Outcome(name, found, allowed)


def said(problem: Exception) -> str:
    """An exception in one line."""
    first, *_ = str(problem).splitlines() or [""]
    return first if isinstance(problem, OnnxJacError) else f"{type(problem).__name__}: {first}"


def column_error(J: Jacobian, V: np.ndarray, floor: float = 0.0) -> float:
    """J V against the products of its columns."""
    return relative(J @ V, np.stack([J @ c for c in V.T], 1), floor)


def noise(J: Jacobian, v: np.ndarray) -> float:
    """A floor for the norm in relative errors, where cancellation may leave J v only rounding.

    An error of ten times the rounding error then equals the tolerance.
    """
    allowed, _ = tolerances(epsilon(J.dtype))
    return 10 * float(np.linalg.norm(rounding(J, v))) / allowed


def relative(a: np.ndarray, b: np.ndarray, floor: float = 0.0) -> float:
    """‖a - b‖ over the larger norm, or over a `floor` above both; 0 for two zeros."""
    a, b = a.astype(np.float64), b.astype(np.float64)  # where no square overflows
    scale = max(float(np.linalg.norm(a)), float(np.linalg.norm(b)), floor)
    return float(np.linalg.norm(a - b)) / scale if scale else 0.0


def dot_error(J: Jacobian, u: np.ndarray, v: np.ndarray, floor: float = 0.0) -> float:
    """|⟨u, Jv⟩ - ⟨Jᵀu, v⟩| over ‖u‖ max(‖Jv‖, `floor`): rounding errors are relative to it."""
    forward, reverse = ((J @ v).astype(np.float64), (J.T @ u).astype(np.float64))
    norm = max(float(np.linalg.norm(forward)), floor)
    scale = float(np.linalg.norm(u.astype(np.float64))) * norm
    difference = abs(float(u @ forward) - float(reverse @ v))
    return difference / scale if scale else difference


def differences(J: Any, seed: int) -> Outcome:
    """The last of these tests alone: J v against central differences of the model."""
    near = Near(J)
    return against_differences(J, near, partial(beside, J, near, seed), seed, narrow_in(J))


def beside(J: Any, near: Near, seed: int) -> tuple[Jacobian, Near]:
    """The Jacobian and the model at a random point close to this one."""
    shift = 1e-2 * spread(near.x) * random(seed).standard_normal(J.shape[1])
    moved = J._near(near.moved(shift.astype(J.dtype)))
    return moved, Near(moved)


def narrow_in(J: Any) -> tuple[TensorSpec, ...]:
    """The floating tensors from `wrt` to `of` with less precision than J, stored or computed."""
    wrt, of = (tuple(spec.name for spec in side) for side in (J.domain, J.codomain))
    active = active_steps(J.route.model.steps, wrt, of)
    made = (computed(J.route.model.spec(name), found.step)
            for found in active for name in found.step.outputs if name)  # fmt: skip
    specs = {s.name: s for s in (*J.domain, *J.codomain, *made)}
    return tuple(
        spec for spec in specs.values()
        if spec.dtype is not None and is_float(spec.dtype)
        and np.dtype(spec.dtype).itemsize < J.dtype.itemsize
    )  # fmt: skip


def computed(spec: TensorSpec, step: Step) -> TensorSpec:
    """The spec of an output, with the dtype of its computation if an attribute states it."""
    defaults = schema_defaults(step.op_type, step.domain, step.version)
    kept = step.attrs.get("stash_type", defaults.get("stash_type"))
    return spec if kept is None else spec._replace(dtype=tensor_dtype_to_np_dtype(kept))
