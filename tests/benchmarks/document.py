"""Document: docs/results/timings.md, the tables with what they were measured on."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from .report import Outcome, machine_readable
from .table import COMPARED, EACH, compared, each, markdown

LIBRARIES = ("onnxjac", "numpy", "scipy", "onnx", "onnxruntime", "jax", "torch",
             "curvlinops-for-pytorch", "casadi", "asdex")  # fmt: skip

TEXT = """# Benchmarks

`python -m tests.benchmarks`, {date}, {cpu}, threads each: {threads}, {rounds} interleaved rounds.

Milliseconds of one product after set-up, medians over the rounds. The ratio is the median over
the rounds of ours ÷ the best peer, each at its best use, whose result is right. An expert knows
the structure of J and has written the product for it by hand. The limit is the least arithmetic
at this machine's rate for matrix products, or the least bytes at its bandwidth, both measured in
the same run. The error is the distance to the results of the other libraries. J as it is, without
`compile`, is timed after thirty products; compiled, it is prepared for ten thousand. Steps, at a
new point each time, are timed after five seconds of them.

{versions}

## Ours and the best peer

{compared}

## Every contender

Set-up: seconds until the first result, with all compilation. Ours pays after so many products,
against not compiling. Peak: the memory of the process until then, in this and earlier products
of the workload, with the libraries that it imports.

{each}
"""


def record(outcomes: list[Outcome], rounds: int, threads: int) -> dict[str, Any]:
    """Everything that was measured but the results, with what it was measured on, for JSON."""
    return {
        "date": f"{datetime.now(UTC).date()}", "cpu": cpu(), "versions": versions(),
        "rounds": rounds, "threads": threads,
        "outcomes": [machine_readable(outcome) for outcome in outcomes],
    }  # fmt: skip


def document(outcomes: list[Outcome], rounds: int, threads: int) -> str:
    """The whole page."""
    return TEXT.format(
        date=datetime.now(UTC).date(), cpu=cpu(), rounds=rounds, versions=versions(),
        threads=threads,
        compared=markdown(COMPARED, compared(outcomes)), each=markdown(EACH, each(outcomes)),
    )  # fmt: skip


def versions() -> str:
    """The installed versions."""
    found = {"Python": platform.python_version()}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return ", ".join(f"{name} {number}" for name, number in found.items())


def cpu() -> str:
    """The processor's name and its cores."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.processor()}, {os.cpu_count()} cores"
