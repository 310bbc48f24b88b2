"""Limits: the resources that a model, even an untrusted one, may use."""

from __future__ import annotations

from dataclasses import dataclass

from ...jacobians.base import DENSE_LIMIT
from ...jacobians.errors import InputError, LimitError


@dataclass(frozen=True)
class Limits:
    """Limits on loading, running and linearising one model: `oj.load(..., limits=Limits(...))`.

    Work that would exceed a limit raises `LimitError` before it starts.

    - ``bytes``: bytes of all tensors that a run of the model holds at once, not counting weights
      and inputs.
    - ``dense``: bytes of a dense or sparse matrix of a Jacobian, unless `toarray` or `tosparse` is
      given another limit.
    - ``nodes``: nodes of the model with all functions inlined, including the nodes of subgraphs.
    - ``steps``: steps of one run through the bodies of Loop and Scan, summed over all iterations;
      also the time steps of each recurrent layer.
    - ``depth``: nesting depth of graphs inside graphs, and of functions that call functions.
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
        """Raises `LimitError` where the `need` of `what` exceeds the limit called `name`."""
        limit = getattr(self, name)
        if need > limit:
            raise LimitError(
                f"{what} needs {amount(name, need)}, more than the limit of {amount(name, limit)}. "
                f"If the model can be trusted: onnxjac.load(..., limits=Limits({name}={need}))."
            )


def amount(name: str, value: int) -> str:
    """An amount of a resource, in words.

    >>> amount("bytes", 3 * 2**29), amount("steps", 1_000_001)
    ('1.5 GiB', '1,000,001 steps')
    """
    if name not in ("bytes", "dense"):
        return f"{value:,} {name}"
    if value < 2**20:
        return f"{value:,} bytes"
    return f"{value / 2**30:,.1f} GiB" if value >= 2**30 else f"{value / 2**20:,.1f} MiB"
