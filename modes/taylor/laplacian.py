"""Laplacian: sums of second derivatives, and single derivatives of any order, by Taylor mode."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from ...jacobians.arguments import Natural, Positive, validated
from ...jacobians.arrays import as_array, fits
from ...jacobians.errors import InputError
from ...jacobians.readings import module_of
from ..estimators.estimate import Estimate, mean_and_error
from ..linear.derivatives.trace import Trace
from ..model.flow.contents import free_sizes
from ..model.primal.inputs import Names, check_inputs, name_of, names_of
from ..model.primal.model import Model, ModelLike, as_model
from .jet import recorded, run_recorded
from .lines import (
    Lines,
    Vectors,
    biharmonic_lines,
    combine_vectors,
    coordinates,
    laplacian_lines,
    unit_vectors,
)
from .record import derivative_graph, lines_graph, sample_shapes


@validated
def laplacian(
    model: ModelLike, inputs: Mapping[str, Any], *, of: str | None = None, wrt: Names = None,
    weights: Any = None, sigma: Any = None, power: Positive = 1, samples: Positive | None = None,
    seed: Natural = 0, engine: str | None = None,
) -> Any:  # fmt: skip
    """Δf = Σᵢ ∂²f/∂xᵢ², with `weights` Σᵢ wᵢ ∂²f/∂xᵢ², and with `sigma` tr(σσᵀ H) = Σ σⱼᵀ H σⱼ over
    the columns of σ.

    One pass of Taylor mode carries all first derivatives, and of the second ones the sum alone. The
    xᵢ are all entries of the tensors of `wrt`; where the first axis is a batch whose samples do not
    mix, they are the entries of one sample, and each sample has its own Δf.

    - `model`: the model, as `load` gives it.
    - `inputs`: the point, an array by name for every input; weights may be given too.
    - `of`, `wrt`: what is differentiated, and by what; by default the floating output, and all
      floating inputs.
    - `weights`: wᵢ, an array of the shape of a sample of x, or arrays by name.
    - `sigma`: σ, of as many rows as a sample has entries; the entries of several tensors come one
      tensor after the other.
    - `power`: 2 is the biharmonic operator Δ²f = Δ(Δf), by as many directions as a sample has
      pairs of entries.
    - `samples`: by so many random directions instead: the mean of vᵀ H v for vectors v of signs, as
      an `Estimate` with its standard error. `seed` draws them.
    - `engine`: `"onnxruntime"` (default where installed), `"numpy"`, `"torch"` or `"jax"` runs
      the model.

    Shape: as `of`. Raises `InputError` where a name, a shape or an option does not fit, and
    `UnsupportedOp` for an operator without a rule.

    Source: R. Li et al., A computational framework for neural network-based variational Monte
    Carlo with Forward Laplacian (2024); F. Dangel et al., Collapsing Taylor mode automatic
    differentiation (2025).

    >>> import onnx.parser
    >>> model = onnx.parser.parse_model('''<ir_version: 10, opset_import: ["": 21]>
    ... g (double[n, 2] x) => (double[n] y) <int64[1] axis = {1}>
    ... { s = Mul(x, x)  c = Mul(s, x)  y = ReduceSum<keepdims = 0>(c, axis) }''')
    >>> laplacian(model, {"x": np.array([[1.0, 2.0], [0.5, 0.0]])}).tolist()
    [18.0, 3.0]
    """
    if power > 2 or (power == 2 and not (weights is sigma is samples is None)):
        raise InputError(f"power={power}: 1 or 2, and 2 without weights=, sigma= and samples=")
    if weights is not None and sigma is not None:
        raise InputError("weights= or sigma=, not both: sigma = diag(√w) is the same sum")
    model = as_model(model, of, wrt=wrt)
    name = name_of(model, of, model.outputs, "of")
    names = names_of(model, wrt, model.inputs, "wrt")
    point = check_inputs(model, inputs, keep=False, engine=engine)

    def choose(t: Trace) -> dict[str, Lines]:
        axes = unit_vectors(sample_shapes(t, name, names))
        if power == 2:
            return {"laplacian": biharmonic_lines(axes)}
        if samples is not None:
            vectors = random_vectors(axes, weights, sigma, samples, seed)
            return {"laplacian": Lines(2, vectors, None)}
        if sigma is not None:
            return {"laplacian": laplacian_lines(sigma_vectors(axes, sigma), None)}
        return {"laplacian": laplacian_lines(axes, weight_vector(axes, weights))}

    held = "laplacian", name, names, *map(freeze_numbers, (weights, sigma)), power, samples, seed
    make = partial(lines_graph, of=(name,), wrt=names, engine=engine, choose=choose)
    batch = batch_sizes(model, names)
    graph = recorded(model, point, held, make, engine, batch)
    *_, found = run_recorded(graph, point, engine).values()
    if samples is None:
        return found
    return Estimate(*mean_and_error(module_of(found).moveaxis(found, 0, -1)), samples,
                    "random directions")  # fmt: skip


@validated
def derivative(
    model: ModelLike, inputs: Mapping[str, Any], *, wrt: str | Sequence[str],
    of: str | None = None, engine: str | None = None,
) -> Any:  # fmt: skip
    """One partial derivative of any order, ∂³u/∂x∂x∂y for `wrt="xxy"`, in every sample.

    A mixed derivative of order k is a sum of derivatives along lines, which one pass of Taylor mode
    carries together: as many as ∏ (αᵢ + 1) − 1 where αᵢ counts the i-th letter.

    - `model`: the model, as `load` gives it.
    - `inputs`: the point, an array by name for every input; weights may be given too.
    - `wrt`: the names of inputs or weights, one for each time that it is differentiated by: a
      string of one-letter names, or several strings. `"x[1]"` is an entry of a sample, and needed
      where a sample has several.
    - `of`: what is differentiated, by name; by default the floating output.
    - `engine`: `"onnxruntime"` (default where installed), `"numpy"`, `"torch"` or `"jax"` runs
      the model.

    Shape: as `of`. Raises `InputError` where a name does not fit, or names several entries, and
    `UnsupportedOp` for an operator without a rule.

    >>> import onnx.parser
    >>> model = onnx.parser.parse_model('''<ir_version: 10, opset_import: ["": 21]>
    ... g (double[n, 1] x, double[n, 1] y) => (double[n, 1] u) { s = Mul(x, x)  u = Mul(s, y) }''')
    >>> point = {"x": np.array([[3.0]]), "y": np.array([[5.0]])}
    >>> derivative(model, point, wrt="xxy").tolist(), derivative(model, point, wrt="xy").tolist()
    ([[2.0]], [[6.0]])
    """
    powers = coordinates(wrt)
    names = tuple(dict.fromkeys(name for name, _ in powers))
    model = as_model(model, of, wrt=names)
    name = name_of(model, of, model.outputs, "of")
    checked = names_of(model, names, model.inputs, "wrt")
    point = check_inputs(model, inputs, keep=False, engine=engine)
    make = partial(derivative_graph, of=(name,), wrt=checked, engine=engine,
                   wanted={"derivative": powers})  # fmt: skip
    held = "derivative", name, tuple(powers.items())
    graph = recorded(model, point, held, make, engine, batch_sizes(model, names))
    *_, found = run_recorded(graph, point, engine).values()
    return found


def batch_sizes(model: Model, names: Iterable[str]) -> frozenset[str]:
    """The free sizes of the first axes of some inputs."""
    free = free_sizes(model.inputs)
    return frozenset(free[name][0] for name in names if 0 in free.get(name, ()))


# -- weights, columns and draws --------------------------------------------------------------------


def weight_vector(axes: Vectors, weights: Any) -> np.ndarray | None:
    """The weights of all entries, tensor after tensor."""
    if weights is None:
        return None
    named = weights if isinstance(weights, Mapping) else dict.fromkeys(axes, weights)
    if len(axes) > 1 and not isinstance(weights, Mapping):
        raise InputError(f"give weights= by name, for {[*axes]}")
    if missing := axes.keys() - named.keys():
        raise InputError(f"weights= has none for {sorted(missing)}")
    if unknown := named.keys() - axes.keys():
        raise InputError(f"weights= has {sorted(unknown)}, which are not in wrt: {[*axes]}")
    parts = []
    for name, v in axes.items():
        given, shape = as_array(named[name], np.dtype(float)), v.shape[1:]
        if not fits(given.shape, shape):
            raise InputError(f"weights= of shape {list(given.shape)} do not fit a sample of "
                             f"{name!r}, {list(shape)}")  # fmt: skip
        parts.append(np.broadcast_to(given, shape).ravel())
    return np.concatenate(parts)


def sigma_vectors(axes: Vectors, sigma: Any) -> Vectors:
    """The columns of σ as directions."""
    given, n = as_array(sigma, np.dtype(float)), next(len(v) for v in axes.values())
    if given.ndim != 2 or len(given) != n:
        raise InputError(f"sigma= has shape {list(given.shape)}, and needs {n} rows, as many as a "
                         "sample has entries")  # fmt: skip
    return combine_vectors(axes, given.T)


def random_vectors(axes: Vectors, weights: Any, sigma: Any, count: int, seed: int) -> Vectors:
    """Random directions v with E[v vᵀ] = diag(w) or σσᵀ."""
    columns = sigma_vectors(axes, sigma) if sigma is not None else axes
    scale = weight_vector(axes, weights)
    if scale is not None and scale.min(initial=0) < 0:
        raise InputError("samples= needs weights that are not negative: take the sums apart")
    n = next(len(v) for v in columns.values())
    signs = np.random.default_rng(seed).choice([-1.0, 1.0], (count, n))
    return combine_vectors(columns, signs if scale is None else signs * np.sqrt(scale))


def freeze_numbers(value: Any) -> Any:
    """Numbers of an option as a key of a cache."""
    if isinstance(value, Mapping):
        return tuple((name, freeze_numbers(x)) for name, x in sorted(value.items()))
    if value is None:
        return None
    array = as_array(value, np.dtype(float))
    return array.shape, array.tobytes()
