"""The artefacts of a release: built, checked, installed and run; nothing is uploaded.

    python -m tests.supply.artefacts dist

builds the sdist and the wheel into a folder, has twine check both, installs each into a fresh
environment and multiplies once. Needs setuptools and twine, and a package index.
"""

from __future__ import annotations

import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from .distribution import ROOT, build, epoch_of_commit

PRODUCT = ROOT / "tests" / "supply" / "product.py"


def environment(python: str | Path, folder: Path) -> Path:
    """The interpreter of a fresh environment in a folder."""
    subprocess.run([python, "-m", "venv", folder], check=True)
    return folder / ("Scripts" if sys.platform == "win32" else "bin") / "python"


def install(python: Path, *words: str | Path) -> None:
    """Have pip install packages; the words are its own."""
    subprocess.run([python, "-m", "pip", "install", "-q", *words], check=True)


def check(artefacts: Sequence[Path]) -> None:
    """What the package index would refuse is an error."""
    subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *artefacts], check=True)


def multiply(python: Path, folder: str) -> None:
    """One product, isolated: neither the folder nor PYTHONPATH leads to the checkout."""
    subprocess.run([python, "-I", PRODUCT], check=True, cwd=folder)


def main(given: Sequence[str] | None = None) -> None:
    """Build, check, install and run."""
    parser = ArgumentParser("python -m tests.supply.artefacts", description=__doc__)
    parser.add_argument("output", type=Path, help="the folder for the sdist and the wheel")
    output: Path = parser.parse_args(given).output
    output.mkdir(parents=True, exist_ok=True)
    artefacts = build(output, epoch_of_commit())
    check(artefacts)
    for artefact in artefacts:
        with TemporaryDirectory() as folder:
            python = environment(sys.executable, Path(folder) / "venv")
            install(python, artefact)
            multiply(python, folder)


if __name__ == "__main__":
    main()
