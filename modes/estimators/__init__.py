"""Estimators: what a few products tell of an operator, and what its structure tells exactly.

All of them show on a terminal how many products they took so far; `progress=False` is silent, see
`onnxjac.progress`.
"""

from .density import SpectralDensity, logdet, spectral_density
from .estimate import Estimate
from .low_rank import low_rank
from .norms import condition_number, frobenius_norm, spectral_norm
from .trace import diagonal, trace

__all__ = [
    "Estimate", "SpectralDensity", "condition_number", "diagonal", "frobenius_norm", "logdet",
    "low_rank", "spectral_density", "spectral_norm", "trace",
]  # fmt: skip
