"""Specification: the symbols reading by what ONNX says alone."""

from __future__ import annotations

from typing import Any

from ....ops.numbers.pointwise import UFUNCS
from ....ops.symbols import Symbols
from ....ops.symbols.table import KERNELS, Kernel
from .table import TRANSCRIPTIONS


class Specification(Symbols):
    """Operators by their formulas and transcriptions; no kernel of the numbers reading runs.

    Its decisions join those of another reading.
    """

    def __init__(self, notes: dict[Any, None]) -> None:
        self.notes = notes

    def kernel(self, op_type: str) -> Kernel | None:
        """A formula, NumPy's own function of the entries, or a transcription."""
        return KERNELS.get(op_type) or UFUNCS.get(op_type) or TRANSCRIPTIONS.get(op_type)
