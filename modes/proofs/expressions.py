"""What an operator is called in PyTorch, with ONNX's defaults."""

from __future__ import annotations

SAME = (
    "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Cos", "Cosh", "Erf", "Exp", "Log",
    "Neg", "Reciprocal", "Sigmoid", "Sin", "Sinh", "Sqrt", "Tan", "Tanh", "Relu", "Det", "MatMul",
    "Add", "Sub", "Mul", "Div", "Pow",
)  # fmt: skip
"""Operators whose name in PyTorch is theirs in small letters."""

TORCH: dict[str, str] = {name: f"torch.{name.lower()}({{all}})" for name in SAME}
TORCH |= {
    "Celu": "torch.celu({0})",
    "Elu": "torch.nn.functional.elu({0})",
    "Gelu": "torch.nn.functional.gelu({0})",
    "Selu": "torch.selu({0})",
    "LeakyRelu": "torch.nn.functional.leaky_relu({0}, 0.01)",
    "Mish": "torch.nn.functional.mish({0})",
    "Softplus": "torch.nn.functional.softplus({0})",
    "Softsign": "torch.nn.functional.softsign({0})",
    "Swish": "torch.nn.functional.silu({0})",
    "HardSigmoid": "torch.clamp(0.2 * {0} + 0.5, 0, 1)",
    "HardSwish": "torch.nn.functional.hardswish({0})",
    "ThresholdedRelu": "torch.nn.functional.threshold({0}, 1.0, 0.0)",
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
    "Conv": "torch.nn.functional.conv1d({all})",
    "ConvTranspose": "torch.nn.functional.conv_transpose1d({all})",
    "Gemm": "{0} @ {1}",
    "LayerNormalization": "torch.nn.functional.layer_norm({0}, {1}.shape, {1}, {2})",
    "GlobalAveragePool": "{0}.mean(-1, keepdim=True)",
    "GlobalMaxPool": "{0}.amax(-1, keepdim=True)",
    "Transpose": "{0}.permute(*reversed(range({0}.ndim)))",
    "Identity": "{0}.clone()",
}
"""op_type -> an expression of the inputs {0}, {1}, ... of its first case."""
