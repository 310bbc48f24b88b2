"""The cases of ONNX Runtime's own operators (`com.microsoft`)."""

from __future__ import annotations

from functools import partial

import numpy as np

from .case import SIDES, case, ints, numbers, script

MS = "com.microsoft::"

ort = partial(case, domain="com.microsoft")

ort("Gelu", SIDES, torch="F.gelu({0})")
ort("FastGelu", SIDES, torch="F.gelu({0}, approximate='tanh')")
ort("BiasGelu", (2, 2), (2,), torch="F.gelu({0} + {1})")
ort("FastGelu", (2, 2), (2,))
ort("QuickGelu", SIDES, torch="{0} * torch.sigmoid(1.702 * {0})")
ort("QuickGelu", SIDES, alpha=1.5)
ort("SampleOp", (2,), torch="{0}.clone()")
ort("ScaledSiLU", SIDES, alpha=1.5)
ort("ScaledSiLU", (2, 1), np.array(0.5), torch="F.silu({1} * {0})")

ort("FusedMatMul", (2, 3), (3, 1), torch="{0} @ {1}")
ort("TransposeMatMul", (2, 2), (1, 2), transA=1, transB=1, alpha=0.5, torch="0.5 * {0}.mT @ {1}.mT")
ort("ExpandDims", (2,), np.array(0, np.int32), torch="{0}.unsqueeze(0)")
ort("UnfoldTensor", (2, 5, 1), dim=1, size=3, step=2, torch="{0}.unfold(1, 3, 2)")
ort("UnfoldTensor", (3,), size=2)
ort("CDist", (2, 2), (1, 2), metric="sqeuclidean", torch="torch.cdist({0}, {1}) ** 2")
ort("CDist", (1, 2), (2, 2), metric="euclidean")
ort("GridSample", (1, 1, 3, 2), numbers(0.25, -0.375).reshape(1, 1, 1, 2), mode="bilinear",
    torch="F.grid_sample({0}, {1}, align_corners=False)")  # fmt: skip
ort("FusedMatMul", (2, 2), (1, 2), transA=1, transB=1, alpha=0.5)
ort("FusedMatMul", (2, 1, 2), (1, 2, 2), transBatchA=1)
ort("FusedMatMul", (1, 2, 2), (2, 1, 2), transBatchB=1, transB=1)
ort("FusedGemm", (2, 2), (2, 2), (2,), transA=1, alpha=0.5,
    torch="torch.addmm({2}, {0}.mT, {1}, alpha=0.5)")  # fmt: skip
ort("FusedGemm", (1, 2), (2, 2), (2,), activation="LeakyRelu", activation_alpha=0.25)
ort("FusedConv", (1, 1, 2, 3), (2, 1, 1, 2), (2,), activation="Relu",
    torch="torch.relu(torch.conv2d({all}))")  # fmt: skip
ort("FusedConv", (1, 1, 1, 3), (1, 1, 1, 2), (1,), (1, 1, 1, 2), activation="Clip",
    activation_params=[-0.5, 2.0])  # fmt: skip

NEAR = {"epsilon": 0.125}
ort("SkipLayerNormalization", *[(1, 1, 2)] * 2, *[(2,)] * 3, second=False, **NEAR,
    torch="F.layer_norm({0} + {1} + {4}, (2,), {2}, {3}, 0.125)")  # fmt: skip
ort("SkipLayerNormalization", (1, 2, 2), (1, 2, 2), (2,), outputs=4, of=(0, 3), **NEAR)
ort("SkipSimplifiedLayerNormalization", (1, 1, 2), (1, 1, 2), (2,), (2,), **NEAR,
    torch="F.rms_norm({0} + {1} + {3}, (2,), {2}, 0.125)")  # fmt: skip
ort("SimplifiedLayerNormalization", (2, 2), (2,), **NEAR, torch="F.rms_norm({0}, (2,), {1}, 0.125)")
ort("SimplifiedLayerNormalization", (1, 2, 1), (2, 1), axis=1, **NEAR)

FOUR = {"K": 3, "N": 2, "bits": 4, "block_size": 2}
BYTES = np.array([[[0x21], [0xC3]], [[0xF8], [0x05]]], np.uint8)
ort("MatMulNBits", (1, 3), BYTES, (2, 2), **FOUR,
    torch="{0} @ ((torch.tensor([[1, 2, 3], [8, 15, 5]]).double() - 8) "
          "* {2}.repeat_interleave(2, 1)[:, :3]).mT")  # fmt: skip
