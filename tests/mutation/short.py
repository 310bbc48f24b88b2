"""Twenty killed mutants and the tests that killed them: do these tests still kill?

`killers.json` holds the changes as lines of text, so that a moved line is found again. A line or a
test that is there no more is a failure: write the entry as they are now, or choose another mutant.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable

from .report import HERE, Verdict
from .trial import KILLED, ROOT, on_trial

KILLERS = HERE / "killers.json"
COUNT = 20
SECONDS = 30
CASE = re.compile(r"test_\w+")


def keep(verdicts: Iterable[Verdict], seed: int) -> None:
    """Write `COUNT` of the killed mutants to `killers.json`, from as many files as there are."""
    alive = [v for v in verdicts if v.outcome == KILLED and not stale(v)]
    random.Random(seed).shuffle(alive)
    by_file = {verdict.path: verdict for verdict in alive}
    entries = [vars(verdict) for verdict in sorted(by_file.values(), key=str)]
    chosen = random.Random(seed).sample(entries, min(COUNT, len(entries)))
    text = json.dumps(sorted(chosen, key=str), indent=1, ensure_ascii=False)
    KILLERS.write_text(text + "\n")


def occurs_once(verdict: Verdict) -> bool:
    """Whether the changed line occurs exactly once in the file."""
    lines = (ROOT / verdict.path).read_text().splitlines()
    return [line.strip() for line in lines].count(verdict.old) == 1


def kept() -> list[Verdict]:
    """The mutants of `killers.json`."""
    return [Verdict(**entry) for entry in json.loads(KILLERS.read_text(encoding="utf-8"))]


def stale(verdict: Verdict) -> str:
    """What of a kept mutant is no longer in the tree: its line or its killer; or nothing."""
    if not occurs_once(verdict):
        return f"{verdict.path}: no line, or more than one, is {verdict.old}"
    file, _, case = verdict.killer.partition("::")
    path, name = ROOT / file, CASE.match(case)
    if path.exists() and name and f"def {name[0]}(" in path.read_text(encoding="utf-8"):
        return ""
    return f"{verdict.path}: no test is {verdict.killer}"


def short() -> bool:
    """Run the killers of the kept mutants on them; returns whether all were killed."""
    known = kept()
    gone = [*filter(None, map(stale, known))]
    print(*gone, sep="\n", end="\n" * bool(gone))
    found = [verdict for verdict in known if not stale(verdict)]
    failing = failure(found)
    if failing:
        print(f"{failing} fails without a change")
    survivors = [verdict for verdict in found if not still_killed(verdict)]
    for verdict in survivors:
        print(f"survived {verdict.killer}: {verdict.text()}")
    print(f"{len(found) - len(survivors)} of {len(found)} mutants killed, {len(known)} kept")
    return not (gone or failing or survivors)


def failure(verdicts: list[Verdict]) -> str:
    """The first killer that fails on the unchanged files, if any."""
    killers, unchanged = [verdict.killer for verdict in verdicts], ROOT / "__init__.py"
    outcome, first = on_trial(unchanged, unchanged.read_text(), killers, SECONDS * len(killers))
    return first if outcome == KILLED else ""


def still_killed(verdict: Verdict) -> bool:
    """Whether the killer fails on the change."""
    path = ROOT / verdict.path
    source = path.read_text().replace(verdict.old, verdict.new)
    return on_trial(path, source, [verdict.killer], SECONDS)[0] == KILLED
