"""Series: each ONNX operator over truncated power series, whose coefficients are graph values."""

from .coefficients import Term
from .series import PowerSeries
from .taylor import Taylor

__all__ = ["PowerSeries", "Taylor", "Term"]
