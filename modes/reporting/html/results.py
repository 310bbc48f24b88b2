"""Models, explanations and results as HTML."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ....jacobians import prod_text
from ....jacobians.hooks import html
from ....jacobians.text import clipped, joined
from ...checking.check import Check
from ...curvature.composition import Composition
from ...estimators.density import SpectralDensity
from ...estimators.estimate import Estimate
from ...explaining.explanation import Explanation, not_met
from ...explaining.local import Local
from ...flow.contents import Contents, TensorSpec
from ...solvers.iteration import OptimizeResult
from ..tables import Table, abridged_lines
from ..units import bytes_text
from .elements import FAINT, Markup, card, folded, grid, pre, tag

SPECS = ("tensor", "shape", "type")


@html.register
def _(model: Contents) -> str:
    """A model: its ends, its weights, its nodes."""
    nodes = tuple((s.op_type, s.name, names(s.inputs), names(s.outputs)) for s in model.steps)
    held = tuple((*spec_cells(s), bytes_text(model.constants[s.name].nbytes))
                 for s in model.initializers.values())  # fmt: skip
    kinds = Counter(step.op_type for step in model.steps).most_common()
    return card(
        repr(model), ", ".join(f"{name} {n}" for name, n in kinds[:12]),
        *specs("inputs", model.inputs.values()), *specs("outputs", model.outputs.values()),
        folded(Table("initializers", (*SPECS, "bytes"), held, ("bytes",))),
        folded(Table("nodes", ("op", "name", "inputs", "outputs"), nodes)),
    )  # fmt: skip


def names(tensors: tuple[str | None, ...]) -> str:
    """Some tensors in one cell, with a dash for one that is left out."""
    return joined([name or "–" for name in tensors], ", ", width=60)


def spec_cells(spec: TensorSpec) -> tuple[str, ...]:
    """Name, shape and type of a tensor, as far as the model says."""
    dims = "unknown" if spec.shape is None else "×".join("?" if d is None else str(d)
                                                       for d in spec.shape) or "1"  # fmt: skip
    return spec.name, dims, str(spec.dtype or "unknown")


def specs(title: str, found: Iterable[TensorSpec]) -> list[Markup]:
    """A table of tensors, if there are any."""
    rows = tuple(map(spec_cells, found))
    return [folded(Table(title, SPECS, rows))] if rows else []


@html.register(Composition)
@html.register(Explanation)
@html.register(Local)
def _(found: Composition | Explanation | Local) -> str:
    """Every table as a fold."""
    return card(found.title, "", *notes(found), *map(folded, found.tables()))


def notes(found: Composition | Explanation | Local) -> list[Markup]:
    """What is said beside the tables."""
    if not isinstance(found, Local):
        return [listing(found.lines)]
    rule = f"rule: {found.rule.source}" if found.rule.source else ""
    beside = *found.legend, *not_met(found.kinks), *filter(None, [found.why])
    return [tag("div", rule, style=FAINT), *map(pre, found.rule.formulas), listing(beside)]


def listing(lines: Iterable[str]) -> Markup:
    """One line below the other."""
    shown = abridged_lines([clipped(line, 400) for line in lines])
    return Markup("".join(tag("div", line) for line in shown))


@html.register
def _(found: Check) -> str:
    """A row for every test."""
    rows = tuple(("ok" if o.passed else "FAIL", f"{o.name} ({o.note})" if o.note else o.name,
                  f"{o.error:.1e}", f"{o.tolerance:.0e}") for o in found.outcomes)  # fmt: skip
    failed = sum(not o.passed for o in found.outcomes)
    title = f"{failed} of {len(rows)} tests failed" if failed else f"all {len(rows)} tests passed"
    head = ("", "test", "error", "allowed")
    return card(title, "", grid(Table("", head, rows, head[2:])))


@html.register
def _(found: Estimate) -> str:
    """The value, its error, and what it took."""
    about = {"value": found.value, "error": found.error, "products": found.products,
             "method": found.method}  # fmt: skip
    return card(repr(found), "", pairs(about))


@html.register
def _(found: SpectralDensity) -> str:
    """The range of the eigenvalues, and what it took."""
    low, high = found.nodes.min(), found.nodes.max()
    about = {"eigenvalues": f"{found.n:,}", "from": low, "to": high, "products": found.products,
             "method": found.method}  # fmt: skip
    return card(repr(found), "", pairs(about))


@html.register
def _(found: OptimizeResult) -> str:
    """How a solver ended, and its fields; of arrays shape and norm."""
    ended = "solved" if found.get("success") else "not solved"
    about = {k: v for k, v in found.items() if k not in ("success", "message", "tensors")}
    tensors = {f"tensor {name}": array for name, array in found.get("tensors", {}).items()}
    return card(f"{ended}: {found.get('message', '')}", "", pairs(tensors | about))


def pairs(about: Mapping[str, Any]) -> Markup:
    """Names and values."""
    rows = tuple((name, value_text(value)) for name, value in about.items())
    return grid(Table("", ("", "value"), rows))


def value_text(value: Any) -> str:
    """A value in one cell.

    >>> value_text(0.12345678), value_text(np.ones((2, 2)))
    ('0.123457', 'array 2×2, norm 2')
    """
    if isinstance(value, np.ndarray) and value.ndim:
        norm = np.linalg.norm(value.astype(float)) if value.dtype.kind in "fiub" else np.nan
        return f"array {prod_text(value.shape)}, norm {norm:.6g}"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
