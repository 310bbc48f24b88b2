"""Verify: proofs of rules by SymPy, and ONNX's differentiability tags against them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...jacobians.arguments import validated

if TYPE_CHECKING:
    import sympy as sp

    from .coverage import Tags
    from .proof import Proof


@validated
def prove(
    what: Any, domain: str = "", *, shapes: Sequence[tuple[int, ...]] | None = None,
    inputs: Mapping[str, Any] | None = None, **attributes: Any,
) -> Proof:  # fmt: skip
    """The proof that a rule is the derivative of what defines the operator.

    The rule and the definition are run over SymPy expressions; SymPy differentiates the
    definition entry by entry, and the entries must be identically equal, also across each condition
    that only the rule has. A proof can be printed, shown in Jupyter, and written as Markdown by
    `markdown()`. Its `verdict` is "right", "wrong", or "not compared", which is not true: the
    operator is composed of others, with no definition apart, or its derivative is declared zero.

    `what` is an operator of ONNX, or of another `domain`; an operator that `derive`, `defines` or
    `jacobian` declared, `"my.domain::Op"`, at small `shapes` of its inputs and with these
    `attributes`; a function of a model, `onnx.FunctionProto`; or a small model, as `load` gives or
    takes it, at `inputs`, whose symbolic Jacobian is derived from the definitions of its operators.

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

    return proof_of(what, domain, shapes=shapes, inputs=inputs, **attributes)


def symbolic(
    model: Any, inputs: Mapping[str, Any] | None = None, *, of: str | Iterable[str] | None = None,
    wrt: str | Iterable[str] | None = None,
) -> sp.Matrix:  # fmt: skip
    """J = ∂of/∂wrt as a SymPy matrix: the rules of a small model, run over symbols.

    The entry x[0, 1] of a tensor is the symbol x_01. `inputs` is the point at which comparisons are
    decided, by default distinct fractions; integers are the point's, by default 0. `model`
    is as `load` gives or takes it.

    Shapes: (size of `of`, size of `wrt`), as for `linearize`. Raises `InputError` where the matrix
    has more than 4,096 entries.

    >>> import onnx.parser
    >>> symbolic(onnx.parser.parse_model('''<ir_version: 10, opset_import: ["": 21]>
    ... g (double[2] x, double[2] w) => (double[2] y) { a = Tanh (x)  y = Mul (a, w) }'''))
    Matrix([
    [w_0*(1 - tanh(x_0)**2),                      0, tanh(x_0),         0],
    [                     0, w_1*(1 - tanh(x_1)**2),         0, tanh(x_1)]])
    """
    from .definition import symbolic

    return symbolic(model, inputs, of=of, wrt=wrt)


@validated
def tags(op_type: str | None = None) -> Tags:
    """Every port of every operator: ONNX's differentiability tag against the verdict of the proofs.

    `op_type` asks for one operator alone. ONNX introduced its tags with five examples. Data that is
    moved has a derivative. Inputs that say where to move it, and results that depend on shapes
    only, have none.

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
    from .coverage import tags

    return tags(op_type)
