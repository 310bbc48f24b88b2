"""Operators that PyTorch calls with arguments of its own: an expression, and the case it is of."""

from __future__ import annotations

from typing import Any

import numpy as np

from .case import Case
from .cases.table import ints, made, numbers, positive

SCRIPTED: dict[str, tuple[str, Case]] = {}
"""domain::op_type -> an expression of the inputs {0}, {1}, ..., and these inputs."""

F = "torch.nn.functional."


def script(op_type: str, expression: str, *inputs: Any, **how: Any) -> None:
    """One script; as for a case, a tuple is the shape of a floating input."""
    (SCRIPTED[op_type],) = ((expression, case) for case in made(op_type, *inputs, **how))


# Elementwise.
script("Shrink", F + "softshrink({0}, 0.5)", numbers(-2, 0.25, 2), lambd=0.5, bias=0.5)
script("Mod", "torch.fmod({0}, {1})", (2,), positive(2), fmod=1)
script("Where", "torch.where({0}, {1}, {2})", np.array([True, False]), (2,), (2,))
script("Clip", "torch.clamp({0}, {1}, {2})", numbers(-3, 0.5, 3), np.array(-1.0), np.array(1.0))
script("Cast", "{0}.double()", (2,), to=11)
script("CastLike", "{0}.type_as({1})", (2,), (1,), wrt=(0,))
script("Dropout", F + "dropout({0}, training=False)", (2, 2))
script("DequantizeLinear", "({0} - {2}) * {1}", ints(3, -7).astype(np.int8), np.array(0.5),
       np.array(2, np.int8))  # fmt: skip
script("SwiGLU", F + "silu({0}) * {1}", (1, 2), (1, 2))

# Moves.
script("Reshape", "{0}.reshape({1}.tolist())", (2, 3), ints(3, 2))
script("Flatten", "torch.flatten({0}, 1)", (2, 1, 3))
script("Squeeze", "{0}.squeeze(0)", (1, 2, 1), ints(0))
script("Unsqueeze", "{0}.unsqueeze(0)", (2,), ints(0))
script("Expand", "{0}.expand({1}.tolist())", (2, 1), ints(2, 3))
script("Tile", "{0}.tile({1}.tolist())", (2, 2), ints(2, 1))
script("Concat", "torch.cat(({0}, {1}), 0)", (1, 2), (2, 2), axis=0)
script("Split", "{0}.split(2)[0]", (3, 2), outputs=2, num_outputs=2, of=(0,))
script("Slice", "{0}[1:3]", (4, 2), ints(1), ints(3))
script("Gather", "{0}.index_select(0, {1})", (3, 2), ints(2, 0, 2))
script("GatherElements", "{0}.gather(1, {1})", (2, 3), ints([1, 0], [2, 1]), axis=1)
script("GatherND", "{0}[tuple({1}.T)]", (2, 2, 2), ints([1, 0], [0, 0]))
script("Compress", "{0}[:, {1}]", (2, 3), np.array([True, False, True]), axis=1)
script("TopK", "{0}.topk(2).values", (2, 3), ints(2), outputs=2, of=(0,))
script("DepthToSpace", "torch.pixel_shuffle({0}, 2)", (1, 4, 1, 2), blocksize=2, mode="CRD")
script("SpaceToDepth", "torch.pixel_unshuffle({0}, 2)", (1, 1, 2, 4), blocksize=2)
script("Trilu", "{0}.triu(1)", (2, 3), np.array(1))
script("Pad", F + "pad({0}, (0, 2, 1, 0), 'reflect')", (1, 3, 3), ints(0, 1, 0, 0, 0, 2),
       mode="reflect")  # fmt: skip
script("ReverseSequence", "{0}.flip(0)", (3, 2), ints(3, 3))
script("OneHot", "torch.where(" + F + "one_hot({0}, 3).bool(), {2}[1], {2}[0])", ints(1, 0),
       np.array(3), (2,))  # fmt: skip
script("ScatterND", "{0}.index_put(({1}[:, 0],), {2})", (3,), ints([2], [0]), (2,))
script("ScatterElements", "{0}.scatter(1, {1}, {2})", (2, 3), ints([0, 2]), (1, 2), axis=1)
script("Scatter", "{0}.scatter(0, {1}, {2})", (2, 2), ints([1, 0]), (1, 2))
script("TensorScatter", "{0}.slice_scatter({1}, 1, 1, 2)", (1, 3, 2), (1, 1, 2), ints(1), axis=1)
script("MaxUnpool", F + "max_unpool1d({0}, {1}, 2, 2)", (1, 1, 2), ints([[1, 2]]),
       kernel_shape=[2], strides=[2])  # fmt: skip
