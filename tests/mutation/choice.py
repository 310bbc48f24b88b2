"""The choice of tests for a mutant: those that run its lines, fast and diverse ones first."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import cached_property
from itertools import accumulate, takewhile, zip_longest
from pathlib import Path

from coverage import CoverageData

from .mutants import ROOT, Mutant

REGISTRIES = ("test_coverage", "test_declared", "test_defaults", "test_transcriptions",
    "test_conventions", "test_operands")  # fmt: skip
"""Tests of declarations made on import, which run none of their lines."""


class Tests:
    """The passing tests, with their seconds and the lines that each one runs.

    Read from pairs of files, coverage's data and durations, written by the plugin `contexts`.
    """

    def __init__(self, folder: Path) -> None:
        self.data = CoverageData(basename=":memory:", no_disk=True)
        self.seconds: dict[str, float] = {}
        for path in sorted(folder.glob("*.json")):
            part = CoverageData(str(path.with_suffix(".coverage")))
            part.read()
            self.data.update(part)
            self.seconds |= json.loads(path.read_text())

    def folders(self) -> dict[str, int]:
        """The number of tests in each folder, or in each file outside the folders."""
        return Counter("/".join(Path(file(test)).parts[:3]) for test in self.seconds)

    def near(self, mutant: Mutant, budget: float) -> list[list[str]]:
        """Tests in two rounds, a quick one and then all that fit into `budget` seconds."""
        lines = self.data.contexts_by_lineno(str(ROOT / mutant.path))
        hits = {t for n in range(mutant.line, mutant.last + 1) for t in lines.get(n, ()) if t}
        ordered = self.ordered(hits) or self.named(mutant)
        whole = self.ordered({t for tests in lines.values() for t in tests if t})
        last = self.small if not hits else self.named(mutant)
        wanted = dict.fromkeys([*ordered, *whole, *last])
        everything = [*self.within(budget, [*wanted]), *self.doctests(mutant)]
        most = Counter(file(t) for t in ordered[:200]).most_common(1)
        quick = [t for t in everything if [file(t)] == [name for name, _ in most]]
        first = [*self.doctests(mutant), *self.within(budget / 8, quick)]
        return [first, [t for t in everything if t not in {*first}]]

    def ordered(self, tests: Iterable[str]) -> list[str]:
        """One case of every test function, then a second case of each, and so on; fast first."""
        groups: dict[str, list[str]] = defaultdict(list)
        for test in sorted({*tests} & self.seconds.keys(), key=lambda t: (self.seconds[t], t)):
            groups[test.partition("[")[0]].append(test)
        return [t for turn in zip_longest(*groups.values()) for t in turn if t is not None]

    def within(self, budget: float, tests: list[str]) -> list[str]:
        """The first of these tests that fit into `budget` seconds."""
        sums = accumulate(self.seconds[test] for test in tests)
        return [test for test, _ in zip(tests, takewhile(lambda s: s < budget, sums), strict=False)]

    def named(self, mutant: Mutant) -> list[str]:
        """For lines that run on import only: the tests of a file of this name, of the registries,
        and those whose ids contain a name quoted in the line.
        """
        lines = (ROOT / mutant.path).read_text().splitlines()[mutant.line - 2 : mutant.last + 1]
        names = re.findall(r'"([A-Z]\w+)"', " ".join(lines))
        files = {*REGISTRIES, f"test_{Path(mutant.path).stem}"}
        entered = self.ordered(t for t in self.seconds if Path(file(t)).stem in files)
        return [*entered, *self.ordered(t for t in self.seconds if any(n in t for n in names))]

    def doctests(self, mutant: Mutant) -> list[str]:
        """The examples in the mutant's own docstrings."""
        dotted = ".".join(("onnxjac", *Path(mutant.path).with_suffix("").parts))
        title = "tests/suite/test_doctests.py::test_every_example_of_a_docstring_runs"
        test = f"{title}[{dotted.removesuffix('.__init__')}]"
        return [test] if test in self.seconds else []

    @cached_property
    def small(self) -> list[str]:
        """Two cases of every test function."""
        groups: Counter[str] = Counter()
        return [t for t in self.ordered(self.seconds) if second(groups, t.partition("[")[0])]


def second(counts: Counter[str], group: str) -> bool:
    """Whether this is the first or second of its group."""
    counts[group] += 1
    return counts[group] <= 2


def file(test: str) -> str:
    """The file of a test."""
    return test.partition("::")[0]
