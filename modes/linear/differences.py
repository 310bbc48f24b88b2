"""Differences: J v, entry by entry, against slopes of the model along v at several widths."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

import ml_dtypes
import numpy as np

from ...jacobians import Jacobian, shape_of, size
from ...ops import numbers
from ..model.primal.evaluate import evaluate
from ..model.primal.model import TensorSpec

RATIO = 8.0
"""The ratio of each width to the next smaller one."""

POWERS = (0, 1, -1, 2, 3, -2, 4, 5)
"""The order in which widths best · RATIO⁻ᵏ are tried: small ones cross fewer kinks."""

KINK = 1e-2
"""A slope with a larger uncertainty than this, relative to J v, says nothing about J."""

SURE = 10.0
"""A difference from J v counts if it exceeds the slope's uncertainty by this factor."""

ROUNDINGS = 2.0
"""The number of rounding errors of f and of x that are assumed in one difference."""


@dataclass(frozen=True)
class Near:
    """δ ↦ f(x + δ), flat, at the point of J: x the tensors of `wrt`, f the tensors of `of`."""

    J: Any

    def __call__(self, shift: np.ndarray) -> np.ndarray:
        return self._flat(self.J.codomain, self.moved(shift))

    @property
    def x(self) -> np.ndarray:
        """x, flat."""
        return self._flat(self.J.domain, self.J.point)

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
            shifts[spec.name] = shifts.get(spec.name, 0) + part.reshape(shape)
        steps, moved = self.J.route.model.steps, dict(self.J.point)
        made = {name: k for k, step in enumerate(steps) for name in step.outputs}
        for name in sorted(shifts, key=lambda name: made.get(name, -1)):
            value = self._values([name], moved)[name]
            moved[name] = (value + shifts[name]).astype(value.dtype)
        return moved

    def _flat(self, specs: tuple[TensorSpec, ...], point: Mapping[str, Any]) -> np.ndarray:
        names = [spec.name for spec in specs]
        values = self._values(names, point)
        return np.concatenate([np.ravel(values[name]) for name in names])

    def _values(self, names: list[str], point: Mapping[str, Any]) -> dict[str, np.ndarray]:
        return evaluate(self.J.route.model, point, names, engine=self.J.route.engine)


class Jump(Exception):
    """f has another shape close to x, for example where equal numbers are no longer equal."""


@dataclass
class Compared:
    """For every entry of f: the error of J v, its limit, and whether it is judged and finite.

    `errors` and `limits` are relative to the size of J v in the entry's tensor; entries that are
    not `judged` have a kink, a jump or too much rounding within reach of every width.
    """

    errors: np.ndarray
    limits: np.ndarray
    judged: np.ndarray
    finite: np.ndarray

    @property
    def on_kinks(self) -> int:
        """The number of finite entries that are not judged."""
        return int(np.count_nonzero(self.finite & ~self.judged))

    @property
    def note(self) -> str:
        """A description of the entries that are not judged."""
        count, endless = len(self.judged), int(np.count_nonzero(~self.finite))
        said = []
        if self.on_kinks:
            said.append(f"{self.on_kinks} of {count} entries not compared: as on a kink or jump, "
                        f"no slope settles")  # fmt: skip
        if endless:
            said.append(f"{endless} of {count} entries are not finite")
        return "; ".join(said)

    @property
    def worst(self) -> tuple[float, float]:
        """The error that is largest relative to its limit, and this limit."""
        if not self.judged.any():
            return 0.0, float(self.limits.min(initial=np.inf))
        errors, limits = self.errors[self.judged], self.limits[self.judged]
        k = int(np.argmax(errors / np.maximum(limits, np.finfo(float).tiny)))
        return float(errors[k]), float(limits[k])


