"""The command line: `python -m tests.sweep --op Softmax Resize`.

`-o docs/results/sweep.md` writes the page.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from . import __doc__ as description
from .cases import all_cases
from .examine import Result, examine
from .page import page, records

Shard = tuple[int, int]
"""(k, n): every n-th case from the k-th on, k = 1 … n."""


def chosen(operators: Sequence[str], shard: Shard = (1, 1)) -> list[int]:
    """The positions of the cases of some operators, or of all, in a shard."""
    if unknown := set(operators) - {case.op_type for case in all_cases()}:
        raise SystemExit(f"ONNX has no case of {', '.join(sorted(unknown))}")
    held = [k for k, case in enumerate(all_cases()) if not operators or case.op_type in operators]
    return held[shard[0] - 1 :: shard[1]]


def sweep(positions: Sequence[int], jobs: int) -> Iterator[Result]:
    """The results of some cases, one at a time in their order, from one process or several."""
    jobs = min(jobs, len(positions) // 32)
    if jobs < 2:
        yield from map(examine_at, positions)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        yield from pool.map(examine_at, positions, chunksize=8)


def examine_at(position: int) -> Result:
    """The case at a position, examined."""
    return examine(all_cases()[position])


def shard(text: str) -> Shard:
    """`2/4` → (2, 4): the second of four parts."""
    k, n = map(int, text.split("/"))
    if not 1 <= k <= n:
        raise ValueError
    return k, n


def main(given: Sequence[str] | None = None) -> int:
    """Examine the cases and write the page; 1 where a check of a case failed."""
    parser = argparse.ArgumentParser("python -m tests.sweep", description=description)
    add = parser.add_argument
    add("--op", nargs="+", default=[], metavar="NAME", help="of these operators only")
    add("--shard", type=shard, default=(1, 1), metavar="K/N", help="part K of N parts")
    add("--jobs", type=int, default=os.cpu_count() or 1, help="processes (all cores)")
    add("--json", action="store_true", help="a list with an object for each case, not the page")
    add("-o", "--output", metavar="FILE.md", help="where to write it, instead of stdout")
    asked = parser.parse_args(given)
    results = list(sweep(chosen(asked.op, asked.shard), asked.jobs))
    text = json.dumps(records(results), indent=1) + "\n" if asked.json else page(results)
    if asked.output:
        Path(asked.output).write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)
    return int(any(result.failed for result in results))


if __name__ == "__main__":
    sys.exit(main())
