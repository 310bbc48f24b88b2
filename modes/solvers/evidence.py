"""Evidence: tr f(C + λI) of curvature, such as log det for marginal likelihoods, and its slopes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from ...jacobians import size
from ...jacobians.arguments import Natural, NonNegative, Positive, validated
from ...jacobians.errors import InputError
from ..curvature.gauss_newton import gauss_newton
from ..estimators.density import logdet, spectral_density
from ..estimators.estimate import Estimate, mean_and_error, probing
from ..estimators.lanczos import function_product
from ..exports.export import export
from ..forward import Tensors
from ..hessian import hessian
from ..linear.derivatives.route import signature_of
from ..model.loading.load import load
from ..model.primal.inputs import Names, check_inputs, name_of, names_of, weights_of
from ..model.primal.model import Model, ModelLike, TensorSpec, as_model
from ..reverse import vjp
from .inverse import identity_like, inverse

Function = Callable[[np.ndarray], np.ndarray]
"""A function of an array of eigenvalues, for each of them."""


class TraceAndGrad(NamedTuple):
    """tr f(C + λI), its derivatives by name, and the derivative in λ."""

    value: Estimate
    slopes: Tensors
    by_damping: Estimate


@validated
def logdet_and_grad(
    model: ModelLike, *, of: str | None = None, at: str | None = None, wrt: Names = None,
    by: Names = None, probes: Positive = 10, steps: Positive = 50, seed: Natural = 0,
    engine: str | None = None,
) -> Traces:  # fmt: skip
    """(inputs, λ) ↦ log det(C + λI), its derivatives ∂/∂θ by name, and the derivative in λ.

    C is the Gauss-Newton matrix of `gauss_newton` where `at` is named, else the Hessian, in the
    weights of `wrt`. With A = C + λI, ∂ log det A = tr(A⁻¹ ∂A) = E[uᵀ (∂C) z] over vectors z of
    random signs with u = A⁻¹ z: a solve by conjugate gradients for each z, and one pullback of C's
    own product for all of them. The derivative is unbiased, and exact where C has at most as many
    rows as there are `probes`. In λ it is tr A⁻¹.

    - `model`: the model, as `load` gives it.
    - `of`, `at`: the loss, and the tensor before it such as the logits, by name.
    - `wrt`: the tensors of the rows and columns of C; by default the weights.
    - `by`: the tensors θ, weights or inputs; by default the tensors of `wrt`.
    - `probes`, `steps`, `seed`: of the estimate, as for `estimators.logdet`.
    - `engine`: `"onnxruntime"` (default where installed), `"numpy"`, `"torch"` or `"jax"` runs
      the model.

    Shapes: the value is a number, a derivative has the shape of its tensor. Raises `InputError`
    where a name does not fit, and where A is not positive definite.

    Source: S. Ubaru, J. Chen and Y. Saad, Fast estimation of tr(f(A)) via stochastic Lanczos
    quadrature (2017); N. Krämer et al., Gradients of functions of large matrices (2024).

    >>> import onnx.parser
    >>> model = onnx.parser.parse_model('''<ir_version: 10, opset_import: ["": 21]>
    ... g (double[2] w) => (double f)
    ... { s = Mul(w, w)  q = Mul(s, w)  f = ReduceSum<keepdims = 0>(q) }''')
    >>> f = logdet_and_grad(model, wrt="w")                      # H = diag(6 w)
    >>> found = f({"w": np.array([1.0, 2.0])}, 6.0)
    >>> bool(np.isclose(float(found.value), np.log(12 * 18))), found.slopes["w"].round(6)
    (True, array([0.5     , 0.333333]))
    """
    return traces_of(model, (of, at, wrt, by), (probes, steps, seed, engine), Logarithm())


@validated
def trace_and_grad(
    model: ModelLike, f: Function, slope: Function, *, of: str | None = None,
    at: str | None = None, wrt: Names = None, by: Names = None, probes: Positive = 10,
    steps: Positive = 50, seed: Natural = 0, engine: str | None = None,
) -> Traces:  # fmt: skip
    """(inputs, λ) ↦ tr f(C + λI) = Σᵢ f(λᵢ + λ), its derivatives ∂/∂θ by name, and the one in λ.

    C, θ and λ are as for `logdet_and_grad`, where f is the logarithm. With A = C + λI,
    ∂ tr f(A) = tr(f′(A) ∂A) = E[uᵀ (∂C) z] over vectors z of random signs with u = f′(A) z. Value
    and u are of `steps` steps of Lanczos's method, so that the derivative is biased where these do
    not reach; it is exact where C has at most as many rows as there are `probes`.

    - `f`, `slope`: f and f′, of an array of eigenvalues.
    - `model`, `of`, `at`, `wrt`, `by`, `probes`, `steps`, `seed`, `engine`: as for
      `logdet_and_grad`.

    Shapes: the value is a number, a derivative has the shape of its tensor. Raises `InputError`
    where a name does not fit, and where f or f′ of an eigenvalue is not finite.

    Source: as for `logdet_and_grad`.

    >>> import onnx.parser
    >>> model = onnx.parser.parse_model('''<ir_version: 10, opset_import: ["": 21]>
    ... g (double[2] w) => (double f)
    ... { s = Mul(w, w)  q = Mul(s, w)  f = ReduceSum<keepdims = 0>(q) }''')
    >>> f = trace_and_grad(model, lambda t: 1 / t, lambda t: -1 / t**2, wrt="w")
    >>> found = f({"w": np.array([1.0, 2.0])}, 6.0)              # tr (diag(6 w) + 6 I)⁻¹
    >>> bool(np.isclose(float(found.value), 1 / 12 + 1 / 18)), found.slopes["w"].round(6)
    (True, array([-0.041667, -0.018519]))
    """
    return traces_of(model, (of, at, wrt, by), (probes, steps, seed, engine), Smooth(f, slope))


@dataclass(frozen=True)
class Logarithm:
    """tr log A = log det A, whose f′(A) z is a solve."""

    def value(self, A: Any, **how: Any) -> Estimate:
        """log det A."""
        return logdet(A, progress=False, **how)

    def slope_product(self, A: Any, Z: np.ndarray, steps: int) -> Any:
        """A⁻¹ Z."""
        return inverse(A, solver="cg") @ Z


@dataclass(frozen=True)
class Smooth:
    """tr f(A) and f′(A) z for given f and f′."""

    f: Function
    slope: Function

    def value(self, A: Any, **how: Any) -> Estimate:
        """tr f(A)."""
        found = spectral_density(A, progress=False, **how).quadrature(checked(self.f, "f"))
        return replace(found, value=float(found.value), error=float(found.error))

    def slope_product(self, A: Any, Z: np.ndarray, steps: int) -> Any:
        """f′(A) Z."""
        with probing(A, "f′(A) Z", shown=False) as P:
            return function_product(P, checked(self.slope, "f′"), Z, steps)


def checked(f: Function, name: str) -> Function:
    """f, which raises `InputError` where a value is not finite."""

    def finite(values: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            found = np.asarray(f(values), float)
        if not (good := np.isfinite(found)).all():
            raise InputError(
                f"{name} is not finite at the eigenvalue {values[~good][0]:g}: add damping"
            )
        return found

    return finite


def traces_of(
    model: ModelLike, names: tuple[str | None, str | None, Names, Names],
    how: tuple[int, int, int, str | None], function: Logarithm | Smooth,
) -> Traces:  # fmt: skip
    """The traces of a model, with every name found."""
    of, at, wrt, by = names
    model = as_model(model, of, at, wrt=wrt)
    loss = name_of(model, of, model.outputs, "of")
    rows = names_of(model, wrt, weights_of(model), "wrt")
    moving = rows if by is None else names_of(model, by, model.inputs, "by")
    return Traces(model, loss, at, rows, moving, *how, function)


@dataclass(eq=False)
class Traces:
    """(inputs, λ) ↦ tr f(C + λI) and its derivatives, for a call: see `trace_and_grad`.

    `model`, `of`, `at`, `wrt`, `by`, `probes`, `steps`, `seed` and `engine` are as given there;
    `function` is f with f′, and `products` are the models (inputs, Z) ↦ C Z, recorded once for the
    sizes of a point.
    """

    model: Model
    of: str
    at: str | None
    wrt: tuple[str, ...]
    by: tuple[str, ...]
    probes: int
    steps: int
    seed: int
    engine: str | None
    function: Logarithm | Smooth
    products: dict[Any, Model] = field(default_factory=dict)

    @validated
    def __call__(self, inputs: Mapping[str, Any], damping: NonNegative = 0.0) -> TraceAndGrad:
        """The value and the derivatives at the point `inputs`, with λ = `damping`."""
        point = check_inputs(self.model, inputs, keep=False, engine=self.engine)
        C: Any = self._curvature(point)
        A, n = C + damping * identity_like(C), C.shape[0]
        exact = n <= self.probes
        value = self.function.value(
            A, exact=exact, probes=self.probes, steps=self.steps, seed=self.seed
        )
        signs = np.random.default_rng(self.seed).choice([-1.0, 1.0], (n, self.probes))
        Z = np.eye(n) if exact else signs
        U = self.function.slope_product(A, Z, n if exact else min(self.steps, n))
        rows = (Z * U).sum(0)
        mean, error = map(float, mean_and_error(rows))
        trace = Estimate(mean, error, self.probes, "random signs")
        if exact:
            trace = Estimate(float(rows.sum()), 0.0, n, "exact by products")
        share = 1.0 if exact else 1 / self.probes
        return TraceAndGrad(value, self._slopes(point, C.domain, Z, share * U), trace)

    def _curvature(self, point: Mapping[str, Any]) -> Any:
        """C at a point."""
        options: Any = {"of": self.of, "wrt": self.wrt, "engine": self.engine}
        if self.at is None:
            return hessian(self.model, point, **options)
        return gauss_newton(self.model, point, at=self.at, **options)

    def _slopes(
        self, point: Mapping[str, Any], domain: Sequence[TensorSpec], Z: np.ndarray, U: np.ndarray
    ) -> Tensors:
        """∂/∂θ Σ uᵀ C(θ) z over the columns z of Z and u of U."""
        graph, count = self._product(point, Z.shape[1]), len(self.wrt)
        moved = split_columns([*graph.inputs][-count:], domain, Z)
        seeds = split_columns([*graph.outputs][-count:], domain, U)
        _, pullback = vjp(graph, {**point, **moved}, of=[*seeds], wrt=self.by, engine=self.engine)
        return pullback(seeds)

    def _product(self, point: Mapping[str, Any], count: int) -> Model:
        """(inputs, Z) ↦ C Z as a model, for so many columns."""
        key = signature_of(point), count
        if key not in self.products:
            inside = {name: point[name] for name in self.model.inputs}
            mode: Any = "hvp" if self.at is None else "gauss_newton"
            middle: Any = {} if self.at is None else {"at": self.at}
            self.products[key] = load(export(
                self.model, mode, inside, of=self.of, wrt=self.wrt, tangents=count,
                engine=self.engine, **middle,
            ))  # fmt: skip
        return self.products[key]


def split_columns(
    names: Sequence[str], domain: Sequence[TensorSpec], columns: np.ndarray
) -> dict[str, np.ndarray]:
    """Columns as arrays of the tensors behind their entries, each on a first axis."""
    shapes: list[Any] = [spec.shape for spec in domain]
    parts = np.split(columns, np.cumsum([size(shape) for shape in shapes])[:-1])
    made = (part.T.reshape(-1, *shape).astype(spec.dtype)
            for shape, spec, part in zip(shapes, domain, parts, strict=True))  # fmt: skip
    return dict(zip(names, made, strict=True))
