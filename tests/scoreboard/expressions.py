"""What a user of JAX and of TensorFlow writes for an operator of ONNX, at its script's case.

{0}, {1} ... are the inputs, {all} all of them. An expression is compared only where its value is
the operator's. A word with capitals stands for operators that differ by their name alone.
"""

from __future__ import annotations

WHOLE = ".reshape([1] * {0}.ndim)"

JAX: dict[str, str] = {}
"""domain::op_type -> an expression of jnp, nn (jax.nn), lax, linalg (jnp.linalg) and special
(jax.scipy.special)."""

TENSORFLOW: dict[str, str] = {}
"""domain::op_type -> an expression of tf."""


def enter(table: dict[str, str], names: str, text: str) -> None:
    """An expression for each operator of a list, `{name}` in lower case."""
    for name in names.split():
        table[name] = text.replace("{name}", name.rpartition("::")[2].lower())


# -- JAX -------------------------------------------------------------------------------------------

for names, text in {
    "Abs Exp Sin Cos Tan Sinh Cosh Tanh Sqrt Log Reciprocal": "jnp.{name}({0})",
    "Asin Acos Atan Asinh Acosh Atanh": "jnp.arc{tail}({0})",
    "Neg": "jnp.negative({0})",
    "Erf": "special.erf({0})",
    "Relu Sigmoid Celu Selu Elu Softplus Mish": "nn.{name}({0})",
    "Softsign": "nn.soft_sign({0})",
    "Swish": "nn.silu({0})",
    "Gelu com.microsoft::Gelu": "nn.gelu({0}, approximate=False)",
    "com.microsoft::FastGelu": "nn.gelu({0}, approximate=True)",
    "com.microsoft::BiasGelu": "nn.gelu({0} + {1}, approximate=False)",
    "com.microsoft::QuickGelu": "{0} * nn.sigmoid(1.702 * {0})",
    "com.microsoft::ScaledSiLU": "nn.silu({1} * {0})",
    "LeakyRelu": "nn.leaky_relu({0}, 0.01)",
    "HardSigmoid": "jnp.clip(0.2 * {0} + 0.5, 0, 1)",
    "HardSwish": "nn.hard_swish({0})",
    "ThresholdedRelu": "jnp.where({0} > 1, {0}, 0)",
    "Shrink": "jnp.sign({0}) * jnp.maximum(jnp.abs({0}) - 0.5, 0)",
    "PRelu": "jnp.where({0} > 0, {0}, {1} * {0})",
    "Add": "jnp.add({all})", "Sub": "jnp.subtract({all})", "Mul": "jnp.multiply({all})",
    "Div": "jnp.divide({all})", "Pow": "jnp.power({all})", "Mod": "jnp.fmod({all})",
    "Max": "jnp.maximum({all})", "Min": "jnp.minimum({all})", "Sum": "{0} + {1}",
    "Mean": "jnp.mean(jnp.stack([{all}]), 0)",
    "Where": "jnp.where({all})", "Clip": "jnp.clip({all})", "Identity": "jnp.copy({0})",
    "Cast": "{0}.astype(jnp.float64)", "CastLike": "{0}.astype({1}.dtype)",
    "Reshape": "jnp.reshape({0}, {1})", "Flatten": "{0}.reshape(-1, {0}.shape[-1])",
    "Squeeze": "jnp.squeeze({0}, 0)", "Unsqueeze": "jnp.expand_dims({0}, (0, 2))",
    "Transpose": "jnp.transpose({0})", "Expand": "jnp.broadcast_to({0}, (2, 2, 3))",
    "Tile": "jnp.tile({0}, {1})", "Concat": "jnp.concatenate([{all}], 0)",
    "Split": "jnp.split({0}, [2])[0]", "Slice": "{0}[1:3]", "Gather": "jnp.take({0}, {1}, 0)",
    "GatherElements": "jnp.take_along_axis({0}, {1}, 1)", "GatherND": "{0}[tuple({1}.T)]",
    "Compress": "{0}.ravel()[:3][{1}]", "TopK": "lax.top_k({0}, 2)[0]",
    "Trilu": "jnp.triu({0}, 1)", "Pad": "jnp.pad({0}, ((0, 0), (1, 0), (0, 2)), 'reflect')",
    "ReverseSequence": "jnp.flip({0}, 0)",
    "OneHot": "jnp.where(nn.one_hot({0}, 3) > 0, {2}[1], {2}[0])",
    "Scatter": "jnp.put_along_axis({0}, {1}, {2}, 0, inplace=False)",
    "ScatterElements": "jnp.put_along_axis({0}, {1}, {2}, 1, inplace=False)",
    "ScatterND": "{0}.at[{1}[:, 0]].add({2})",
    "TensorScatter": "lax.dynamic_update_slice({0}, {1}, (0, 1, 0))",
    "MatMul": "jnp.matmul({all})", "Gemm": "{0} @ {1}",
    "Einsum": "jnp.einsum('ij,jk->ik', {all})",
    "Conv": "lax.conv_general_dilated({0}, {1}, (1,), 'VALID') + {2}[None, :, None]",
    "ConvTranspose": "lax.conv_general_dilated({0}, jnp.flip({1}, -1).swapaxes(0, 1), (1,), "
                     "[(1, 1)]) + {2}[None, :, None]",
    "Det": "linalg.det({0})", "com.microsoft::Inverse": "linalg.inv({0})",
    "DFT": "(lambda z: jnp.stack([z.real, z.imag], -1))(jnp.fft.fft({0}[..., 0]))",
    "STFT": "(lambda z: jnp.stack([z.real, z.imag], -1))"
            "(jnp.fft.rfft(jnp.stack([{0}[:, k:k + 4, 0] * {2} for k in (0, 2)], 1)))",
    "ReduceSum": "jnp.sum({0})" + WHOLE, "ReduceMean": "jnp.mean({0})" + WHOLE,
    "ReduceMax": "jnp.max({0})" + WHOLE, "ReduceMin": "jnp.min({0})" + WHOLE,
    "ReduceProd": "jnp.prod({0})" + WHOLE, "ReduceSumSquare": "jnp.sum(jnp.square({0}))" + WHOLE,
    "ReduceL1": "jnp.sum(jnp.abs({0}))" + WHOLE,
    "ReduceL2": "linalg.norm({0}.ravel())" + WHOLE,
    "ReduceLogSumExp": "special.logsumexp({0})" + WHOLE,
    "ReduceLogSum": "jnp.log(jnp.sum({0}))" + WHOLE,
    "CumSum": "jnp.cumsum({0}, -1)", "CumProd": "jnp.cumprod({0}, -1)",
    "GlobalAveragePool": "jnp.mean({0}, -1, keepdims=True)",
    "GlobalMaxPool": "jnp.max({0}, -1, keepdims=True)",
    "GlobalLpPool": "linalg.norm({0}, axis=-1, keepdims=True)",
    "MaxPool": "lax.reduce_window({0}, -jnp.inf, lax.max, (1, 1, 2), (1, 1, 1), 'VALID')",
    "AveragePool": "lax.reduce_window({0}, 0., lax.add, (1, 1, 2), (1, 1, 1), 'VALID') / 2",
    "LpPool": "jnp.sqrt(lax.reduce_window({0} ** 2, 0., lax.add, (1, 1, 2), (1, 1, 1), 'VALID'))",
    "com.microsoft::MaxpoolWithMask":
        "lax.reduce_window({0}, -jnp.inf, lax.max, (1, 1, 2), (1, 1, 2), 'VALID')",
    "LRN": "{0} / (1.5 + 0.5 / 3 * lax.reduce_window({0} ** 2, 0., lax.add, (1, 3, 1), "
           "(1, 1, 1), 'SAME')) ** 0.75",
    "Softmax": "nn.softmax({0}, -1)", "LogSoftmax": "nn.log_softmax({0}, -1)",
    "LayerNormalization": "nn.standardize({0}, -1, epsilon=1e-5) * {1} + {2}",
    "RMSNormalization": "{0} * lax.rsqrt(jnp.mean({0} ** 2, -1, keepdims=True) + 1e-5) * {1}",
    "InstanceNormalization":
        "nn.standardize({0}, -1, epsilon=0.125) * {1}[:, None] + {2}[:, None]",
    "GroupNormalization": "nn.standardize({0}, -1, epsilon=0.125) * {1}[:, None] + {2}[:, None]",
    "BatchNormalization": "({0} - {3}[:, None]) * lax.rsqrt({4}[:, None] + 0.125) * {1}[:, None] "
                          "+ {2}[:, None]",
    "MeanVarianceNormalization": "({0} - jnp.mean({0}, 0)) / (jnp.std({0}, 0) + 1e-9)",
    "LpNormalization": "{0} / linalg.norm({0}, axis=-1, keepdims=True)",
    "ai.onnx.ml::Normalizer": "{0} / jnp.sum(jnp.abs({0}), -1, keepdims=True)",
    "NegativeLogLikelihoodLoss": "-jnp.sum({0}[jnp.arange(2), {1}] * {2}[{1}]) / jnp.sum({2}[{1}])",
    "SoftmaxCrossEntropyLoss": "-jnp.sum(nn.log_softmax({0})[jnp.arange(2), {1}] * {2}[{1}]) "
                               "/ jnp.sum({2}[{1}])",
    "Attention": "nn.dot_product_attention(*(x.swapaxes(1, 2) for x in ({0}, {1}, {2})), "
                 "bias={3}[None, None]).swapaxes(1, 2)",
    "ai.onnx.preview::FlexAttention":
        "nn.dot_product_attention(*(x.swapaxes(1, 2) for x in ({0}, {1}, {2}))).swapaxes(1, 2)",
    "com.microsoft::MultiHeadAttention":
        "nn.dot_product_attention(*(x[:, :, None] for x in ({0}, {1}, {2})))[:, :, 0]",
    "com.microsoft::GroupQueryAttention":
        "nn.dot_product_attention(*(x[:, :, None] for x in ({0}, {1}, {2})), "
        "is_causal=True)[:, :, 0]",
    "SwiGLU": "nn.silu({0}) * {1}",
    "Resize": "jax.image.resize({0}, (1, 1, 5), 'linear')",
    "com.microsoft::CDist": "jnp.sum(({0}[:, None] - {1}[None]) ** 2, -1)",
    "com.microsoft::FusedMatMul": "{0} @ {1}",
    "com.microsoft::TransposeMatMul": "0.5 * {0}.mT @ {1}.mT",
}.items():  # fmt: skip
    for name in names.split():
        enter(JAX, name, text.replace("{tail}", name[1:].lower()))

