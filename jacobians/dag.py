"""Dag: operators on the edges of a graph of tensors; J is one sweep over it.

The tangent of a vertex is its seed plus Σ J · (tangent of the edge's start). A sum over paths is
never expanded: each edge is applied once per product. The transpose is the same graph with its
edges reversed and transposed, so that forward and reverse mode are one function.

A loop or a branch computes the derivatives of all its outputs in one run: a `Joint`. Each of its
blocks is a `Part`, an operator like any other; the parts of a joint share one run per sweep.

A `Block` is a grid of operators between concatenated tensors: a DAG without inner vertices.

Entries that no operator selects have no part in J, whatever their derivative: see `chosen`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import count, groupby
from operator import add, attrgetter, is_not, matmul
from string import ascii_letters
from typing import Any, cast
from weakref import WeakKeyDictionary, ref

import numpy as np

from .arrays import (
    NAMED,
    SINGLE,
    Array,
    Named,
    Op,
    Shape,
    common,
    dtype_of,
    is_recorded,
    lead,
    reading_of,
    shape_of,
    size,
)
from .base import Holder, Jacobian
from .contraction import Contraction, as_contraction
from .convolution import Convolution
from .elementwise import Cast, Diagonal, Identity, Scalar, Zero
from .errors import InputError
from .layout import Broadcast, Embed, Permutation, Reshape, Scatter, Slice, SumTo, Take
from .matrices import BlockDiagonal, Kron
from .products import Product, factors_of
from .readings import library_of
from .sums import Sum, terms_of
from .symint import agree, at, is_symbolic, same
from .text import LINE_LETTERS, joined
from .threads import cached_property
from .transforms import Cumulative, Fourier

Row = Sequence[Jacobian | None]
Grid = list[list[Jacobian]]

FORMULA_EDGES = 200
"""The most edges of a DAG that prints as a formula."""

Pair = Callable[[Jacobian, Jacobian], Jacobian]
"""What makes one operator of two."""


@dataclass(frozen=True)
class Edge:
    """`operator` takes the tangent of vertex `start` to a part of the tangent of `end`."""

    start: int
    end: int
    operator: Jacobian


class Dag(Jacobian):
    """The Jacobian of the tensors at `sinks` with respect to the tensors at `sources`.

    Vertices are numbered so that every edge leads to a greater number; `shapes[i]` is the shape of
    the tensor at vertex i, `edges` are the operators between two vertices each, and `dtype` is the
    type of J. in_shape and out_shape are flat: the concatenated tensors. `known` is a memo of
    results derived from the DAG, freed with the DAG. `names` are the tensors of a model that its
    operators hold, for the text.
    """

    holds = ("operators",)
    T: cached_property[Dag]
    names: Callable[[], Named] | None = None

    def __init__(
        self, shapes: tuple[Shape, ...], edges: Iterable[Edge], sources: tuple[int, ...],
        sinks: tuple[int, ...], dtype: np.dtype,
    ) -> None:  # fmt: skip
        self.shapes, self.sources, self.sinks = shapes, sources, sinks
        edges = tuple(edges)
        check_edges(edges, shapes, (*sources, *sinks))
        self.edges = useful(edges, sources, sinks)
        super().__init__((self._width(sinks),), (self._width(sources),), dtype)
        self._mirror: ref[Dag] | None = None
        self.known: dict[str, Any] = {}

    def __getstate__(self) -> dict[str, Any]:
        """The state without caches, which are rebuilt on demand."""
        derived = ("known", "T", "_mirror", "_schedule", "_parts", "names", "_whereabouts")
        kept = {name: part for name, part in vars(self).items() if name not in derived}
        return {"known": {}, "_mirror": None, **kept}

    @property
    def mirror(self) -> Dag | None:
        """The DAG whose transpose this is, as long as that lives."""
        return None if self._mirror is None else self._mirror()

    @cached_property
    def _schedule(self) -> tuple[tuple[int, tuple[Edge, ...], tuple[int, ...]], ...]:
        """Each end vertex, in order: its edges, and the vertices that no later edge starts at."""
        last = {edge.start: edge.end for edge in self.edges}
        finished = defaultdict(list)
        for start, end in last.items():
            if start not in self.sinks:
                finished[end].append(start)
        groups = groupby(self.edges, key=attrgetter("end"))
        return tuple((end, tuple(edges), tuple(finished[end])) for end, edges in groups)

    @cached_property
    def _parts(self) -> Mapping[Joint, list[tuple[int, Part]]]:
        """Each program: its parts among the operators, with the vertices where these start."""
        found = defaultdict[Joint, list[tuple[int, Part]]](list)
        for edge in self.edges:
            if isinstance(edge.operator, Part):
                found[edge.operator.joint].append((edge.start, edge.operator))
        return found

    def _width(self, vertices: tuple[int, ...]) -> int:
        return sum(size(self.shapes[i]) for i in vertices)

    def _apply(self, op: Op, v: Array) -> Array:
        tangents = self.sweep(op, self.split(op, v, self.sources))
        return self.join(op, tangents, lead(v, self.in_shape))

    def _transpose(self) -> Dag:
        last = len(self.shapes) - 1
        edges = (Edge(last - e.end, last - e.start, e.operator.T) for e in reversed(self.edges))
        sources, sinks = (tuple(last - i for i in v) for v in (self.sinks, self.sources))
        transpose = Dag(self.shapes[::-1], edges, sources, sinks, self.dtype)
        transpose._mirror, transpose.names = ref(self), self.names
        return transpose

    def split(self, op: Op, v: Array, vertices: tuple[int, ...]) -> dict[int, Array]:
        """A flat vector v split into one tensor for each of `vertices` with entries.

        `op` is the vocabulary of v. A vertex named twice gets the sum.
        """
        tensors: dict[int, Array] = {}
        k, start = lead(v, self.in_shape), 0
        for i in vertices:
            stop = start + size(self.shapes[i])
            if same(stop, start):
                continue
            part = v if len(vertices) == 1 else op.Slice(v, (start,), (stop,), (-1,))
            part = op.Reshape(part, (*k, *self.shapes[i]))
            tensors[i] = op.Add(tensors[i], part) if i in tensors else part
            start = stop
        return tensors

    def join(self, op: Op, tangents: Mapping[int, Array], k: Shape) -> Array:
        """The tensors at the sinks as one flat vector; absent tensors are zero.

        `tangents` are the tensors by vertex, k their leading axes, and `op` their vocabulary.
        """
        parts = []
        for i in self.sinks:
            n = size(self.shapes[i])
            present = i in tangents
            part = tangents[i] if present else op.Expand(np.zeros((), self.dtype), (*k, n))
            parts.append(op.Reshape(part, (*k, n)))
        return parts[0] if len(parts) == 1 else op.Concat(*parts, axis=-1)

    def sweep(self, op: Op, seeds: Mapping[int, Array]) -> dict[int, Array]:
        """Tangents at the sinks, from tangents at some vertices; absent tangents are zero.

        `seeds` are the tangents by vertex, and `op` is their vocabulary.
        """
        tangents, runs = dict(seeds), dict[Joint, dict[int, Array]]()
        for end, edges, finished in self._schedule:
            present = [e for e in edges if e.start in tangents]
            terms = [(e.operator, tangents[e.start]) for e in present
                     if not isinstance(e.operator, Part)]  # fmt: skip
            slots = [(e.operator.joint, e.operator.o) for e in present
                     if isinstance(e.operator, Part)]  # fmt: skip
            found = [accumulate(op, terms)] if terms else []
            for joint, o in dict.fromkeys(slots):
                if joint not in runs:
                    runs[joint] = self._run(op, joint, tangents)
                found += [runs[joint][o]] if o in runs[joint] else []
            for total in found:
                tangents[end] = op.Add(tangents[end], total) if end in tangents else total
            for vertex in finished:
                tangents.pop(vertex, None)
        return tangents

    def _run(self, op: Op, joint: Joint, tangents: Mapping[int, Array]) -> dict[int, Array]:
        """The outputs of one program. The parts of a joint join all inputs with all outputs, so
        that all input tangents are known when the first output is needed.
        """
        mine = self._parts[joint]
        seeds = {part.i: tangents[start] for start, part in mine if start in tangents}
        return joint.run(op, seeds, tuple(dict.fromkeys(part.o for _, part in mine)))

    @property
    def operators(self) -> tuple[Jacobian, ...]:
        return tuple(edge.operator for edge in self.edges)

    def _holding(self, **parts: Any) -> Dag:
        return self.joined(parts, self.apart()[1])

    def apart(self) -> tuple[dict[str, Any], dict[str, Any]]:
        ends = tuple((edge.start, edge.end) for edge in self.edges)
        others = {"shapes": self.shapes, "ends": ends, "sources": self.sources,
                  "sinks": self.sinks, "dtype": self.dtype}  # fmt: skip
        return {"operators": self.operators}, others

    @classmethod
    def joined(cls, held: Mapping[str, Any], others: Mapping[str, Any]) -> Dag:
        pairs = zip(others["ends"], held["operators"], strict=True)
        edges = (Edge(start, end, operator) for (start, end), operator in pairs)
        return Dag(others["shapes"], edges, others["sources"], others["sinks"], others["dtype"])

    @property
    def flops(self) -> int:
        """Flops of the operators, and an addition for each edge that meets another at its end."""
        sums = sum(size(self.shapes[e.end]) for e in self.edges)
        return super().flops + sums - sum(size(self.shapes[v]) for v in {e.end for e in self.edges})

    def behind(self, sink: int) -> set[int]:
        """The vertices from which a path of at least one edge leads to the vertex `sink`."""
        found = {sink}
        found.update(e.start for e in reversed(self.edges) if e.end in found)
        return found - {sink}

    def between(self, sources: tuple[int, ...], sinks: tuple[int, ...]) -> Dag:
        """The DAG between other `sources` and `sinks`."""
        ends = min(sources, default=0), max(sinks, default=0)
        start, stop = (bisect_right(self.edges, v, key=attrgetter("end")) for v in ends)
        return Dag(self.shapes, self.edges[start:stop], sources, sinks, self.dtype)

    def __repr__(self) -> str:
        """The formula, with names of tensors, of a short DAG that is in series and in parallel."""
        brief = f"dag({len(self.edges):,} edges, {self.shape[0]}×{self.shape[1]})"
        if not 0 < len(self.edges) <= FORMULA_EDGES:
            return brief
        formula = composed(self, in_series, lambda a, b: Sum(terms_of(a) + terms_of(b)))
        token = NAMED.set(self.names() if self.names else NAMED.get())
        try:
            return brief if formula is None else repr(formula)
        finally:
            NAMED.reset(token)


def composed(dag: Dag, series: Pair = matmul, parallel: Pair = add) -> Jacobian | None:
    """J as one operator, where paths from one source to one sink are in series and in parallel.

    A grid of such operators where there are more sources and sinks. None where a path branches
    inside another one.
    """
    grid = grid_of(dag, series, parallel)
    if grid is None:
        return None
    return grid[0][0] if len(grid) == len(grid[0]) == 1 else Block(grid)


def grid_of(dag: Dag, series: Pair = matmul, parallel: Pair = add) -> Grid | None:
    """The block of each source and sink; None where a path branches inside another one."""
    grid = [[reduced(dag, start, end, series, parallel) for start in dag.sources]
            for end in dag.sinks]  # fmt: skip
    return None if any(None in row for row in grid) else cast(Grid, grid)


def reduced(dag: Dag, start: int, end: int, series: Pair, parallel: Pair) -> Jacobian | None:
    """The block of one source and one sink; None if it is not in series and in parallel."""
    into, out = defaultdict[int, dict[int, Jacobian]](dict), defaultdict[int, set[int]](set)

    def link(i: int, o: int, J: Jacobian) -> None:
        into[o][i] = parallel(into[o][i], J) if i in into[o] else J
        out[i].add(o)

    for edge in useful(dag.edges, (start,), (end,)):
        link(edge.start, edge.end, edge.operator)
    if not into:
        zero = Zero(dag.shapes[end], dag.shapes[start], dag.dtype)
        return Identity(dag.shapes[end], dag.dtype) if start == end else zero
    waiting = [v for v in into if v != end]
    while waiting:
        v = waiting.pop()
        if not len(into[v]) == len(out[v]) == 1:
            continue
        ((i, J),), (o,) = into.pop(v).items(), out.pop(v)
        out[i].remove(v)
        link(i, o, series(into[o].pop(v), J))
        waiting += [w for w in (i, o) if w not in (start, end)]
    return into[end][start] if sum(map(len, into.values())) == 1 else None


def in_series(left: Jacobian, right: Jacobian) -> Jacobian:
    """The product as a formula: nothing is computed."""
    if isinstance(left, Identity):
        return right
    pair = factors_of(left) + factors_of(right)
    return left if isinstance(right, Identity) else Product(pair)


def check_edges(edges: tuple[Edge, ...], shapes: tuple[Shape, ...], ends: tuple[int, ...]) -> None:
    """Raises `InputError` where an edge does not lead up, or does not fit the tensor shapes."""
    count = len(shapes)
    if not all(0 <= i < count for i in ends):
        raise InputError(f"Dag: the sources and sinks {ends} are not all among {count} vertices")
    for e in edges:
        if not 0 <= e.start < e.end < count:
            raise InputError(f"Dag: an edge from {e.start} to {e.end} does not lead up among "
                             f"{count} vertices")  # fmt: skip
        J, found = e.operator, (shapes[e.start], shapes[e.end])
        fits = len(J.in_shape) == len(found[0])
        if not (fits and agree(J.in_shape + J.out_shape, found[0] + found[1])):
            raise InputError(f"Dag: {J!r}, from {list(J.in_shape)} to {list(J.out_shape)}, joins "
                             f"tensors of shape {list(found[0])} and {list(found[1])}")  # fmt: skip


def useful(
    edges: tuple[Edge, ...], sources: tuple[int, ...], sinks: tuple[int, ...]
) -> tuple[Edge, ...]:
    """The edges on a path from a source to a sink, ordered by where they end."""
    present = (e for e in edges if not isinstance(e.operator, Zero)
               and not same(e.operator.shape[0] * e.operator.shape[1], 0))  # fmt: skip
    edges = tuple(sorted(present, key=attrgetter("end")))
    reached = set(sources)
    for edge in edges:
        if edge.start in reached:
            reached.add(edge.end)
    needed = set(sinks)
    for edge in reversed(edges):  # edges that start at this one's end come before it
        if edge.end in needed:
            needed.add(edge.start)
    return tuple(e for e in edges if e.start in reached and e.end in needed)


def accumulate(op: Op, terms: list[tuple[Jacobian, Array]]) -> Array:
    """Σ J v. Slabs that tile an axis, as in Concat and Split, are concatenated instead of added."""
    if len(terms) == 1:
        return terms[0][0]._apply(op, terms[0][1])
    tiled = tiling([operator for operator, _ in terms])
    if tiled is not None:
        axis, order = tiled
        return op.Concat(*(embedded_tensor(op, *terms[i]) for i in order), axis=axis)
    return reduce(op.Add, (operator._apply(op, v) for operator, v in terms))


def tiling(operators: list[Jacobian]) -> tuple[int, list[int]] | None:
    """The negative axis and order in which embedded slabs fill a tensor, each entry once."""
    slabs = [slab_of(factors_of(operator)[0]) for operator in operators]
    found = [s for s in slabs if s is not None]
    if len(found) < len(slabs) or len(found) < 2 or len({axis for axis, _, _ in found}) > 1:
        return None
    axis = found[0][0]
    order = sorted(range(len(found)), key=lambda i: at(found[i][1:]))
    edges = [0, *(found[i][2] for i in order)]
    starts = [found[i][1] for i in order]
    full = same((*starts, operators[0].out_shape[axis]), tuple(edges))
    return (axis, order) if full else None


def embedded_tensor(op: Op, operator: Jacobian, v: Array) -> Array:
    """The tensor that an operator embeds: the product with all its factors but the first."""
    for factor in reversed(factors_of(operator)[1:]):
        v = factor._apply(op, v)
    return v


def slab_of(operator: Jacobian) -> tuple[int, int, int] | None:
    """(negative axis, start, stop) where the operator embeds a slab of full width."""
    if not isinstance(operator, Embed):
        return None
    cut = [k for k, (span, n) in enumerate(zip(operator.spans, operator.out_shape, strict=True))
           if not same(span, (0, 1, n))]  # fmt: skip
    if len(cut) != 1 or not same(operator.spans[cut[0]][1], 1):
        return None
    start, _, count = operator.spans[cut[0]]
    return cut[0] - len(operator.spans), start, start + count


Ends = Mapping[int, tuple[Shape, np.dtype]]
"""Slot -> the shape and dtype of its tensor."""


class Joint(Holder, ABC):
    """J = ∂(outputs)/∂(inputs) of a program, with tensors numbered by slots.

    `ins` and `outs` are the shapes and dtypes of its inputs and outputs, by slot.
    """

    def __init__(self, ins: Ends, outs: Ends) -> None:
        self.ins, self.outs = ins, outs

    @property
    def read(self) -> tuple[Array, ...]:
        """The tensors that it reads."""
        return ()

    def at(self, read: tuple[Array, ...]) -> Joint:
        """The same program with other tensors `read`: the same object for the same tensors."""
        return self

    @abstractmethod
    def run(
        self, op: Any, tangents: Mapping[int, Array], wanted: tuple[int, ...]
    ) -> dict[int, Array]:
        """The `wanted` outputs by slot; absent `tangents` are zero, and so are absent outputs.

        `op` is the vocabulary of the tangents, one that this program can be run in. Leading axes
        are right-hand sides, the same for all tangents.
        """

    @abstractmethod
    def transposed(self) -> Joint:
        """The transpose, with inputs and outputs exchanged."""

    @cached_property
    def T(self) -> Joint:
        """The transpose, always the same object."""
        made: Joint = self.__dict__.setdefault("T", self.transposed())
        made.__dict__["T"] = self
        return made

    def __repr__(self) -> str:
        return type(self).__name__.lower()

    def part(self, o: int, i: int) -> Part:
        """The block of the output in slot `o` and the input in slot `i`."""
        return Part(self, o, i)


class Part(Jacobian):
    """The block of the program `joint` between its input in slot `i` and its output in slot `o`."""

    holds = ("joint",)

    def __init__(self, joint: Joint, o: int, i: int) -> None:
        if o not in joint.outs or i not in joint.ins:
            raise InputError(f"Part: {joint!r} has no block of output {o} and input {i}")
        (out_shape, out_dtype), (in_shape, in_dtype) = joint.outs[o], joint.ins[i]
        super().__init__(out_shape, in_shape, common(out_dtype, in_dtype))
        self.joint, self.o, self.i = joint, o, i

    def _apply(self, op: Op, v: Array) -> Array:
        found = self.joint.run(op, {self.i: v}, (self.o,))
        if self.o in found:
            return found[self.o]
        return op.Expand(np.zeros((), dtype_of(v)), (*lead(v, self.in_shape), *self.out_shape))

    def _transpose(self) -> Part:
        return Part(self.joint.T, self.i, self.o)

    @cached_property
    def matrix(self) -> np.ndarray:
        """The dense matrix."""
        return self.toarray()

    def __repr__(self) -> str:
        return f"{self.joint!r}[{self.o}, {self.i}]"


class Block(Jacobian):
    """A grid of operators between concatenated tensors; an absent block (None) is zero.

    `rows` are the rows of the grid. Rows and columns of J are flat: y = concat(yᵢ), x = concat(xⱼ),
    yᵢ = Σⱼ J[i][j] xⱼ. All blocks of a row have the same out_shape, and all blocks of a column the
    same in_shape.
    """

    holds = ("rows",)

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = tuple(map(tuple, rows))
        check_grid(self.rows)
        super().__init__(self.dag.out_shape, self.dag.in_shape, self.dag.dtype)

    @cached_property
    def dag(self) -> Dag:
        """The grid as a DAG; raises `InputError` where a block does not fit its row and column."""
        heights = [first_of(row).out_shape for row in self.rows]
        widths = [first_of(column).in_shape for column in zip(*self.rows, strict=True)]
        edges = [Edge(j, len(widths) + i, block) for i, row in enumerate(self.rows)
                 for j, block in enumerate(row) if block is not None]  # fmt: skip
        for j, i, block in ((e.start, e.end - len(widths), e.operator) for e in edges):
            if (block.out_shape, block.in_shape) != (heights[i], widths[j]):
                raise InputError(
                    f"Block: at {i, j} is {block!r}, from {list(block.in_shape)} to "
                    f"{list(block.out_shape)}, where the column takes {list(widths[j])} and "
                    f"the row gives {list(heights[i])}"
                )
        dtype = common(*(e.operator.dtype for e in edges))
        sources, sinks = range(len(widths)), range(len(widths), len(widths) + len(heights))
        return Dag((*widths, *heights), edges, tuple(sources), tuple(sinks), dtype)

    def _apply(self, op: Op, v: Array) -> Array:
        return self.dag._apply(op, v)

    def _transpose(self) -> Jacobian:
        columns = zip(*self.rows, strict=True)
        return Block([[block and block.T for block in column] for column in columns])

    @property
    def flops(self) -> int:
        return self.dag.flops

    def __repr__(self) -> str:
        width = LINE_LETTERS // min(len(self.rows), 3)

        def text(row: Row) -> str:
            return f"[{joined(['0' if b is None else b for b in row], ', ', str, width)}]"

        return f"[{joined(self.rows, ', ', text)}]"


def check_grid(rows: Sequence[Row]) -> None:
    """Raises `InputError` where rows differ in length, or a row or column has no operator."""
    if not rows or len(set(map(len, rows))) != 1:
        raise InputError(f"Block: rows of {', '.join(str(len(r)) for r in rows) or 'no'} operators")
    for name, lines in (("row", rows), ("column", zip(*rows, strict=True))):
        for k, line in enumerate(lines):
            if all(block is None for block in line):
                raise InputError(f"Block: {name} {k} has no operator that says how long it is: "
                                 "give a Zero")  # fmt: skip


def first_of(operators: Iterable[Jacobian | None]) -> Jacobian:
    """The first block that is present in a row or column, and so determines its size."""
    return next(b for b in operators if b is not None)


def stack(operators: list[Jacobian]) -> Jacobian:
    """The `operators`, of the same input, stacked vertically."""
    return Block([[operator] for operator in operators])


# -- chosen: entries that an operator does not select have no part in J ----------------------------

SAME = Identity | Scalar | Cast
SELECTS, PLACES = Slice | Take, Embed | Scatter
MIXES = Contraction | Kron | BlockDiagonal | Convolution | Fourier
MOVES = Reshape | Permutation | Broadcast | SumTo | Cumulative | SELECTS | PLACES | MIXES

FINITE: WeakKeyDictionary[Jacobian, bool] = WeakKeyDictionary()
"""operator -> whether its arrays are finite, found once: constants serve all points."""

Chosen = Array | None
"""A boolean mask, which broadcasts, of the entries of a tensor that count, or None for all."""


def chosen(op: Op, dag: Dag) -> Dag:
    """The DAG with zero derivatives for entries that reach no output, or that no input reaches.

    Where(c, √x, 0) ignores √x where c is false, as Slice(√x) does outside the slice, and so must J:
    0 · ∞ would be NaN. A selection drops what it does not take, and a diagonal that `chooses` drops
    the entries where it is 0. Dropped entries are followed towards inputs and outputs, along axes
    that operators keep apart, and their derivatives there are set to 0 in J itself, so that
    products, plans, compiled programs and recorded graphs agree. An exact 0 that results from
    arithmetic, as exp(x) = 0, drops nothing: 0 · ∞ is NaN there.

    For arrays, operators of finite numbers are unchanged. The numbers in a graph are unknown:
    there, every diagonal, and what matrices and kernels hold, is masked, unless it is made of
    constants and truth values alone. `op` is the vocabulary of the arrays in `dag`.
    """
    if not has_choices(dag) or not any(map(may_be_infinite, numbers_in(dag))):
        return dag
    edges = followed(op, dag.edges[::-1], dag.sinks, forward=False)
    edges = followed(op, edges[::-1], dag.sources, forward=True)
    return Dag(dag.shapes, edges, dag.sources, dag.sinks, dag.dtype)


def has_choices(operator: Jacobian) -> bool:
    """Whether some part of an operator drops entries of its input, or of its output."""
    return any(isinstance(part, SELECTS | PLACES) or getattr(part, "chooses", False)
               for part in parts_in(operator))  # fmt: skip


def followed(op: Op, edges: Sequence[Edge], ends: tuple[int, ...], *, forward: bool) -> list[Edge]:
    """Edges in order, with zero derivatives for entries that no path joins to an end."""
    counting: dict[int, list[Chosen]] = {end: [None] for end in ends}
    made = []
    for edge in edges:
        near, far = (edge.start, edge.end) if forward else (edge.end, edge.start)
        operator = edge.operator.T if forward else edge.operator
        found, beyond = follow(op, operator, either(op, counting[near]))
        counting.setdefault(far, []).append(beyond)
        same = found is operator
        made.append(edge if same else replace(edge, operator=found.T if forward else found))
    return made


def numbers_in(operator: Jacobian) -> Iterator[Jacobian]:
    """The parts of an operator whose arrays multiply entries of x: see `mask_operator`."""
    return (part for part in parts_in(operator) if isinstance(part, Diagonal | MIXES))


def parts_in(operator: Jacobian) -> Iterator[Jacobian]:
    """The factors and terms of an operator, or of all edges, that are not products or sums."""
    if not isinstance(operator, Product | Sum | Dag):
        yield operator
        return
    for part in operator.contents():
        yield from parts_in(part)


def may_be_infinite(J: Jacobian) -> bool:
    """Whether some entry of its arrays is not finite, or in a graph, may be so."""
    if J not in FINITE:
        FINITE[J] = all(is_surely_finite(a) if is_recorded(a) else library_of(a).is_finite(a)
                        for a in J.arrays())  # fmt: skip
    return not FINITE[J]


def is_surely_finite(value: Array) -> bool:
    """Whether a graph value is made of finite constants and truth values, without a quotient."""
    waiting, seen = [value], set[int]()
    while waiting:
        x = waiting.pop()
        if x is None or id(x) in seen:
            continue
        seen.add(id(x))
        if x.const_value is not None:
            if not np.isfinite(x.const_value.numpy()).all():
                return False
        elif dtype_of(x).kind not in "biu":
            node = x.producer()
            if node is None or node.op_type == "Div":  # 0 / 0 among truth values
                return False
            waiting += node.inputs
    return True


def follow(op: Op, operator: Jacobian, mine: Chosen) -> tuple[Jacobian, Chosen]:
    """The operator, masked to the entries of y that count, and the entries of x that then count."""
    if isinstance(operator, SAME):
        return operator, mine
    if isinstance(operator, Diagonal):
        before = chosen_entries(op, operator, mine) if operator.chooses else mine
        return operator if mine is None else mask_operator(op, operator, mine), before
    if isinstance(operator, MOVES):
        drops = mine is not None or isinstance(operator, SELECTS)
        before = pull_mask(op, operator, mine) if drops else None
        return operator if mine is None else mask_operator(op, operator, mine), before
    if isinstance(operator, Product):
        factors = []
        for factor in operator.factors:
            factor, mine = follow(op, factor, mine)
            factors.append(factor)
        changed = any(map(is_not, factors, operator.factors))
        return Product(tuple(factors)) if changed else operator, mine
    if isinstance(operator, Sum):
        pairs = [follow(op, term, mine) for term in operator.terms]
        terms = [term for term, _ in pairs]
        changed = any(map(is_not, terms, operator.terms))
        return Sum(tuple(terms)) if changed else operator, either(op, [c for _, c in pairs])
    return operator, None


def mask_operator(op: Op, J: Jacobian, mine: Array) -> Jacobian:
    """The operator with 0 at entries of its arrays that count for no y, if some may be infinite."""
    if not may_be_infinite(J):
        return J
    ends = count(2)

    def only(part: Any) -> Any:
        if isinstance(part, tuple):
            return tuple(map(only, part))
        if not hasattr(part, "shape"):  # a symbolic identity, or the labels of axes
            return part
        counts = (
            mine if isinstance(J, Diagonal) else either(op, [pull_mask(op, J, mine, next(ends))])
        )
        return part if counts is None else op.Where(counts, part, op.CastLike(0.0, part))

    return J._holding(**{name: only(getattr(J, name)) for name in J.holds})


def chosen_entries(op: Op, d: Diagonal, mine: Chosen) -> Array:
    """The entries of x that count for a diagonal that chooses."""
    own = at_hand(op, d.d)
    found = own.Not(own.Equal(d.d, own.CastLike(0.0, d.d)))
    return found if mine is None else at_hand(op, found, mine).And(mine, found)


def pull_mask(op: Op, J: Jacobian, mine: Chosen, end: int = 1) -> Array:
    """The entries of x (`end` 1), or of an array that J holds (2, 3, …), that count for y = J x."""
    mine, mixes = np.ones((), bool) if mine is None else mine, isinstance(J, MIXES)
    if not is_symbolic((J.out_shape, J.in_shape)):
        op = at_hand(op, mine, *(() if mixes else J.arrays()))
    none = np.zeros((), SINGLE)
    ones = op.CastLike(op.Expand(mine, J.out_shape), none)
    return op.Greater(met(op, J, ones, end) if mixes else J.T._apply(op, ones), none)


def met(op: Op, J: Jacobian, y: Array, end: int) -> Array:
    """The sum of y over the axes that J mixes, of length 1 along the other array's mixed axes."""
    if isinstance(J, Convolution) and (name := (J.source, J.third)[end - 1]) != "w" != J.target:
        return J.met(op, y, name)
    out, term = (terms := axes_of(J))[0], terms[end]
    shape = (J.in_shape, *map(shape_of, J.arrays()))[end - 1]
    small = tuple(n if axis in out else 1 for axis, n in zip(term, shape, strict=True))
    kept = "".join(a for a, n in zip(term, small, strict=True) if a in out and not same(n, 1))
    return op.Reshape(op.Einsum(y, equation=f"{out}->{kept}"), small)


