"""Damped: what an operator is a multiple of the identity away from."""

from __future__ import annotations

from functools import reduce

from ...jacobians import Jacobian, Sum
from ...jacobians.hooks import add
from ...jacobians.sums import multiple


def undamped(operator: Sum) -> tuple[Jacobian, float] | None:
    """(A, δ) of A + δ I, or None where nothing is added to anything.

    >>> import numpy as np
    >>> from onnxjac.jacobians import Dense, Identity
    >>> undamped(Dense(np.ones((2, 2))) + 0.5 * Identity((2,), float))[1]
    0.5
    """
    shifts = [multiple(term) for term in operator.terms]
    others = [term for term, shift in zip(operator.terms, shifts, strict=True) if shift is None]
    if not others or len(others) == len(shifts):
        return None
    return reduce(add, others), sum(shift for shift in shifts if shift is not None)
