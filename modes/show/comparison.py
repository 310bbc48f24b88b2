"""The page of a comparison: tables, errors by layer, and the direction that differs most."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...jacobians import hooks
from ...jacobians.hooks import html
from ..comparison.compare import ModelComparison, TensorRow
from ..model.markup import Markup, Page, card, fold_table, grid, tag
from . import svg
from .document import document, section

BARS = 24
"""At most this many entries of an output or of a table have bars."""


@html.register
def _(found: ModelComparison) -> str:
    """The tests, and the table of outputs and layers."""
    return card(title_of(found), tolerance_of(found), Markup(html(found.check)),
                fold_table(found.table))  # fmt: skip


@hooks.view.register
def _(found: ModelComparison) -> Page:
    """The whole page."""
    rows = [*found.layers, *found.outputs]
    parts = [section("Result", tag("p", tolerance_of(found)), Markup(html(found.check)))]
    if rows:
        parts.append(section("By layer", by_layer(rows, found.rtol), grid(found.table)))
    parts += [section(f"Where {row.pair.a} differs most", *worst_direction(row, found))
              for row in found.outputs if row.direction and row.sigma]  # fmt: skip
    renamed = [f"{p.a} → {p.b}, by {p.by}" for p in (*found.inputs, *found.wrt) if p.a != p.b]
    renamed += [f"{name}: in one model only" for name in found.alone]
    if renamed:
        parts.append(section("Names", *(tag("div", text) for text in renamed)))
    return Page(document(title_of(found), found.verdict, *parts, subject="comparison"))


def title_of(found: ModelComparison) -> str:
    """Both models."""
    a, b = found.titles
    return f"{a} beside {b}"


def tolerance_of(found: ModelComparison) -> str:
    """What was compared, and how closely."""
    what = ", ".join(pair.a for pair in found.wrt)
    batches = f"{found.batches} batch{'es' * (found.batches != 1)}"
    return (f"{batches}; values and slopes ∂/∂({what}) of each output may differ by "
            f"{found.rtol:.1e}, relative to the first model.")  # fmt: skip


def by_layer(rows: list[TensorRow], rtol: float) -> Markup:
    """The relative differences of values and of slopes, layer by layer, then of the outputs."""
    series = [("values", [row.values for row in rows]), ("slopes", [row.slopes for row in rows])]
    names = [row.pair.a for row in rows]
    title = "Relative difference of values and slopes, in the order of the model"
    return svg.figure(title, svg.log_chart(series, names, title, rtol))


def worst_direction(row: TensorRow, found: ModelComparison) -> Iterator[Markup]:
    """v and u of D v = σ u, and the inputs there."""
    yield tag("p", f"Along the direction v of length 1, the changes of {row.pair.a} differ by "
                   f"{row.sigma:.3g}, where the first model's are at most {row.norm:.3g} long. "
                   f"Batch {row.batch + 1} of {found.batches}.")  # fmt: skip
    shown: list[Markup] = []
    for name, v in row.direction.items():
        k = longest_sample(v)
        x = found.at.get(name) if row.batch == found.outputs[0].batch else None
        if v.ndim == 4 and isinstance(x, np.ndarray) and x.shape == v.shape:
            shown.append(svg.figure(f"{name}[{k}]", svg.photograph(x[k], f"{name}[{k}]")))
        shown += [svg.figure(f"v for {name}{where}", part) for where, part in draw_sample(v, k)]
    if row.response is not None:
        k = longest_sample(row.response)
        shown += [svg.figure(f"u for {row.pair.a}{where}", part)
                  for where, part in draw_sample(row.response, k)]  # fmt: skip
    yield tag("div", *shown, **{"class": "pictures"})


def longest_sample(x: np.ndarray) -> int:
    """The sample, along the first axis, in which a vector is longest."""
    if x.ndim < 2:
        return 0
    return int(np.argmax(np.linalg.norm(x.reshape(len(x), -1), axis=1)))


def draw_sample(x: np.ndarray, k: int) -> Iterator[tuple[str, Markup]]:
    """A sample of a tensor: an image as one, a row of numbers as bars, tokens by their lengths."""
    if x.ndim == 4:
        largest = int(np.argmax(np.linalg.norm(x[k].reshape(len(x[k]), -1), axis=1)))
        place = f"[{k}]" if len(x[k]) == 1 else f"[{k}, {largest}]"
        yield place, svg.heat(x[k, largest], f"direction{place}")
        return
    row = np.linalg.norm(x[k], axis=-1) if x.ndim == 3 else x[k] if x.ndim == 2 else x.ravel()
    row = np.ravel(row)
    chosen = np.sort(np.argsort(-abs(row), kind="stable")[:BARS])
    what = "" if len(chosen) == len(row) else f", the largest {len(chosen)} of {len(row):,}"
    place = f"[{k}]" if x.ndim > 1 else ""
    labels = [f"{place[:-1]}, {j}]" if place else f"[{j}]" for j in chosen]
    yield f"{place}{what}", svg.bars(row[chosen].tolist(), labels, f"direction{place}")
