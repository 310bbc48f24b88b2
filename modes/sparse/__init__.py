"""Sparse: the Jacobian as a SciPy sparse matrix, its pattern, and colourings of patterns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from copy import copy
from dataclasses import fields, is_dataclass
from math import inf
from typing import Any, Literal

import numpy as np
from scipy.sparse import csr_array

from ...jacobians import Dag, Jacobian
from ...jacobians.arguments import Count, validated
from ...jacobians.arrays import wide
from ...jacobians.base import DENSE_LIMIT
from ...jacobians.errors import InputError, LimitError
from ...jacobians.hooks import sparse as hook
from ...jacobians.hooks import wrapped
from ..hessian import Hessian
from ..linear.linearization import Linearization
from ..model.flow.steps import moving
from .choice import find_pattern, method
from .coloring import Coloring, coloring
from .sweep import PASSED, Method, everything_in, unwrap, unwrapped_leaves

Format = Literal["bsr", "coo", "csc", "csr", "dia", "dok", "lil"]

PATTERN, BYTE = 1.5e-3, 2e-9
"""Seconds to find a pattern: for each operator, and for each byte of the largest partial one."""

__all__ = ["Coloring", "coloring", "pattern", "sparse"]


@hook.register
@validated
def sparse(J: Jacobian, format: Format = "csr", limit: Count = DENSE_LIMIT, out: Any = None) -> Any:
    """J as a SciPy sparse array.

    The pattern and all constant entries are computed once and reused after `relinearize`. Entries
    that may be nonzero at some point are stored, even if they are zero at this one.

    All matrices of one model share their index arrays, which are read-only. `out`, a result at
    another point, is overwritten and returned: only the entries that depend on the point are
    written, and the others are assumed to be unchanged.

    Raises `LimitError` where it would take more than `limit` bytes, and `InputError` where `out`
    has a different pattern.

    >>> import numpy as np
    >>> from onnxjac.jacobians import Diagonal
    >>> sparse(Diagonal(np.array([2.0, 0.0, 3.0]))).data
    array([2., 3.])
    """
    found = method_of(J, limit)
    if out is None:
        return new_matrix(found, J).asformat(format)
    if format != "csr":
        raise InputError(
            f"tosparse(out=...) writes a csr_array, not format={format!r}: leave format= away, and "
            f"convert the result, .asformat({format!r})"
        )
    if problem := explain_mismatch(out, found.pattern, wide(J.dtype)):
        m, n = J.shape
        raise InputError(
            f"tosparse(out=...) cannot write the Jacobian of shape {m}×{n} ({J.dtype}): {problem}. "
            f"Take a result of tosparse() of this Jacobian at another point, or leave out= away."
        )
    found.write(J, out.data)
    return out


@validated
def pattern(J: Jacobian, *, limit: Count = DENSE_LIMIT) -> csr_array[Any]:
    """The entries J[i, j] of the operator `J` that may be nonzero at some point, as booleans.

    The result is a sparse array.

    Shape: (m, n), like J. Raises `LimitError` where the entries of the Jacobian of a model would
    take more than `limit` bytes.

    >>> import numpy as np
    >>> from onnxjac.jacobians import Diagonal
    >>> pattern(Diagonal(np.array([2.0, 0.0]))).toarray()
    array([[ True, False],
           [False,  True]])
    """
    J = wrapped(J)
    if isinstance(J, Linearization | Hessian):
        return method_of(J, limit).pattern.copy()
    return find_pattern(unwrap(J), (), backward=J.shape[0] < J.shape[1])


def sparse_within(J: Jacobian, most: float) -> csr_array[Any] | None:
    """J as a SciPy sparse array, where that takes at most `most` counted seconds, else None."""
    if PATTERN * sum(not isinstance(leaf, PASSED) for leaf in unwrapped_leaves(J)) > most:
        return None
    with suppress(LimitError):
        return new_matrix(method_of(J, min(DENSE_LIMIT, int(most / BYTE)), most), J)
    return None


def method_of(J: Jacobian, limit: int, most: float = inf) -> Method:
    """How the entries of J are found; the Jacobian of a model keeps its method for all points."""
    if isinstance(J, Hessian):
        return plan_sparse(J.J, limit, most, symmetric=True).method
    if isinstance(J, Linearization):
        return plan_sparse(J, limit, most, symmetric=False).method
    return method(unwrap(J), None, limit, most, symmetric=J.T is J)


def new_matrix(method: Method, J: Jacobian) -> csr_array[Any]:
    """A new matrix with its own data.

    The index arrays are shared and read-only: methods that change them in place, such as
    `eliminate_zeros`, need a `copy()` of the matrix first.
    """
    pattern = method.pattern
    pattern.indices.flags.writeable = pattern.indptr.flags.writeable = False
    matrix = copy(pattern)  # shallow: it shares the index arrays
    matrix.data = method.values(J)
    return matrix


def explain_mismatch(out: Any, pattern: csr_array[Any], dtype: Any) -> str | None:
    """Why a matrix cannot take the entries; None if it can."""
    if not isinstance(out, csr_array):
        return f"out is of type {type(out).__name__}, not csr_array"
    if (out.shape, out.dtype) != (pattern.shape, dtype):
        return f"out has shape {out.shape[0]}×{out.shape[1]} and dtype {out.dtype}"
    pairs = (out.indices, pattern.indices), (out.indptr, pattern.indptr)
    if not all(a is b or np.array_equal(a, b) for a, b in pairs):
        return f"out has another pattern, of {out.nnz} entries instead of {pattern.nnz}"
    if not (out.data.flags.c_contiguous and out.data.flags.writeable):
        return "the numbers of out cannot be written in place"
    return None


# -- plans: the parts that are the same at all points ----------------------------------------------

class Plan:
    """The method for a sparse Jacobian, and the properties that another point must share."""

    def __init__(self, J: Linearization, limit: int, most: float, *, symmetric: bool) -> None:
        constant = constant_operators(J)
        operators = enumerate(edge.operator for edge in J.dag.edges)
        self.fixed = {k: operator for k, operator in operators if id(operator) in constant}
        sides = ((J, J.T) for J in self.fixed.values())
        known = {id(part) for pair in sides for side in pair for part in everything_in(side)}
        self.skeleton = self._skeleton(J.dag)
        self.method = method(J.dag, known, limit, most, symmetric=symmetric)
        self.method.learn(J.dag, J.at)

    def fits(self, J: Linearization) -> bool:
        """Whether J, at another point, differs only in values that may change."""
        if self.method.knows(J.at):
            return True
        if self._skeleton(J.dag) != self.skeleton or not self.method.fits(J.dag):
            return False
        now = {k: J.dag.edges[k].operator for k in self.fixed}
        if any(kept is not now[k] and skeleton(kept, whole=True) != skeleton(now[k], whole=True)
               for k, kept in self.fixed.items()):  # fmt: skip
            return False
        self.fixed = now  # the next comparison is by identity
        self.method.learn(J.dag, J.at)
        return True

    def _skeleton(self, dag: Dag) -> Any:
        moving = ((e.start, e.end, skeleton(e.operator))
                  for k, e in enumerate(dag.edges) if k not in self.fixed)  # fmt: skip
        return dag.shapes, dag.sources, dag.sinks, len(dag.edges), tuple(moving)


def plan_sparse(
    J: Linearization, limit: int, most: float = inf, *, symmetric: bool
) -> Plan:  # fmt: skip
    """The plan for J: the plan of another point of the same model if it fits."""
    key = J.codomain, J.domain, J.transposed, symmetric
    found: Plan | None = J.route.known.get(key)
    if found is None or not found.fits(J):
        found = J.route.known[key] = Plan(J, limit, most, symmetric=symmetric)
    return found


def constant_operators(J: Linearization) -> set[int]:
    """The ids of the edges' operators that depend on no input of the model."""
    steps = J.route.model.steps
    stale, known = moving(steps, J.point, shapes=True), {s.key for s in steps}
    kept = (e.blocks.values() for e in J.entries
            if e.step.key in known and e.behind.isdisjoint(stale))  # fmt: skip
    return {id(b.T if J.transposed else b) for blocks in kept for b in blocks}


def skeleton(thing: Any, *, whole: bool = False) -> Any:
    """The data that determine the positions of the entries; with `whole`, also their values."""
    if isinstance(thing, np.ndarray):
        told = whole or thing.dtype.kind not in "fV"
        return thing.shape, thing.dtype, thing.tobytes() if told else None
    if isinstance(thing, Jacobian):
        return type(thing), *_held(vars(thing), whole)
    if isinstance(thing, tuple | list):
        return tuple(skeleton(part, whole=whole) for part in thing)
    if isinstance(thing, dict):
        return tuple(_held(thing, whole))
    if is_dataclass(thing):
        return type(thing), *(skeleton(getattr(thing, f.name), whole=whole) for f in fields(thing))
    return thing


def _held(named: Mapping[str, Any], whole: bool) -> Iterator[tuple[str, Any]]:
    """The skeletons of attributes by name, without the transpose and private ones."""
    kept = (name for name in sorted(named) if name != "T" and not name.startswith("_"))
    return ((name, skeleton(named[name], whole=whole)) for name in kept)
