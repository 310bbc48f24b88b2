"""Limits: how much a model may ask for, whoever wrote it."""

from __future__ import annotations

from dataclasses import dataclass

from ...jacobians.base import DENSE_LIMIT
from ...jacobians.errors import InputError, LimitError


@dataclass(frozen=True)
class Limits:
    """What loading, running and linearising one model may take: `oj.load(..., limits=Limits(...))`.

    What would exceed a limit is refused by a `LimitError` before it is begun.

    - ``bytes``: of the tensors that a run of the model holds at once. Weights do not count, nor
      what the caller gives.
    - ``dense``: bytes of a dense or sparse matrix made of a Jacobian, where `toarray` and
      `tosparse` are not told another limit.
    - ``nodes``: of the model with all functions and bodies written out.
    - ``steps``: of one run through the bodies of Loop and Scan, summed over all turns; and the time
      steps of each recurrent layer.
    - ``depth``: of graphs inside graphs, and of functions that call functions.
    """

    bytes: int = 16 * 2**30
    dense: int = DENSE_LIMIT
    nodes: int = 1_000_000
    steps: int = 1_000_000
    depth: int = 32

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not isinstance(value, int) or value < 0:
                raise InputError(f"the limit {name}={value!r} must be a whole number, 0 or more")

    def check(self, name: str, need: int, what: object) -> None:
        """Raises `LimitError` where `what` needs more of a resource than there may be."""
        limit = getattr(self, name)
        if need > limit:
            raise LimitError(
                f"{what} needs {amount(name, need)}, more than the limit of {amount(name, limit)}. "
                f"If the model can be trusted: onnxjac.load(..., limits=Limits({name}={need}))."
            )


def amount(name: str, value: int) -> str:
    """A number of some resource, in words.

    >>> amount("bytes", 3 * 2**29), amount("steps", 1_000_001)
    ('1.5 GiB', '1,000,001 steps')
    """
    if name not in ("bytes", "dense"):
        return f"{value:,} {name}"
    if value < 2**20:
        return f"{value:,} bytes"
    return f"{value / 2**30:,.1f} GiB" if value >= 2**30 else f"{value / 2**20:,.1f} MiB"
