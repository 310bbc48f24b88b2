"""Structural mutations: each changes a model in place, or leaves it unchanged."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import onnx
from onnx import TensorProto, helper

from .tree import graphs, messages, names, nodes, of_type

Mutation = Callable[[Random, onnx.ModelProto], None]

SIZES = (0, 1, -1, 2, 7, 64, 2**15, 2**20, 2**31 - 1, 2**31, 2**40, 2**62, 2**63 - 1, -(2**63))
"""Sizes, counts, axes and offsets that code may fail to handle."""

NUMBERS = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-45, 1e30, 3e38, float("inf"), float("-inf"), float("nan"))

TEXTS = ("", "x", "NOTSET", "SAME_UPPER", "linear", "..", "a" * 300, "\x00", "é→", "%s%n", "ij->",
         "...", "a,b->ab")  # fmt: skip

STRUCTURAL: list[Mutation] = []


def structural(mutation: Mutation) -> Mutation:
    """Register a mutation."""
    STRUCTURAL.append(mutation)
    return mutation


def any_field(rng: Random, model: onnx.ModelProto) -> None:
    """Change a random field: another value, or entries removed, repeated, changed or reordered."""
    message = rng.choice([part for part in messages(model) if part.ListFields()])
    field, value = rng.choice(message.ListFields())
    if field.is_repeated:
        repeated(rng, value, field)
    elif field.message_type is not None:
        replaced(rng, model, value)
    elif rng.random() < 0.15:
        message.ClearField(field.name)
    else:
        set_to(message, field.name, other(rng, value, names(model)))


def repeated(rng: Random, values: Any, field: Any) -> None:
    """Remove, repeat, change or move one entry."""
    index, action = rng.randrange(len(values)), rng.randrange(4)
    if action == 0:
        del values[index]
    elif action == 1:
        values.append(values[index])
    elif action == 2 and field.message_type is None:
        try:
            values[index] = other(rng, values[index], list(TEXTS))
        except (ValueError, TypeError):
            del values[index]
    else:
        kept = list(values)
        rng.shuffle(kept)
        del values[:]
        values.extend(kept)


def replaced(rng: Random, model: onnx.ModelProto, message: Any) -> None:
    """Replace a message by another one of its type."""
    made = type(message).FromString(rng.choice(of_type(model, type(message))).SerializeToString())
    message.CopyFrom(made)


def other(rng: Random, value: Any, known: list[str]) -> Any:
    """Another value of the same type."""
    if isinstance(value, bool | int):
        return rng.choice((*SIZES, value + 1, value - 1, -value, rng.randrange(30)))
    if isinstance(value, float):
        return rng.choice((*NUMBERS, -value, 2 * value))
    if isinstance(value, bytes):
        return rng.choice((b"", value[:-1], 2 * value, rng.randbytes(len(value)), b"\xff\xfe"))
    return rng.choice((*TEXTS, *known))


def set_to(message: Any, name: str, value: Any) -> None:
    """Set the field; clear it if it does not accept the value."""
    try:
        setattr(message, name, value)
    except (ValueError, TypeError):
        message.ClearField(name)


@structural
def absurd_dims(rng: Random, model: onnx.ModelProto) -> None:
    """Negative and huge sizes of inputs, outputs and intermediate values."""
    if dims := of_type(model, onnx.TensorShapeProto.Dimension):
        rng.choice(dims).dim_value = rng.choice(SIZES)


@structural
def absurd_tensor(rng: Random, model: onnx.ModelProto) -> None:
    """Dims or a dtype of a tensor that do not fit its data."""
    if tensors := of_type(model, TensorProto):
        tensor = rng.choice(tensors)
        if rng.random() < 0.3:
            tensor.data_type = rng.randrange(-1, 30)
        elif tensor.dims and rng.random() < 0.7:
            tensor.dims[rng.randrange(len(tensor.dims))] = rng.choice(SIZES)
        else:
            tensor.dims.append(rng.choice(SIZES))


@structural
def absurd_numbers(rng: Random, model: onnx.ModelProto) -> None:
    """Huge entries of an integer tensor, which may be a shape: a bomb in a few bytes."""
    tensors = [t for t in of_type(model, TensorProto)
               if t.data_type == TensorProto.INT64 and not t.external_data]  # fmt: skip
    if tensors:
        tensor = rng.choice(tensors)
        array = onnx.numpy_helper.to_array(tensor).copy()
        if array.size:
            array.flat[rng.randrange(array.size)] = rng.choice(SIZES)
            tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))


@structural
def absurd_attribute(rng: Random, model: onnx.ModelProto) -> None:
    """An attribute of the right type, with a value out of range."""
    attributes = [a for n in nodes(model) for a in n.attribute]
    for attribute in rng.sample(attributes, min(1, len(attributes))):
        for name in ("i", "f", "s"):
            if attribute.HasField(name):
                set_to(attribute, name, other(rng, getattr(attribute, name), []))
        for values in (attribute.ints, attribute.floats):
            if values:
                values[rng.randrange(len(values))] = other(rng, values[0], [])


@structural
def new_attribute(rng: Random, model: onnx.ModelProto) -> None:
    """An attribute that the operator has, set to something of any type."""
    if not nodes(model):
        return
    node = rng.choice(nodes(model))
    known = []
    if onnx.defs.has(node.op_type, node.domain):
        known = sorted(onnx.defs.get_schema(node.op_type, node.domain).attributes)
    values = (rng.choice(SIZES), [rng.choice(SIZES) for _ in range(rng.randrange(5))], 0.5, "x", [],
              helper.make_tensor("t", 7, [1], [3]))  # fmt: skip
    name, value = rng.choice([*known, "nonsense"]), rng.choice(values)
    for old in [a for a in node.attribute if a.name == name]:
        node.attribute.remove(old)
    kind = onnx.AttributeProto.INTS if value == [] else None
    node.attribute.append(helper.make_attribute(name, value, attr_type=kind))


@structural
def attribute_type(rng: Random, model: onnx.ModelProto) -> None:
    """An attribute with a wrong type tag."""
    if attributes := of_type(model, onnx.AttributeProto):
        rng.choice(attributes).type = rng.randrange(15)


@structural
def cycle(rng: Random, model: onnx.ModelProto) -> None:
    """An edge from a random node to another, which may close a cycle."""
    able = [n for n in nodes(model) if n.input and n.output]
    if able:
        node, later = rng.choice(able), rng.choice(able)
        node.input[rng.randrange(len(node.input))] = later.output[0]


@structural
def dangling(rng: Random, model: onnx.ModelProto) -> None:
    """An input with a name that no node produces, or with another tensor's name."""
    if able := [n for n in nodes(model) if n.input]:
        node = rng.choice(able)
        node.input[rng.randrange(len(node.input))] = rng.choice(["nothing", "", *names(model)])


