"""What is declared at the kinks of an operator."""

from __future__ import annotations

from ...ops.conventions import CONVENTIONS, shown


def kinks_of(op_type: str) -> tuple[str, ...]:
    """The declared derivatives, one line each.

    >>> kinks_of("Relu")
    ('relu(0): 0 (the side on which it is constant)',)
    """
    return tuple(
        f"{c.what}: {shown(c.ours)} ({c.why})" for c in CONVENTIONS if c.op_type == op_type
    )
