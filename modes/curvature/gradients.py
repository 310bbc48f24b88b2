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

`Layers` hold the inputs of every use of a weight, and the cotangents of its outputs. With `joint`,
a weight and the bias that is added to its product form one matrix: the layer
Y[g, r, o] = Σᵢ X[g, r, i] W[g, i, o] + b[g, o] is the use of a matrix with one more row, b, whose
inputs have one more entry, 1. A bias is matched to a weight by their addition: Y must reach it
through steps that only move entries, and the rows of both must coincide there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from math import sqrt
from typing import Any

import numpy as np

from ...jacobians import Dag, Embed, Jacobian, Permutation, Reshape, lead, shape_of
from ...jacobians.errors import InputError, UnsupportedOp
from ...jacobians.products import factors_of
from ...ops import numbers
from ..linearization import Linearization
from ..linearize import linearize
from ..model import Model
from ..naming.names import Names, name_of, names_of
from .fisher import check_reduction, likelihood_of, loss_gradients, terms
from .kronecker import side_by_side
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

    def seeded(self, seed: int) -> Target:
        """The same target with another seed."""
        return replace(self, seed=seed)


@dataclass(frozen=True, repr=False, eq=False)
class Gradients:
    """The gradients of one batch: its layers, and stacks of cotangents of `at`."""

    J: Linearization
    layers: Layers
    model: Model
    target: Target

    @property
    def z(self) -> np.ndarray:
        """The value of `at`."""
        (value,) = self.J.primal.values()
        return value

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
        for stack in self.stacks():
            yield from self.layers.cotangents(stack)


def gradients(model: Model, inputs: Mapping[str, Any], **options: Any) -> Gradients:
    """The gradients of one batch; the options are the fields of `Target`."""
    target = Target(**options)
    return gradients_of(target.linearized(model, inputs), model, target)


def gradients_of(J: Linearization, model: Model, target: Target) -> Gradients:
    """The gradients of one batch, from its linearisation."""
    return Gradients(J, Layers(J, joint=target.joint), model, target)


def per_sample(x: np.ndarray, g: np.ndarray) -> np.ndarray:
    """Gₙ = Σₛ xₙₛ gₙₛᵀ, (k, groups, samples, inputs, outputs)."""
    return np.swapaxes(x, -1, -2) @ g


class Layers:
    """All uses of the tensors of J = ∂at/∂wrt, and one reverse sweep from `at` to them."""

    def __init__(self, J: Linearization, *, joint: bool = False) -> None:
        (spec,) = J.codomain
        self.shape = shape_of(spec)
        found = uses(J)
        ends = dict.fromkeys(use.vertex for several in found.values() for use in several)
        self.back = Dag(J.dag.shapes, J.dag.edges, tuple(ends), J.dag.sinks, J.dag.dtype).T
        self.vertices = dict(zip(self.back.sinks, ends, strict=True))
        probes = self._swept(self._probes())
        layers = [layer for name, several in found.items()
                  for layer in self._shared(name, several, probes)]  # fmt: skip
        self.layers = joined(layers, J.dag) if joint else layers

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

    def _probes(self) -> np.ndarray:
        """A random cotangent, and the same cotangent with each sample scaled by its number."""
        one = np.random.default_rng(0).standard_normal(self.shape).astype(self.back.dtype)
        number = np.arange(1, self.shape[0] + 1).reshape(-1, *(1,) * (len(self.shape) - 1))
        return np.stack([one, one * number])

    def _shared(
        self, name: str, several: list[Use], probes: dict[int, np.ndarray]
    ) -> Iterator[Layer]:
        """The uses of one tensor, grouped by the entries that they use."""
        groups: dict[bytes, list[Use]] = {}
        for use in several:
            entries = use.start @ np.arange(use.start.shape[1])
            key = entries.tobytes() + str(use.start.out_shape).encode()
            groups.setdefault(key, []).append(use)
        samples = self.shape[0]
        for alike in groups.values():
            orders = [self._order(name, use, probes[use.vertex]) for use in alike]
            x = [use.x[:, order].reshape(len(use.x), samples, -1, use.x.shape[-1])
                 for use, order in zip(alike, orders, strict=True)]  # fmt: skip
            yield Layer({name: alike[0].start}, np.concatenate(x, axis=2), tuple(alike),
                        tuple(orders))  # fmt: skip

    def _order(self, name: str, use: Use, probe: np.ndarray) -> np.ndarray:
        """The order of the rows with samples first; the second probe reveals the sample of a row.

        Samples precede or, as in recurrent and attention layers, follow the positions.
        """
        one, numbered = use.rows._apply(numbers, probe)
        count, samples = one.shape[1], self.shape[0]
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
        return side_by_side(list(self.parts.values()))

    @property
    def bias(self) -> bool:
        """Whether no use multiplies data."""
        return all(use.bias for use in self.uses)

    def cotangents(self, at: Mapping[int, np.ndarray]) -> np.ndarray:
        """(k, groups, samples, positions, outputs), from cotangents (k, *Y) by vertex."""
        parts = [self._rows(use, order, at) for use, order in zip(self.uses, self.orders,
                                                                  strict=True)]  # fmt: skip
        return np.concatenate(parts, axis=-2)

    def _rows(self, use: Use, order: np.ndarray, at: Mapping[int, np.ndarray]) -> np.ndarray:
        rows = use.rows._apply(numbers, at[use.vertex])[..., order, :]
        return rows.reshape(*lead(rows, rows.shape[-2:]), self.x.shape[1], -1, rows.shape[-1])

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
    return replace(bias, start=start, rows=split(bias.rows, groups))


def split(rows: Jacobian, groups: int) -> Jacobian:
    """(1, rows, groups · o) as (groups, rows, o)."""
    _, count, outputs = rows.out_shape
    shape = count, groups, outputs // groups
    moved = Permutation((1, 0, 2), shape, rows.dtype)
    return moved @ Reshape(shape, rows.out_shape, rows.dtype) @ rows


def is_added(weight: Use, bias: Use, dag: Dag) -> bool:
    """Whether a bias is added to a weight's product, row by row."""
    if weight.start.out_shape[::2] != bias.start.out_shape[::2]:
        return False
    for vertex, rows in onwards(weight, dag):
        if vertex == bias.vertex and rows.out_shape == bias.rows.out_shape:
            y = np.random.default_rng(0).standard_normal(dag.shapes[vertex]).astype(dag.dtype)
            if np.array_equal(rows._apply(numbers, y), bias.rows._apply(numbers, y)):
                return True
    return False


def onwards(use: Use, dag: Dag) -> Iterator[tuple[int, Jacobian]]:
    """The vertices with the cotangents of a use, possibly permuted, and its rows at each."""
    vertex, rows = use.vertex, use.rows
    while True:
        yield vertex, rows
        edges = [edge for edge in dag.edges if edge.start == vertex]
        if vertex in dag.sinks or len(edges) != 1:
            return
        (edge,) = edges
        if not all(isinstance(f, STILL) for f in factors_of(edge.operator)):
            return
        vertex, rows = edge.end, rows @ edge.operator.T
