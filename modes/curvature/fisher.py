"""Fisher and empirical Fisher matrices, and their likelihoods.

In an exponential family the Fisher information in the natural parameter z is the covariance of the
sufficient statistic, which is the derivative of its mean: C(z) = ∂μ/∂z. So a likelihood is given
by the operator that computes its mean, and the Jacobian of this operator is C.

| likelihood | μ(z) | C(z) | loss −log p(y | z) |
|---|---|---|---|
| categorical | softmax(z) | diag(p) − p pᵀ | cross-entropy |
| Bernoulli | σ(z) | diag(σ (1 − σ)) | binary cross-entropy |
| Gaussian, variance 1 | z | I | ½ ‖z − y‖² |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from string import ascii_letters
from typing import Any, Literal

import numpy as np
from scipy.special import ndtri

from ...jacobians import Contraction, Diagonal, Jacobian, Shape, SumTo, dtype_of, reading, size
from ...jacobians.arguments import Natural, Positive, validated
from ...jacobians.arrays import like
from ...jacobians.errors import InputError
from ...jacobians.readings import library_of, module_of
from ...jacobians.threads import Latest, remembered
from ...ops import Node, find
from ...ops.node import node_of
from ...ops.registry import version
from ..data.draws import SampleSeeds, Seed, uniform_numbers
from ..gradient import Gradient
from ..linear.derivatives.route import signature_of
from ..linear.linearization import Linearization
from ..linear.symmetric import Middle, Symmetric, sandwiched
from ..linearize import linearize
from ..model.primal.inputs import Names, check_inputs, heads_of, name_of
from ..model.primal.model import ModelLike, as_model
from .reductions import Reduction, Tail, warn_of_other, weight_in_mean

Family = Literal["categorical", "bernoulli", "gaussian"]


@validated
def fisher(
    model: ModelLike,
    inputs: Mapping[str, Any],
    *,
    at: str | None = None,
    wrt: Names = None,
    likelihood: Family = "categorical",
    axis: int = -1,
    reduction: Reduction = "mean",
    samples: Positive | None = None,
    seed: Natural | SampleSeeds = 0,
    engine: str | None = None,
) -> Symmetric:
    """F = c Σₜ Jₜᵀ C(zₜ) Jₜ, with J = ∂at/∂wrt and C the covariance of y under p(y | zₜ).

    The terms t are the rows of `at` along `axis`: zₜ are the logits of one categorical
    (`likelihood="categorical"`), of independent Bernoullis (`"bernoulli"`), or the mean of a
    Gaussian of variance 1 (`"gaussian"`). Scaling: c = 1 for `reduction="sum"`, and 1 over the
    number of terms for `"mean"`, whatever loss the model itself holds. With `samples`, C is
    replaced by the mean of `samples` outer products (y − μ)(y − μ)ᵀ, with y drawn from p(y | zₜ)
    by `seed`, the same by all engines: an unbiased estimate; over batches each sample has draws of
    its own, from the seed and its contents. Shapes: (size of `wrt`)²; `wrt` are
    all floating inputs by default, so name the weights. Source: Martens, "New insights and
    perspectives on the natural gradient method", 2020.

    - `model`: the model, as `load` gives it.
    - `inputs`: the point, an array by name for every input; weights may be given too.
    - `at`: the tensor z, by name; by default the only floating output.
    - `engine`: `"onnxruntime"` (default where installed), `"numpy"`, `"torch"` or `"jax"` runs
      the model.

    Raises `InputError` where a name, a shape or a dtype does not fit, and `UnsupportedOp` for an
    operator without a rule; `InputError` also for an unknown `likelihood` or `reduction`.
    """
    model = as_model(model, at, wrt=wrt)
    middle = name_of(model, at, heads_of(model), "at")
    J = linearize(model, inputs, of=middle, wrt=wrt, engine=engine)
    with_samples(J, axis)
    C = partial(covariance, likelihood, axis, reduction, samples, seed)
    return sandwiched(J, C, f"Jᵀ C({middle}) J", name="fisher", at=at, wrt=wrt,
                   likelihood=likelihood, axis=axis, reduction=reduction, samples=samples,
                   seed=seed)  # fmt: skip


def covariance(
    likelihood: Family, axis: int, reduction: Reduction, samples: int | None, seed: Seed,
    J: Linearization,
) -> Jacobian:  # fmt: skip
    """c C(z) at the value z that J is of; with `samples`, from as many draws."""
    (z,), family = J.primal.values(), LIKELIHOODS[likelihood]
    if samples is None:
        C = family.covariance(z, axis)
    else:
        C = outer_products(family.residuals(z, axis, samples, seed), axis)
    return C * (weight_in_mean(terms(z.shape, axis)) if reduction == "mean" else 1.0)


def outer_products(r: np.ndarray, axis: int) -> Jacobian:
    """(1/k) Σₘ rₘ rₘᵀ per row along the axis, for r of shape (k, *shape).

    >>> outer_products(np.array([[[1.0, 2.0]]]), -1).toarray()
    array([[1., 2.],
           [2., 4.]])
    """
    shape = r.shape[1:]
    k, new, *labels = list(ascii_letters[: len(shape) + 2])
    rows = "".join(labels)
    labels[axis] = new
    columns = "".join(labels)
    sizes = dict(zip((k, new, *rows), (len(r), shape[axis], *shape), strict=True))
    return Contraction(((r / len(r), k + rows), (r, k + columns)), columns, rows, sizes)


@validated
def empirical_fisher(
    model: ModelLike,
    inputs: Mapping[str, Any],
    *,
    of: str,
    at: str | None = None,
    wrt: Names = None,
    reduction: Reduction = "mean",
    engine: str | None = None,
) -> Symmetric:
    """F = c Σₙ gₙ gₙᵀ, with gₙ = ∂ℓₙ/∂wrt the gradient of the loss of sample n.

    Without `at`, `of` holds the losses of the samples along its first axis. With `at`, `of` is
    their sum or mean, and each ℓₙ depends on one sample of `at`, along its first axis. `reduction`
    states which, and is the reduction of F: `"sum"`: of = Σ ℓₙ and c = 1; `"mean"`: of = (1/N) Σ ℓₙ
    and c = 1/N, where class weights, ignored labels and masks w weigh by Σ w in place of N and
    belong to ℓₙ. No gradient is formed: F = c Gᵀ G, and a product with G is a product with J.
    Shapes: (size of `wrt`)²; `wrt` are all floating inputs by default. Source: Kunstner, Balles,
    Hennig, "Limitations of the empirical Fisher approximation for natural gradient descent", 2019.

    - `model`: the model, as `load` gives it.
    - `inputs`: the point, an array by name for every input; weights may be given too.
    - `engine`: `"onnxruntime"` (default where installed), `"numpy"`, `"torch"` or `"jax"` runs
      the model.

    Raises `InputError` where a name, a shape or a dtype does not fit, and `UnsupportedOp` for an
    operator without a rule; `InputError` also for an unknown `reduction`, and where the
    tensor has no sample axis.
    """
    rows, J = sample_gradients(model, inputs, of, at, wrt, reduction, engine)
    return sandwiched(J, partial(sample_products, rows, reduction), f"Σ ∇{of} ∇{of}ᵀ",
                   name="empirical_fisher", of=of, at=at, wrt=wrt, reduction=reduction)  # fmt: skip


def sample_gradients(
    model: ModelLike, inputs: Mapping[str, Any], of: str, at: str | None, wrt: Names,
    reduction: Reduction, engine: str | None,
) -> tuple[Middle, Linearization]:  # fmt: skip
    """J ↦ R, and J, with G = R J, whose row n is the gradient of the loss of sample n."""
    model = as_model(model, of, at, wrt=wrt)
    middle = name_of(model, of if at is None else at, model.outputs, "at")
    J = linearize(model, inputs, of=middle, wrt=wrt, engine=engine)
    with_samples(J)
    slopes = None if at is None else LossGradients(J, of, reduction, engine)
    return partial(rows_of_samples, slopes), J


def rows_of_samples(slopes: LossGradients | None, J: Linearization) -> Jacobian:
    """R, the sums over each sample, of the products with `slopes` where `of` is one loss."""
    (z,) = J.primal.values()
    rows: Jacobian = SumTo((len(z), *(1,) * (len(z.shape) - 1)), z.shape, J.dtype)
    return rows @ Diagonal(slopes(J), z.shape) if slopes else rows


def sample_products(rows: Middle, reduction: Reduction, J: Linearization) -> Jacobian:
    """c Rᵀ R."""
    R = rows(J)
    return R.T * (weight_in_mean(R.shape[0]) if reduction == "mean" else 1.0) @ R


class LossGradients:
    """J ↦ ∂ℓₙ/∂at, one row for each sample, at the point of J = ∂at/∂wrt.

    `of` is the sum or the mean of the losses ℓₙ; its gradient is one program for all points.
    """

    def __init__(self, J: Linearization, of: str, reduction: str, engine: str | None) -> None:
        model, (at,) = J.route.model, J.primal
        warn_of_other(reduction, model, of, (at,))
        loss = name_of(model, of, model.outputs, "of")
        self.gradient = Gradient(model, (loss,), (at,), None, engine)
        self.tail = Tail(model, of, (at,), {*model.inputs, at}, engine)
        self.is_mean = reduction == "mean"
        self.known: Latest[Any, dict[Any, Any]] = Latest(8)

    def __call__(self, J: Linearization) -> np.ndarray:
        f = replace(self.gradient, model=J.route.model)  # which has the samples that J drew
        (slopes,) = f(point_of_tail(J, self.known)[0], checked=True)[1].values()
        if self.is_mean:
            D = self.tail.divisor(J.given, len(slopes)) if self.tail.terms else len(slopes)
        return slopes * D if self.is_mean else slopes


def point_of_tail(
    J: Linearization, known: Latest[Any, dict[Any, Any]]
) -> tuple[Mapping[str, Any], dict[Any, Any]]:
    """The point from which steps behind the tensor of J run, with its value unless that is of
    another type than the model declares; and what is `known` of points of the same shapes.
    """
    point, model = {**J.given, **J.primal}, J.route.model
    signature, kinds = signature_of(point), frozenset(map(type, point.values()))
    key = version(), signature, J.route.engine, kinds
    here: dict[Any, Any] = remembered(known, key, dict) if signature else {}

    def fits() -> bool:
        try:
            found = check_inputs(model, point, keep=False, engine=J.route.engine)
        except InputError:
            return False
        return all(dtype_of(found[name]) == dtype_of(x) for name, x in J.primal.items())

    return point if remembered(here, "fits", fits) else J.given, here


Draw = Callable[[Any, np.ndarray], np.ndarray]
"""A function of noise and parameters."""


@dataclass(frozen=True)
class Likelihood:
    """The operator of the mean, whether it couples the entries of a row, and a sampler of y.

    It draws from `noise` of uniform numbers, one for each row or, where that is not coupled, entry.
    """

    mean: str
    coupled: bool
    draw: Draw
    noise: Callable[[np.ndarray], np.ndarray] = np.asarray

    def covariance(self, z: np.ndarray, axis: int = -1) -> Jacobian:
        """C(z) = ∂μ/∂z, over all terms."""
        return self._mean(z, axis)[1]

    def residuals(self, z: np.ndarray, axis: int, samples: int, seed: Seed) -> np.ndarray:
        """y − μ for samples y of p(· | z), (samples, *z): C is the mean of their outer products."""
        xp, axis, shape = module_of(z), axis % z.ndim, list(z.shape)
        mean = self._mean(z, axis)[0]
        rows = xp.moveaxis(xp.broadcast_to(mean, (samples, *z.shape)), axis + 1, -1)
        if self.coupled:
            shape[axis] = 1
        noise = np.moveaxis(self.noise(uniform_numbers(seed, samples, tuple(shape))), axis + 1, -1)
        drawn = self.draw(library_of(z).place(z).take(noise), rows)
        return like(xp.moveaxis(drawn - rows, -1, axis + 1), z)

    def roots(self, z: np.ndarray, width: int, axis: int = -1) -> Iterator[np.ndarray]:
        """S with S Sᵀ = C for every sample, by columns (k, *z), k ≤ width; √C where C is diagonal.

        For a categorical, S has a column for each class but the last one, r: Sₖ = √pₖ (eₖ − q) with
        q = (p + √pᵣ eᵣ) / (1 + √pᵣ). These are the other columns of diag(√p) H, where the
        reflection H takes √p to −eᵣ. Raises `InputError` where the classes are the samples.
        """
        axis = axis % z.ndim - z.ndim
        (mean, C), n = self._mean(z, axis), size(z.shape[1:])
        square = mean if self.coupled else (C @ like(np.ones(C.shape[1]), z)).reshape(z.shape)
        root, q, kept = module_of(z).where(square < 0, 0.0, square) ** 0.5, None, np.arange(n)
        if self.coupled:
            q, kept = reflect_classes(mean, root, axis)
        for start in range(0, len(kept), width):
            units = kept[start : start + width, None] == np.arange(n)
            columns = like(units.reshape(len(units), 1, *z.shape[1:]), root) * root
            yield columns if q is None else columns - columns.sum(axis, keepdims=True) * q

    def _mean(self, z: np.ndarray, axis: int) -> tuple[Any, Jacobian]:
        if self.coupled and z.ndim < 2:
            raise InputError(
                "likelihood='categorical' needs an axis of samples and one of classes, not the "
                f"shape {list(z.shape)}: name logits with at="
            )
        return value_and_jacobian(self.mean, z, **({"axis": axis} if self.coupled else {}))


def reflect_classes(p: np.ndarray, root: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """q = (p + √pᵣ eᵣ) / (1 + √pᵣ) for the last class r, and a sample's entries of other classes.

    Where there is a single class, its entries are returned. The axis is negative.
    """
    if axis == -p.ndim:
        raise InputError("the classes lie along the axis of the samples, axis=0: name another axis")
    classes = np.arange(p.shape[axis]).reshape(-1, *(1,) * (-1 - axis))
    last = like(classes == classes.size - 1, p)
    rest = (root * last).sum(axis, keepdims=True)
    number = np.broadcast_to(classes, p.shape[1:]).ravel()
    return (p + rest * last) / (1 + rest), np.flatnonzero(number < max(classes.size - 1, 1))


def draw_one_hot(u: Any, p: np.ndarray) -> np.ndarray:
    """Random unit vectors along the last axis, drawn with the probabilities p by uniform u."""
    join = module_of(p).concatenate
    above = 1.0 * (u > p.cumsum(-1)[..., :-1])
    return join([u * 0 + 1, above], -1) - join([above, u * 0], -1)


LIKELIHOODS: dict[Family, Likelihood] = {
    "categorical": Likelihood("Softmax", True, draw_one_hot),
    "bernoulli": Likelihood("Sigmoid", False, lambda u, p: 1.0 * (u < p)),
    "gaussian": Likelihood("Identity", False, lambda e, z: z + e, ndtri),
}


def with_samples(J: Linearization, axis: int = -1) -> Any:
    """The value of `at` in J = ∂at/∂wrt; raises `InputError` where it has no samples or `axis`."""
    ((at, z),) = J.primal.items()
    if not z.shape:
        raise InputError(f"{at!r} is a scalar: name with at= a tensor that has a sample axis, "
                         f"such as the logits from which the loss is computed")  # fmt: skip
    if not -z.ndim <= axis < z.ndim:
        raise InputError(f"axis={axis} is no axis of {at!r}, which has shape {list(z.shape)}")
    return z


def terms(shape: Shape, axis: int = -1) -> int:
    """The number of terms of a loss on z: its rows along the axis, or the entries of a vector."""
    return size(shape) if len(shape) < 2 else size(shape) // shape[axis]


def value_and_jacobian(op_type: str, *inputs: np.ndarray, **attrs: Any) -> tuple[Any, Jacobian]:
    """y = f(x, …) and ∂y/∂x for an operator with one output, outside of any model."""
    y = getattr(reading(inputs[0]), op_type)(*inputs, **attrs)
    return y, jacobian_at(op_type, inputs, (y,), attrs)


def jacobian_at(
    op_type: str, inputs: tuple[Any, ...], outputs: tuple[Any, ...], attrs: Any
) -> Jacobian:
    """∂y/∂x of the first output and the first input, by the operator's rule, for known outputs."""
    step, declared = node_of(op_type, inputs, attrs, outputs=len(outputs)).step, find(op_type)
    assert declared is not None, op_type
    node = Node(step, inputs, outputs, frozenset({(0, 0)}))
    return declared.rule(reading(inputs[0]), node)[0, 0]
