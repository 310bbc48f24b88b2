"""Block and stack: grids of operators between concatenated tensors."""

from __future__ import annotations

from collections.abc import Iterable

from .arrays import Array, Op, common
from .base import Jacobian
from .dag import Dag, Edge
from .errors import InputError
from .text import WIDTH, joined


class Block(Jacobian):
    """A grid of operators between concatenated tensors; an absent block (None) is zero.

    Rows and columns are flat: y = concat(yᵢ), x = concat(xⱼ), yᵢ = Σⱼ J[i][j] xⱼ. The operators of
    a row have one out_shape, and blocks in a column one in_shape.
    """

    holds = ("dag",)

    def __init__(self, rows: list[list[Jacobian | None]]) -> None:
        self.rows = [list(row) for row in rows]
        check_grid(self.rows)
        heights = [first_of(row).out_shape for row in self.rows]
        widths = [first_of(column).in_shape for column in zip(*self.rows, strict=True)]
        for i, row in enumerate(self.rows):
            for j, block in enumerate(row):
                if block and (block.out_shape, block.in_shape) != (heights[i], widths[j]):
                    raise InputError(
                        f"Block: at {i, j} is {block!r}, from {list(block.in_shape)} to "
                        f"{list(block.out_shape)}, where the column takes {list(widths[j])} and "
                        f"the row gives {list(heights[i])}"
                    )
        edges = [
            Edge(j, len(widths) + i, operator)
            for i, row in enumerate(self.rows)
            for j, operator in enumerate(row)
            if operator is not None
        ]
        dtype = common(*(e.operator.dtype for e in edges))
        sources, sinks = range(len(widths)), range(len(widths), len(widths) + len(heights))
        self.dag = Dag((*widths, *heights), edges, tuple(sources), tuple(sinks), dtype)
        super().__init__(self.dag.out_shape, self.dag.in_shape, dtype)

    def _apply(self, op: Op, v: Array) -> Array:
        return self.dag._apply(op, v)

    def _transpose(self) -> Jacobian:
        return Block(
            [[b if b is None else b.T for b in column] for column in zip(*self.rows, strict=True)]
        )

    def __repr__(self) -> str:
        width = WIDTH // min(len(self.rows), 3)
        return f"[{joined(self.rows, ', ', lambda row: row_text(row, width))}]"


def check_grid(rows: list[list[Jacobian | None]]) -> None:
    """Raises `InputError` where rows differ in length, or a row or column has no operator."""
    if not rows or len(set(map(len, rows))) != 1:
        raise InputError(f"Block: rows of {', '.join(str(len(r)) for r in rows) or 'no'} operators")
    for name, lines in (("row", rows), ("column", zip(*rows, strict=True))):
        for k, line in enumerate(lines):
            if all(block is None for block in line):
                raise InputError(f"Block: {name} {k} has no operator that says how long it is: "
                                 "give a Zero")  # fmt: skip


def row_text(row: list[Jacobian | None], width: int) -> str:
    """One row of a grid."""
    return f"[{joined(row, ', ', lambda b: '0' if b is None else str(b), width)}]"


def first_of(operators: Iterable[Jacobian | None]) -> Jacobian:
    """The first block of a row or column that is there: it knows the shape of them all."""
    return next(b for b in operators if b is not None)


def stack(operators: list[Jacobian]) -> Jacobian:
    """Operators of the same input, one below the other."""
    return Block([[operator] for operator in operators])