@structural
def made_twice(rng: Random, model: onnx.ModelProto) -> None:
    """Two outputs, or an output and an input, of one name."""
    if able := [n for n in nodes(model) if n.output]:
        node = rng.choice(able)
        node.output[rng.randrange(len(node.output))] = rng.choice(names(model))


@structural
def operands(rng: Random, model: onnx.ModelProto) -> None:
    """Add or remove an input or output of a node."""
    if able := nodes(model):
        node = rng.choice(able)
        side = rng.choice((node.input, node.output))
        if side and rng.random() < 0.5:
            del side[-1]
        else:
            side.append(rng.choice(["", *names(model)]))


@structural
def operator(rng: Random, model: onnx.ModelProto) -> None:
    """Another operator on the same tensors."""
    if able := nodes(model):
        rng.choice(able).op_type = rng.choice(OPERATORS)


OPERATORS = sorted({s.name for s in onnx.defs.get_all_schemas()})


@structural
def chained(rng: Random, model: onnx.ModelProto) -> None:
    """One more operator, after an output."""
    graph = rng.choice(graphs(model) or [model.graph])
    if graph.node and graph.output and graph.node[-1].output:
        last = graph.node[-1].output[0]
        made = [rng.choice((last, *names(model))) for _ in range(rng.randrange(1, 4))]
        graph.node.append(helper.make_node(rng.choice(OPERATORS), made, [f"{last}_more"]))
        graph.output[0].name = f"{last}_more"
        graph.output[0].type.tensor_type.ClearField("shape")


@structural
def opset(rng: Random, model: onnx.ModelProto) -> None:
    """Another opset version."""
    if model.opset_import:
        rng.choice(model.opset_import).version = rng.choice((*range(1, 30), *SIZES))


@structural
def two_changes(rng: Random, model: onnx.ModelProto) -> None:
    """Two to four random fields at once."""
    for _ in range(rng.randrange(2, 5)):
        any_field(rng, model)
