"""Picture: docs/images/benchmarks.svg and docs/results/benchmarks.md, from measurements as JSON.

`python -m tests.benchmarks.picture` draws both from docs/results/benchmarks.json, which
`python -m tests.benchmarks --json docs/results/benchmarks.json` writes.
"""

from __future__ import annotations

import inspect
import json
import statistics
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from .table import markdown, ms, number
from .workloads import WORKLOADS

ROOT = Path(__file__).resolve().parents[2]
MEASURED = ROOT / "docs/results/benchmarks.json"
PICTURE = ROOT / "docs/images/benchmarks.svg"
PAGE = ROOT / "docs/results/benchmarks.md"

ENGINES = {
    "onnxjac": "as it is", "onnxjac onnxruntime": "ONNX Runtime", "onnxjac numpy": "NumPy",
    "onnxjac torch": "PyTorch", "onnxjac jax": "XLA",
}  # fmt: skip
"""Our contenders as the page names them."""

PRODUCTS = {
    "jvp": "J v", "vjp": "Jᵀ u", "ggn": "G v (Gauss-Newton)", "hvp": "H v",
    "grad": "gradient (new weights)", "grad+ggn×10": "gradient and ten G v (new)",
}  # fmt: skip
"""The products that are drawn."""

WORKS = {
    "mlp": "MLP", "lenet": "LeNet", "resnet": "ResNet", "transformer": "transformer",
    "lstm": "LSTM", "loop": "loop", "reaction": "reaction", "input": "MLP, in x",
}  # fmt: skip
"""The models that are drawn, at one point or in steps; more are in the table."""

HEAD = """# Benchmarks in a minute

![Our time ÷ the best peer's, by product, model and engine](../images/benchmarks.svg)

A dot is one engine of ours on one product of one model: its time ÷ the time of the fastest other
library whose result is right, the median of {rounds} interleaved rounds, on a logarithmic scale.
**Left of the line we are faster.** "As it is" is `linearize` and `@` with no choice made; the other
engines were asked for by `engine=`.

{summary}

The peers, each at its best use, and how often one was the fastest: {peers}.

{versions}{note}

This page and its picture are drawn from the measurements in [benchmarks.json](benchmarks.json),
which has every contender's times, set-up and memory, by `python -m tests.benchmarks.picture`.
[Timings](timings.md) is a longer run on another machine, and says how it is measured and why a
figure is missed.

## Product by product

Milliseconds of one product or step; a ratio below 1 means that we are faster. "PyTorch" is its best
of autograd, `torch.func.linearize` and `torch.compile`.

{table}

## The models

{models}

"G v" and "H v" multiply by the Gauss-Newton matrix and the Hessian of the loss, "jvp×16" is J times
16 vectors, "sparse" the Jacobian as a SciPy matrix, "gmres" a Newton system solved by GMRES. Steps
are at new weights each time, as in a training loop.
"""


class Line(NamedTuple):
    """One product of one model: the ratios of our engines, and the fastest of both sides."""

    work: str
    product: str
    ratios: dict[str, float]
    ours: tuple[str, float]
    peer: tuple[str, float]
    by_torch: float | None


def lines(measured: Iterable[dict]) -> list[Line]:
    """The products for which a peer has a right result."""
    return [line for outcome in measured if (line := compare(outcome)) is not None]


def compare(outcome: dict) -> Line | None:
    """One outcome of the JSON; experts are left out, since no library wrote their code."""
    medians = {c["contender"]: c["median"] for c in outcome["contenders"]}
    ratios, peers = {}, {}
    for row in outcome["compared"]:
        if row["ours"] in ENGINES and row["peer"] and is_library(row["peer"]):
            ratios[row["ours"]] = row["ratio"]
            peers[row["peer"]] = medians[row["peer"]]
    if not ratios:
        return None
    ours = min(ratios, key=lambda name: medians[name])
    (peer,) = peers.items()
    by_torch = [time for name, time in medians.items() if name.startswith("torch") and time]
    return Line(outcome["workload"], outcome["product"], ratios, (ours, medians[ours]), peer,
                min(by_torch, default=None))  # fmt: skip


def is_library(contender: str) -> bool:
    """Whether another library's own product is meant, not an expert's code nor ours compiled."""
    return not contender.startswith("onnxjac") and not contender.endswith("expert")


