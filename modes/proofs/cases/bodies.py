"""Operators that ONNX defines by others: the chain rule over their bodies."""

import numpy as np

from .table import case

case("Attention", (1, 1, 2, 1), (1, 1, 2, 1), (1, 1, 2, 1), (2, 2))
case("RotaryEmbedding", (1, 1, 2, 4), (2, 2), (2, 2), np.array([[0, 1]]))
case("SwiGLU", (1, 2), (1, 2))
case("CausalConvWithState", (1, 1, 2), (1, 1, 2), (1,), (1, 1, 1), outputs=2)
case(
    "LinearAttention", (1, 2, 1), (1, 2, 1), (1, 2, 1), (1, 1, 1, 1), outputs=2,
    q_num_heads=1, kv_num_heads=1, update_rule="linear",
)  # fmt: skip
case("ai.onnx.preview::FlexAttention", (1, 1, 2, 1), (1, 1, 2, 1), (1, 1, 2, 1))
case(
    "Attention", (1, 1, 1, 1), (1, 1, 1, 1), (1, 1, 1, 1), None, (1, 1, 1, 1), (1, 1, 1, 1),
    outputs=4,
)  # fmt: skip
case(
    "LinearAttention", (1, 2, 1), (1, 2, 1), (1, 2, 1), (1, 1, 1, 1), (1, 2, 1), (1, 2, 1),
    outputs=2, q_num_heads=1, kv_num_heads=1, update_rule="gated_delta",
)  # fmt: skip
