"""Endurance: `cd tests && python -m endurance` runs all measurements and writes the page.

The page is docs/results/endurance.md.

It takes a few minutes, 3 GiB of disk in the folder for temporary files, and 3 GiB of memory.
"""

import platform
import tempfile
from datetime import date
from importlib.metadata import version
from pathlib import Path

from onnxjac.modes.model.save import save_text

from .apart import apart
from .measures import KINDS

MB, GB = 2**20, 2**30
PRODUCTS, POINTS, WEIGHTS = 10_000, 1_000, 2 * GB
NODES = (1250, 2500, 5000)
PAGE = Path(__file__).parents[2] / "docs" / "results" / "endurance.md"


def products():
    """Growth over products of each kind."""
    yield "## Memory after 10,000 products\n"
    yield "J v, Jᵀ u and J V with three columns in turn, of the perceptron of `tests/models`.\n"
    yield from growth([(kind, "products", kind, PRODUCTS) for kind in KINDS])


def points():
    """Growth over points."""
    yield "\n## Memory after 1,000 points, with a product at each\n"
    ways = {"J.relinearize": "relinearize", "linearize": "anew", "convolutions": "convolutions"}
    yield from growth([(name, "points", way, POINTS) for name, way in ways.items()])


def growth(rows):
    """A table of the growth of memory."""
    yield "| | times | resident, MB | Python's own, kB |\n|---|---|---|---|"
    for name, *measure in rows:
        left = apart(*measure)
        size = f"{left['resident'] / MB:.1f} | {left['traced'] / 1024:.1f}"
        yield f"| {name} | {left['times']:,} | {size} |"


def nodes():
    """Seconds as a function of the length of a chain."""
    yield "\n## Time over nodes\n"
    yield "Seconds of one processor for a chain of elementwise operators, least of three.\n"
    yield "| nodes | load | linearize and one product |\n|---|---|---|"
    for n, (load, linearize) in apart("linearizing", NODES, 3).items():
        yield f"| {int(n):,} | {load:.2f} | {linearize:.2f} |"


def diamonds():
    """Calls in one product."""
    found = apart("applied", 60)
    yield "\n## 60 stacked diamonds, 2⁶⁰ paths\n"
    yield (
        f"{found['edges']} edges; one product makes {found['calls']} calls, and after elimination "
        f"{found['eliminated']}. Largest relative error {found['error']:.0e}."
    )


def weights():
    """The memory of a large model."""
    yield "\n## A model of 2 GiB of weights in a file beside it\n"
    yield (
        "GiB beyond those of the process before: after `load`; held after a run, `linearize`, J v "
        "and Jᵀ u; and the most at once. ONNX Runtime copies weights while a session is made.\n"
    )
    yield "| | weights | loaded | held | most |\n|---|---|---|---|---|"
    for mmap in (False, True):
        for engine in ("numpy", "onnxruntime"):
            with tempfile.TemporaryDirectory() as folder:
                found = apart("weights", folder, WEIGHTS, mmap, engine)
            sizes = (f"{found[key] / GB:.2f}" for key in ("bytes", "loaded", "held", "peak"))
            way = "mapped" if mmap else "read"
            yield f"| {way}, engine={engine!r} | {' | '.join(sizes)} |"


def main():
    """Run all measurements, in order."""
    said = ", ".join(f"{name} {version(name)}" for name in ("numpy", "onnx", "onnxruntime"))
    lines = [
        "# Endurance\n",
        f"`cd tests && python -m endurance`, {date.today()}, Python {platform.python_version()}, "
        f"{said}, one thread.\n",
    ]
    for part in (products, points, nodes, diamonds, weights):
        for line in part():
            print(line, flush=True)
            lines.append(line)
            save_text("\n".join(lines), PAGE)


if __name__ == "__main__":
    main()
