"""XLA as an engine: a model, or a product, is one function that JAX compiles.

It is compiled once for the shapes of its arguments. Weights are arguments, so that the compiler
does not look at their numbers; small constants are known to it, and whole numbers too, which may be
shapes and axes. Among the inputs, whole numbers are arguments as long as none of them decides a
size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np

from ....jacobians import dtype_of
from ....jacobians.errors import UnsupportedOp, optional
from ....jacobians.readings import is_kept
from ....jacobians.threads import remembered
from ....ops.graphs import build
from ....ops.graphs.build import Graph, V, simplify_graph
from ....ops.numbers.table import FREE
from ....ops.registry import version
from ..flow.contents import Contents
from ..flow.steps import moving, reads, steps_needed
from . import numpy as own

EMBEDDED_ENTRIES = 64
"""Entries above which a constant is an argument of the function."""


def compute(
    model: Contents, inputs: Mapping[str, Any], names: tuple[str, ...], engine: str = "jax"
) -> dict[str, Any]:
    """The named tensors at the inputs, as arrays of JAX."""
    optional("jax", "jax")
    from ....ops.jax.table import NARROW

    key = "jax", names, tuple(inputs), version(), NARROW.get()
    function = remembered(model.programs, key, partial(CompiledModel, model, tuple(inputs), names))
    made: dict[str, Any] = function(inputs)
    return made


def kinds(model: Contents, inputs: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """The shapes and dtypes of the named tensors, without a run."""
    return CompiledModel(model, tuple(inputs), names).kinds(inputs)


results = compute
"""The named tensors as the caller may have them: nobody writes to an array of JAX."""


class CompiledModel:
    """inputs ↦ the named tensors of a model, compiled by XLA."""

    def __init__(self, model: Contents, given: tuple[str, ...], names: tuple[str, ...]) -> None:
        from ....ops.jax.table import to_jax_array

        self.model, self.names, self.static = model, names, frozenset[str]()
        used = steps_needed(model.steps, names, given)[1] & model.constants.keys() - {*given}
        constants = {name: model.constants[name] for name in sorted(used)}
        large = {n for n, x in constants.items()
                 if x.dtype.kind in "fVc" and x.size > EMBEDDED_ENTRIES}  # fmt: skip
        self.weights = {name: to_jax_array(constants.pop(name)) for name in sorted(large)}
        self.constants, self._compiled = constants, dict[Any, Callable[..., Any]]()

    def kinds(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """The shapes and dtypes of the named tensors."""
        import jax

        from ....ops.jax.table import types

        given = {n: x for n, x in inputs.items() if is_argument(x) and not may_be_sizes(x)}
        known = {n: x for n, x in inputs.items() if n not in given}
        with types():
            made: dict[str, Any] = jax.eval_shape(partial(self.run, known), given, self.weights)
        return made

    def __call__(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        import jax

        from ....ops.jax.table import has_tracers, types

        given = {n: x for n, x in inputs.items() if n not in self.static and is_argument(x)}
        known = {n: x for n, x in inputs.items() if n not in given}
        key = tuple((n, input_key(x)) for n, x in known.items())
        if key not in self._compiled:
            self._compiled[key] = jax.jit(partial(self.run, known))
        traced = has_tracers(given.values())
        at_once = nullcontext() if traced else jax.ensure_compile_time_eval()
        try:
            with types(), at_once:  # the values may be kept: see `Point`
                made: dict[str, Any] = self._compiled[key](given, self.weights)
                return made
        except UnsupportedOp:
            sizes = {n for n, x in given.items() if may_be_sizes(x)}
            if not sizes:
                raise
            self.static |= sizes
        return self(inputs)

    def run(self, known: Any, given: Any, weights: Any) -> dict[str, Any]:
        """The named tensors, while JAX traces."""
        from ....ops.jax import arrays

        held = {**self.constants, **weights}
        return own.compute(self.model, {**known, **given}, self.names, arrays, held)


def is_argument(x: Any) -> bool:
    """Whether a function of JAX may take this as an argument."""
    if isinstance(x, list):
        return all(map(is_argument, x))
    return x is None or is_kept(x) or (isinstance(x, np.ndarray) and x.dtype.kind not in "OUS")


def may_be_sizes(x: Any) -> bool:
    """Whether these may be shapes, axes or counts, and are known."""
    if not (isinstance(x, np.ndarray) and x.dtype.kind in "iub"):
        return False
    return x.ndim < 2 and x.size <= own.SHAPE_ENTRIES


def input_key(x: Any) -> Any:
    """What tells a known input from others."""
    if isinstance(x, list):
        return tuple(map(input_key, x))
    is_array = isinstance(x, np.ndarray)
    return (x.shape, x.dtype.str, tuple(x.ravel().tolist())) if is_array else x


class Program:
    """v ↦ J v. An array of JAX gives one, also while it traces."""

    def __init__(self, graph: Graph) -> None:
        import jax

        copy = simplify_graph(graph)
        model = Contents(build(copy, copy.inputs.values(), copy.outputs, "product"))
        names, (y,) = [str(value.name) for value in copy.inputs.values()], model.outputs
        known, keys = fixed_tensors(model), [*copy.inputs]
        function = CompiledModel(model, (*names, *known), (y,))

        def product(weights: Any, residuals: Mapping[str, Any], v: Any) -> Any:
            given = {V: v, **residuals}
            held = {name: given[key] for name, key in zip(names, keys, strict=True)}
            fixed = {name: weights[name] for name in known}
            return function.run({}, held | fixed, weights)[y]

        self._compiled, self.weights = jax.jit(product), {**function.weights, **known}
        self.keys, self.dtype = tuple(copy.residuals), dtype_of(copy.v)

    def bind(self, residuals: Mapping[str, Any]) -> Callable[[Any], Any]:
        """The program for these residuals, by key, which go to the device once."""
        from ....ops.jax.table import to_jax_array

        return partial(self._product, {key: to_jax_array(residuals[key]) for key in self.keys})

    def trace(self, residuals: Mapping[str, Any], v: Any) -> None:
        """Raises the errors that a product with such arrays would raise."""
        import jax

        with jax.enable_x64(True):
            jax.eval_shape(self._compiled, self.weights, residuals, v)

    def __call__(self, v: Any) -> Any:
        return self._product({}, v)

    def _product(self, residuals: Mapping[str, Any], v: Any) -> Any:
        import jax

        with jax.enable_x64(True):
            x = v if v.dtype == self.dtype else v.astype(self.dtype)
            y = self._compiled(self.weights, residuals, x)
        return np.array(y) if isinstance(v, np.ndarray) else y


MOVES = {*FREE, "Transpose"}
"""Operators that XLA fuses into the operators that read their result."""


def fixed_tensors(model: Contents) -> dict[str, Any]:
    """The tensors of a product that follow from its constants, computed once; none that XLA moves
    or expands where it reads it.
    """
    moved = moving(model.steps, model.inputs, shapes=True)
    waiting = [name for step in model.steps if not moved.isdisjoint(step.outputs)
               for name in reads(step)]  # fmt: skip
    makers, fixed = {name: step for step in model.steps for name in step.outputs}, set[str]()
    while waiting:
        if (name := waiting.pop()) in moved or name in fixed or name not in makers:
            continue
        if makers[name].op_type in MOVES:
            waiting.extend(reads(makers[name]))
        else:
            fixed.add(name)
    names = tuple(sorted(fixed))
    most = max((x.size for x in model.constants.values()), default=0)
    found = CompiledModel(model, (), names)({}) if names else {}
    return {name: x for name, x in found.items()
            if dtype_of(x).kind in "fVc" and EMBEDDED_ENTRIES < x.size <= most}  # fmt: skip


def compile(graph: Graph, provider: str = "") -> Program:
    """The program of a product; JAX's own settings choose where it runs."""
    return Program(graph)
