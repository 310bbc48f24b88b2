"""Scripts: the derivative of each operator by PyTorch, method 1 of ONNX's guide to proofs."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np

from ...jacobians.cached import cached_property
from ..linearize import linearize
from .case import Case, ints, node_case, numbers, positive

TEMPLATE = """\
import torch
from torch.autograd.functional import jacobian

{inputs}

def f({names}):
    return {expression}

by_torch = jacobian(f, ({names},))
by_onnxjac = (
{blocks}
)
worst = max(
    (a.reshape(b.shape) - b).abs().max().item() for a, b in zip(by_torch, by_onnxjac)
)
print("greatest difference:", worst)
"""


@dataclass(frozen=True)
class Script:
    """A script, and what it prints."""

    text: str

    @cached_property
    def agreement(self) -> float | None:
        """The greatest difference that the script finds; None where PyTorch is not installed."""
        if find_spec("torch") is None:
            return None
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(self.text, "<script>", "exec"), {})
        return float(printed.getvalue().rpartition(":")[2])


def script_of(op_type: str, domain: str, cases: Sequence[Case]) -> Script | None:
    """The script of an operator; None where PyTorch does not have the operator.

    The script runs a case of its own, else the first case without attributes, else the first case.
    """
    name = f"{domain}::{op_type}" if domain else op_type
    if name in SCRIPTED:
        text, case = SCRIPTED[name]
    elif cases and name in TORCH:
        text, case = TORCH[name], next((c for c in cases if not c.attrs), cases[0])
    else:
        return None
    wrt, of = case.floating(case.wrt), case.results[(case.of or (0,))[0]]
    J = linearize(case.model, case.point, of=of, wrt=wrt, engine="numpy")
    blocks = (tensor(J[of, name].toarray()) for name in wrt)
    return Script(TEMPLATE.format(
        inputs="\n".join(f"{name} = {tensor(x)}" for name, x in case.point.items()),
        names=", ".join(wrt), expression=text.format(*case.names, all=", ".join(case.names)),
        blocks="\n".join(f"    {block}," for block in blocks),
    ))  # fmt: skip


def tensor(x: np.ndarray) -> str:
    """A tensor as an expression of PyTorch; floats have double precision."""
    kind = ", dtype=torch.float64" if x.dtype.kind == "f" else ""
    return f"torch.tensor({x.tolist()}{kind})"


F = "torch.nn.functional."

SAME = (
    "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Cos", "Cosh", "Erf", "Exp", "Log",
    "Neg", "Reciprocal", "Sigmoid", "Sin", "Sinh", "Sqrt", "Tan", "Tanh", "Relu", "MatMul", "Add",
    "Sub", "Mul", "Div", "Pow", "Celu", "Selu", "Where",
)  # fmt: skip
"""Operators that PyTorch calls by the same name, in lower case."""

FUNCTIONAL = ("Elu", "Gelu", "HardSwish", "Mish", "Softplus", "Softsign")
"""Operators that `torch.nn.functional` calls by the same name, in lower case."""

TORCH: dict[str, str] = {
    **{name: f"torch.{name.lower()}({{all}})" for name in SAME},
    **{name: f"{F}{name.lower()}({{all}})" for name in FUNCTIONAL},
    "LeakyRelu": F + "leaky_relu({0}, 0.01)",
    "Swish": F + "silu({0})",
    "HardSigmoid": "torch.clamp(0.2 * {0} + 0.5, 0, 1)",
    "ThresholdedRelu": F + "threshold({0}, 1.0, 0.0)",
    "PRelu": "torch.where({0} > 0, {0}, {1} * {0})",
    "Det": "torch.linalg.det({0})",
    "Max": "torch.maximum({0}, {1})",
    "Min": "torch.minimum({0}, {1})",
    "Sum": "{0} + {1}",
    "Mean": "({0} + {1}) / 2",
    "Softmax": "torch.softmax({0}, -1)",
    "LogSoftmax": "torch.log_softmax({0}, -1)",
    "ReduceSum": "{0}.sum().reshape([1] * {0}.ndim)",
    "ReduceMean": "{0}.mean().reshape([1] * {0}.ndim)",
    "ReduceProd": "{0}.prod().reshape([1] * {0}.ndim)",
    "ReduceMax": "{0}.amax().reshape([1] * {0}.ndim)",
    "ReduceMin": "{0}.amin().reshape([1] * {0}.ndim)",
    "ReduceL1": "{0}.abs().sum().reshape([1] * {0}.ndim)",
    "ReduceL2": "{0}.norm().reshape([1] * {0}.ndim)",
    "ReduceSumSquare": "({0} * {0}).sum().reshape([1] * {0}.ndim)",
    "ReduceLogSum": "{0}.sum().log().reshape([1] * {0}.ndim)",
    "ReduceLogSumExp": "torch.logsumexp({0}.ravel(), 0).reshape([1] * {0}.ndim)",
    "Conv": F + "conv1d({all})",
    "ConvTranspose": F + "conv_transpose1d({all})",
    "Gemm": "{0} @ {1}",
    "LayerNormalization": F + "layer_norm({0}, {1}.shape, {1}, {2})",
    "GlobalAveragePool": "{0}.mean(-1, keepdim=True)",
    "GlobalMaxPool": "{0}.amax(-1, keepdim=True)",
    "Transpose": "{0}.permute(*reversed(range({0}.ndim)))",
    "Identity": "{0}.clone()",
    "Clip": "torch.clamp({all})",
    "Dropout": F + "dropout({0}, training=False)",
    "DequantizeLinear": "({0} - {2}) * {1}",
    "SwiGLU": F + "silu({0}) * {1}",
    "Reshape": "{0}.reshape({1}.tolist())",
    "Squeeze": "{0}.squeeze(0)",
    "Tile": "{0}.tile({1}.tolist())",
    "Concat": "torch.cat(({all}), 0)",
    "Split": "{0}.split(2)[0]",
    "TopK": "{0}.topk(2).values",
    "SpaceToDepth": "torch.pixel_unshuffle({0}, 2)",
    "Trilu": "{0}.triu(1)",
    "Scatter": "{0}.scatter(0, {1}, {2})",
    "MaxUnpool": F + "max_unpool1d({0}, {1}, 2, 2)",
    "Col2Im": F + "fold({0}, (1, 4), (1, 2))",
    "Einsum": "torch.einsum('ij,jk->ik', {0}, {1})",
    "DFT": "torch.view_as_real(torch.fft.fft({0}[..., 0]))",
    "STFT": "torch.view_as_real(torch.stft({0}[..., 0], 4, 2, 4, {2}, center=False, "
            "return_complex=True)).transpose(1, 2)",
    "AffineGrid": F + "affine_grid({0}, (1, 1, 2, 2), align_corners=False)",
    "GlobalLpPool": "{0}.norm(dim=-1, keepdim=True)",
    "MaxPool": F + "max_pool1d({0}, 2, 1)",
    "AveragePool": F + "avg_pool1d({0}, 2, 1)",
    "LpPool": F + "lp_pool1d({0}, 2, 2, 1)",
    "LRN": F + "local_response_norm({0}, 3, 0.5, 0.75, 1.5)",
    "InstanceNormalization": F + "instance_norm({0}, weight={1}, bias={2}, eps=0.125)",
    "GroupNormalization": F + "group_norm({0}, 2, {1}, {2}, 0.125)",
    "LpNormalization": F + "normalize({0}, dim=-1)",
    "Mod": "torch.fmod({0}, {1})",
    "Cast": "{0}.double()",
    "CastLike": "{0}.type_as({1})",
    "Flatten": "torch.flatten({0}, 0, 1)",
    "Unsqueeze": "{0}[None, :, None]",
    "Expand": "{0}.expand(2, 2, 3)",
    "Gather": "{0}[{1}]",
    "GatherND": "{0}[tuple({1}.T)]",
    "Compress": "{0}.ravel()[:3][{1}]",
    "ScatterND": "{0}.index_put(({1}[:, 0],), {2})",
    "GridSample": F + "grid_sample({0}, {1}, align_corners=False)",
    "CumSum": "{0}.cumsum(-1)",
    "CumProd": "{0}.cumprod(-1)",
    "RMSNormalization": F + "rms_norm({0}, {1}.shape, {1}, 1e-5)",
    "Attention": F + "scaled_dot_product_attention({all})",
    "CausalConvWithState": F + "conv1d(torch.cat(({3}, {0}), 2), {1}, {2})",
    "ai.onnx.preview::FlexAttention": F + "scaled_dot_product_attention({all})",
    "ai.onnx.ml::Normalizer": F + "normalize({0}, 1, -1)",
    "ai.onnx.ml::LinearRegressor":
        F + "linear({0}, torch.tensor([[0.5, -1.0]]).double(), torch.tensor([0.5]).double())",
    "ai.onnx.ml::ArrayFeatureExtractor": "{0}.index_select(-1, {1})",
    "ai.onnx.ml::FeatureVectorizer": "torch.cat(({all}), 1)",
    "com.microsoft::Gelu": F + "gelu({0})",
    "com.microsoft::FastGelu": F + "gelu({0}, approximate='tanh')",
    "com.microsoft::QuickGelu": "{0} * torch.sigmoid(1.702 * {0})",
    "com.microsoft::ScaledSiLU": F + "silu({1} * {0})",
    "com.microsoft::SampleOp": "{0}.clone()",
    "com.microsoft::UnfoldTensor": "{0}.unfold(1, 3, 2)",
    "com.microsoft::FusedMatMul": "{0} @ {1}",
    "com.microsoft::TransposeMatMul": "0.5 * {0}.mT @ {1}.mT",
    "com.microsoft::SparseToDenseMatMul": "0.5 * {0} @ {1}",
    "com.microsoft::ExpandDims": "{0}.unsqueeze(0)",
    "com.microsoft::CDist": "torch.cdist({0}, {1}) ** 2",
    "com.microsoft::GridSample": F + "grid_sample({0}, {1}, align_corners=False)",
    "com.microsoft::FusedGemm": "torch.addmm({2}, {0}.mT, {1}, alpha=0.5)",
    "com.microsoft::SkipLayerNormalization":
        F + "layer_norm({0} + {1} + {4}, (2,), {2}, {3}, 0.125)",
    "com.microsoft::SkipSimplifiedLayerNormalization":
        F + "rms_norm({0} + {1} + {3}, (2,), {2}, 0.125)",
    "com.microsoft::SimplifiedLayerNormalization": F + "rms_norm({0}, (2,), {1}, 0.125)",
    "com.microsoft::EmbedLayerNormalization":
        F + "layer_norm({2}[{0}] + {3}[:2] + {4}[{1}], (2,), {5}, {6}, 0.125)",
    "com.microsoft::MatMulNBits": "{0} @ ((torch.tensor([[1, 2, 3], [8, 15, 5]]).double() - 8) "
                                  "* {2}.repeat_interleave(2, 1)[:, :3]).mT",
    "com.microsoft::MatMulIntegerToFloat":
        "(({0}.double() - {4}) * {2}) @ (({1}.double() - {5}) * {3}) + {6}",
    "com.microsoft::GatedRMSNorm":
        F + "rms_norm({0}.view(1, 2, 2), (2,), {1}, 0.125).view(1, 4) * " + F + "silu({2})",
    "com.microsoft::BranchwiseRMSNorm": F + "rms_norm({0}, (2,), {1}, 0.125)",
    "com.microsoft::HyperConnectionPreMix": "0.5 * ({0} * {1}.unsqueeze(-1)).sum(-2)",
    "com.microsoft::CausalConvWithState":
        F + "conv1d(torch.cat(({3}, {0}), 2), {1}, {2}, dilation=2)",
    "com.microsoft::ConvTransposeWithDynamicPads":
        F + "conv_transpose2d({0}, {1}, {3}, (2, 1))[:, :, 1:]",
    "com.microsoft::BiasGelu": F + "gelu({0} + {1})",
    "com.microsoft::FusedConv": "torch.relu(torch.conv2d({all}))",
    "com.microsoft::GatedAdd": "{0} + {1} * {2}",
    "com.microsoft::Inverse": "torch.linalg.inv({0})",
    "com.microsoft::HyperConnectionPostMix": "{3}.mT @ {0} + {2}.unsqueeze(-1) * {1}.unsqueeze(-2)",
    "com.microsoft::LinearAttentionGate": "{2} * " + F + "softplus({0} + {1})",
}  # fmt: skip
"""domain::op_type -> an expression of the inputs {0}, {1}, ..., or {all}, of a proof's case."""

