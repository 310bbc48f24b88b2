"""Target: the entries of an output that are explained, and their gradients at any point."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...jacobians.arrays import host
from ...jacobians.errors import InputError
from ..embeddings import default_wrt, vocabulary_size
from ..forward import Tensors
from ..gradient import Gradient
from ..linearize import linearize
from ..model.flow.entries import PART, split_part
from ..model.primal.evaluate import evaluate
from ..model.primal.inputs import Names, check_inputs, heads_of, name_of, names_of
from ..model.primal.model import Model, ModelLike, as_model


@dataclass(frozen=True)
class AttributionTarget:
    """fₙ(x) = Σ weights ∘ of over the entries of sample n, of `samples`, by the tensors of `wrt`.

    `text` names the entries, and `point` are all inputs.
    """

    model: Model
    point: Mapping[str, Any]
    of: str
    wrt: tuple[str, ...]
    weights: np.ndarray
    samples: int
    text: str
    engine: str | None

    def here(self) -> tuple[np.ndarray, Tensors]:
        """fₙ for each sample, and ∂(Σₙ fₙ)/∂wrt by name, at the point: one product."""
        J = linearize(self.model, self.point, of=self.of, wrt=self.wrt, engine=self.engine)
        slopes = J.T.apply({self.of: self.weights.astype(J.dtype)})
        return self._by_sample(J.primal[self.of]), {n: host(g) for n, g in slopes.items()}

    def slopes(self, moved: Mapping[str, Any]) -> Tensors:
        """∂(Σₙ fₙ)/∂wrt by name, where tensors of `wrt` are `moved`: one run of a program."""
        f = Gradient(self.model, (self.of,), self.wrt, {self.of: self.weights}, self.engine)
        return {n: host(g) for n, g in f({**self.point, **moved})[1].items()}

    def values(self, moved: Mapping[str, Any]) -> np.ndarray:
        """fₙ for each sample."""
        point = {**self.point, **moved}
        return self._by_sample(evaluate(self.model, point, [self.of], engine=self.engine)[self.of])

    def inputs(self) -> dict[str, np.ndarray]:
        """The tensors of `wrt` at the point."""
        found = evaluate(self.model, self.point, self.wrt, engine=self.engine)
        return {name: host(x) for name, x in found.items()}

    def _by_sample(self, y: Any) -> np.ndarray:
        return (self.weights * host(y)).reshape(self.samples, -1).sum(axis=1)


def target_of(
    model: ModelLike, inputs: Mapping[str, Any], of: str | None, wrt: Names, engine: str | None
) -> AttributionTarget:
    """The target that `of` names: `"logits[0,3]"`, or of each sample its largest entry, which for
    scores of each word of the vocabulary (N, T, V) is the next word after the last token.

    By default `wrt` are the floating inputs; the vectors of the tokens where there are none.
    """
    model = as_model(model, wrt=wrt)
    name, index = entry(model, of)
    by = names_of(model, default_wrt(model) if wrt is None else wrt, model.inputs, "wrt")
    point = check_inputs(model, inputs, keep=False, engine=engine)
    values = evaluate(model, point, [name, *by], engine=engine)
    y = host(values[name])
    weights, lengths = np.zeros(y.shape), {tuple(values[n].shape)[:1] for n in (name, *by)}
    samples = len(y) if len(lengths) == 1 and y.ndim else 1
    if index is None:
        of_words = y.ndim == 3 and y.shape[2] == vocabulary_size(model) and samples == len(y)
        rows = y.reshape(samples, -1)
        first = rows.shape[1] - y.shape[2] if of_words else 0
        places = first + rows[:, first:].argmax(axis=1)
        weights.reshape(rows.shape)[np.arange(samples), places] = 1
        text = text_of(name, weights) + " after the last token" * of_words
        return AttributionTarget(model, point, name, by, weights, samples, text, engine)
    try:
        weights[index] = 1
    except IndexError as error:
        raise InputError(f"of={of!r}: {name!r} has shape {list(y.shape)}: {error}") from error
    return AttributionTarget(model, point, name, by, weights, samples, str(of), engine)


def text_of(name: str, weights: np.ndarray) -> str:
    """The entry, or that there is one in each sample."""
    if weights.size == 1:
        return name
    places = list(zip(*weights.nonzero(), strict=True))
    if len(places) > 1:
        return f"the largest entry of {name} in each sample"
    return f"{name}[{','.join(map(str, places[0]))}]"


CACHE = re.compile("present|past|cache")
"""How names of the states begin that a decoder hands to its next run."""


def entry(model: Model, of: str | None) -> tuple[str, Any]:
    """The tensor, and the index of entries in it; None where `of` names no part of a tensor.

    By default the tensor is the only output that has logits in its name, or that is no cache.
    """
    part = PART.fullmatch(of) if of is not None else None
    if of is not None and part and part[1] in model and of not in model.outputs:
        return split_part(model, of)
    heads = heads_of(model)
    logits = {n: spec for n, spec in heads.items() if "logits" in n.lower()}
    own = {n: spec for n, spec in heads.items() if not CACHE.match(n.lower())}
    few = next((found for found in (logits, own) if len(found) == 1), heads)
    return name_of(model, of, few, "of"), None