ort("MatMulNBits", (2, 3), BYTES, (2, 2), np.array([[0x35], [0x80]], np.uint8), None, (2,), **FOUR)
ort("MatMulNBits", (1, 3), BYTES, (2, 2), None, np.array([1, 0, 1], np.int32), **FOUR)
ort("MatMulNBits", (1, 2), np.array([[[3, 200]]], np.uint8), (1, 1), K=2, N=1, bits=8, block_size=2)
WORDS = np.array([[1, 0]], np.int32)
ort("EmbedLayerNormalization", WORDS, WORDS, *[(2, 2)] * 3, (2,), (2,), second=False, **NEAR,
    torch="F.layer_norm({2}[{0}] + {3}[:2] + {4}[{1}], (2,), {5}, {6}, 0.125)")  # fmt: skip
ort("EmbedLayerNormalization", WORDS, None, (2, 2), (3, 2), None, (2,), (2,), None, WORDS + 1,
    outputs=3, of=(2,), **NEAR)  # fmt: skip

TURN = ((2, 1), (2, 1))
ort("RotaryEmbedding", (1, 2, 2), ints(0), *TURN)
ort("RotaryEmbedding", (1, 1, 2, 2), ints([1, 0]), *TURN, interleaved=1)
ort("RotaryEmbedding", (1, 1, 6), ints([1]), *TURN, rotary_embedding_dim=2, num_heads=2)

TWO_HEADS = {"num_heads": 2, "second": False}
ort("Attention", (1, 2, 1), (1, 6), (6,), **TWO_HEADS)
ort("Attention", (1, 2, 1), (1, 3), num_heads=1)
ort("Attention", (1, 2, 2), (2, 5), None, np.array([[1, 0]], np.int32), unidirectional=1,
    qkv_hidden_sizes=[2, 2, 1], num_heads=1, second=False)  # fmt: skip
ort("MultiHeadAttention", (1, 1, 2), (1, 2, 2), (1, 2, 2), (6,), **TWO_HEADS)
ort("MultiHeadAttention", (1, 1, 1), (1, 2, 1), (1, 2, 1), None,
    np.array([[1, 0]], np.int32), (1, 1, 1, 2), num_heads=1, scale=0.5)  # fmt: skip
ort("MultiHeadAttention", (1, 2, 1), (1, 2, 1), (1, 2, 1), num_heads=1, unidirectional=1,
    second=False)  # fmt: skip
ort("MultiHeadAttention", (1, 1, 1), (1, 1, 1), (1, 1, 1), None, None, None, (1, 1, 1, 1),
    (1, 1, 1, 1), num_heads=1, outputs=3, second=False)  # fmt: skip

LENGTHS = {n: (np.array([n - 1], np.int32), np.array(n, np.int32)) for n in (2, 3)}
GROUP = {"num_heads": 2, "kv_num_heads": 1}
ort("GroupQueryAttention", (1, 2, 2), (1, 2, 1), (1, 2, 1), None, None, *LENGTHS[2], **GROUP)
ort("GroupQueryAttention", (1, 1, 2), (1, 1, 1), (1, 1, 1), (1, 1, 2, 1), (1, 1, 2, 1),
    *LENGTHS[3], outputs=3, **GROUP)  # fmt: skip
ort("GroupQueryAttention", (1, 2, 2), (1, 2, 2), (1, 2, 2), None, None, *LENGTHS[2],
    *TURN, num_heads=1, kv_num_heads=1, do_rotary=1, second=False)  # fmt: skip
ort("GroupQueryAttention", (1, 2, 1), (1, 2, 1), (1, 2, 1), None, None, *LENGTHS[2],
    num_heads=1, kv_num_heads=1, softcap=2.0, local_window_size=1)  # fmt: skip
ort("GroupQueryAttention", (1, 1, 2), (1, 1, 1), (1, 1, 1), (1, 1, 2, 1), (1, 1, 2, 1),
    *LENGTHS[3], None, None, None, None, (2,), second=False, **GROUP)  # fmt: skip
