"""Text: operators, lists, amounts and tables in readable form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

LINE_LETTERS = 200
"""The approximate length of a line, in characters."""

FIRST, LAST = 30, 10
"""A long table shows this many rows from its beginning and from its end."""

LINES = 20
"""At most this many lines are shown beside tables."""

Cells = tuple[str, ...]


def joined(
    parts: Sequence[Any], sign: str, text: Callable[[Any], str] = str, width: int = LINE_LETTERS
) -> str:
    """Parts joined by a sign; if there are too many, the first, how many more there are, the last.

    Only the parts that are shown are converted to text.

    >>> joined(range(5), " + ")
    '0 + 1 + 2 + 3 + 4'
    >>> joined(range(5000), " + ", width=40)
    '0 + 1 + 2 + … 4,996 more … + 4999'
    """
    words: list[str] = []
    for part in parts:
        words.append(text(part))
        if not fits_line(words, sign, width):
            break
    if len(words) == len(parts) and fits_line(words, sign, width):
        return sign.join(words)
    half = max(width // 2 - 10, 1)
    words = [clipped(word, half) for word in words]
    while len(words) > 1 and not (len(words) < len(parts) and fits_line(words, sign, half)):
        words.pop()
    more = len(parts) - len(words) - 1
    last = [clipped(text(parts[-1]), half)] if len(parts) > 1 else []
    return sign.join([*words, *([f"… {more:,} more …"] if more > 0 else []), *last])


def fits_line(words: list[str], sign: str, width: int) -> bool:
    """Whether words joined by a sign fit on a line."""
    return sum(map(len, words)) + len(sign) * (len(words) - 1) <= width


def clipped(text: str, width: int = LINE_LETTERS) -> str:
    """The text, truncated where it is too long.

    >>> clipped("diag(512) · conv", 11)
    'diag(512)…'
    """
    return text if len(text) <= width else f"{text[: width - 1].rstrip()}…"


def bytes_text(n: float) -> str:
    """Bytes with a unit.

    >>> bytes_text(640), bytes_text(165 * 2**10), bytes_text(3.5 * 2**40)
    ('640 B', '165.0 KiB', '3.5 TiB')
    """
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if n < 1024 or unit == "TiB":
            return f"{n:.0f} B" if unit == "B" else f"{n:,.1f} {unit}"
        n /= 1024
    raise AssertionError


def time_text(seconds: float) -> str:
    """Seconds with a unit.

    >>> time_text(0.0000421), time_text(0.0123), time_text(3)
    ('42.1 µs', '12.3 ms', '3 s')
    """
    for factor, unit in ((1, "s"), (1e3, "ms")):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"


@dataclass(frozen=True)
class Table:
    """Rows of text; the columns named in `right` are right-aligned, and a `note` follows them.

    A long table shows its first and last rows only, in text and in HTML.

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
        columns = zip(self.head, cells, widths, strict=False)  # "… 3 more" is a row of one cell
        padded = (c.rjust(w) if name in self.right else c.ljust(w) for name, c, w in columns)
        return "  ".join(padded).rstrip()


def abridged(
    rows: Sequence[Sequence[Any]], first: int = FIRST, last: int = LAST
) -> list[Sequence[Any]]:
    """The rows, with many in the middle replaced by their number.

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
