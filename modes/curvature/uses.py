"""Uses: where a weight meets the model as a matrix, by the structure of its Jacobian.

Whatever the node is called, the Jacobian of a weight tensor W in the tensor Y that it first makes is
a selection and reordering of W, then a contraction with something X that does not depend on W, then
a reordering. The labels of that contraction say what a layer is:

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
from dataclasses import dataclass, replace
from math import prod
from string import ascii_letters

import numpy as np
import onnx

from ...jacobians import (
    Broadcast,
    Cast,
    Contraction,
    Convolution,
    Dag,
    Diagonal,
    Identity,
    Jacobian,
    Outer,
    Permutation,
    Reshape,
    Scalar,
    Slice,
    Take,
)
from ...jacobians.einsums import EINSUMS, as_contraction
from ...jacobians.errors import UnsupportedOp
from ...jacobians.products import factors_of
from ...ops import Step, numbers
from ..linearization import Linearization
from ..named import find_tensor

MOVES = Identity, Reshape, Permutation, Cast, Scalar
"""What keeps every entry, up to a factor."""
PICKS = *MOVES, Slice, Take
"""What may stand between a weight and its use: it picks entries of the weight."""


@dataclass(frozen=True, repr=False, eq=False)
class Use:
    """Y = rowsᵀ(X · start(W)), with X of shape (g, rows, i), at a vertex of the DAG.

    `start` takes W to (g, i, o), and `rows` takes Y to (g, rows, o).
    """

    vertex: int
    start: Jacobian
    x: np.ndarray
    rows: Jacobian


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
        middle = [k for k, f in enumerate(chain) if not isinstance(f, PICKS)]
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


def as_use(core: tuple[Jacobian, ...], name: str, start: Jacobian) -> Use:
    """A use by the operators in the middle of an edge."""
    match core:
        case (Convolution(source="w"),):
            return convolution(core[0], start)
        case (Outer() as y,):
            repeat = Broadcast(y.out_shape, y.in_shape, y.dtype)
            return as_use((repeat, Diagonal(y.u, y.out_shape)), name, start)
        case (Broadcast() as repeat, *others):
            (operator,) = others or [Identity(repeat.out_shape, repeat.dtype)]
            if isinstance(operator, (*EINSUMS, Identity)):
                return matrix(after_broadcast(contraction(operator), repeat), start)
        case (operator,) if isinstance(operator, EINSUMS):
            return matrix(contraction(operator), start)
        case ():
            return matrix(contraction(Identity(start.out_shape, start.dtype)), start)
    raise unstructured(name, core[0])


def unstructured(name: str, operator: Jacobian) -> UnsupportedOp:
    """The refusal of a weight that is not used as a matrix."""
    return UnsupportedOp(
        f"{name!r} meets the model through {operator!r}, which is no Kronecker product: leave it "
        f"out of wrt=, or take gauss_newton or fisher, which need no such structure"
    )


def contraction(operator: Jacobian) -> Contraction:
    """The operator as a contraction whose factors have no axis that they do not vary along."""
    if isinstance(operator, Identity):
        operator = Diagonal(np.ones((), operator.dtype), operator.out_shape)
    c = as_contraction(operator)
    factors = tuple(varying(a, term, c.sizes) for a, term in c.factors)
    return Contraction(factors, c.in_term, c.out_term, c.sizes)


def varying(a: np.ndarray, term: str, sizes: dict[str, int]) -> tuple[np.ndarray, str]:
    """A factor without its axes of length 1 whose label is longer: those are repeated."""
    axes = tuple(k for k, label in enumerate(term) if a.shape[k] != sizes[label])
    return np.squeeze(a, axes), "".join(k for i, k in enumerate(term) if i not in axes)


def after_broadcast(c: Contraction, repeat: Broadcast) -> Contraction:
    """A contraction of a tensor that is first repeated: it is 1 along the labels that are new."""
    shape = (1,) * (len(repeat.out_shape) - len(repeat.in_shape)) + repeat.in_shape
    ends = zip(c.in_term, shape, repeat.out_shape, strict=True)
    kept = "".join(label for label, n, m in ends if n == m)
    new = "".join(label for label in c.in_term if label not in kept)
    ones = np.ones(tuple(c.sizes[label] for label in new), c.dtype)
    return Contraction((*c.factors, (ones, new)), kept, c.out_term, c.sizes)


def matrix(c: Contraction, start: Jacobian) -> Use:
    """The use that a contraction is, its labels sorted into groups, rows, inputs and outputs."""
    held = {label for _, term in c.factors for label in term}
    rows = [k for k in c.out_term if k in held and k not in c.in_term]
    groups = [k for k in c.out_term if k in held and k in c.in_term]
    ins = [k for k in c.in_term if k not in c.out_term]
    outs = [k for k in c.in_term if k in c.out_term and k not in held]
    g, r, i, o = (prod(c.sizes[k] for k in part) for part in (groups, rows, ins, outs))
    terms = ",".join(term for _, term in c.factors)
    x = np.einsum(f"{terms}->{''.join(groups + rows + ins)}", *(a for a, _ in c.factors))
    inner = tuple(c.sizes[k] for k in c.in_term)
    dtype = c.dtype
    return Use(
        -1,
        reordered(inner, c.in_term, groups + ins + outs, (g, i, o), dtype)
        @ Reshape(inner, start.out_shape, dtype) @ start,
        x.reshape(g, r, i),
        reordered(c.out_shape, c.out_term, groups + rows + outs, (g, r, o), dtype),
    )  # fmt: skip


def reordered(
    shape: tuple[int, ...], term: str, wanted: list[str], final: tuple[int, ...], dtype: np.dtype
) -> Jacobian:
    """A tensor with its axes in another order, and in another shape after that."""
    moved = Permutation(tuple(term.index(k) for k in wanted), shape, dtype)
    return Reshape(final, moved.out_shape, dtype) @ moved


def convolution(c: Convolution, start: Jacobian) -> Use:
    """The use of a kernel: X holds what one output channel of each group meets, its patches.

    They are what the operator itself makes of unit kernels for a single output channel per group.
    """
    g, dtype = c.geometry, c.dtype
    forward = c.target == "u"  # else a transposed convolution: channels of x are the outputs
    group, (n, _, *positions) = g.group, (g.u if forward else g.x)
    m, channels = g.w[0] // group, g.w[1]
    i, o = (g.w[1:], m) if forward else ((m, *g.w[2:]), channels)
    w = (group, *g.w[1:]) if forward else (g.w[0], 1, *g.w[2:])
    single = replace(g, w=w, u=(n, group, *positions) if forward else g.u,
                     x=g.x if forward else (n, group, *positions))  # fmt: skip
    width, space = prod(i), prod(positions)
    unit = np.eye(width, dtype=dtype).reshape(width, 1, *((1, *i) if forward else (m, 1, *i[1:])))
    unit = np.broadcast_to(unit, (width, group, *unit.shape[2:])).reshape(width, *w)
    x = Convolution(c.held, "w", c.target, single)._apply(numbers, unit)
    x = x.reshape(width, n, group, space).transpose(2, 1, 3, 0).reshape(group, n * space, width)
    split, perm = ((group, m, width), (0, 2, 1)) if forward else (
        (group, m, channels, prod(g.w[2:])), (0, 1, 3, 2))  # fmt: skip
    swapped = Permutation(perm, split, dtype) @ Reshape(split, g.w, dtype)
    flat = Reshape((group, width, o), swapped.out_shape, dtype) @ swapped
    y = (n, group, o, space)
    rows = Permutation((1, 0, 3, 2), y, dtype) @ Reshape(y, c.out_shape, dtype)
    return Use(-1, flat @ start, x, Reshape((group, n * space, o), rows.out_shape, dtype) @ rows)
