"""Embeddings: the tensors in which the tokens of a model are vectors, where derivatives begin."""

from __future__ import annotations

from collections.abc import Iterator

from ..jacobians import size
from ..ops import Step
from .model.flow.steps import reads
from .model.primal.inputs import is_float, may_float
from .model.primal.model import Model

LOOKUPS = {"Gather": 1, "EmbedLayerNormalization": 0}
"""Operators that look vectors up in a table -> which input has the indices."""


def embeddings_of(model: Model) -> dict[str, str]:
    """Integer input -> the tensor of the vectors of its tokens, from the largest table of weights.

    Positions and segments have smaller tables and are left out.
    """
    found = list(lookups(model))
    most = max((rows for _, _, rows in found), default=0)
    return {name: vectors for name, vectors, rows in reversed(found) if rows == most}


def lookups(model: Model) -> Iterator[tuple[str, str, int]]:
    """(integer input, vectors, rows of the table) of each lookup, in the order of the model."""
    behind: dict[str | None, str] = {
        name: name for name, spec in model.inputs.items()
        if spec.dtype is not None and not may_float(spec)
    }  # fmt: skip
    for step in model.steps:
        first = next((behind[name] for name in reads(step) if name in behind), None)
        table, vectors = table_of(step, model), step.outputs[0]
        if table is not None and vectors and step.inputs[LOOKUPS[step.op_type]] in behind:
            yield behind[step.inputs[LOOKUPS[step.op_type]]], vectors, table
        elif first is not None:
            whole = (n for n in step.outputs if n and not may_float(model.spec(n)))
            behind |= dict.fromkeys(whole, first)


def table_of(step: Step, model: Model) -> int | None:
    """The rows of the table of weights that a step looks up in."""
    if step.op_type not in LOOKUPS:
        return None
    tables = (model.constants[n] for n in step.inputs if n in model.constants)
    return max((len(t) for t in tables if is_float(t.dtype) and t.ndim == 2 and size(t.shape)),
               default=None)  # fmt: skip


def default_wrt(model: Model) -> tuple[str, ...] | None:
    """What a derivative is by where nothing is named: the vectors of tokens, or None.

    None stands for all floating inputs, where there are some.
    """
    if any(may_float(spec) for spec in model.inputs.values()):
        return None
    return tuple(embeddings_of(model).values()) or None
