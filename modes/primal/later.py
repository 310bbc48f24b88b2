"""Later: tensors at a point that are computed when somebody looks at them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ...jacobians.cached import cached_property
from ..flow.contents import Contents
from .evaluate import evaluate
from .finite import warn_nonfinite


class Later(Mapping[str, Any]):
    """name -> array, by one run of the model at the first look."""

    def __init__(
        self, model: Contents, point: Mapping[str, Any], names: tuple[str, ...], engine: str | None
    ) -> None:
        self.model, self.point, self.names, self.engine = model, point, names, engine

    @cached_property
    def values_now(self) -> dict[str, np.ndarray]:
        """The tensors, with a warning if one is not finite."""
        values = evaluate(self.model, self.point, self.names, engine=self.engine)
        warn_nonfinite(self.model, values, self.point)
        return values

    def __getitem__(self, name: str) -> Any:
        return self.values_now[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        return repr(dict(self))
