"""Embeddings: the tensors in which the tokens of a model are vectors, where derivatives begin."""

from __future__ import annotations

from collections.abc import Iterator

from ..ops import Step
from .model.flow.steps import SHAPES, reads, steps_needed
from .model.primal.inputs import heads_of, may_float
from .model.primal.model import Model

LOOKUPS = {"Gather": 1, "EmbedLayerNormalization": 0}
"""Operators that look vectors up in a table -> which input has the indices."""

QUANTISED = ("DequantizeLinear", "QLinearAdd")
"""Operators through which quantised tables and vectors are followed."""


def embeddings_of(model: Model) -> dict[str, str]:
    """Integer input -> the tensor of the vectors of its tokens, from the largest table of weights.

    Positions and segments have smaller tables and are left out.
    """
    found = [row for row in lookups(model) if row[1] not in model.outputs]
    most = vocabulary_size(model)
    return {name: vectors for name, vectors, rows in reversed(found) if rows == most}


def vocabulary_size(model: Model) -> int:
    """How many words the largest table has; 0 where nothing is looked up."""
    return max((rows for _, made, rows in lookups(model) if made not in model.outputs), default=0)


def lookups(model: Model) -> Iterator[tuple[str, str, int]]:
    """(integer input, vectors, rows of the table) of each lookup, in the order of the model.

    What is looked up in a quantised table, and maybe added to others, has vectors where it is
    floating again, unless something else reads it as it is stored, past these.
    """
    behind: dict[str | None, str] = {
        name: name for name, spec in model.inputs.items()
        if spec.dtype is not None and not may_float(spec)
    }  # fmt: skip
    used = {n for step in model.steps if step.op_type not in SHAPES for n in reads(step)}
    tables = {name: len(x) for name, x in model.constants.items() if x.ndim == 2 and x.size}
    stored: dict[str, int] = {}  # what is looked up in a quantised table
    for step in model.steps:
        first = next((behind[name] for name in reads(step) if name in behind), None)
        looked_up, made = LOOKUPS.get(step.op_type), str(step.outputs[0])
        rows: list[int] = []
        if looked_up is not None and step.inputs[looked_up] in behind:
            rows = [tables[name] for name in reads(step) if name in tables]
        elif step.op_type in QUANTISED:
            rows = [stored[name] for name in reads(step) if name in stored]
            whole_table = [tables[name] for name in reads(step) if name in tables]
            tables |= dict.fromkeys([made], whole_table[0]) if whole_table else {}
        added = step.op_type == "QLinearAdd"
        floating = model.estimates if added else may_float(model.spec(made))
        floating = floating and made in used and not is_bypassed(step, model)
        if first is not None and rows and floating:
            yield first, made, max(rows)
        elif first is not None:
            whole = [n for n in step.outputs if n and not (floating and may_float(model.spec(n)))]
            behind |= dict.fromkeys(whole, first)
            stored |= dict.fromkeys(whole, max(rows)) if rows else {}


def is_bypassed(step: Step, model: Model) -> bool:
    """Whether the numbers that a step makes floating are read by others as they are stored."""
    if step.op_type != "DequantizeLinear":
        return False
    readers = (other for other in model.steps if other.op_type not in SHAPES)
    return sum(step.inputs[0] in other.inputs for other in readers) > 1


def default_wrt(model: Model) -> tuple[str, ...] | None:
    """What a derivative is by where nothing is named: the vectors of tokens, or None.

    None stands for all floating inputs, where there are some besides the target of a loss.
    """
    read = steps_needed(model.steps, heads_of(model))[1]
    if any(may_float(spec) for name, spec in model.inputs.items() if name in read):
        return None
    return tuple(embeddings_of(model).values()) or None
