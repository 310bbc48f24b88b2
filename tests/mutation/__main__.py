"""The command line: `python -m tests.mutation`, from the root of the repository."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from . import __doc__ as description
from .report import FOLDERS, PAGES, Drawn, Verdict, page
from .short import keep, short
from .trial import KILLED, ROOT, SURVIVED, TIMEOUT, on_trial, prepare

if TYPE_CHECKING:
    from .choice import Tests
    from .mutants import Mutant

TESTS = {
    "rules": "jacobians ops test_doctests.py modes model linear verify sparsity",
    "modes": (
        "jets implicit estimators linear curvature solvers sparsity model data resume training "
        "preconditioners show modes interop errors ranks distributed hostile test_doctests.py"
    ),
}
"""The rooms of the suite that are asked, by the scope."""

ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def arguments() -> argparse.Namespace:
    """The parsed command line."""
    parser = argparse.ArgumentParser(
        "python -m tests.mutation", description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    add = parser.add_argument
    add("--short", action="store_true", help="only the kept mutants, each before its killer")
    add("--scope", choices=FOLDERS, default="rules", help="jacobians/ and ops/, or modes/")
    add("--map", type=Path, help="the folder of the map; alone: make what is missing of it")
    add("--cases", type=int, default=0, metavar="N", help="map N cases of a test function (all)")
    add("--sample", type=int, default=0, help="how many mutants")
    add("--seed", type=int, default=0)
    add("--budget", type=float, default=40, help="seconds of tests that a mutant must survive")
    add("--part", default="0/1", help="i/n: every n-th mutant of the sample, from the i-th")
    add("--page", action="store_true", help="write the page and killers.json of what was judged")
    return parser.parse_args()


def measure(folder: Path, scope: str, cases: int) -> None:
    """Run the tests under coverage once, in parts, and record which test runs which line.

    The examples in docstrings are cases of one function: of these, all are run.
    """
    folder.mkdir(parents=True, exist_ok=True)
    included = ",".join(f"{ROOT}/{name}/*" for name in FOLDERS[scope])
    for name in TESTS[scope].split():
        tests = f"tests/suite/{name}"
        data = folder / f"{Path(tests).stem}.coverage"
        if data.with_suffix(".json").exists():
            continue
        subprocess.run(
            [sys.executable, "-m", "coverage", "run", f"--include={included}", "-m", "pytest", "-q",
             "-p", "no:cacheprovider", "-p", "mutation.contexts", "-m", "not peers",
             "--cases", str(0 if name.endswith(".py") else cases),
             "--durations-file", data.with_suffix(".json"), tests],
            env=os.environ | {"COVERAGE_FILE": str(data), "PYTHONPATH": f"{ROOT}/tests:{ROOT}/.ci"},
            cwd=ROOT, check=False,
        )  # fmt: skip


def judge(options: argparse.Namespace) -> None:
    """Test the sample, one mutant after the other; retry survivors after tests were added."""
    from .choice import Tests  # needs the extra
    from .mutants import sample

    index, count = map(int, options.part.split("/"))
    tests = Tests(options.map)
    asked = f"{len(tests.seconds)} tests, {options.budget:g} s"
    store = options.map / f"verdicts-{options.seed}.jsonl"
    known = verdicts(store)
    chosen = sample(options.sample, options.seed, options.scope)[index::count]
    for mutant in sorted(chosen, key=lambda mutant: mutant.key() in known):
        before = known.get(mutant.key(), {"outcome": SURVIVED})
        if before["outcome"] == SURVIVED and before.get("asked") != asked:
            verdict = trial(mutant, tests, options.budget)
            print(verdict.outcome, verdict.text(), verdict.killer, flush=True)
            with store.open("a") as file:
                entry = {"key": mutant.key(), "asked": asked, **vars(verdict)}
                file.write(json.dumps(entry) + "\n")


def write(options: argparse.Namespace) -> None:
    """Write the page of the scope, and for rules killers.json, from the verdicts so far."""
    from .choice import Tests
    from .mutants import sample

    entries = verdicts(options.map / f"verdicts-{options.seed}.jsonl").values()
    names = [field.name for field in fields(Verdict)]
    found = [Verdict(**{name: entry[name] for name in names}) for entry in entries]
    count = len(sample(options.sample, options.seed, options.scope))
    seconds = [float(entry["asked"].split()[-2]) for entry in entries if "asked" in entry]
    drawn = Drawn(count, options.seed, seconds, Tests(options.map).folders())
    PAGES[options.scope].write_text(page(found, drawn, options.scope))
    if options.scope == "rules":
        keep(found, options.seed)


def verdicts(store: Path) -> dict[str, dict]:
    """The last verdict on each mutant."""
    lines = store.read_text().splitlines() if store.exists() else []
    return {entry["key"]: entry for entry in map(json.loads, lines)}


def trial(mutant: Mutant, tests: Tests, budget: float) -> Verdict:
    """The verdict on a mutant: a quick round of tests, then, if it survives, all that run the line.

    A killer must also fail when run alone: a test that shares a random generator with other tests
    may fail because of their order, whatever the mutant.
    """
    path, source, outcome, killer = ROOT / mutant.path, mutant.source(), SURVIVED, ""
    for chosen in tests.near(mutant, budget):
        while outcome == SURVIVED and chosen:
            seconds = int(30 + 5 * sum(tests.seconds[test] for test in chosen))
            found, killer = on_trial(path, source, chosen, seconds)
            if found == SURVIVED:
                break
            if found == TIMEOUT or killer not in chosen:
                outcome = found
            elif killer != chosen[0] and on_trial(path, source, [killer], seconds)[0] == SURVIVED:
                chosen.remove(killer)
            else:
                outcome = found
    return Verdict(
        mutant.path, mutant.line, *mutant.change(), outcome, killer * (outcome == KILLED)
    )


def main() -> int:
    """Run what was asked for; the exit status is 1 where a kept mutant survives."""
    options = arguments()
    os.environ.update(ONE_THREAD)
    if options.short:
        prepare()
        return 0 if short() else 1
    if options.page:
        write(options)
    elif options.sample:
        prepare()
        judge(options)
    else:
        measure(options.map, options.scope, options.cases)
    return 0


if __name__ == "__main__":
    sys.exit(main())
