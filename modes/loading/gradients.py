"""Gradient nodes in functions: the tensors they name stay the same while functions are written out.

`xs`, `zs` and `y` are strings, which ONNX's inliner does not rename as it does the tensors of a
body. On the way through it they are inputs of a node of our own.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx
from onnx import helper

from ...ops.node import TRAINING
from .protos import graphs, nodes

NAMED = "onnxjac.gradient"
"""The domain of what stands for Gradient; none of it is in a loaded model."""


def name_by_inputs(model: onnx.ModelProto) -> None:
    """In every function, Gradient gets the tensors that it names as further inputs, no strings.

    A parameter is named under an alias: two of them may be given the same tensor, or one that
    depends on the other, and are independent in the function all the same.
    """
    found = False
    for function in model.functions:
        inner = [node for node in body(function) if is_gradient(node)]
        for node in inner:
            names = listed(node)
            sizes = [len(node.input), len(names["xs"]), len(names["zs"])]
            node.input.extend(name for part in names.values() for name in part)
            del node.attribute[:]
            node.domain = NAMED
            node.attribute.append(helper.make_attribute("sizes", sizes))
        if inner:
            found = True
            function.opset_import.append(helper.make_opsetid(NAMED, 1))
            alias_parameters(function, inner)
    if found:
        model.opset_import.append(helper.make_opsetid(NAMED, 1))


def name_by_strings(model: onnx.ModelProto) -> None:
    """Gradient again, wherever a function was written out, with the names that its tensors have."""
    for node in nodes(model):
        if node.domain != NAMED:
            continue
        given, xs, _ = node.attribute[0].ints
        operands = list(node.input)
        named = {"xs": operands[given : given + xs], "zs": operands[given + xs : -1]}
        del node.input[given:], node.attribute[:]
        node.domain = TRAINING
        parts = {**{key: part for key, part in named.items() if part}, "y": operands[-1]}
        node.attribute.extend(helper.make_attribute(*pair) for pair in parts.items())
    kept = [entry for entry in model.opset_import if entry.domain != NAMED]
    missing = not any(entry.domain == TRAINING for entry in kept)
    if len(kept) < len(model.opset_import):
        del model.opset_import[:]
        model.opset_import.extend(kept)
        if missing:
            model.opset_import.append(helper.make_opsetid(TRAINING, 1))


def is_gradient(node: onnx.NodeProto) -> bool:
    """Whether a node is a Gradient whose names are its own, not attributes of its function."""
    named = node.domain == TRAINING and node.op_type == "Gradient"
    return named and not any(attribute.ref_attr_name for attribute in node.attribute)


def listed(node: onnx.NodeProto) -> dict[str, list[str]]:
    """The names of a Gradient's tensors."""
    found: dict[str, list[str]] = {"xs": [], "zs": [], "y": [""]}
    for attribute in node.attribute:
        value = helper.get_attribute_value(attribute)
        strings = value if isinstance(value, list) else [value]
        found[attribute.name] = [text.decode() for text in strings]
    return found


def alias_parameters(function: onnx.FunctionProto, gradients: list[onnx.NodeProto]) -> None:
    """The parameters that some Gradient names, each once more under a name of its own."""
    named = {name for node in gradients for name in node.input}
    taken = {name for node in body(function) for name in (*node.input, *node.output)}
    taken.update(function.input)
    alias = {}
    for name in function.input:
        if name in named:
            alias[name] = f"{name}_parameter"
            while alias[name] in taken:
                alias[name] += "_"
    for node in body(function):
        for k, name in enumerate(node.input):
            node.input[k] = alias.get(name, name)
    copies = [helper.make_node("Identity", [name], [new]) for name, new in alias.items()]
    rest = list(function.node)
    del function.node[:]
    function.node.extend([*copies, *rest])
    if copies and not any(entry.domain in ("", "ai.onnx") for entry in function.opset_import):
        function.opset_import.append(helper.make_opsetid("", 21))


def body(function: onnx.FunctionProto) -> Iterator[onnx.NodeProto]:
    """Every node of a function and of its subgraphs."""
    for node in function.node:
        yield node
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                for graph in graphs(inner):
                    yield from graph.node
