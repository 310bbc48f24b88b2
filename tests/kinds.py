"""The table of all kinds of operators in docs/reference/algebra.md, from the code.

`python -m tests.kinds` writes it into the page.
"""

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

from onnxjac.jacobians import Jacobian
from onnxjac.jacobians.closed import determinant, inverted
from onnxjac.jacobians.functions import eigenbasis, map_structure, singular_bases
from onnxjac.modes.estimators.squared import squared

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "algebra.md"

COSTS = {
    "Block": "of its blocks", "BlockDiagonal": "2 b m n", "Broadcast": "0", "Cast": "0",
    "Circulant": "10 n log₂ n", "Conjugate": "of J", "Contraction": "2 · all labels",
    "Convolution": "2 · outputs · kernel", "Cumulative": "n", "Dag": "of its edges",
    "Dense": "2 m n", "Diagonal": "n", "Embed": "0", "Fourier": "5/2 n log₂ n", "Identity": "0",
    "Kron": "2 m n k + 2 m k l", "LowRank": "2 r (m + n)",
    "Part": "of the program", "Permutation": "0", "Product": "of its factors", "Reshape": "0",
    "Scalar": "n", "Scatter": "n", "Slice": "0", "Sum": "of its terms", "SumTo": "n",
    "Sylvester": "5 m n (m + n)", "Take": "0", "Zero": "0",
}  # fmt: skip
"""Multiplications and additions of one product."""

CLOSED = {
    "A⁻¹": inverted, "det": determinant, "‖A‖": squared, "f(A)": map_structure,
    "V Λ Vᴴ": eigenbasis, "U Σ Vᴴ": singular_bases,
}  # fmt: skip


def kinds(kind: type = Jacobian) -> Iterator[type]:
    """The concrete operators of jacobians/."""
    for child in kind.__subclasses__():
        if not inspect.isabstract(child) and child.__module__.startswith("onnxjac.jacobians."):
            yield child
        yield from kinds(child)


def table() -> str:
    """A row for each kind."""
    head = ["kind", "y", "flops", *CLOSED]
    rows = [head, ["---"] * len(head)]
    for kind in sorted(set(kinds()), key=lambda kind: kind.__name__):
        formula = inspect.getdoc(kind).partition("\n")[0].replace("|", r"\|").replace("*", r"\*")
        marks = ["✓" if f.dispatch(kind) is not f.dispatch(object) else "" for f in CLOSED.values()]
        rows.append([f"`{kind.__name__}`", formula, COSTS[kind.__name__], *marks])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


WHOLE = re.compile(r"^\| kind \|.*?(?=\n\n)", re.M | re.S)

if __name__ == "__main__":
    page = WHOLE.sub(lambda _: table(), PAGE.read_text(encoding="utf-8"))
    PAGE.write_text(page, encoding="utf-8")
