"""Compare: a model and its twin over data, by values and, to first order, by their Jacobians."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from ...jacobians import prod_text, shape_of, size
from ...jacobians.arguments import Natural, NonNegative, Positive, validated
from ...jacobians.arrays import host
from ...jacobians.errors import InputError, OnnxJacError, first_line
from ...jacobians.hooks import Shown, view
from ...jacobians.progress import counting
from ...jacobians.text import Table, clipped
from ..data.batches import batches_of
from ..embeddings import default_wrt, is_bypassed
from ..estimators.norms import spectral_norm
from ..linear.check import Check, Outcome, epsilon, narrow_in, staircase, tolerances
from ..linear.derivatives.record import active_steps
from ..linear.linearization import Linearization
from ..linearize import linearize
from ..model.flow.steps import moving
from ..model.markup import Page
from ..model.primal.evaluate import evaluate
from ..model.primal.inputs import (
    Names,
    check_inputs,
    distinct,
    hosted,
    is_float,
    may_float,
    names_of,
)
from ..model.primal.model import Model, TensorSpec, as_model
from .matching import Pair, ends_matched, layers_matched, may_match, relative_difference, unmatched
from .slopes import difference_of, worst_of


@dataclass(frozen=True)
class TensorRow:
    """A tensor of both models: how far its values, and its slopes ∂/∂wrt, are apart.

    `values` is ‖y_a − y_b‖ / ‖y_a‖, or the share of whole numbers that differ, and `largest` the
    largest |y_a − y_b|, in the units of y.
    `slopes` is ‖D‖₂ / ‖J_a‖₂ for D = J_a − J_b, from `sigma` = ‖D‖₂ and `norm` = ‖J_a‖₂; NaN where
    they were not compared. Each is the largest over the batches; `batch` is the batch of `slopes`.
    `agree` is the share of rows whose largest entry is the same one; NaN for other tensors.
    `direction` is the unit change of `wrt` by which y changes most differently, D v = σ u, by name,
    and `response` is u.
    """

    pair: Pair
    shape: tuple[int, ...]
    values: float
    largest: float
    agree: float = np.nan
    slopes: float = np.nan
    sigma: float = np.nan
    norm: float = np.nan
    batch: int = 0
    direction: dict[str, np.ndarray] = field(default_factory=dict)
    response: np.ndarray | None = None
    note: str = ""

    def facts(self) -> dict[str, Any]:
        """The numbers, without the arrays."""
        left = {k: v for k, v in asdict(self).items() if k not in ("pair", "direction", "response")}
        return {**self.pair._asdict(), **left}


@dataclass(frozen=True)
class ModelComparison(Shown):
    """The result of `compare`: true where no output differs by more than `rtol`.

    `check` has a line for the values and the slopes of each output, and `verdict` is `"right"`,
    `"wrong"`, or `"not compared"` where nothing differs but something could not be compared.
    `titles` are the names of the models, and `batches` counts the batches. `outputs` and `layers`
    have a `TensorRow` for each tensor of both models, `inputs` the pairs of inputs, and `alone` the
    outputs that only one of the models has. `wrt` are the tensors of both by which J
    differentiates; `at` is the point of the worst slopes of the first output.
    """

    titles: tuple[str, str]
    rtol: float
    batches: int
    inputs: tuple[Pair, ...]
    wrt: tuple[Pair, ...]
    outputs: tuple[TensorRow, ...]
    layers: tuple[TensorRow, ...]
    alone: tuple[str, ...]
    check: Check
    at: dict[str, np.ndarray]

    @property
    def verdict(self) -> str:
        return self.check.verdict

    def __bool__(self) -> bool:
        return bool(self.check)

    @property
    def table(self) -> Table:
        """The outputs, then the layers, in the order of the first model."""
        kinds = ("output", self.outputs), ("layer", self.layers)
        rows = [(kind, *row_cells(row)) for kind, held in kinds for row in held]
        head = ("", "a", "b", "by", "shape", "values", "slopes", "‖J_a − J_b‖", "‖J_a‖", "agree")
        return Table("", head, tuple(rows), head[5:])

    def view(self) -> Page:
        """The comparison as an HTML page with pictures: `save("compare.html")` writes it."""
        page: Page = view(self)
        return page

    def to_dict(self) -> dict[str, Any]:
        """Pairs, numbers and tests, without arrays."""
        return {
            "verdict": self.verdict, "rtol": self.rtol, "batches": self.batches,
            "inputs": [p._asdict() for p in self.inputs], "wrt": [p._asdict() for p in self.wrt],
            "outputs": [row.facts() for row in self.outputs],
            "layers": [row.facts() for row in self.layers], "alone": list(self.alone),
            "check": [{**asdict(o), "passed": o.passed} for o in self.check.outcomes],
        }  # fmt: skip

    def __str__(self) -> str:
        a, b = self.titles
        renamed = [f"{p.a} → {p.b}" for p in (*self.inputs, *self.wrt) if p.a != p.b]
        passes = f"{self.batches} batch{'es' * (self.batches != 1)}"
        lines = [f"{a} beside {b}: {self.verdict}, {passes}, tolerance {self.rtol:.1e}"]
        lines.append(str(self.check))
        lines += [f"matched: {', '.join(dict.fromkeys(renamed))}"] * bool(renamed)
        lines += [f"in one model only: {', '.join(self.alone)}"] * bool(self.alone)
        return "\n".join([*lines, str(self.table)])

    __repr__ = __str__


def row_cells(row: TensorRow) -> tuple[str, ...]:
    """The names and numbers of a row, as text."""

    def text(x: float) -> str:
        return "–" if x != x else f"{x:.1e}"

    share = "–" if row.agree != row.agree else f"{row.agree:.1%}"
    names = (clipped(row.pair.a, 40), clipped(row.pair.b, 40) if row.pair.a != row.pair.b else "″")
    return (*names, row.pair.by, prod_text(row.shape) or "1", text(row.values), text(row.slopes),
            text(row.sigma), text(row.norm), share)  # fmt: skip


@validated
def compare(
    a: Model | onnx.ModelProto | Path | str, b: Model | onnx.ModelProto | Path | str, data: Any, *,
    of: Names = None, wrt: Names = None,
    rtol: NonNegative | None = None, layers: Natural = 32, straight_through: bool = False,
    batch_size: Positive | None = None, engine: str | None = None, seed: Natural = 0,
) -> ModelComparison:  # fmt: skip
    """‖y_a − y_b‖ / ‖y_a‖ and ‖J_a − J_b‖₂ / ‖J_a‖₂ of a model and its twin, over data.

    The twin `b` is the optimised, quantised or converted `a`. J = ∂of/∂wrt; the norm, and the unit
    direction v of `wrt` for which J_a v − J_b v is largest, come from Lanczos steps with the
    difference as a lazy operator. For each output it is the largest value over the batches; for
    the layers that both models have, values over the batches, and slopes at the batch where those
    of the first output differ most. The result is true where no output differs by more than `rtol`.

    Tensors are matched by name; inputs and outputs then by order, where shape and kind fit, and
    layers by their values at the first batch, where each is the nearest of the other. Numbers that
    are rounded to few values on the way have no slopes to compare: the verdict is `"not compared"`,
    unless `straight_through` lets tangents pass.

    - `a`, `b`: the models, as `load` gives them.
    - `data`: one point, a list of points, a function that returns an iterator over them, or arrays
      or an npz file with `batch_size`; by the names of a.
    - `of`, `wrt`: names in a; by default all outputs, and all floating inputs, or where there are
      none the vectors of the tokens.
    - `rtol`: the relative difference that is allowed, by default half of the digits of the lowest
      precision between `wrt` and `of`: 1.4e-3 for single precision.
    - `layers`: the most layers whose slopes are compared, evenly chosen; 0 leaves layers out.
    - `batch_size`: the rows of a batch.
    - `engine`: `"onnxruntime"` (default where installed), `"numpy"`, `"torch"` or `"jax"` runs
      the models.
    - `seed`: the seed of the start of the iteration.

    Shapes: both models take the same data. Raises `InputError` where no output or nothing of `wrt`
    is in both models, and where data does not fit.
    """
    titles = title(a, "a"), title(b, "b")
    first, second = (as_model(m, of, wrt=wrt, straight_through=straight_through) for m in (a, b))
    names = tuple(first.outputs) if of is None else distinct(of, "of")
    twins, worst = Twins(first, second, engine), None
    rows: dict[Pair, TensorRow] = {}
    with counting("comparison", "batches") as tick:
        for k, batch in enumerate(batches_of(data, batch_size)):
            points = twins.points(batch)
            if worst is None:
                ends, inner = twins.matched(points, names, wrt, layers > 0)
            values = twins.values(points, [*ends, *inner])
            for pair, (y, z) in values.items():
                rows[pair] = with_values(rows.get(pair), pair, y, z, pair in ends)
            J = twins.jacobians(points, ends)
            for pair in ends:
                rows[pair] = with_slopes(rows[pair], J, k, seed)
            if worst is None or rows[ends[0]].batch == k:
                worst = points
            count = k + 1
            tick(1)
    if worst is None:
        raise InputError("the data has no batches")
    some = pick_evenly([p for p in inner if rows[p].note == ""], layers)
    J = twins.jacobians(worst, some)
    for pair in some:
        rows[pair] = with_slopes(rows[pair], J, rows[ends[0]].batch, seed, directed=False)
    allowed = twins.tolerance(worst, ends) if rtol is None else rtol
    lost = unmatched(names, ends, "a")
    extra = unmatched(second.outputs if of is None else (), ends, "b")
    tests = [test for pair in ends for test in outcomes(rows[pair], twins.wrt, allowed)]
    tests += [Outcome(f"{name}: in one model only", 0.0, allowed, compared=False) for name in lost]
    return ModelComparison(
        titles, allowed, count, twins.inputs, twins.wrt,
        tuple(rows[p] for p in ends), tuple(rows[p] for p in inner), (*lost, *extra),
        Check(tuple(tests)), worst[0],
    )  # fmt: skip


def title(model: Any, letter: str) -> str:
    """The name of the file, or of the graph.

    >>> title("models/digits.onnx", "a")
    'digits.onnx'
    """
    if isinstance(model, str | PathLike):
        return Path(model).name
    return str(getattr(model, "name", "") or letter)


Points = tuple[dict[str, Any], dict[str, Any]]
"""The same batch as inputs of both models."""

Slopes = Mapping[Pair, tuple[Linearization, Linearization] | str]
"""The Jacobians of a tensor in both models, or why there are none."""


class Twins:
    """Two models and their tensors in common: `inputs`, and `wrt` once `matched` was called."""

    def __init__(self, a: Model, b: Model, engine: str | None) -> None:
        self.a, self.b, self.engine = a, b, engine
        self.inputs = tuple(ends_matched(a.inputs, b.inputs))
        self.wrt: tuple[Pair, ...] = ()

    def points(self, batch: Mapping[str, Any]) -> Points:
        """A batch, named and typed as each model takes it."""
        one = check_inputs(self.a, batch, keep=False, engine=self.engine)
        other = {p.b: cast_input(one[p.a], self.b.inputs[p.b]) for p in self.inputs if p.a in one}
        return one, check_inputs(self.b, other, keep=False, engine=self.engine)

    def matched(
        self, points: Points, names: Sequence[str], wrt: Names, layers: bool
    ) -> tuple[list[Pair], list[Pair]]:
        """The pairs of `of`, and of layers on the way to them; sets the pairs of `wrt`."""
        by = names_of(self.a, default_wrt(self.a) if wrt is None else wrt, self.a.inputs, "wrt")
        inner = [model.intermediates for model in (self.a, self.b)]
        if not (layers or any(name in inner[0] for name in (*names, *by))):
            inner = [{}, {}]  # the values of all tensors may need much memory
        known, other = (
            hosted(evaluate(m, x, {**m.outputs, **held}, engine=self.engine))
            for m, x, held in zip((self.a, self.b), points, inner, strict=True)
        )
        there = self.b.outputs
        if not all(name in self.a.outputs for name in names):
            there = {**there, **inner[1]}
        ends = ends_matched({name: self.a.spec(name) for name in names}, there, (known, other))
        if not ends:
            raise InputError(f"no tensor of {list(names)} has one of its kind and shape among "
                             f"{[str(spec) for spec in self.b.outputs.values()]}")  # fmt: skip
        between = layers_matched(*({n: x for n, x in side.items() if n in held} for side, held
                                   in zip((known, other), inner, strict=True)))  # fmt: skip
        others = self.b.initializers
        weights = (Pair(n, n, "name") for n, spec in self.a.initializers.items()
                   if n in others and may_match(spec, others[n]))  # fmt: skip
        both = {p.a: p for p in (*weights, *between, *self.inputs)}
        if wrt is None and not any(name in self.a.inputs for name in by):
            by = self._common(by, both, ends)
        if missing := [name for name in by if name not in both]:
            raise InputError(f"wrt={missing[0]!r} has no twin of its values in the other model: "
                             "name tensors that both have")  # fmt: skip
        self.wrt = tuple(both[name] for name in by)
        active = active_steps(self.a.steps, by, [p.a for p in ends])
        on = {name for step in active for name in step.outputs} - {*by, *names}
        return ends, [pair for pair in between if pair.a in on] if layers else []

    def _common(
        self, vectors: tuple[str, ...], both: Mapping[str, Pair], ends: Sequence[Pair]
    ) -> tuple[str, ...]:
        """The vectors of tokens, or where the other model has none the first tensor after them from
        which both have a path to `ends`: quantised vectors are added before they are floating.
        """
        of, there = ([p.a for p in ends], {p.b for p in ends})
        steps = active_steps(self.a.steps, vectors, of)
        after = ((name,) for step in steps for name in step.outputs if name and name not in of)

        def fits(names: tuple[str, ...]) -> bool:
            twins = [both[name].b for name in names if name in both]
            skipped = (is_bypassed(s, self.b) for s in self.b.steps if s.outputs[0] in twins)
            ways = (moving(self.b.steps, [twin]) for twin in twins)
            return (len(twins) == len(names) and not any(skipped)
                    and not any(map(there.isdisjoint, ways)))  # fmt: skip

        return next(filter(fits, (vectors, *after)), vectors)

    def values(
        self, points: Points, pairs: Sequence[Pair]
    ) -> dict[Pair, tuple[np.ndarray, np.ndarray]]:
        """The tensors of both models."""
        one = evaluate(self.a, points[0], [p.a for p in pairs], engine=self.engine)
        other = evaluate(self.b, points[1], [p.b for p in pairs], engine=self.engine)
        return {p: (host(one[p.a]), host(other[p.b])) for p in pairs}

    def jacobians(self, points: Points, pairs: Sequence[Pair]) -> Slopes:
        """∂tensor/∂wrt in both models, for the floating ones of some tensors."""
        some = [p for p in pairs if may_float(self.a.spec(p.a)) and may_float(self.b.spec(p.b))]
        if not some:
            return {}
        ends = [(p.a for p in some), (p.b for p in some)]
        by = [tuple(p.a for p in self.wrt), tuple(p.b for p in self.wrt)]
        try:
            J, K = (
linearize(model, point, of=tuple(of), wrt=wrt, engine=self.engine)
                for model, point, of, wrt in zip((self.a, self.b), points, ends, by, strict=True)
            )  # fmt: skip
        except OnnxJacError as error:
            return dict.fromkeys(some, f"not compared: {first_line(error)}")
        found: dict[Pair, Any] = {}
        for p in some:
            blocks = J.block((p.a,), by[0]), K.block((p.b,), by[1])
            found[p] = next(filter(None, map(steps_in, blocks)), blocks)
        return found

    def tolerance(self, points: Points, ends: Sequence[Pair]) -> float:
        """Half of the digits of the lowest precision between `wrt` and the outputs."""
        found = {np.dtype(np.float64)}
        for held in self.jacobians(points, ends).values():
            for J in held if isinstance(held, tuple) else ():
                found |= {J.dtype, *(np.dtype(spec.dtype) for spec in narrow_in(J))}
        for y, z in self.values(points, ends).values():
            found |= {x.dtype for x in (y, z) if is_float(x.dtype)}
        return tolerances(max(map(epsilon, found)))[0]


def steps_in(J: Linearization) -> str:
    """Why J has no slopes that could be compared: roundings that are not passed."""
    return "" if J.route.model.estimates else staircase(J)


def cast_input(value: Any, spec: TensorSpec) -> Any:
    """A value in the type of another model's input: whole numbers of 32 or 64 bits, say."""
    whole = isinstance(value, np.ndarray) and spec.dtype is not None and not is_float(value.dtype)
    return value.astype(spec.dtype) if whole and value.dtype.kind in "iub" else value


