"""The command line: `python -m tests.fuzz --count 1000`, from the root of the repository."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from . import __doc__ as description
from .corpus import corpus
from .mutate import mutant
from .report import Tally
from .workers import outcomes


def arguments() -> argparse.Namespace:
    """The parsed command line."""
    parser = argparse.ArgumentParser(
        "python -m tests.fuzz", description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    add = parser.add_argument
    add("--count", type=int, default=1000, help="trials (1000)")
    add("--seconds", type=float, default=float("inf"), help="begin no trial after so many seconds")
    add("--seed", type=int, default=0, help="of all that is random (0)")
    add("--first", type=int, default=0, help="number of the first trial (0)")
    add("--jobs", type=int, default=2, help="processes (2)")
    add("--keep", type=Path, help="a folder for the models of the findings")
    add("--markdown", type=Path, help="add the run to this page of results")
    return parser.parse_args()


def numbers(asked: argparse.Namespace, start: float) -> Iterator[int]:
    """The numbers of the trials, until the time is up."""
    for number in count(asked.first):
        late = time.monotonic() - start > asked.seconds
        if late or number >= asked.first + asked.count:
            return
        yield number


def main() -> int:
    """Run the trials, print and write the results; returns 1 if there was a finding."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # ends the workers as well
    asked, seeds = arguments(), corpus()
    start, tally = time.monotonic(), Tally(asked.seed)
    for number, verdict in outcomes(seeds, asked.seed, numbers(asked, start), asked.jobs):
        tally.add(number, verdict)
        if verdict.kind == "finding":
            made = mutant(seeds, asked.seed, number)
            changes = ", ".join(made.changes)
            print(f"{number}: {made.origin} ({changes}): {verdict.text}", flush=True)
            if asked.keep:
                asked.keep.mkdir(parents=True, exist_ok=True)
                (asked.keep / f"{asked.seed}-{number}.onnx").write_bytes(made.data)
    print(tally.line(time.monotonic() - start))
    if asked.markdown:
        tally.write(asked.markdown, time.monotonic() - start)
    return 1 if tally.findings else 0


if __name__ == "__main__":
    sys.exit(main())
