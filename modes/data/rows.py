"""Rows: those of Jacobians below each other, sorted by the tensors that they are of."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...jacobians import Jacobian, Take, shape_of, size
from ..model import TensorSpec

Specs = tuple[TensorSpec, ...]


def by_tensor(J: Jacobian) -> tuple[Jacobian, Specs | None]:
    """J with the rows of one tensor after those of another, and these tensors over all batches.

    `Stacked` has the rows of one batch after those of another. Where an operator has no names, or
    other names in every batch, J is as it was, with None.
    """
    batches = codomains_of(J)
    names = {tuple(spec.name for spec in specs) for specs in batches}
    if len(names) != 1 or names == {()}:
        return J, None
    tensors = tuple(zip(*batches, strict=True))
    sizes = np.array([[size(shape_of(spec)) for spec in specs] for specs in batches])
    return (J if 1 in sizes.shape else sorted_rows(J, sizes)), tuple(map(together, tensors))


def codomains_of(J: Jacobian) -> tuple[Specs, ...]:
    """The tensors behind the rows, batch by batch; none where they have no names."""
    own: Any = getattr(J, "codomain", None) or ()
    return getattr(J, "codomains", (own,))


def sorted_rows(J: Jacobian, sizes: np.ndarray) -> Jacobian:
    """All rows of the first tensor, then of the second …, for sizes (batches, tensors)."""
    owners = np.tile(np.arange(sizes.shape[1]), len(sizes)).repeat(sizes.ravel())
    return Take(np.argsort(owners, kind="stable"), 0, J.out_shape, J.dtype) @ J


def together(specs: Specs) -> TensorSpec:
    """One tensor in all batches, along its first axis; flat where it has none, or others differ.

    >>> z = TensorSpec("z", (3, 2), np.dtype(float))
    >>> print(together((z, z._replace(shape=(1, 2)))))
    z float64[4,2]
    >>> print(together((z, z._replace(shape=(3, 5)))))
    z float64[21]
    """
    if len(specs) == 1:
        return specs[0]
    shapes = [shape_of(spec) for spec in specs]
    alike = all(shapes) and len({shape[1:] for shape in shapes}) == 1
    counts = [shape[0] for shape in shapes] if alike else map(size, shapes)
    return specs[0]._replace(shape=(sum(counts), *(shapes[0][1:] if alike else ())))
