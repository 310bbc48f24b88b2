"""Primal: a model as a function of some of its tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, final

import numpy as np

from ...jacobians.errors import InputError, closest
from ..model import Model
from ..naming.names import Names, names_of
from ..primal.evaluate import evaluate
from ..primal.inputs import check_inputs
from .at import Arrays, At
from .functions import Pointwise, Spec


@final
class Primal(Pointwise):
    """(wrt, others) ↦ of, with all that is left at the values of `fixed`.

    An `eager` one takes its value out of the linearisation, where one is to come anyway.
    """

    def __init__(
        self, model: Model, of: tuple[str, ...], wrt: tuple[str, ...], others: tuple[str, ...],
        fixed: Mapping[str, Any], engine: str | None, eager: bool,
    ) -> None:  # fmt: skip
        self.model, self.of, self.wrt, self.others = model, of, wrt, others
        self.fixed, self.engine, self.eager = fixed, engine, eager
        self.n, self.m = len(wrt), len(of)
        self._specs: dict[tuple[Spec, ...], list[Spec]] = {}

    def __call__(self, args: Arrays) -> Arrays:
        if self.eager:
            return self.at(args).values
        made = evaluate(self.model, self._point(args), self.of, engine=self.engine)
        return tuple(made[name] for name in self.of)

    def specs(self, args: Sequence[Spec]) -> list[Spec]:
        """Those of a run at zero: ONNX leaves shapes open that a run knows."""
        key = tuple(args)
        if key not in self._specs:
            values = self(tuple(np.zeros(shape, dtype) for shape, dtype in args))
            self._specs[key] = [(value.shape, value.dtype) for value in values]
        return self._specs[key]

    def _at(self, args: Arrays) -> At:
        return At(self.model, self._point(args), self.of, self.wrt, self.engine)

    def _point(self, args: Arrays) -> dict[str, Any]:
        named = zip((*self.wrt, *self.others), args, strict=True)
        return check_inputs(self.model, {**self.fixed, **dict(named)})


class Signature:
    """How a model is called as a function: positions and names are told apart once."""

    def __init__(
        self, model: Model, of: Names, wrt: Names, inputs: Mapping[str, Any] | None,
        engine: str | None,
    ) -> None:  # fmt: skip
        self.model, self.engine, self.fixed = model, engine, dict(inputs or {})
        self.of = names_of(model, of, model.outputs, "of")
        free = {n: spec for n, spec in model.inputs.items() if n not in self.fixed}
        self.wrt = names_of(model, wrt, free, "wrt")
        for name in self.wrt:
            if name not in model.inputs and name not in model.initializers:
                raise InputError(f"wrt={name!r} is computed by the model: name inputs or weights")
        self._primals: dict[tuple[Any, ...], Primal] = {}

    def bind(
        self, args: Sequence[Any], others: Mapping[str, Any], *, eager: bool = False
    ) -> tuple[Primal, list[Any]]:
        """The function for one call, and what it is called with."""
        if len(args) != len(self.wrt):
            raise InputError(f"give {len(self.wrt)} arguments, {list(self.wrt)}, not {len(args)}")
        names = tuple(others)
        for name in names:
            if name in self.wrt or name not in self.model.inputs:
                left = [n for n in self.model.inputs if n not in self.wrt]
                raise InputError(f"there is no further input {name!r}.{closest(name, left)}")
        return self._primal(names, eager), [*args, *others.values()]

    def _primal(self, names: tuple[str, ...], eager: bool) -> Primal:
        if (names, eager) not in self._primals:
            fixed = {name: value for name, value in self.fixed.items() if name not in names}
            self._primals[names, eager] = Primal(
                self.model, self.of, self.wrt, names, fixed, self.engine, eager
            )
        return self._primals[names, eager]

    def result(self, values: Sequence[Any]) -> Any:
        """One value alone, several as a tuple."""
        return values[0] if len(values) == 1 else tuple(values)
