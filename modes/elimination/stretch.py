"""Stretch: what was multiplied out, for those who ask why a product is as fast as it is."""

from __future__ import annotations

from dataclasses import dataclass

from ...jacobians import Jacobian


@dataclass(frozen=True)
class Stretch:
    """From vertex `start` to vertex `end`: seconds of a product before and after, bytes held."""

    start: int
    end: int
    text: str
    before: float
    after: float
    nbytes: int

    def __str__(self) -> str:
        return self.told(str(self.start), str(self.end))

    def told(self, start: str, end: str) -> str:
        """The same with names in place of numbers."""
        times = f"{self.before * 1e3:.3g} → {self.after * 1e3:.3g} ms"
        return f"{start} → {end}: {self.text}, {times} (estimated), {self.nbytes:,} bytes"


def text_of(operator: Jacobian, width: int = 60) -> str:
    """An operator in a line of a table."""
    text = repr(operator)
    return text if len(text) <= width else text[: width - 1] + "…"
