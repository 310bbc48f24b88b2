"""Markup: text, tables and folds as HTML; all text is escaped here."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from ...jacobians.text import Table, abridged, bytes_text, clipped
from .save import Target, save_text

CELL = 100
"""At most this many characters are in a cell."""

CELL_LETTERS = 44
"""Up to this many characters of a cell stay on one line."""

OPEN = 12
"""A fold with up to this many rows is initially open."""

CARD = "color:inherit;background:transparent;line-height:1.4;max-width:100%"
FAINT = "opacity:.7"
GRID = (
    "border-collapse:collapse;margin:.3em 0 .6em;font-size:inherit;color:inherit;"
    "background:transparent"
)
SCROLL = "overflow-x:auto;scrollbar-width:thin;scrollbar-color:currentColor transparent"
HEAD = "border-bottom:1px solid currentColor;font-weight:600;padding:.1em .8em .1em 0;"
BODY = "padding:.1em .8em .1em 0;vertical-align:top;"
LEFT, RIGHT = "text-align:left", "text-align:right;white-space:nowrap"


HEIGHT = 640
"""Pixels of a page within a notebook."""


class Page:
    """An HTML page: `html` is its text, `save` writes it to a file; notebooks show it."""

    def __init__(self, html: str) -> None:
        self.html = html

    def __repr__(self) -> str:
        size = bytes_text(len(self.html.encode()))
        return f"Page of {size}: a notebook shows it, save('graph.html') writes it"

    def save(self, path: Target) -> None:
        """Write the page to `path`; it needs no other file and no server."""
        save_text(self.html, path)

    def _repr_html_(self) -> str:
        """The page in a frame of its own, which cannot reach the notebook."""
        style = f"width:100%;height:{HEIGHT}px;border:0"
        return str(tag("iframe", sandbox="allow-scripts", srcdoc=self.html, style=style))


class Markup(str):
    """Text that is HTML already and is not escaped."""


def escaped(value: object) -> str:
    """A value as HTML text; markup stays as it is.

    >>> escaped("<script>"), escaped(tag("b", "a < b"))
    ('&lt;script&gt;', '<b>a &lt; b</b>')
    """
    return value if isinstance(value, Markup) else escape(str(value))


def tag(name: str, *content: object, style: str = "", **attributes: object) -> Markup:
    """An element; an attribute that is True is written without a value."""
    said = {"style": style or False, **attributes}
    held = "".join(
        f" {key}" if value is True else f' {key}="{escape(str(value))}"'
        for key, value in said.items() if value is not False
    )  # fmt: skip
    return Markup(f"<{name}{held}>{''.join(map(escaped, content))}</{name}>")


def card(title: str, about: str, *parts: Markup) -> str:
    """A card in a notebook: a title, a line about it, and parts."""
    head = tag("div", tag("b", clipped(title, 2 * CELL)))
    line = [tag("div", about, style=FAINT)] if about else []
    return str(tag("div", head, *line, *parts, style=CARD))


def fold(summary: str, *content: object, unfolded: bool = False) -> Markup:
    """Content that opens at a click on its summary."""
    return tag("details", tag("summary", summary, style="cursor:pointer"), *content, open=unfolded)


def pre(value: str) -> Markup:
    """Preformatted text, in a monospace font even where a page shows `pre` in another font."""
    look = "color:inherit;background:transparent;white-space:pre;font-family:monospace"
    return tag("pre", value, style=f"margin:.2em 0 .6em;{look}")


def fold_table(table: Table) -> Markup:
    """A table that folds, with its title as the summary."""
    count = f"{len(table.rows):,} row{'s' * (len(table.rows) != 1)}"
    summary = f"{table.title or 'blocks'} ({count})"
    return fold(summary, grid(table), unfolded=len(table.rows) <= OPEN)


def grid(table: Table) -> Markup:
    """A table; of a long table, only the beginning and the end."""
    sides = [RIGHT if name in table.right else LEFT for name in table.head]
    head = tag("tr", *(tag("th", c, style=HEAD + s)
                       for c, s in zip(table.head, sides, strict=True)))  # fmt: skip
    note = [tag("div", tag("small", table.note), style=FAINT)] if table.note else []
    rows = (table_row(cells, table.head, sides) for cells in abridged(table.rows))
    body = tag("table", tag("thead", head), tag("tbody", *rows), style=GRID)
    return Markup("".join((tag("div", body, style=SCROLL), *note)))


def table_row(cells: Sequence[object], heads: Sequence[str], sides: Sequence[str]) -> Markup:
    """A row; where it has fewer cells than columns, the last cell spans the rest."""
    rest = len(sides) - len(cells)
    spans = [*[False] * (len(cells) - 1), rest + 1 if rest else False]
    columns = zip(cells, heads, sides, spans, strict=False)
    return tag("tr", *(cell(*column) for column in columns))


def cell(content: object, head: str, side: str, span: object) -> Markup:
    """A cell, with the head of its column for narrow pages; short text is not broken into lines."""
    if not isinstance(content, Markup):
        content = clipped(str(content), CELL)
        side += ";white-space:nowrap" * (side == LEFT and len(content) <= CELL_LETTERS)
    named = {"data-head": False if span else head or False}
    return tag("td", content, style=BODY + side, colspan=span, **named)
