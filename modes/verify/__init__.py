"""Verify: proofs of every rule by SymPy, ONNX's differentiability tags, the sweep of its cases."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .proof import Proof
    from .tags import Tags


def prove(op_type: str, domain: str = "") -> Proof:
    """The proof that the derivative of an operator is the derivative of its definition.

    The rule and the definition are run over SymPy expressions; SymPy differentiates the
    definition entry by entry, and the entries must be identically equal. A proof can be
    printed, shown in Jupyter, and written as Markdown by `markdown()`.

    Raises `UnsupportedOp` for an operator that is unknown or not declared.

    >>> bool(prove("Tanh"))
    True

    The example from ONNX's guide: y = a + b without broadcasting, and with b repeated. J is outputs
    × inputs, the transpose of the guide's matrix.

    >>> for result in prove("Add").results[:2]:
    ...     print(result.case, *result.first, sep="; ")
    Add(2, 2); ∂y/∂a, 2×2: exact; ∂y/∂b, 2×2: exact
    Add(2×1, 3); ∂y/∂a, 6×2: exact; ∂y/∂b, 6×3: exact
    >>> prove("Add").shown.matrix
    Matrix([
    [1, 0, 1],
    [0, 1, 1]])
    """
    from .proof import proof_of

    return proof_of(op_type, domain)


def tags(op_type: str | None = None) -> Tags:
    """Every port of every operator: ONNX's differentiability tag against the verdict of the proofs.

    ONNX introduced its tags with five examples. Data that is moved has a derivative. Inputs that
    say where to move it, and results that depend on shapes only, have none.

    Raises `UnsupportedOp` for a name that is no operator of ONNX.

    >>> for name in ("Reshape", "Shape", "Size", "Concat", "Split"):
    ...     print(name, *(f"{row.port}: {row.verdict} ({row.agreement})" for row in tags(name)))
    Reshape data: everywhere (agrees) shape: not (agrees) reshaped: everywhere (agrees)
    Shape data: not (agrees) shape: not (agrees)
    Size data: not (agrees) size: not (agrees)
    Concat inputs: everywhere (agrees) concat_result: everywhere (agrees)
    Split input: everywhere (agrees) split: not (agrees) outputs: everywhere (agrees)

    `tags().disagreements()` and `tags().untagged()` are the findings; `markdown()`, `csv()` and
    `json()` write them.
    """
    from .tags import tags

    return tags(op_type)