script("Col2Im", F + "fold({0}, (1, 4), (1, 2))", (1, 2, 3), ints(1, 4), ints(1, 2))

# Products and transforms.
script("Einsum", "torch.einsum('ij,jk->ik', {0}, {1})", (2, 2), (2, 2), equation="ij,jk->ik")
script("DFT", "torch.view_as_real(torch.fft.fft({0}[..., 0]))", (1, 4, 1), None, np.array(1))
script("STFT", "torch.view_as_real(torch.stft({0}[..., 0], 4, 2, 4, {2}, center=False, "
       "return_complex=True)).transpose(1, 2)", (1, 6, 1), np.array(2), (4,))  # fmt: skip
script("AffineGrid", F + "affine_grid({0}, (1, 1, 2, 2), align_corners=False)", (1, 2, 3),
       ints(1, 1, 2, 2))  # fmt: skip
script("GridSample", F + "grid_sample({0}, {1}, align_corners=False)", (1, 1, 3, 2),
       numbers(0.3125, -0.6875).reshape(1, 1, 1, 2))  # fmt: skip
script("Resize", F + "interpolate({0}, 5, mode='linear')", (1, 1, 3), None, None, ints(1, 1, 5),
       mode="linear")  # fmt: skip

# Reductions, pools, norms, losses.
script("CumSum", "{0}.cumsum(1)", (2, 3), np.array(1))
script("CumProd", "{0}.cumprod(1)", (2, 3), np.array(1))
script("GlobalLpPool", "{0}.norm(dim=-1, keepdim=True)", (1, 1, 3))
script("MaxPool", F + "max_pool1d({0}, 2, 1)", (1, 1, 5), kernel_shape=[2])
script("AveragePool", F + "avg_pool1d({0}, 2, 1)", (1, 1, 5), kernel_shape=[2])
script("LpPool", F + "lp_pool1d({0}, 2, 2, 1)", (1, 1, 5), kernel_shape=[2])
script("LRN", F + "local_response_norm({0}, 3, 0.5, 0.75, 1.5)", (1, 3, 1), size=3, alpha=0.5,
       beta=0.75, bias=1.5)  # fmt: skip
script("RMSNormalization", F + "rms_norm({0}, {1}.shape, {1}, 0.125)", (2, 3), (3,), epsilon=0.125)
script("InstanceNormalization", F + "instance_norm({0}, weight={1}, bias={2}, eps=0.125)",
       (1, 2, 2), (2,), (2,), epsilon=0.125)  # fmt: skip
script("GroupNormalization", F + "group_norm({0}, 2, {1}, {2}, 0.125)", (1, 2, 2), (2,), (2,),
       num_groups=2, epsilon=0.125)  # fmt: skip
script("BatchNormalization", F + "batch_norm({0}, {3}, {4}, {1}, {2}, eps=0.125)", (1, 2, 2),
       (2,), (2,), (2,), positive(2), epsilon=0.125, wrt=(0, 1, 2))  # fmt: skip
script("MeanVarianceNormalization", "({0} - {0}.mean(0)) / ({0}.std(0, correction=0) + 1e-9)",
       (2, 3), axes=[0])  # fmt: skip
script("LpNormalization", F + "normalize({0}, dim=-1)", (2, 2))
script("NegativeLogLikelihoodLoss", F + "nll_loss({0}, {1}, {2})", (2, 3), ints(0, 2),
       positive(3), wrt=(0,))  # fmt: skip
script("SoftmaxCrossEntropyLoss", F + "cross_entropy({0}, {1}, {2})", (2, 3), ints(0, 2),
       positive(3), wrt=(0,))  # fmt: skip

# Networks of one node.
script("Attention", F + "scaled_dot_product_attention({0}, {1}, {2}, {3})", (1, 1, 2, 2),
       (1, 1, 2, 2), (1, 1, 2, 2), (2, 2))  # fmt: skip
script("ai.onnx.preview::FlexAttention", F + "scaled_dot_product_attention({0}, {1}, {2})",
       (1, 1, 2, 2), (1, 1, 2, 2), (1, 1, 2, 2))  # fmt: skip
script("CausalConvWithState",
       F + "conv1d(torch.cat(({3}, {0}), 2), {1}, {2})", (1, 1, 3), (1, 1, 2), (1,), (1, 1, 1),
       outputs=2, of=(0,))  # fmt: skip
CELL = "True, 1, 0.0, False, False, False)[0].unsqueeze(1)"
script("RNN", "torch.rnn_tanh({0}, {5}, ({1}[0], {2}[0], {3}[0, :2], {3}[0, 2:]), " + CELL,
       (2, 1, 1), (1, 2, 1), (1, 2, 2), (1, 4), None, (1, 1, 2), hidden_size=2, outputs=2,
       of=(0,))  # fmt: skip
