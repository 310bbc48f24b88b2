"""ONNX Runtime's own operators: its values, and derivatives against differences."""

import functools

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper

import onnxjac as oj
from check_rule import check_point
from models.one_node import declared
from onnxjac.modes.model.loading.load import load
from onnxjac.modes.model.programs.onnxruntime import EngineError
from onnxjac.modes.recording.derive import vjp_graph
from onnxjac.modes.verify.cases import CASES as PROVED
from onnxjac.ops.node import node_of
from onnxjac.ops.numbers.table import run_reference
from onnxjac.ops.registry import find
from onnxjac.ops.rules.zeros import NO_FLOATS
from sweep.page import runtime_operators

onnxruntime = pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.filterwarnings("ignore::onnxjac.OnnxJacWarning")
RNG = np.random.default_rng(11)


def N(*shape, rng=RNG):
    return rng.standard_normal(shape).astype(np.float32)


def angles(count, half):
    """cos and sin of the usual angles."""
    t = np.arange(count)[:, None] / 10.0 ** np.arange(half)
    return np.cos(t).astype(np.float32), np.sin(t).astype(np.float32)


(COS, SIN), WIDE = angles(8, 2), angles(8, 8)
LENGTHS, TOTAL = np.array([2, 1], np.int32), np.array(3, np.int32)
LENGTH = np.array([3], np.int32)
IDS = np.array([[0, 5, 2], [3, 3, 1]], np.int32)


def BYTES(*shape):
    return RNG.integers(0, 256, shape, np.uint8)


def INT8S(*shape):
    return RNG.integers(-128, 128, shape, np.int8)


def INTS(*shape):
    return RNG.integers(-999, 999, shape, np.int32)


def P(*shape):
    """Positive numbers."""
    return np.abs(N(*shape)) + np.float32(0.1)


S, U8 = np.float32, np.uint8
WORDS = np.array([[1, 4, 2, 5, 0], [3, 0, 0, 0, 0], [2, 2, 1, 5, 4]], np.int32)
ENDS = np.array([0, 2, 7], np.int32)


