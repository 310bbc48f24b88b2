"""Layers: weights that an exporter of PyTorch stored transposed, under the names of the module.

The exporter folds the transpose of a linear layer's weight into a constant such as `val_3` or
`onnx::MatMul_16`. Such a constant gets the weight's name back where the file identifies the weight:
by the call that the exporter notes beside a node, or by the bias that is added to the product.
"""

from __future__ import annotations

import re

import numpy as np
import onnx_ir as ir

from ....jacobians.errors import warn
from ....jacobians.text import joined

SIGNATURE = "pkg.torch.export.ExportedProgram.graph_signature"
CALL, RULE = "pkg.torch.onnx.fx_node", "pkg.onnxscript.rewriter.rule_name"

PARAMETER = re.compile(r"^(\w+): PARAMETER target='(.+)'$", re.M)
LINEAR = re.compile(r"aten\.linear\.default\]\(args = \(%\w+, %(\w+)")
VALUE, NUMBERED = re.compile(r"%(\w+)"), re.compile(r"_\d+$")
TRACED = re.compile(r"onnx::MatMul_\d+")


def name_layers(model: ir.Model) -> None:
    """Name the weights of linear layers; warn of parameters that are gone, merged or folded."""
    graph = model.graph
    listed = dict(PARAMETER.findall(graph.metadata_props.get(SIGNATURE, "")))
    for node in list(graph):
        weight = node.inputs[1] if node.op_type == "MatMul" and len(node.inputs) == 2 else None
        if weight is None or weight.name not in graph.initializers or node.domain:
            continue
        call = LINEAR.search(node.metadata_props.get(CALL, ""))
        name = listed.get(call[1]) if call else traced(graph, node, weight)
        if name and name != weight.name:
            turn(graph, weight, name)
    holders, folded = mixed(graph, listed)
    if gone := [name for name in listed.values() if name not in graph.initializers]:
        found = ", ".join(n.metadata_props[RULE] for n in graph if RULE in n.metadata_props)
        why = f" by {', '.join(sorted(set(found.split(', '))))}" if found else ""
        into = f" So the derivatives by {shown(holders)} are not the module's." if holders else ""
        warn(f"{len(gone)} of {len(listed)} parameters of the module are not in the file: "
             f"{shown(gone)}. No output depends on them, they have another name too, or the "
             f"exporter merged or folded them{why}.{into} {ADVICE}")  # fmt: skip
    if folded:
        warn("derivatives by parameters may miss what the exporter folded into constants: "
             f"{shown(folded)}. {ADVICE}")  # fmt: skip


ADVICE = "torch.onnx.export(..., optimize=False) neither merges nor folds."


def shown(names: list[str]) -> str:
    return joined(names, ", ", width=200)


def mixed(graph: ir.Graph, listed: dict[str, str]) -> tuple[list[str], list[str]]:
    """Parameters that stand for others as well, and what is folded, of parameters in the file.

    The nodes of one call of PyTorch use all parameters that the call names; if not, the exporter
    merged a parameter that is gone into those that they use, or folded a use of one that is there.
    A constant that is itself a call, such as `linear_1`, is suspect where `linear_2` has weights.
    """
    calls: dict[str, set[str]] = {}
    for node in graph:
        if call := node.metadata_props.get(CALL):
            calls.setdefault(call, set()).update(*map(stored, node.inputs))
    holders, folded, kinds, known = set[str](), set[str](), set[str](), set(listed.values())
    for call, used in calls.items():
        named = {listed[each] for each in VALUE.findall(call) if each in listed}
        folded |= (named & graph.initializers.keys()) - used
        if not named <= graph.initializers.keys():
            holders |= (used & known) - named
        if named:
            kinds.add(NUMBERED.sub("", VALUE.findall(call)[0]))
    computed = set(VALUE.findall(" ".join(calls))) & graph.initializers.keys() - known
    folded |= {name for name in computed if NUMBERED.sub("", name) in kinds}
    return sorted(holders), sorted(folded)


def stored(value: ir.Value | None) -> set[str]:
    """The names of the initializers that a constant value is made of."""
    if value is None or value.is_initializer():
        return {str(value.name)} if value else set()
    node = value.producer()
    parts = list(map(stored, node.inputs)) if node else []
    return set().union(*parts) if all(parts) else set()


def traced(graph: ir.Graph, node: ir.Node, weight: ir.Value) -> str | None:
    """`fc.weight`, for a constant of the tracing exporter: its transpose, or `fc.bias` is added."""
    if not TRACED.fullmatch(str(weight.name)) or weight.const_value is None:
        return None
    turned = weight.const_value.numpy().T
    for name, value in graph.initializers.items():
        held = value.const_value
        if held and tuple(held.shape) == turned.shape and np.array_equal(held.numpy(), turned):
            return name
    used = list(node.outputs[0].uses())
    if len(used) != 1 or used[0].node.op_type != "Add":
        return None
    names = [str(value.name) for value in used[0].node.inputs if value and value.const_value]
    return re.sub(r"\.bias$", ".weight", names[0]) if names and names[0].endswith(".bias") else None


def turn(graph: ir.Graph, old: ir.Value, name: str) -> None:
    """Replace an initializer by the transpose of the named one, which is new if there is none."""
    tensor = old.const_value
    if tensor is None or len(tensor.shape) != 2:
        return
    array, weight = tensor.numpy().T, graph.initializers.get(name)
    if weight is None:
        held = ir.Tensor(array, dtype=tensor.dtype, name=name)
        weight = ir.Value(name=name, const_value=held, shape=ir.Shape(array.shape), type=old.type)
        graph.register_initializer(weight)
    elif weight.const_value is None or not np.array_equal(weight.const_value.numpy(), array):
        return
    turned = ir.Value(name=old.name, shape=old.shape, type=old.type)
    made = ir.node("Transpose", [weight], attributes={"perm": [1, 0]}, outputs=[turned])
    graph.initializers.pop(str(old.name))
    ir.convenience.replace_all_uses_with(old, turned)
    graph.insert_before(graph[0], made)
