"""The two pages: the counts and one line for each kind of error, and every row behind them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from .rows import WRONG, Row
from .ways import LIBRARIES, ORDER, OWN

TELLING = 1e-3
"""Above this an exact number shows more than noise."""

UPSTREAM = Path(__file__).parents[2] / "docs" / "results" / "upstream"


def grouped(rows: Iterable[Row], key: Any) -> dict[Any, list[Row]]:
    """Rows by a key, in the order of their first."""
    held: dict[Any, list[Row]] = {}
    for row in rows:
        held.setdefault(key(row), []).append(row)
    return held


def table(head: str, align: str, rows: Iterable[Sequence[object]]) -> list[str]:
    """A table of Markdown; `align` has l or r for each column."""
    marks = {"l": "---", "r": "--:"}
    lines = [f"| {head} |", "|" + "|".join(marks[a] for a in align) + "|"]
    return lines + [f"| {' | '.join(map(str, row))} |" for row in rows]


def spans(values: Iterable[int]) -> str:
    """`1, 3-4`: whole numbers, neighbours as spans."""
    said = []
    for _, run in groupby(enumerate(sorted(set(values))), lambda pair: pair[1] - pair[0]):
        first, *_, last = (*(value for _, value in run),) * 2
        said.append(f"{first}" if first == last else f"{first}-{last}")
    return ", ".join(said)


def most(names: Sequence[str], count: int = 4) -> str:
    """The first names of a list, and how many more there are."""
    rest = len(names) - count
    return "; ".join(names[:count]) + (f" and {rest} more" if rest > 0 else "")


def unique(values: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(values))


def reports() -> dict[tuple[str, str], str]:
    """(library, operator) -> the report for upstream, by two lines of a page: `- Library: …` and
    `- Operators: …`.
    """
    held = {}
    for path in sorted(UPSTREAM.glob("*.md")):
        said = dict(line[2:].split(": ", 1)
                    for line in path.read_text(encoding="utf-8").splitlines()
                    if line.startswith(("- Library: ", "- Operators: ")))  # fmt: skip
        if said:
            operators = said["Operators"].split(", ")
            held |= {(said["Library"], name): f"upstream/{path.name}" for name in operators}
    return held


def counts(rows: Sequence[Row]) -> Iterable[Sequence[object]]:
    """Library, way, orders, operators, right, wrong and errors."""
    versions = {library.name: library.version for library in (OWN, *LIBRARIES.values())}
    for (library, way), held in grouped(rows, lambda row: (row.library, row.way)).items():
        wrong = sum(row.is_wrong for row in held)
        failed = sum(row.found is None for row in held)
        yield (f"{library} {versions[library]}", way, spans(row.order for row in held),
               len({row.operator for row in held}), len(held) - wrong - failed, f"**{wrong}**",
               failed)  # fmt: skip


def kinds(rows: Sequence[Row]) -> Iterable[Sequence[object]]:
    """One line for each library, operator and kind of error."""
    known = reports()
    ours = own_numbers(rows)
    wrong = [row for row in rows if row.is_wrong]
    by_library = sorted(wrong, key=lambda row: row.library)
    for (library, operator, kind), held in grouped(
        by_library, lambda row: (row.library, row.operator, row.kind)
    ).items():
        first = next((row for row in held if abs(row.exact) > TELLING), held[0])
        report = known.get((library, operator))
        name = f"[{operator}]({report})" if report else operator
        yield (library, name, kind, ", ".join(unique(row.way for row in held)),
               spans(row.order for row in held), most(unique(row.point for row in held)),
               f"{first.exact:.6g}", f"{first.found:.6g}",
               f"{ours[place_of(first), first.order]:.6g}")  # fmt: skip


def sampled() -> str:
    """The ways that are run for a part of the operators."""
    ways = (way for library in LIBRARIES.values() for way in library.ways if way.every > 1)
    return "; ".join(f"*{way.name}* for every {way.every}th" for way in ways)


def own_numbers(rows: Sequence[Row]) -> dict[tuple[tuple[str, str], int], float]:
    """Our derivatives by Taylor mode, by place and order; NaN where there is an error."""
    return {(place_of(row), row.order): np.nan if row.found is None else row.found
            for row in rows if row.library == OWN.name and row.way == OWN.ways[0].name}  # fmt: skip


def place_of(row: Row) -> tuple[str, str]:
    """The operator and the point of a row."""
    return row.operator, row.point


def page(rows: Sequence[Row]) -> str:
    """The counts, and one line for each kind of error."""
    operators, lines = len({row.operator for row in rows}), len({*map(place_of, rows)})
    text = [HEAD.format(operators=operators, points=lines, order=ORDER, tolerance=WRONG,
                        sampled=sampled())]  # fmt: skip
    text += table("library | way | orders | operators | right | wrong, no error | an error",
                  "llrrrrr", counts(rows))  # fmt: skip
    text += ["", ERRORS, WHERE]
    text += table("library | operator | kind | ways | orders | points | exact | found | onnxjac",
                  "lllllllrrr"[1:], kinds(rows))  # fmt: skip
    return "\n".join(text) + "\n"


def every_row(rows: Sequence[Row]) -> str:
    """Every number that is wrong, with the inputs that give it."""
    text = [ROWS]
    ours = own_numbers(rows)
    wrong = (row for row in rows if row.is_wrong)
    for (operator, point), held in grouped(wrong, place_of).items():
        text += [f"## {operator}, {point}", "", "```text", *held[0].inputs, "```", ""]
        text += table("library | way | order | exact | found | onnxjac", "llrrrr", (
            (row.library, row.way, row.order, f"{row.exact:.12g}", f"{row.found:.12g}",
             f"{ours[place_of(row), row.order]:.12g}") for row in held))  # fmt: skip
        text.append("")
    return "\n".join(text)


HEAD = """# Scoreboard: derivatives that are wrong without an error

