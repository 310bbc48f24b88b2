"""Integers: a case of a few entries at small integers, as ONNX's guide writes its examples."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ...jacobians.errors import OnnxJacError, OnnxJacWarning
from ...jacobians.threads import cached_property
from ..linearize import linearize
from .case import Case, node_case
from .differences import central, mismatch

FEWEST, MOST = 2, 6
"""The numbers of entries that an example has in its inputs."""

ROWS = 12
"""The most entries of its outputs."""

TRIES, KEPT = 60, 4
"""Draws of integers for one case, and examples among which the best one is chosen."""

STEPS, GOOD = (1e-5, 1e-3, 1e-2, 0.25), 1e-6
"""Steps of the differences, tried until the error is good; single precision needs long steps."""


@dataclass(frozen=True)
class Example:
    """A point of integers with y, J, J v and Jᵀ u, and J by differences."""

    case: Case
    point: Mapping[str, np.ndarray]
    wrt: tuple[str, ...]
    of: tuple[str, ...]
    outputs: Mapping[str, np.ndarray]
    matrix: np.ndarray
    slopes: np.ndarray

    @property
    def error(self) -> float:
        """The greatest error of J, relative to the greatest entry or to 1."""
        return mismatch(self.matrix, self.slopes, floor=1.0)

    @cached_property
    def v(self) -> np.ndarray:
        """The tangent: 1, -1, 2, -2 …"""
        n = self.matrix.shape[1]
        return np.array([(k // 2 + 1) * (-1) ** k for k in range(n)])

    @cached_property
    def u(self) -> np.ndarray:
        """The cotangent: 1, 2, 3 …"""
        return np.arange(1, len(self.matrix) + 1)

    @cached_property
    def J(self) -> Any:
        return jacobian_of(self.case, self.point, self.of, self.wrt)

    @cached_property
    def forward(self) -> np.ndarray:
        """J v, by the operator."""
        return np.asarray(self.J @ self.v.astype(float))

    @cached_property
    def reverse(self) -> np.ndarray:
        """Jᵀ u, by the operator."""
        return np.asarray(self.J.T @ self.u.astype(float))


def jacobian_of(case: Case, point: Any, of: Any, wrt: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OnnxJacWarning)  # about blocks that are zero
        return linearize(case.model, point, of=of, wrt=wrt, engine="numpy")


SMALL = {
    (made.op_type, made.domain): [made] for made in (
        node_case("DepthToSpace", (1, 4, 1, 1), blocksize=2),
        node_case("SpaceToDepth", (1, 1, 2, 2), blocksize=2),
        node_case("STFT", (1, 4, 1), np.array(2), None, np.array(2), onesided=0),
        node_case("Det", (2, 2)),
        node_case("com.microsoft::NGramRepeatBlock", np.array([[1, 2, 1]]), (1, 4), ngram_size=2),
    )
}  # fmt: skip
"""Cases that are smaller than the cases of proofs."""


def examples_of(cases: Sequence[Case], most: int = 2) -> tuple[Example, ...]:
    """Up to two examples, of the first cases that have some, where J is not zero."""
    found: list[Example] = []
    for case in sorted(cases, key=far_from_small):
        if found and far_from_small(case)[0]:
            break
        found += [made for made, _ in zip(found_in(case), range(1), strict=False)]
        if len(found) == most:
            break
    if len(found) == 1:
        (first,) = found
        found += [e for e in found_in(first.case) if not same_point(e, first)][:1]
    return tuple(found)


def same_point(one: Example, other: Example) -> bool:
    return all(np.array_equal(one.point[n], other.point[n]) for n in one.point)


def far_from_small(case: Case) -> tuple[Any, ...]:
    """How far a case is from a good example: its entries, its attributes, its lonely axes."""
    sizes = [case.point[n].size for n in case.floating(case.wrt)]
    total = sum(sizes)
    outside = max(0, FEWEST - total) + max(0, total - MOST)
    return outside, len(case.attrs), -total


def chosen_inputs(case: Case) -> tuple[str, ...]:
    """Floating inputs, in order, that have at most `MOST` entries together."""
    held, total = [], 0
    for name in case.floating(case.wrt):
        n = case.point[name].size
        if n and total + n <= MOST:
            held.append(name)
            total += n
    return tuple(held)


def found_in(case: Case) -> Iterator[Example]:
    """Examples of a case, those in which every block counts first."""
    wrt, kept = chosen_inputs(case), []
    if not wrt:
        return
    for seed in range(TRIES):
        point = draw_integers(case, seed)
        with np.errstate(all="ignore"):
            made = tried(case, point, wrt)
        if made is None:
            continue
        if len(np.flatnonzero(made.matrix.any(0))) == made.matrix.shape[1]:
            yield made
        elif made.matrix.any():
            kept.append(made)
            if len(kept) == KEPT:
                break
    yield from sorted(kept, key=lambda e: -np.count_nonzero(e.matrix.any(0)))


DRAWS = (
    lambda n, rng: (1 + np.arange(n)) * np.where(np.arange(n) % 2, -1, 1),
    lambda n, rng: 1 + np.arange(n),
    lambda n, rng: np.arange(n, 0, -1) * np.where(np.arange(n) % 2, -1, 1),
    lambda n, rng: np.arange(n, 0, -1),
    lambda n, rng: rng.permutation(n) + 1,
    lambda n, rng: rng.permutation(n) * np.where(np.arange(n) % 2, -1, 1),
    lambda n, rng: rng.integers(1, 6, n),
    lambda n, rng: rng.integers(-3, 4, n),
    lambda n, rng: np.full(n, 2),
    lambda n, rng: np.zeros(n, int),
)  # fmt: skip
"""Integers of both signs, positive, in any order, small, equal, zero."""


def draw_integers(case: Case, seed: int) -> dict[str, np.ndarray]:
    """The point of a case with integers in its floating inputs."""
    rng, point = np.random.default_rng(seed), {}
    first = DRAWS[seed % len(DRAWS)]
    for name, x in case.point.items():
        spec = case.model.inputs.get(name)
        kind = spec.dtype if spec is not None else x.dtype
        if x.dtype.kind != "f":
            point[name] = np.asarray(x, kind)
            continue
        make = first if seed < len(DRAWS) else DRAWS[int(rng.integers(len(DRAWS)))]
        whole = np.asarray(make(x.size, rng)).reshape(x.shape)
        point[name] = np.asarray(np.abs(whole) if case.assumed(name) else whole, kind)
    return point


def tried(case: Case, point: dict[str, np.ndarray], wrt: tuple[str, ...]) -> Example | None:
    """The example at a point; None where the model does not run there, or J is not its slope."""
    run = partial(case.model.run, engine="numpy")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            outputs = {n: np.asarray(y) for n, y in run(point).items()}
            of = tuple(n for n in case.chosen if n in outputs and outputs[n].dtype.kind == "f")
            m = sum(outputs[n].size for n in of)
            if not 0 < m <= ROWS or not all(np.isfinite(outputs[n]).all() for n in of):
                return None
            J = jacobian_of(case, point, of, wrt).toarray()
            if not np.isfinite(J).all() or np.abs(J).max(initial=0) > 1e4:
                return None
            for h in STEPS:
                slopes = difference_columns(run, point, of, wrt, h)
                made = Example(case, point, wrt, of, outputs, J, slopes)
                if made.error < GOOD and smooth(run, point, of, wrt):
                    return made
    except (OnnxJacError, ValueError, IndexError, ArithmeticError, TypeError):
        return None
    return None


def difference_columns(run: Any, point: Any, of: Any, wrt: Any, h: float) -> np.ndarray:
    """J by central differences, column by column."""
    made = []
    for name in wrt:
        for k in range(point[name].size):
            unit = np.zeros(point[name].size)
            unit[k] = 1
            slope = central(run, point, {name: unit.reshape(point[name].shape)}, h)
            made.append(np.concatenate([np.ravel(slope[n]) for n in of]))
    return np.array(made).T


def smooth(run: Any, point: Any, of: Any, wrt: Any, h: float = 1e-4) -> bool:
    """Whether the slopes on both sides agree: the point lies on no kink."""
    base = run(point)
    for name in wrt:
        for k in range(point[name].size):
            sides = []
            for step in (-h, h):
                x = point[name].astype(float).ravel()
                x[k] += step
                moved = run({**point, name: x.reshape(point[name].shape).astype(point[name].dtype)})
                sides.append([(moved[n] - base[n]) / step for n in of])
            if any(np.abs(a - b).max(initial=0) > 0.05 * (1 + np.abs(a).max(initial=0))
                   for a, b in zip(*sides, strict=True)):  # fmt: skip
                return False
    return True