ort("GroupQueryAttention", (1, 2, 1), (1, 2, 1), (1, 2, 1), None, None, *LENGTHS[2],
    num_heads=1, kv_num_heads=1, smooth_softmax=1, second=False)  # fmt: skip
ort("GroupQueryAttention", (1, 2, 1), (1, 2, 1), (1, 2, 1), (1, 1, 3, 1), (1, 1, 3, 1), *LENGTHS[2],
    *[None] * 9, np.array([1], np.int32), num_heads=1, kv_num_heads=1, outputs=3,
    second=False)  # fmt: skip
ort("GroupQueryAttention", (1, 1, 1), (1, 1, 1), (1, 1, 1), (1, 1, 2, 1), (1, 1, 2, 1),
    *LENGTHS[3], num_heads=1, kv_num_heads=1, outputs=3, sliding_window_cache=1,
    local_window_size=2, second=False)  # fmt: skip
ort("Attention", (1, 1, 1), (1, 3), None, None, (2, 1, 1, 1, 1), num_heads=1, outputs=2)

BYTE = {n: np.arange(7, 7 + 29 * np.prod(n), 29).astype(np.uint8).reshape(n)
        for n in ((1,), (2,), (1, 1, 2), (1, 2), (2, 1), (2, 2), (2, 3), (2, 6))}  # fmt: skip
ZERO, UNIT = np.array(40, np.uint8), np.array(0.25)
ort("MatMulIntegerToFloat", BYTE[2, 2], BYTE[2, 2], UNIT, (2,), ZERO, BYTE[(2,)], (2,),
    torch="(({0}.double() - {4}) * {2}) @ (({1}.double() - {5}) * {3}) + {6}")  # fmt: skip
ort("MatMulIntegerToFloat", BYTE[2, 2], BYTE[2, 1], UNIT, UNIT)
ort("DynamicQuantizeMatMul", (2, 2), BYTE[2, 2], (2,), BYTE[(2,)], (2,))
ort("QGemm", BYTE[1, 2], UNIT, ZERO, BYTE[2, 2], UNIT, ZERO, np.array([3, -4], np.int32), alpha=0.5)
ort("QGemm", BYTE[2, 1], UNIT, ZERO, BYTE[2, 2], (2,), BYTE[(2,)], transA=1, transB=1)
ort("QAttention", BYTE[1, 1, 2], BYTE[2, 3], (3,), UNIT / 64, UNIT / 32, None, ZERO, ZERO,
    num_heads=1)  # fmt: skip
ort("QAttention", BYTE[1, 1, 2], BYTE[2, 3], (3,), UNIT / 64, UNIT / 32, None, ZERO, ZERO,
    (2, 1, 1, 1, 1), num_heads=1, unidirectional=1, outputs=2, second=False)  # fmt: skip
ort("QEmbedLayerNormalization", WORDS, WORDS, *[BYTE[2, 2]] * 3, BYTE[(2,)], BYTE[(2,)], None,
    *[UNIT] * 5, *[ZERO] * 5, outputs=2, of=(0,), wrt=(8, 11), **NEAR)  # fmt: skip

ort("GatedAdd", (2, 2), (2, 2), (2, 1), torch="{0} + {1} * {2}")
ort("GatedRMSNorm", (1, 4), (2,), (1, 4), second=False, **NEAR,
    torch="F.rms_norm({0}.view(1, 2, 2), (2,), {1}, 0.125).view(1, 4) * F.silu({2})")  # fmt: skip
ort("GatedRMSNorm", (1, 2), (2,), (1, 2), activation="sigmoid", **NEAR)
ort("BranchwiseRMSNorm", (1, 2, 2), (2,), **NEAR, torch="F.rms_norm({0}, (2,), {1}, 0.125)")
ort("BranchwiseRMSNorm", (1, 4), (4,), num_branches=2, **NEAR)
ort("HyperConnectionPreMix", (1, 2, 2), (1, 2), reduction_scale=0.5,
    torch="0.5 * ({0} * {1}.unsqueeze(-1)).sum(-2)")  # fmt: skip
ort("HyperConnectionPreMix", (1, 4), (1, 4), num_branches=2)
ort("HyperConnectionPostMix", (1, 2, 2), (1, 2), (1, 2), (1, 2, 2),
    torch="{3}.mT @ {0} + {2}.unsqueeze(-1) * {1}.unsqueeze(-2)")  # fmt: skip
