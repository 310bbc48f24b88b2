"""Layers: what comes into every use of a weight, and the cotangents that come back to it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...jacobians import Dag, shape_of
from ...jacobians.errors import UnsupportedOp
from ...ops import numbers
from ..linearization import Linearization
from .joint import joined
from .layer import Layer
from .use import Use
from .uses import uses


class Layers:
    """All uses of the tensors of J = ∂at/∂wrt, and one sweep back to them from `at`."""

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
        """For every layer what a stack of cotangents of `at`, (k, *at), is there."""
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
        """A random cotangent, and the same times the number of its sample."""
        one = np.random.default_rng(0).standard_normal(self.shape).astype(self.back.dtype)
        number = np.arange(1, self.shape[0] + 1).reshape(-1, *(1,) * (len(self.shape) - 1))
        return np.stack([one, one * number])

    def _shared(
        self, name: str, several: list[Use], probes: dict[int, np.ndarray]
    ) -> Iterator[Layer]:
        """The uses of one tensor, those with the same entries together."""
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
        """The rows, samples first: the second probe says to which sample each belongs.

        Samples lead or, as in recurrent and attention layers, follow the positions.
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
