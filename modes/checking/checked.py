"""Checked: the tests of `check`, of a linearisation beside the model that it was made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from ...jacobians import Dag, Jacobian
from ..naming.named import Specs
from ..primal.near import Near
from ..tape.routing import Routed
from .check import Check, check


class Linear(Protocol):
    """A linearisation: the model around its point, and its like at other points."""

    domain: Specs
    codomain: Specs
    point: Mapping[str, Any]
    route: Routed
    shape: tuple[int, int]
    dtype: np.dtype

    @property
    def dag(self) -> Dag: ...

    def _like(self, J: Any) -> Any: ...


def checked(J: Any, seed: int) -> Check:
    """The outcomes of all tests, with random vectors drawn from `seed`."""
    near = around(J)
    return check(J, J.dag, near, near.scale, lambda: beside(J, near, seed), seed=seed)


def around(J: Linear) -> Near:
    """The primal near the point."""
    return Near(J.route.model, J.point, J.domain, J.codomain, J.route.engine)


def beside(J: Linear, near: Near, seed: int) -> tuple[Jacobian, Near]:
    """The Jacobian and the primal at a random point near this one."""
    rng = np.random.default_rng(seed)
    shift = 1e-2 * max(near.scale, 1e-3) * rng.standard_normal(J.shape[1])
    moved = J._like(J.route.record(near.moved(shift.astype(J.dtype))))
    return moved, around(moved)
