"""Together: several models of the same inputs as functions of one model, which calls them all."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

import onnx
from onnx import helper

MODES = "onnxjac.modes"
"""The domain of the functions, each of the name of its mode."""

FUNCTIONS = 8
"""The version of the file format that has functions."""


def as_functions(made: Mapping[str, onnx.ModelProto], shared: Container[str]) -> onnx.ModelProto:
    """(all inputs) ↦ (all outputs), from one call of a function for each model.

    The `shared` initializers are the model's, and inputs of the functions; others are constants in
    them. An output that several models have comes from the first.
    """
    first, *_ = made.values()
    inputs, outputs = dict[str, onnx.ValueInfoProto](), dict[str, onnx.ValueInfoProto]()
    weights, calls, functions = dict[str, onnx.TensorProto](), [], []
    for mode, proto in made.items():
        graph = proto.graph
        optional = {value.name for value in graph.input}
        held = [t for t in graph.initializer if t.name in shared or t.name in optional]
        weights |= {tensor.name: tensor for tensor in held}
        ends = dict.fromkeys([*(v.name for v in graph.input), *(t.name for t in held)])
        results = [value.name for value in graph.output]
        for value in graph.input:
            inputs[value.name] = narrower(value, inputs.get(value.name, value))
        functions.append(as_function(mode, proto, ends, {t.name for t in held}))
        new = [name if name not in outputs else "" for name in results]
        outputs |= {value.name: value for value in graph.output if value.name not in outputs}
        calls.append(helper.make_node(mode, [*ends], new, name=mode, domain=MODES))
    graph = helper.make_graph(
        calls, "_".join(made), [*inputs.values()], [*outputs.values()], [*weights.values()]
    )
    opsets = [*first.opset_import, helper.make_opsetid(MODES, 1)]
    version = max(first.ir_version, FUNCTIONS)
    whole = helper.make_model(graph, opset_imports=opsets, functions=functions,
                              ir_version=version, producer_name="onnxjac")  # fmt: skip
    entries = dict[str, dict[str, None]]()
    for proto in made.values():
        for entry in proto.metadata_props:
            entries.setdefault(entry.key, {}).update(dict.fromkeys(entry.value.splitlines()))
    helper.set_model_props(whole, {key: "\n".join(lines) for key, lines in entries.items()})
    return whole


def as_function(
    name: str, proto: onnx.ModelProto, inputs: Iterable[str], given: Container[str]
) -> onnx.FunctionProto:
    """The graph of a model as a function; initializers that are not given become constants."""
    graph = proto.graph
    constants = [helper.make_node("Constant", [], [tensor.name], value=tensor)
                 for tensor in graph.initializer if tensor.name not in given]  # fmt: skip
    return helper.make_function(
        MODES, name, [*inputs], [value.name for value in graph.output], [*constants, *graph.node],
        [*proto.opset_import],
    )  # fmt: skip


def narrower(value: onnx.ValueInfoProto, other: onnx.ValueInfoProto) -> onnx.ValueInfoProto:
    """The one of two descriptions of an input that fixes more sizes."""
    free = [sum(not d.HasField("dim_value") for d in v.type.tensor_type.shape.dim)
            for v in (value, other)]  # fmt: skip
    return value if free[0] < free[1] else other
