"""Symbols: each ONNX operator over SymPy expressions, at a point.

An entry of a tensor is an expression together with its number at a point. Arithmetic is exact;
branches, comparisons and sorts are decided by the numbers, and every decision is noted. The results
therefore hold where these decisions hold: in an open set around the point.

>>> op = Symbols()
>>> x = op.variables("x", [2, -1])
>>> op.Relu(x)
[x_0, 0]
>>> op.conditions
(x_0 > 0, x_1 < 0)
"""

from .number import Number, closed_form
from .reading import Symbols, Tensor

__all__ = ["Number", "Symbols", "Tensor", "closed_form"]
