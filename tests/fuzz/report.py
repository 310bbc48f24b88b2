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

Written by `python -m tests.fuzz --markdown tests/fuzz/RESULTS.md`, which adds a line for each run.
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
        """One verdict more."""
        self.first = number if self.first is None else min(self.first, number)
        self.kinds[verdict.kind] += 1
        if verdict.kind == "finding":
            self.findings[verdict.text] += 1

    def line(self, seconds: float) -> str:
        """All in one line."""
        kinds = ", ".join(f"{count} {kind}" for kind, count in self.kinds.most_common())
        return f"{self.kinds.total()} trials in {seconds:.0f} s: {kinds or 'none'}"

    def write(self, page: Path, seconds: float) -> None:
        """A line more on the page, and below the table what was found."""
        text = page.read_text() if page.exists() else HEAD
        table, _, rest = text.partition("\n\n## ")
        page.write_text(f"{table.rstrip()}\n{self._row(seconds)}\n{self._found()}"
                        + (f"\n## {rest}" if rest else ""))  # fmt: skip

    def _row(self, seconds: float) -> str:
        total, found = self.kinds.total(), self.kinds["finding"]
        refused = total - found - self.kinds["result"]
        versions = ", ".join(f"{name} {version(name)}" for name in LIBRARIES)
        cells = (datetime.now(UTC).date(), f"{total:,}", self.seed, self.first or 0,
                 f"{self.kinds['result']:,}", f"{refused:,}", found, f"{seconds / 60:.0f}",
                 versions)  # fmt: skip
        return f"| {' | '.join(map(str, cells))} |"

    def _found(self) -> str:
        if not self.findings:
            return ""
        lines = [f"- {count} × {text}" for text, count in self.findings.most_common()]
        head = f"## Seed {self.seed}, from trial {self.first}\n"
        return "\n".join(["", head, *lines, ""])
