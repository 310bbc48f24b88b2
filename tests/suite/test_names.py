"""A public helper has a name of its own: no other room defines the same one."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import PurePath

from onnx import defs

import onnxjac.jacobians
from house import ROOT
from onnxjac.ops.registry import DECLARATIONS

READINGS = {"ops/numbers", "ops/torch", "ops/jax", "ops/symbols", "ops/graphs"}
"""Rooms that are parallel by design: each has its own helper of one name for one thing."""

BY_OPERATOR = READINGS | {
    "ops/rules", "ops/rules/contrib", "ops/formulas.py", "modes/verify/transcriptions.py",
    "modes/recording/fission.py", "modes/model/flow/control.py",
}  # fmt: skip
"""Rooms and files whose functions may have the name of the operator that they declare or run."""

ALLOWED = {
    "grad": "the public function, over one point and over data",
    "value_and_grad": "the public function, over one point and over data",
    "host": "what `jacobians.readings.host` asks the reading of PyTorch's tensors for",
    "inverse": "a public function, and an operator of com.microsoft",
    "size": "of a shape, everywhere; and the operator",
}  # fmt: skip
"""name -> why two rooms have it."""


def definitions() -> dict[str, set[str]]:
    """Public module-level functions and classes, with the files that define them."""
    found = defaultdict(set)
    for floor in ("jacobians", "ops", "modes"):
        for path in ROOT.joinpath(floor).rglob("*.py"):
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name[0] != "_":
                    found[node.name].add(path.relative_to(ROOT).as_posix())
    return found


def operators() -> set[str]:
    """The names of all operators, as functions may have them."""
    names = {schema.name for schema in defs.get_all_schemas_with_history()}
    return {plain(name.removesuffix("Loss"))
            for name in names | {op_type for op_type, _ in DECLARATIONS}}  # fmt: skip


def plain(name: str) -> str:
    """A name without what snake case changes."""
    return name.lower().replace("_", "")


def rooms_of(name: str, files: set[str], known: set[str]) -> set[str]:
    """The rooms that define a name, those that are parallel by design as one."""
    rooms = set()
    for file in files:
        room = PurePath(file).parent.as_posix()
        by_operator = plain(name) in known and not BY_OPERATOR.isdisjoint((file, room))
        rooms.add("operators" if by_operator else "readings" if room in READINGS else room)
    return rooms


def test_no_name_is_defined_in_two_rooms():
    known = operators()
    twice = {name: sorted(files) for name, files in definitions().items()
             if len(rooms_of(name, files, known)) > 1}  # fmt: skip
    lines = [f"{name}: {', '.join(files)}" for name, files in sorted(twice.items())
             if name not in ALLOWED]  # fmt: skip
    assert not lines, "\n".join(["name each by verb and noun:", *lines])
    gone = ALLOWED.keys() - twice.keys()
    assert not gone, f"no longer in two rooms: {', '.join(sorted(gone))}"


VAGUE = {
    "ALL", "APART", "BIG", "DENSE", "EMPTY", "ENOUGH", "FAR", "FEW", "FEWEST", "KEPT", "LARGE",
    "LARGEST", "LEAST", "LIMIT", "LONG", "LONGER", "LONGEST", "MANY", "MOST", "NEAR", "PART",
    "READ", "READABLE", "SHARED", "SHORT", "SIMPLE", "SINGLE", "SMALL", "SMALLEST", "STEEP",
    "SURE", "THIN", "TINY", "WORK",
}  # fmt: skip
"""Words that do not say what is counted, and in which unit."""


def constants() -> dict[str, set[str]]:
    """The constants of the package that are numbers, with the files that define them."""
    found = defaultdict(set)
    for floor in ("jacobians", "ops", "modes"):
        for path in ROOT.joinpath(floor).rglob("*.py"):
            for node in ast.parse(path.read_text()).body:
                targets = node.targets if isinstance(node, ast.Assign) else []
                for name in (t.id for t in targets if isinstance(t, ast.Name)):
                    if name.isupper() and is_number(node.value):
                        found[name].add(path.relative_to(ROOT).as_posix())
    return found


def is_number(node: ast.expr) -> bool:
    """Whether an expression consists of numbers."""
    if isinstance(node, ast.BinOp):
        return is_number(node.left) and is_number(node.right)
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float)


def test_a_number_is_named_by_what_it_counts_once():
    for name, files in sorted(constants().items()):
        assert name not in VAGUE, f"{name} of what, in which unit? {files}"
        assert len(files) == 1, f"{name} has several meanings: {files}"


def signatures(tree: ast.Module) -> Iterator[tuple[str, str, str]]:
    """The functions with the annotations of their parameters and results, each by its name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            parameters = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
            said = [(a.arg, a.annotation) for a in parameters] + [("return", node.returns)]
            yield from ((node.name, name, ast.unparse(kind)) for name, kind in said if kind)


def is_operator(node: ast.stmt) -> bool:
    """Whether this is the class of an operator of `jacobians`."""
    return isinstance(node, ast.ClassDef) and issubclass(
        getattr(onnxjac.jacobians, node.name, object), onnxjac.jacobians.Jacobian
    )


OF_OTHERS = {
    ("__getitem__", "key"): "whatever NumPy takes as an index",
    ("inverse", "preconditioner"): "an operator or a function of any library",
    ("to", "device"): "PyTorch's",
    ("tosparse", "out"): "one of SciPy's seven formats",
    ("tosparse", "return"): "one of SciPy's seven formats",
}  # fmt: skip
"""A method and its parameter -> what other libraries' types it takes."""


def test_rules_and_operators_say_what_they_take():
    """`Array`, `Shape`, `Op`, `Number` and so on; `Any` is left for attributes passed on."""
    rules = [ast.parse(path.read_text()) for path in (ROOT / "ops" / "rules").rglob("*.py")]
    trees = [ast.parse(path.read_text()) for path in (ROOT / "jacobians").glob("*.py")]
    operators = [node for tree in trees for node in tree.body if is_operator(node)]
    assert len(operators) >= 25
    found = [said for tree in (*rules, *operators) for said in signatures(tree)]
    unsaid = {said for said in found if said[2] == "Any"}
    assert {said[:2] for said in unsaid} <= OF_OTHERS.keys()