SCRIPTED: dict[str, tuple[str, Case]] = {}
"""domain::op_type -> an expression of the inputs {0}, {1}, ..., and a case of its own."""


def script(op_type: str, expression: str, *inputs: Any, **how: Any) -> None:
    """Register one script; as for a case, a tuple is the shape of a floating input."""
    SCRIPTED[op_type] = expression, node_case(op_type, *inputs, **how)


# Elementwise.
script("Shrink", F + "softshrink({0}, 0.5)", numbers(-2, 0.25, 2), lambd=0.5, bias=0.5)

# Moves.
script("Slice", "{0}[1:3]", (4, 2), ints(1), ints(3))
script("GatherElements", "{0}.gather(1, {1})", (2, 3), ints([1, 0], [2, 1]), axis=1)
script("DepthToSpace", "torch.pixel_shuffle({0}, 2)", (1, 4, 1, 2), blocksize=2, mode="CRD")
script("Pad", F + "pad({0}, (0, 2, 1, 0), 'reflect')", (1, 3, 3), ints(0, 1, 0, 0, 0, 2),
       mode="reflect")  # fmt: skip
script("ReverseSequence", "{0}.flip(0)", (3, 2), ints(3, 3))
script("OneHot", "torch.where(" + F + "one_hot({0}, 3).bool(), {2}[1], {2}[0])", ints(1, 0),
       np.array(3), (2,))  # fmt: skip
