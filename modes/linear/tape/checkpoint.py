"""Checkpoint: residuals computed again at every product, segment by segment, instead of held.

With n steps in √n segments, only the tensors between segments are held, about √n times fewer.
A product then costs about one more run of the model.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from math import isqrt
from typing import Any

import numpy as np

from ....jacobians import Array, Dag, Edge, Jacobian, Op, Reshape, Shape, common, size
from ....jacobians.layout import slab
from ....jacobians.threads import cached_property
from ....ops import Step
from ...model.flow.steps import reads
from .active import ActiveStep

Names = tuple[str, ...]


@dataclass(frozen=True)
class Segment:
    """Consecutive steps, the tensors that their blocks join, and the tensors that they read."""

    ins: Names
    outs: Names
    given: Names


class Checkpointed(Jacobian):
    """y = J x for the DAG that `rebuild` makes from the held arrays at every product."""

    def __init__(
        self, rebuild: Callable[[], Dag], held: tuple[Array, ...], out_shape: Shape,
        in_shape: Shape, dtype: np.dtype, *, transposed: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(out_shape, in_shape, dtype)
        self.rebuild, self.held, self.transposed = rebuild, held, transposed

    def _apply(self, op: Op, v: Array) -> Array:
        dag = self.rebuild()
        return (dag.T if self.transposed else dag)._apply(op, v)

    def _transpose(self) -> Jacobian:
        return Checkpointed(
            self.rebuild, self.held, self.in_shape, self.out_shape, self.dtype,
            transposed=not self.transposed,
        )  # fmt: skip

    def arrays(self) -> Iterator[Array]:
        yield from self.held

    @cached_property
    def flops(self) -> int:
        """The product's alone; recomputed residuals are not counted."""
        return self.rebuild().flops

    def __repr__(self) -> str:
        return f"checkpointed({self.shape[0]}×{self.shape[1]})"


def checkpointed(
    part: Segment, dag_at: Callable[[Mapping[str, Any]], Dag], values: Mapping[str, Any],
    constants: Collection[str],
) -> Checkpointed:  # fmt: skip
    """The operator of a segment; it holds the values from which its residuals are computed."""
    held = {name: values[name] for name in part.given if name not in constants}
    m, n = (sum(values[name].size for name in names) for names in (part.outs, part.ins))
    dtype = common(*(values[name].dtype for name in (*part.ins, *part.outs)))
    return Checkpointed(partial(dag_at, held), tuple(held.values()), (m,), (n,), dtype)


def as_it_is(dag: Dag) -> Jacobian:
    """The DAG unchanged: operators that are rebuilt at every product cannot be multiplied out."""
    return dag


def segments(
    steps: tuple[Step, ...], active: tuple[ActiveStep, ...], of: Names, wrt: Names, count: int,
    discrete: Collection[str] = (),
) -> tuple[Segment, ...]:  # fmt: skip
    """The steps in about `count` segments; 0 stands for the square root of the number of steps.

    `discrete` are the tensors of integers and booleans, which have no tangents.
    """
    known = {id(a.step): a for a in active}
    bounds = cuts(steps, of, wrt, count or isqrt(len(active)))
    found = []
    for start, stop in zip((0, *bounds), (*bounds, len(steps)), strict=True):
        inside = [known[id(s)] for s in steps[start:stop] if id(s) in known]
        if inside:
            later = {n for s in steps[stop:] for n in reads(s)} | set(of)
            found.append(segment(steps[start:stop], inside, later, discrete))
    return tuple(found)


def segment(
    steps: tuple[Step, ...], inside: list[ActiveStep], later: set[str], discrete: Collection[str]
) -> Segment:
    """The segment that consists of some steps, some of them active."""
    made = {name for step in steps for name in step.outputs}
    ends = {a.step.outputs[o] for a in inside for o, _ in a.wanted} - {*discrete}
    starts = [a.step.inputs[i] for a in inside for _, i in sorted(a.wanted)]
    others = {*made, *discrete}
    ins = dict.fromkeys(name for name in starts if name is not None and name not in others)
    outs = tuple(name for step in steps for name in step.outputs if name in ends & later)
    given = dict.fromkeys(name for step in steps for name in reads(step) if name not in made)
    return Segment(tuple(ins), tuple(filter(None, outs)), tuple(given))


def cuts(steps: tuple[Step, ...], of: Names, wrt: Names, count: int) -> list[int]:
    """The starts of segments: about even, where few tensors cross, and after tensors of `wrt`."""
    width = max(1, len(steps) // max(count, 1))
    passing = crossings(steps, of)
    chosen = {
        min(range(at, min(at + max(1, width // 2), len(steps))), key=passing.__getitem__)
        for at in range(width, len(steps), width)
    }
    moved = {k + 1 for k, step in enumerate(steps) if not set(wrt).isdisjoint(step.outputs)}
    return sorted((chosen | moved) - {len(steps)})


def crossings(steps: tuple[Step, ...], of: Names) -> list[int]:
    """For each step, the number of tensors computed before it and needed there or later."""
    last = {name: k for k, step in enumerate(steps) for name in reads(step)}
    last |= dict.fromkeys(of, len(steps))
    change = [0] * (len(steps) + 2)
    for k, step in enumerate(steps):
        for name in step.outputs:
            if name in last:
                change[k + 1] += 1
                change[min(last[name], len(steps)) + 1] -= 1
    return list(accumulate(change))[: len(steps)]


def chained(
    parts: list[tuple[Segment, Checkpointed]], shapes: Mapping[str, Shape], of: Names,
    wrt: Names, dtype: np.dtype,
) -> Dag:  # fmt: skip
    """The DAG whose edges are segments, with the tensors between them as vertices."""
    number: dict[str, int] = {}
    sizes: list[Shape] = []
    edges: list[Edge] = []

    def vertex(shape: Shape) -> int:
        sizes.append(shape)
        return len(sizes) - 1

    produced = {name for part, _ in parts for name in part.outs}
    for name in (*wrt, *of):
        if name not in produced and name not in number:
            number[name] = vertex(shapes[name])
    for part, J in parts:
        start, end = vertex(J.in_shape), vertex(J.out_shape)
        edges.append(Edge(start, end, J))
        for name, place in places(part.ins, shapes, J.dtype):
            edges.append(Edge(number[name], start, place.T))
        for name, place in places(part.outs, shapes, J.dtype):
            number[name] = vertex(shapes[name])
            edges.append(Edge(end, number[name], place))
    sources, sinks = (tuple(number[name] for name in names) for names in (wrt, of))
    return Dag(tuple(sizes), edges, sources, sinks, dtype)


def places(
    names: Names, shapes: Mapping[str, Shape], dtype: np.dtype
) -> Iterator[tuple[str, Jacobian]]:
    """The selection of each tensor from the concatenation of all of them."""
    whole, start = sum(size(shapes[name]) for name in names), 0
    for name in names:
        stop = start + size(shapes[name])
        cut = slab((whole,), 0, start, stop, dtype)
        yield name, Reshape(shapes[name], (stop - start,), dtype) @ cut
        start = stop
