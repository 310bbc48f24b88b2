"""The page of results: killed mutants by folder, and the survivors."""

from __future__ import annotations

import platform
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from textwrap import wrap

HERE = Path(__file__).parent
RESULTS = HERE.parents[1] / "docs" / "results"
FOLDERS = {"rules": ("jacobians", "ops"), "modes": ("modes",)}
"""What is mutated, by the name of the scope."""

PAGES = {"rules": RESULTS / "mutation.md", "modes": RESULTS / "mutation-modes.md"}
EXPLAINED = RESULTS / "survivors.md"
TITLES = {"rules": "`jacobians/` and `ops/`", "modes": "`modes/`"}


@dataclass(frozen=True)
class Verdict:
    """The verdict on one mutant: its change, the outcome and the test that killed it."""

    path: str
    line: int
    old: str
    new: str
    outcome: str
    killer: str = ""

    @property
    def folder(self) -> str:
        """The folder that the mutant counts for."""
        return str(Path(self.path).parent)

    def text(self) -> str:
        """The change as the pages of survivors and results name it."""
        return f"`{self.path}`: `{self.old}` → `{self.new}`"


@dataclass(frozen=True)
class Drawn:
    """How the mutants were sampled, and the number of available tests per folder."""

    count: int
    seed: int
    seconds: list[float]
    judges: dict[str, int]

    def text(self, judged: int) -> str:
        """The sentence on the page of results."""
        folders = ", ".join(f"`{name}` ({tests})" for name, tests in sorted(self.judges.items()))
        seconds = " to ".join(f"{s:g}" for s in sorted({min(self.seconds), max(self.seconds)}))
        return (
            f"{judged} of the {self.count} mutants that seed {self.seed} draws: every file gives "
            "its share, at least one, and they are shuffled. Each was judged by the tests that run "
            f"its lines, the quickest first, up to {seconds} seconds of them. These tests, and how "
            f"many of them, could be asked: {folders}. Where a folder has more tests, the map held "
            "a part of them. Survivors are judged again where tests were added since."
        )


def page(verdicts: list[Verdict], drawn: Drawn, scope: str) -> str:
    """The page of a scope: the counts by folder, and the unexplained survivors."""
    today = f"{datetime.now(UTC):%Y-%m-%d}"
    versions = ", ".join(f"{name} {version(name)}" for name in ("cosmic-ray", "onnx", "numpy"))
    return "\n".join(
        [
            f"# Mutants of {TITLES[scope]}",
            "",
            f"{today}, Python {platform.python_version()}, {versions}; "
            f"`python -m tests.mutation --scope {scope}` makes this page.",
            "",
            *wrap(drawn.text(len(verdicts)), 100),
            "",
            *table(verdicts),
            "",
            "A mutant that runs out of its processor time is noticed and counts as killed.",
            "[A page](survivors.md) has the survivors that change nothing one could notice, with",
            "reasons; the rest is all but these.",
            *unexplained(verdicts),
            "",
        ]
    )


def table(verdicts: list[Verdict]) -> Iterator[str]:
    """One row per folder and one for all."""
    folders: dict[str, list[Verdict]] = defaultdict(list)
    for verdict in verdicts:
        folders[verdict.folder].append(verdict)
    yield "| folder | mutants | killed | by timeout | survived | explained | killed | of the rest |"
    yield "|---|--:|--:|--:|--:|--:|--:|--:|"
    for folder, found in sorted(folders.items()):
        yield row(f"`{folder}/`", found)
    yield row("all", verdicts)


def row(name: str, verdicts: list[Verdict]) -> str:
    """The counts of some mutants, and the rates killed, with and without explained survivors."""
    counts = Counter(verdict.outcome for verdict in verdicts)
    survived, timeouts = counts["survived"], counts["timeout"]
    killed = len(verdicts) - survived
    explained = sum(v.outcome == "survived" and is_explained(v) for v in verdicts)
    cells = (name, len(verdicts), killed, timeouts, survived, explained)
    shares = f"{killed / len(verdicts):.1%} | {killed / max(len(verdicts) - explained, 1):.1%}"
    return "| " + " | ".join(map(str, cells)) + f" | {shares} |"


def is_explained(verdict: Verdict) -> bool:
    """Whether the page of survivors has this change."""
    return EXPLAINED.exists() and verdict.text() in EXPLAINED.read_text()


def unexplained(verdicts: list[Verdict]) -> Iterator[str]:
    """The survivors that still need a test or an explanation."""
    left = [v for v in verdicts if v.outcome == "survived" and not is_explained(v)]
    if left:
        yield from ("", "## Survivors without a reason", "")
        yield from (f"- {v.text()} (line {v.line})" for v in sorted(left, key=lambda v: v.path))
