"""Uses: where a weight meets the model as a matrix, by the structure of its Jacobian.

Whatever the node is called, the Jacobian ∂Y/∂W of the first tensor Y that a weight W makes is a
selection and reordering of W, then a contraction with something X that does not depend on W, then a
reordering. The labels of that contraction say what a layer is:

| label in | X | W | Y | is |
|---|---|---|---|---|
| | ✓ | | ✓ | a row r: sample or position |
| | ✓ | ✓ | | an input i |
| | | ✓ | ✓ | an output o |
| | ✓ | ✓ | ✓ | a group g: nothing couples two of them |

So Y[g, r, o] = Σᵢ X[g, r, i] W[g, i, o]: `implicit_kron` for MatMul and Gemm, patches for
convolutions, any einsum; a bias has X = 1 without inputs, an elementwise scale groups without
inputs and outputs. A weight that is used several times has several uses. Of a matrix that is made
of several weights (Concat), or of a weight and constants (Pad), each weight uses a part.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import numpy as np
import onnx

from ...jacobians import (
    Broadcast,
    Cast,
    Dag,
    Embed,
    Identity,
    Jacobian,
    Permutation,
    Reshape,
    Scalar,
    Scatter,
    Slice,
    Take,
)
from ...jacobians.products import factors_of
from ...ops import Step
from ..linearization import Linearization
from .use import Use, as_use, restricted, unstructured

STILL = Identity, Reshape, Permutation, Cast
"""What keeps every entry."""

MOVES = *STILL, Scalar
"""What keeps every entry, up to a factor."""

SHAPES = "Shape", "Size"
"""Operators that ask of data no more than its shape."""


def uses(J: Linearization) -> dict[str, list[Use]]:
    """All uses of every tensor of the domain; raises where one is not used as a matrix."""
    passing = passing_edges(J)
    return {
        spec.name: list(_uses(J.dag, passing, source, Identity(J.dag.shapes[source], J.dtype),
                              1.0, spec.name))
        for spec, source in zip(J.domain, J.dag.sources, strict=True)
    }  # fmt: skip


def _uses(
    dag: Dag, passing: set[int], vertex: int, start: Jacobian, gain: float, name: str
) -> Iterator[Use]:
    for edge in dag.edges:
        if edge.start != vertex:
            continue
        chain = factors_of(edge.operator)[::-1]
        passes = id(edge.operator) in passing
        middle = core_of(chain, passes)
        begun = applied(start, chain[: middle[0]] if middle else chain)
        total = gain * prod(f.factor for f in chain if isinstance(f, Scalar))
        if not middle and passes:
            yield from _uses(dag, passing, edge.end, begun, total, name)
            continue
        after = middle[-1] + 1 if middle else len(chain)
        core = chain[middle[0] : after] if middle else ()
        if not all(isinstance(f, MOVES) for f in chain[after:]):
            raise unstructured(name, edge.operator)
        use = as_use(core, name, begun)
        end = applied(Identity(use.rows.in_shape, dag.dtype), chain[after:])
        bias = all(isinstance(f, Broadcast) for f in core)
        yield restricted(
            Use(edge.end, use.start, use.x * total, use.rows @ end.T, bias), name, edge.operator
        )


def core_of(chain: tuple[Jacobian, ...], passes: bool) -> list[int]:
    """The places of the factors that are more than moves.

    Rows that data looks up are no move of the weight, even where none is looked up twice.
    """
    found = [k for k, f in enumerate(chain) if not picks(f)]
    if not found and not passes:
        return [k for k, f in enumerate(chain) if isinstance(f, Take)]
    return found


def picks(operator: Jacobian) -> bool:
    """Whether an operator may stand before the use of a weight: no entry is repeated or added."""
    if isinstance(operator, Take | Scatter):
        index = np.asarray(operator.index)
        return index.ndim < 2 and len(np.unique(index)) == index.size
    return isinstance(operator, (*MOVES, Slice, Embed))


def passing_edges(J: Linearization) -> set[int]:
    """The operators, by identity, of steps that only move what comes in, or that data is not in."""
    fixed = without_data(J)
    return {
        id(operator)
        for entry in J.entries
        for (_, i), operator in entry.blocks.items()
        if fixed.issuperset(filter(None, entry.step.inputs))
        or (passes_on(entry.step, i) and not looks_up(operator))
    }


def looks_up(operator: Jacobian) -> bool:
    """Whether an operator picks rows by an index."""
    return any(isinstance(f, Take) for f in factors_of(operator))


def without_data(J: Linearization) -> set[str]:
    """The tensors that depend on weights, constants and shapes, and on no other input."""
    model = J.route.model
    found = set(model.initializers) | {spec.name for spec in J.domain}
    for step in model.steps:
        if step.op_type in SHAPES or found.issuperset(filter(None, step.inputs)):
            found.update(filter(None, step.outputs))
    return found


def passes_on(step: Step, i: int) -> bool:
    """Whether a step only moves what is in input i: no other input is of the same type variable."""
    try:
        schema = onnx.defs.get_schema(step.op_type, step.version, step.domain)
    except onnx.defs.SchemaError:
        return False
    formal = schema.inputs
    kinds = [formal[min(k, len(formal) - 1)].type_str for k, name in enumerate(step.inputs) if name]
    return kinds.count(formal[min(i, len(formal) - 1)].type_str) == 1


def applied(start: Jacobian, factors: tuple[Jacobian, ...]) -> Jacobian:
    """Factors after what there is, the first one first; numbers are left out."""
    for factor in factors:
        start = start if isinstance(factor, Scalar) else factor @ start
    return start