script("ScatterElements", "{0}.scatter(1, {1}, {2})", (2, 3), ints([0, 2]), (1, 2), axis=1)
script("TensorScatter", "{0}.slice_scatter({1}, 1, 1, 2)", (1, 3, 2), (1, 1, 2), ints(1), axis=1)

# Products and transforms.
script("Resize", F + "interpolate({0}, 5, mode='linear')", (1, 1, 3), None, None, ints(1, 1, 5),
       mode="linear")  # fmt: skip

# Reductions, pools, norms, losses.
script("BatchNormalization", F + "batch_norm({0}, {3}, {4}, {1}, {2}, eps=0.125)", (1, 2, 2),
       (2,), (2,), (2,), positive(2), epsilon=0.125, wrt=(0, 1, 2))  # fmt: skip
script("MeanVarianceNormalization", "({0} - {0}.mean(0)) / ({0}.std(0, correction=0) + 1e-9)",
       (2, 3), axes=[0])  # fmt: skip
script("NegativeLogLikelihoodLoss", F + "nll_loss({0}, {1}, {2})", (2, 3), ints(0, 2),
       positive(3), wrt=(0,))  # fmt: skip
script("SoftmaxCrossEntropyLoss", F + "cross_entropy({0}, {1}, {2})", (2, 3), ints(0, 2),
       positive(3), wrt=(0,))  # fmt: skip

