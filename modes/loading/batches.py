"""Scan of opset 8 had a batch axis, which ONNX's version converter drops from every tensor."""

from __future__ import annotations

import onnx
from onnx.helper import make_graph, make_node

from .protos import graphs


def restore_batches(model: onnx.ModelProto, old: onnx.ModelProto) -> None:
    """Give the tensors their shapes back, and scan over the batch outside of each old Scan."""
    shapes = {value.name: value.type for value in (*old.graph.input, *old.graph.output)}
    for value in (*model.graph.input, *model.graph.output):
        if value.name in shapes:
            value.type.CopyFrom(shapes[value.name])
    for graph in list(graphs(model.graph)):
        del graph.value_info[:]
        for node in graph.node:
            if node.op_type == "Scan" and not node.domain:
                node.CopyFrom(over_batch(node))


def over_batch(node: onnx.NodeProto) -> onnx.NodeProto:
    """A Scan along the first axis of everything, with the given Scan as its body."""
    inner = onnx.NodeProto()
    inner.CopyFrom(node)
    for names, part in ((inner.input, "row"), (inner.output, "result")):
        renamed = [f"{node.output[0]}_{part}_{k}" for k in range(len(names))]
        names[:] = renamed
    inputs, outputs = ([onnx.ValueInfoProto(name=n) for n in names]
                       for names in (inner.input, inner.output))  # fmt: skip
    body = make_graph([inner], f"{node.output[0]}_sample", inputs, outputs)
    return make_node(
        "Scan", node.input, node.output, name=node.name, body=body, num_scan_inputs=len(node.input)
    )
