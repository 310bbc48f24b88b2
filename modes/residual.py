"""Residual: an equation between tensors of a model, such as a differential equation, appended."""

from __future__ import annotations

import ast

import onnx

from ..jacobians.arguments import validated
from ..jacobians.errors import InputError, closest
from .model.flow.nodes import Nodes
from .model.loading.patterns import recognise
from .model.primal.inputs import TAKEN, Names, distinct
from .model.primal.model import Model, ModelLike, as_model

NUMBERS = frozenset({"pi", "inf"})
"""Names of numbers in a formula."""


@validated
def with_residual(
    model: ModelLike, formula: str, *, inputs: Names = None, name: str = "residual"
) -> Model:  # fmt: skip
    """The model with r = `formula` after its tensors, such as r = u_t + u u_x − ν u_xx.

    The residual is the only output of the result, and so the default of `of=`; all tensors keep
    their names. So an exported derivative becomes the equation that it should fulfil, which
    `levenberg_marquardt` solves for the weights.

    - `model`: the model, as `load` gives or takes it.
    - `formula`: names of tensors and numbers, with + - * / ** and operators of ONNX as functions,
      such as `"u_laplacian - Sin(pi * x)"`.
    - `inputs`: names in the formula that are new inputs, such as a right-hand side, values at a
      boundary or a weight for each point: of the type and shape of the first tensor in the formula
      that is no weight.
    - `name`: the name of the residual.

    Shape: as ONNX's operators broadcast. Raises `InputError` for a formula that cannot be read, and
    for a name that is neither a tensor nor in `inputs`.

    >>> import numpy as np, onnx.parser
    >>> model = onnx.parser.parse_model('''<ir_version: 10, opset_import: ["": 21]>
    ... g (double[n] x) => (double[n] y) { y = Exp(x) }''')
    >>> at = {"x": np.zeros(2), "f": np.array([1.0, 3.0])}
    >>> with_residual(model, "2 * y - f", inputs="f").run(at)["residual"].tolist()
    [1.0, -1.0]
    """
    source = as_model(model)
    named, new = names_in(formula), distinct(inputs or (), "inputs")
    known = [n for n in named if n not in new and n in source.names]
    for n in named:
        if n not in (*known, *new):
            raise InputError(f"{n!r} in {formula!r} is no tensor of the model, nor among inputs=."
                             f"{closest(n, source.names)}")  # fmt: skip
    if unused := [n for n in new if n not in named]:
        raise InputError(f"inputs={unused} are not in {formula!r}")
    if not known:
        raise InputError(f"{formula!r} has no tensor of the model.{closest('', source.names)}")
    for n in (*new, name):
        if n in source.names:
            raise InputError(f"the model has a tensor {n!r} already: choose another name")
    first = next((n for n in known if n not in source.initializers), known[0])
    copy, like = source.ir.clone(), source.spec(first)
    if like.dtype is None:
        raise InputError(f"the model does not say of which type {first!r} is")
    nodes = Nodes(copy, like.dtype, name)
    for n in new:
        nodes.entered(n, like.shape, like.dtype)
    try:
        made = nodes.formula(formula, {n: nodes.values[n] for n in named})
    except (KeyError, TypeError, ValueError) as error:
        raise unreadable(formula, error) from error
    made = nodes.add("Identity", made)
    made.name = name
    copy.graph.outputs.clear()
    copy.graph.outputs.append(made)
    copy.metadata_props[TAKEN] = "\n".join([*copy.metadata_props.get(TAKEN, "").splitlines(), *new])
    recognise(copy)
    return Model(copy, source.limits)


def names_in(formula: str) -> list[str]:
    """The names of tensors in a formula, as they come. Its functions are operators of ONNX.

    >>> names_in("u_t + Sin(pi * x) ** 2 - u_t")
    ['u_t', 'x']
    """
    try:
        parts = [*ast.walk(ast.parse(formula.strip(), mode="eval"))]
    except SyntaxError as error:
        raise unreadable(formula, error.msg) from error
    if any(isinstance(part, ast.IfExp) for part in parts):
        raise unreadable(formula, "a choice is Where(condition, a, b)")
    called = {part.func.id for part in parts
              if isinstance(part, ast.Call) and isinstance(part.func, ast.Name)}  # fmt: skip
    for op_type in called:
        if not onnx.defs.has(op_type):
            raise InputError(f"{op_type!r} in {formula!r} is no operator of ONNX, such as 'Sin'")
    named = sorted((part.lineno, part.col_offset, part.id) for part in parts
                   if isinstance(part, ast.Name))  # fmt: skip
    return [*dict.fromkeys(n for *_, n in named if n not in called | NUMBERS)]


def unreadable(formula: str, reason: object) -> InputError:
    """The error for a formula that is none."""
    return InputError(f"{formula!r} cannot be read: {reason}. A formula has names, numbers, "
                      "+ - * / ** and operators of ONNX, such as 'u_t - Sin(x)'")  # fmt: skip
