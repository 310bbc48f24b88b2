"""onnxjac: the derivative of an ONNX model as a lazy linear operator that SciPy can use."""

from .jacobians.errors import (
    InputError,
    LimitError,
    LoadError,
    NotConverged,
    OnnxJacError,
    OnnxJacWarning,
    UnknownTensor,
    UnsupportedOp,
)
from .jacobians.progress import progress
from .modes import estimators
from .modes.attribution.grad_cam import grad_cam
from .modes.attribution.gradients import (
    gradient_times_input,
    integrated_gradients,
    saliency,
    smoothgrad,
)
from .modes.attribution.influence import influence, nearest_gradients
from .modes.check_derivative import check_derivative
from .modes.comparison.compare import compare
from .modes.curvature import checked as _checked  # noqa: F401  (C.check)
from .modes.curvature.kfac import ekfac, kfac, shampoo
from .modes.curvature.over_data import (
    empirical_fisher,
    fisher,
    gauss_newton,
    grad,
    gram,
    hessian,
    linearize,
    ntk,
    value_and_grad,
)
from .modes.data.cluster import distributed
from .modes.data.ranks import ranked
from .modes.data.shares import streamed
from .modes.exports.casadi import export_casadi
from .modes.exports.export import export
from .modes.forward import jvp
from .modes.hessian import Hessian, hvp
from .modes.implicit import layers as _layers  # noqa: F401  (roots for PyTorch and JAX)
from .modes.implicit.root import root
from .modes.implicit.trajectory import trajectory
from .modes.interop import (
    asoperator,
    to_jax,
    to_openmdao,
    to_petsc,
    to_pyomo,
    to_pytensor,
    to_sundials,
    to_torch,
)
from .modes.linear.linearization import Linearization
from .modes.losses import with_loss
from .modes.model.flow.steps import Limits
from .modes.model.loading.load import load
from .modes.model.primal.model import Model, TensorSpec
from .modes.recording import at_point as _at_point  # noqa: F401  (long loops at a point)
from .modes.residual import with_residual
from .modes.resume import ResumeFile
from .modes.reverse import vjp
from .modes.sensitivities.sensitivities import sensitivities
from .modes.show import attribution as _attribution  # noqa: F401  (pictures of attributions)
from .modes.show import comparison as _comparison  # noqa: F401  (pages of comparisons)
from .modes.show import explain as _explain  # noqa: F401  (J.explain and C.explain)
from .modes.show import html as _html  # noqa: F401  (what notebooks show)
from .modes.show import plots
from .modes.show import sensitivities as _sensitivities  # noqa: F401  (pages)
from .modes.show import view as _view  # noqa: F401  (J.view)
from .modes.solvers import preconditioners
from .modes.solvers.descent import natural_gradient, newton_cg
from .modes.solvers.evidence import logdet_and_grad, trace_and_grad
from .modes.solvers.initial_value import solve_ivp
from .modes.solvers.inverse import identity_like, inverse
from .modes.solvers.levenberg_marquardt import levenberg_marquardt
from .modes.solvers.problem import as_scipy
from .modes.solvers.program import problem
from .modes.solvers.roots import euler_residual, implicit_euler, newton_krylov, pseudo_transient
from .modes.sparse import Coloring, coloring, pattern
from .modes.taylor.jet import jet
from .modes.taylor.laplacian import derivative, laplacian
from .modes.training.lowering import lower_gradients
from .modes.training.optimizers import Adagrad, Adam, Momentum, OptimizerFunction
from .modes.training.step import initial_state, load_state, save_state, train_step
from .modes.training.training_model import training_model
from .modes.verify import prove, symbolic, tags
from .ops.derive import Derived, derive
from .ops.numbers.table import kernel
from .ops.registry import defines, jacobian, zero

__version__ = "0.1.0"

__all__ = [
    "Adagrad", "Adam", "Coloring", "Derived", "Hessian", "InputError", "LimitError", "Limits",
    "Linearization", "LoadError", "Model", "Momentum", "NotConverged", "OnnxJacError",
    "OnnxJacWarning", "OptimizerFunction", "ResumeFile", "TensorSpec", "UnknownTensor",
    "UnsupportedOp", "as_scipy", "asoperator", "check_derivative", "coloring", "compare", "defines",
    "derivative", "derive", "distributed", "ekfac", "empirical_fisher", "estimators",
    "euler_residual", "export", "export_casadi", "fisher", "gauss_newton", "grad", "grad_cam",
    "gradient_times_input", "gram", "hessian", "hvp", "identity_like", "implicit_euler",
    "influence", "initial_state", "integrated_gradients", "inverse", "jacobian", "jet", "jvp",
    "kernel", "kfac", "laplacian", "levenberg_marquardt", "linearize", "load", "load_state",
    "logdet_and_grad", "lower_gradients", "natural_gradient", "nearest_gradients", "newton_cg",
    "newton_krylov", "ntk", "pattern", "plots", "preconditioners", "problem", "progress", "prove",
    "pseudo_transient", "ranked", "root", "saliency", "save_state", "sensitivities", "shampoo",
    "smoothgrad", "solve_ivp", "streamed", "symbolic", "tags", "to_jax", "to_openmdao", "to_petsc",
    "to_pyomo", "to_pytensor", "to_sundials", "to_torch", "trace_and_grad", "train_step",
    "training_model", "trajectory", "value_and_grad", "vjp", "with_loss", "with_residual", "zero",
]  # fmt: skip