def axes_of(J: Jacobian) -> tuple[str, ...]:
    """A letter for each axis of y, x and J's arrays: entries meet at one place of shared axes."""
    if isinstance(J, Convolution):
        rank, c = len(J.out_shape), "k" if same(J.geometry.group, 1) else "c"
        terms = {"x": f"n{c}ABCDEFGH", "w": "mkIJKLMNOP", "u": "nmQRSTUVWX"}
        return tuple(terms[end][:rank] for end in (J.target, J.source, J.third))
    if isinstance(J, Fourier):
        return (own := ascii_letters[: len(J.in_shape)]), own[:-1].replace(own[J.axis], "Y") + "Z"
    return (C := as_contraction(J)).out_term, C.in_term, *(term for _, term in C.factors)


def at_hand(op: Op, *arrays: Array) -> Op:
    """The vocabulary of NumPy where all arrays are of NumPy, so that a graph gets constants."""
    return reading_of(*arrays) if all(isinstance(a, np.ndarray) for a in arrays) else op


def either(op: Op, several: Iterable[Chosen]) -> Chosen:
    """The entries that count for at least one of several users."""
    found = {id(mine): mine for mine in several}
    if id(None) in found:
        return None
    mine = reduce(lambda a, b: at_hand(op, a, b).Or(a, b), found.values())
    return None if isinstance(mine, np.ndarray) and mine.all() else mine


def between_types(J: Jacobian, x: Array, y: Array) -> Jacobian:
    """The block `J` = ∂y/∂x with casts from and to the dtypes of x and y, where these differ."""
    source, target, own = dtype_of(x), dtype_of(y), J.dtype
    if source == target:
        return J
    J = J if source == own else J @ Cast(J.in_shape, source, own)
    return J if target == own else Cast(J.out_shape, own, target) @ J
