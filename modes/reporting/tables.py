"""Table: rows under a head, for a terminal; `html` shows the same in a notebook."""

from __future__ import annotations

from dataclasses import dataclass

Cells = tuple[str, ...]


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
        lines = (self.head, *self.rows)
        widths = [max(len(cells[k]) for cells in lines) for k in range(len(self.head))]
        text = (self._line(cells, widths) for cells in lines)
        title = [f"{self.title}:"] if self.title else []
        return "\n".join([*title, *text, *filter(None, [self.note])])

    def _line(self, cells: Cells, widths: list[int]) -> str:
        """One row, each cell as wide as its column."""
        columns = zip(self.head, cells, widths, strict=True)
        padded = (c.rjust(w) if name in self.right else c.ljust(w) for name, c, w in columns)
        return "  ".join(padded).rstrip()
