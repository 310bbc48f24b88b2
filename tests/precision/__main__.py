"""The command line: `cd tests && python -m precision [network ...]`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from . import __doc__ as description
from .measure import Row, rows
from .networks import ROOT, makers
from .page import line, page


def measured(names: list[str]) -> Iterator[Row]:
    """The rows of some networks, each printed as soon as it is ready."""
    for name in names:
        for row in rows(makers()[name]()):
            print(line(row), end="", flush=True)
            yield row


def main() -> None:
    """Write the page for all networks, or print the rows of some."""
    parser = argparse.ArgumentParser(
        "python -m precision", description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("networks", nargs="*", metavar="network", help="of all of them by default")
    asked = parser.parse_args().networks
    found = list(measured(asked or list(makers())))
    if not asked:
        (ROOT / "PRECISION.md").write_text(page(found), encoding="utf-8")


if __name__ == "__main__":
    main()
