"""Operators whose derivative is structurally zero, each with its reason."""

from .registry import zero

zero(
    "the result depends on shapes only",
    "Shape", "Size", "ConstantOfShape", "EyeLike", "RandomNormalLike", "RandomUniformLike",
)  # fmt: skip
zero(
    "there is no floating input",
    "Constant", "RandomNormal", "RandomUniform", "BlackmanWindow", "HannWindow", "HammingWindow",
    "MelWeightMatrix", "MatMulInteger", "ConvInteger", "BitShift", "BitwiseAnd", "BitwiseNot",
    "BitwiseOr", "BitwiseXor", "And", "Or", "Xor", "Not", "RegexFullMatch", "StringConcat",
    "StringNormalizer", "StringSplit", "ImageDecoder", "TfIdfVectorizer",
)  # fmt: skip
zero(
    "the result is an integer, a truth value or a set of positions",
    "ArgMax", "ArgMin", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "IsInf",
    "IsNaN", "NonZero", "NonMaxSuppression", "Multinomial", "SequenceLength", "OptionalHasElement",
)  # fmt: skip
zero(
    "the result is piecewise constant",
    "Ceil", "Floor", "Round", "Sign", "Hardmax", "Bernoulli",
)  # fmt: skip