def Q4(rows, columns, zoned):
    """The bytes of a matrix: per column and 32 rows a scale, a zero point, 4-bit numbers."""
    blocks = BYTES(columns, -(-rows // 32), 21 if zoned else 20)
    blocks[..., :4] = P(*blocks.shape[:2], 1).view(np.uint8)
    if zoned:
        blocks[..., 4] &= 15
    return blocks.ravel()


OWN = np.random.default_rng(12)  # other numbers may lie on a jump of the operators that round
BEAMS = [N(*shape, rng=OWN) for shape in [(4, 1, 8)] * 3 + [(4, 2, 5, 4)] * 2]
NAMED = OWN.integers(0, 2, (2, 2, 5)).astype(np.int32)
CHUNK = [N(2, 3, n, rng=OWN) for n in (64, 32, 32)] + [N(2, 2, 8, 16, rng=OWN) for _ in range(2)]
FEW = np.array([2, 2], np.int32)

CASES = {
    "Gelu": ("Gelu", [N(2, 3)], {}, 1),
    "BiasGelu": ("BiasGelu", [N(2, 3), N(3)], {}, 1),
    "FastGelu": ("FastGelu", [N(2, 3)], {}, 1),
    "FastGelu with bias": ("FastGelu", [N(2, 3), N(3)], {}, 1),
    "QuickGelu": ("QuickGelu", [N(2, 3)], {"alpha": 1.5}, 1),
    "TransposeMatMul": ("TransposeMatMul", [N(3, 2), N(3, 4)], {"transA": 1, "alpha": 0.5}, 1),
    "CDist": ("CDist", [N(3, 4), N(2, 4)], {"metric": "euclidean"}, 1),
    "CDist squared": ("CDist", [N(3, 4), N(2, 4)], {"metric": "sqeuclidean"}, 1),
    "GridSample": ("GridSample", [N(1, 2, 4, 5), N(1, 3, 2, 2) / 2], {"mode": "bilinear"}, 1),
    "GridSample cubic": (
        "GridSample", [N(1, 2, 4, 5), N(1, 3, 2, 2) / 2],
        {"mode": "bicubic", "align_corners": 1, "padding_mode": "border"}, 1,
    ),
    "ExpandDims": ("ExpandDims", [N(2, 3), np.int32(-1)], {}, 1),
    "FusedMatMul": (
        "FusedMatMul",
        [N(2, 4, 3), N(2, 5, 4)],
        {"transA": 1, "transB": 1, "alpha": 0.5},
        1,
    ),
    "FusedMatMul batch": ("FusedMatMul", [N(3, 2, 4), N(2, 4, 5)], {"transBatchA": 1}, 1),
    "FusedGemm": (
        "FusedGemm",
        [N(3, 4), N(4, 5), N(5)],
        {"activation": "LeakyRelu", "activation_alpha": 0.1},
        1,
    ),
    "FusedConv": (
        "FusedConv",
        [N(1, 2, 5, 5), N(3, 2, 3, 3), N(3)],
        {"activation": "Relu", "pads": [1] * 4},
        1,
    ),
    "FusedConv with sum": (
        "FusedConv",
        [N(1, 2, 4, 4), N(3, 2, 3, 3), N(3), N(1, 3, 2, 2)],
        {"activation": "Clip", "activation_params": [-0.5, 2.0]},
        1,
    ),
    "SkipLayerNormalization": (
        "SkipLayerNormalization",
        [N(2, 3, 4), N(2, 3, 4), N(4), N(4), N(4)],
        {"epsilon": 1e-3},
        1,
    ),
    "SkipLayerNormalization and its sum": (
        "SkipLayerNormalization",
        [N(2, 3, 4), N(2, 3, 4), N(4)],
        {"epsilon": 1e-3},
        (0, 3),
    ),
    "SkipSimplifiedLayerNormalization": (
        "SkipSimplifiedLayerNormalization",
        [N(2, 3, 4), N(2, 3, 4), N(4)],
        {"epsilon": 1e-3},
        (0, 3),
    ),
    "RotaryEmbedding": ("RotaryEmbedding", [N(2, 3, 8), np.array([2]), COS, SIN], {}, 1),
    "RotaryEmbedding interleaved": (
        "RotaryEmbedding",
        [N(2, 2, 3, 4), np.array([[0, 1, 2], [3, 4, 5]]), COS, SIN],
        {"interleaved": 1},
        1,
    ),
    "RotaryEmbedding in part": (
        "RotaryEmbedding",
        [N(2, 3, 16), np.array([[0, 1, 2], [3, 4, 5]]), COS, SIN],
        {"rotary_embedding_dim": 4, "num_heads": 2},
        1,
    ),
    "MatMulNBits": (
        "MatMulNBits",
        [N(2, 40), BYTES(3, 2, 16), N(3, 2)],
        {"K": 40, "N": 3, "bits": 4, "block_size": 32},
        1,
    ),
    "MatMulNBits with zero points": (
        "MatMulNBits",
        [N(2, 3, 64), BYTES(5, 2, 16), N(5, 2), BYTES(5, 1), None, N(5)],
        {"K": 64, "N": 5, "bits": 4, "block_size": 32},
        1,
    ),
    **{
        f"MatMulNBits in groups, {zoned}": (
            "MatMulNBits",
            [N(2, 40), BYTES(3, 2, 16), N(3, 2), N(3, 2) if zoned else None,
             np.arange(40, dtype=np.int32) % 2],
            {"K": 40, "N": 3, "bits": 4, "block_size": 32},
            1,
        )
        for zoned in (False, True)
    },
    "MatMulNBits by eight bits": (
        "MatMulNBits",
        [N(2, 32), BYTES(3, 1, 32), N(3, 1)],
        {"K": 32, "N": 3, "bits": 8, "block_size": 32},
        1,
    ),
    "EmbedLayerNormalization": (
        "EmbedLayerNormalization",
        [IDS, IDS % 2, N(6, 4), N(8, 4), N(2, 4), N(4), N(4)],
        {"epsilon": 1e-3},
        (0, 2),
    ),
    "EmbedLayerNormalization at positions": (
        "EmbedLayerNormalization",
        [IDS, None, N(6, 4), N(8, 4), None, N(4), N(4), None, IDS],
        {"epsilon": 1e-3},
        (0, 2),
    ),
    "Attention": ("Attention", [N(2, 3, 8), N(8, 24), N(24)], {"num_heads": 2}, 1),
    "Attention with lengths": (
        "Attention",
        [N(2, 3, 8), N(8, 20), N(20), LENGTHS],
        {"num_heads": 2, "qkv_hidden_sizes": [8, 8, 4], "unidirectional": 1},
        1,
    ),
    "Attention with a mask": (
        "Attention",
        [N(2, 3, 8), N(8, 24), N(24), np.array([[1, 1, 0], [1, 1, 1]], np.int32), None,
         N(2, 2, 3, 3)],
        {"num_heads": 2, "scale": 0.3},
        1,
    ),
    "Attention with ends and starts": (
        "Attention",
        [N(2, 3, 8), N(8, 24), N(24), np.array([3, 2, 0, 1], np.int32)],
        {"num_heads": 2, "unidirectional": 1},
        1,
    ),
    "Attention with counted sequences": (
        "Attention",
        [N(2, 3, 8), N(8, 24), N(24), np.array([3, 2, 0, 3, 5, 0, 3, 5], np.int32)],
        {"num_heads": 2},
        1,
    ),
    "MultiHeadAttention": (
        "MultiHeadAttention",
        [N(2, 3, 8), N(2, 4, 8), N(2, 4, 6), N(22)],
        {"num_heads": 2},
        1,
    ),
    "MultiHeadAttention with masks": (
        "MultiHeadAttention",
        [
            N(2, 3, 8),
            N(2, 4, 8),
            N(2, 4, 8),
            None,
            np.array([[1, 1, 1, 0], [1, 1, 0, 0]], np.int32),
            N(1, 2, 3, 4),
        ],
        {"num_heads": 2, "scale": 0.4},
        1,
    ),
    "MultiHeadAttention in a buffer": (
        "MultiHeadAttention",
        [*[N(1, 2, 8)] * 3, None, None, None, N(1, 2, 6, 4), N(1, 2, 6, 4), LENGTH],
        {"num_heads": 2},
        3,
    ),
    "MultiHeadAttention causal": (
        "MultiHeadAttention",
        [N(2, 3, 8), N(2, 3, 8), N(2, 3, 8)],
        {"num_heads": 2, "unidirectional": 1},
        1,
    ),
    "MultiHeadAttention with a past": (
        "MultiHeadAttention",
        [N(2, 3, 8), N(2, 3, 8), N(2, 3, 8), None, None, None, N(2, 2, 2, 4), N(2, 2, 2, 4)],
        {"num_heads": 2},
        3,
    ),
    "GroupQueryAttention": (
        "GroupQueryAttention",
        [N(2, 3, 32), N(2, 3, 16), N(2, 3, 16), None, None, LENGTHS, TOTAL],
        {"num_heads": 4, "kv_num_heads": 2},
        1,
    ),
    "GroupQueryAttention turned and packed": (
        "GroupQueryAttention",
        [N(2, 3, 128), None, None, None, None, LENGTHS, TOTAL, *WIDE],
        {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1, "softcap": 5.0, "local_window_size": 2},
        1,
    ),
    "GroupQueryAttention with a past": (
        "GroupQueryAttention",
        [
            N(2, 1, 64),
            N(2, 1, 32),
            N(2, 1, 32),
            N(2, 2, 4, 16),
            N(2, 2, 4, 16),
            np.array([4, 4], np.int32),
            np.array(5, np.int32),
            *WIDE,
        ],
        {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1},
        3,
    ),
    "GroupQueryAttention with sinks": (
        "GroupQueryAttention",
        [N(2, 3, 32), N(2, 3, 16), N(2, 3, 16), None, None, LENGTHS, TOTAL, *[None] * 4, N(4)],
        {"num_heads": 4, "kv_num_heads": 2, "softcap": 3.0, "local_window_size": 2},
        1,
    ),
    **{
        f"GroupQueryAttention smooth, output {k}": (
            "GroupQueryAttention",
            [N(2, 3, 32), N(2, 3, 16), N(2, 3, 16), None, None, LENGTHS, TOTAL, None, None, None,
             N(2, 1, 3, 3)],
            {"num_heads": 4, "kv_num_heads": 2, "softcap": 3.0, "smooth_softmax": 1,
             "qk_output": k},
            4,
        )
        for k in (1, 2)
    },
    "GroupQueryAttention both ways": (
        "GroupQueryAttention",
        [*(N(2, 3, n, rng=OWN) for n in (32, 16, 16)), None, None, LENGTHS, TOTAL],
        {"num_heads": 4, "kv_num_heads": 2, "causal": 0},
        3,
    ),
    "GroupQueryAttention in a long cache": (
        "GroupQueryAttention", [*CHUNK[:3], *(x[:, :, :7] for x in CHUNK[3:]), FEW, TOTAL],
        {"num_heads": 4, "kv_num_heads": 2}, 3,
    ),
    **{
        f"GroupQueryAttention in a window of {room} of {ends[0] + 1}": (
            "GroupQueryAttention",
            [*(N(len(ends), new, n, rng=OWN) for n in (32, 16, 16)),
             *(N(len(ends), 2, room, 8, rng=OWN) for _ in range(2)), np.array(ends, np.int32),
             np.array(ends[0] + 1, np.int32)],
            {"num_heads": 4, "kv_num_heads": 2, "sliding_window_cache": 1, "local_window_size": 3},
            3,
        )
        for room, new, ends in [(3, 1, (4, 2)), (5, 4, (7,)), (4, 6, (5,))]
    },
    "GroupQueryAttention at positions": (
        "GroupQueryAttention",
        [N(2, 1, 64), N(2, 1, 32), N(2, 1, 32), N(2, 2, 4, 16), N(2, 2, 4, 16),
         np.array([4, 3], np.int32), np.array(5, np.int32), *WIDE, np.array([[3], [7]])],
        {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1},
        3,
    ),
    "GroupQueryAttention at first positions": (
        "GroupQueryAttention",
        [N(2, 3, 64), N(2, 3, 32), N(2, 3, 32), None, None, LENGTHS, TOTAL, *WIDE,
         np.array([[2, 3, 4], [5, 2, 7]])],
        {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1},
        3,
    ),
    "Attention with a past": (
        "Attention",
        [N(2, 3, 8), N(8, 24), N(24), None, N(2, 2, 2, 2, 4)],
        {"num_heads": 2, "unidirectional": 1},
        2,
    ),
    "QAttention": (
        "QAttention",
        [BYTES(2, 3, 8), BYTES(8, 24), N(24), S(0.02), S(0.01), None, U8(120), U8(130)],
        {"num_heads": 2},
        1,
    ),
    "QAttention with a mask and a past": (
        "QAttention",
        [BYTES(2, 3, 8), INT8S(8, 24), N(24), S(0.02), S(0.01), np.ones((2, 5), np.int32),
         U8(120), INT8S(), N(2, 2, 2, 2, 4)],
        {"num_heads": 2, "unidirectional": 1},
        2,
    ),
    "QEmbedLayerNormalization": (
        "QEmbedLayerNormalization",
        [IDS, IDS % 2, BYTES(6, 4), BYTES(8, 4), BYTES(2, 4), BYTES(4), BYTES(4), None,
         *(S(k / 50) for k in range(1, 6)), *(U8(k + 120) for k in range(5))],
        {"epsilon": 1e-3},
        2,
        (np.float32, np.int32),
    ),
    "QGemm": (
        "QGemm",
        [BYTES(3, 4), S(0.02), U8(100), BYTES(4, 5), S(0.03), U8(90), INTS(5)],
        {"alpha": 0.5},
        1,
    ),
    "QGemm turned, by column": (
        "QGemm",
        [BYTES(4, 3), S(0.02), U8(100), BYTES(5, 4), P(5), BYTES(5)],
        {"transA": 1, "transB": 1},
        1,
    ),
    "MatMulIntegerToFloat": (
        "MatMulIntegerToFloat",
        [BYTES(2, 3, 4), BYTES(4, 5), S(0.02), P(5), U8(100), BYTES(5), N(5)],
        {},
        1,
    ),
    "MatMulIntegerToFloat plain": (
        "MatMulIntegerToFloat", [BYTES(3, 4), INT8S(4, 5), S(0.02), S(0.5)], {}, 1,
    ),
    "DynamicQuantizeMatMul": (
        "DynamicQuantizeMatMul", [N(3, 4), BYTES(4, 5), P(5), BYTES(5), N(5)], {}, 1,
    ),
    "DynamicQuantizeLSTM": (
        "DynamicQuantizeLSTM",
        [N(3, 1, 5), INT8S(1, 5, 16), INT8S(1, 4, 16), N(1, 32), None, N(1, 1, 4), N(1, 1, 4), None,
         P(1) / 100, INT8S(1), P(1) / 100, INT8S(1)],
        {"hidden_size": 4}, 3,
    ),
    "DynamicQuantizeLSTM both ways, by column": (
        "DynamicQuantizeLSTM",
        [N(3, 1, 5), INT8S(2, 5, 16), INT8S(2, 4, 16), None, None, None, None, None,
         P(2, 16) / 100, np.zeros((2, 16), np.int8), P(2, 16) / 100, np.zeros((2, 16), np.int8)],
        {"hidden_size": 4, "direction": "bidirectional"}, 1,
    ),
    "ScaledSiLU": ("ScaledSiLU", [N(2, 3)], {"alpha": 1.5}, 1),
    "ScaledSiLU by a scale": ("ScaledSiLU", [N(2, 3), S(0.7)], {}, 1),
    "SampleOp": ("SampleOp", [N(2, 3)], {}, 1),
    "Range": ("Range", [S(1), S(3.2), S(0.5)], {}, 1),
    "Range without a step": ("Range", [N(1), np.array([4], S)], {}, 1),
    "Unique": (
        "Unique", [np.array([2, -1, 3.5, 1], S)], {}, 3, (np.float32, np.int64, np.int64),
    ),
    "UnfoldTensor": ("UnfoldTensor", [N(2, 7, 2)], {"dim": 1, "size": 3, "step": 2}, 1),
    "UnfoldTensor of the last axis": ("UnfoldTensor", [N(2, 5)], {"size": 2}, 1),
    "VarlenCausalConvWithState": (
        "VarlenCausalConvWithState", [N(7, 2), N(2, 1, 3), ENDS, None, N(2, 2, 2)], {}, 2,
    ),
    "VarlenCausalConvWithState dilated": (
        "VarlenCausalConvWithState",
        [N(7, 2), N(2, 1, 3), ENDS, N(2), N(2, 2, 4), np.array([1, 9], np.int32)],
        {"dilation": 2, "activation": "silu", "state_update_capacity": 3}, 3,
    ),
    "WordConvEmbedding": (
        "WordConvEmbedding", [WORDS, N(4, 1, 2, 3), N(4), N(6, 3)], {}, 1,
    ),
    "MaxpoolWithMask": (
        "MaxpoolWithMask", [N(2, 2, 5, 6), (N(1, 1, 5, 6) > -0.5).astype(np.int32)],
        {"kernel_shape": [2, 3], "strides": [1, 2], "pads": [1] * 4}, 1,
    ),
    "MaxpoolWithMask of lines": (
        "MaxpoolWithMask", [N(2, 2, 9), np.array([[[0, 1, 1, 0, 1, 1, 1, 1, 1]]], np.int32)],
        {"kernel_shape": [3], "strides": [2], "pads": [0, 1]}, 1,
    ),
    "MatMulFpQ4": (
        "MatMulFpQ4", [N(2, 40), Q4(40, 3, False), np.array([40, 3])], {"blk_quant_type": 0}, 1,
    ),
    "MatMulFpQ4 with zero points": (
        "MatMulFpQ4", [N(2, 70), Q4(70, 3, True), np.array([70, 3])], {}, 1,
    ),
    "MoE": ("MoE", [N(3, 4), N(3, 3), N(3, 5, 4), None, N(3, 4, 5)], {"k": 1}, 1),
    "MoE with SwiGLU": (
        "MoE", [N(1, 3, 4), N(3, 3), N(3, 10, 4), N(3, 10), N(3, 4, 5), N(3, 4)],
        {"k": 2, "activation_type": "swiglu", "swiglu_fusion": 1, "activation_alpha": 1.702,
         "activation_beta": 1.0, "swiglu_limit": 0.5, "normalize_routing_weights": 1}, 1,
    ),
    **{f"MoE with {f}": (
        "MoE", [N(3, 4), N(3, 3), N(3, 5, 4), N(3, 5), N(3, 4, 5), N(3, 4)],
        {"k": 2, "activation_type": f}, 1) for f in ("gelu", "silu", "identity")},
    **{f"{op} with the sparse mixer": (
        op, inputs, {"k": 2, "use_sparse_mixer": 1, "normalize_routing_weights": 1}, 1)
       for op, inputs in (
           ("MoE", [N(5, 4, rng=OWN), N(5, 4, rng=OWN), N(4, 6, 4, rng=OWN), None,
                    N(4, 4, 6, rng=OWN)]),
           ("QMoE", [N(5, 8, rng=OWN), N(5, 3, rng=OWN), OWN.integers(0, 256, (3, 4, 4), np.uint8),
                     abs(N(3, 4, rng=OWN)) / 9, None, OWN.integers(0, 256, (3, 8, 2), np.uint8),
                     abs(N(3, 8, rng=OWN)) / 9]))},
    "QMoE": (
        "QMoE",
        [N(3, 8), N(3, 2), BYTES(2, 4, 4), P(2, 4) / 10, N(2, 4), BYTES(2, 8, 2), P(2, 8) / 10],
        {"k": 1, "expert_weight_bits": 4, "activation_type": "silu"}, 1,
    ),
    "QMoE in blocks": (
        "QMoE",
        [N(3, 32), N(3, 3), BYTES(3, 16, 8), P(3, 16, 2) / 10, None, BYTES(3, 32, 4),
         P(3, 32, 1) / 10, N(3, 32), None, None, None, BYTES(3, 16, 1), BYTES(3, 32, 1), None,
         P(3, 3)],
        {"k": 2, "expert_weight_bits": 2, "block_size": 16}, 1,
    ),
    "MoEGroupRouter": (
        "MoEGroupRouter", [N(3, 8), N(8)],
        {"n_group": 4, "topk_group": 2, "top_k": 2, "group_topk": 2}, 1,
    ),
    "MoEGroupRouter of one group": (
        "MoEGroupRouter", [N(2, 2, 6), N(6)], {"top_k": 3, "router_sentinel": -7.0}, 1,
    ),
    "MoEGroupRouter of all scores": (
        "MoEGroupRouter", [N(3, 256), N(6), N(6, 256) / 16], {"top_k": 3}, (1, 2),
    ),
    "DynamicQuantizeMatMul of one sign": (
        "DynamicQuantizeMatMul", [P(3, 4), INT8S(4, 5), S(0.5)], {}, 1,
    ),
}

TOKENS = [N(6, 2, 3), N(6, 2, 3), N(6, 4, 2)]
GATES = [N(6, 4), N(6, 4)]
NORMED = {"qk_l2_norm": 1, "beta_activation": "sigmoid"}
FIRST = N(2, 4, 2, 3)
ANGLES = (RNG.integers(0, 8, (3, 2, 3)), N(8, 4), N(8, 4))
QUERY, BUFFER = [N(2, 1, 4), N(2, 1, 4), N(2, 1, 4)], [N(2, 2, 6, 2), N(2, 2, 6, 2)]
FLAGS = np.array([[1, 0, 1, 1], [1, 1, 1, 1]], np.int32)
PARTS = {"num_branches": 3}
CASES |= {
    "GatedAdd": ("GatedAdd", [N(2, 3), N(2, 3), N(2, 1)], {}, 1),
    "GatedRMSNorm": ("GatedRMSNorm", [N(2, 6), N(3), N(2, 6)], {"epsilon": 0.1}, 1),
    "GatedRMSNorm by a sigmoid": (
        "GatedRMSNorm", [N(2, 4), N(4), N(2, 4)], {"activation": "sigmoid"}, 1),
    "BranchwiseRMSNorm": ("BranchwiseRMSNorm", [N(2, 3, 4), N(4)], {"epsilon": 0.1}, 1),
    "BranchwiseRMSNorm by branch": ("BranchwiseRMSNorm", [N(2, 3, 4), N(3, 4)], {}, 1),
    "BranchwiseRMSNorm flat": ("BranchwiseRMSNorm", [N(2, 12), N(12)], PARTS, 1),
    "BranchwiseRMSNorm plain": ("BranchwiseRMSNorm", [N(2, 12)], PARTS, 1),
    "EngramGate": ("EngramGate", [N(1, 2, 2, 3), N(1, 2, 2, 3), N(1, 2, 3), N(2, 3), N(2, 3)],
                   {"epsilon": 0.1}, 1),
    "EngramGate normed": (
        "EngramGate",
        [N(1, 2, 2, 3), N(1, 2, 2, 3), N(1, 2, 3), N(2, 3), N(2, 3), N(2, 3)], {}, 2),
    "HyperConnectionPreMix": (
        "HyperConnectionPreMix", [N(2, 3, 4), N(2, 3)], {"reduction_scale": 0.5}, 1),
    "HyperConnectionPreMix by feature": (
        "HyperConnectionPreMix", [N(2, 3, 4), N(2, 3, 4)], {}, 1),
    "HyperConnectionPreMix flat": (
        "HyperConnectionPreMix", [N(2, 12), N(2, 12)], PARTS, 1),
    "HyperConnectionPreMix of branches": (
        "HyperConnectionPreMix", [N(2, 12), N(2, 3, 1)], PARTS, 1),
    "HyperConnectionPostMix": (
        "HyperConnectionPostMix", [N(2, 3, 4), N(2, 4), N(2, 3), N(2, 3, 3)], {}, 1),
    "HyperConnectionPostMix flat": (
        "HyperConnectionPostMix", [N(2, 12), N(2, 4), N(2, 3, 4)], PARTS, 1),
    "LinearAttentionGate": ("LinearAttentionGate", [N(1, 2, 3), N(3), N(3), N(1, 2, 3)], {}, 2),
    "LinearAttention": (
        "LinearAttention",
        [N(2, 3, 8), N(2, 3, 4), N(2, 3, 6), N(2, 2, 2, 3), N(2, 3, 4), N(2, 3, 2)],
        {"q_num_heads": 4, "kv_num_heads": 2}, 2),
    "LinearAttention shared": (
        "LinearAttention", [N(2, 3, 4), N(2, 3, 4), N(2, 3, 12), None, N(2, 3, 4), N(2, 3, 1)],
        {"q_num_heads": 2, "kv_num_heads": 4, "scale": 0.5}, 2),
    **{
        f"LinearAttention {rule}": (
            "LinearAttention",
            [N(1, 3, 4), N(1, 3, 4), N(1, 3, 2), None,
             N(1, 3, 2) if rule == "gated" else None, N(1, 3, 2) if rule == "delta" else None],
            {"q_num_heads": 2, "kv_num_heads": 2, "update_rule": rule}, 2)
        for rule in ("linear", "gated", "delta")
    },
    "AttnLSTM": (
        "AttnLSTM",
        [N(3, 2, 3), N(1, 8, 7), N(1, 8, 2), N(1, 16), None, None, None, None, N(1, 2, 3),
         N(1, 5, 3), N(1, 3), N(2, 6, 5), None, N(1, 7, 4)], {"hidden_size": 2}, 3),
    "AttnLSTM both ways": (
        "AttnLSTM",
        [N(3, 2, 3), N(2, 8, 8), N(2, 8, 2), N(2, 16), LENGTHS, N(2, 2, 2), N(2, 2, 2), N(2, 6),
         N(2, 2, 3), N(2, 5, 3), N(2, 3), N(2, 6, 5), np.array([6, 4], np.int32)],
        {"hidden_size": 2, "direction": "bidirectional"}, 3),
    "GatedDeltaNet": ("GatedDeltaNet", [*TOKENS, None, *GATES, FIRST], {"scale": 0.5}, 2),
    "GatedDeltaNet of lengths": (
        "GatedDeltaNet", [*TOKENS, np.array([0, 2, 6], np.int32), *GATES], NORMED, 2),
    "GatedDeltaNet packed": (
        "GatedDeltaNet",
        [N(2, 3, 20), None, None, None, N(2, 3, 4), N(2, 3, 4), FIRST, N(4), N(4)],
        {**NORMED, "gate_activation": "softplus"}, 2),
    "GatedDeltaNet by key": (
        "GatedDeltaNet",
        [*TOKENS, None, N(6, 4, 3), GATES[1], FIRST, N(4), N(4, 3)],
        {"gate_activation": "kda", "gate_lower_bound": -2.0}, 2),
    "CausalConvWithState": ("CausalConvWithState", [N(2, 3, 5), N(3, 1, 3)], {}, 2),
    "CausalConvWithState with past": (
        "CausalConvWithState", [N(2, 3, 5), N(3, 1, 3), N(3), N(2, 3, 4)],
        {"dilation": 2, "activation": "silu"}, 2),
    "CausalConvWithState channels last": (
        "CausalConvWithState", [N(2, 5, 3, 2), N(6, 1, 3), N(6), N(2, 2, 3, 2)],
        {"channels_last": 1}, 2),
    "ConvTransposeWithDynamicPads": (
        "ConvTransposeWithDynamicPads",
        [N(1, 2, 4, 4), N(2, 3, 3, 3), np.array([1, 1, 0, 1]), N(3)],
        {"strides": [2, 2], "output_padding": [1, 0]}, 1),
    "CropAndResize": (
        "CropAndResize",
        [N(2, 3, 4, 5), np.array([[0.1, 0.2, 0.9, 0.7], [-0.3, 0.9, 0.6, 0.1]], S),
         np.array([1, 0], np.int32), np.array([3, 2], np.int32)], {"extrapolation_value": 7.0}, 1),
    "CropAndResize of a line": (
        "CropAndResize",
        [N(2, 3, 1, 5), np.array([[0.1, 0.2, 0.9, 0.7]], S), np.array([1], np.int32),
         np.array([1, 3], np.int32)], {}, 1),
    "CropAndResize nearest": (
        "CropAndResize",
        [N(2, 3, 4, 5), np.array([[0.1, 0.2, 0.8, 0.7]], S), np.array([1], np.int32),
         np.array([3, 2], np.int32)], {"mode": "nearest"}, 1),
    "Inverse": ("Inverse", [N(3, 3)], {}, 1),
    "Inverse of a batch": ("Inverse", [N(2, 2, 2) + np.eye(2, dtype=S)], {}, 1),
    "MRotaryEmbedding": (
        "MRotaryEmbedding", [N(2, 3, 16), *ANGLES],
        {"mrope_section": [2, 1, 1], "scale": 2.0, "num_heads": 2, "rotary_embedding_dim": 8}, 1),
    "MRotaryEmbedding interleaved": (
        "MRotaryEmbedding", [N(2, 2, 3, 8), *ANGLES],
        {"mrope_section": [2, 1, 1], "mrope_layout": 1, "interleaved": 1}, 1),
    "DecoderMaskedMultiHeadAttention": (
        "DecoderMaskedMultiHeadAttention",
        [*QUERY, FLAGS, N(1, 2, 1, 4), *BUFFER, LENGTH, None, None, N(12)],
        {"num_heads": 2, "past_present_share_buffer": 1, "scale": 0.3, "mask_filter_value": -2.0},
        3),
    "DecoderMaskedMultiHeadAttention of beams": (
        "DecoderMaskedMultiHeadAttention",
        [*BEAMS[:3], None, None, *BEAMS[3:], LENGTH, np.array([2], np.int32), NAMED],
        {"num_heads": 2, "past_present_share_buffer": 1}, 3),
    "MultiHeadAttention of beams": (
        "MultiHeadAttention", [*BEAMS[:3], None, None, None, *BEAMS[3:], LENGTH, NAMED],
        {"num_heads": 2}, 3),
    "DecoderMaskedMultiHeadAttention across": (
        "DecoderMaskedMultiHeadAttention", [N(2, 1, 4), *BUFFER], {"num_heads": 2}, 1),
    "MatMulBnb4": ("MatMulBnb4", [N(2, 33), BYTES(50), N(7)],
                   {"K": 33, "N": 3, "block_size": 16, "quant_type": 1}, 1),
    "MatMulBnb4 by floats": ("MatMulBnb4", [N(2, 32), BYTES(48), N(6)],
                             {"K": 32, "N": 3, "block_size": 16, "quant_type": 0}, 1),
    "GatherBlockQuantized": (
        "GatherBlockQuantized", [BYTES(5, 20), np.array([[0, -1], [9, 2]]), N(5, 3)],
        {"block_size": 16}, 1),
    "GatherBlockQuantized with zero points": (
        "GatherBlockQuantized", [BYTES(5, 20), np.array([0, 4], np.int32), N(5, 3), BYTES(5, 2)],
        {"block_size": 16}, 1),
    "GatherBlockQuantized eight bits": (
        "GatherBlockQuantized", [BYTES(5, 2, 3), np.array(2), N(5, 2, 1), BYTES(5, 2, 1)],
        {"block_size": 16, "bits": 8, "quantize_axis": 2}, 1),
}  # fmt: skip

ROUNDED = {
    "QLinearAdd": ([BYTES(2, 3), S(0.1), U8(7), BYTES(3), S(0.2), U8(9), S(0.3), U8(3)], {}),
    "QLinearMul": (
        [INT8S(2, 9), S(0.1), np.int8(5), INT8S(9), S(0.2), np.int8(-9), S(2.5), np.int8(3)], {},
    ),
    "QLinearWhere": (
        [BYTES(2, 3) > 99, BYTES(2, 3), S(0.1), U8(7), BYTES(2, 3), S(0.2), U8(9), S(0.3), U8(3)],
        {},
    ),
    "QLinearSigmoid": ([BYTES(2, 30), S(0.03), U8(128), S(1 / 256), U8(0)], {}),
    "QLinearLeakyRelu": ([BYTES(2, 30), S(0.1), U8(100), S(0.2), U8(40)], {"alpha": 0.3}),
    "QLinearSoftmax": ([BYTES(2, 6), S(0.03), U8(128), S(1 / 256), U8(0)], {"opset": 13}),
    "QLinearSoftmax flat": (
        [BYTES(2, 3, 2), S(0.03), U8(128), S(1 / 256), U8(0)], {"opset": 11, "axis": 1},
    ),
    "QLinearGlobalAveragePool": ([BYTES(2, 3, 4, 5), S(0.1), U8(9), S(0.0817), U8(3)], {}),
    "QLinearGlobalAveragePool channels last": (
        [BYTES(2, 4, 5, 3), S(0.1), U8(9), S(0.0817), U8(3)], {"channels_last": 1},
    ),
    "QLinearAveragePool": (
        [BYTES(2, 3, 4, 5), S(0.1), U8(9), S(0.0817), U8(3)], {"kernel_shape": [2, 3]},
    ),
    "QLinearAveragePool channels last": (
        [BYTES(2, 4, 5, 3), S(0.1), U8(9), S(0.0817), U8(3)],
        {"channels_last": 1, "kernel_shape": [2, 3], "pads": [1, 1, 1, 1]},
    ),
    "QLinearConv": (
        [BYTES(1, 2, 5, 5), S(0.02), U8(120), INT8S(3, 2, 2, 3), P(3) / 50, INT8S(3) * 0, S(0.1),
         U8(99), INTS(3)], {"pads": [1, 0, 1, 0], "strides": [2, 1]},
    ),
    "QLinearConv channels last": (
        [BYTES(1, 5, 5, 4), S(0.02), U8(120), BYTES(6, 2, 2, 3), S(0.02), U8(130), S(0.1), U8(99)],
        {"channels_last": 1, "group": 2},
    ),
    "QLinearConcat": (
        [S(0.3), U8(3), BYTES(2, 3), S(0.1), U8(9), BYTES(2, 4), S(0.4), U8(30)], {"axis": 1},
    ),
    "QGemm": (
        [BYTES(3, 4), S(0.02), U8(100), BYTES(4, 5), S(0.03), U8(90), INTS(5), S(0.4), U8(9)], {},
    ),
}  # fmt: skip

LISTED = {"SparseToDenseMatMul", *(op_type for op_type, *_ in CASES.values())}
"""Operators with cases above, and one that takes a sparse tensor, with a test of its own below."""

CASES |= {
    str(c): (c.op_type, [x if x is None or x.dtype.kind != "f" else x.astype("f4")
                         for x in c.inputs], c.attrs, c.outputs)
    for (op_type, domain), cases in PROVED.items()
    if domain == "com.microsoft" and op_type not in LISTED for c in cases
}  # fmt: skip


@pytest.fixture(params=CASES)
def case(request):
    return one_node(*CASES[request.param])


def one_node(op_type, inputs, attrs, outputs, kinds=np.float32):
    """A model of one node of `com.microsoft`, and its inputs."""
    inputs = [None if x is None else np.asarray(x) for x in inputs]
    kept = range(outputs) if isinstance(outputs, int) else outputs
    each = kinds if isinstance(kinds, tuple) else (kinds,) * len(kept)
    kinds = [np.dtype(kind) for kind in each]
    made = [f"y{o}" if o in kept else "" for o in range(max(kept) + 1)]
    arrays = {f"x{i}": x for i, x in enumerate(inputs) if x is not None}
    names = ["" if x is None else f"x{i}" for i, x in enumerate(inputs)]
    graph = helper.make_graph(
        [helper.make_node(op_type, names, made, domain="com.microsoft", **attrs)],
        op_type,
        [declared(name, x) for name, x in arrays.items()],
        [
            helper.make_tensor_value_info(f"y{o}", helper.np_dtype_to_tensor_dtype(kind), None)
            for o, kind in zip(kept, kinds, strict=True)
        ],
    )
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10), arrays


def of_both_engines(model, feeds):
    """The outputs by NumPy and by ONNX Runtime, where this processor lets it compute them."""
    if saturates() and any(x.dtype == np.int8 for x in feeds.values()):
        pytest.skip("on this processor ONNX Runtime adds products of bytes in 16 bits")
    try:
        return [model.run(feeds, engine=engine) for engine in ("numpy", "onnxruntime")]
    except EngineError as error:
        if "not yet supported on this hardware" in str(error):
            pytest.skip(str(error))
        raise


@functools.cache
def saturates():
    """Whether 255 · 127 + 255 · 127 is cut off at 2¹⁵ - 1, as on processors without VNNI."""
    tensors = {"x": np.full((1, 2), 255, np.uint8), "w": np.full((2, 1), 127, np.int8)}
    nodes = [helper.make_node("MatMulInteger", ["x", "w"], ["y"])]
    made = helper.make_tensor_value_info("y", onnx.TensorProto.INT32, [1, 1])
    given = [declared(name, x) for name, x in tensors.items()]
    proto = helper.make_model(helper.make_graph(nodes, "pair", given, [made]), ir_version=10,
                              opset_imports=[helper.make_opsetid("", 21)])  # fmt: skip
    return load(proto).run(tensors, engine="onnxruntime")["y"].item() != 2 * 255 * 127


def test_the_definition_has_the_values_of_onnxruntime(case):
    proto, feeds = case
    model = load(proto)
    if proto.graph.name not in runtime_operators():
        pytest.skip("this ONNX Runtime has no such operator")
    ours, theirs = of_both_engines(model, feeds)
    for name, y in theirs.items():
        np.testing.assert_allclose(ours[name], y, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ROUNDED)
def test_a_rounded_result_has_the_values_of_onnxruntime_and_no_derivative(name):
    op_type, (inputs, attrs) = name.split()[0], ROUNDED[name]
    place = {"QLinearConcat": 1, "QLinearConv": 7}.get(op_type, -1)
    kind = np.asarray(inputs[place]).dtype
    proto, feeds = one_node(op_type, inputs, attrs, 1, kind)
    model = load(proto)
    ours, theirs = (made["y0"] for made in of_both_engines(model, feeds))
    assert ours.dtype == theirs.dtype == kind
    assert np.abs(ours.astype(int) - theirs).max() <= (op_type == "QLinearSoftmax")
    assert len(np.unique(ours)) > 3
    wrt = [name for name, x in feeds.items() if x.dtype == np.float32]
    after = helper.make_node("DequantizeLinear", ["y0", wrt[0]], ["z"])
    proto.graph.node.append(after)
    proto.graph.output[0].CopyFrom(helper.make_tensor_value_info("z", onnx.TensorProto.FLOAT, None))
    J = oj.linearize(load(proto), feeds, of="z", wrt=wrt)
    assert not J.toarray()[:, 1:].any()


@pytest.mark.parametrize("name", ROUNDED)
def test_a_rounded_result_is_the_same_in_double_precision(name):
    op_type, (inputs, attrs) = name.split()[0], ROUNDED[name]
    place = {"QLinearConcat": 1, "QLinearConv": 7}.get(op_type, -1)
    proto, feeds = one_node(op_type, inputs, attrs, 1, np.asarray(inputs[place]).dtype)
    scale = next(name for name, x in feeds.items() if x.dtype == np.float32)
    proto.graph.node.append(helper.make_node("DequantizeLinear", ["y0", scale], ["z"]))
    proto.graph.output[0].CopyFrom(helper.make_tensor_value_info("z", onnx.TensorProto.FLOAT, None))
    wide = {n: x.astype(float) if x.dtype == np.float32 else x for n, x in feeds.items()}
    model, single = load(proto, dtype="float64"), load(proto).run(feeds)["z"]
    z = model.run(wide)["z"]
    assert z.dtype == np.float64
    assert abs(z - single).max() <= 1.001 * feeds[scale].max()  # a tie is rounded either way
    vjp = load(oj.export(model, "vjp", wide, of="z", wrt=scale))
    found = vjp.run({**wide, "z_cotangent": np.ones(z.shape)})["z"]
    np.testing.assert_allclose(found, z, rtol=1e-6)


def test_a_maximum_of_integers_has_the_values_of_onnxruntime():
    attrs = {"kernel_shape": [2, 3], "strides": [2, 1], "pads": [1, 0, 0, 1]}
    proto, feeds = one_node("NhwcMaxPool", [BYTES(1, 5, 5, 3)], attrs, 1, np.uint8)
    ours, theirs = (load(proto).run(feeds, engine=e)["y0"] for e in ("numpy", "onnxruntime"))
    np.testing.assert_array_equal(ours, theirs, strict=True)


@pytest.mark.parametrize(("length", "past", "scales"), [(1, 4, 1), (1, 4, 32), (3, 0, 1)])
def test_a_cache_in_bytes_has_the_values_of_onnxruntime(length, past, scales):
    """New keys and values are rounded, too: only queries and scales have a derivative."""
    ends, total = np.full(2, past + length - 1, np.int32), np.array(past + length, np.int32)
    new, caches = (N(2, length, n) for n in (64, 32, 32)), (INT8S(2, 2, past, 16) for _ in range(2))
    inputs = [*new, *caches, ends, total, *[None] * 5, P(scales) / 20, P(scales) / 20]
    kind = "PER_TENSOR" if scales == 1 else "PER_CHANNEL"
    attrs = {**HEADS, "k_quant_type": kind, "v_quant_type": kind, "kv_cache_bit_width": 8}
    proto, feeds = one_node("GroupQueryAttention", inputs, attrs, 3, (S, np.int8, np.int8))
    model = load(proto)
    ours, theirs = (model.run(feeds, engine=engine) for engine in ("numpy", "onnxruntime"))
    for name, y in theirs.items():
        np.testing.assert_allclose(ours[name], y, rtol=1e-4, atol=1e-5)
    assert oj.linearize(model, feeds, of="y0", wrt="x0").check().passed
    assert not oj.linearize(model, feeds, of="y0", wrt=["x1", "x2"]).toarray().any()


WINDOW = {"sliding_window_cache": 1, "local_window_size": 3}
PADDED = {  # length of the cache; ends and counts of sequences; greatest end; inputs from 7 on
    "in a cache": (8, [5, 3], [3, 1], 7, [*WIDE, None, N(1, 4, 3, 7, rng=OWN)],
                   {"do_rotary": 1, "qk_output": 2}),
    "at positions": (8, [3, 4], [2, 0], 4, [*WIDE, np.array([[4, 1, 6], [0, 7, 2]])],
                     {"do_rotary": 1, "smooth_softmax": 1, "qk_output": 1}),
    "in a window": (7, [9, 11], [3, 0], 12, [], WINDOW),
    "beyond a window": (4, [14, 2], [2, 2], 14, [*angles(16, 8)], {"do_rotary": 1, **WINDOW}),
}  # fmt: skip


@pytest.mark.parametrize("name", PADDED)
def test_padded_chunks_have_the_values_of_onnxruntime_and_its_slopes(name):
    """Of the values that ONNX Runtime specifies; of the others, ours are 0."""
    room, ends, new, total, more, attrs = PADDED[name]
    more, outputs = [*more, *[None] * (9 - len(more))], 3 + ("qk_output" in attrs)
    inputs = [*CHUNK[:3], *(x[:, :, :room] for x in CHUNK[3:]), np.array(ends, np.int32) - 1,
              np.int32(total), *more, np.array(new, np.int32)]  # fmt: skip
    proto, feeds = one_node("GroupQueryAttention", inputs, {**HEADS, **attrs}, outputs)
    theirs = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, feeds)
    ours = [*load(proto).run(feeds, engine="numpy").values()]
    step = room - 2 if "window" in name else room
    held = [n - max(0, -(-(n - room) // step) * step) for n in ends]
    rows, places = (np.arange(n) < np.array(c)[:, None] for n, c in ((3, new), (room, held)))
    for x, y, given in zip(ours, theirs, (rows, places, places, rows), strict=False):
        x, y = (z if z.ndim == 3 else z.swapaxes(1, 2) for z in (x, y))
        np.testing.assert_allclose(x[given], y[given], rtol=1e-4, atol=1e-5)
        assert not x[~given].any()
    model = load(proto, dtype="float64")
    check_point(model, feeds)
    clean, names = oj.linearize(model, feeds).toarray(), ("x0", "x1", "x2")
    feeds |= {n: np.where(rows[:, :, None], feeds[n], S(np.nan)) for n in names}
    J = oj.linearize(model, feeds)  # padding has no part in anything
    np.testing.assert_allclose(J.toarray(), clean, rtol=1e-9, atol=1e-12)
    padding = np.concatenate([np.isnan(feeds[n]).ravel() for n in names])
    assert not clean[:, : len(padding)][:, padding].any()


@pytest.mark.parametrize("n", [1, 2, 3, 9])
def test_scores_of_repeated_tokens_have_no_derivative(n):
    ids = np.array([[1, 2, 3, 1, 2], [0, 0, 0, 0, 0], [1, 2, 4, 2, 0]])
    proto, feeds = one_node("NGramRepeatBlock", [ids, N(3, 5)], {"ngram_size": n}, 1)
    model = load(proto)
    ours, theirs = (model.run(feeds, engine=e)["y0"] for e in ("numpy", "onnxruntime"))
    np.testing.assert_array_equal(ours, theirs)
    kept = np.isfinite(theirs)
    assert kept.all() == (n == 9)
    np.testing.assert_array_equal(oj.linearize(model, feeds).toarray(), np.diag(kept.ravel()))


def test_the_derivative_of_equal_entries_goes_to_the_first():
    kinds = (np.float32, np.int64, np.int64)
    proto, feeds = one_node("Unique", [np.array([2, 1, 1, 3, 4, 3], S)], {}, 3, kinds)
    model = load(proto)
    ours, theirs = (model.run(feeds, engine=engine) for engine in ("numpy", "onnxruntime"))
    for name, y in theirs.items():
        np.testing.assert_array_equal(ours[name], y)
    J = oj.linearize(model, feeds, of="y0").toarray()
    np.testing.assert_array_equal(J, np.eye(6)[[0, 1, 3, 4]])


SPARSE = {"num_heads": 4, "kv_num_heads": 2, "sparse_block_size": 16}
TURNED = {"do_rotary": 1, "rotary_interleaved": 1, "scale": 0.3}


@pytest.mark.parametrize(
    ("new", "total", "attrs"), [(18, 18, {}), (1, 25, TURNED), (3, 20, {})], ids=str
)
def test_attention_to_blocks_has_the_values_of_onnxruntime_and_its_slopes(new, total, attrs):
    """Of sequences of one length: of several, ONNX Runtime takes the weights at wrong places."""
    rows, columns = np.int32([[0, 1, 3], [0, 1, 2]]), np.int32([[0, 0, 1], [0, 1, -1]])
    x = [N(2, new, 64), N(2, new, 32), N(2, new, 32), N(2, 2, 32, 16), N(2, 2, 32, 16), rows,
         columns, np.int32([total]), np.int32([total, total]), *(angles(32, 8) if attrs else ())]
    proto, feeds = one_node("SparseAttention", x, {**SPARSE, **attrs}, 3)
    ours = load(proto).run(feeds, engine="numpy")
    kept = {name: x.copy() for name, x in feeds.items()}  # written into
    held = {name: onnxruntime.OrtValue.ortvalue_from_numpy(x) for name, x in kept.items()}
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    binding = session.io_binding()
    for name, value in held.items():
        binding.bind_ortvalue_input(name, value)
    binding.bind_output("y0")
    for name, past in (("y1", "x3"), ("y2", "x4")):
        binding.bind_ortvalue_output(name, held[past])
    session.run_with_iobinding(binding)
    theirs = (binding.get_outputs()[0], held["x3"], held["x4"])
    for name, value in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(ours[name], value.numpy(), rtol=1e-4, atol=1e-5)
    check_point(load(proto, dtype="float64"), feeds)


def test_a_product_with_a_sparse_tensor_has_the_values_of_onnxruntime():
    A, B = np.array([[1, 0, 0], [0, 2, 3]], np.float32), N(3, 4)
    proto, feeds = one_node("SparseToDenseMatMul", [A, B], {"alpha": 0.5}, 1)
    kind = onnx.TensorProto.FLOAT
    proto.graph.input[0].CopyFrom(helper.make_sparse_tensor_value_info("x0", kind, A.shape))
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    cpu = onnxruntime.OrtDevice.make("cpu", 0)
    sparse = onnxruntime.SparseTensor.sparse_coo_from_numpy(
        [2, 3], np.array([1, 2, 3], np.float32), np.array([0, 0, 1, 1, 1, 2]), cpu)  # fmt: skip
    held = {"x0": onnxruntime.OrtValue.ort_value_from_sparse_tensor(sparse),
            "x1": onnxruntime.OrtValue.ortvalue_from_numpy(B)}  # fmt: skip
    (theirs,) = session.run_with_ort_values(["y0"], held)
    model = load(proto)
    ours = model.run(feeds, engine="numpy")["y0"]
    np.testing.assert_allclose(ours, theirs.numpy(), rtol=1e-6, atol=1e-6)
    check_point(load(proto, dtype="float64"), feeds)


@pytest.mark.sampled(0.5)
def test_the_derivative_is_the_slope(case):
    proto, feeds = case
    check_point(load(proto, dtype="float64"), feeds)


@pytest.mark.sampled(0.5)
def test_the_recorded_pullback_runs_in_onnxruntime(case):
    proto, feeds = case
    if proto.graph.name in ("Range", "Unique"):
        pytest.skip("no definition is recorded whose lengths depend on the numbers")
    model = load(proto)
    wrt = tuple(name for name, x in feeds.items() if x.dtype.kind == "f")
    of = next(iter(model.outputs))
    recorded = vjp_graph(model, feeds, (of,), wrt, None).model("vjp")
    J = oj.linearize(model, feeds, of=of, wrt=wrt)
    u = RNG.standard_normal(J.primal[of].shape).astype(np.float32)
    found = recorded.run({**feeds, f"{of}_cotangent": u}, engine="onnxruntime")
    for name, expected in J.T.apply({of: u}).items():
        np.testing.assert_allclose(found[f"{name}_cotangent"], expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("axis", "scale"), [(-1, (4,)), (1, (3, 4))])
def test_a_guest_in_the_default_domain(axis, scale):
    """ONNX Runtime has SimplifiedLayerNormalization in ONNX's default domain."""
    inputs, attrs = [N(2, 3, 4), N(*scale)], {"epsilon": 1e-3, "axis": axis}
    proto, feeds = one_node("SimplifiedLayerNormalization", inputs, attrs, 1)
    proto.graph.node[0].domain = ""
    check_point(load(proto, dtype="float64"), feeds)
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    found = load(proto).run(feeds)["y0"]
    np.testing.assert_allclose(found, session.run(None, feeds)[0], rtol=1e-5, atol=1e-6)


GROUPS = [N(2, 3, 32), N(2, 3, 16), N(2, 3, 16), None, None, LENGTHS, TOTAL]
HEADS = {"num_heads": 4, "kv_num_heads": 2}
PAST = [N(1, 2, 8), N(1, 2, 8), N(1, 2, 8), None, None, None, N(1, 2, 5, 4), N(1, 2, 5, 4)]
REFUSED = {
    "packed": ("MultiHeadAttention", [N(1, 2, 2, 3, 4)], {"num_heads": 2}),
    "zero points in bytes beside g_idx": (
        "MatMulNBits",
        [N(2, 32), BYTES(3, 1, 16), N(3), BYTES(3), np.zeros(32, np.int32)],
        {"K": 32, "N": 3, "bits": 4, "block_size": 32},
    ),
    "one plane|has the shape": (
        "MaxpoolWithMask", [N(1, 2, 4), np.ones((1, 2, 4), np.int32)], {"kernel_shape": [2]},
    ),
    "fc3_experts_weights": (
        "MoE", [N(3, 4), N(3, 3), N(3, 5, 4), None, N(3, 4, 5), None, N(3, 5, 4)], {"k": 1},
    ),
    "use_sparse_mixer requires k=2, and k=1 is given": (
        "MoE", [N(3, 4, rng=OWN), N(3, 3, rng=OWN), N(3, 5, 4, rng=OWN), None,
                N(3, 4, 5, rng=OWN)], {"use_sparse_mixer": 1}),
    "swiglu_fusion": (
        "MoE", [N(3, 4), N(3, 3), N(3, 10, 4), None, N(3, 4, 5)],
        {"activation_type": "swiglu", "swiglu_fusion": 2},
    ),
    "kernel_delta": (
        "VarlenCausalConvWithState",
        [N(7, 2), N(2, 1, 2), ENDS, None, N(2, 2, 1), None, N(7, 2, 2), N(7, 1)], {},
    ),
    "cache of uint8": (
        "GroupQueryAttention", [N(1, 1, 8), N(1, 1, 4), N(1, 1, 4), BYTES(1, 2, 2, 2),
                                BYTES(1, 2, 2, 2), LENGTHS[:1], TOTAL, *[None] * 5, P(1), P(1)],
        {**HEADS, "k_quant_type": "PER_TENSOR", "v_quant_type": "PER_TENSOR"},
    ),
    "input 14": (
        "GroupQueryAttention", [*GROUPS, *[None] * 7, N(8, rng=OWN), N(8, rng=OWN)], HEADS),
    "query_seqlens requires past_key": (
        "GroupQueryAttention", [*GROUPS, *[None] * 9, LENGTHS], HEADS),
    "query_seqlens requires past_key and past_value, and causal=1": (
        "GroupQueryAttention", [*CHUNK, FEW, TOTAL, *[None] * 9, FEW], {**HEADS, "causal": 0}),
    "sliding_window_cache requires 0 < local_window_size=9": (
        "GroupQueryAttention", [*CHUNK, FEW, TOTAL],
        {**HEADS, "sliding_window_cache": 1, "local_window_size": 9}),
    "sliding_window_cache requires 0 < local_window_size=3": (
        "GroupQueryAttention", GROUPS,
        {**HEADS, "sliding_window_cache": 1, "local_window_size": 3}),
}


@pytest.mark.parametrize("name", REFUSED)
def test_inputs_and_attributes_that_are_not_honoured_are_refused_by_name(name):
    proto, feeds = one_node(*REFUSED[name], 1)
    model = load(proto)
    for act in (oj.linearize, lambda *given: model.run(given[1], engine="numpy")):
        with pytest.raises(oj.UnsupportedOp, match=name):
            act(model, feeds)


def test_an_output_that_a_definition_does_not_give_is_refused():
    inputs = [N(2, 3, 4), N(2, 3, 4), N(4)]
    proto, feeds = one_node("SkipSimplifiedLayerNormalization", inputs, {}, 2)
    model = load(proto)
    for act in (oj.linearize, lambda *given: model.run(given[1], engine="numpy")):
        with pytest.raises(oj.UnsupportedOp, match="no output number 1, 'y1'"):
            act(model, feeds)


@pytest.mark.parametrize(("kind", "shape", "index", "scales", "attrs"), [
    ("int4", (5, 20), [[0, -1], [9, 2]], (5, 2), {}),
    ("uint4", (40, 3), [[0], [17]], (3, 3), {"quantize_axis": 0}),
    ("uint4", (40, 3), [[0], [2]], (3, 3), {"quantize_axis": 0, "gather_axis": 1}),
    ("float8_e5m2", (5, 20), [0, 3], (1, 1), {"block_size": 0}),
])  # fmt: skip
def test_rows_of_other_types_are_gathered_as_by_onnxruntime(kind, shape, index, scales, attrs):
    q = RNG.integers(0, 8, shape).astype(S).astype(getattr(ml_dtypes, kind))
    zero = [] if "float" in kind else [RNG.integers(0, 8, scales).astype(q.dtype)]
    proto, feeds = one_node("GatherBlockQuantized", [q, np.array(index), N(*scales), *zero],
                            {"block_size": 16, **attrs}, 1)  # fmt: skip
    scales = {"x2": feeds.pop("x2")}
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(x, n) for n, x in feeds.items())
    del proto.graph.input[:]
    proto.graph.input.append(declared("x2", scales["x2"]))
    model = load(proto)
    ours, theirs = (model.run(scales, engine=e)["y0"] for e in ("numpy", "onnxruntime"))
    np.testing.assert_array_equal(ours, theirs)
    J = oj.linearize(model, scales)
    np.testing.assert_allclose(J @ scales["x2"].ravel(), ours.ravel(), rtol=1e-6)  # it is linear


def test_the_scores_of_a_search_are_refused():
    """Its words have no tangents, so that the rule is asked for scores only."""
    node = node_of("BeamSearch", (), {}, "com.microsoft")
    with pytest.raises(oj.UnsupportedOp, match="integers, and their scores"):
        find("BeamSearch", "com.microsoft").rule(None, node)
    with pytest.raises(oj.UnsupportedOp, match=r"neither a kernel.*integers, and their scores"):
        run_reference("BeamSearch", [], {}, domain="com.microsoft")


def test_the_nearest_pixel_of_a_tie_is_onnxruntimes():
    """ONNX Runtime takes the larger one."""
    size, images = np.array([3, 3], np.int32), np.array([0], np.int32)
    inputs = [N(1, 1, 4, 2), np.array([[0, 0, 1, 1]], S), images, size]
    proto, feeds = one_node("CropAndResize", inputs, {"mode": "nearest"}, 1)
    found, expected = (load(proto).run(feeds, engine=e)["y0"] for e in ("numpy", "onnxruntime"))
    np.testing.assert_array_equal(found, expected)


def test_weights_of_four_bits_from_the_other_side():
    """A Ŵ; ONNX Runtime reads A as if its rows had K entries, beyond its end."""
    attrs = {"K": 32, "N": 3, "block_size": 16, "quant_type": 1}
    weights, a = [BYTES(48), N(6)], N(2, 3)

    def product(x, **side):
        proto, feeds = one_node("MatMulBnb4", [x, *weights], {**attrs, **side}, 1)
        return load(proto).run(feeds, engine="numpy")["y0"]

    expected = a @ product(np.eye(32, dtype=S)).T
    np.testing.assert_allclose(product(a, transB=0), expected, rtol=1e-5, atol=1e-6)


def test_weights_of_two_bits_in_groups():
    """A Ŵᵀ by NumPy; ONNX Runtime reads the bytes as if they held numbers of four bits."""
    q, a, scale = OWN.integers(0, 4, (3, 64), np.uint8), N(2, 64, rng=OWN), N(3, 4, rng=OWN)
    packed = (q.reshape(3, 4, 4, 4) << np.uint8([0, 2, 4, 6])).sum(-1, dtype=np.uint8)
    group = OWN.integers(0, 4, 64).astype(np.int32)
    attrs = {"K": 64, "N": 3, "bits": 2, "block_size": 16}
    proto, feeds = one_node("MatMulNBits", [a, packed, scale, None, group], attrs, 1)
    model, expected = load(proto), a @ ((q.astype(S) - 2) * scale[:, group]).T
    np.testing.assert_allclose(model.run(feeds)["y0"], expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(oj.OnnxJacError, match=r"departs from ONNX in .*MatMulNBits"):
        model.run(feeds, engine="onnxruntime")
    check_point(load(proto, dtype="float64"), feeds)


def test_guests_with_twins_in_onnx_have_their_values():
    """GatherND, Pad and Trilu of com.microsoft."""
    for op_type, inputs, attrs in (
        ("GatherND", [N(2, 3), np.array([[0, 1], [1, 2]])], {}),
        ("Pad", [N(2, 3), np.array([0, 2, 1, 0])], {}),
        ("Trilu", [N(3, 3), np.int64(1)], {"upper": 0}),
    ):
        proto, feeds = one_node(op_type, inputs, attrs, 1)
        session = onnxruntime.InferenceSession(proto.SerializeToString())
        check_point(load(proto, dtype="float64"), feeds)
        np.testing.assert_allclose(load(proto).run(feeds)["y0"], session.run(None, feeds)[0])


def test_words_that_a_search_finds_have_no_derivative():
    value, kind, width = helper.make_tensor_value_info, onnx.TensorProto, 2
    decoder = helper.make_graph(
        [helper.make_node("Gather", ["E", "input_ids"], ["h"]),
         helper.make_node("MatMul", ["h", "U"], ["logits"]),
         helper.make_node("Unsqueeze", ["h", "axes"], ["k"]),
         helper.make_node("Concat", ["k", "k"], ["kv"], axis=0),
         helper.make_node("Concat", ["past_0", "kv"], ["present_0"], axis=3)],
        "decoder",
        [*(value(n, kind.INT32, ["b", n]) for n in ("input_ids", "position_ids", "attention_mask")),
         value("past_0", kind.FLOAT, [2, "b", 1, "p", width])],
        [value("logits", kind.FLOAT, ["b", "s", 6]),
         value("present_0", kind.FLOAT, [2, "b", 1, "t", width])],
        [onnx.numpy_helper.from_array(np.array([0, 2]), "axes"),
         onnx.numpy_helper.from_array(N(width, 6), "U")],
    )  # fmt: skip
    ids, long = np.array([[1, 2]], np.int32), np.array([5], np.int32)
    attrs = {"eos_token_id": 5, "pad_token_id": 5, "decoder": decoder}
    # with a least length: ONNX Runtime leaves words behind an early end as they lie in memory
    proto, feeds = one_node("Sampling", [ids, long, long], attrs, 1, np.int32)
    feeds |= {"E": N(6, width), "W": N(6)}
    proto.graph.node.append(helper.make_node("Gather", ["W", "y0"], ["z"]))
    proto.graph.input.extend([value("E", kind.FLOAT, [6, width]), value("W", kind.FLOAT, [6])])
    proto.graph.output[0].CopyFrom(value("z", kind.FLOAT, None))
    J = oj.linearize(load(proto), feeds, of="z", wrt=["E", "W"], engine="onnxruntime")
    assert not J.toarray()[:, :12].any()
    np.testing.assert_array_equal(J.toarray()[:, 12:] @ feeds["W"], J.primal["z"].ravel())


def test_operators_without_real_numbers_have_none():
    """By ONNX Runtime's own schemas."""
    from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema

    claims = {NO_FLOATS: "inputs", "the result is an integer, a truth value or a set of positions":
              "outputs"}  # fmt: skip
    seen = set()
    for schema in get_all_operator_schema():
        found = find(schema.name, schema.domain)
        if schema.domain == "com.microsoft" and found and found.zero in claims:
            ports = getattr(schema, claims[found.zero])
            assert not [t for p in ports for t in p.types if "float" in t or "double" in t], schema
            seen.add(schema.name)
    assert len(seen) == 13


def test_a_default_is_what_the_attribute_would_say():
    """A float attribute holds 24 bits: α = 1.702 is not the double of that text."""
    x, found = np.linspace(-3, 3, 7), []
    for said in ({}, {"alpha": 1.702}):
        node = helper.make_node("QuickGelu", ["x"], ["y"], domain="com.microsoft", **said)
        ends = (helper.make_tensor_value_info(n, onnx.TensorProto.DOUBLE, [7]) for n in "xy")
        graph = helper.make_graph([node], "g", *([end] for end in ends))
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
        model = oj.load(helper.make_model(graph, opset_imports=opsets, ir_version=10))
        found.append(model.run({"x": x}, engine="numpy")["y"])
    np.testing.assert_array_equal(*found)
