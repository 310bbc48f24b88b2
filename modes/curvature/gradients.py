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

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from math import sqrt
from typing import Any, Literal, TypeVar

import numpy as np

from ...jacobians import (
    Block,
    Dag,
    Embed,
    Jacobian,
    Permutation,
    Reshape,
    Scatter,
    Take,
    dtype_of,
    reading,
    shape_of,
    size,
)
from ...jacobians.arguments import Natural, Positive
from ...jacobians.arrays import host, like
from ...jacobians.as_one import inner_operators
from ...jacobians.base import CHUNK_BYTES
from ...jacobians.errors import InputError, LimitError, UnsupportedOp
from ...jacobians.lapack import eps_of
from ...jacobians.products import factors_of
from ...jacobians.readings import library_of, module_of
from ...jacobians.threads import cached_property, concurrent, cores
from ...ops import numbers
from ..data.draws import SampleSeeds
from ..linear.derivatives.route import Route, route_of
from ..linear.elimination.plan import eliminated, repays_elimination
from ..linear.elimination.samples import Batch, within
from ..linear.linearization import Linearization
from ..model.primal.inputs import Names, heads_of, name_of, names_of, weights_of
from ..model.primal.model import Model, as_model
from .fisher import LIKELIHOODS, Family, LossGradients, terms, with_samples
from .kronecker import gather_uses
from .reductions import Reduction
from .weights import STILL, Use, uses

T = TypeVar("T")

FisherType = Literal["type-2", "mc", "empirical", "forward-only"]


@dataclass(frozen=True)
class Target:
    """The options of the gradients; `wrt` defaults to the floating tensors of `weights_of`."""

    at: str | None = None
    of: str | None = None
    wrt: Names = None
    likelihood: Family = "categorical"
    axis: int = -1
    fisher_type: FisherType = "type-2"
    reduction: Reduction = "mean"
    samples: Positive = 1
    seed: Natural | SampleSeeds = 0
    joint: bool = False
    engine: str | None = None
    straight_through: bool = False

    def __post_init__(self) -> None:
        if self.fisher_type == "empirical" and self.of is None:
            raise InputError("fisher_type='empirical' needs the loss: name it with of=")

    def route(self, model: Model, engine: str | None) -> Route:
        """The route from `wrt` to `at`."""
        model = as_model(
            model, self.at, self.of, wrt=self.wrt, straight_through=self.straight_through
        )
        middle = name_of(model, self.at, heads_of(model), "at")
        weights = names_of(model, self.wrt, weights_of(model), "wrt")
        return route_of(model, (middle,), weights, engine)


