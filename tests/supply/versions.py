"""The newest and the oldest promised versions, on every Python that is there.

    python -m tests.supply.versions --every 301 --write

builds the wheel and installs it into one environment for each Python and each end of the versions,
runs one of every N tests with it, and writes the table of docs/results/supply.md. The oldest are
those of tests/supply/lowest.txt. Wheels only: where one is missing, that is the result. Needs
setuptools and a package index; --python names interpreters that are not on the path.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from .artefacts import environment, install, multiply
from .distribution import ROOT, build, epoch_of_commit

PYTHONS = [f"python3.{minor}" for minor in range(11, 15)]
PACKAGES = ("onnx", "onnx-ir", "numpy", "scipy", "sympy", "onnxruntime", "distributed")
ENDS = {"newest": (), "oldest": ("-c", str(ROOT / "tests" / "supply" / "lowest.txt"))}
ROOMS = ("jacobians", "ops", "modes", "model", "linear/products", "sparsity")
PAGE = ROOT / "docs" / "results" / "supply.md"
TABLE = re.compile(r"(?<=<!-- versions -->\n).*?(?=<!-- /versions -->)", re.S)
SUMMARY = re.compile(r"\d+ (?:passed|failed|error).*?(?=, \d+ deselected| in )")

OF_ENVIRONMENT = """
import sys
from importlib.metadata import version
print(sys.version.split()[0], *map(version, sys.argv[1:]))
"""


@dataclass(frozen=True)
class Outcome:
    """What one environment had, and what its tests said."""

    end: str
    versions: tuple[str, ...]
    said: str

    @property
    def row(self) -> str:
        held = self.versions + ("",) * (1 + len(PACKAGES) - len(self.versions))
        return f"| {self.end} | {' | '.join(held)} | {self.said} |"


def outcome(python: str, end: str, wheel: Path, every: int) -> Outcome:
    """A sample of the suite with the versions of one end on one Python."""
    with TemporaryDirectory() as folder:
        inside = environment(python, Path(folder) / "venv")
        try:
            install(inside, "--only-binary=:all:", *ENDS[end], f"{wheel}[runtime,distributed]",
                    "pytest", "hypothesis")  # fmt: skip
        except subprocess.CalledProcessError:
            said = subprocess.run([inside, "-V"], capture_output=True, text=True, check=True)
            return Outcome(end, (said.stdout.split()[1],), "there is no wheel of one of them")
        subprocess.run([inside, "-m", "pip", "check"], check=True)
        asked = [inside, "-c", OF_ENVIRONMENT, *PACKAGES]
        said = subprocess.run(asked, capture_output=True, text=True, check=True)
        versions = tuple(said.stdout.split())
        try:
            multiply(inside, folder)
        except subprocess.CalledProcessError:
            return Outcome(end, versions, "error: no product")
        return Outcome(end, versions, sample(inside, every))


def sample(python: Path, every: int) -> str:
    """What pytest says of one of every N tests, with the package that is installed."""
    paths = os.pathsep.join(str(ROOT / name) for name in ("tests", "tests/suite"))
    run = subprocess.run(
        [python.with_name("pytest"), "-q", "-p", "no:cacheprovider", "-p", "supply.every",
         "--every", str(every), "-m", "not peers", *(f"tests/suite/{room}" for room in ROOMS)],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True,
    )  # fmt: skip
    found = SUMMARY.search(run.stdout.splitlines()[-1]) if run.stdout else None
    if found is None or run.returncode:
        sys.stderr.write(run.stdout[-4000:] + run.stderr[-4000:])
    return found[0] if found else "the tests do not start"


def outcomes(pythons: Sequence[str], every: int) -> Iterator[Outcome]:
    """One outcome for each Python and each end."""
    with TemporaryDirectory() as folder:
        _, wheel = build(Path(folder), epoch_of_commit())
        for python in pythons:
            for end in ENDS:
                yield outcome(python, end, wheel, every)


def table(rows: Sequence[Outcome]) -> str:
    """The rows as a table of Markdown."""
    head = f"| | Python | {' | '.join(PACKAGES)} | of the tests |"
    return "\n".join([head, "|---" * (3 + len(PACKAGES)) + "|", *(row.row for row in rows), ""])


def main(given: Sequence[str] | None = None) -> int:
    """Try them and print the table; 1 where a test failed."""
    parser = ArgumentParser("python -m tests.supply.versions", description=__doc__)
    add = parser.add_argument
    add("--python", nargs="+", default=[], metavar="PATH", help="interpreters (3.11 to 3.14)")
    add("--every", type=int, default=101, metavar="N", help="run every N-th test (101)")
    add("--write", action="store_true", help="write the table into docs/results/supply.md")
    asked = parser.parse_args(given)
    pythons = asked.python or [found for name in PYTHONS if (found := shutil.which(name))]
    rows = []
    for row in outcomes(pythons, asked.every):
        print(row.row, flush=True)
        rows.append(row)
    if asked.write:
        text = TABLE.sub(lambda _: table(rows), PAGE.read_text(encoding="utf-8"))
        PAGE.write_text(text, encoding="utf-8")
    return int(any("failed" in row.said or "error" in row.said for row in rows))


if __name__ == "__main__":
    sys.exit(main())
