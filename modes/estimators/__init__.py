"""Estimators: traces, norms and spectra from a few products, or exactly from structure.

All of them show the number of products on a terminal; `progress=False` silences them, see
`onnxjac.progress`.

Probes, bases and results are where the arrays of the operator are: NumPy arrays, or tensors on the
device of PyTorch's tensors, such as after `J.to("cuda")`. A seed gives the same probes again on a
device of the same kind; NumPy, a CPU and a GPU draw different ones. Matrices are decomposed, and
diagonals found by structure, there too; spectra and numbers are NumPy's, and sparse entries are
accumulated on the host.
"""

from .density import SpectralDensity, logdet, spectral_density
from .estimate import Estimate
from .lanczos import low_rank
from .norms import condition_number, frobenius_norm, spectral_norm
from .trace import diagonal, trace

__all__ = [
    "Estimate", "SpectralDensity", "condition_number", "diagonal", "frobenius_norm", "logdet",
    "low_rank", "spectral_density", "spectral_norm", "trace",
]  # fmt: skip
