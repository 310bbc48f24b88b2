"""Layers: weights that an exporter of PyTorch stored transposed, under the names of the module.

The exporter folds the transpose of a linear layer's weight into a constant such as `val_3` or
`onnx::MatMul_16`. Such a constant gets the weight's name back where the file identifies the weight:
by the call that the exporter notes beside a node, or by the bias that is added to the product.
"""

from __future__ import annotations

import re

import onnx_ir as ir

from ....jacobians.errors import warn
from ....jacobians.text import joined

SIGNATURE = "pkg.torch.export.ExportedProgram.graph_signature"
CALL, RULE = "pkg.torch.onnx.fx_node", "pkg.onnxscript.rewriter.rule_name"

PARAMETER = re.compile(r"^(\w+): PARAMETER target='(.+)'$", re.M)
LINEAR = re.compile(r"aten\.linear\.default\]\(args = \(%\w+, %(\w+)")
TRACED = re.compile(r"onnx::MatMul_\d+")


def name_layers(model: ir.Model) -> None:
    """Name the weights of linear layers, and warn of parameters that the file no longer has."""
    graph = model.graph
    listed = dict(PARAMETER.findall(graph.metadata_props.get(SIGNATURE, "")))
    for node in list(graph):
        weight = node.inputs[1] if node.op_type == "MatMul" and len(node.inputs) == 2 else None
        if weight is None or weight.name not in graph.initializers or node.domain:
            continue
        call = LINEAR.search(node.metadata_props.get(CALL, ""))
        name = listed.get(call[1]) if call else by_bias(node, str(weight.name))
        if name and name not in graph.initializers:
            turn(graph, weight, name)
    gone = [name for name in listed.values() if name not in graph.initializers]
    if gone:
        rules = {n.metadata_props.get(RULE) for n in graph} - {None}
        why = f", by {', '.join(sorted(map(str, rules)))}" if rules else ""
        warn(f"{len(gone)} of {len(listed)} parameters of the module are not in the file: "
             f"{joined(gone, ', ', width=200)}. No output depends on them, or the exporter merged "
             f"or folded them{why}: torch.onnx.export(..., optimize=False) does not")  # fmt: skip


def by_bias(node: ir.Node, weight: str) -> str | None:
    """`fc.weight`, for a constant of the tracing exporter whose product `fc.bias` is added to."""
    used = list(node.outputs[0].uses()) if TRACED.fullmatch(weight) else []
    if len(used) != 1 or used[0].node.op_type != "Add":
        return None
    names = [str(value.name) for value in used[0].node.inputs if value and value.const_value]
    return re.sub(r"\.bias$", ".weight", names[0]) if names and names[0].endswith(".bias") else None


def turn(graph: ir.Graph, old: ir.Value, name: str) -> None:
    """Replace an initializer by the transpose of a new one."""
    tensor = old.const_value
    if tensor is None or len(tensor.shape) != 2:
        return
    array = tensor.numpy().T
    held = ir.Tensor(array, dtype=tensor.dtype, name=name)
    weight = ir.Value(name=name, const_value=held, shape=ir.Shape(array.shape), type=old.type)
    turned = ir.Value(name=old.name, shape=old.shape, type=old.type)
    made = ir.node("Transpose", [weight], attributes={"perm": [1, 0]}, outputs=[turned])
    graph.initializers.pop(str(old.name))
    ir.convenience.replace_all_uses_with(old, turned)
    graph.register_initializer(weight)
    graph.insert_before(graph[0], made)
