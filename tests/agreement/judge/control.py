"""Control flow, sequences and optionals."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import torch
from torch import Tensor

from .graphs import Node, NoKernel, dtype_of, integers, kernel


@kernel("If", strings=True)
def if_(node: Node, condition: Tensor) -> tuple[Any, ...]:
    branch = node["then_branch"] if bool(condition.reshape(())) else node["else_branch"]
    return tuple(node.call(branch, []))


@kernel("Loop", strings=True)
def loop(
    node: Node, trips: Tensor | None = None, condition: Tensor | None = None, *carried: Any
) -> tuple[Any, ...]:
    body, state, count, step = node["body"], list(carried), len(carried), 0
    go = condition is None or bool(condition.reshape(()))
    kept: list[list[Any]] = [[] for _ in range(len(body.output) - 1 - count)]
    while go and (trips is None or step < int(trips.reshape(()))):
        outputs = node.call(body, [torch.tensor(step), torch.tensor(go), *state])
        go, state = bool(outputs[0].reshape(())), outputs[1 : 1 + count]
        for values, y in zip(kept, outputs[1 + count :], strict=True):
            values.append(y)
        step += 1
    made = body.output[1 + count :]
    return (*state, *(stacked(values, 0, y) for values, y in zip(kept, made, strict=True)))


def stacked(values: list[Tensor], axis: int, declared: onnx.ValueInfoProto) -> Tensor:
    """The results of all iterations, stacked; without iterations, of the declared shape."""
    if values:
        return torch.stack(values, axis)
    kind = declared.type.tensor_type
    sizes = [d.dim_value for d in kind.shape.dim]
    if not kind.HasField("shape") or any(d.dim_param for d in kind.shape.dim):
        raise NoKernel("a body that is never run, with outputs of unknown shape")
    sizes.insert(axis % (len(sizes) + 1), 0)
    return torch.zeros(sizes, dtype=dtype_of(kind.elem_type))


@kernel("Scan")
def scan(node: Node, *args: Any) -> tuple[Any, ...]:
    if node.opset < 9:
        return batched_scan(node, *args)
    axes = node["scan_input_axes"] or [0] * node["num_scan_inputs"]
    return scanned(node, args, axes, node["scan_input_directions"])


def scanned(
    node: Node, args: tuple[Any, ...], axes: list[int], directions: list[int] | None
) -> tuple[Any, ...]:
    """The final states and the stacks of one scan."""
    count = len(args) - node["num_scan_inputs"]
    state, inputs = list(args[:count]), args[count:]
    reverse = directions or [0] * len(inputs)
    length = inputs[0].shape[axes[0]]
    stacks: list[list[Tensor]] = [[] for _ in range(node.outputs - count)]
    for t in range(length):
        now = [
            x.select(axis, length - 1 - t if back else t)
            for x, axis, back in zip(inputs, axes, reverse, strict=True)
        ]
        outputs = node.call(node["body"], [*state, *now])
        state = outputs[:count]
        for stack, y in zip(stacks, outputs[count:], strict=True):
            stack.append(y)
    out_axes = node["scan_output_axes"] or [0] * len(stacks)
    out_reverse = node["scan_output_directions"] or [0] * len(stacks)
    ys = [
        stacked(stack[::-1] if back else stack, axis, y)
        for stack, axis, back, y in zip(
            stacks, out_axes, out_reverse, node["body"].output[count:], strict=True
        )
    ]
    return (*state, *ys)


def batched_scan(node: Node, lengths: Tensor | None, *args: Any) -> tuple[Any, ...]:
    """Scan of opset 8: a batch of scans along axis 1."""
    if lengths is not None:
        raise NoKernel("Scan-8 with lengths")
    results = [
        scanned(node, row, [0] * node["num_scan_inputs"], node["directions"])
        for row in zip(*args, strict=True)
    ]
    return tuple(torch.stack(ys) for ys in zip(*results, strict=True))


@kernel("SequenceMap", strings=True)
def sequence_map(node: Node, first: list[Any], *others: Any) -> tuple[Any, ...]:
    rows = [
        node.call(node["body"], [x, *(o[k] if isinstance(o, list) else o for o in others)])
        for k, x in enumerate(first)
    ]
    return tuple(list(ys) for ys in zip(*rows, strict=True))


@kernel("SequenceConstruct", strings=True)
def sequence_construct(node: Node, *xs: Any) -> list[Any]:
    return list(xs)


@kernel("SequenceEmpty")
def sequence_empty(node: Node) -> list[Any]:
    return []


@kernel("SequenceAt", strings=True)
def sequence_at(node: Node, xs: list[Any], position: Tensor) -> Any:
    return xs[int(position)]


@kernel("SequenceInsert", strings=True)
def sequence_insert(
    node: Node, xs: list[Any], x: Any, position: Tensor | None = None
) -> list[Any]:
    k = len(xs) if position is None else int(position)
    k = k + len(xs) if k < 0 else k
    return [*xs[:k], x, *xs[k:]]


@kernel("SequenceErase", strings=True)
def sequence_erase(node: Node, xs: list[Any], position: Tensor | None = None) -> list[Any]:
    k = len(xs) - 1 if position is None else int(position) % len(xs)
    return [*xs[:k], *xs[k + 1 :]]


@kernel("SequenceLength", strings=True)
def sequence_length(node: Node, xs: list[Any]) -> Tensor:
    return torch.tensor(len(xs))


@kernel("SplitToSequence")
def split_to_sequence(node: Node, x: Tensor, sizes: Tensor | None = None) -> list[Tensor]:
    axis = node["axis"]
    if sizes is None:
        return list(torch.split(x, 1, axis) if node["keepdims"] else torch.unbind(x, axis))
    return list(torch.split(x, integers(sizes) if sizes.ndim else int(sizes), axis))


@kernel("ConcatFromSequence", strings=True)
def concat_from_sequence(node: Node, xs: list[Any]) -> Any:
    strings = isinstance(xs[0], np.ndarray)
    if node["new_axis"]:
        return np.stack(xs, node["axis"]) if strings else torch.stack(xs, node["axis"])
    return np.concatenate(xs, node["axis"]) if strings else torch.cat(xs, node["axis"])


@kernel("Optional", "OptionalGetElement", strings=True)
def optional(node: Node, x: Any = None) -> Any:
    return x


@kernel("OptionalHasElement", strings=True)
def optional_has_element(node: Node, x: Any = None) -> Tensor:
    return torch.tensor(x is not None)
