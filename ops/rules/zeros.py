"""Operators whose derivative is structurally zero, or refused, each with its reason."""

import numpy as np

from ..conventions import CONSTANT, are_zero, convention, kinks, marked
from ..numbers.windows import AUTO_PADS
from ..registry import refuses, zero

NO_FLOATS = "there is no floating input"
NO_TENSOR = "the input or the result is a map, not a tensor"
BITS = "it reads the bits of a number, not its value"

NOT_REAL = frozenset({NO_FLOATS, NO_TENSOR, BITS})
"""The reasons for operators that are not functions of real numbers at all."""

zero(
    NO_FLOATS,
    "Constant", "MatMulInteger", "BitShift", "BitwiseAnd", "BitwiseNot",
    "BitwiseOr", "BitwiseXor", "And", "Or", "Xor", "Not", "RegexFullMatch", "StringConcat",
    "StringNormalizer", "StringSplit", "ImageDecoder",
    "ai.onnx.ml::CategoryMapper",
    *(f"com.microsoft::{name}" for name in (
        "BifurcationDetector", "GatherPacked", "MatMulInteger16", "MulInteger", "NGramHashMapping",
        "ReduceSumInteger", "Tokenizer", "VarlenNGramHashMapping",
    )),
)  # fmt: skip
zero(
    NO_FLOATS, "ConstantOfShape", "BlackmanWindow", "HannWindow", "HammingWindow",
    "TfIdfVectorizer", grows=True,
)  # fmt: skip
zero(NO_FLOATS, "RandomNormal", "RandomUniform", grows=True, random=True)
zero(NO_FLOATS, "ConvInteger", auto_pad=AUTO_PADS, grows=True)
zero(NO_TENSOR, *(f"ai.onnx.ml::{name}" for name in ("CastMap", "DictVectorizer", "ZipMap")))
zero(BITS, "BitCast")
SHAPES = "the result depends on shapes only"
zero(SHAPES, "Shape", "Size")
zero(SHAPES, "EyeLike", grows=True)
zero(SHAPES, "RandomNormalLike", "RandomUniformLike", random=True)
zero(
    "the result is an integer, a truth value or a set of positions",
    "ArgMax", "ArgMin", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "IsInf",
    "IsNaN", "NonZero", "NonMaxSuppression", "SequenceLength", "OptionalHasElement",
    *(f"com.microsoft::{name}" for name in (
        "DynamicTimeWarping", "GreedySearch", "IsAllFinite", "MurmurHash3",
    )),
)  # fmt: skip
zero(
    "the result is piecewise constant",
    "Ceil", "Floor", "Round", "Sign", "Hardmax", "ai.onnx.ml::Binarizer",
)  # fmt: skip
zero("the result is piecewise constant: frequencies are rounded to bins", "MelWeightMatrix",
     grows=True)  # fmt: skip
zero("a drawn sample is a constant, and it is one of few values", "Bernoulli", "Multinomial",
     random=True)  # fmt: skip
zero(
    "the result is piecewise constant: it is looked up by the equality of keys",
    "ai.onnx.ml::LabelEncoder", "ai.onnx.ml::OneHotEncoder",
)  # fmt: skip
zero(
    "the result is piecewise constant: a tree compares with thresholds",
    "ai.onnx.ml::TreeEnsemble", "ai.onnx.ml::TreeEnsembleClassifier",
    "ai.onnx.ml::TreeEnsembleRegressor",
)  # fmt: skip
refuses(
    "the words that it finds are integers, and their scores are values of a subgraph in a loop "
    "whose number of turns depends on the words",
    *(f"com.microsoft::{name}" for name in ("BeamSearch", "Sampling", "WhisperBeamSearch")),
)

# The derivative is 0 on either side of a jump. Whatever a jump selects, like the branch of a Where,
# is differentiated as selected at the point.

kinks("Sign", where="x = 0", given=CONSTANT)(are_zero)
kinks("Floor", "Ceil", where="where x is a whole number", given=CONSTANT)(
    lambda node: marked(node.x == np.floor(node.x))
)
kinks("Round", where="where x is half way between two whole numbers", given=CONSTANT)(
    lambda node: marked(node.x - np.floor(node.x) == 0.5)
)
kinks("Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal",
      where="where both sides are equal", given="0: the choice stays as it is here")(
    lambda node: marked(node.x == np.asarray(node.inputs[1]))
)  # fmt: skip
convention("Sign", "sign(0), sign(1)", ([0.0, 1.0],), ([0.0, 0.0],), CONSTANT)
convention("Round", "round(0.5), round(1.2)", ([0.5, 1.2],), ([0.0, 0.0],), CONSTANT,
           tensorflow="none")  # fmt: skip
convention("Floor", "floor(1), floor(1.2)", ([1.0, 1.2],), ([0.0, 0.0],), CONSTANT,
           tensorflow="none")  # fmt: skip