def compared(
    J: Jacobian, near: Near, v: np.ndarray, eps: float, allowed: float, seed: int
) -> Compared:
    """J v against slopes along v, at as many widths as some entry needs.

    An entry agrees if the central difference at one width, or extrapolated from two, equals J v up
    to `allowed` and the rounding of f. Otherwise three widths decide: J v is wrong if it differs
    from the extrapolated slope by much more than the uncertainty, which is estimated from the
    three widths and the one-sided slopes.
    """
    with np.errstate(all="ignore"):
        return Comparison(J, near, v, eps, allowed, seed).run()


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


class Comparison:
    """The slopes computed so far, compared with J v."""

    def __init__(
        self, J: Jacobian, near: Near, v: np.ndarray, eps: float, allowed: float, seed: int
    ) -> None:
        self.near, self.v, self.allowed = near, v.astype(np.float64), allowed
        self.product, self.here = (np.asarray(a, np.float64) for a in (J @ v, near(0 * self.v)))
        self.size = pooled(self.product, near.parts)
        self.unit = np.where(self.size > 0, self.size, 1.0)
        x, signs = near.x, np.random.default_rng(seed).choice([-1.0, 1.0], len(self.v))
        moved = np.asarray(J @ (x * signs).astype(J.dtype), np.float64)
        values = pooled(self.here, near.parts) + pooled(moved, near.parts)
        self.rounding = ROUNDINGS * eps * values  # divided by h, the error of a slope
        self.noise = SURE * pooled(rounding(J, v), near.parts)
        self.best = spread(x) * eps ** (1 / 3)  # for a smooth f
        self.slopes: dict[int, Slopes] = {}

    def run(self) -> Compared:
        """Compare width by width, until all entries agree."""
        finite = np.isfinite(self.here)
        errors, limits = np.full_like(self.here, np.inf), self.limit(self.rounding / self.best)
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
        steps = h * self.v, -h * self.v
        ahead, behind = (np.asarray(self.near(step), np.float64) for step in steps)
        if not ahead.shape == self.here.shape == behind.shape:
            raise Jump
        return Slopes(h, (ahead - self.here) / h, (self.here - behind) / h)

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
        gap = abs(slopes.ahead - slopes.behind) - 2 * self.rounding / slopes.h
        scale = np.maximum.reduce([abs(slopes.ahead), abs(slopes.behind), self.size])
        return gap / np.where(scale > 0, scale, 1.0)

    def limit(self, uncertainty: np.ndarray) -> np.ndarray:
        """The error that is allowed, relative to the size of J v."""
        return (self.allowed * self.size + self.noise + uncertainty) / self.unit

    def decided(
        self, errors: np.ndarray, limits: np.ndarray, agree: np.ndarray, finite: np.ndarray
    ) -> Compared:
        """The result where no width agrees, by the most certain slope from three widths."""
        slope, unsure = self.certain()
        error, limit = abs(slope - self.product) / self.unit, self.limit(SURE * unsure)
        known = np.isfinite(unsure) & np.isfinite(self.product)
        wrong, clear = known & (error > limit), known & (limit <= max(KINK, self.allowed))
        endless = ~np.isfinite(self.product) & (SURE * unsure <= KINK * np.maximum(1, abs(slope)))
        error[endless] = np.inf
        judged = finite & (agree | wrong | clear | endless)
        errors, limits = np.where(agree, errors, error), np.where(agree, limits, limit)
        return Compared(errors, limits, judged, finite)

    def resolution(self) -> np.ndarray:
        """The smallest nonzero change of the entries of f that do not change at another width.

        The small difference of large numbers changes in steps that its own size does not reveal.
        """
        if not self.slopes:
            return np.zeros_like(self.here)
        changes = [abs(s.h * side) for s in self.slopes.values() for side in (s.ahead, s.behind)]
        least = np.min([np.where(change > 0, change, np.inf) for change in changes], axis=0)
        still = np.any([change == 0 for change in changes], axis=0)
        seen = np.where(still & np.isfinite(least), least, 0.0)
        return pooled(seen, self.near.parts)

    def certain(self) -> tuple[np.ndarray, np.ndarray]:
        """The most certain extrapolated slope, entry by entry, and its uncertainty."""
        best = np.zeros_like(self.here), np.full_like(self.here, np.inf)
        rounding = np.maximum(self.rounding, self.resolution())
        powers = sorted(self.slopes)
        pairs = [(fine, *self.slopes[wide].finer(self.slopes[fine]))
                 for wide, fine in pairwise(powers) if fine == wide + 1]  # fmt: skip
        for (_, coarse, loose), (fine, slope, tight) in pairwise(pairs):
            unsure = np.maximum.reduce([loose, tight, abs(slope - coarse)])
            finer = [self.slopes[power] for power in powers if power > fine]
            unsure = np.maximum.reduce([unsure, *(against(slope, s, rounding) for s in finer)])
            unsure = unsure + rounding / self.slopes[fine].h
            better = unsure < best[1]
            best = np.where(better, slope, best[0]), np.where(better, unsure, best[1])
        return best


