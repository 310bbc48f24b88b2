"""Series: each ONNX operator over truncated power series, whose coefficients are graph values."""

from .coefficients import Term
from .series import Series
from .taylor import Taylor

__all__ = ["Series", "Taylor", "Term"]
