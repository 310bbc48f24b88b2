"""The package as a set of source files: what the tests of the house itself read."""

from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FLOORS = ("jacobians", "ops", "modes")  # from the bottom up: imports run downwards only


def folders() -> Iterator[Path]:
    """The root and every folder of the three floors that holds Python files."""
    yield ROOT
    for floor in FLOORS:
        yield from sorted({path.parent for path in (ROOT / floor).rglob("*.py")})


def modules() -> dict[str, Path]:
    """Dotted name -> file, for every module of the package: `onnxjac.ops` is ops/__init__.py."""
    files = [path for folder in folders() for path in sorted(folder.glob("*.py"))]
    return {name(path): path for path in files}


def name(path: Path) -> str:
    """The dotted name of a file of the package."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(("onnxjac", *parts)).removesuffix(".__init__")
