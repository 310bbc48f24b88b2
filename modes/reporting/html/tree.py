"""Tree: an operator and what it is composed of, as tables within folds."""

from __future__ import annotations

from collections.abc import Sequence

from ....jacobians import prod_text
from ....jacobians.text import clipped
from ...elimination.cost import seconds
from ..tables import FIRST, LAST, Table
from ..units import bytes_text
from .elements import CELL, Markup, fold, grid, tag
from .parts import Part, flops_text, parts_of

ROOM = 200
"""Rows of a whole tree, at most."""

DEPTH = 6
"""Folds within folds, at most."""

NOTE = "share: of the estimated time of one product; nothing was measured"


def tree(parts: Sequence[Part], room: int = ROOM, depth: int = DEPTH, note: str = NOTE) -> Markup:
    """A table of operators, each with a fold of its own parts.

    A share is that of the time which the cost model of elimination estimates. The rows that are
    left after those of this table are shared out among the folds.
    """
    total = sum(seconds(part.operator) for part in parts)
    first, last = least(FIRST, room * 3 // 4), least(LAST, room // 4)
    shown = min(len(parts), first + last)
    left = (room - shown) // max(shown, 1) if depth else 0
    named = any(part.origin for part in parts)
    hidden = range(first, len(parts) - last) if len(parts) > first + last + 1 else range(0)
    rows = [row(p, total, left, depth, named) for k, p in enumerate(parts) if k not in hidden]
    if hidden:
        rest = sum(seconds(parts[k].operator) for k in hidden)
        rows.insert(first, (f"… {len(hidden):,} more, {share(rest, total)} of the time",))
    head = ("operator", *["from"] * named, "shape", "flops", "bytes", "share")
    return grid(Table("", head, tuple(rows), ("flops", "bytes", "share"), note))


def least(n: int, room: int) -> int:
    """At least one row."""
    return max(min(n, room), 1)


def row(part: Part, total: float, room: int, depth: int, named: bool) -> tuple[str, ...]:
    """One operator: its mathematics, unfolding to its parts, and its amounts."""
    J = part.operator
    text, inner = clipped(repr(J), CELL), parts_of(J) if room > 1 and depth > 1 else ()
    cell = fold(text, indented(tree(inner, room, depth - 1, ""))) if inner else text
    shape = f"{prod_text(J.out_shape)} ← {prod_text(J.in_shape)}"
    return (cell, *[part.origin] * named, shape, flops_text(J), bytes_text(J.nbytes),
            share(seconds(J), total))  # fmt: skip


def indented(inner: Markup) -> Markup:
    """The parts of an operator, a step to the right of it."""
    return tag("div", inner, style="margin-left:.4em;padding-left:.8em;border-left:1px solid")


def share(part: float, total: float) -> str:
    """A part of the whole in percent.

    >>> share(1, 3), share(0, 0)
    ('33 %', '–')
    """
    return f"{100 * part / total:.0f} %" if total else "–"