# Networks of one node.
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

# com.microsoft.
script("com.microsoft::MaxpoolWithMask", F + "max_pool1d({0}, 2)", (1, 1, 4),
       np.ones((1, 1, 4), np.int32), kernel_shape=[2], strides=[2])  # fmt: skip
script("com.microsoft::DecoderMaskedMultiHeadAttention",
       F + "scaled_dot_product_attention({0}, {1}[0], {2}[0])", (1, 1, 2), (1, 1, 3, 2),
       (1, 1, 3, 2), num_heads=1)  # fmt: skip
script("com.microsoft::Attention",
       F + "scaled_dot_product_attention(*({0} @ {1}).split(2, -1))", (1, 2, 3), (3, 6),
       num_heads=1)  # fmt: skip
script("com.microsoft::MultiHeadAttention", F + "scaled_dot_product_attention({0}, {1}, {2})",
       (1, 2, 2), (1, 3, 2), (1, 3, 2), num_heads=1)  # fmt: skip
script("com.microsoft::GroupQueryAttention",
       F + "scaled_dot_product_attention({0}, {1}, {2}, is_causal=True)", (1, 2, 2), (1, 2, 2),
       (1, 2, 2), None, None, ints(1).astype(np.int32), np.array(2, np.int32), num_heads=1,
       kv_num_heads=1)  # fmt: skip