# -- TensorFlow ------------------------------------------------------------------------------------

TF_WHOLE = "tf.reshape({value}, [1] * len({0}.shape))"
CHANNELS = "tf.transpose({value}, [0, 2, 1])"


def whole(value: str) -> str:
    """A number with as many axes of length 1 as the input has."""
    return TF_WHOLE.replace("{value}", value)


def normalised(axis: int) -> str:
    """The input with mean 0 and variance 1 along an axis, with tf.nn.moments."""
    return (f"(lambda m: tf.nn.batch_normalization({{0}}, *m, {{2}}, {{1}}, 0.125))"
            f"(tf.nn.moments({{0}}, [{axis}], keepdims=True))")  # fmt: skip


for names, text in {
    "Abs Exp Sin Cos Tan Sinh Cosh Tanh Sqrt Log Asin Acos Atan Asinh Acosh Atanh Erf Reciprocal":
        "tf.math.{name}({0})",
    "Neg": "tf.math.negative({0})",
    "Relu Sigmoid Selu Elu Softplus Softsign": "tf.nn.{name}({0})",
    "Swish": "tf.nn.silu({0})",
    "Gelu com.microsoft::Gelu": "tf.nn.gelu({0})",
    "com.microsoft::FastGelu": "tf.nn.gelu({0}, approximate=True)",
    "com.microsoft::BiasGelu": "tf.nn.gelu({0} + {1})",
    "com.microsoft::QuickGelu": "{0} * tf.sigmoid(1.702 * {0})",
    "com.microsoft::ScaledSiLU": "tf.nn.silu({1} * {0})",
    "Mish": "{0} * tf.tanh(tf.nn.softplus({0}))",
    "LeakyRelu": "tf.nn.leaky_relu({0}, 0.01)",
    "HardSigmoid": "tf.clip_by_value(0.2 * {0} + 0.5, 0, 1)",
    "HardSwish": "{0} * tf.nn.relu6({0} + 3) / 6",
    "ThresholdedRelu": "tf.where({0} > 1, {0}, 0)",
    "PRelu": "tf.where({0} > 0, {0}, {1} * {0})",
    "Add": "tf.add({all})", "Sub": "tf.subtract({all})", "Mul": "tf.multiply({all})",
    "Div": "tf.divide({all})", "Pow": "tf.pow({all})", "Mod": "tf.truncatemod({all})",
    "Max": "tf.maximum({all})", "Min": "tf.minimum({all})", "Sum": "tf.add_n([{all}])",
    "Mean": "tf.reduce_mean(tf.stack([{all}]), 0)", "Where": "tf.where({all})",
    "Clip": "tf.clip_by_value({all})", "Identity": "tf.identity({0})",
    "Cast": "tf.cast({0}, tf.float64)", "Reshape": "tf.reshape({0}, {1})",
    "Flatten": "tf.reshape({0}, [-1, {0}.shape[-1]])", "Squeeze": "tf.squeeze({0}, 0)",
    "Unsqueeze": "tf.expand_dims(tf.expand_dims({0}, 0), 2)", "Transpose": "tf.transpose({0})",
    "Expand": "tf.broadcast_to({0}, (2, 2, 3))", "Tile": "tf.tile({0}, {1})",
    "Concat": "tf.concat([{all}], 0)", "Split": "tf.split({0}, [2, 1])[0]", "Slice": "{0}[1:3]",
    "Gather": "tf.gather({0}, tf.where({1} < 0, {1} + 3, {1}))",
    "GatherElements": "tf.experimental.numpy.take_along_axis({0}, {1}, 1)",
    "GatherND": "tf.gather_nd({0}, [[1, 1], [0, 0]])", "TopK": "tf.math.top_k({0}, 2)[0]",
    "Trilu": "tf.linalg.set_diag(tf.linalg.band_part({0}, 0, -1), tf.zeros(2, tf.float64))",
    "Pad": "tf.pad({0}, ((0, 0), (1, 0), (0, 2)), 'REFLECT')",
    "ReverseSequence": "tf.reverse_sequence({0}, {1}, 0, 1)",
    "ScatterND": "tf.tensor_scatter_nd_add({0}, {1}, {2})",
    "MatMul": "tf.tensordot({0}, {1}, 1)", "Gemm": "tf.matmul({0}, {1})",
    "Einsum": "tf.einsum('ij,jk->ik', {all})",
    "Conv": CHANNELS.replace("{value}", "tf.nn.conv1d(tf.transpose({0}, [0, 2, 1]), "
            "tf.transpose({1}, [2, 1, 0]), 1, 'VALID') + {2}"),
    "Det": "tf.linalg.det({0})", "com.microsoft::Inverse": "tf.linalg.inv({0})",
    "DFT": "(lambda z: tf.stack([tf.math.real(z), tf.math.imag(z)], -1))"
           "(tf.signal.fft(tf.cast({0}[..., 0], tf.complex128)))",
    "STFT": "(lambda z: tf.stack([tf.math.real(z), tf.math.imag(z)], -1))"
            "(tf.signal.stft({0}[..., 0], 4, 2, window_fn=lambda *_, dtype: {2}))",
    "ReduceSum": whole("tf.reduce_sum({0})"), "ReduceMean": whole("tf.reduce_mean({0})"),
    "ReduceMax": whole("tf.reduce_max({0})"), "ReduceMin": whole("tf.reduce_min({0})"),
    "ReduceProd": whole("tf.reduce_prod({0})"),
    "ReduceSumSquare": whole("tf.reduce_sum(tf.square({0}))"),
    "ReduceL1": whole("tf.norm({0}, 1)"), "ReduceL2": whole("tf.norm({0})"),
    "ReduceLogSumExp": whole("tf.reduce_logsumexp({0})"),
    "ReduceLogSum": whole("tf.math.log(tf.reduce_sum({0}))"),
    "CumSum": "tf.cumsum({0}, -1)", "CumProd": "tf.math.cumprod({0}, -1)",
    "GlobalAveragePool": "tf.reduce_mean({0}, -1, keepdims=True)",
    "GlobalMaxPool": "tf.reduce_max({0}, -1, keepdims=True)",
    "GlobalLpPool": "tf.norm({0}, axis=-1, keepdims=True)",
    "MaxPool": CHANNELS.replace("{value}", "tf.nn.max_pool1d(tf.transpose({0}, [0, 2, 1]), 2, 1, "
                                "'VALID')"),
    "AveragePool": CHANNELS.replace("{value}", "tf.nn.avg_pool1d(tf.transpose({0}, [0, 2, 1]), 2, "
                                    "1, 'VALID')"),
    "Softmax": "tf.nn.softmax({0}, -1)", "LogSoftmax": "tf.nn.log_softmax({0}, -1)",
    "LayerNormalization": normalised(-1).replace("0.125", "1e-5"),
    "InstanceNormalization GroupNormalization":
        normalised(-1).replace("{2}, {1}", "{2}[:, None], {1}[:, None]"),
    "BatchNormalization": "tf.nn.batch_normalization({0}, {3}[:, None], {4}[:, None], "
                          "{2}[:, None], {1}[:, None], 0.125)",
    "RMSNormalization":
        "{0} * tf.math.rsqrt(tf.reduce_mean({0} ** 2, -1, keepdims=True) + 1e-5) * {1}",
    "MeanVarianceNormalization":
        "({0} - tf.reduce_mean({0}, 0)) / (tf.math.reduce_std({0}, 0) + 1e-9)",
    "LpNormalization": "tf.math.l2_normalize({0}, -1)",
    "ai.onnx.ml::Normalizer": "{0} / tf.norm({0}, 1, -1, keepdims=True)",
    "SwiGLU": "tf.nn.silu({0}) * {1}",
    "com.microsoft::FusedMatMul": "tf.matmul({0}, {1})",
}.items():  # fmt: skip
    enter(TENSORFLOW, names, text)
