"""The command line: `cd tests && python -m precision [network ... | operators]`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from . import __doc__ as description
from .measure import Row, rows
from .networks import ROOT, makers
from .page import OPERATORS, line, operators, page


def measured(names: list[str]) -> Iterator[Row]:
    """The rows of some networks, each printed as soon as it is ready."""
    for name in names:
        for row in rows(makers()[name]()):
            print(line(row), end="", flush=True)
            yield row


def main() -> None:
    """Write the page, or its section on operators, or print the rows of some networks."""
    parser = argparse.ArgumentParser(
        "python -m precision", description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("networks", nargs="*", metavar="network",
                        help="by default all; `operators` writes their section alone")  # fmt: skip
    asked, file = parser.parse_args().networks, ROOT / "docs/results/precision.md"
    if asked == ["operators"]:
        text = file.read_text(encoding="utf-8").partition(OPERATORS)[0].rstrip("\n")
        file.write_text(f"{text}\n\n{operators()}", encoding="utf-8")
        return
    found = list(measured(asked or list(makers())))
    if not asked:
        file.write_text(page(found), encoding="utf-8")


if __name__ == "__main__":
    main()
