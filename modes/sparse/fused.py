"""Fused: a program as loops that numba compiles, for a J that is compiled for numba.

Every stage is a loop over its results. Stages of equal length that read each other elementwise
share a loop, and results that no other loop reads are never stored.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite

import numba
import numpy as np

from ..products.numba.kernels import compiled, reading_type
from .program import IN_X, Program, overlaps
from .stages import Added, Index, Multiplied, Numbers, Spread, Stage


class Loop:
    """A loop over `length` elements.

    `made` are the ranges of x that its lines compute, `busy` all ranges that they write.
    """

    def __init__(self, length: int) -> None:
        self.length, self.lines = length, list[str]()
        self.made, self.busy = list[slice](), list[slice]()

    def takes(self, length: int, reads: Iterable[Index]) -> bool:
        """Whether a line may join: it may read `busy` ranges only entry by entry."""
        met = (r for r in reads if any(overlaps(r, (b.start, b.stop)) for b in self.busy))
        alone = all(isinstance(r, slice) and r in self.made for r in met)
        return length == self.length and alone


class Fused:
    """y[at] = coefficient ∘ x[variable], x being the variables of a program, as one function."""

    def __init__(self, program: Program, variable: Index, coefficient: Numbers, at: Index) -> None:
        self.program, self.loops = program, list[Loop]()
        self.held, self.read = list[np.ndarray](), list[Index]()
        for stage in program.stages:
            self._enter(stage)
        loop = self._loop(length_of(variable), [variable])
        loop.lines.append(f"y[{self._place(at)}] = {self._times(coefficient, variable)}")
        self.source = "\n".join(self._text())
        x = np.empty(0, program.dtype)
        reads = (*(reading_type(x) for _ in program.read), *map(reading_type, self.held))
        signature = (numba.typeof(x), *reads, numba.typeof(x))
        self.function = compiled(self.source, signature, parallel=False)

    def __call__(self, arrays: Iterable[np.ndarray], y: np.ndarray) -> None:
        """Write the results to y, for these values of the program's arrays."""
        x, flat = self.program.room(arrays)
        self.function(x, *flat, *self.held, y)
        self.program.done(x)

    def _text(self) -> Iterable[str]:
        """The source of the function; only results that another loop reads are stored in x."""
        names = [f"a{k}" for k in range(len(self.program.read))]
        names += [f"h{k}" for k in range(len(self.held))]
        yield f"def loop(x, {', '.join(names)}, y):"
        for loop in self.loops:
            yield f"    for i in prange({loop.length}):"
            yield from (f"        {line}" for line in loop.lines)
            for made in loop.made:
                if any(overlaps(index, (made.start, made.stop)) for index in self.read):
                    yield f"        x[{made.start} + i] = t{made.start}"

    def _loop(self, length: int, reads: Iterable[Index]) -> Loop:
        """The last loop, or a new one after it."""
        if not (self.loops and self.loops[-1].takes(length, reads)):
            self.loops.append(Loop(length))
        return self.loops[-1]

    def _enter(self, stage: Stage) -> None:
        """Add the lines of a stage."""
        made, n = stage.made, length_of(stage.made)
        if isinstance(stage, Multiplied):
            loop = self._loop(n, stage.reads)
            value = f"{self._entry(stage.left)} * {self._entry(stage.right)}"
        elif isinstance(stage, Added):
            whole = [(c, variables) for rows, variables, c in stage.rounds if length_of(rows) == n]
            loop = self._loop(n, [variables for _, variables in whole])
            terms = (self._times(*term) for term in whole)
            value = " + ".join((self._number(stage.constant), *terms))
        else:
            assert isinstance(stage, Spread)
            loop, value = self._loop(n, stage.reads), "total"
            loop.lines += self._row(stage)
        loop.lines.append(f"t{made.start} = {value}")
        loop.made.append(made)
        loop.busy.append(made)
        if isinstance(stage, Added):
            self._add(stage, n)

    def _add(self, stage: Added, n: int) -> None:
        """Add the terms that only some of the sums have."""
        for rows, variables, coefficient in stage.rounds:
            if length_of(rows) < n:
                self.read.append(stage.made)
                loop = self._loop(length_of(rows), [stage.made, variables])
                place = f"x[{stage.made.start} + {self._place(rows)}]"
                loop.lines.append(f"{place} += {self._times(coefficient, variables)}")
                loop.busy.append(stage.made)

    def _row(self, stage: Spread) -> Iterable[str]:
        """A row of a sparse matrix times x."""
        C = stage.matrix
        self.read.append(slice(0, stage.made.start))
        starts, at, numbers = map(self._hold, (C.indptr, C.indices, C.data))
        yield f"total = {self._number(stage.constant)}"
        yield f"for p in range({starts}[i], {starts}[i + 1]):"
        yield f"    total += {numbers}[p] * x[{at}[p]]"

    def _entry(self, index: Index) -> str:
        """An entry of x: just computed in this loop, or read from its place."""
        if isinstance(index, slice):
            if index in self.loops[-1].made:
                return f"t{index.start}"
            source, where = self.program.direct.get((index.start, index.stop), (IN_X, index))
            if source != IN_X:
                return f"a{source}[{where.start} + i]"
        self.read.append(index)
        return f"x[{self._place(index)}]"

    def _times(self, coefficient: Numbers, index: Index) -> str:
        return f"{self._number(coefficient)} * {self._entry(index)}"

    def _number(self, number: Numbers) -> str:
        """A number as text, or an entry of an array."""
        if isinstance(number, np.ndarray):
            return f"{self._hold(number)}[i]"
        return repr(number) if isfinite(number) else f"{self._hold(np.array([number]))}[0]"

    def _place(self, index: Index) -> str:
        """The position that an index refers to, as text."""
        return f"{index.start} + i" if isinstance(index, slice) else f"{self._hold(index)}[i]"

    def _hold(self, array: np.ndarray) -> str:
        """The name of an array that is the same at all points."""
        self.held.append(np.ascontiguousarray(array))
        return f"h{len(self.held) - 1}"


def length_of(index: Index) -> int:
    """The number of positions that an index refers to."""
    return index.stop - index.start if isinstance(index, slice) else len(index)
