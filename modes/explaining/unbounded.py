"""Unbounded: entries of the point where the formula of a derivative has no finite value.

√x at 0, log 0, 1 / 0: the blocks of these steps hold an infinity or no number, though the entries
that they are made of are finite. And 0⁰, where Pow has a value although the formula has none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from ...jacobians import Jacobian
from ...ops.conventions import CONVENTIONS
from ...ops.rules.elementwise import FORMULAS
from ..naming.names import is_float
from .blocks import Held
from .kinks import Kink, key, node_of
from .marks import powers_of_zero


def unbounded(held: Held, values: Mapping[str, Any], within: str) -> Iterator[Kink]:
    """The entries of one block that are not finite, where those of its inputs are."""
    step, name = held.step, held.step.inputs[held.key[1]] or ""
    kink = partial(Kink, step.op_type, step.name, name, within=within)
    if key(step) == "Pow" and held.key[1] == 0:
        node = node_of(step, values, frozenset((held.key,)))
        yield kink("0⁰: x = 0 and y = 0", *powers_of_zero(node), said("0⁰"))
    found = not_finite(held.operator)
    if found.size and all(map(finite, (values.get(n) for n in step.inputs if n))):
        given = ", ".join(sorted({f"{value:g}" for value in found.tolist()}))
        size = np.size(values[step.outputs[held.key[0]] or ""])
        yield kink(f"{slope_text(held)} is not finite", found.size, max(size, found.size), given)


def not_finite(J: Jacobian) -> np.ndarray:
    """The infinities and NaN among the numbers that an operator holds."""
    arrays = (np.asarray(a) for a in J.arrays() if is_float(a.dtype))
    found = [a[~np.isfinite(a)].astype(float) for a in arrays]
    return np.concatenate(found) if found else np.empty(0)


def finite(value: Any) -> bool:
    """Whether a tensor is finite throughout."""
    array = np.asarray(value)
    return not is_float(array.dtype) or bool(np.isfinite(array).all())


def slope_text(held: Held) -> str:
    """The derivative by the formula of an elementwise operator, else by the names of the block.

    A Sqrt has ∂Y/∂x = 1/(2*Y).
    """
    if key(held.step) not in FORMULAS:
        return held.text
    from ...ops.symbols.formulas import derive, parse

    declared = FORMULAS[held.step.op_type]
    text = declared.formulas.get("", next(iter(declared.formulas.values())))
    name = declared.variables[held.key[1]]
    return f"∂Y/∂{name} = {declared.given.get(name) or derive(parse(text), name)}"


def said(what: str) -> str:
    """What is declared at a point of the table of conventions, and why."""
    (found,) = (c for c in CONVENTIONS if c.what == what)
    return ", ".join(f"{slope:g}" for slope in found.ours) + f": {found.why}"