class Gradients:
    """The gradients of one batch: all uses of the tensors of J = ∂at/∂wrt, and cotangents of `at`.

    One reverse sweep leads from `at` to the uses. `slopes` are the gradients of the losses. What is
    known of the layers is kept for other points where these differ in floating numbers alone.
    """

    def __init__(
        self, J: Linearization, target: Target, slopes: LossGradients | None = None
    ) -> None:
        self.J, self.target, self.slopes = J, target, slopes
        self.z = with_samples(J, target.axis)
        found = [replace(use, x=self._taken(use.x)) for use in uses(J)]
        ends = dict.fromkeys(use.vertex for use in found)
        forth = J.there.between(tuple(ends), J.there.sinks)
        if J.place is None and repays_elimination(forth, size(shape_of(self.z)[1:])):
            forth = eliminated(forth)
        self.back = forth.T
        self.vertices = dict(zip(self.back.sinks, ends, strict=True))
        form = J.at.derivative
        key = "layers", target.joint, J.domain, J.codomain
        fixed = form and form.closed and (form.rigid or self._selects_within_samples(found))
        known = form.known if form and fixed else {}
        layout = known.get(key)
        if layout is None:
            layout = self._layout(found)
            if layout.certain and (form is None or form.rigid or layout.leading):
                known[key] = layout
        self.layers, self.twins = [layer.at(found) for layer in layout.layers], layout.twins
        self.entries = layout.entries

    def _selects_within_samples(self, found: list[Use]) -> bool:
        """Whether points differ in floating numbers and in what a pool selects from a sample."""
        inside = self.J.there, *(use.start for use in found)
        chosen = (leaf for one in inside for leaf in inner_operators(one)
                  if any(dtype_of(a).kind != "f" for a in leaf.arrays()))  # fmt: skip
        return all(isinstance(leaf, Take | Scatter) and leaf.parts[:1] == (len(self.z),)
                   for leaf in chosen)  # fmt: skip

    def _layout(self, found: list[Use]) -> Layout:
        """The layers of all uses, by random cotangents.

        The second one is the first one with each sample multiplied by its number.
        """
        one = np.random.default_rng(0).standard_normal(self.z.shape).astype(self.back.dtype)
        samples = np.arange(1, len(self.z) + 1).reshape(-1, *(1,) * (self.z.ndim - 1))
        probes = self._swept(self._taken(np.stack([one, one * samples])))
        groups: dict[tuple[str, bytes], list[Use]] = {}
        for use in found:
            groups.setdefault((use.name, entries_key(use, found)), []).append(use)
        orders = {use.number: self._order(use, probes[use.vertex]) for use in found}
        layers = [
            Layer({name: alike[0].start}, tuple(alike), tuple(orders[u.number][0] for u in alike),
                  len(self.z)) for (name, _), alike in groups.items()
        ]  # fmt: skip
        pairs = list(bias_pairs(layers, self.J.there))
        twins = {} if self.target.joint else twin_biases(layers, pairs)
        layers = join_biases(layers, pairs) if self.target.joint else layers
        bare = [replace(use, x=use.x[:, :0]) for use in found]
        certain = all(sure for _, sure in orders.values())
        return Layout([layer.at(bare) for layer in layers], twins,
                      [fingerprint(layer.parts) for layer in layers], certain)  # fmt: skip

    @property
    def terms(self) -> int:
        """The number of terms in a mean."""
        return terms(self.z.shape, self.target.axis)

    @cached_property
    def room(self) -> int:
        """The most cotangents on their way at a time, by the largest tensor there."""
        largest = max(map(size, self.back.shapes)) * self.back.dtype.itemsize
        return max(1, CHUNK_BYTES // max(largest, 1))

    @property
    def threads(self) -> int:
        """The number of threads that pull back cotangents: one if the arrays are not NumPy's."""
        return min(self.room, cores()) if self.J.place is None else 1

    @cached_property
    def width(self) -> int:
        """The most cotangents pulled back at a time: few, so that threads end together.

        Settled once: `threads` falls to one while linear algebra is limited to one thread.
        """
        return max(1, self.room // (4 * self.threads)) if self.threads > 1 else self.room

    def stacks(self) -> Iterator[np.ndarray]:
        """Cotangents (k, *at), whose outer products sum to F for `reduction="sum"`."""
        t = self.target
        family = LIKELIHOODS[t.likelihood]
        if t.fisher_type == "type-2":
            yield from family.roots(self.z, self.width, t.axis)
        elif t.fisher_type == "mc":
            drawn = family.residuals(self.z, t.axis, t.samples, t.seed) / sqrt(t.samples)
            yield from (drawn[k : k + self.width] for k in range(0, len(drawn), self.width))
        elif self.slopes:
            yield self.slopes(self.J)[None]

    def each(
        self, find: Callable[[int, Any, Any], T], read: Callable[[int, Any], Any] | None = None
    ) -> Iterator[list[T]]:
        """find(k, x, g) for every layer k with its inputs, or read(k, inputs), and its cotangents
        (k, groups, samples, positions, outputs): a list for each stack.
        """
        inputs = [read(k, layer.x) if read else layer.x for k, layer in enumerate(self.layers)]

        def found(stack: np.ndarray) -> list[T]:
            pulled = self.cotangents(stack)
            return [find(k, x, g) for k, (x, (_, g)) in enumerate(zip(inputs, pulled, strict=True))]

        return concurrent(found, self.stacks(), self.threads)

    def cotangents(self, stack: np.ndarray) -> Iterator[tuple[Layer, np.ndarray]]:
        """Every layer, with a stack of cotangents of `at`, (k, *at), pulled back to it."""
        at = self._swept(stack)
        return ((layer, layer.cotangents(at)) for layer in self.layers)

    def _taken(self, x: Any) -> Any:
        """An array where J holds its arrays."""
        place = self.J.at.place
        return place.take(x) if place else x

    def _swept(self, stack: Any) -> dict[int, Any]:
        stack, shapes = self._taken(stack), self.back.shapes
        op = reading(stack)
        reached = self.back.sweep(op, {self.back.sources[0]: stack})
        return {
            end: reached[sink] if sink in reached
            else op.Expand(stack.reshape(-1)[:1] * 0, (len(stack), *shapes[sink]))
            for sink, end in self.vertices.items()
        }  # fmt: skip

    def _order(self, use: Use, probe: np.ndarray) -> tuple[np.ndarray | slice, bool]:
        """The order of the rows with samples first, a slice where they are in this order; and
        whether the probe allows no other.

        Samples precede or, as in recurrent and attention layers, follow the positions.
        """
        one, numbered = use.rows._apply(reading(probe), probe)
        count, samples = one.shape[1], len(self.z)
        positions = count // samples
        rows = np.arange(count)
        leading, trailing = rows // max(positions, 1), rows % samples
        library = library_of(one)
        with library.at_once(one):
            fits = [
                count == positions * samples and bool(library.module.allclose(
                    numbered, self._taken(owner[:, None] + 1) * one, rtol=1e-3,
                    atol=1e-6 * float(abs(numbered).max()),
                )) for owner in (leading, trailing)
            ]  # fmt: skip
        if not any(fits):
            raise UnsupportedOp(
                f"{use.name!r} meets {count} rows that are not the rows of {samples} samples, each "
                f"on its own: leave it out of wrt=, or take gauss_newton or fisher"
            )
        order = slice(None) if fits[0] else np.argsort(trailing, kind="stable")
        return order, not all(fits) or np.array_equal(leading, trailing)


def entries_key(use: Use, found: list[Use]) -> bytes:
    """A key of the entries of its tensor that a use involves; empty if there is no other use."""
    if sum(other.name == use.name for other in found) == 1:
        return b""
    entries = use.start @ np.arange(use.start.shape[1])
    return entries.tobytes() + str(use.start.out_shape).encode()


def per_sample(x: np.ndarray, g: np.ndarray) -> np.ndarray:
    """Gₙ = Σₛ xₙₛ gₙₛᵀ, (k, groups, samples, inputs, outputs)."""
    return x.swapaxes(-1, -2) @ g


def squares(x: np.ndarray, g: np.ndarray) -> np.ndarray:
    """Σₙ Gₙ ∘ Gₙ over all samples and cotangents, (groups, inputs, outputs)."""
    if x.shape[2] == 1:  # samples of one position: Gₙ = xₙ gₙᵀ is never formed
        total = sum(row * row for row in g[:, :, :, 0])  # an einsum is slow on a GPU
        return (x[:, :, 0] ** 2).swapaxes(-1, -2) @ total
    G = per_sample(x, g)
    G *= G
    return G.sum(axis=(0, 2))


OUTPUTS = 256
"""The most outputs of a sample for which as many cotangents are pulled back."""


def sample_diagonal(J: Linearization, H: Jacobian) -> np.ndarray | None:
    """diag(Jᵀ H J), from the squared gradients of samples; None where structure does not allow it.

    Where H couples no two samples, its block of a sample is Hₙ = Σₖ ± sₙₖ sₙₖᵀ, and the diagonal is
    Σₙ Σₖ ± Gₙₖ ∘ Gₙₖ with the gradients Gₙₖ = Jₙᵀ sₙₖ: as many cotangents as a sample has outputs.
    Source: Dangel, Kunstner, Hennig, "BackPACK: packing more into backprop", 2020.
    """
    z = next(iter(J.primal.values()))
    whole = size(z.shape)
    if len(J.primal) > 1 or J.transposed or not z.ndim or not whole or H.shape != (whole,) * 2:
        return None
    batch = Batch(len(z), size(z.shape[1:]))
    if batch.inner > OUTPUTS or within(H, batch) != batch:
        return None
    try:
        found = Gradients(J, Target())
    except (UnsupportedOp, LimitError):
        return None
    ones = ((layer.parts, np.ones(layer.start.out_shape)) for layer in found.layers)
    if (gather_uses(J.domain, J.dtype, ones) > 1).any():
        return None  # an entry belongs to several layers: the square of a sum of gradients
    inputs = [layer.x for layer in found.layers]

    def parts(pair: tuple[float, np.ndarray]) -> list[np.ndarray]:
        sign, pulled = pair[0], found.cotangents(pair[1])
        return [sign * squares(x, g) for x, (_, g) in zip(inputs, pulled, strict=True)]

    pulled = concurrent(parts, sample_roots(H, z, found.width), found.threads)
    matrices = ((layer.parts, m) for new in pulled
                for layer, m in zip(found.layers, new, strict=True))  # fmt: skip
    return gather_uses(J.domain, J.dtype, matrices)


def sample_roots(H: Jacobian, z: np.ndarray, width: int) -> Iterator[tuple[float, np.ndarray]]:
    """Signs and stacks (k, *z), k ≤ width, of sₙₖ with Hₙ = Σ ± sₙₖ sₙₖᵀ for every sample n."""
    xp, samples, n = module_of(z), len(z), size(z.shape[1:])
    units = xp.broadcast_to(like(np.eye(n), z)[:, None], (n, samples, n))
    blocks = (H @ units.reshape(n, -1).T).reshape(samples, n, n)
    if not xp.isfinite(blocks).all():  # LAPACK may raise an error, and no NaN is above the noise
        yield 1.0, xp.full_like(z, np.nan)[None]
        return
    values, vectors = xp.linalg.eigh((blocks + blocks.swapaxes(1, 2)) / 2)
    scaled = xp.moveaxis(vectors * abs(values)[:, None] ** 0.5, -1, 0)
    noise = n * eps_of(dtype_of(values)) * float(abs(values).max())
    for sign in (1.0, -1.0):
        held = (sign * values > noise).T
        used = np.flatnonzero(host(held.any(1)))
        for start in range(0, len(used), width):
            k = used[start : start + width]
            yield sign, (scaled[k] * held[k][..., None]).reshape(len(k), *z.shape)


def concatenated(parts: list[np.ndarray], axis: int) -> np.ndarray:
    """The parts along an axis; one part is not copied."""
    return parts[0] if len(parts) == 1 else module_of(parts[0]).concatenate(parts, axis)


@dataclass(frozen=True, repr=False, eq=False)
class Layer:
    """The uses of the same entries of a tensor, which share these weights.

    `parts` maps each tensor, the weight alone or with its bias, to (groups, inputs, outputs). The
    `biases` are the uses of a bias that are added to the weight's uses.
    """

    parts: Mapping[str, Jacobian]
    uses: tuple[Use, ...]
    orders: tuple[np.ndarray | slice, ...]
    samples: int
    biases: tuple[Use, ...] = ()

    def at(self, found: list[Use]) -> Layer:
        """The layer with the uses of another point."""
        uses, biases = (tuple(found[u.number] for u in side) for side in (self.uses, self.biases))
        return replace(self, uses=uses, biases=biases)

    @cached_property
    def x(self) -> np.ndarray:
        """(groups, samples, positions, inputs), the positions of several uses concatenated.

        With a bias, the inputs end in one more entry, the same number for all positions of a use.
        """
        parts = []
        for k, (use, order) in enumerate(zip(self.uses, self.orders, strict=True)):
            x = use.x[:, order].reshape(len(use.x), self.samples, -1, use.x.shape[-1])
            if self.biases:
                one = like(self.biases[k].x.reshape(-1)[0], x)
                one = reading(x).Expand(one, (*x.shape[:-1], 1))
                x = concatenated([x, one], -1)
            parts.append(x)
        return concatenated(parts, 2)

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
            v, (groups, count, outputs) = at[use.vertex], use.rows.out_shape
            apart = (groups, self.samples, count // self.samples, outputs)
            if isinstance(order, slice):  # as one operator: a view where rows would be a copy
                J = Reshape(apart, use.rows.out_shape, use.rows.dtype) @ use.rows
                parts.append(J._apply(reading(v), v))
            else:
                rows = use.rows._apply(reading(v), v)[..., order, :]
                parts.append(rows.reshape(*rows.shape[:-3], *apart))
        return concatenated(parts, -2)


@dataclass(frozen=True)
class Layout:
    """What is known of the layers at all points: their fingerprints, and `twins`, the number of
    each bias whose cotangents are a weight's, by the number of that weight's layer.

    It is `certain` if the cotangents that it was found by were not zero by chance, and `leading` if
    samples come before positions everywhere.
    """

    layers: list[Layer]
    twins: Mapping[int, int]
    entries: list[bytes]
    certain: bool

    @property
    def leading(self) -> bool:
        return all(isinstance(order, slice) for layer in self.layers for order in layer.orders)


def fingerprint(parts: Mapping[str, Jacobian]) -> bytes:
    """A fingerprint of the tensors and of the positions of their entries."""
    found = sha256()
    for name, part in parts.items():
        numbered = part @ np.arange(1.0, part.shape[1] + 1)
        found.update(f"{name} {part.out_shape}".encode())
        found.update(np.ascontiguousarray(numbered).tobytes())
    return found.digest()


Pair = tuple[Layer, Layer, list[Use]]
"""A weight, a bias that is added to its product, and the use of the bias for each of the weight."""


def bias_pairs(layers: list[Layer], dag: Dag) -> Iterator[Pair]:
    """Each weight with the first bias that is added to its product.

    An elementwise scale is not a matrix, and stays separate from its shift.
    """
    biases = [layer for layer in layers if layer.bias]
    for layer in layers:
        if layer.bias or layer.start.out_shape[1:] == (1, 1):
            continue
        for bias in biases:
            if (own := matched(layer, bias, dag)) is not None:
                yield layer, bias, own
                biases.remove(bias)
                break


def matched(weight: Layer, bias: Layer, dag: Dag) -> list[Use] | None:
    """The use of the bias that is added to each use of the weight; None if there are others."""
    if len(weight.uses) != len(bias.uses):
        return None
    left = [regrouped(use, weight.start.out_shape[0]) for use in bias.uses]
    found = []
    for use in weight.uses:
        own = next((b for b in left if b is not None and is_added(use, b, dag)), None)
        if own is None:
            return None
        left.remove(own)
        found.append(own)
    return found


def twin_biases(layers: list[Layer], pairs: list[Pair]) -> dict[int, int]:
    """The numbers of biases and weights that have the same cotangents."""
    return {layers.index(bias): layers.index(weight) for weight, bias, _ in pairs
            if weight.start.out_shape[0] == bias.start.out_shape[0]}  # fmt: skip


def join_biases(layers: list[Layer], pairs: list[Pair]) -> list[Layer]:
    """The layers, each weight together with its bias."""
    taken = {id(bias) for _, bias, _ in pairs}
    found = {id(weight): join_bias(weight, bias, own) for weight, bias, own in pairs}
    return [found.get(id(layer), layer) for layer in layers if id(layer) not in taken]


def join_bias(weight: Layer, bias: Layer, own: list[Use]) -> Layer:
    """Both as one layer: the bias is one more row of the matrix."""
    groups, inputs, outputs = weight.start.out_shape
    ((name, part),) = weight.parts.items()
    ((other, _),) = bias.parts.items()
    shape = groups, inputs + 1, outputs
    start = regrouped(bias.uses[0], groups)
    assert start is not None
    parts = {name: embed_rows(part, 0, shape), other: embed_rows(start.start, inputs, shape)}
    return replace(weight, parts=parts, biases=tuple(own))


def embed_rows(part: Jacobian, first: int, shape: tuple[int, int, int]) -> Jacobian:
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
