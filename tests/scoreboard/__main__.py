"""The command line: `python -m tests.scoreboard --only Det`, or `-o docs/results` for the pages."""

from __future__ import annotations

import os
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path

from . import __doc__ as description
from .page import every_row, page
from .rows import sweep

SETTINGS = {
    # programs of few entries run once: compiling them is the cost
    "XLA_FLAGS": "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true",
    "TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0",
}  # fmt: skip
"""Settings of other libraries."""


def main(given: Sequence[str] | None = None) -> None:
    """Write the pages, or print them."""
    parser = ArgumentParser("python -m tests.scoreboard", description=description)
    parser.add_argument("-o", "--output", type=Path, metavar="FOLDER", help="where to write them")
    parser.add_argument("--only", default="", metavar="OPERATOR", help="of one operator")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (all)")
    asked = parser.parse_args(given)
    for name, value in SETTINGS.items():  # before a library reads them
        os.environ.setdefault(name, value)
    rows = list(sweep(asked.only, asked.jobs))
    for name, text in {"scoreboard.md": page(rows), "scoreboard-rows.md": every_row(rows)}.items():
        if asked.output:
            (asked.output / name).write_text(text, encoding="utf-8")
        else:
            print(text)


if __name__ == "__main__":
    main()