ort("HyperConnectionPostMix", (1, 4), (1, 2), (1, 2, 2), num_branches=2)
ort("LinearAttentionGate", (1, 2, 2), (2,), (2,), (1, 2, 2), outputs=2,
    torch="{2} * F.softplus({0} + {1})")  # fmt: skip
RULE = {"outputs": 2, "q_num_heads": 1, "kv_num_heads": 1}
ort("LinearAttention", *[(1, 2, 1)] * 3, (1, 1, 1, 1), *[(1, 2, 1)] * 2, **RULE)
ort("LinearAttention", (1, 2, 2), (1, 2, 2), (1, 2, 1), update_rule="linear", **RULE)
ort("LinearAttention", (1, 1, 2), (1, 1, 1), (1, 1, 1), None, (1, 1, 1), update_rule="gated",
    scale=0.5, outputs=2, q_num_heads=2, kv_num_heads=1)  # fmt: skip
ort("LinearAttention", *[(1, 2, 1)] * 3, None, None, (1, 2, 1), update_rule="delta", **RULE)
ort("CausalConvWithState", (1, 1, 3), (1, 1, 2), (1,), (1, 1, 2), dilation=2, outputs=2,
    torch="F.conv1d(torch.cat(({3}, {0}), 2), {1}, {2}, dilation=2)")  # fmt: skip
ort("CausalConvWithState", (1, 2, 2), (2, 1, 2), outputs=2, channels_last=1, activation="silu")
ort("Inverse", (2, 2), torch="torch.linalg.inv({0})")
ort("Inverse", (1, 1, 1))
SECTIONS = np.array([[[1]], [[0]], [[1]]])
ort("MRotaryEmbedding", (1, 1, 1, 6), SECTIONS, (2, 3), (2, 3), mrope_section=[1, 1, 1], scale=2.0)
ort("MRotaryEmbedding", (1, 1, 1, 6), SECTIONS, (2, 3), (2, 3), mrope_section=[1, 1, 1],
    mrope_layout=1, interleaved=1)  # fmt: skip
QUARTER = {"K": 3, "N": 2, "block_size": 4, "quant_type": 0}
ort("MatMulBnb4", (1, 3), np.array([0x21, 0x0B, 0x01], np.uint8), (2,), **QUARTER)
ort("MatMulBnb4", (1, 2), np.array([0x21, 0x0B, 0x01], np.uint8), (2,), transB=0, **QUARTER)
ort("ConvTransposeWithDynamicPads", (1, 1, 2, 1), (1, 1, 2, 1), ints(1, 0, 0, 0), (1,),
    strides=[2, 1], torch="F.conv_transpose2d({0}, {1}, {3}, (2, 1))[:, :, 1:]")  # fmt: skip
ort("GatherBlockQuantized", BYTE[2, 2], ints(1, -1, 5), (2, 2), BYTE[2, 1], block_size=2)
ort("GatherBlockQuantized", BYTE[2, 2], ints([0]), (2, 1), block_size=16)

ort("SparseToDenseMatMul", (2, 2), (2, 1), alpha=0.5, torch="0.5 * {0} @ {1}")
Q4 = np.concatenate([np.array([0.25], np.float32).view(np.uint8),
                     np.arange(17, dtype=np.uint8) * 15])  # fmt: skip
ort("MatMulFpQ4", (1, 18), Q4, ints(18, 1))
ort("MatMulFpQ4", (1, 2), np.delete(Q4, 4), ints(2, 1), blk_quant_type=0)
ort("NGramRepeatBlock", np.array([[1, 2, 3, 1, 2], [0, 0, 1, 2, 3]]), (2, 4), ngram_size=9)
ort("MaxpoolWithMask", (1, 1, 5), np.array([[[1, 1, 0, 1, 1]]], np.int32), kernel_shape=[2],
    pads=[1, 0], strides=[2])  # fmt: skip
ort("MaxpoolWithMask", numbers(3, -1, 2, 0.5, 1, -2).reshape(1, 1, 2, 3),
    np.array([[[[0, 1, 1], [0, 1, 1]]]], np.int32), kernel_shape=[2, 2])  # fmt: skip