def against(slope: np.ndarray, finer: Slopes, rounding: np.ndarray) -> np.ndarray:
    """The distance of a slope from the mean at a smaller width, beyond the rounding error there.

    A function that looks smooth at large widths, such as a sawtooth, need not be at small ones.
    """
    return np.maximum(abs(slope - finer.mean) - SURE * rounding / finer.h, 0.0)


def spread(x: np.ndarray) -> float:
    """The size of x, to which widths are relative; 1 if x is 0."""
    size = float(np.linalg.norm(x)) / max(len(x), 1) ** 0.5
    return max(size, 1e-3) if size else 1.0


def pooled(values: np.ndarray, parts: np.ndarray) -> np.ndarray:
    """|value|, but at least the root mean square of the finite entries of its tensor."""
    sizes = np.where(np.isfinite(values), abs(values), 0.0)
    count = np.bincount(parts)
    squares = np.bincount(parts, sizes**2, len(count))
    means = np.sqrt(squares / np.maximum(count, 1))
    return np.maximum(sizes, means[parts]) if len(values) else sizes


def epsilon(dtype: np.dtype) -> float:
    """The machine epsilon of a float of NumPy or of ml_dtypes."""
    return float(ml_dtypes.finfo(dtype).eps)


def rounding(J: Jacobian, v: np.ndarray) -> np.ndarray:
    """|J v - J v with an error in every intermediate result|, entry by entry.

    Each error is a rounding error of the largest entry of its tensor, with a random sign, as in
    Monte Carlo arithmetic (Parker, 1997). Zero if the product cannot be computed in this way.
    """
    with suppress(Exception), np.errstate(all="ignore"):  # the tests will say what is wrong
        shaped = v.reshape(J.in_shape)
        exact, off = (J._apply(op, shaped).astype(np.float64) for op in (numbers, Rounded()))
        found = np.abs(np.ravel(off - exact))
        return np.where(np.isfinite(found), found, 0.0)
    return np.zeros(J.shape[0])


class Rounded:
    """The `numbers` reading with a rounding error in every floating result."""

    def __init__(self) -> None:
        self.signs = np.random.default_rng(0)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return partial(self.call, getattr(numbers, name))

    def call(self, kernel: Callable[..., Any], *inputs: Any, **attrs: Any) -> Any:
        """The result of an operator, with rounding errors."""
        found = kernel(*inputs, **attrs)
        return tuple(map(self.off, found)) if isinstance(found, tuple) else self.off(found)

    def off(self, x: Any) -> Any:
        """A tensor with a rounding error in every entry."""
        if not isinstance(x, np.ndarray) or x.dtype.kind not in "fV" or not x.size:
            return x
        signs = self.signs.choice([-1.0, 1.0], x.shape)
        error = epsilon(x.dtype) * float(np.abs(x).max())
        return np.asarray(x + (error * signs).astype(x.dtype), x.dtype)
