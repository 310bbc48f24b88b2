"""Limits: the resources that a model, even an untrusted one, may use, and a meter of their use."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...jacobians.arguments import Natural, validated
from ...jacobians.base import DENSE_LIMIT
from ...jacobians.errors import LimitError
from ...jacobians.readings import is_kept


@validated
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

    bytes: Natural = 16 * 2**30
    dense: Natural = DENSE_LIMIT
    nodes: Natural = 1_000_000
    steps: Natural = 1_000_000
    depth: Natural = 32

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


class Meter:
    """Counts the steps of all iterations of one run, and the bytes of the tensors it holds."""

    def __init__(self, limits: Limits) -> None:
        self.limits, self.steps, self.bytes = limits, 0, 0

    def turn(self, steps: int) -> None:
        """Count one iteration of a body with `steps` steps; the iteration itself is a step, too."""
        self.steps += steps + 1
        self.limits.check("steps", self.steps, "the control flow of the model, turn by turn,")

    def keep(self, values: Iterable[Any], what: str) -> None:
        """Count tensors that are held from now on."""
        self.bytes += sum(map(nbytes_of, values))
        self.limits.check("bytes", self.bytes, what)

    def drop(self, values: Iterable[Any]) -> None:
        """Subtract tensors that are released."""
        self.bytes -= sum(map(nbytes_of, values))


def nbytes_of(value: Any) -> int:
    """Bytes of a tensor, or of the tensors of a sequence; 0 for one number that is broadcast.

    >>> nbytes_of(np.zeros(4)), nbytes_of([np.zeros(4), None]), nbytes_of(np.broadcast_to(1.0, 9))
    (32, 32, 0)
    """
    if isinstance(value, list):
        return sum(map(nbytes_of, value))
    if is_kept(value):
        return int(value.nbytes)
    if not isinstance(value, np.ndarray) or (value.ndim and not any(value.strides)):
        return 0
    return value.nbytes
