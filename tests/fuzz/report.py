"""Report: the verdicts of a run, counted, and the page of results."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from .trial import Verdict
from .workers import MEMORY, SECONDS

LIBRARIES = ("onnx", "onnx-ir", "onnxruntime", "numpy")

HEAD = f"""\
# Hostile files: results

Written by `python -m tests.fuzz --markdown docs/results/fuzz.md`, which adds a line for each run.
A trial may take {SECONDS} s of processor time and {MEMORY / 2**30:.0f} GiB of address space, under
the limits of `tests/fuzz/trial.py`. A finding is anything but a result or an `OnnxJacError`:
another exception, a crash, a hang, memory refused by the system, a file opened outside.

| date | trials | seed | first | results | refused | findings | minutes | versions |
|---|---|---|---|---|---|---|---|---|
"""


class Tally:
    """The verdicts of one run."""

    def __init__(self, seed: int) -> None:
        self.seed, self.first = seed, None
        self.kinds: Counter[str] = Counter()
        self.findings: Counter[str] = Counter()

    def add(self, number: int, verdict: Verdict) -> None:
        """Count a verdict."""
        self.first = number if self.first is None else min(self.first, number)
        self.kinds[verdict.kind] += 1
        if verdict.kind == "finding":
            self.findings[verdict.text] += 1

    def line(self, seconds: float) -> str:
        """A summary in one line."""
        kinds = ", ".join(f"{count} {kind}" for kind, count in self.kinds.most_common())
        return f"{self.kinds.total()} trials in {seconds:.0f} s: {kinds or 'none'}"

    def write(self, page: Path, seconds: float) -> None:
        """Add a line to the table, and the findings above those of earlier runs."""
        lines = (page.read_text() if page.exists() else HEAD).splitlines()
        end = 1 + max(k for k, line in enumerate(lines) if line.startswith("|"))
        lines.insert(end, self._row(seconds))
        headings = (k for k, line in enumerate(lines) if line.startswith("## "))
        above = next(headings, len(lines) + 1) - 1
        lines[above:above] = self._found()
        page.write_text("\n".join(lines) + "\n")

    def _row(self, seconds: float) -> str:
        total, found = self.kinds.total(), self.kinds["finding"]
        refused = total - found - self.kinds["result"]
        versions = ", ".join(f"{name} {version(name)}" for name in LIBRARIES)
        cells = (datetime.now(UTC).date(), f"{total:,}", self.seed, self.first or 0,
                 f"{self.kinds['result']:,}", f"{refused:,}", found, f"{seconds / 60:.0f}",
                 versions)  # fmt: skip
        return f"| {' | '.join(map(str, cells))} |"

    def _found(self) -> list[str]:
        """The findings of this run under a heading of their own, if there are any."""
        if not self.findings:
            return []
        lines = [f"- {count} × {text}" for text, count in self.findings.most_common()]
        return ["", f"## Seed {self.seed}, from trial {self.first}", "", *lines]
