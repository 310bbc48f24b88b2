"""Jumps: how many entries lie where an operator without a derivative changes its value.

Such an operator cuts the derivative, which is 0 on either side of a jump. What follows from it, as
the branch of a Where, is differentiated as it is at the point.
"""

from __future__ import annotations

import numpy as np

from ...ops import Node
from .marks import marked, zeros
from .ties import Count, Counts

WHOLE = "where x is a whole number"
SIDES = "where both sides are equal"

JUMPS: dict[str, str] = {
    "Floor": WHOLE,
    "Ceil": WHOLE,
    "Round": "where x is half way between two whole numbers",
    "Sign": "x = 0",
    **dict.fromkeys(("Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal"), SIDES),
}
"""op_type -> where its value changes."""


def whole(node: Node) -> Count:
    """Entries that are whole numbers."""
    return marked(node.x == np.floor(node.x))


def half_way(node: Node) -> Count:
    """Entries half way between whole numbers."""
    return marked(node.x - np.floor(node.x) == 0.5)


def equal(node: Node) -> Count:
    """Entries that equal those on the other side."""
    return marked(np.asarray(node.x) == np.asarray(node.inputs[1]))


COUNTED_JUMPS: Counts = {
    "Floor": whole,
    "Ceil": whole,
    "Round": half_way,
    "Sign": zeros,
    **dict.fromkeys(("Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal"), equal),
}
