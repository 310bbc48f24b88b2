"""Functions of tensors that another tool holds by name, in vectors: any mappings to arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, pairwise, product
from typing import Any, NamedTuple, final

import numpy as np

from ...jacobians import shape_of, size
from ..linear.linearization import Linearization
from ..model.primal.evaluate import evaluate
from ..model.primal.inputs import Names, Specs, as_model, check_inputs, distinct, names_of
from ..model.primal.model import Model
from .functions import Primal

Vectors = Sequence[Any]


class BlockEntries(NamedTuple):
    """The entries of ∂of/∂wrt that may be nonzero, by their `rows` and `columns` inside the block;
    `places` finds their values in the data of the sparse J.
    """

    of: str
    wrt: str
    rows: np.ndarray
    columns: np.ndarray
    places: np.ndarray


@final
class NamedFunction:
    """(wrt, states) ↦ of, from `start` on; `keys` are the names that the tool has for tensors."""

    def __init__(
        self, model: Model, inputs: Mapping[str, Any], of: Names, wrt: Names, states: Names,
        engine: str | None,
    ) -> None:  # fmt: skip
        model = as_model(model, of, wrt=wrt)
        self.states = () if states is None else distinct(states, "states")
        free = {name: spec for name, spec in model.inputs.items() if name not in self.states}
        wrt = (*names_of(model, wrt, free, "wrt"), *self.states)
        point = check_inputs(model, inputs, engine=engine)
        fixed = {name: x for name, x in point.items() if name not in wrt}
        of = names_of(model, of, model.outputs, "of")
        self.f = Primal(model, of, wrt, (), fixed, engine, eager=False)
        self.start = evaluate(model, point, wrt, engine=engine)
        self.keys = {name: name for name in (*wrt, *of)}

    def at_start(self) -> tuple[dict[str, np.ndarray], Linearization]:
        """The values and the Jacobian where `start` is."""
        args = tuple(self.start.values())
        return dict(zip(self.f.of, self.f(args), strict=True)), self.f.at(args).J

    def args(self, vectors: Vectors) -> tuple[np.ndarray, ...]:
        """The arguments, which some of the vectors hold."""
        held = {name: vector[name] for vector in vectors for name in vector}
        return tuple(np.reshape(held[self.keys[n]], shape_of(x)) for n, x in self.start.items())

    def J(self, vectors: Vectors) -> Linearization:
        """The Jacobian at the point that the vectors hold."""
        return self.f.at(self.args(vectors)).J

    def write(self, vectors: Vectors, target: Any) -> None:
        """target = f(x)."""
        for name, y in zip(self.f.of, self.f(self.args(vectors)), strict=True):
            target[self.keys[name]] = y

    def add_product(self, J: Linearization, sources: Vectors, targets: Vectors) -> None:
        """targets += J sources; a tensor that the vectors do not hold is left out."""
        v = {s.name: np.reshape(vector[key], shape_of(s)) for s in J.domain for vector in sources
             if (key := self.keys[s.name]) in vector}  # fmt: skip
        for name, y in J.apply(v).items():
            for vector in targets:
                if (key := self.keys[name]) in vector:
                    vector[key] += np.reshape(y, np.shape(vector[key]))


def block_entries(J: Linearization) -> Iterator[BlockEntries]:
    """The blocks of a Jacobian that have entries; they are the same at all points."""
    A = J.tosparse()
    rows = np.repeat(np.arange(J.shape[0], dtype=np.int32), np.diff(A.indptr))
    for (of, i, m), (wrt, j, n) in product(ranges(J.codomain), ranges(J.domain)):
        inside = (i <= rows) & (rows < m) & (j <= A.indices) & (A.indices < n)
        places = np.flatnonzero(inside)
        if len(places):
            columns = (A.indices[places] - j).astype(np.int32)
            yield BlockEntries(of, wrt, rows[places] - np.int32(i), columns, places)


def ranges(specs: Specs) -> list[tuple[str, int, int]]:
    """The name of each tensor, and where it begins and ends in the flat vector of all."""
    ends = pairwise(accumulate((size(shape_of(spec)) for spec in specs), initial=0))
    return [(spec.name, *end) for spec, end in zip(specs, ends, strict=True)]
