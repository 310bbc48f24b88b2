"""Rows: the derivatives of an operator along a line at a place, what is exact and what is found."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from typing import Any

import numpy as np

from onnxjac.modes.verify.check import CaseCheck

from .points import OPERATORS, Line, Place, places
from .truth import along_line
from .ways import ORDER, OWN, Library, Way, installed

WRONG = 1e-5
"""A relative error above which a derivative is wrong."""


@dataclass(frozen=True)
class Row:
    """One derivative: what is exact, and what was found by a way of a library; None: an error."""

    operator: str
    point: str
    inputs: tuple[str, ...]
    library: str
    way: str
    order: int
    exact: float
    found: float | None

    @property
    def is_wrong(self) -> bool:
        """Whether there is a number, and the number is wrong."""
        return self.found is not None and not is_near(self.found, self.exact)

    @property
    def kind(self) -> str:
        """The kind of an error."""
        if self.found is None or not self.is_wrong:
            return ""
        if not np.isfinite(self.found):
            return "NaN" if np.isnan(self.found) else "infinite"
        return "zero" if self.found == 0 else "another number"


def is_near(found: float, exact: float) -> bool:
    """Whether a number is right; NaN is not."""
    return bool(abs(found - exact) <= WRONG * (1 + abs(exact)))


def line_through(place: Place) -> tuple[Line, np.ndarray] | None:
    """A line through a place, and its derivatives from values; None on a kink."""
    case = place.case
    check = CaseCheck(case)
    if not check.wrt or not check.of:
        return None
    rng = np.random.default_rng(0)
    v = {n: rng.integers(-8, 9, case.point[n].shape) / 8 for n in check.wrt}
    truth = along_line(check, case.point, v, check.of[0], ORDER)
    if truth is None:
        return None
    u = rng.integers(1, 9, truth.shape[1]) / 8
    return Line(place, v, check.of[0], u), truth @ u


def rows_of(place: Place) -> list[Row]:
    """The derivatives at a place, by all ways; none on a kink and outside of the domain."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = line_through(place)
            value = OWN.value(found[0]) if found else 0.0
        except Exception as error:  # the point is outside of the operator's domain
            said = f"{type(error).__name__}: {str(error)[:90]}"
            print(f"{place.operator}, {place.point}: {said}", file=sys.stderr)
            return []
        if found is None:
            return []
        line, exact = found
        return [row for library in (OWN, *(held for _, held in installed()))
                for row in rows_by(library, line, exact, value)]  # fmt: skip


def rows_by(library: Library, line: Line, exact: np.ndarray, value: float) -> Iterator[Row]:
    """The derivatives by the ways of a library, where it has the operator with this value."""
    curve = attempt(partial(library.curve, line))
    there = attempt(partial(library.value, curve)) if curve is not None else None
    if there is None or not is_near(there, value):
        return
    said = tuple(described(line))
    for way in library.ways:
        if way.goes(line.place):
            for order, found in numbers(way, curve):
                yield Row(line.place.operator, line.place.point, said, library.name, way.name,
                          order, float(exact[order - 1]), found)  # fmt: skip


def numbers(way: Way, curve: Any) -> Iterator[tuple[int, float | None]]:
    """The orders of a way and its derivatives, None where there is an error."""
    taken = attempt(lambda: [*map(float, way.take(curve, ORDER))]) if way.together else None
    if taken is not None:
        yield from enumerate(taken, 1)
        return
    found: float | None = 0.0
    for order in way.orders:  # no order follows from an error
        if found is not None:
            found = attempt(partial(number, way, curve, order))
        yield order, found


def number(way: Way, curve: Any, order: int) -> float:
    """A derivative as a number."""
    found = way.take(curve, order)
    return float(found[-1] if way.together else found)


def described(line: Line) -> Iterator[str]:
    """The node, its inputs x, the direction v and the weights u."""
    yield str(line.case)
    for name, x in line.case.point.items():
        along = f", v = {line.v[name].tolist()}" if name in line.v else ""
        yield f"{name} = {x.tolist()}{along}"
    yield f"u = {line.u.tolist()}"


def attempt(take: Callable[[], Any]) -> Any:
    """A result, or None where there is an error: an error is not silent."""
    try:
        return take()
    except Exception:
        return None


def sweep(only: str = "", jobs: int = 1) -> Iterator[Row]:
    """The rows of all places, or of one operator, in order."""
    if only or jobs < 2:
        yield from (row for place in places(only) for row in rows_of(place))
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        for rows in pool.map(rows_of_operator, OPERATORS):
            yield from rows


def rows_of_operator(name: str) -> list[Row]:
    """The rows of one operator, whose places share programs."""
    return [row for place in places(name) for row in rows_of(place)]
