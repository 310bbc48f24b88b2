"""Sides: which tensors stand along the rows and the columns of a matrix, and how to label them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from ...jacobians import Jacobian, prod_text, shape_of, size
from ..model import TensorSpec
from .canvas import shortened

NAME = 22
"""Characters of a name that fit beside a picture."""


@dataclass(frozen=True)
class Side:
    """Parts of the rows or columns: a label for each, and the entries between which it stands."""

    title: str
    labels: tuple[str, ...]
    edges: tuple[int, ...]

    def merged(self, most: int) -> Side:
        """Neighbours taken together until there are no more than `most` parts."""
        n = len(self.labels)
        if n <= most:
            return self
        cuts = np.linspace(0, n, most + 1).round().astype(int)
        labels = (f"{self.labels[a].split()[0]} … ({b - a})" for a, b in pairwise(cuts))
        return Side(self.title, tuple(labels), tuple(self.edges[k] for k in cuts))

    def tiled(self, most: int) -> Side:
        """Equal parts, no more than `most`, whatever the tensors."""
        n = self.edges[-1]
        cuts = np.linspace(0, n, min(n, most) + 1).round().astype(int)
        return Side(self.title, ("",) * (len(cuts) - 1), tuple(map(int, cuts)))

    @property
    def axis(self) -> str:
        """The title, and the tensor where it is the only one."""
        only = self.labels[0] if len(self.labels) == 1 else ""
        return f"{self.title}: {only}" if only else self.title


def sides(J: Jacobian) -> tuple[Side, Side]:
    """The tensors of the rows and those of the columns; without names, one part each."""
    columns: Any = getattr(J, "domain", None)
    rows: Any = getattr(J, "codomain", columns)
    if rows is None or (total(rows), total(columns)) != J.shape:
        m, n = J.shape
        return Side("rows", ("",), (0, m)), Side("columns", ("",), (0, n))
    if not hasattr(J, "codomain"):
        return side("rows", rows), side("columns", columns)
    titles = ("wrt", "of") if getattr(J, "transposed", False) else ("of", "wrt")
    return side(f"{titles[0]} (rows)", rows), side(f"{titles[1]} (columns)", columns)


def side(title: str, specs: tuple[TensorSpec, ...]) -> Side:
    """One tensor after the other."""
    edges = np.cumsum([0, *(size(shape_of(spec)) for spec in specs)])
    return Side(title, tuple(map(label, specs)), tuple(map(int, edges)))


def label(spec: TensorSpec) -> str:
    """Name and shape."""
    return f"{shortened(spec.name, NAME)} {prod_text(shape_of(spec))}"


def total(specs: tuple[TensorSpec, ...]) -> int:
    """Entries of all tensors together."""
    return sum(size(shape_of(spec)) for spec in specs)
