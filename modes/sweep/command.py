"""`onnxjac sweep`: ONNX's own cases, differentiated and checked."""

from __future__ import annotations

import argparse
import os
import re
import sys
from pathlib import Path
from typing import Any

from ...jacobians.errors import InputError
from ..reporting.progress import counting
from .run import Shard, chosen, sweep
from .table import as_json, page


def shard(argument: str) -> Shard:
    """`2/4` → (2, 4): the second of four parts.

    >>> shard("2/4")
    (2, 4)
    """
    found = re.fullmatch(r"(\d+)/(\d+)", argument)
    if found is None or not 1 <= int(found[1]) <= int(found[2]):
        raise argparse.ArgumentTypeError(f"{argument!r} is not like 1/4, 2/4, 3/4, 4/4")
    return int(found[1]), int(found[2])


ARGUMENTS: dict[str, dict[str, Any]] = {
    "--op": {"nargs": "+", "default": [], "metavar": "NAME", "help": "of these operators only"},
    "--shard": {"type": shard, "default": (1, 1), "metavar": "K/N", "help": "part K of N parts"},
    "--jobs": {"type": int, "default": os.cpu_count() or 1, "help": "processes (all cores)"},
    "--json": {"action": "store_true", "help": "one object a case, instead of the page"},
    "-o --output": {"metavar": "FILE", "help": "where to write, instead of standard output"},
}


def run(args: argparse.Namespace) -> int:
    """Sweep; 1 where a case fails."""
    positions = chosen(args.op, args.shard)
    with counting("sweep", "cases", sys.stderr) as tick:
        results = sweep(positions, args.jobs, tick)
    text = as_json(results) if args.json else page(results)
    if args.output is None:
        print(text)
    else:
        write(Path(args.output), text)
    return int(any(result.failed for result in results))


def write(path: Path, text: str) -> None:
    """The text as a file."""
    try:
        path.write_text(text.rstrip() + "\n", encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot write {str(path)!r}: {error.strerror or error}") from error
