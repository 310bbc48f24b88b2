"""Chained: models whose inputs other equations define, differentiated through these equations."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import reduce
from operator import add
from typing import Any, final

import numpy as np

from ...jacobians import Block, Jacobian, Take, common, dtype_of, prod_text, shape_of, size
from ...jacobians.base import Wrapper
from ...jacobians.errors import InputError
from ...jacobians.hooks import to_torch
from ...jacobians.threads import cached_property
from ..model.primal.inputs import Names, Specs, applied, check_named, distinct, find_tensor, listed
from ..model.primal.model import Model
from .linearization import Linearization
from .symmetric import Curvature, Symmetric

Again = Callable[[Mapping[str, Any]], Any]
"""The inputs of another point ↦ the same operator there."""


@final
class Named(Wrapper):
    """J between the tensors of `domain` and of `codomain`, with the products of `operator`.

    `primal` are the values of the codomain's tensors, by name. `J.apply` is a product by name and
    `J["out", "in"]` a block, of J.T too. `again` makes the same operator at another point.
    """

    def __init__(
        self, operator: Jacobian, domain: Specs, codomain: Specs, primal: Mapping[str, Any],
        again: Again | None = None,
    ) -> None:  # fmt: skip
        super().__init__(operator)
        self.domain, self.codomain, self.primal, self.again = domain, codomain, primal, again

    @cached_property
    def T(self) -> Named:  # type: ignore[override]
        """The transpose, built once: cotangents of the codomain to cotangents of the domain."""
        return self._transpose()

    def _transpose(self) -> Named:
        return Named(self.operator.T, self.codomain, self.domain, self.primal)

    def apply(self, tangents: Mapping[str, Any]) -> dict[str, Any]:
        """J v by name, for `tangents` v by name; those that are left out are zero."""
        check_named(tangents)
        return applied(self, tangents, self.domain, self.codomain)

    def __getitem__(self, key: Any) -> Jacobian:
        """A block by names, `J["out", "in"]`, or rows and columns by index."""
        if not (isinstance(key, tuple) and len(key) == 2 and all(isinstance(k, str) for k in key)):
            return super().__getitem__(key)
        return self.block((key[0],), (key[1],))

    def block(self, of: tuple[str, ...], wrt: tuple[str, ...]) -> Named:
        """The rows of some tensors and the columns of others, by name."""
        rows, columns = pick_tensors(self.codomain, of), pick_tensors(self.domain, wrt)
        part = rows @ self.operator @ columns.T
        domain = tuple(find_tensor(name, self.domain)[1] for name in wrt)
        codomain = tuple(find_tensor(name, self.codomain)[1] for name in of)
        return Named(part, domain, codomain, self.primal)

    def relinearize(self, inputs: Mapping[str, Any]) -> Named:
        """J at another point `inputs`; raises `InputError` for a block or a transpose."""
        if self.again is None:
            raise InputError(f"{self!r} is a part: take the whole operator at the other point")
        return self.again(inputs)

    def __repr__(self) -> str:
        rows, columns = (listed(specs, shapes=True) for specs in (self.codomain, self.domain))
        return f"d/d: ({columns}) → ({rows}), {prod_text(self.shape)} {self.dtype}"


def pick_tensors(specs: Specs, names: tuple[str, ...]) -> Take:
    """The flat tensors of `specs` ↦ the named ones among them, flat, in this order."""
    sizes = [size(shape_of(spec)) for spec in specs]
    starts = np.cumsum([0, *sizes])
    places = [find_tensor(name, specs)[0] for name in names]
    ranges = (np.arange(starts[k], starts[k + 1]) for k in places)
    index, dtype = np.concatenate([np.zeros(0, int), *ranges]), common(*map(dtype_of, specs))
    return Take(index, 0, (int(starts[-1]),), dtype, distinct=True)


class Implied(ABC):
    """Tensors x(p) that equations define, such as a root: an input of a model may be one."""

    tensors: Mapping[str, Any]
    """The values of x, by name."""

    @property
    @abstractmethod
    def J(self) -> Named:
        """dx/dp, from the parameters p to the tensors x."""

    @abstractmethod
    def curvature(self, weights: Mapping[str, Any]) -> Curvature:
        """∂²⟨w, x(p)⟩/∂p², with `weights` w by name of x."""

    def tensor_for(self, name: str) -> str:
        """The tensor of x that the input `name` of a model takes: the only one, or its namesake."""
        if name in self.tensors or len(self.tensors) > 1:
            return find_tensor(name, self.J.codomain)[1].name
        return next(iter(self.tensors))

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise InputError(f"{self!r} is an input for oj.linearize, oj.jvp, oj.vjp, oj.grad and "
                         "oj.hessian: elsewhere give its values, .tensors")  # fmt: skip

    def to_torch(self) -> Callable[..., Any]:
        """p ↦ x(p), the tensors of `wrt` in order, as a layer of PyTorch.

        Each call solves from the last solution; backward is one product with Jᵀ. The layer has
        first derivatives alone. Needs `onnxjac[torch]`.

        Shapes: as the model declares its tensors. Raises `InputError` without PyTorch, and
        `NotConverged` where a solve does.
        """
        found: Callable[..., Any] = to_torch(self)
        return found


def implied_in(inputs: Mapping[str, Any]) -> tuple[dict[str, Implied], dict[str, Any]]:
    """The implied ones among the inputs of a model, and the values of all."""
    sources = {name: x for name, x in inputs.items() if isinstance(x, Implied)}
    found = {name: x.tensors[x.tensor_for(name)] for name, x in sources.items()}
    return sources, {**inputs, **found}


@final
class Chain:
    """p ↦ (x(p), p): where the inputs of a model are, if some of them are implied."""

    def __init__(self, model: Model, inputs: Mapping[str, Any], wrt: Names) -> None:
        sources, self.values = implied_in(inputs)
        self.whole = {id(x): x for x in sources.values()}
        self.at = {key: {n: x.tensor_for(n) for n, s in sources.items() if s is x}
                   for key, x in self.whole.items()}  # fmt: skip
        behind = {s.name: s for x in self.whole.values() for s in x.J.domain}
        self.names = tuple(behind) if wrt is None else distinct(wrt, "wrt")
        if hit := [name for name in self.names if name in sources and name not in behind]:
            raise InputError(f"wrt={hit[0]!r} is a root, which its equations define: name what it "
                             f"depends on, such as {', '.join(map(repr, behind))}")  # fmt: skip
        own = (n for n in self.names if n not in sources)
        self.direct = tuple(n for n in own if n in model or n not in behind)
        self.wrt = (*(name for names in self.at.values() for name in names), *self.direct)
        self.behind = behind

    def stacked(self, ends: Specs) -> Named:
        """d(x, p)/dp; `ends` are the tensors of x and p that the model has."""
        here = {spec.name: spec for spec in ends}
        domain = tuple(self.behind.get(name) or here[name] for name in self.names)
        rows = [pick_tensors(x.J.codomain, tuple(self.at[key].values())) @ x.J.operator
                @ self.embedded(x, domain) for key, x in self.whole.items()]  # fmt: skip
        rows += [pick_tensors(domain, self.direct)] if self.direct else []
        return Named(Block([[row] for row in rows]), domain, ends, {})

    def embedded(self, x: Implied, domain: Specs) -> Jacobian:
        """The tensors that are asked for ↦ all tensors on which x depends; others are zero."""
        names = {spec.name for spec in x.J.domain}
        shared = tuple(name for name in self.names if name in names)
        return pick_tensors(x.J.domain, shared).T @ pick_tensors(domain, shared)


def chain_jacobians(
    model: Model, inputs: Mapping[str, Any], wrt: Names,
    linearize: Callable[[Mapping[str, Any], tuple[str, ...]], Linearization | Named],
    again: Again,
) -> Named:  # fmt: skip
    """d of/dp = ∂of/∂x dx/dp + ∂of/∂p, the chain rule; `linearize` is the model's own part."""
    chain = Chain(model, inputs, wrt)
    J = linearize(chain.values, chain.wrt)
    S = chain.stacked(J.domain)
    return Named(J @ S.operator, S.domain, J.codomain, J.primal, again)


