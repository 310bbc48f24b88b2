"""Table: the report as text, for the terminal and for Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .contenders.contender import ALL
from .report import Outcome, Row, pays, rows

COMPARED = ("work", "product", "ours", "ms", "best peer", "ms", "ratio", "target", "met",
            "limit ms", "share", "enough", "error")  # fmt: skip
EACH = ("work", "product", "contender", "ms", "set-up s", "pays after", "peak MB", "error",
        "why not")  # fmt: skip

Cells = tuple[str, ...]


def compared(outcomes: Iterable[Outcome]) -> list[Cells]:
    """One row for each of our contenders: the best peer, the target, the machine's limit."""
    return [cells(row) for outcome in outcomes for row in rows(outcome)]


def cells(row: Row) -> Cells:
    """A row as text."""
    outcome, peer = row.outcome, row.peer
    return (
        outcome.workload, outcome.product, row.ours.contender, ms(row.ours.median),
        peer.contender if peer else "", ms(peer.median if peer else None), number(row.ratio),
        number(row.target and row.target.bound), verdict(row.met), ms(outcome.limit),
        "" if row.share is None else f"{row.share:.0%}", verdict(row.near),
        error(outcome.error(row.ours)),
    )  # fmt: skip


def each(outcomes: Iterable[Outcome]) -> list[Cells]:
    """Every contender; for absent ones, the reason."""
    return [
        (o.workload, o.product, m.contender, ms(m.median if m.seconds else None),
         number(m.setup if m.seconds else None), number(pays(o, m) if m in o.ours else None),
         str(m.memory >> 20) if m.memory else "", error(o.error(m)),
         m.absent or ("" if o.right(m) else "wrong"))
        for o in outcomes
        for m in o.found
        if m.absent not in UNSAID
    ]  # fmt: skip


UNSAID = ("Absent: not for this workload", *(f"Absent: no {kind}" for kind in ALL))
"""Reasons that are not shown."""


def ms(seconds: float | None) -> str:
    """Milliseconds, three digits."""
    return "" if seconds is None else number(1e3 * seconds)


def number(x: float | None) -> str:
    """Three digits.

    >>> number(0.04321), number(123.4), number(None)
    ('0.0432', '123', '')
    """
    return "" if x is None else f"{x:.3g}"


def error(x: float | None) -> str:
    """A power of ten."""
    return "" if x is None else f"{x:.0e}"


def verdict(met: bool | None) -> str:
    """Yes, no or nothing."""
    return {None: "", True: "met", False: "not met"}[met]


def markdown(head: Sequence[str], body: Iterable[Cells]) -> str:
    """A table in Markdown.

    >>> print(markdown(("a", "b"), [("1", "2")]))
    | a | b |
    |---|---|
    | 1 | 2 |
    """
    lines = [f"| {' | '.join(line)} |" for line in (head, *body)]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]])


def show(title: str, head: Sequence[str], body: Sequence[Cells]) -> None:
    """The table in the terminal, in colour where rich is installed."""
    try:
        from rich.console import Console
        from rich.table import Table
    except ImportError:
        print(f"{title}\n{markdown(head, body)}")
        return
    table = Table(*head, title=title)
    for line in body:
        colour = {"met": "green", "not met": "red"}.get(line[8] if len(line) > 8 else "")
        table.add_row(*line, style=colour)
    Console(width=max(160, Console().width)).print(table)
