"""Guarded: a derivative recorded with free sizes, and the conditions under which it is valid.

A rule that decides by a size or by an integer of the point leaves a condition. A size that must
equal its value at the point is fixed; a tensor that must keep its values at the point becomes a
constant; all other relations go into the metadata of the recorded model.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from ...jacobians import shape_of
from ...jacobians.conditions import Condition
from ...jacobians.errors import OnnxJacError, UnsupportedOp
from ...jacobians.symint import Atom, Symbols, SymInt, relation_to_zero
from ...ops.graphs import every, reachable
from ..linear.derivatives.record import may_draw
from ..linear.derivatives.trace import Trace
from ..linear.derivatives.unroll import shaped_as_here
from ..model.flow.conditions import state
from ..model.flow.contents import free_sizes
from ..model.flow.steps import moving, steps_needed
from ..model.primal.inputs import is_float
from ..model.primal.model import Model

Make = Callable[..., Trace]
"""make(point, symbols=symbols): a derivative recorded at a point."""


def guarded(
    t: Trace, symbols: Symbols, name: str, defaults: Mapping[str, np.ndarray] | None = None
) -> Model:
    """The derivative of `trace_guarded`, valid wherever its conditions hold.

    Inputs of the names of `defaults` may be left out, and have these values then.

    Warnings (`OnnxJacWarning`) name the fixed sizes, unrolled control flow, tensors that became
    constants, and relations; the metadata `onnxjac.fixed`, `onnxjac.held` and `onnxjac.guards`
    list them.
    """
    if not t.values:  # a lowered model: its point is only a sample
        for name, why in symbols.decided().items():
            message = f"{why} depends on the numbers behind {name!r}, or on their count"
            raise UnsupportedOp(f"{message}: make them constants of the model")
    held = hold(t, symbols.pinned())
    made = t.model(name)
    if found := [*conditions(symbols, held)]:
        state(made.ir, found)
    for value in made.ir.graph.inputs:
        if defaults and (given := str(value.name)) in defaults:
            value.const_value = ir.tensor(defaults[given], name=given)
            made.ir.graph.register_initializer(value)
    return made


def conditions(symbols: Symbols, held: Mapping[str, str]) -> Iterator[Condition]:
    """Where a graph holds: fixed sizes, unrolled control flow, tensors that are constants, and the
    relations that do not follow from these.
    """
    yield from (c for c in symbols.conditions.values() if c.kind in ("size", "unrolled"))
    yield from (Condition("numbers", tensor, reader) for tensor, reader in held.items())
    yield from {c.name: c for c in symbols.relations()
                if any(a.free or a.tensor not in held for a in c.of.roots())}.values()  # fmt: skip


def shared(
    model: Model, make: Callable[..., Trace], free: Collection[str] = ()
) -> tuple[Trace, bool]:
    """The graph from `make(symbols=)`, and whether it is valid at all points of the same shapes,
    but for the sizes that stay `free`.
    """
    symbols = shaped_as_here(model, free)
    try:
        t = make(symbols=symbols)
    except OnnxJacError:  # a rule may need a concrete number
        return make(symbols=None), False
    return t, not symbols.conditions and not may_draw(model)


def trace_guarded(model: Model, point: Mapping[str, Any], make: Make) -> tuple[Trace, Symbols]:
    """The graph from `make`, and the conditions under which it holds.

    It is recorded again, with more sizes and tensors fixed, until no others must be fixed.
    """
    fixed: dict[str, Condition] = {}
    while True:
        symbols, failure = Symbols(fixed), None
        try:
            t = make(point, symbols=symbols)
        except OnnxJacError as error:
            failure = error
        equations = [(c.reader, c.of.roots()) for c in symbols.relations("==")]
        more = {f"{a.tensor}[:]" if a.is_entry else a.name: fixed_at(a, reader, model, point)
                for reader, atoms in equations for a in atoms
                if (len(atoms) == 1 if a.free else
                    a.tensor and (failure or all(b.is_entry for b in atoms)))}  # fmt: skip
        if more.keys() <= fixed.keys():
            if failure is not None:
                raise failure
            decided = symbols.decided()
            symbols.conditions |= {("fixed", name): c for name, c in fixed.items()}
            more = {a.name: fixed_at(a, why, model, point)
                    for tensor, why in (decided | symbols.pinned()).items()
                    for a in sizes_behind(t, tensor)}  # fmt: skip
            if more.keys() <= fixed.keys():
                return t, symbols
        fixed = {**more, **fixed}


def fixed_at(atom: Atom, reader: str, model: Model, point: Mapping[str, Any]) -> Condition:
    """The condition that a number, and for an entry its whole tensor, is as at the point."""
    if atom.free:
        return Condition("size", describe_size(model, point, atom), reader)
    if atom.is_entry:
        return Condition("numbers", atom.tensor, reader)
    return relation_to_zero(SymInt({(atom,): 1, (): -atom.at}), "==", True, reader)


def sizes_behind(t: Trace, tensor: str) -> set[Atom]:
    """The free sizes that a tensor is computed from, if it depends on nothing else."""
    value = t.values.get(tensor)
    if value is None or tensor in moved(t):
        return set()
    nodes, _ = reachable(t.recorder, [value])
    read = (node.inputs[0] for node in nodes if node.op_type in ("Shape", "Size"))
    sizes: list[Any] = [n for x in read if x is not None for n in shape_of(x)]
    return {a for n in sizes if isinstance(n, SymInt) for a in n.roots() if a.free}


def moved(t: Trace) -> set[str]:
    """The tensors that depend on the numbers of the inputs."""
    return moving(t.behind, [str(value.name) for value in t.inputs])


def describe_size(model: Model, point: Mapping[str, Any], atom: Atom) -> str:
    """A fixed size in words."""
    size, sizes = atom.name, free_sizes(model.inputs)
    owners = [(name, axis) for name, axes in sizes.items() for axis, s in axes.items() if s == size]
    if not owners:
        return f"the number {size!r} of tangents is fixed at {atom.at}"
    inputs = ", ".join(repr(name) for name, _ in owners)
    name, axis = owners[0]
    text = f"the dimension {size!r} of {inputs}"
    if size == f"{name}.shape[{axis}]":
        text = f"axis {axis} of {inputs}"
    return f"{text} is fixed at {point[name].shape[axis]}"


def hold(t: Trace, pinned: Mapping[str, str]) -> dict[str, str]:
    """Make pinned tensors of a graph constants: their names, and why.

    Inputs that nothing reads any more are removed. Tensors that are differentiated cannot become
    constants, nor can computed floating-point tensors.
    """
    moves = moved(t)
    found = {n: why for n, why in pinned.items() if n in moves}
    before = values_read(t)
    for name in found:
        fill(t, name)
    after, computed = values_read(t), steps_needed(t.behind, found)[1]
    gone = {str(v.name): v for v in t.inputs if found and v not in after and v not in t.wrt
            and (v in before or v.name in computed)}  # fmt: skip
    t.inputs = [value for value in t.inputs if value.name not in gone]
    why = ", ".join(dict.fromkeys(found.values()))
    parted = {n: f"no input any more: {found.get(n, why)}" for n in gone}
    return {**parted, **{n: why for n, why in found.items() if n not in gone}}


def fill(t: Trace, name: str) -> None:
    """Replace a tensor of a graph by a constant, unless differentiated or a computed float."""
    value, number = t.values.get(name), t.numbers.get(name)
    if value is None or value in t.wrt or value.const_value is not None:
        return
    if value.producer() is not None and is_float(getattr(number, "dtype", np.dtype(object))):
        return
    constant = t.recorder.initializer(np.asarray(number))
    for node in every(t.recorder.nodes):
        for k, operand in enumerate(node.inputs):
            if operand is value:
                node.replace_input_with(k, constant)


def values_read(t: Trace) -> set[ir.Value]:
    """The values that the outputs and the `wrt` tensors of a graph need."""
    results = [*(t.recorder.value(array) for array in t.outputs.values()), *t.wrt]
    return set(reachable(t.recorder, [v for v in results if v is not None])[1])
