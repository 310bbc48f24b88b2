"""Symmetric: a symmetric operator over named tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial, reduce
from operator import methodcaller
from typing import TYPE_CHECKING, Any, ClassVar, cast, final

import numpy as np

from ...jacobians import Block, Diagonal, Identity, Jacobian, Scalar, Sum, shape_of, size
from ...jacobians.arguments import Count, Natural, validated
from ...jacobians.base import Wrapper
from ...jacobians.errors import InputError
from ...jacobians.hooks import Shown, add, check, explain, scale
from ...jacobians.readings import is_kept
from ...jacobians.sums import split_identity
from ...jacobians.text import clipped, joined
from ..model.primal.inputs import Specs, applied, check_named, find_tensor, fitting, listed
from ..model.primal.model import TensorSpec
from .check import Check
from .elimination.plan import planned
from .linearization import Linearization

if TYPE_CHECKING:
    from ...jacobians.base import Scaled

Again = Callable[[Mapping[str, Any]], "Curvature"]

Middle = Callable[[Linearization], Jacobian]
"""J ↦ C in Jᵀ C J: called at every point, it holds what is the same at all points."""


class Curvature(Wrapper):
    """C = Cᵀ over the tensors of `domain`, in order, with the products of `operator`.

    `C.apply` is a product by name, `C["a", "b"]` a block of two tensors and `C.block("a")` the
    diagonal block of one.
    """

    domain: Specs

    if TYPE_CHECKING:
        __mul__: ClassVar[Scaled[Curvature]]  # type: ignore[assignment, misc]
        __rmul__: ClassVar[Scaled[Curvature]]  # type: ignore[assignment, misc]

    @property
    def formula(self) -> str:
        """A short formula, shown before the tensors and the shape."""
        return "C"

    def _transpose(self) -> Jacobian:
        return self

    def apply(self, tangents: Mapping[str, Any]) -> dict[str, Any]:
        """C v by name, for `tangents` v by name; those that are left out are zero."""
        check_named(tangents)
        if any(map(is_kept, tangents.values())):
            return applied(self, tangents, self.domain, self.domain)
        v = np.zeros(self.shape[1], self.dtype)
        for name, tangent in tangents.items():
            place, spec = self._place(name)
            v[place] = fitting(spec, tangent, self.dtype).ravel()
        product = self @ v
        return {s.name: product[self._place(s.name)[0]].reshape(shape_of(s)) for s in self.domain}

    def __getitem__(self, key: Any) -> Jacobian:
        """A block by names, `C["a", "b"]`, or rows and columns by index."""
        if isinstance(key, tuple) and len(key) == 2 and all(isinstance(k, str) for k in key):
            key = tuple(self._place(name)[0] for name in key)
        return super().__getitem__(key)

    @validated
    def block(self, name: str) -> Curvature:
        """C[name, name], the block of the tensor `name`, which is symmetric too."""
        again = partial(change_moved, self, methodcaller("block", name))
        return Symmetric(self[name, name], (self._place(name)[1],), again, self.formula)

    def relinearize(self, inputs: Mapping[str, Any]) -> Curvature:
        """C at another point `inputs`; raises `InputError` where its model is unknown."""
        raise InputError(f"{self!r} does not know its model: make it again at the other point")

    def explain(self) -> Shown:
        """The factors of the product, what they cost, and the kinks that J hits."""
        found: Shown = explain(self)
        return found

    @validated
    def check(self, *, seed: Natural = 0) -> Check:
        """Symmetry, definiteness, differences, by random vectors of `seed`."""
        found: Check = check(self, seed)
        return found

    def submatrix(self, rows: Any, columns: Any) -> Jacobian:
        """C[`rows`, `columns`], each given as a slice, as indices, or as the name of a tensor."""
        chosen = (self._place(k)[0] if isinstance(k, str) else k for k in (rows, columns))
        return super().__getitem__(tuple(chosen))

    def __repr__(self) -> str:
        m, n = self.shape
        return f"{self.formula}: ({listed(self.domain)})², {m}×{n} {self.dtype}"

    def _place(self, name: str) -> tuple[slice, TensorSpec]:
        """The slice of the entries of a tensor, and its spec."""
        sizes = [size(shape_of(spec)) for spec in self.domain]
        k, spec = find_tensor(name, self.domain)
        start = sum(sizes[:k])
        return slice(start, start + sizes[k]), spec


@final
class Symmetric(Curvature):
    """C = Cᵀ over the tensors of `domain`, with the products of `operator`.

    `again` makes the same operator at another point. `formula` is how it is shown, by default as
    the operator.
    """

    def __init__(
        self, operator: Jacobian, domain: Specs, again: Again | None = None, formula: str = ""
    ) -> None:
        super().__init__(operator)
        self.domain, self.again, self._formula = domain, again, formula

    @property
    def formula(self) -> str:
        return self._formula or clipped(repr(self.operator), 100)

    def relinearize(self, inputs: Mapping[str, Any]) -> Curvature:
        """The same operator at another point `inputs`, planned and scaled as this one is.

        See `compile`.

        Reuses the plans of the model's linearisations. Raises `InputError` for an operator over
        batches, or one that was not made of a model.
        """
        return self.again(inputs) if self.again else super().relinearize(inputs)

    @validated
    def plan(self, *, products: Count = 100, memory: Count | None = None) -> Symmetric:
        """The same operator, prepared for a number of `products`, in at most `memory` bytes more.

        See `Linearization.plan`.
        """
        again = partial(change_moved, self, methodcaller("plan", products=products, memory=memory))
        operator = planned(self.operator, products, memory)
        return Symmetric(operator, self.domain, again, self.formula)

    @validated
    def compile(
        self, engine: str | None = None, *, products: Count = 100, memory: Count | None = None
    ) -> Symmetric:
        operator = self.operator.compile(engine, products=products, memory=memory)
        compiled = methodcaller("compile", engine, products=products, memory=memory)
        again = partial(change_moved, self, compiled) if engine else self.again
        return Symmetric(operator, self.domain, again, self.formula)


@add.register(Curvature)
def _(left: Curvature, right: Jacobian) -> Jacobian:
    """A sum of symmetric operators keeps its names: damping, for instance."""
    total = add.dispatch(Jacobian)(without_names(left), without_names(right))
    if not isinstance(right, Curvature | Identity | Scalar | Diagonal):
        return total
    text = joined((left, right), " + ", formula_of).replace("+ -1 · ", "- ")
    return Symmetric(total, left.domain, partial(summed, left, right), text)


@scale.register(Curvature)
def _(operator: Curvature, factor: float) -> Jacobian:
    again = partial(change_moved, operator, methodcaller("__mul__", factor))
    scaled = scale.dispatch(Jacobian)(without_names(operator), factor)
    inner = operator.formula
    inner = f"({inner})" if " + " in inner or " - " in inner else inner
    return Symmetric(scaled, operator.domain, again, f"{factor:g} · {inner}")


def formula_of(C: Jacobian) -> str:
    """How an operator is shown in a formula: without its shape, where it has a formula."""
    return C.formula if isinstance(C, Curvature) else repr(C)


def without_names(operator: Jacobian) -> Jacobian:
    """The operator without names."""
    return operator.operator if isinstance(operator, Symmetric) else operator


def change_moved(C: Curvature, change: Callable[[Curvature], Curvature], inputs: Any) -> Curvature:
    """C at another point, changed as it was at this one."""
    return change(C.relinearize(inputs))


def summed(left: Curvature, right: Jacobian, inputs: Any) -> Curvature:
    """left + right at another point; right may be a constant."""
    other = right.relinearize(inputs) if isinstance(right, Curvature) else right
    return cast(Curvature, left.relinearize(inputs) + other)


def sandwiched(J: Linearization, middle: Middle | None, formula: str, **asked: Any) -> Symmetric:
    """Jᵀ C J with C = middle(J), or Jᵀ J: at another point J moves, and C is what J gives there.

    `asked` are the name and the options of the public function that was called.
    """
    asked["wrt"] = tuple(spec.name for spec in J.domain)
    again = partial(between_there, J, middle=middle, formula=formula, asked=asked)
    return Symmetric(J.T @ (middle(J) @ J if middle else J), J.domain, again, formula)


def between_there(
    J: Linearization, inputs: Any, middle: Middle | None, formula: str, asked: dict[str, Any]
) -> Curvature:
    """The operator that `sandwiched` made, at another point."""
    return sandwiched(J.relinearize(inputs), middle, formula, **asked)


def diagonal_blocks(C: Curvature) -> Symmetric:
    """blockdiag(C[w, w] for every tensor w), each block the same operator as in C.

    A block of a Hessian is cut out of its graph: only the part between w and its gradient remains.
    """
    blocks = block_diagonal([C[s.name, s.name] for s in C.domain])
    text = f"blockdiag {C.formula}"
    return Symmetric(blocks, C.domain, partial(change_moved, C, diagonal_blocks), text)


def block_diagonal(blocks: list[Jacobian]) -> Jacobian:
    """The block-diagonal operator of some operators.

    >>> import numpy as np
    >>> from onnxjac.jacobians import Dense
    >>> block_diagonal([Dense(np.eye(1)), Dense(2 * np.eye(1))]).toarray()
    array([[1., 0.],
           [0., 2.]])
    """
    return Block([[b if i == j else None for j, _ in enumerate(blocks)]
                  for i, b in enumerate(blocks)])  # fmt: skip


def undamped(operator: Sum) -> tuple[Jacobian, float] | None:
    """(A, δ) of a sum A + δ I; None for other sums.

    >>> import numpy as np
    >>> from onnxjac.jacobians import Dense, Identity
    >>> undamped(Dense(np.ones((2, 2))) + 0.5 * Identity((2,), float))[1]
    0.5
    """
    shift, others = split_identity(operator)
    none = not others or len(others) == len(operator.terms)
    return None if none else (reduce(add, others), shift)
