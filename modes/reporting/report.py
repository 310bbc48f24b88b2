"""Report: what a model and its Jacobian are, in a page of text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from textwrap import wrap
from typing import Any

import numpy as np

from ...jacobians import prod_text
from ..checking.check import Check
from ..explaining.explanation import Explanation
from ..linearization import Linearization
from ..model import Model
from .spectrum import Spectrum
from .timings import Timings
from .units import bytes_text, time_text

MARGIN = 12
"""Columns that the titles take."""


def section(title: str, lines: Iterable[str]) -> str:
    """A title in the margin, and lines beside it."""
    margin = "\n" + " " * MARGIN
    return f"{title:<{MARGIN}}{margin.join(lines)}"


def of_model(model: Model, source: str, point: Mapping[str, Any], given: Iterable[str]) -> str:
    """What the model is, and the point at which it is taken."""
    kinds = tally(step.op_type for step in model.steps)
    given = set(given)
    points = (
        f"{name} {value.dtype}[{prod_text(value.shape)}], {'given' if name in given else 'random'}"
        for name, value in point.items()
        if isinstance(value, np.ndarray)
    )
    numbers = f"{numbers_in(model):,} numbers in its initializers"
    head = f"opset {model.opset}, {len(model.steps)} nodes, {numbers}"
    return "\n".join((
        section("model", [source, head, *packed(kinds)]),
        section("inputs", map(str, model.inputs.values())),
        section("outputs", map(str, model.outputs.values())),
        section("point", points),
    ))  # fmt: skip


def numbers_in(model: Model) -> int:
    """How many numbers the initializers hold."""
    return sum(array.size for array in model.constants.values())


def of_jacobian(J: Linearization, found: Explanation) -> str:
    """The shape of J, the kinds of its blocks, the heaviest of them, and its memory."""
    dense = J.shape[0] * J.shape[1] * J.dtype.itemsize
    memory = f"{bytes_text(J.nbytes)} held, {bytes_text(dense)} if it were dense"
    return "\n".join((
        section("jacobian", [str(J), f"{J.flops:,} flops in one product"]),
        section("structure", [*structures(found), *zeros(found)]),
        section("heaviest", heaviest(found)),
        section("memory", [memory]),
    ))  # fmt: skip


def structures(found: Explanation) -> list[str]:
    """How many blocks there are of each structure, sizes left out."""
    kinds = tally(structure_kind(row.structure) for row in found.rows)
    return [f"{len(found.rows)} blocks", *packed(kinds)]


def structure_kind(structure: str) -> str:
    """A structure without its sizes.

    >>> structure_kind("diag(2×8) · (I(8) ⊗ A[8×3]) · take(64 → 24)")
    'diag · (I ⊗ A) · take'
    >>> structure_kind("diag(2×8) · conv_x[8×3] · resha…")
    'diag · conv_x · …'
    """
    kind = re.sub(r"\[[^]]*]?|\(\d[^)]*\)?", "", structure)
    return re.sub(r"[^ ]*…$", "…", kind)


def tally(things: Iterable[str], most: int = 10) -> list[str]:
    """What there is, the most frequent first.

    >>> tally(["Conv", "Relu", "Conv"])
    ['Conv 2', 'Relu 1']
    """
    counts = Counter(things).most_common()
    rest = sum(n for _, n in counts[most:])
    shown = [f"{thing} {n}" for thing, n in counts[:most]]
    return shown + ([f"others {rest}"] if rest else [])


def packed(items: list[str], width: int = 88) -> list[str]:
    """Items with commas, as many in a line as fit.

    >>> packed(["Conv 2", "Relu 1"]), packed(["Conv 2", "Relu 1"], 8)
    (['Conv 2, Relu 1'], ['Conv 2,', 'Relu 1'])
    """
    unbroken = ", ".join(item.replace(" ", "\0") for item in items)
    lines = wrap(unbroken, width, break_long_words=False, break_on_hyphens=False)
    return [line.replace("\0", " ") for line in lines]


def heaviest(found: Explanation, most: int = 3) -> list[str]:
    """The blocks that take most of the work of a product."""
    rows = sorted(found.rows, key=lambda row: (row.flops, row.nbytes), reverse=True)[:most]
    lines = (f"{r.op} {r.structure}: {r.flops:,} flops, {bytes_text(r.nbytes)}" for r in rows)
    return list(lines) or ["none"]


def zeros(found: Explanation, most: int = 3) -> list[str]:
    """The pairs of tensors that nothing joins, a few of them."""
    more = len(found.zeros) - most
    return [*found.zeros[:most], *([f"and {more} more such pairs"] if more > 0 else [])]


def of_check(outcome: Check) -> str:
    """The outcome of `J.check()`."""
    return section("check", str(outcome).splitlines())


def of_spectrum(found: Spectrum, what: str = "singular values") -> str:
    """The largest values, and what they cost."""
    values = "  ".join(f"{value:.5g}" for value in found.values) or "none"
    cost = f"{len(found.values)} largest, from {found.products} products with J or Jᵀ"
    return section(what.split()[0], [values, f"({cost})", *filter(None, [found.why])])


def of_timings(found: Timings) -> str:
    """How long a product takes, beside one run of the model."""
    products = {"J @ v": found.forward, "Jᵀ @ u": found.reverse}
    lines = [f"{name}: {time_text(t)}, {t / found.run:.2g} runs" for name, t in products.items()]
    return section("time", [f"one run of the model: {time_text(found.run)}", *lines])
