"""Influence: what each training sample does to the loss of a test sample, by curvature."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ...jacobians import Jacobian
from ...jacobians.arguments import Above0, NonNegative, Positive, validated
from ...jacobians.errors import InputError, not_allowed
from ..curvature.kfac import ekfac, kfac
from ..curvature.kronecker import KroneckerFactored
from ..curvature.over_data import empirical_fisher, gauss_newton
from ..curvature.reductions import Reduction
from ..curvature.sharded import ShardedFactors
from ..data.comm import Comm, as_comm
from ..model.primal.inputs import Names
from ..model.primal.model import ModelLike
from ..solvers.inverse import identity_like, inverse
from .samples import Losses, Rows, losses_of


@validated
def influence(
    model: ModelLike, train: Any, test: Any, *, of: str, at: str | None = None, wrt: Names = None,
    curvature: Any = "gauss_newton", damping: Above0 = 1e-2, reduction: Reduction = "mean",
    rtol: NonNegative = 1e-6, batch_size: Positive | None = None, engine: str | None = None,
    comm: Any = None,
) -> np.ndarray:  # fmt: skip
    """−∇ℓ(test)ᵀ (C + δ I)⁻¹ ∇ℓₙ: how the loss of a test sample moves with the weight of sample n.

    With the mean loss plus ε ℓₙ in training, the loss of the test sample changes by ε times this
    number, to first order. Negative: sample n helps. The gradients of the test samples are formed
    and solved for; the training data is read once more, a forward product for each test sample, and
    no gradient of it is formed.

    | `curvature` | C, of the mean loss over `train` |
    |---|---|
    | `"gauss_newton"` | Jᵀ H J, by conjugate gradients to `rtol`: H is positive for usual losses |
    | `"kfac"`, `"ekfac"` | Kronecker factors for a softmax at `at`, inverted exactly |
    | `"empirical_fisher"` | Σ ∇ℓₙ ∇ℓₙᵀ / N, by conjugate gradients |
    | `None` | C = 0: the products of gradients, over δ |
    | an operator | a curvature over the tensors of `wrt`, or a matrix |

    - `model`: the model, as `load` gives it.
    - `train`, `test`: each a point, a list of points, a function that returns an iterator over
      them, or arrays or an npz file with `batch_size`.
    - `of`, `at`: without `at`, `of` holds the losses of the samples along its first axis; with
      `at`, it is their sum or mean, as `reduction` says, and each depends on one sample of `at`.
    - `wrt`: the weights, by name; by default all floating ones.
    - `damping`: δ, in the units of C.
    - `rtol`: the relative residual at which a solve ends.
    - `engine`: `"onnxruntime"` (default where installed), `"numpy"`, `"torch"` or `"jax"` runs
      the model.
    - `comm`: a communicator of ranks that all call this, each with training and test samples of its
      own, which may be none; samples of all ranks are in the order of the ranks. See `ranked`.

    Shapes: (test samples, training samples), in the units of the loss squared over C's. Raises
    `InputError` where a name, a shape or a dtype does not fit, and where a named `curvature` needs
    `at`; `NotConverged` where a solve does not end; `UnsupportedOp` for an operator without a rule.

    Source: Koh, Liang, "Understanding black-box predictions via influence functions", 2017.
    """
    losses = losses_of(model, of, at, wrt, reduction, engine)
    comm = None if comm is None else as_comm(comm)
    slopes = losses.dense(test, batch_size, comm)
    C = curvature_of(losses, curvature, train, batch_size, comm)
    solved = damped(C, damping, rtol, slopes)
    return -losses.each(lambda rows: rows @ solved, train, batch_size, comm, "influence").T


def curvature_of(
    losses: Losses, curvature: Any, train: Any, batch_size: int | None, comm: Comm | None
) -> Any:
    """C, from its name or as it is; None for 0."""
    if not isinstance(curvature, str):
        return curvature
    if curvature not in MADE:
        raise not_allowed("curvature", curvature, [*MADE, None])
    made = partial(MADE[curvature], losses.model, train, wrt=losses.wrt, batch_size=batch_size,
                   engine=losses.engine, comm=comm)  # fmt: skip
    if curvature == "empirical_fisher":
        return made(of=losses.of, at=losses.at, reduction=losses.reduction)
    if losses.at is None:
        raise InputError(f"curvature={curvature!r} needs at=, the tensor of which the loss is a "
                         "function, such as the logits, and of= the loss")  # fmt: skip
    if curvature == "gauss_newton":
        return made(of=losses.of, at=losses.at, reduction="mean")
    return made(at=losses.at)


MADE: dict[str, Callable[..., Any]] = {
    "gauss_newton": gauss_newton, "kfac": kfac, "ekfac": ekfac,
    "empirical_fisher": empirical_fisher,
}  # fmt: skip


def damped(C: Any, damping: float, rtol: float, V: np.ndarray) -> np.ndarray:
    """(C + δ I)⁻¹ V."""
    if C is None:
        return V / damping
    if isinstance(C, KroneckerFactored | ShardedFactors):
        return np.asarray(C.inverse(damping) @ V.astype(C.dtype), np.float64)
    I = identity_like(C)  # noqa: E741
    if I.shape[0] != len(V):
        raise InputError(f"curvature= has shape {C.shape}, but wrt has {len(V)} entries")
    solve: Jacobian = inverse(C + damping * I, rtol=rtol)
    return np.asarray(solve @ V.astype(I.dtype), np.float64)


class Nearest(NamedTuple):
    """The numbers of the nearest training `samples` of each test sample, and their `similarity`."""

    samples: np.ndarray
    similarity: np.ndarray


@validated
def nearest_gradients(
    model: ModelLike, train: Any, test: Any, *, of: str, at: str | None = None, wrt: Names = None,
    k: Positive = 10, cosine: bool = True, reduction: Reduction = "mean",
    batch_size: Positive | None = None, engine: str | None = None, comm: Any = None,
) -> Nearest:  # fmt: skip
    """The k training samples whose gradients are nearest: the largest ⟨∇ℓₙ, ∇ℓ(test)⟩ / ‖∇ℓₙ‖ ‖∇ℓ‖.

    Steps that lower the loss of such a sample lower the test sample's too. The training data is
    read once; with `cosine`, its gradients are formed for their norms, some at a time.

    - `model`: the model, as `load` gives it.
    - `train`, `test`: each a point, a list of points, a function that returns an iterator over
      them, or arrays or an npz file with `batch_size`.
    - `of`, `at`: without `at`, `of` holds the losses of the samples along its first axis; with
      `at`, it is their sum or mean, as `reduction` says, and each depends on one sample of `at`.
    - `wrt`: the weights, by name; by default all floating ones.
    - `cosine`: False leaves out the norms: the largest products of gradients.
    - `engine`: `"onnxruntime"` (default where installed), `"numpy"`, `"torch"` or `"jax"` runs
      the model.
    - `comm`: a communicator of ranks that all call this, each with training and test samples of its
      own, which may be none; samples of all ranks are in the order of the ranks. See `ranked`.

    Shapes: `samples` and `similarity` are (test samples, k), the nearest first. Raises `InputError`
    where a name, a shape or a dtype does not fit, and `UnsupportedOp` for an operator without a
    rule.

    Source: Charpiat, Girard, Felardos, Tarabalka, "Input similarity from the neural network
    perspective", 2019.
    """
    losses = losses_of(model, of, at, wrt, reduction, engine)
    comm = None if comm is None else as_comm(comm)
    slopes = losses.dense(test, batch_size, comm)
    if cosine:
        slopes = slopes / np.maximum(np.linalg.norm(slopes, axis=0), np.finfo(float).tiny)

    def similarity(rows: Rows) -> np.ndarray:
        found = rows @ slopes
        return found / np.maximum(rows.norms(), np.finfo(float).tiny)[:, None] if cosine else found

    whole = losses.each(similarity, train, batch_size, comm, "nearest gradients").T
    order = np.argsort(-whole, axis=1, kind="stable")[:, :k]
    return Nearest(order, np.take_along_axis(whole, order, axis=1))
