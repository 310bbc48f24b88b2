"""The page of results, in Markdown."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from importlib.metadata import version

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
jump: J is right, at a point on the other side. Errors far above that of y, which are the same for
all three ways to the product, are of that kind.

| network | rows × columns | run by | y | `J @ v` | compiled, NumPy | compiled, ONNX Runtime |
|---|---|---|---|---|---|---|
"""


def page(rows: Sequence[Row]) -> str:
    """The page with a line per network and engine."""
    found = [errors for row in rows for errors in row.ways]
    head = HEAD.format(
        python=platform.python_version(), numpy=version("numpy"), runtime=version("onnxruntime"),
        machine=platform.machine(), largest=max(max(e.jvp, e.vjp) for e in found),
        residual=max(e.dot for e in found),
    )  # fmt: skip
    return head + "".join(map(line, rows))


def line(row: Row) -> str:
    """One line of the table."""
    shape, ways = f"{row.shape[0]} × {row.shape[1]}", map(cell, row.ways)
    cells = (row.network, shape, row.engine, f"{row.primal:.0e}", *ways)
    return f"| {' | '.join(cells)} |\n"


def cell(errors: Errors) -> str:
    """Three figures."""
    return f"{errors.jvp:.0e} {errors.vjp:.0e} {errors.dot:.0e}"
