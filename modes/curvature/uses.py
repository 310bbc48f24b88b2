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
inputs and outputs. A weight that is used several times has several uses.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import numpy as np
import onnx

from ...jacobians import (
    Cast,
    Dag,
    Identity,
    Jacobian,
    Permutation,
    Reshape,
    Scalar,
    Slice,
    Take,
)
from ...jacobians.products import factors_of
from ...ops import Step
from ..linearization import Linearization
from ..named import find_tensor
from .use import Use, as_use, unstructured

MOVES = Identity, Reshape, Permutation, Cast, Scalar
"""What keeps every entry, up to a factor."""


def uses(J: Linearization, name: str) -> list[Use]:
    """All uses of a tensor of the domain; raises where it is not used as a matrix."""
    source, _ = find_tensor(name, J.domain, J.dag.sources)
    passing = {id(operator) for entry in J.entries for (_, i), operator in entry.blocks.items()
               if passes_on(entry.step, i)}  # fmt: skip
    return list(_uses(J.dag, passing, source, Identity(J.dag.shapes[source], J.dtype), 1.0, name))


def _uses(
    dag: Dag, passing: set[int], vertex: int, start: Jacobian, gain: float, name: str
) -> Iterator[Use]:
    for edge in dag.edges:
        if edge.start != vertex:
            continue
        chain = factors_of(edge.operator)[::-1]
        middle = [k for k, f in enumerate(chain) if not picks(f)]
        begun = applied(start, chain[: middle[0]] if middle else chain)
        total = gain * prod(f.factor for f in chain if isinstance(f, Scalar))
        if not middle and id(edge.operator) in passing:
            yield from _uses(dag, passing, edge.end, begun, total, name)
            continue
        after = middle[-1] + 1 if middle else len(chain)
        core = as_use(chain[middle[0] : after] if middle else (), name, begun)
        if not all(isinstance(f, MOVES) for f in chain[after:]):
            raise unstructured(name, edge.operator)
        end = applied(Identity(core.rows.in_shape, dag.dtype), chain[after:])
        yield Use(edge.end, core.start, core.x * total, core.rows @ end.T)


def picks(operator: Jacobian) -> bool:
    """Whether an operator may stand before the use of a weight: no entry is repeated."""
    if isinstance(operator, Take):
        index = np.asarray(operator.index)
        return index.ndim < 2 and len(np.unique(index)) == index.size
    return isinstance(operator, (*MOVES, Slice))


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