def chained_hessian(
    model: Model, inputs: Mapping[str, Any], wrt: Names,
    hessian: Callable[[Mapping[str, Any], tuple[str, ...]], tuple[Curvature, Mapping[str, Any]]],
    again: Callable[[Mapping[str, Any]], Curvature],
) -> Symmetric:  # fmt: skip
    """Sᵀ H S + Σ ∂²⟨∂f/∂x, x(p)⟩/∂p², with S = d(x, p)/dp: the second chain rule.

    `hessian` is the model's own H and ∂f/∂x, by name.
    """
    chain = Chain(model, inputs, wrt)
    H, slopes = hessian(chain.values, chain.wrt)
    S = chain.stacked(H.domain)
    terms = [S.operator.T @ (H @ S.operator)]
    for key, x in chain.whole.items():
        weights = {tensor: slopes[name] for name, tensor in chain.at[key].items()}
        P = chain.embedded(x, S.domain)
        terms.append(P.T @ (x.curvature(weights) @ P))
    return Symmetric(reduce(add, terms), S.domain, again, f"d²/d({listed(S.domain)})²")


def is_implied(inputs: Any) -> bool:
    """Whether some of the inputs of a model are implied."""
    return isinstance(inputs, Mapping) and any(isinstance(x, Implied) for x in inputs.values())
