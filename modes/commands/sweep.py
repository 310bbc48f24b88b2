"""`onnxjac sweep`: ONNX's own cases, differentiated and checked."""

from __future__ import annotations

import argparse
import os
import re

from ...jacobians.progress import counting
from ..support.save import save_text
from ..verify.sweep import Shard, chosen, page, records, sweep
from .command import Command
from .options import output, positive
from .output import Output


def shard(argument: str) -> Shard:
    """`2/4` → (2, 4): the second of four parts.

    >>> shard("2/4")
    (2, 4)
    """
    found = re.fullmatch(r"(\d+)/(\d+)", argument)
    if found is None or not 1 <= int(found[1]) <= int(found[2]):
        raise argparse.ArgumentTypeError(f"{argument!r} is not like 1/4, 2/4, 3/4, 4/4")
    return int(found[1]), int(found[2])


def run(args: argparse.Namespace, out: Output) -> bool:
    """Every case, as a page; not well where one fails."""
    positions = chosen(args.op, args.shard)
    with counting("sweep", "cases", len(positions)) as tick:
        results = sweep(positions, args.jobs, tick)
    text, cases = page(results), records(results)
    if args.output is None:
        out.tell(text, file=None, cases=cases)
    else:
        save_text(text, args.output)
        out.wrote(args.output, f"{len(results)} cases", cases=cases)
    return not any(result.failed for result in results)


SWEEP = Command(
    "sweep",
    "differentiate and check every case that ONNX ships for its operators",
    run,
    {
        "--op": {"nargs": "+", "default": [], "metavar": "NAME",
                 "help": "of these operators only"},
        "--shard": {"type": shard, "default": (1, 1), "metavar": "K/N",
                    "help": "part K of N parts"},
        "--jobs": {"type": positive, "default": os.cpu_count() or 1, "metavar": "N",
                   "help": "processes (all cores)"},
        **output("FILE.md", "where to write the page, instead of stdout", required=False),
    },
    ("--op Softmax Resize", "-o SWEEP.md", "--shard 1/4 --jobs 2 --json"),
    {"file": "the page that was written, or null",
     "cases": "a list with an object for each case: name, operator, tag, the errors of its checks "
              "over those allowed, which failed"},
)  # fmt: skip
