"""Imports run downwards only, modes → ops → jacobians, and never in a circle."""

import ast
import importlib.util
from collections import defaultdict
from graphlib import CycleError, TopologicalSorter

import pytest

from house import FLOORS, ROOT, folders_below, imported, imports, modules, reduced, rooms, targets

MODULES = modules()
FACE = ("onnxjac", "onnxjac.__main__")  # the roof: it may use every floor, and no floor uses it


def floor(module: str) -> int:
    """The floor that a module lives on; the roof is above them all."""
    return len(FLOORS) if module in FACE else FLOORS.index(module.split(".")[1])


@pytest.fixture(scope="module")
def graph() -> dict[str, frozenset[str]]:
    return {module: imported(module) for module in MODULES}


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


def test_rooms_never_close_a_circle():
    try:
        TopologicalSorter(rooms()).prepare()
    except CycleError as error:
        pytest.fail("rooms in a circle: " + " → ".join(reversed(error.args[1])))


@pytest.mark.parametrize("floor", ["jacobians", "modes"])
def test_folders_never_close_a_circle(floor):
    """As a whole: the files directly in `modes/` count as one folder."""
    try:
        TopologicalSorter(folders_below(floor)).prepare()
    except CycleError as error:
        pytest.fail("folders in a circle: " + " → ".join(reversed(error.args[1])))


def test_readings_and_rules_never_close_a_circle():
    """What all of them use lies directly in `ops/`, and what uses several of them too."""
    inside = defaultdict(set)
    for name, others in folders_below("ops").items():
        whole = {"/".join(other.split("/")[:2]) for other in others}  # subfolders of rules/ too
        inside["/".join(name.split("/")[:2])] |= whole
    del inside["ops"]
    inside = {name: others - {name, "ops"} for name, others in inside.items()}
    try:
        TopologicalSorter(inside).prepare()
    except CycleError as error:
        pytest.fail("folders in a circle: " + " → ".join(reversed(error.args[1])))


def test_the_picture_of_the_rooms():
    drawn = (ROOT / "docs" / "images" / "rooms.svg").read_text(encoding="utf-8")
    spec = importlib.util.spec_from_file_location("rooms", ROOT / "docs" / "images" / "rooms.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert script.picture(reduced(rooms())) == drawn, "run `python docs/images/rooms.py`"


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
def test_the_reader_finds_imports(module, source, expected):
    assert imports(module, source) == expected
