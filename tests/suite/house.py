"""The package as a set of source files, for tests of the repository layout."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FLOORS = ("jacobians", "ops", "modes")  # from the bottom up: imports run downwards only


def folders() -> Iterator[Path]:
    """The root and every folder of the three floors that holds Python files."""
    yield ROOT
    for floor in FLOORS:
        yield from sorted({path.parent for path in (ROOT / floor).rglob("*.py")})


@cache
def modules() -> dict[str, Path]:
    """Dotted name -> file, for every module of the package: `onnxjac.ops` is ops/__init__.py."""
    files = [path for folder in folders() for path in sorted(folder.glob("*.py"))]
    return {name(path): path for path in files}


def name(path: Path) -> str:
    """The dotted name of a file of the package."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(("onnxjac", *parts)).removesuffix(".__init__")


@cache
def imported(module: str) -> frozenset[str]:
    """The modules of the package that a module of it imports."""
    return frozenset(imports(module, modules()[module].read_text()))


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
    is_package = module in modules() and modules()[module].name == "__init__.py"
    parts = module.split(".")
    return parts[: len(parts) - level + is_package]


def owner(target: str) -> str:
    """The module that a dotted name is, or is in."""
    while target not in modules() and "." in target:
        target = target.rpartition(".")[0]
    return target


def room(module: str) -> str:
    """The folder of `modes/` that a module is in, a file directly in `modes/`, or another floor.

    >>> room("onnxjac.modes.linear.check"), room("onnxjac.modes.hessian"), room("onnxjac.ops.node")
    ('linear/', 'hessian', 'ops/')
    """
    _, floor, *inside = module.split(".")
    if floor != "modes":
        return f"{floor}/"
    folder = len(inside) > 1 or (ROOT / floor / inside[0]).is_dir()
    return f"{inside[0]}/" if folder else inside[0]


def rooms() -> dict[str, set[str]]:
    """Room -> the other rooms that it imports, for all modules but the public faces."""
    faces = "onnxjac", "onnxjac.__main__", "onnxjac.modes"
    found: dict[str, set[str]] = {}
    for module in modules():
        if module not in faces:
            targets = imported(module).difference(faces)
            found.setdefault(room(module), set()).update(map(room, targets))
    return {name: others - {name} for name, others in found.items()}


def folders_below(floor: str) -> dict[str, set[str]]:
    """Folder -> the other folders that its files import, on one floor, subfolders apart."""
    found: dict[str, set[str]] = {}
    for module, path in modules().items():
        if ROOT / floor in path.parents:
            targets = imported(module) & modules().keys()
            folder, others = path.parent, {modules()[target].parent for target in targets}
            inside = {f for f in others - {folder} if ROOT / floor in (f, *f.parents)}
            found.setdefault(str(folder.relative_to(ROOT)), set()).update(
                str(f.relative_to(ROOT)) for f in inside
            )
    return found


def reduced(below: dict[str, set[str]]) -> dict[str, set[str]]:
    """The graph without edges that longer paths imply.

    >>> reduced({"c": {"a", "b"}, "b": {"a"}, "a": set()})
    {'c': {'b'}, 'b': {'a'}, 'a': set()}
    """
    known: dict[str, set[str]] = {}

    def reach(name: str) -> set[str]:
        if name not in known:
            known[name] = below[name].union(*map(reach, below[name]))
        return known[name]

    return {
        name: {x for x in others if not any(x in reach(y) for y in others)}
        for name, others in below.items()
    }
