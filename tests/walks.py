"""What a walk through the package enters: its files, and the types whose methods run.

`python -m tests.walks` writes the table into docs/explanation/architecture.md; `--print` prints the
page instead.
"""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx.parser

import onnxjac as oj

PAGE = Path(__file__).parents[1] / "docs" / "explanation" / "architecture.md"
START, END = "<!-- walks -->\n", "<!-- end of walks -->\n"
ROOT = Path(oj.__file__).resolve().parent
OWN = str(Path(__file__).resolve().relative_to(ROOT))

HEAD = '<ir_version: 10, opset_import: ["": 21]>'

LAYERS = """net (float[4,3] x, float[3,5] W, float[5,2] V) => (float[4,2] y, float loss) {
    h = MatMul(x, W) a = Tanh(h) y = MatMul(a, V) loss = ReduceSumSquare<keepdims=0>(y) }"""

LOOP = """net (float[3] x) => (float[3] y) <int64 n = {60}, bool go = {1}> {
    y = Loop(n, go, x) <body = turn (int64 i, bool c, float[3] s) => (bool d, float[3] r) {
        d = Identity(c) r = Sin(s) }> }"""


class Entered(NamedTuple):
    """The files and the types that a walk enters."""

    walk: str
    files: frozenset[str]
    types: frozenset[str]

    @property
    def row(self) -> str:
        names = ", ".join(sorted(self.types))
        return f"| {self.walk} | {len(self.files)} | {len(self.types)}: {names} |"


def entered(walk: Callable[[], Any]) -> tuple[frozenset[str], frozenset[str]]:
    """The files of the package that a call enters, and the types whose methods run there."""
    files, types, paths = set[str](), set[str](), dict[str, str | None]()

    def path_of(name: str) -> str | None:
        path = Path(name).resolve()
        inside = path.is_relative_to(ROOT) and path != Path(__file__).resolve()
        inside = inside and "site-packages" not in path.parts  # an environment beside the package
        return str(path.relative_to(ROOT)) if inside else None

    def note(frame: Any, event: str, _: Any) -> None:
        name = frame.f_code.co_filename
        if event != "call" or name.startswith("<"):
            return
        if name not in paths:
            paths[name] = path_of(name)
        if not paths[name] or paths[name] == OWN:
            return
        files.add(paths[name])
        if frame.f_code.co_varnames[:1] == ("self",) and "self" in frame.f_locals:
            kind = type(frame.f_locals["self"])
            if kind.__module__.startswith("onnxjac"):
                types.add(kind.__name__)

    sys.setprofile(note)
    try:
        walk()
    finally:
        sys.setprofile(None)
    return frozenset(files), frozenset(types - {"Lock", "cached_property", "Latest"})


def walks() -> Iterator[Entered]:
    """The walks of architecture.md, each after as many turns as it takes to find its way."""
    rng = np.random.default_rng(0)
    model, other, loop = (oj.load(onnx.parser.parse_model(HEAD + text))
                          for text in (LAYERS, LAYERS, LOOP))  # fmt: skip

    def point() -> dict[str, np.ndarray]:
        return {name: rng.standard_normal(spec.shape).astype(np.float32)
                for name, spec in model.inputs.items()}  # fmt: skip

    def moving(C: Any) -> Callable[[], None]:
        held = [C]

        def step() -> None:
            held[0] = held[0].relinearize(point())
            held[0] @ np.ones(C.shape[1], np.float32)

        for _ in range(60):
            step()
        return step

    J = oj.linearize(model, point(), of="y", wrt="W")
    f = oj.value_and_grad(model, of="loss", wrt="W")
    G = oj.gauss_newton(model, point(), of="loss", at="y", wrt="W")
    f(point())
    f(point())
    for name, walk in (
        ("`linearize`", lambda: oj.linearize(other, point(), of="y", wrt="W")),
        ("`J @ v`", lambda: J @ np.ones(J.shape[1], np.float32)),
        ("a further point and `J @ v`", moving(J)),
        ("`value_and_grad` in a loop", lambda: f(point())),
        ("a further point and `G @ v` of Gauss-Newton", moving(G)),
        ("`export` with a loop", lambda: oj.export(loop, "vjp", {"x": np.ones(3, "f4")})),
    ):
        yield Entered(name, *entered(walk))


def table() -> str:
    """The table of all walks, in Markdown."""
    rows = ["| walk | files | types whose methods run |", "|---|--:|---|"]
    return "\n".join([*rows, *(found.row for found in walks())]) + "\n"


def rewritten(page: str) -> str:
    """The page with the table of now."""
    before, _, rest = page.partition(START)
    return before + START + table() + END + rest.partition(END)[2]


if __name__ == "__main__":
    if sys.argv[1:] == ["--print"]:
        print(rewritten(PAGE.read_text()), end="")
    else:
        PAGE.write_text(rewritten(PAGE.read_text()))
