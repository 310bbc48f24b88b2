"""The page of results, in Markdown."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from importlib.metadata import version

from onnxjac.modes.model.loading.patterns import PATTERNS

from .accuracy import BOUND, CASES, DTYPES, EXCEPTIONS, ORDERS
from .measure import Errors, Row

HEAD = """# Precision

What float32 costs: every network of this repository at its stored point, in float32 beside itself
in float64. `cd tests && python -m precision` writes this page; it was last run with
Python {python}, NumPy {numpy} and ONNX Runtime {runtime} on {machine}.

A cell holds three figures. The first two are the relative errors ‖Δ‖ / ‖exact‖ of J v and of Jᵀ u,
for standard normal v and u. The third is the residual of the dot test,
|⟨u, J v⟩ - ⟨Jᵀ u, v⟩| / (‖u‖ ‖J v‖), its two sums taken in float64. `y` is the relative error of
the network itself, which no derivative can be expected to beat by much; ε is 1.2e-7. The largest
error among the products is {largest:.0e}, the largest residual {residual:.0e}.

Where a network has kinks, such as ReLU and MaxPool, and rounding moves it across one, entries of J
jump: J is right, at a point on the other side. Errors far above y's error, which are the same for
all three ways to the product, are of that kind.

| network | rows × columns | run by | y | `J @ v` | compiled, NumPy | compiled, ONNX Runtime |
|---|---|---|---|---|---|---|
"""


OPERATORS = "## What is promised for each operator"
PROMISE = f"""{OPERATORS}

Every value, slope and second derivative is right within {BOUND} units, in float32 and in float64,
from the smallest subnormal number to a quarter of the largest, for both signs and on both sides of
every kink. `cd tests && python -m precision operators` measures this with NumPy against mpmath in
up to 900 digits, and writes this table of the largest errors found, in units;
`tests/suite/ops/test_accuracy.py` keeps it so.

A unit is ε times the largest of three sizes: of the true result; of what a relative change of the
inputs by 1 changes in it, which no algorithm that is given rounded inputs can be expected to beat;
and, for operators on rows, of the largest result of the row. In the subnormal range it is the
smallest subnormal number, so that a slope there has fewer digits. Where the true result overflows,
nothing is promised. The operators on rows are measured with gaps of up to 1,400 between entries and
with scales over the whole range.

Values by ONNX Runtime and by PyTorch are as their kernels give them: the slopes and second
derivatives are the same graphs there. What a model makes of several operators is not promised: 1 -
σ(x) has the rounding of 1. Patterns of operators that are common and that have a form that keeps
its digits are recognised at loading, whichever engine runs them:

{{patterns}}

| operator | value | slope | second derivative | no promise |
|---|---|---|---|---|
"""


def operators(count: int = 12) -> str:
    """The section on the accuracy of operators."""
    known = (f"- {as_text(old)} as {as_text(new)}\n" for old, new in PATTERNS)
    text = PROMISE.format(patterns="".join(known).rstrip())
    for case in CASES:
        errors = [list(case.measured(dtype, count)) for dtype in DTYPES]
        cells = (", ".join(f"{e.units:.1f}" for e in pair) for pair in zip(*errors, strict=True))
        text += f"| {case} | {' | '.join(cells)} | {exceptions(str(case))} |\n"
    return text


def exceptions(name: str) -> str:
    """Where an operator keeps no promise, and why."""
    said: dict[str, list[str]] = {}
    for order, what in enumerate(ORDERS):
        if found := EXCEPTIONS.get((name, order)):
            said.setdefault(f"{found.where} ({found.why})", []).append(what)
    told = "; ".join(f"{', '.join(orders)}, {text}" for text, orders in said.items())
    return told.replace("|", "∣")


def as_text(pattern: object) -> str:
    """A pattern as calls of operators."""
    if isinstance(pattern, tuple):
        return f"{pattern[0]}({', '.join(map(as_text, pattern[1:]))})"
    return str(pattern)


def page(rows: Sequence[Row]) -> str:
    """The page with a line per network and engine."""
    found = [errors for row in rows for errors in row.ways]
    head = HEAD.format(
        python=platform.python_version(), numpy=version("numpy"), runtime=version("onnxruntime"),
        machine=platform.machine(), largest=max(max(e.jvp, e.vjp) for e in found),
        residual=max(e.dot for e in found),
    )  # fmt: skip
    return head + "".join(map(line, rows)) + "\n" + operators()


def line(row: Row) -> str:
    """One line of the table."""
    shape, ways = f"{row.shape[0]} × {row.shape[1]}", map(cell, row.ways)
    cells = (row.network, shape, row.engine, f"{row.primal:.0e}", *ways)
    return f"| {' | '.join(cells)} |\n"


def cell(errors: Errors) -> str:
    """Three figures."""
    return f"{errors.jvp:.0e} {errors.vjp:.0e} {errors.dot:.0e}"
