"""Page: a proof as sections of text, tables and blocks, in Markdown and as HTML."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from textwrap import wrap

import numpy as np

from ...jacobians.text import Table
from ..model.markup import Markup, fold, grid, pre, tag

WIDTH = 110
"""The longest line of a block or a paragraph, in characters; a screen has 120."""


@dataclass(frozen=True)
class Monospace:
    """Monospace in a monospace font: formulas, numbers, or code of a `language`."""

    lines: tuple[str, ...]
    language: str = ""


Part = str | Table | Monospace


@dataclass(frozen=True)
class Section:
    """A title and what is below it."""

    title: str
    parts: tuple[Part, ...]

    def markdown(self) -> str:
        said = (part_markdown(part) for part in self.parts)
        return "\n\n".join(filter(None, [f"## {self.title}" if self.title else "", *said]))

    def html(self, unfolded: bool) -> Markup:
        parts = [part_html(part) for part in self.parts]
        return fold(self.title, *parts, unfolded=unfolded) if self.title else tag("div", *parts)


def part_markdown(part: Part) -> str:
    if isinstance(part, Monospace):
        return "\n".join([f"```{part.language}", *part.lines, "```"])
    if isinstance(part, str):
        return "\n".join(wrap(part, WIDTH, break_long_words=False, break_on_hyphens=False))
    rows = (" | ".join(cell.replace("|", "∣") for cell in row) for row in part.rows)
    head = [f"| {' | '.join(part.head)} |", f"|{'---|' * len(part.head)}"]
    return "\n".join([*head, *(f"| {row} |" for row in rows)])


def part_html(part: Part) -> Markup:
    if isinstance(part, Monospace):
        return pre("\n".join(part.lines))
    return tag("div", part.replace("**", "")) if isinstance(part, str) else grid(part)


def wrapped_lines(text: str, indent: str = "    ") -> tuple[str, ...]:
    """A long line over several lines, broken at spaces.

    >>> len(wrapped_lines("a + " * 60))
    3
    """
    return tuple(wrap(text, WIDTH, subsequent_indent=indent, break_long_words=False,
                      break_on_hyphens=False)) or ("",)  # fmt: skip


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """A matrix in square brackets, its columns aligned.

    >>> list(aligned([["1", "0"], ["-1", "10"]]))
    ['[ 1   0]', '[-1  10]']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield f"[{'  '.join(cell.rjust(n) for cell, n in zip(row, widths, strict=True))}]"


def number_text(x: float) -> str:
    """A number with six digits; whole numbers without a point.

    >>> number_text(2.0), number_text(-0.0), number_text(1 / 3)
    ('2', '0', '0.333333')
    """
    return str(round(x) + 0) if abs(x) < 1e6 and x == round(x) else f"{x:.6g}"


def array_text(array: object) -> str:
    """A tensor as nested brackets.

    >>> import numpy as np
    >>> array_text(np.array([[1.0, 0.5]]))
    '[[1, 0.5]]'
    """
    x = np.asarray(array)
    if x.ndim == 0:
        return number_text(float(x)) if x.dtype.kind in "fiu" else str(x.item())
    return f"[{', '.join(array_text(part) for part in x)}]"
