"""Operators as HTML: what they are, their amounts, and the tree of their parts."""

from __future__ import annotations

from ....jacobians import Jacobian, prod_text
from ....jacobians.hooks import html
from ...linearization import Linearization
from ..units import bytes_text
from .elements import OPEN, Markup, card, fold
from .parts import Part, flops_text, parts_of, taking
from .tree import tree


@html.register
def _(operator: Jacobian) -> str:
    """Any operator."""
    parts = parts_of(operator)
    return card(repr(operator), amounts(operator), *branch("parts", parts))


@html.register
def _(J: Linearization) -> str:
    """A Jacobian between named tensors: as the rules give it, and as its products are taken."""
    given, taken = parts_of(J), taking(J)
    return card(
        repr(J), amounts(J), *branch("blocks, as the rules give them", given),
        *branch("operators, as products take them by now", taken),
    )  # fmt: skip


def amounts(J: Jacobian) -> str:
    """Size, arithmetic and memory."""
    m, n = J.shape
    full = bytes_text(m * n * J.dtype.itemsize)
    return (f"{prod_text(J.shape)} {J.dtype}, {flops_text(J)} flops in one product, "
            f"{bytes_text(J.nbytes)} held, {full} if it were dense")  # fmt: skip


def branch(title: str, parts: tuple[Part, ...]) -> list[Markup]:
    """The fold of some parts, if there are any."""
    if not parts:
        return []
    return [fold(f"{title}: {len(parts):,}", tree(parts), unfolded=len(parts) <= OPEN)]
