"""onnxjac: the derivative of an ONNX model as a lazy linear operator that SciPy can use."""

from .jacobians.errors import OnnxJacError
from .modes.linearize import linearize
from .modes.load import load

__version__ = "0.1.0"
