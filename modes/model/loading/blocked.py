"""Blocked: models that ONNX Runtime optimized for a processor, with channels in blocks of 8 or 16.

At its highest level ONNX Runtime writes operators of its own for tensors in which the entries of a
block of channels lie side by side, with weights in that order and zeros to fill the last block.
They mean what ONNX's operators mean without blocks. The file does not say the size of a block:
ONNX Runtime takes what suits the processor on which it runs, and so does this module.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from ....jacobians.errors import LoadError
from ..primal.engines.onnxruntime import installed
from ..primal.engines.sessions import runtime
from .bodies import LEGACY

BLOCKED, MICROSOFT = "com.microsoft.nchwc", "com.microsoft"

PLAIN = {
    "Conv": ("FusedConv", MICROSOFT),
    **{name: (name, LEGACY) for name in ("ReorderInput", "ReorderOutput", "Upsample")},
}
"""Operators with blocks -> name and domain without; the others have the same name in ONNX."""


def unblocked(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model by operators without blocks, with weights in ONNX's order.

    Raises `LoadError` where ONNX Runtime, which knows the size of a block, is not installed.
    """
    if not any(node.domain == BLOCKED for node in model.graph.node):
        return model
    made = onnx.ModelProto()
    made.CopyFrom(model)
    kernels = {node.input[1] for node in made.graph.node
               if (node.domain, node.op_type) == (BLOCKED, "Conv")}  # fmt: skip
    nodes = [made for node in model.graph.node for made in plain(node)]
    del made.graph.node[:], made.graph.value_info[:]
    made.graph.node.extend(nodes)
    for tensor in made.graph.initializer:
        if tensor.name in kernels:
            by_channel = in_order(numpy_helper.to_array(tensor), block_size())
            tensor.CopyFrom(numpy_helper.from_array(by_channel, tensor.name))
    imported = {opset.domain for opset in made.opset_import}
    made.opset_import.extend(helper.make_opsetid(d, 1) for d in {LEGACY, MICROSOFT} - imported)
    return made


def plain(node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
    """The nodes without blocks that do what one node does."""
    if node.domain != BLOCKED:
        yield node
        return
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    turned = attributes.pop("channels_last", 0)
    source, target, between = [*node.input], [*node.output], [f"{node.output[0]}_turned"]
    match node.op_type:
        case "ReorderInput":
            attributes["size"] = [block_size()]
            if turned:
                yield helper.make_node("Transpose", source, between, perm=(0, 3, 1, 2))
                source = between
        case "ReorderOutput":
            attributes["channels"] = [attributes["channels"]]
            target = between if turned else target
        case "Upsample":
            attributes["scales"] = [*map(float, attributes["scales"])]
    op_type, domain = PLAIN.get(node.op_type, (node.op_type, ""))
    yield helper.make_node(op_type, source, target, node.name, domain=domain, **attributes)
    if target is between:
        yield helper.make_node("Transpose", between, node.output, perm=(0, 2, 3, 1))


def in_order(kernel: np.ndarray, size: int) -> np.ndarray:
    """A kernel whose blocks of output channels are its fastest axis, and of input channels the next
    one, unless there are fewer of them than a block.
    """
    outer, inner, *space = kernel.shape
    within = size if inner >= size else 1
    blocks = kernel.reshape(outer // size, inner // within, *space, within, size)
    last = blocks.ndim - 1
    return blocks.transpose(0, last, 1, last - 1, *range(2, last - 1)).reshape(kernel.shape)


@cache
def block_size() -> int:
    """How many channels this processor has in a block: ONNX Runtime fills one channel up to it."""
    if not installed():
        raise LoadError(
            "the model has channels in blocks, which ONNX Runtime chose for a processor: install "
            "ONNX Runtime (`pip install 'onnxjac[runtime]'`), or take the model as it was before."
        )
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in "xy")
    node = helper.make_node("ReorderInput", ["x"], ["y"], domain=BLOCKED)
    imports = [helper.make_opsetid("", 13), helper.make_opsetid(BLOCKED, 1)]
    model = helper.make_model(helper.make_graph([node], "g", [x], [y]), opset_imports=imports,
                              ir_version=8)  # fmt: skip
    session = runtime().InferenceSession(model.SerializeToString())
    (filled,) = session.run(None, {"x": np.zeros((1, 4, 1, 1), np.float32)})
    return int(filled.shape[1])
