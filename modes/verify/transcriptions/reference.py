"""Operators that ONNX's reference implementation computes on arrays of any objects."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from . import transcription

REFERENCE = (
    "BatchNormalization", "Compress", "Concat", "DepthToSpace", "Expand", "Flatten",
    "GatherND", "Identity", "InstanceNormalization", "OneHot", "Reshape", "ScatterElements",
    "Shape", "Slice", "SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose", "Trilu",
    "Unsqueeze", "Where",
)  # fmt: skip
"""Operators that move entries, or add and multiply them."""


def refer(op_type: str) -> None:
    """Enter ONNX's reference implementation of an operator, in its newest version."""

    def apply(*inputs: Any, outputs: int = 1, **attrs: Any) -> Any:
        names = ["" if x is None else f"x{k}" for k, x in enumerate(inputs)]
        given = {name: x for name, x in attrs.items() if x not in (None, ())}
        node = onnx.helper.make_node(op_type, names, [f"y{k}" for k in range(outputs)], **given)
        run = ReferenceEvaluator(node, opsets={"": onnx.defs.onnx_opset_version()}).run
        arrays = (np.asarray(x) if isinstance(x, tuple | int) else x for x in inputs)
        made = *run(None, {n: x for n, x in zip(names, arrays, strict=True) if n}),
        return made[0] if outputs == 1 else made

    transcription(op_type)(apply)


for _name in REFERENCE:
    refer(_name)