Written by `python -m tests.scoreboard -o docs/results`, with the versions in the table.

{operators} operators, each along one line x + t v through several points, {points} in all: the
point of the operator's proof; the same point with a zero, with zeros alone, with all entries of the
first input equal, and moved by 40, by -40 and by 800; one number instead of a vector; no entries;
and points at which a rule is easily wrong, such as singular matrices, several factors that are
zero, an index that occurs twice. The orders are 1 to {order}.

"Exact" is the derivative of the weighted sum of the first output, from the *values* of the
operator's definition in ONNX, in 900 digits at places 1e-40 apart: nobody's rule is used. Points
where the two sides of the line say different things are kinks, and are left out: there is no right
number. A number is wrong where it differs from the exact number by more than {tolerance:g} of
1 + |exact|, so that what is too small to matter is not counted. PyTorch's expression is the one
that `onnxjac prove` prints; JAX's and TensorFlow's expressions are what their users write, in
`tests/scoreboard/expressions.py`; onnx-ad gets the ONNX model itself. Where the value of an
expression is not the operator's value, the expression is not compared.

TensorFlow's accumulators trace a function for each operator and each shape, for seconds where
accumulators are nested. They are run at the points that have the shapes of the operator's proof
alone, and some of them for a part of the operators: {sampled}.
"""

ERRORS = """An error is an exception of the library, and is not counted as wrong. Most of the 21
that were looked at say that a rule is missing: PyTorch's forward mode has none for fused
attention and for samples of grids, JAX's `jet` none for `asin`, `atan`, `top_k` and maxima of
windows, onnx-ad none for operators of `com.microsoft`; and onnx-ad's reverse mode does not
differentiate the ReduceSum that it writes itself, from the third order on.
"""

WHERE = """## Wrong without an error

One line for each library, operator and kind of error, with one of its numbers. The operator leads
to the [report for the library's authors](upstream/README.md); [every number](scoreboard-rows.md),
with its inputs, stands on a page of its own.
"""

ROWS = """# Scoreboard: every number that is wrong without an error

Written by `python -m tests.scoreboard -o docs/results`; [the page of counts](scoreboard.md) says
what is compared. The derivative is dᵏ/dtᵏ of Σ u f(x + t v) at t = 0; an input without a v stands
still.
"""
