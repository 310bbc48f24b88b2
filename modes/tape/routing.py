"""Routing: what a Jacobian asks of the route that made it, and will make it at other points."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from ...jacobians import Dag
from ...ops import Step
from ..model import Model


class Routed(Protocol):
    """All of a linearisation that does not depend on the point; `modes.route` has the only one.

    `at` and `record` give the `Linearization` at a point, which the latter takes as it is.
    """

    @property
    def model(self) -> Model: ...

    @property
    def steps(self) -> tuple[Step, ...]: ...

    @property
    def engine(self) -> str | None: ...

    def at(self, inputs: Mapping[str, Any]) -> Any: ...

    def record(self, point: Mapping[str, Any]) -> Any: ...

    def flat(self, point: Mapping[str, Any]) -> tuple[Any, Mapping[str, Any]]: ...

    def zeros(self, dag: Dag, of: tuple[str, ...], wrt: tuple[str, ...]) -> tuple[str, ...]: ...
