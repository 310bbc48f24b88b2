"""Examples in numbers: J v by the operator against differences of the model."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np

from ...jacobians.errors import OnnxJacError, OnnxJacWarning
from ..linearize import linearize
from .case import Case

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Example:
    """A point, a direction, J v there, and (f(x + h v) - f(x - h v)) / 2h."""

    case: Case
    point: dict[str, np.ndarray]
    direction: dict[str, np.ndarray]
    product: np.ndarray
    differences: np.ndarray

    @property
    def error(self) -> float:
        """The greatest difference, relative to the greatest entry where that exceeds 1."""
        scale = max(1.0, float(np.abs(self.differences).max(initial=0)))
        return float(np.abs(self.product - self.differences).max(initial=0)) / scale


def examples(cases: tuple[Case, ...], count: int = 2) -> tuple[Example, ...]:
    """Examples at the first cases, and at further points of the last where there are too few."""
    small = list(cases[:count])
    small += [small[-1]] * (count - len(small))
    return tuple(example(case, seed) for seed, case in enumerate(small))


GOOD = 1e-6
STEPS = (1e-5, 1e-2, 0.25)
"""Where single precision is all that an operator knows, the longer ones are better."""


def example(case: Case, seed: int) -> Example:
    """One example; the direction is random, with two decimals."""
    rng = np.random.default_rng(seed)
    wrt, point = case.floating(case.wrt), nearby(case, seed)
    values = case.model.run(point, engine="numpy")
    shown = case.of or range(case.outputs)
    of = tuple(n for k, n in enumerate(case.results) if k in shown and values[n].dtype.kind == "f")
    direction = {n: np.round(rng.standard_normal(point[n].shape), 2) for n in wrt}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OnnxJacWarning)  # of blocks that are zero
        J = linearize(case.model, point, of=of, wrt=wrt, engine="numpy")
    pushed = flat(J.apply(direction), of)
    found = []
    for h in STEPS:
        differences = slope(case, point, direction, of, h)
        if differences is not None:
            found.append(Example(case, point, direction, pushed, differences))
        if found and found[-1].error < GOOD:
            break
    return min(found, key=lambda made: made.error)


def slope(
    case: Case, point: Arrays, direction: Arrays, of: tuple[str, ...], h: float
) -> np.ndarray | None:
    """(8 (f(h) - f(-h)) - (f(2h) - f(-2h))) / 12 h along the direction.

    None where so long a step leads to a result of another size.
    """

    def at(t: float) -> np.ndarray:
        moved = {n: point[n] + t * direction[n] if n in direction else x for n, x in point.items()}
        return flat(case.model.run(moved, engine="numpy"), of)

    near, far = (at(h), at(-h)), (at(2 * h), at(-2 * h))
    if len({y.size for y in (*near, *far)}) > 1:
        return None
    return (8 * (near[0] - near[1]) - (far[0] - far[1])) / (12 * h)


def flat(values: Arrays, names: tuple[str, ...]) -> np.ndarray:
    """The named tensors, one behind the other."""
    return np.concatenate([np.ravel(values[name]) for name in names])


def nearby(case: Case, seed: int) -> dict[str, np.ndarray]:
    """The point of a case; another one in the neighbourhood for another seed."""
    kinds = {name: spec.dtype for name, spec in case.model.inputs.items()}
    point = {name: np.asarray(x, kinds.get(name)) for name, x in case.point.items()}
    wrt = case.floating(case.wrt)
    moved = {n: x * (1 + seed / 64) if n in wrt else x for n, x in point.items()}
    try:
        case.model.run(moved, engine="numpy")
    except OnnxJacError:
        return point
    return moved