def summary(found: list[Line]) -> str:
    """For each engine: the median ratio, and where it is at most 1."""
    head = ("engine", "products", "median of ours ÷ best peer", "at most 1", "at most 1.1")
    body = []
    for engine, name in ENGINES.items():
        ratios = [line.ratios[engine] for line in found if engine in line.ratios]
        if ratios:
            within = [sum(r <= bound for r in ratios) for bound in (1.0, 1.1)]
            middle = number(statistics.median(ratios))
            body.append((name, str(len(ratios)), middle, *map(str, within)))
    return markdown(head, body)


def table(found: list[Line]) -> str:
    """A row for each product: ours as it is and at its fastest, and the fastest peer."""
    head = ("model", "product", "as it is ÷ peer", "our fastest engine", "ms", "best peer", "ms",
            "fastest ÷ peer", "PyTorch ms")  # fmt: skip
    body = [
        (line.work, PRODUCTS.get(line.product, line.product), number(line.ratios.get("onnxjac")),
         ENGINES[line.ours[0]], ms(line.ours[1]), line.peer[0], ms(line.peer[1]),
         number(line.ratios[line.ours[0]]), ms(line.by_torch))
        for line in found
    ]  # fmt: skip
    return markdown(head, body)


def models(found: list[Line]) -> str:
    """What each model is, from the function that makes it."""
    makers = {model(line): unwrapped(WORKLOADS[model(line)]) for line in found}
    return markdown(("model", "what it is"), [(name, inspect.getdoc(maker).partition("\n")[0])
                                              for name, maker in makers.items()])  # fmt: skip


def unwrapped(made: Callable[..., object]) -> Callable[..., object]:
    """The function of a partial one, whose text says what it makes."""
    return made.func if isinstance(made, partial) else made


def peers(found: list[Line]) -> str:
    """How often each peer was the fastest."""
    names = [line.peer[0] for line in found]
    ordered = sorted(set(names), key=lambda name: (-names.count(name), name))
    return ", ".join(f"{name} {names.count(name)}" for name in ordered)


def page(measurements: dict) -> str:
    """The page of results."""
    found = lines(measurements["outcomes"])
    return HEAD.format(
        rounds=measurements["rounds"], summary=summary(found), peers=peers(found),
        versions=f"{measurements['date']}, {measurements['cpu']}, threads of each: "
                 f"{measurements['threads']}; {measurements['versions']}.",
        note=f" {measurements['note']}".rstrip(), table=table(found), models=models(found),
    )  # fmt: skip


def draw(found: list[Line], path: Path) -> None:
    """A panel for each product, a row for each model, a dot for each engine."""
    import matplotlib as mpl
    from matplotlib import pyplot as plt

    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "benchmarks", "font.size": 9})
    figure, panels = plt.subplots(2, 3, figsize=(11, 6.4), sharex=True, layout="constrained")
    for panel, (product, title) in zip(panels.flat, PRODUCTS.items(), strict=True):
        draw_panel(panel, [line for line in found if line.product == product], title)
    handles, labels = panels.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(ENGINES), frameon=False)
    figure.supxlabel("our time ÷ the best peer's (left of the line we are faster)", fontsize=9)
    figure.savefig(path, metadata={"Date": None, "Creator": None})
    plt.close(figure)


def draw_panel(panel: object, found: list[Line], title: str) -> None:
    """One product."""
    rows = {model(line): line for line in found if model(line) in WORKS}
    names = [name for name in WORKS if name in rows]
    for at, (engine, label) in enumerate(ENGINES.items()):
        points = [(rows[name].ratios[engine], y) for y, name in enumerate(names)
                  if engine in rows[name].ratios]  # fmt: skip
        x, y = zip(*points, strict=True) if points else ((), ())
        panel.scatter(x, y, s=34, marker=MARKERS[at], label=label, zorder=3, alpha=0.85)
    panel.axvline(1, color="0.3", linewidth=1)
    panel.set(xscale="log", title=title, ylim=(len(names) - 0.4, -0.6))
    panel.set_yticks(range(len(names)), [WORKS[name] for name in names])
    panel.set_xticks(TICKS, [f"{tick:g}" for tick in TICKS])
    panel.xaxis.minorticks_off()
    panel.grid(axis="both", color="0.9", zorder=0)


MARKERS = "oDsv^"
TICKS = (0.1, 0.25, 0.5, 1, 2, 4, 16)


def model(line: Line) -> str:
    """The model of a workload, whether it stays at a point or takes steps."""
    return line.work.removeprefix("steps/")


def main() -> None:
    """Draw the picture and write the page."""
    measurements = json.loads(MEASURED.read_text())
    draw(lines(measurements["outcomes"]), PICTURE)
    PAGE.write_text(page(measurements))


if __name__ == "__main__":
    main()