ort("WordConvEmbedding", np.array([[1, 2, 1, 0], [2, 0, 0, 0]], np.int32), (1, 1, 2, 1), (1,),
    (3, 1))  # fmt: skip
CORNERS = numbers(0.125, 0.25, 0.875, 0.75).reshape(1, 4)
ort("CropAndResize", (1, 1, 3, 2), CORNERS, np.array([0], np.int32), np.array([2, 1], np.int32))
ort("VarlenCausalConvWithState", (3, 1), (1, 1, 2), np.array([0, 2, 3], np.int32), (1,),
    (2, 1, 1), outputs=2)  # fmt: skip
ort("VarlenCausalConvWithState", (2, 1), (1, 1, 2), np.array([0, 2], np.int32), (1,),
    (1, 1, 2), dilation=2, activation="silu", outputs=2, second=False)  # fmt: skip
ort("DecoderMaskedMultiHeadAttention", (1, 1, 1), (1, 1, 1), (1, 1, 1), None, None,
    (1, 1, 3, 1), (1, 1, 3, 1), np.array([1], np.int32), num_heads=1, past_present_share_buffer=1,
    outputs=3, second=False)  # fmt: skip
ort("DecoderMaskedMultiHeadAttention", (1, 1, 1), (1, 1, 2, 1), (1, 1, 2, 1), num_heads=1)
ort("MoE", (1, 1), (1, 2), (2, 1, 1), (2, 1), (2, 1, 1), (2, 1), k=1, activation_type="silu",
    second=False)  # fmt: skip
ort("MoE", (1, 2), (1, 2), (2, 1, 2), None, (2, 2, 1), k=2, normalize_routing_weights=1,
    second=False)  # fmt: skip
ort("MoE", (1, 1), (1, 2), (2, 1, 1), None, (2, 1, 1), k=1)
ort("QMoE", (1, 2), (1, 2), BYTE[2, 2].reshape(2, 2, 1), (2, 2), None,
    BYTE[2, 2].reshape(2, 2, 1)[::-1], (2, 2))  # fmt: skip
ort("QMoE", (1, 2), (1, 2), BYTE[2, 2].reshape(2, 2, 1), (2, 2), (2, 2), BYTE[2, 2].reshape(2, 2,
    1)[::-1], (2, 2), k=2, activation_type="identity", second=False)  # fmt: skip
ort("MoEGroupRouter", (1, 4), (4,), top_k=1, n_group=2, topk_group=1, group_topk=2, outputs=3)

script(MS + "Attention",
       "F.scaled_dot_product_attention(*({0} @ {1}).split(2, -1))", (1, 2, 3), (3, 6),
       num_heads=1)  # fmt: skip
script(MS + "MultiHeadAttention", "F.scaled_dot_product_attention({0}, {1}, {2})",
       (1, 2, 2), (1, 3, 2), (1, 3, 2), num_heads=1)  # fmt: skip
script(MS + "GroupQueryAttention",
       "F.scaled_dot_product_attention({0}, {1}, {2}, is_causal=True)", (1, 2, 2), (1, 2, 2),
       (1, 2, 2), None, None, ints(1).astype(np.int32), np.array(2, np.int32), num_heads=1,
       kv_num_heads=1)  # fmt: skip
script(MS + "MaxpoolWithMask", "F.max_pool1d({0}, 2)", (1, 1, 4), np.ones((1, 1, 4), np.int32),
       kernel_shape=[2], strides=[2])  # fmt: skip
script(MS + "DecoderMaskedMultiHeadAttention",
       "F.scaled_dot_product_attention({0}, {1}[0], {2}[0])", (1, 1, 2), (1, 1, 3, 2),
       (1, 1, 3, 2), num_heads=1)  # fmt: skip
script(MS + "WordConvEmbedding",
       "torch.tanh(F.conv2d({3}[{0}].unsqueeze(1), {1}, {2})).amax((2, 3))",
       np.array([[1, 2, 1]], np.int32), (1, 1, 2, 1), (1,), (3, 1))  # fmt: skip
script(MS + "VarlenCausalConvWithState",
       "F.conv1d(torch.cat(({4}, {0}.T.unsqueeze(0)), 2), {1}, {3})[0].T", (3, 1), (1, 1, 2),
       np.array([0, 3], np.int32), (1,), (1, 1, 1), outputs=2, of=(0,))  # fmt: skip
