"""Products: tensors that the model makes by Mul, which are the products of a program as well.

In the derivative of u ∘ u ∘ u stands u ∘ u, twice as a product of two residuals and once as a
residual itself. As one variable, the three are 3 u².
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from ...jacobians import Diagonal, Jacobian
from ..tape.record import Entry
from .reading import Key, identity


class Product(NamedTuple):
    """left ∘ right = product, known by their identities."""

    left: Key
    right: Key
    product: Key


def products(entries: Iterable[Entry]) -> list[Product]:
    """The products of a model that its own operators hold, as they hold both factors."""
    made = [entry for entry in entries if entry.step.op_type == "Mul" and not entry.step.domain]
    held = {name: array for entry in made for name, array in factors(entry)}
    named = ((*entry.step.inputs, *entry.step.outputs) for entry in made)
    found = ([held[name] for name in names if name in held] for names in named)
    return [Product(*map(identity, three))
            for three in found if len(three) == 3 and is_product(*three)]  # fmt: skip


def factors(entry: Entry) -> Iterator[tuple[str, np.ndarray]]:
    """The operands of z = x y by name, as far as ∂z/∂x = diag(y) and ∂z/∂y = diag(x) hold them."""
    x, y = map(str, entry.step.inputs)
    for name, slot in ((y, (0, 0)), (x, (0, 1))):
        block: Jacobian | None = entry.blocks.get(slot)
        if isinstance(block, Diagonal):
            yield name, block.d


def is_product(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> bool:
    """Whether a ∘ b = c entry by entry: a rule of the user's own may hold other arrays."""
    if not (a.shape == b.shape == c.shape and a.dtype == b.dtype == c.dtype and c.size):
        return False
    with np.errstate(all="ignore"):
        return np.array_equal(a * b, c, equal_nan=True)
