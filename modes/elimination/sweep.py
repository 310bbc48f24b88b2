"""Sweep: the adjoints of one tensor in a single sweep of many rows.

A long sweep is recorded and run by an engine, whose convolutions and matrix products are two to
three times as fast as those of plain calls. A short one would not repay the recording.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from ...jacobians import Dag, size
from ...ops.numbers import numbers
from ..products.engines import Program, compile_by
from ..products.record import record
from .cost import RECORDING, seconds

FASTER = 2.0
"""By so much at least an engine is faster than plain calls, once it has its program."""

PROGRAM = 2**21
"""Bytes that a program takes beside its tensors."""

KEPT = "sweep"
"""Key of the program of a DAG, with the number of its rows."""


def adjoints(part: Dag, sink: int, seeds: np.ndarray, room: int) -> dict[int, np.ndarray]:
    """Rows (r, *shape) at the sources of a DAG, by vertex, from rows at its sink.

    `room` are the bytes that it may take: three times those of the rows themselves. An engine,
    which rounds up to powers of two, takes twice those and its program.
    """
    if repays(part, len(seeds)) and room // 3 >= PROGRAM:
        return by_engine(part, seeds)
    last = len(part.shapes) - 1
    swept = part.T.sweep(numbers, {last - sink: seeds})
    return {last - vertex: rows for vertex, rows in swept.items()}


def repays(part: Dag, rows: int) -> bool:
    """Whether an engine saves more than its program takes."""
    saved = rows * sum(seconds(edge.operator) for edge in part.edges) * (1 - 1 / FASTER)
    return saved > RECORDING * len(part.edges)


def by_engine(part: Dag, seeds: np.ndarray) -> dict[int, np.ndarray]:
    """The same by a program."""
    rows = len(seeds)
    joined = program_of(part, rows)(np.ascontiguousarray(seeds).reshape(rows, -1))
    shapes = [part.shapes[vertex] for vertex in part.sources]
    bounds = pairwise(np.cumsum([0, *map(size, shapes)]))
    return {
        vertex: joined[:, start:stop].reshape(rows, *shape)
        for vertex, shape, (start, stop) in zip(part.sources, shapes, bounds, strict=True)
    }


def program_of(part: Dag, rows: int) -> Program:
    """The program for so many rows, kept with the DAG until one for other rows takes its place."""
    if part.known.get(KEPT, (None,))[0] != rows:
        part.known.pop(KEPT, None)  # before the next one takes its memory
        part.known[KEPT] = rows, compile_by(None, record(part.T, (rows,)))[0]
    program: Program = part.known[KEPT][1]
    return program
