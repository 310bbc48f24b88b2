"""ONNX Runtime's own operators, `com.microsoft`."""

import numpy as np

from .table import case, ints, numbers

MS = "com.microsoft::"
SIDES = numbers(1.25, -0.75)

case(MS + "Gelu", SIDES)
case(MS + "FastGelu", SIDES)
case(MS + "BiasGelu", (2, 2), (2,))
case(MS + "FastGelu", (2, 2), (2,))
case(MS + "QuickGelu", SIDES)
case(MS + "QuickGelu", SIDES, alpha=1.5)

case(MS + "FusedMatMul", (2, 3), (3, 1))
case(MS + "FusedMatMul", (2, 2), (1, 2), transA=1, transB=1, alpha=0.5)
case(MS + "FusedMatMul", (2, 1, 2), (1, 2, 2), transBatchA=1)
case(MS + "FusedMatMul", (1, 2, 2), (2, 1, 2), transBatchB=1, transB=1)
case(MS + "FusedGemm", (2, 2), (2, 2), (2,), transA=1, alpha=0.5)
case(MS + "FusedGemm", (1, 2), (2, 2), (2,), activation="LeakyRelu", activation_alpha=0.25)
case(MS + "FusedConv", (1, 1, 2, 3), (2, 1, 1, 2), (2,), activation="Relu")
case(MS + "FusedConv", (1, 1, 1, 3), (1, 1, 1, 2), (1,), (1, 1, 1, 2), activation="Clip",
     activation_params=[-0.5, 2.0])  # fmt: skip

NEAR = {"epsilon": 0.125}
case(MS + "SkipLayerNormalization", (1, 1, 2), (1, 1, 2), (2,), (2,), (2,), second=False,
     **NEAR)  # fmt: skip
case(MS + "SkipLayerNormalization", (1, 2, 2), (1, 2, 2), (2,), outputs=4, of=(0, 3), **NEAR)
case(MS + "SkipSimplifiedLayerNormalization", (1, 1, 2), (1, 1, 2), (2,), (2,), **NEAR)
case(MS + "SimplifiedLayerNormalization", (2, 2), (2,), **NEAR)
case(MS + "SimplifiedLayerNormalization", (1, 2, 1), (2, 1), axis=1, **NEAR)

TURN = ((2, 1), (2, 1))
case(MS + "RotaryEmbedding", (1, 2, 2), ints(0), *TURN)
case(MS + "RotaryEmbedding", (1, 1, 2, 2), ints([1, 0]), *TURN, interleaved=1)
case(MS + "RotaryEmbedding", (1, 1, 6), ints([1]), *TURN, rotary_embedding_dim=2, num_heads=2)

FEW = {"num_heads": 2, "second": False}
case(MS + "MultiHeadAttention", (1, 1, 2), (1, 2, 2), (1, 2, 2), (6,), **FEW)
case(MS + "MultiHeadAttention", (1, 1, 1), (1, 2, 1), (1, 2, 1), None,
     np.array([[1, 0]], np.int32), (1, 1, 1, 2), num_heads=1, scale=0.5)  # fmt: skip
case(MS + "MultiHeadAttention", (1, 2, 1), (1, 2, 1), (1, 2, 1), num_heads=1, unidirectional=1,
     second=False)  # fmt: skip
case(MS + "MultiHeadAttention", (1, 1, 1), (1, 1, 1), (1, 1, 1), None, None, None, (1, 1, 1, 1),
     (1, 1, 1, 1), num_heads=1, outputs=3, second=False)  # fmt: skip

LENGTHS = {n: (np.array([n - 1], np.int32), np.array(n, np.int32)) for n in (2, 3)}
GROUP = {"num_heads": 2, "kv_num_heads": 1}
case(MS + "GroupQueryAttention", (1, 2, 2), (1, 2, 1), (1, 2, 1), None, None, *LENGTHS[2], **GROUP)
case(MS + "GroupQueryAttention", (1, 1, 2), (1, 1, 1), (1, 1, 1), (1, 1, 2, 1), (1, 1, 2, 1),
     *LENGTHS[3], outputs=3, **GROUP)  # fmt: skip
case(MS + "GroupQueryAttention", (1, 2, 2), (1, 2, 2), (1, 2, 2), None, None, *LENGTHS[2],
     *TURN, num_heads=1, kv_num_heads=1, do_rotary=1, second=False)  # fmt: skip
case(MS + "GroupQueryAttention", (1, 2, 1), (1, 2, 1), (1, 2, 1), None, None, *LENGTHS[2],
     num_heads=1, kv_num_heads=1, softcap=2.0, local_window_size=1)  # fmt: skip
