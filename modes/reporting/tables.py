"""Table: rows under a head, for a terminal; `html` shows the same in a notebook.

Of many rows the first and the last are shown, in text as in HTML.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Cells = tuple[str, ...]

FIRST, LAST = 30, 10
"""Rows of a long table that are shown, from its beginning and from its end."""

LINES = 20
"""Lines beside the tables that are shown."""


@dataclass(frozen=True)
class Table:
    """Rows of text; the columns named in `right` hold amounts, and a `note` says what they mean.

    >>> print(Table("", ("op", "flops"), (("Conv", "18,432"), ("Relu", "64")), right=("flops",)))
    op     flops
    Conv  18,432
    Relu      64
    """

    title: str
    head: Cells
    rows: tuple[Cells, ...]
    right: Cells = ()
    note: str = ""

    def __str__(self) -> str:
        lines = (self.head, *abridged(self.rows))
        whole = (cells for cells in lines if len(cells) == len(self.head))
        widths = [max(map(len, column)) for column in zip(*whole, strict=True)]
        text = (self._line(cells, widths) for cells in lines)
        title = [f"{self.title}:"] if self.title else []
        return "\n".join([*title, *text, *filter(None, [self.note])])

    def _line(self, cells: Sequence[str], widths: list[int]) -> str:
        """One row, each cell as wide as its column."""
        columns = zip(self.head, cells, widths, strict=False)  # what is left out has one cell
        padded = (c.rjust(w) if name in self.right else c.ljust(w) for name, c, w in columns)
        return "  ".join(padded).rstrip()


def abridged(
    rows: Sequence[Sequence[Any]], first: int = FIRST, last: int = LAST
) -> list[Sequence[Any]]:
    """The rows, those in the middle of many replaced by their number.

    >>> abridged([("a",), ("b",), ("c",), ("d",)], 1, 1)
    [('a',), ('… 2 more',), ('d',)]
    """
    hidden = len(rows) - first - last
    if hidden <= 1:
        return list(rows)
    return [*rows[:first], (f"… {hidden:,} more",), *rows[len(rows) - last :]]


def abridged_lines(lines: Sequence[str], most: int = LINES) -> list[str]:
    """The first lines, and how many more there are.

    >>> abridged_lines(["a", "b", "c"], 2)
    ['a', 'b', '… 1 more']
    """
    more = len(lines) - most
    return [*lines[:most], *([f"… {more:,} more"] if more > 0 else [])]