script("GRU", "(lambda gates: torch.gru({0}, {5}, ({1}[0][gates], {2}[0][gates], {3}[0, :3][gates],"
       " {3}[0, 3:][gates]), " + CELL + ")([1, 0, 2])", (2, 1, 2), (1, 3, 2), (1, 3, 1), (1, 6),
       None, (1, 1, 1), hidden_size=1, linear_before_reset=1, outputs=2, of=(0,))  # fmt: skip
script("LSTM", "(lambda gates: torch.lstm({0}, ({5}, {6}), ({1}[0][gates], {2}[0][gates], "
       "{3}[0, :4][gates], {3}[0, 4:][gates]), " + CELL + ")([0, 2, 3, 1])", (2, 1, 2), (1, 4, 2),
       (1, 4, 1), (1, 8), None, (1, 1, 1), (1, 1, 1), hidden_size=1, outputs=3,
       of=(0,))  # fmt: skip

# ai.onnx.ml.
script("ai.onnx.ml::Normalizer", F + "normalize({0}, dim=-1)", (2, 3), norm="L2")
script("ai.onnx.ml::LinearRegressor",
       F + "linear({0}, torch.tensor([[0.5, -1.0]]).double(), torch.tensor([0.5]).double())",
       (2, 2), coefficients=[0.5, -1.0], intercepts=[0.5])  # fmt: skip
script("ai.onnx.ml::ArrayFeatureExtractor", "{0}.index_select(-1, {1})", (2, 3), ints(2, 0))
script("ai.onnx.ml::FeatureVectorizer", "torch.cat(({0}, {1}), 1)", (1, 2), (1, 1),
       inputdimensions=[2, 1])  # fmt: skip

# com.microsoft.
script("com.microsoft::Gelu", F + "gelu({0})", (2,))
script("com.microsoft::BiasGelu", F + "gelu({0} + {1})", (2, 2), (2,))
script("com.microsoft::FastGelu", F + "gelu({0} + {1}, approximate='tanh')", (2, 2), (2,))
script("com.microsoft::QuickGelu", "{0} * torch.sigmoid(1.5 * {0})", (2,), alpha=1.5)
script("com.microsoft::FusedMatMul", "0.5 * {0}.mT @ {1}", (2, 2), (2, 2), transA=1, alpha=0.5)
script("com.microsoft::FusedGemm", "torch.relu(torch.addmm({2}, {0}, {1}))", (2, 2), (2, 2), (2,),
       activation="Relu")  # fmt: skip
script("com.microsoft::FusedConv", "torch.relu(torch.conv2d({0}, {1}, {2}))", (1, 1, 2, 3),
       (2, 1, 1, 2), (2,), activation="Relu")  # fmt: skip
script("com.microsoft::SkipLayerNormalization",
       F + "layer_norm({0} + {1}, {2}.shape, {2}, {3}, 0.125)", (1, 1, 3), (1, 1, 3), (3,), (3,),
       epsilon=0.125)  # fmt: skip
for name, given in {"SkipSimplified": 2, "Simplified": 1}.items():
    script(f"com.microsoft::{name}LayerNormalization",
           F + f"rms_norm({' + '.join(('{0}', '{1}')[:given])}, (3,), {{{given}}}, 0.125)",
           *[(1, 1, 3)] * given, (3,), epsilon=0.125)  # fmt: skip
script("com.microsoft::MultiHeadAttention", F + "scaled_dot_product_attention({0}, {1}, {2})",
       (1, 2, 2), (1, 3, 2), (1, 3, 2), num_heads=1)  # fmt: skip
script("com.microsoft::GroupQueryAttention",
       F + "scaled_dot_product_attention({0}, {1}, {2}, is_causal=True)", (1, 2, 2), (1, 2, 2),
       (1, 2, 2), None, None, ints(1).astype(np.int32), np.array(2, np.int32), num_heads=1,
       kv_num_heads=1)  # fmt: skip

UNSCRIPTED = {
    "torchvision has it, PyTorch alone does not": ("DeformConv", "RoiAlign", "MaxRoiPool"),
    "it has no such operator": (
        "RotaryEmbedding", "LinearAttention", "CenterCropPad", "com.microsoft::RotaryEmbedding",
        *(f"ai.onnx.ml::{n}" for n in ("Scaler", "Imputer", "LinearClassifier", "SVMRegressor",
                                       "SVMClassifier")),
    ),
    "its operator has no derivative there": ("Range", "Unique"),
    "its result is rounded, and there it has no operator": ("DynamicQuantizeLinear",),
}  # fmt: skip
"""Why there is no script -> the operators."""
