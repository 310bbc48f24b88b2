"""Views: arrays that NumPy makes of others, so that only these are asked of the engine.

Most are the same memory seen otherwise, which nobody holds twice.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx_ir as ir

from ...ops import numbers
from ..flow.steps import array_of, python_of

SEEN = frozenset({"Transpose", "Reshape", "Expand", "Squeeze", "Unsqueeze"})
"""Operators that NumPy executes without touching a number."""

QUICKER = frozenset({("MaxPool", 1)})
"""Outputs, by operator and index, that NumPy finds sooner: ONNX Runtime takes 4 times as long."""

Chain = tuple[ir.Value, tuple[ir.Node, ...]]


@dataclass(frozen=True)
class View:
    """The calls that show the array of `base` as an operator holds it.

    `factors` are two tensors whose product the base is, if that is not asked of the engine.
    """

    base: ir.Value
    calls: tuple[Callable[[np.ndarray], np.ndarray], ...]
    factors: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The tensors that it is seen in."""
        return self.factors or (str(self.base.name),)

    def found(self, values: Mapping[str, Any]) -> Any:
        """The array of the base."""
        array, *others = (values[name] for name in self.names)
        for other in others:
            with np.errstate(all="ignore"):  # as engines do
                array = array * other
        return array

    def shown(self, array: Any) -> Any:
        """The array of the base as the operator holds it."""
        for call in self.calls:
            array = call(array)
        return array


class Seen(Mapping[int, Any]):
    """What is seen through views, each looked through once, when somebody wants to see it."""

    def __init__(self, views: Mapping[int, View], values: Mapping[str, Any]) -> None:
        self.views, self._values = views, values
        self._bases, self._shown = dict[tuple[str, ...], Any](), dict[int, Any]()

    def __getitem__(self, key: int) -> Any:
        if key not in self._shown:
            view = self.views[key]
            if view.names not in self._bases:
                self._bases.setdefault(view.names, view.found(self._values))
            self._shown.setdefault(key, view.shown(self._bases[view.names]))
        return self._shown[key]

    def __iter__(self) -> Iterator[int]:
        return iter(self.views)

    def __len__(self) -> int:
        return len(self.views)


def view_of(value: ir.Value, is_leaf: Callable[[ir.Value], bool]) -> View:
    """How to see a value in one that must be computed."""
    base, nodes = chain(value, is_leaf)
    return View(base, tuple(map(call_of, nodes)))


def multiplied(views: Mapping[int, View], given: Container[str]) -> Mapping[int, View]:
    """The same of what is given alone, if no more than products of that are asked of the engine.

    One multiplication takes less time than the call of an engine.
    """
    made = {
        key: view if view.base.name in given else replace(view, factors=factors(view.base))
        for key, view in views.items()
    }
    at_hand = all(name in given for view in made.values() for name in view.names)
    return made if at_hand else views


def factors(base: ir.Value) -> tuple[str, ...]:
    """The tensors whose product a value is."""
    node = base.producer()
    if node is None or node.op_type != "Mul" or node.domain:
        return ()
    return tuple(str(x.name) for x in node.inputs if x is not None)


def chain(value: ir.Value, is_leaf: Callable[[ir.Value], bool]) -> Chain:
    """The value that must be computed, and the nodes from there on.

    An array whose axes were moved cannot be reshaped in place.
    """
    node = None if is_leaf(value) else value.producer()
    if node is None or not is_quick(node, value) or not fixed(node):
        return value, ()
    assert node.inputs[0] is not None
    base, nodes = chain(node.inputs[0], is_leaf)
    moved = any(before.op_type in ("Transpose", "Expand") for before in nodes)
    return (value, ()) if moved and node.op_type != "Transpose" else (base, (*nodes, node))


def is_quick(node: ir.Node, value: ir.Value) -> bool:
    """Whether NumPy is at least as quick as the engine at this output of the node."""
    quick = node.op_type in SEEN or (node.op_type, value.index()) in QUICKER
    return quick and not node.domain


def fixed(node: ir.Node) -> bool:
    """Whether all operands but the first are constants."""
    return all(x is None or x.const_value is not None for x in node.inputs[1:])


def call_of(node: ir.Node) -> Callable[[np.ndarray], np.ndarray]:
    """The node as a function of its first operand; of several outputs the last one."""
    rest = [None if x is None else array_of(x) for x in node.inputs[1:]]
    attrs = {name: python_of(attribute) for name, attribute in node.attributes.items()}
    kernel = getattr(numbers, node.op_type)
    if (count := len(node.outputs)) == 1:
        return lambda array: kernel(array, *rest, **attrs)
    return lambda array: kernel(array, *rest, **attrs, outputs=count)[-1]
