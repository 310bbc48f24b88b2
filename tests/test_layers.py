"""Imports run downwards only, modes → ops → jacobians, and never in a circle."""

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter

import pytest

from house import FLOORS, ROOT, modules

MODULES = modules()
FACE = ("onnxjac", "onnxjac.__main__")  # the roof: it may use every floor, and no floor uses it


def imports(module: str, source: str) -> set[str]:
    """The modules of the package that the source of a module imports, wherever it does so.

    >>> sorted(imports("onnxjac.ops.node", "from . import registry; import numpy"))
    ['onnxjac.ops.registry']
    >>> sorted(imports("onnxjac.ops.node", "def f(): from ..jacobians.base import Jacobian"))
    ['onnxjac.jacobians.base']
    """
    nodes = ast.walk(ast.parse(source))
    named = {target for node in nodes for target in targets(module, node)}
    return {owner(target) for target in named if target.split(".")[0] == "onnxjac"}


def targets(module: str, node: ast.AST) -> Iterator[str]:
    """The dotted names, of modules or of things in them, that one statement imports."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    if isinstance(node, ast.ImportFrom):
        base = [*package(module, node.level), *filter(None, [node.module])]
        yield from (".".join([*base, alias.name]) for alias in node.names)


def package(module: str, level: int) -> list[str]:
    """The parts of the package that `level` dots mean inside a module; none for no dots."""
    if level == 0:
        return []
    is_package = module in MODULES and MODULES[module].name == "__init__.py"
    parts = module.split(".")
    return parts[: len(parts) - level + is_package]


def owner(target: str) -> str:
    """The module that a dotted name is, or is in."""
    while target not in MODULES and "." in target:
        target = target.rpartition(".")[0]
    return target


def floor(module: str) -> int:
    """The floor that a module lives on; the roof is above them all."""
    return len(FLOORS) if module in FACE else FLOORS.index(module.split(".")[1])


@pytest.fixture(scope="module")
def graph() -> dict[str, set[str]]:
    return {module: imports(module, path.read_text()) for module, path in MODULES.items()}


def test_imports_run_downwards(graph):
    upward = [
        f"{module} imports {target}"
        for module, found in graph.items()
        for target in found
        if floor(target) > floor(module)
    ]
    assert not upward


def test_imports_never_close_a_circle(graph):
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail("imports in a circle: " + " → ".join(reversed(error.args[1])))


def room(module: str) -> str:
    """The folder of `modes/` that a module is in; a module above the rooms is one of its own."""
    parts = module.split(".")
    inside = parts[1:2] == ["modes"] and len(parts) > 2
    return ".".join(parts[:3] if inside else parts[:2])


def test_rooms_never_close_a_circle(graph):
    rooms: dict[str, set[str]] = {}
    for module, found in graph.items():
        if floor(module) == FLOORS.index("modes"):
            others = rooms.setdefault(room(module), set())
            others |= {room(target) for target in found} - {room(module)}
    try:
        TopologicalSorter(rooms).prepare()
    except CycleError as error:
        pytest.fail("rooms in a circle: " + " → ".join(reversed(error.args[1])))


def test_imports_inside_the_package_are_relative():
    for module, path in MODULES.items():
        for node in ast.walk(ast.parse(path.read_text())):
            absolute = isinstance(node, ast.Import) or getattr(node, "level", 1) == 0
            named = targets(module, node) if absolute else ()
            assert not [t for t in named if t.split(".")[0] == "onnxjac"], path.relative_to(ROOT)


@pytest.mark.parametrize(
    ("module", "source", "expected"),
    [
        ("onnxjac.ops.new", "from ..modes import zork", {"onnxjac.modes"}),
        ("onnxjac.ops", "from . import zork", {"onnxjac.ops"}),
        ("onnxjac.ops.numbers", "from .. import zork", {"onnxjac.ops"}),
        ("onnxjac.ops.new", "import onnxjac.modes", {"onnxjac.modes"}),
        ("onnxjac.modes.new", "if 1:\n  from ..jacobians import base", {"onnxjac.jacobians.base"}),
        ("onnxjac.ops.new", "import onnx, numpy", set()),
    ],
)
def test_the_reader_of_imports(module, source, expected):
    assert imports(module, source) == expected
