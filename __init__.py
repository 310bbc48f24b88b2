"""onnxjac: the derivative of an ONNX model as a lazy linear operator that SciPy can use."""

from .jacobians.errors import (
    InputError,
    LimitError,
    LoadError,
    OnnxJacError,
    OnnxJacWarning,
    UnknownTensor,
    UnsupportedOp,
)
from .modes.curvature.gauss_newton import gauss_newton
from .modes.export import export
from .modes.forward import jvp
from .modes.hessian import Hessian, hessian, hvp
from .modes.linearization import Linearization
from .modes.linearize import linearize
from .modes.load import load
from .modes.model import Model, TensorSpec
from .modes.proofs import prove, tags
from .modes.reverse import grad, vjp
from .modes.sparse import Coloring, coloring, pattern
from .modes.training.lowering import lower_gradients
from .modes.training.optimizers import Adagrad, Adam, Momentum
from .modes.training.step import initial_state, train_step
from .modes.training.training_model import training_model
from .ops.registry import defines, jacobian, zero

__version__ = "0.1.0"

__all__ = [
    "Adagrad", "Adam", "Coloring", "Hessian", "InputError", "LimitError", "Linearization",
    "LoadError", "Model", "Momentum", "OnnxJacError", "OnnxJacWarning", "TensorSpec",
    "UnknownTensor", "UnsupportedOp", "coloring", "defines", "export", "gauss_newton", "grad",
    "hessian", "hvp", "initial_state", "jacobian", "jvp", "linearize", "load", "lower_gradients",
    "pattern", "prove", "tags", "train_step", "training_model", "vjp", "zero",
]  # fmt: skip