def with_values(row: TensorRow | None, pair: Pair, y: Any, z: Any, ranked: bool) -> TensorRow:
    """The row after one more batch of values, with the largest entries where they are `ranked`."""
    if np.shape(y) != np.shape(z):
        note = f"the shapes are {prod_text(np.shape(y))} and {prod_text(np.shape(z))}"
        return TensorRow(pair, np.shape(y), np.inf, np.inf, note=note)
    row = row or TensorRow(pair, y.shape, 0.0, 0.0)
    if not is_float(y.dtype):
        off = np.asarray(y != z)
        share, most = (float(f()) if off.size else 0.0 for f in (off.mean, off.max))
        return replace(row, values=max(row.values, share), largest=max(row.largest, most))
    y, z = y.astype(np.float64), z.astype(np.float64)
    found = replace(row, values=max(row.values, relative_difference(y, z)),
                    largest=max(row.largest, float(np.abs(y - z).max(initial=0.0))))  # fmt: skip
    if not ranked or y.ndim < 2 or y.shape[-1] < 2:
        return found
    same = float(np.mean(y.argmax(-1) == z.argmax(-1)))
    return replace(found, agree=float(np.fmin(row.agree, same)))


def with_slopes(
    row: TensorRow, slopes: Slopes, batch: int, seed: int, *, directed: bool = True
) -> TensorRow:
    """The row after the slopes of one more batch; σ alone, to a few percent, unless `directed`."""
    held = slopes.get(row.pair, "")
    if isinstance(held, str):
        return replace(row, note=held or row.note)
    J, K = held
    if J.shape != K.shape:
        shapes = f"{prod_text(J.shape)} and {prod_text(K.shape)}"
        return replace(row, note=f"not compared: the Jacobians are {shapes}")
    norm, D = estimate_norm(J, seed), difference_of(J, K)
    found = worst_of(D, seed) if directed else None
    sigma = found.sigma if found else estimate_norm(D, seed)
    share = sigma / norm if norm else (np.inf if sigma else 0.0)
    share = np.inf if share != share else share
    if share <= row.slopes:
        return row
    row = replace(row, slopes=share, sigma=sigma, norm=norm, batch=batch)
    if not found:
        return row
    parts = np.split(found.v, np.cumsum([size(shape_of(s)) for s in J.domain])[:-1])
    direction = {s.name: x.reshape(shape_of(s)) for s, x in zip(J.domain, parts, strict=True)}
    return replace(row, direction=direction, response=found.u.reshape(shape_of(J.codomain[0])))


def estimate_norm(A: Any, seed: int) -> float:
    """‖A‖₂ to a few percent, in some 30 products."""
    return float(spectral_norm(A, rtol=2e-2, products=60, seed=seed, progress=False))


def pick_evenly(pairs: Sequence[Pair], most: int) -> list[Pair]:
    """At most so many of the pairs, evenly chosen."""
    if len(pairs) <= most:
        return list(pairs)
    return [pairs[k] for k in np.linspace(0, len(pairs) - 1, most).round().astype(int)]


def outcomes(row: TensorRow, wrt: Sequence[Pair], allowed: float) -> Iterator[Outcome]:
    """The tests of an output: its values, and its slopes where it has some."""
    name = row.pair.a
    yield Outcome(f"{name}: values", row.values, allowed, row.note if row.values == np.inf else "")
    title = f"∂{name}/∂({clipped(', '.join(p.a for p in wrt), 60)}): slopes"
    if row.slopes == row.slopes:
        yield Outcome(title, row.slopes, allowed)
    elif row.note:
        yield Outcome(title, 0.0, allowed, row.note, compared=False)
