"""Gradients: per-sample gradients, layer by layer, for K-FAC and related methods.

For a use Y[g, r, o] = Σᵢ X[g, r, i] W[g, i, o] (see `weights`), the gradient of a sample n is
Gₙ = Σₛ xₙₛ gₙₛᵀ over its positions s, with input rows x and output cotangents g. `fisher_type` says
which cotangents of `at` are pulled back:

| fisher_type | g, pulled back to Y | F is |
|---|---|---|
| `"type-2"` | all columns of a root of the covariance of p(y ∣ z) | exact |
| `"mc"` | y − μ for `samples` draws y of p(y ∣ z), with `seed`; their mean | unbiased |
| `"empirical"` | the gradient in `at` of a sample's loss, named by `of` | empirical |
| `"forward-only"` | none: only for `kfac`, where B = I then | not a Fisher matrix |

Scaling: F = c Σₙ vec(Gₙ) vec(Gₙ)ᵀ, for `reduction="sum"` with c = 1, for `"mean"` with c = 1 over
the number of terms, the rows of `at` along `axis` in all batches. With `fisher_type="empirical"`,
`reduction` is also the model's own reduction from the losses of a batch to `of`.

A `Layer` holds the inputs of the uses of a weight, and finds the cotangents of their outputs. With
`joint`, a weight and the bias that is added to its product form one matrix: the layer
Y[g, r, o] = Σᵢ X[g, r, i] W[g, i, o] + b[g, o] is the use of a matrix with one more row, b, whose
inputs have one more entry, 1. A bias is matched to a weight by their addition: Y must reach it
through steps that only move entries, and the rows of both must coincide there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import chain
from math import sqrt
from typing import Any

import numpy as np

from ...jacobians import Block, Dag, Embed, Jacobian, Permutation, Reshape
from ...jacobians.errors import InputError, UnsupportedOp
from ...jacobians.products import factors_of
from ...ops import numbers
from ..linearization import Linearization
from ..linearize import linearize
from ..naming.names import Names, name_of, names_of
from ..primal.model import Model
from .fisher import check_reduction, likelihood_of, loss_gradients, terms
from .weights import STILL, Use, uses

FISHER_TYPES = "type-2", "mc", "empirical", "forward-only"


@dataclass(frozen=True)
class Target:
    """The options of the gradients; `wrt` defaults to all floating initializers."""

    at: str | None = None
    of: str | None = None
    wrt: Names = None
    likelihood: str = "categorical"
    axis: int = -1
    fisher_type: str = "type-2"
    reduction: str = "mean"
    samples: int = 1
    seed: int = 0
    joint: bool = False
    engine: str | None = None

    def __post_init__(self) -> None:
        check_reduction(self.reduction, ("sum", "mean"))
        likelihood_of(self.likelihood)
        if self.fisher_type not in FISHER_TYPES:
            raise InputError(f"fisher_type={self.fisher_type!r} is not one of {FISHER_TYPES}")
        if self.fisher_type == "empirical" and self.of is None:
            raise InputError("fisher_type='empirical' needs the loss: name it with of=")

    def linearized(self, model: Model, inputs: Mapping[str, Any]) -> Linearization:
        """J = ∂at/∂wrt."""
        middle = name_of(model, self.at, model.outputs, "at")
        weights = names_of(model, self.wrt, model.initializers, "wrt")
        return linearize(model, inputs, of=middle, wrt=weights, engine=self.engine)


class Gradients:
    """The gradients of one batch: all uses of the tensors of J = ∂at/∂wrt, and cotangents of `at`.

    One reverse sweep leads from `at` to the uses.
    """

    def __init__(self, J: Linearization, model: Model, target: Target) -> None:
        self.J, self.model, self.target = J, model, target
        (self.z,) = J.primal.values()  # the value of `at`
        found = uses(J)
        ends = dict.fromkeys(use.vertex for several in found.values() for use in several)
        self.back = Dag(J.dag.shapes, J.dag.edges, tuple(ends), J.dag.sinks, J.dag.dtype).T
        self.vertices = dict(zip(self.back.sinks, ends, strict=True))
        one = np.random.default_rng(0).standard_normal(self.z.shape).astype(self.back.dtype)
        samples = np.arange(1, len(self.z) + 1).reshape(-1, *(1,) * (self.z.ndim - 1))
        probes = self._swept(np.stack([one, one * samples]))
        layers = [layer for name, several in found.items()
                  for layer in self._shared(name, several, probes)]  # fmt: skip
        self.layers = joined(layers, J.dag) if target.joint else layers

    @property
    def terms(self) -> int:
        """The number of terms in a mean."""
        return terms(self.z, self.target.axis)

    def stacks(self) -> Iterator[np.ndarray]:
        """Cotangents (k, *at), whose outer products sum to F for `reduction="sum"`."""
        t = self.target
        family = likelihood_of(t.likelihood)
        if t.fisher_type == "type-2":
            yield from family.roots(self.z, t.axis)
        elif t.fisher_type == "mc":
            yield family.residuals(self.z, t.axis, t.samples, t.seed) / sqrt(t.samples)
        elif t.of is not None and t.fisher_type == "empirical":
            (at,) = self.J.primal
            slopes = loss_gradients(self.model, self.J.point, t.of, at, t.reduction, t.engine)
            yield slopes[None]

    def each(self) -> Iterator[tuple[Layer, np.ndarray]]:
        """Layers with cotangents (k, groups, samples, positions, outputs)."""
        return chain.from_iterable(map(self.cotangents, self.stacks()))

    def cotangents(self, stack: np.ndarray) -> Iterator[tuple[Layer, np.ndarray]]:
        """Every layer, with a stack of cotangents of `at`, (k, *at), pulled back to it."""
        at = self._swept(stack)
        return ((layer, layer.cotangents(at)) for layer in self.layers)

    def _swept(self, stack: np.ndarray) -> dict[int, np.ndarray]:
        reached = self.back.sweep(numbers, {self.back.sources[0]: stack})
        shapes = self.back.shapes
        return {
            end: reached.get(sink, np.zeros((len(stack), *shapes[sink]), stack.dtype))
            for sink, end in self.vertices.items()
        }

    def _shared(
        self, name: str, several: list[Use], probes: dict[int, np.ndarray]
    ) -> Iterator[Layer]:
        """The uses of one tensor, grouped by the entries that they use."""
        groups: dict[bytes, list[Use]] = {}
        for use in several:
            entries = use.start @ np.arange(use.start.shape[1])
            key = entries.tobytes() + str(use.start.out_shape).encode()
            groups.setdefault(key, []).append(use)
        samples = len(self.z)
        for alike in groups.values():
            orders = [self._order(name, use, probes[use.vertex]) for use in alike]
            x = [use.x[:, order].reshape(len(use.x), samples, -1, use.x.shape[-1])
                 for use, order in zip(alike, orders, strict=True)]  # fmt: skip
            yield Layer({name: alike[0].start}, np.concatenate(x, axis=2), tuple(alike),
                        tuple(orders))  # fmt: skip

    def _order(self, name: str, use: Use, probe: np.ndarray) -> np.ndarray:
        """The order of the rows with samples first.

        The probe is a cotangent, and the same with each sample multiplied by its number. Samples
        precede or, as in recurrent and attention layers, follow the positions.
        """
        one, numbered = use.rows._apply(numbers, probe)
        count, samples = one.shape[1], len(self.z)
        positions = count // samples
        rows = np.arange(count)
        leading, trailing = rows // max(positions, 1), rows % samples
        for owner in (leading, trailing):
            if count == positions * samples and np.allclose(
                numbered, (owner[:, None] + 1) * one, rtol=1e-3, atol=1e-6 * np.abs(numbered).max()
            ):
                return np.argsort(owner, kind="stable")
        raise UnsupportedOp(
            f"{name!r} meets {count} rows that are not those of {samples} samples, each on its "
            f"own: leave it out of wrt=, or take gauss_newton or fisher"
        )


def per_sample(x: np.ndarray, g: np.ndarray) -> np.ndarray:
    """Gₙ = Σₛ xₙₛ gₙₛᵀ, (k, groups, samples, inputs, outputs)."""
    return np.swapaxes(x, -1, -2) @ g


@dataclass(frozen=True, repr=False, eq=False)
class Layer:
    """The uses of the same entries of a tensor, which share these weights.

    `parts` maps each tensor, the weight alone or with its bias, to (groups, inputs, outputs). `x`
    is (groups, samples, positions, inputs), with the positions of several uses concatenated.
    """

    parts: Mapping[str, Jacobian]
    x: np.ndarray
    uses: tuple[Use, ...]
    orders: tuple[np.ndarray, ...]

    @property
    def start(self) -> Jacobian:
        """From the concatenated tensors to (groups, inputs, outputs)."""
        parts = list(self.parts.values())
        return parts[0] if len(parts) == 1 else Block([[*parts]])

    @property
    def bias(self) -> bool:
        """Whether no use multiplies data."""
        return all(use.bias for use in self.uses)

    def cotangents(self, at: Mapping[int, np.ndarray]) -> np.ndarray:
        """(k, groups, samples, positions, outputs), from cotangents (k, *Y) by vertex."""
        parts = []
        for use, order in zip(self.uses, self.orders, strict=True):
            rows = use.rows._apply(numbers, at[use.vertex])[..., order, :]
            parts.append(rows.reshape(*rows.shape[:-2], self.x.shape[1], -1, rows.shape[-1]))
        return np.concatenate(parts, axis=-2)

    @property
    def entries(self) -> bytes:
        """A fingerprint of the tensors and of the positions of their entries."""
        found = sha256()
        for name, part in self.parts.items():
            numbered = part @ np.arange(1, part.shape[1] + 1)
            found.update(f"{name} {part.out_shape}".encode())
            found.update(np.ascontiguousarray(numbered).tobytes())
        return found.digest()


def joined(layers: list[Layer], dag: Dag) -> list[Layer]:
    """The layers, each weight together with the first bias that is added to its product.

    An elementwise scale is not a matrix, and stays separate from its shift.
    """
    biases = [layer for layer in layers if layer.bias]
    found: dict[int, Layer] = {}
    taken: set[int] = set()
    for layer in layers:
        if layer.bias or layer.start.out_shape[1:] == (1, 1):
            continue
        for bias in biases:
            if id(bias) not in taken and (together := pair(layer, bias, dag)):
                found[id(layer)] = together
                taken.add(id(bias))
                break
    return [found.get(id(layer), layer) for layer in layers if id(layer) not in taken]


def pair(weight: Layer, bias: Layer, dag: Dag) -> Layer | None:
    """Both as one layer; None unless every use of the weight is added to a use of the bias."""
    if len(weight.uses) != len(bias.uses):
        return None
    groups, inputs, outputs = weight.start.out_shape
    left = [regrouped(use, groups) for use in bias.uses]
    ones = []
    for use in weight.uses:
        own = next((b for b in left if b is not None and is_added(use, b, dag)), None)
        if own is None:
            return None
        left.remove(own)
        ones.append(own.x.flat[0])
    ((name, part),) = weight.parts.items()
    ((other, _),) = bias.parts.items()
    shape = groups, inputs + 1, outputs
    start = regrouped(bias.uses[0], groups)
    assert start is not None
    parts = {name: placed(part, 0, shape), other: placed(start.start, inputs, shape)}
    return replace(weight, parts=parts, x=extended(weight, ones))


def extended(layer: Layer, ones: list[np.ndarray]) -> np.ndarray:
    """The inputs with one more entry, the same number for all positions of a use."""
    groups, samples = layer.x.shape[:2]
    columns = [np.full((groups, samples, len(order) // samples, 1), one, layer.x.dtype)
               for one, order in zip(ones, layer.orders, strict=True)]  # fmt: skip
    return np.concatenate([layer.x, np.concatenate(columns, axis=2)], axis=-1)


def placed(part: Jacobian, first: int, shape: tuple[int, int, int]) -> Jacobian:
    """A matrix as rows of a taller one, from row `first` on."""
    groups, inputs, outputs = part.out_shape
    spans = ((0, 1, groups), (first, 1, inputs), (0, 1, outputs))
    return Embed(spans, shape, part.dtype) @ part


def regrouped(bias: Use, groups: int) -> Use | None:
    """A bias of all outputs as a bias per group; None where the outputs do not divide evenly."""
    own, inputs, outputs = bias.start.out_shape
    if own == groups:
        return bias if inputs == 1 else None
    if own != 1 or inputs != 1 or outputs % groups:
        return None
    shape = groups, 1, outputs // groups
    start = Reshape(shape, bias.start.out_shape, bias.start.dtype) @ bias.start
    apart, dtype = (bias.rows.out_shape[1], groups, outputs // groups), bias.rows.dtype
    rows = Reshape(apart, bias.rows.out_shape, dtype) @ bias.rows
    return replace(bias, start=start, rows=Permutation((1, 0, 2), apart, dtype) @ rows)


def is_added(weight: Use, bias: Use, dag: Dag) -> bool:
    """Whether a bias is added to a weight's product, row by row, after steps that move entries."""
    if weight.start.out_shape[::2] != bias.start.out_shape[::2]:
        return False
    vertex, rows = weight.vertex, weight.rows
    while True:
        if vertex == bias.vertex and rows.out_shape == bias.rows.out_shape:
            y = np.random.default_rng(0).standard_normal(dag.shapes[vertex]).astype(dag.dtype)
            if np.array_equal(rows._apply(numbers, y), bias.rows._apply(numbers, y)):
                return True
        edges = [edge for edge in dag.edges if edge.start == vertex]
        if vertex in dag.sinks or len(edges) != 1:
            return False
        (edge,) = edges
        if not all(isinstance(f, STILL) for f in factors_of(edge.operator)):
            return False
        vertex, rows = edge.end, rows @ edge.operator.T
