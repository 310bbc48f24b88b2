"""Check: tests of a Jacobian that do not depend on how it was made, and against its model."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir
from onnx.helper import tensor_dtype_to_np_dtype

from ...jacobians import Jacobian, prod_text, shape_of, size
from ...jacobians.errors import InputError, LimitError, OnnxJacError
from ...jacobians.hooks import Shown
from ...jacobians.readings import Reading
from ...jacobians.text import clipped, joined
from ...jacobians.threads import cached_property
from ...ops import Step, numbers
from ...ops.node import schema_defaults
from ...ops.rules.quantization import DOMAIN as ESTIMATORS
from ..model.flow.steps import moving, reads, steps_needed
from ..model.loading.load import load
from ..model.primal.evaluate import evaluate
from ..model.primal.inputs import is_float
from ..model.primal.model import Model, TensorSpec
from .derivatives.record import active_steps, vertex_names

Test = tuple[str, Callable[[], float]]
"""The name of a test, and a function that computes its relative error."""

DENSE_TEST_ENTRIES = 2**20
"""The most entries of a dense matrix that is formed for a test."""

PRODUCT, WORK = 2**20, 2**31
"""Entries are compared up to `PRODUCT` flops per product, or `WORK` flops per matrix."""

SPARSE, TERMS = 2**21, 2**25
"""The most bytes of a sparse matrix, and flops to find its entries, slower than other flops."""

COLUMNS, ROWS = 8, 2**17
"""The most columns that are compared entry by entry, and rows that are compared with slopes."""

RIGHT, WRONG, NOT_COMPARED = "right", "wrong", "not compared"
"""The verdicts: of a test, and of all of them."""

SIGNS = {RIGHT: "ok  ", WRONG: "FAIL", NOT_COMPARED: "none"}


@dataclass(frozen=True)
class Outcome:
    """One test: its relative error, the largest error that passes, and a note.

    Where not all was `compared`, the note says what was not, and why.
    """

    name: str
    error: float
    tolerance: float
    note: str = ""
    compared: bool = True

    @property
    def verdict(self) -> str:
        """`"right"`, `"wrong"` or `"not compared"`."""
        if not self.error <= self.tolerance:
            return WRONG
        return RIGHT if self.compared else NOT_COMPARED

    @property
    def passed(self) -> bool:
        return self.verdict == RIGHT

    def __str__(self) -> str:
        errors = f"error {self.error:.1e}, allowed {self.tolerance:.1e}"
        text = f"{SIGNS[self.verdict]} {self.name:<46} {errors}"
        return f"{text} ({self.note})" if self.note else text


@dataclass(frozen=True)
class Check(Shown):
    """The `outcomes` of `J.check()`; true where all of them are right."""

    outcomes: tuple[Outcome, ...]

    @property
    def verdict(self) -> str:
        """`"right"`, `"wrong"` or `"not compared"`: the worst of the tests."""
        found = {outcome.verdict for outcome in self.outcomes}
        return next((worst for worst in (WRONG, NOT_COMPARED) if worst in found), RIGHT)

    @property
    def passed(self) -> bool:
        return self.verdict == RIGHT

    @property
    def summary(self) -> str:
        """How many tests passed, or how many did not."""
        counts, n = Counter(outcome.verdict for outcome in self.outcomes), len(self.outcomes)
        failed = [f"{counts[v]} of {n} tests {v}" for v in (WRONG, NOT_COMPARED) if counts[v]]
        return f"{self.verdict}: {', '.join(failed)}" if failed else f"all {n} tests passed"

    def __bool__(self) -> bool:
        return self.passed

    def __str__(self) -> str:
        return "\n".join(map(str, self.outcomes))

    __repr__ = __str__


def run_checks(J: Any, seed: int, face: Jacobian | None = None) -> Check:
    """Tests with random vectors drawn from `seed`; an exception inside counts as a failure.

    - dot test: ⟨u, J v⟩ = ⟨Jᵀ u, v⟩;
    - J V and Jᵀ U against the products of their columns;
    - (Jᵀ)ᵀ v against J v;
    - the dot test before elimination, and J v and Jᵀ u before elimination against the products of
      J, which may be planned, compiled, or simplified by elimination;
    - the matrices: see `compare_entries`;
    - J v against central differences: see `against_differences`.

    Where tensors from `wrt` to `of` have a lower precision than J, all tolerances follow the lowest
    precision, and a note names the tensors. `face` is the operator that users see if it differs
    from J, such as a Hessian. No test takes more than 64 MiB beyond what J holds, or than five
    vectors of its rows and columns, where these are more.
    """
    plain, near, narrow = J.dag, Near(J), narrow_in(J)
    J, neighbour = face or J, partial(beside, J, near, seed)
    fine, _ = tolerances(max(map(epsilon, (J.dtype, *(spec.dtype for spec in narrow)))))
    products, floors = compare_products(J, plain, seed, fine)
    slopes = against_differences(J, near, neighbour, seed, narrow)
    return Check((*products, *compare_entries(J, seed, fine, floors=floors), slopes))


def compare_products(
    J: Jacobian, plain: Jacobian, seed: int, fine: float
) -> tuple[list[Outcome], tuple[float, float]]:
    """The tests of products, and the floors of the norms of J v and Jᵀ u; frees its vectors."""
    rng = random(seed)
    v, u = (rng.standard_normal(n).astype(J.dtype) for n in J.shape[::-1])
    more = several(J, 3) - 1
    V, U = (np.column_stack([x, rng.standard_normal((len(x), more)).astype(J.dtype)])
            if more else x[:, None] for x in (v, u))  # fmt: skip
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
    return [outcome_of(name, error, fine) for name, error in tests], (floor, floor_T)


def compare_entries(
    J: Jacobian, seed: int, allowed: float, letter: str = "J",
    floors: tuple[float, float] = (0.0, 0.0),
) -> Iterator[Outcome]:  # fmt: skip
    """J.toarray(), J.tosparse() and J.diagonal() against products, for J and for Jᵀ.

    Tests the shape, a few columns entry by entry, and the product of the matrix with a random
    vector, to which all entries contribute. Dense matrices beyond about 2 · 10⁹ flops or 10⁶
    entries are tested in these columns alone; sparse ones are skipped beyond 3 · 10⁷ flops or
    2 MiB.
    """
    yield from compare_matrices(J, letter, seed, allowed, floors[0])
    if J.T is not J:
        yield from compare_matrices(J.T, f"{letter}ᵀ", seed, allowed, floors[1])


def compare_matrices(
    J: Jacobian, name: str, seed: int, allowed: float, floor: float
) -> Iterator[Outcome]:
    """The tests of the entries of one operator that are cheap enough."""
    (m, n), some = J.shape, SampledColumns(J, seed, floor)
    work = min(m, n) * J.flops
    cheap = J.flops <= PRODUCT or work <= WORK
    limit = min(SPARSE, J.dense_limit)
    tests: dict[str, Callable[[], float]] = {}
    if cheap and m * n <= DENSE_TEST_ENTRIES and m * n * J.dtype.itemsize <= J.dense_limit:
        tests[".toarray()"] = lambda: some.error(J.toarray(progress=False))
        tests[".diagonal()"] = lambda: some.diagonal_error(J.diagonal())
    elif cheap:
        tests["[:, sample].toarray()"] = some.columns_error
    if sum(J.shape) <= ROWS and (J.flops <= PRODUCT or work <= TERMS):
        tests[".tosparse()"] = lambda: some.error(J.tosparse(limit=limit, progress=False))
    for way, error in tests.items():
        with suppress(LimitError):
            yield outcome_of(f"{name}{way} against products", error, allowed, but=LimitError)


class SampledColumns:
    """Products of an operator, to be compared with its matrix."""

    def __init__(self, J: Jacobian, seed: int, floor: float) -> None:
        self.J, self.floor, self.seed, n = J, floor, seed, J.shape[1]
        self.places = np.sort(random(seed).choice(n, min(n, several(J, COLUMNS)), replace=False))

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
        v = random(self.seed).standard_normal(self.J.shape[1]).astype(self.J.dtype)
        pairs = (some, self.columns), (matrix @ v.astype(np.float64), self.J @ v)
        return max(relative(a, b, self.floor) for a, b in pairs)

    def columns_error(self) -> float:
        """The largest error of the sampled columns as an operator."""
        return relative(self.J[:, self.places].toarray(progress=False), self.columns, self.floor)

    def diagonal_error(self, diagonal: np.ndarray) -> float:
        """The largest error of entries of a diagonal; raises `InputError` for a wrong shape."""
        check_shape(diagonal.shape, (min(self.J.shape),))
        here = self.places < len(diagonal)
        places = self.places[here]
        return relative(diagonal[places], self.columns[places, np.flatnonzero(here)], self.floor)


def several(J: Jacobian, most: int) -> int:
    """How many vectors of J's rows and columns fit into 16 MiB, between 1 and `most`."""
    return max(1, min(most, 2**21 // max(sum(J.shape), 1)))


def check_shape(found: tuple[int, ...], expected: tuple[int, ...]) -> None:
    """Raises `InputError` if a matrix does not have the shape of its operator."""
    if tuple(found) != expected:
        raise InputError(f"shape {prod_text(tuple(found))} instead of {prod_text(expected)}")


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
        return Outcome(name, float("inf"), allowed, error_line(problem))
    if found != found:
        return Outcome(name, float("inf"), allowed, "NaN")
    return Outcome(name, found, allowed)


def error_line(problem: Exception) -> str:
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
    return 10 * float(np.linalg.norm(rounding_error(J, v))) / allowed


def relative(a: np.ndarray, b: np.ndarray, floor: float = 0.0) -> float:
    """‖a - b‖ over the larger norm, or over a `floor` above both; 0 for two zeros."""
    a, b = (x.astype(np.float64, copy=False) for x in (a, b))  # where no square overflows
    scale = max(float(np.linalg.norm(a)), float(np.linalg.norm(b)), floor)
    return float(np.linalg.norm(a - b)) / scale if scale else 0.0


def dot_error(J: Jacobian, u: np.ndarray, v: np.ndarray, floor: float = 0.0) -> float:
    """|⟨u, Jv⟩ - ⟨Jᵀu, v⟩| over ‖u‖ max(‖Jv‖, `floor`): rounding errors are relative to it."""
    forward, reverse = (x.astype(np.float64, copy=False) for x in (J @ v, J.T @ u))
    norm = max(float(np.linalg.norm(forward)), floor)
    scale = float(np.linalg.norm(u.astype(np.float64, copy=False))) * norm
    difference = abs(float(u @ forward) - float(reverse @ v))
    return difference / scale if scale else difference


def beside(J: Any, near: Near, seed: int, k: int = 0) -> tuple[Any, Near]:
    """The Jacobian and the model at random point k close to this one."""
    shift = 1e-2 * typical_size(near.x) * random(seed + k).standard_normal(J.shape[1])
    moved = J._near(Near(J).moved(shift.astype(J.dtype)))
    return moved, replace(near, J=moved)


def narrow_in(J: Any) -> tuple[TensorSpec, ...]:
    """The floating tensors from `wrt` to `of` with less precision than J, stored or computed."""
    wrt, of = (tuple(spec.name for spec in side) for side in (J.domain, J.codomain))
    active = active_steps(J.route.model.steps, wrt, of)
    made = (computed_spec(J.route.model.spec(name), step)
            for step in active for name in step.outputs if name)  # fmt: skip
    specs = {s.name: s for s in (*J.domain, *J.codomain, *made)}
    return tuple(
        spec for spec in specs.values()
        if spec.dtype is not None and is_float(spec.dtype)
        and np.dtype(spec.dtype).itemsize < J.dtype.itemsize
    )  # fmt: skip


def computed_spec(spec: TensorSpec, step: Step) -> TensorSpec:
    """The spec of an output, with the dtype of its computation if an attribute states it."""
    defaults = schema_defaults(step.op_type, step.domain, step.version)
    kept = step.attrs.get("stash_type", defaults.get("stash_type"))
    return spec if kept is None else spec._replace(dtype=tensor_dtype_to_np_dtype(kept))


# -- differences: J v, entry by entry, against slopes of the model along v -------------------------

DIFFERENCES = "J v against central differences"

RATIO = 8.0
"""The ratio of each width to the next smaller one."""

POWERS = (0, 1, -1, 2, 3, -2, 4, 5)
"""The order in which widths best · RATIO⁻ᵏ are tried: small ones cross fewer kinks."""

KINK = 1e-2
"""A slope with a larger uncertainty than this, relative to J v, says nothing about J."""

UNCERTAINTIES = 10.0
"""A difference from J v counts if it exceeds the slope's uncertainty by this factor."""

TINY = float(np.finfo(float).tiny)

ROUNDINGS = 2.0
"""The number of rounding errors of f and of x that are assumed in one difference."""


@dataclass(frozen=True)
class Near:
    """δ ↦ f(x + δ), flat, at the point of J: x the tensors of `wrt`, f the tensors of `of`.

    `f` names other tensors of J's model than `of`, and `model` is J's in double precision.
    """

    J: Any
    f: tuple[str, ...] = ()
    model: Model | None = None

    def __call__(self, shift: np.ndarray) -> np.ndarray:
        return self._flat(self.f or spec_names(self.J.codomain), self.moved(shift))

    @property
    def x(self) -> np.ndarray:
        """x, flat; 0 where it is not finite, for its size."""
        x = self._flat(spec_names(self.J.domain), self.J.point)
        return np.where(np.isfinite(x), x, np.zeros((), x.dtype))

    @property
    def parts(self) -> np.ndarray:
        """The index of the tensor in `of` that each entry of f belongs to."""
        sizes = [size(shape_of(spec)) for spec in self.J.codomain]
        return np.repeat(np.arange(len(sizes)), sizes)

    def moved(self, shift: np.ndarray) -> dict[str, np.ndarray]:
        """The point with the tensors of `wrt` shifted.

        An intermediate is first computed from the tensors shifted before it, then shifted itself.
        """
        shapes = [shape_of(spec) for spec in self.J.domain]
        parts = np.split(shift, np.cumsum(list(map(size, shapes)))[:-1])
        shifts: dict[str, np.ndarray] = {}
        for spec, shape, part in zip(self.J.domain, shapes, parts, strict=True):
            part = part.reshape(shape)
            shifts[spec.name] = shifts[spec.name] + part if spec.name in shifts else part
        steps, moved = self.J.route.model.steps, dict(self.J.point)
        made = {name: k for k, step in enumerate(steps) for name in step.outputs}
        for name in sorted(shifts, key=lambda name: made.get(name, -1)):
            value = self._values([name], moved)[name]
            moved[name] = (value + shifts[name]).astype(value.dtype, copy=False)
        return moved

    def _flat(self, names: tuple[str, ...], point: Mapping[str, Any]) -> np.ndarray:
        values = self._values(names, point)
        return np.concatenate([np.ravel(values[name]) for name in names])

    def _values(self, names: Iterable[str], point: Mapping[str, Any]) -> dict[str, np.ndarray]:
        if self.model is None:
            return evaluate(self.J.route.model, point, names, engine=self.J.route.engine)
        wide = ((n, np.asarray(x)) for n, x in point.items())
        raised = {n: x.astype(np.float64) if is_float(x.dtype) else x for n, x in wide}
        return evaluate(self.model, raised, names)


def spec_names(specs: tuple[TensorSpec, ...]) -> tuple[str, ...]:
    """The names of some tensors."""
    return tuple(spec.name for spec in specs)


Neighbour = Callable[[int], tuple[Any, Near]]
"""A function of a number, which returns the Jacobian and the model at a point close to x."""

QUANTIZES = re.compile("Quantize|DynamicQuantize|QLinear|QGemm|QAttention")
"""The names of operators that round to few values."""

NEIGHBOURS = 3
"""The most points close to x at which an entry is tried that no width decides at x."""


def against_differences(
    J: Jacobian, near: Near, neighbour: Neighbour, seed: int, narrow: tuple[Any, ...] = ()
) -> Outcome:
    """J v, entry by entry, against (f(x + h v) - f(x - h v)) / 2h for eight widths h.

    One width is enough for most models; the others are tried, extrapolated and compared with each
    other if some entry of J v disagrees. An entry with a kink or jump of f within reach of every
    width is not compared at x, but at up to three neighbours of x: a note counts such entries. The
    tolerance includes the rounding of f and x, at the lowest precision among the tensors from `wrt`
    to `of`. At most 17 runs of the model at x, and 17 at each neighbour.

    Nothing is compared where J is no derivative, or the derivative of steps: see `staircase`.
    """
    eps = max(map(epsilon, (J.dtype, *(spec.dtype for spec in narrow))))
    _, allowed = tolerances(eps)
    if why := staircase(near.J):
        return Outcome(DIFFERENCES, 0.0, allowed, why, compared=False)
    v = random(seed).standard_normal(J.shape[1]).astype(J.dtype)
    compare = partial(compare_rows, v=v, eps=eps, allowed=allowed, seed=seed)
    notes = [narrow_text(narrow)] if narrow else []
    return decided(DIFFERENCES, compare, J, near, neighbour, allowed, notes)


@np.errstate(all="ignore")
def decided(
    name: str, compare: Callable[[Any, Near], Comparison], J: Any, near: Near, neighbour: Neighbour,
    allowed: float, notes: list[str],
) -> Outcome:  # fmt: skip
    """The outcome at x, and at neighbours of x for what is not decided there."""
    worst, judged = (float("inf"), allowed), np.ones(1, bool)
    try:
        here = compare(J, near).run()
        worst, judged = here.worst, here.judged
        if not judged.all():
            notes.append(here.note)
        if here.on_kinks:
            name = f"{name}, beside a kink"
            for k in range(NEIGHBOURS):
                with suppress(Exception):  # no kink, or no Jacobian there
                    there = compare(*neighbour(k)).run()
                    worst = max(worst, there.worst, key=lambda found: found[0] / (found[1] or TINY))
                    same = judged.shape == there.judged.shape
                    judged = judged | there.judged if same else there.judged
                if judged.all():
                    break
            if not judged.all():
                notes.append(f"{np.count_nonzero(~judged)} of them not beside it either")
    except Exception as error:  # a check that cannot be made has failed, and says why
        notes.append(error_line(error))
    return Outcome(name, *worst, "; ".join(notes), compared=bool(judged.all()))


def staircase(J: Any) -> str:
    """Why J says nothing of how f changes: it estimates, or numbers are quantised on the way."""
    if any(step.domain == ESTIMATORS for step in J.route.steps):
        return "not compared: roundings are estimators here, which are no derivatives by intent"
    steps, of, wrt = J.route.model.steps, spec_names(J.codomain), spec_names(J.domain)
    moved = moving(steps, wrt)
    way = (
        steps[k] for k in steps_needed(steps, of, wrt)[0] if not moved.isdisjoint(reads(steps[k]))
    )
    found = ", ".join(dict.fromkeys(s.op_type for s in way if QUANTIZES.match(s.op_type)))
    return found and (
        f"not compared: {found} on the way: J has the slopes of the steps, not of the staircase; "
        f"straight_through=True estimates these"
    )


def against_values(J: Any, f: tuple[str, ...], weights: np.ndarray, seed: int) -> Iterator[Outcome]:
    """∇φ v and vᵀ H v against first and second differences of φ = Σ weights ∘ f, in a few v.

    J is H, the linearised gradient, whose model has the tensors f too: their values ask no rule.
    v is random in all tensors of `wrt`, and in some of them alone.
    """
    if staircase(J):
        return
    eps = max(map(epsilon, (J.dtype, *(spec.dtype for spec in narrow_in(J)))))
    near, (_, allowed) = Near(J, f, doubled(J)), tolerances(eps)
    for name, second in (("∇f v against differences of f", False),
                         ("vᵀ H v against second differences of f", True)):  # fmt: skip
        compare = partial(
            compare_along, w=weights, second=second, eps=eps, allowed=allowed, seed=seed
        )
        neighbour = partial(beside, J, near, seed)
        yield decided(name, compare, J, near, neighbour, allowed, [])


def doubled(J: Any) -> Model | None:
    """A small model of single precision in double precision, for more digits; None for others."""
    held: Model = J.route.model
    if J.dtype.itemsize == 8 or sum(x.nbytes for x in held.constants.values()) > 2**24:
        return None
    with suppress(Exception):  # its own precision has to do
        return load(ir.to_proto(held.ir), dtype="float64")
    return None


def compare_along(
    J: Any, near: Near, w: np.ndarray, second: bool, eps: float, allowed: float, seed: int
) -> Comparison:
    """∇φ v, or vᵀ H v, for some v, against differences of φ."""
    rng, x = random(seed), near.x.astype(np.float64)
    sizes = [size(shape_of(spec)) for spec in J.domain]
    parts, v = np.repeat(range(len(sizes)), sizes), rng.standard_normal(len(x))
    chosen = rng.choice(len(sizes), min(len(sizes), 3), replace=False) if sizes[1:] else ()
    V = np.stack([v, *(v * (parts == k) for k in chosen)])
    g = np.concatenate([np.ravel(J.primal[name]) for name in spec_names(J.codomain)]).astype(float)
    images = np.asarray(J @ V.T.astype(J.dtype), np.float64).T if second else g

    def f(h: float) -> np.ndarray:
        return np.array([w @ near(h * v).astype(np.float64) for v in V])

    values = abs(w) @ abs(near(0 * v).astype(np.float64)) + abs(g) @ abs(x)
    digits = eps if near.model is None else epsilon(np.dtype(np.float64))
    return lines(f, V, images, V @ g if second else None, (eps, digits * float(values)), allowed,
                 typical_size(x) * digits ** (1 / 4 if second else 1 / 3))  # fmt: skip


def lines(
    f: Callable[[float], np.ndarray], V: np.ndarray, images: np.ndarray, slopes: np.ndarray | None,
    rounding: tuple[float, float], allowed: float, best: float,
) -> Comparison:  # fmt: skip
    """∇φ v, or with `slopes` ∇φ v given vᵀ H v, for every row v of V, against differences of φ.

    f is h ↦ φ(x + h v), for every v; `images` are ∇φ, or the rows H v; `rounding` is relative to
    the products, and absolute for φ.
    """
    second, lengths, (eps, eps_f) = slopes is not None, np.linalg.norm(V, axis=1), rounding
    found = np.sum(V * images, axis=1)
    reach = lengths * np.linalg.norm(images if second else V * images, axis=1)
    steep = reach / np.sqrt(np.count_nonzero(V, axis=1)) if second else reach / lengths
    return Comparison(
        f, f(0.0), found, np.maximum(abs(found), steep), eps * reach, np.full(len(V), eps_f),
        np.arange(len(V)), allowed, best, slopes,
    )  # fmt: skip


def differences(J: Any, seed: int) -> Outcome:
    """The last of these tests alone: J v against central differences of the model."""
    near = Near(J)
    return against_differences(J, near, partial(beside, J, near, seed), seed, narrow_in(J))


class Jump(Exception):
    """f has another shape close to x, for example where equal numbers are no longer equal."""


@dataclass
class Compared:
    """For every entry of f: the error of J v, its limit, and whether it is judged and finite.

    `errors` and `limits` are relative to the size of J v in the entry's tensor; entries that are
    not `judged` have a kink, a jump or too much rounding within reach of every width. Of these,
    `hidden` are those whose error the rounding of tensors on the way explains; `why` names one.
    """

    errors: np.ndarray
    limits: np.ndarray
    judged: np.ndarray
    finite: np.ndarray
    hidden: np.ndarray | None = None
    why: str = ""

    @property
    def on_kinks(self) -> int:
        """The number of finite entries that are not judged, for another reason than rounding."""
        return int(np.count_nonzero(self.finite & ~self.judged)) - self.under_rounding

    @property
    def under_rounding(self) -> int:
        """The number of entries that rounding hides."""
        return 0 if self.hidden is None else int(np.count_nonzero(self.hidden))

    @property
    def note(self) -> str:
        """A description of the entries that are not judged."""
        count, endless = len(self.judged), int(np.count_nonzero(~self.finite))
        said = []
        if self.on_kinks:
            said.append(f"{self.on_kinks} of {count} entries not compared: their differences have "
                        "no limit, as on a kink or jump")  # fmt: skip
        if self.under_rounding:
            said.append(f"{self.under_rounding} of {count} entries not compared: rounding hides "
                        f"them: {self.why}")  # fmt: skip
        if endless:
            said.append(f"{endless} of {count} entries are not finite")
        return "; ".join(said)

    @property
    def worst(self) -> tuple[float, float]:
        """The error that is largest relative to its limit, and this limit."""
        if not self.judged.any():
            return 0.0, float(self.limits.min(initial=np.inf))
        errors, limits = self.errors[self.judged], self.limits[self.judged]
        k = int(np.argmax(errors / np.maximum(limits, TINY)))
        return float(errors[k]), float(limits[k])


@dataclass
class Slopes:
    """(f(x + h v) - f(x)) / h, (f(x) - f(x - h v)) / h, and their mean, at the width h."""

    h: float
    ahead: np.ndarray
    behind: np.ndarray
    mean: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.mean = (self.ahead + self.behind) / 2

    def finer(self, other: Slopes) -> tuple[np.ndarray, np.ndarray]:
        """The mean, extrapolated to width 0 with the next smaller width, and its uncertainty.

        The extrapolated one-sided slopes agree for a smooth f, but not on a kink.
        """
        mean = (RATIO**2 * other.mean - self.mean) / (RATIO**2 - 1)
        sides = [(RATIO * b - a) / (RATIO - 1)
                 for a, b in ((self.ahead, other.ahead), (self.behind, other.behind))]  # fmt: skip
        return mean, np.maximum(abs(sides[0] - sides[1]), abs(mean - other.mean))


def compare_rows(
    J: Jacobian, near: Near, v: np.ndarray, eps: float, allowed: float, seed: int
) -> Comparison:
    """J v, or a sample of its entries, against slopes of the model along v."""
    sample = np.random.default_rng(seed)
    rows = np.sort(sample.choice(J.shape[0], min(J.shape[0], ROWS), replace=False))
    parts, noise = near.parts[rows], rounding_error(J, v)[rows]

    def product(u: np.ndarray) -> np.ndarray:
        return np.asarray(J @ u.astype(J.dtype), np.float64)[rows]

    def f(h: float) -> np.ndarray:
        found = np.asarray(near(h * v.astype(np.float64, copy=False)), np.float64)
        if len(found) != J.shape[0]:
            raise Jump
        return found[rows]

    found, x, here = product(v), near.x, f(0.0)
    best = typical_size(x) * eps ** (1 / 3)
    values = pool_sizes(here, parts) + pool_sizes(product(x * signs_of(sample, x)), parts)

    def roundings() -> tuple[np.ndarray, str]:
        off, why = rounding_on_the_way(near.J)
        return off[rows], why

    return Comparison(f, here, found, pool_sizes(found, parts), pool_sizes(noise, parts),
                      eps * values, parts, allowed, best, roundings=roundings)  # fmt: skip


def rounding_on_the_way(J: Any) -> tuple[np.ndarray, str]:
    """|error of f|, entry by entry, where each tensor from `wrt` to `of` is off by its rounding
    error times a random normal number, as J carries these; and which of the tensors is coarsest.

    A number that is added to one 10⁸ times as large is lost in single precision: f moves in steps
    there, or not at all, though J is right. Zero where the tensors would take more than 64 MiB.
    """
    none = np.zeros(J.shape[0]), ""
    if sum(map(size, J.dag.shapes)) * J.dtype.itemsize > 2**26:
        return none
    with suppress(Exception):
        route, point = J.route.flat(J.point)
        names = vertex_names(J.entries, spec_names(J.domain), spec_names(J.codomain))
        values = evaluate(route.model, point, names, engine=J.route.engine)
        rng, steps, off = np.random.default_rng(0), dict[str, float](), {}
        for k, name in enumerate(names):
            x = np.asarray(values[name])
            error = abs(x) * epsilon(x.dtype)
            steps[name] = float(error.max(initial=0))
            off[k] = (error * rng.standard_normal(x.shape)).astype(x.dtype)
        found = J.dag.join(numbers, J.dag.sweep(numbers, off), ()).astype(np.float64)
        name = max(steps, key=lambda name: steps[name])
        return np.abs(found), f"{clipped(name, 40)!r} moves in steps of {steps[name]:.1e}"
    return none


def signs_of(rng: np.random.Generator, x: np.ndarray) -> np.ndarray:
    """Random signs of the shape of x, in a byte each."""
    return rng.integers(0, 2, x.shape, np.int8) * np.int8(2) - np.int8(1)


@dataclass
class Comparison:
    """Some `products` against slopes of f along a line, at as many widths as some entry needs.

    An entry agrees if the central difference at one width, or extrapolated from two, equals the
    product up to `allowed` and the rounding of f. Otherwise three widths decide: the product is
    wrong if it differs from the extrapolated slope by much more than the uncertainty, which is
    estimated from the three widths and the one-sided slopes.

    f is h ↦ f(x + h v). The error is relative to the `size` of an entry; `noise` is the rounding
    error of a product, `eps_f` of f, and `best` the first width; `roundings` are the rounding
    errors of tensors on the way, asked for where an entry disagrees. With the `slopes` f' given,
    the second differences (f(h) - 2 f(0) + f(-h)) / h² take the place of slopes.
    """

    f: Callable[[float], np.ndarray]
    here: np.ndarray
    product: np.ndarray
    size: np.ndarray
    noise: np.ndarray
    eps_f: np.ndarray
    parts: np.ndarray
    allowed: float
    best: float
    first: np.ndarray | None = None
    roundings: Callable[[], tuple[np.ndarray, str]] | None = None

    def __post_init__(self) -> None:
        self.unit = np.where(self.size > 0, self.size, 1.0)
        self.slopes: dict[int, Slopes] = {}

    def rounding(self, h: float, smallest: Any = 0.0) -> np.ndarray:
        """The rounding error of a slope, or of a second difference, at a width."""
        error = np.maximum(ROUNDINGS * self.eps_f, smallest)
        return np.asarray(error / h if self.first is None else 2 * error / h**2)

    def run(self) -> Compared:
        """Compare width by width, until all entries agree."""
        finite = np.isfinite(self.here)
        errors, limits = np.full_like(self.here, np.inf), self.limit(self.rounding(self.best))
        agree, problem = np.zeros(self.here.shape, bool), Exception()
        for power in POWERS:
            try:
                self.slopes[power] = self.at(self.best * RATIO**-power)
            except Exception as raised:  # f need not be defined so far away
                problem = raised
            for slope, apart in self.found_with(power):
                error = abs(slope - self.product) / self.unit
                new = (error <= limits) & ~agree & (apart <= KINK)
                errors[new] = error[new]
                agree |= new
            if np.all(agree | ~finite):
                return Compared(errors, limits, agree & finite, finite)
        if not self.slopes and not isinstance(problem, Jump):
            raise problem
        return self.decided(errors, limits, agree, finite)

    def at(self, h: float) -> Slopes:
        """The slopes at a width."""
        ahead, behind = self.f(h), self.f(-h)
        sides = (ahead - self.here) / h, (self.here - behind) / h
        if self.first is None:
            return Slopes(h, *sides)
        return Slopes(h, 2 * (sides[0] - self.first) / h, 2 * (self.first - sides[1]) / h)

    def found_with(self, power: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """The slopes at a width, alone and extrapolated with the slopes at adjacent widths.

        Each comes with the relative gap between its one-sided slopes, which is large on a kink,
        even if their mean happens to equal J v, and small far from kinks.
        """
        if power not in self.slopes:
            return []
        one = self.slopes[power]
        found = [(one.mean, self.apart(one))]
        for wide, fine in ((power - 1, power), (power, power + 1)):
            if wide in self.slopes and fine in self.slopes:
                slope, _ = self.slopes[wide].finer(self.slopes[fine])
                found.append((slope, self.apart(self.slopes[fine])))
        return found

    def apart(self, slopes: Slopes) -> np.ndarray:
        """The relative gap between the one-sided slopes, beyond their rounding error."""
        gap = abs(slopes.ahead - slopes.behind) - 2 * self.rounding(slopes.h)
        scale = np.maximum.reduce([abs(slopes.ahead), abs(slopes.behind), self.size])
        return gap / np.where(scale > 0, scale, 1.0)

    def limit(self, uncertainty: np.ndarray) -> np.ndarray:
        """The error that is allowed, relative to the size of J v."""
        return (self.allowed * self.size + UNCERTAINTIES * self.noise + uncertainty) / self.unit

    def decided(
        self, errors: np.ndarray, limits: np.ndarray, agree: np.ndarray, finite: np.ndarray
    ) -> Compared:
        """The result where no width agrees, by the most certain slope from three widths."""
        slope, unsure = self.certain()
        error, limit = abs(slope - self.product) / self.unit, self.limit(UNCERTAINTIES * unsure)
        known = np.isfinite(unsure) & np.isfinite(self.product)
        wrong, clear = known & (error > limit), known & (limit <= max(KINK, self.allowed))
        near = UNCERTAINTIES * unsure <= KINK * np.maximum(1, abs(slope))
        endless = ~np.isfinite(self.product) & near
        error[endless] = np.inf
        judged = finite & (agree | wrong | clear | endless)
        errors, limits = np.where(agree, errors, error), np.where(agree, limits, limit)
        open_ = finite & ~agree & (wrong | ~judged) & np.isfinite(self.product)
        if self.roundings is None or not open_.any():
            return Compared(errors, limits, judged, finite)
        off, why = self.roundings()
        least = np.maximum(error * self.unit, self.allowed * self.size)
        hidden = open_ & (ROUNDINGS * off / self.best > least)
        return Compared(errors, limits, judged & ~hidden, finite, hidden, why)

    def resolution(self) -> np.ndarray:
        """The smallest nonzero change of the entries of f that do not change at another width.

        The small difference of large numbers changes in steps that its own size does not reveal.
        """
        if not self.slopes or self.first is not None:
            return np.zeros_like(self.here)
        changes = [abs(s.h * side) for s in self.slopes.values() for side in (s.ahead, s.behind)]
        least = np.min([np.where(change > 0, change, np.inf) for change in changes], axis=0)
        still = np.any([change == 0 for change in changes], axis=0)
        seen = np.where(still & np.isfinite(least), least, 0.0)
        return pool_sizes(seen, self.parts)

    def certain(self) -> tuple[np.ndarray, np.ndarray]:
        """The most certain extrapolated slope, entry by entry, and its uncertainty."""
        best = np.zeros_like(self.here), np.full_like(self.here, np.inf)
        least = self.resolution()
        powers = sorted(self.slopes)
        pairs = [(fine, *self.slopes[wide].finer(self.slopes[fine]))
                 for wide, fine in pairwise(powers) if fine == wide + 1]  # fmt: skip
        for (_, coarse, loose), (fine, slope, tight) in pairwise(pairs):
            unsure = np.maximum.reduce([loose, tight, abs(slope - coarse)])
            finer = [self.slopes[power] for power in powers if power > fine]
            unsure = np.maximum.reduce([unsure, *(
                np.maximum(abs(slope - s.mean) - UNCERTAINTIES * self.rounding(s.h, least), 0)
                for s in finer
            )])  # fmt: skip
            unsure = unsure + self.rounding(self.slopes[fine].h, least)
            better = unsure < best[1]
            best = np.where(better, slope, best[0]), np.where(better, unsure, best[1])
        return best


def typical_size(x: np.ndarray) -> float:
    """The size of x, to which widths are relative; 1 if x is 0."""
    size = float(np.linalg.norm(x)) / max(len(x), 1) ** 0.5
    return max(size, 1e-3) if size else 1.0


def pool_sizes(values: np.ndarray, parts: np.ndarray) -> np.ndarray:
    """|value|, but at least the root mean square of the finite entries of its tensor."""
    sizes = np.where(np.isfinite(values), abs(values), 0.0)
    count = np.bincount(parts)
    squares = np.bincount(parts, sizes**2, len(count))
    means = np.sqrt(squares / np.maximum(count, 1))
    return np.maximum(sizes, means[parts]) if len(values) else sizes


def epsilon(dtype: np.dtype) -> float:
    """The machine epsilon of a float of NumPy or of ml_dtypes."""
    return float(ml_dtypes.finfo(dtype).eps)


def rounding_error(J: Jacobian, v: np.ndarray) -> np.ndarray:
    """|J v - J v with an error in every intermediate result|, entry by entry.

    Each error is a rounding error of the largest entry of its tensor, with a random sign, as in
    Monte Carlo arithmetic (Parker, 1997). Zero if the product cannot be computed in this way.
    """
    with suppress(Exception), np.errstate(all="ignore"):  # the tests will say what is wrong
        shaped = v.reshape(J.in_shape)
        off, exact = (J._apply(op, shaped).astype(np.float64) for op in (Rounded(), numbers))
        off -= exact
        found = np.abs(off, out=off).ravel()
        found[~np.isfinite(found)] = 0.0
        return found
    return np.zeros(J.shape[0])


class Rounded(Reading):
    """The `numbers` reading with a rounding error in every floating result of an operator."""

    over = numbers

    def __init__(self) -> None:
        self.signs = np.random.default_rng(0)

    def call(self, op_type: str, *inputs: Any, **attrs: Any) -> Any:
        """The result of an operator, with rounding errors."""
        found = getattr(numbers, op_type)(*inputs, **attrs)
        return tuple(map(self.off, found)) if isinstance(found, tuple) else self.off(found)

    def off(self, x: Any) -> Any:
        """A tensor with a rounding error in every entry."""
        if not isinstance(x, np.ndarray) or x.dtype.kind not in "fV" or not x.size:
            return x
        error = epsilon(x.dtype) * max(float(x.max()), -float(x.min()))
        errors = error * signs_of(self.signs, x)
        return np.asarray(x + errors.astype(x.dtype, copy=False), x.dtype)
