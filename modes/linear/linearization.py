"""Linearization: a Jacobian between named tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from operator import itemgetter
from typing import Any, overload

import numpy as np

from ...jacobians import Array, Dag, Jacobian, Op, Shape, prod_text, shape_of, size
from ...jacobians.arguments import Count, Natural, validated
from ...jacobians.arrays import Named, buffer_of, distinct_bytes, rounded, wide
from ...jacobians.hooks import explain, view
from ...jacobians.placing import HOST, Place, placed
from ...jacobians.readings import is_kept
from ...jacobians.threads import Latest, cached_property, remembered
from ..model.markup import Page
from ..model.primal.inputs import (
    Specs,
    applied,
    check_named,
    find_tensor,
    fitting,
    flat_shape,
    hosted,
    listed,
)
from ..model.primal.model import Model
from .check import Check, run_checks
from .derivatives.checkpoint import as_it_is
from .derivatives.point import Point
from .derivatives.record import Entry
from .derivatives.route import Route
from .elimination.adaptive import Adaptive, products_of
from .elimination.dense import columns, dense
from .elimination.plan import Maker, by_engine, eliminated, held, planned, repays_elimination
from .explanation import Explanation, Local

CACHED_BLOCKS = 16
"""The most blocks by name that a Jacobian keeps, with their programs."""


class Linearization(Jacobian):
    """J = ∂of/∂wrt at a point.

    Shape: (m, n), m the size of the tensors of `of` and n the size of the tensors of `wrt`. Units:
    entry (i, j) is in units of `of`[i] per `wrt`[j].

    `domain` and `codomain` are the tensors behind columns and rows, in order; `primal` holds the
    tensors of `of` at `point`. `J["out", "in"]` is a named block and `J.apply` a product by name;
    both work for `J.T` as well.

    `linearize` makes J: from its plan `route` and its residuals there, `at`, `transposed` for J.T;
    `make` prepares the products of a `plan`. After `relinearize`, J holds its residuals alone;
    `dag` and `entries` are built when they are needed.
    """

    def __init__(
        self,
        route: Route,
        point: Mapping[str, np.ndarray],
        at: Point,
        *,
        domain: Specs | None = None,
        codomain: Specs | None = None,
        transposed: bool = False,
        make: Maker | None = None,
    ) -> None:
        all_domain, all_codomain, dtype = at.ends
        self.domain = all_domain if domain is None else domain
        self.codomain = all_codomain if codomain is None else codomain
        super().__init__(flat_shape(self.codomain), flat_shape(self.domain), dtype)
        self.route, self.given, self.at = route, point, at
        self.transposed, self.make = transposed, make
        self.dense_limit = route.model.limits.dense

    @cached_property
    def point(self) -> Mapping[str, np.ndarray]:
        """The point, as NumPy arrays."""
        return hosted(self.given)

    @cached_property
    def _whereabouts(self) -> Place | None:
        return self.at.place

    def __getstate__(self) -> dict[str, Any]:
        """The state without the DAG of a place, which the point makes again."""
        return {name: part for name, part in super().__getstate__().items() if name != "there"}

    @property
    def primal(self) -> Mapping[str, Any]:
        """The tensors of `of` at the point, by name: of PyTorch, where it ran the model on some."""
        return self.at.primal

    @cached_property
    def dag(self) -> Dag:
        """The DAG of the blocks between the tensors, over NumPy arrays."""
        found: Dag = self.there if self.at.place is None else placed(self.there, HOST)
        return found

    @cached_property
    def there(self) -> Dag:
        """The DAG over arrays where they are, also as tensors on a GPU."""
        part = self.at.between(*self._ends)
        part.names = partial(named, self.route.model, self.given)
        return part.T if self.transposed else part

    @property
    def _ends(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The names of the tensors of `of` and of `wrt` between which this block is."""
        rows, columns = (tuple(s.name for s in side) for side in (self.codomain, self.domain))
        return (columns, rows) if self.transposed else (rows, columns)

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The steps of the model at the point, with their blocks."""
        if self.at.place is None:
            return self.at.entries
        return tuple(entry.placed(HOST) for entry in self.at.entries)

    @cached_property
    def structure(self) -> Jacobian:
        """The operator that takes the products: the DAG, prepared as far as products repay that."""
        if self.make:
            return self.make(self.there)
        shared = products_of(self.at, *self._ends, self.route.engine, transposed=self.transposed)
        return Adaptive(None if shared else self.there, self, shared, self.at)

    def _apply(self, op: Op, v: Array) -> Array:
        return self.structure._apply(op, v)

    def _flat_product(self, v: Array, columns: Shape) -> Array:
        if self.place is not self.at.place:  # by `to`
            return super()._flat_product(v, columns)
        return self.structure._flat_product(v, columns)

    @cached_property
    def T(self) -> Linearization:  # type: ignore[override]
        """The transpose, built once: cotangents of `of` to cotangents of `wrt`."""
        return self._transpose()

    def _transpose(self) -> Linearization:
        return self._with(
            domain=self.codomain, codomain=self.domain, transposed=not self.transposed
        )

    def _with(self, **changed: Any) -> Linearization:
        """A copy with some attributes changed."""
        kept = ("route", "at", "domain", "codomain", "transposed", "make")
        given = {"point": self.given, **{name: getattr(self, name) for name in kept}}
        return Linearization(**{**given, **changed})

    @validated
    def plan(self, *, products: Count = 100, memory: Count | None = None) -> Linearization:
        """The same Jacobian, prepared for a number of `products`.

        Parts of J are multiplied out once, in at most `memory` bytes, where the products repay it:
        blocks to a narrow output or from a narrow input, of each sample where samples do not mix.
        Without a plan J adapts to the number of products that it has given.

        Shape: (m, n), as before.
        """
        return self._with(make=partial(planned, products=products, memory=memory))

    @validated
    def compile(
        self, engine: str | None = None, *, products: Count = 100, memory: Count | None = None
    ) -> Linearization:
        make = partial(by_engine, engine=engine, products=products, memory=memory)
        return self._with(make=make)

    def arrays(self) -> Iterator[Array]:
        return self.there.arrays()

    @property
    def nbytes(self) -> int:
        """Bytes of the residuals and of arrays that products derived from them, each counted once.

        `point`, `primal` and the memory of an engine are not counted.
        """
        return distinct_bytes(held(self.there))

    @property
    def flops(self) -> int:
        return self.there.flops

    def relinearize(self, inputs: Mapping[str, Any]) -> Linearization:
        """The same Jacobian at another point `inputs`; what does not depend on the point is reused.

        Shape: as before, or as the shapes of the inputs determine it. Raises `InputError` for an
        input that is missing or does not fit, `UnsupportedOp` where the new point reaches an
        operator without a rule.
        """
        return self._like(linearized(self.route, inputs))

    def _near(self, point: Mapping[str, Any]) -> Linearization:
        """The same Jacobian at a checked point of the same shapes."""
        return self._like(Linearization(self.route, point, self.route.at(point)))

    def _like(self, J: Linearization) -> Linearization:
        """The block of a whole J at another point that this one is, transposed if this one is."""
        J = J.T if self.transposed else J
        if (J.codomain, J.domain) != (self.codomain, self.domain):
            J = J.block(*(tuple(s.name for s in side) for side in (self.codomain, self.domain)))
        asked = getattr(self.make, "keywords", {})  # without an engine, programs serve all points
        J.make = None if asked.get("engine", "") is None else self.make
        return J

    def _dense(self, limit: int) -> np.ndarray:
        """The matrix, by products where they take less time than a plan, else multiplied out from
        whichever side, or the middle, is cheapest.
        """
        m, n = self.shape
        if self.make is as_it_is:
            return dense(self.dag, limit=limit)
        if repays_elimination(self.dag, min(m, n)):
            return dense(eliminated(self.dag), limit=limit)
        return columns(self.dag).T if n <= m else columns(self.dag.T)

    def apply(self, tangents: Mapping[str, Any]) -> dict[str, Any]:
        """J v by name, for `tangents` v by name; those that are left out are zero.

        A tangent that is a tensor of PyTorch gives tensors on its device.

        Shapes: a tangent v has the shape of its tensor of `wrt`, and J v has the shapes of the
        tensors of `of`. Raises `InputError` where a tangent does not fit, `UnknownTensor` for a
        name that is not in `wrt`.
        """
        check_named(tangents)
        found = [find_tensor(name, self.domain) for name in tangents]
        if not found:
            return {s.name: np.zeros(shape_of(s), self.dtype) for s in self.codomain}
        names = tuple(spec.name for _, spec in sorted(found, key=itemgetter(0)))
        part = self.block(tuple(s.name for s in self.codomain), names)
        if any(map(is_kept, tangents.values())):
            return applied(part, tangents, part.domain, part.codomain)
        kind = wide(self.dtype)
        parts = [fitting(s, tangents[s.name], kind).ravel() for s in part.domain]
        v = parts[0] if len(parts) == 1 else np.concatenate(parts)
        product = rounded(part @ v, self.dtype)
        ends = np.cumsum([size(shape_of(s)) for s in self.codomain])[:-1]
        pairs = zip(self.codomain, np.split(product, ends), strict=True)
        return {s.name: np.array(y).reshape(shape_of(s)) for s, y in pairs}

    @overload
    def explain(self) -> Explanation: ...

    @overload
    def explain(self, name: str) -> Local: ...

    @validated
    def explain(self, name: str | None = None) -> Explanation | Local:
        """The parts of J, step by step, and how products are computed and why.

        With the `name` of a node or tensor, the rule of one step: its mathematics and its blocks.

        Raises `UnknownTensor` for a name that the model does not have.
        """
        found: Explanation | Local = explain(self.T if self.transposed else self, name)
        return found

    def view(self) -> Page:
        """The graph of the model as an HTML page: in a notebook, or `J.view().save("graph.html")`.

        Nodes have their rules, edges the kind, shape, norm and cost of ∂output/∂input; two tensors
        that are clicked give the block between them. The page can be searched, folded and zoomed,
        and needs no other file. The model is run once, and blocks take up to 12 products each.
        """
        page: Page = view(self)
        return page

    @validated
    def check(self, *, seed: Natural = 0) -> Check:
        """Whether J is right: `Check`, true where all tests are, with one line for each test.

        ⟨u, J v⟩ = ⟨Jᵀ u, v⟩; J V and Jᵀ U against their columns; J, planned or compiled as it is,
        against J as the rules gave it; J.toarray(), J.tosparse() and J.diagonal(), also of Jᵀ,
        against products, or some columns of a large matrix; J v against differences of the model.
        Vectors are drawn from `seed`. An exception counts as a failure of its test.

        The `verdict` is "right", "wrong", or "not compared", which is not true: an entry has a
        kink, a jump or too much rounding within reach of all step widths, here and at three points
        beside; numbers are quantised on the way; or J is an estimator. The line says which.

        Differences take 3 runs of the model, up to 17 where an entry of J v is not the slope at the
        first step width, and as many again at each point beside. Tolerances follow the coarsest
        float between `wrt` and `of`; tensors coarser than J are named.
        """
        return self.T.check(seed=seed) if self.transposed else run_checks(self, seed)

    def __getitem__(self, key: Any) -> Jacobian:
        """A block by names, `J["out", "in"]`, or rows and columns by index, `J[:10, 3:5]`."""
        if not (isinstance(key, tuple) and len(key) == 2 and all(isinstance(k, str) for k in key)):
            return super().__getitem__(key)
        return self.block((key[0],), (key[1],))

    def block(self, of: tuple[str, ...], wrt: tuple[str, ...]) -> Linearization:
        """The rows of some tensors and the columns of others, by name.

        Shape: (size of these `of`, size of these `wrt`). Raises `UnknownTensor` for a tensor that
        J does not have on that side.
        """
        if (of, wrt) == tuple(tuple(s.name for s in side) for side in (self.codomain, self.domain)):
            return self
        codomain = tuple(find_tensor(name, self.codomain)[1] for name in of)
        domain = tuple(find_tensor(name, self.domain)[1] for name in wrt)
        made = partial(self._with, domain=domain, codomain=codomain)
        return remembered(self._blocks, (of, wrt), made)

    @cached_property
    def _blocks(self) -> Latest[Any, Linearization]:
        """The blocks by the names of their ends: each goes on with its own products."""
        return Latest(CACHED_BLOCKS)

    def __repr__(self) -> str:
        rows, columns = (listed(specs, shapes=True) for specs in (self.codomain, self.domain))
        kind = "transpose of ∂/∂" if self.transposed else "∂/∂"
        return f"{kind}: ({columns}) → ({rows}), {prod_text(self.shape)} {self.dtype}"


def named(model: Model, point: Mapping[str, Any]) -> Named:
    """The constants and inputs of a model at a point that are arrays of NumPy, by their memory."""
    held = {**model.constants, **point}
    return {buffer_of(x): (name, x) for name, x in held.items() if isinstance(x, np.ndarray)}


def linearized(
    route: Route, inputs: Mapping[str, Any], *, moves: bool = True, checked: bool = False
) -> Linearization:
    """The Jacobian between the tensors of a route, at a point, which was `checked` or is checked
    now; more points follow where it `moves`.
    """
    taken, point = route.through(inputs, checked=checked)
    make: Maker | None = as_it_is if route.checkpoint else None
    return Linearization(taken, point, taken.at(point, moves=moves), make=make)
