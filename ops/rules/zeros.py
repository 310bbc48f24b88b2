"""Operators whose derivative is structurally zero, or refused, each with its reason."""

from ..numbers.windows import AUTO_PADS
from ..registry import refuses, zero

NO_FLOATS = "there is no floating input"
NO_TENSOR = "the input or the result is a map, not a tensor"
BITS = "it reads the bits of a number, not its value"

NOT_REAL = frozenset({NO_FLOATS, NO_TENSOR, BITS})
"""The reasons for operators that are not functions of real numbers at all."""

zero(
    NO_FLOATS,
    "Constant", "ConstantOfShape", "RandomNormal", "RandomUniform", "BlackmanWindow", "HannWindow",
    "HammingWindow", "MatMulInteger", "BitShift", "BitwiseAnd", "BitwiseNot",
    "BitwiseOr", "BitwiseXor", "And", "Or", "Xor", "Not", "RegexFullMatch", "StringConcat",
    "StringNormalizer", "StringSplit", "ImageDecoder", "TfIdfVectorizer",
    "ai.onnx.ml::CategoryMapper",
    *(f"com.microsoft::{name}" for name in (
        "BifurcationDetector", "GatherPacked", "MatMulInteger16", "MulInteger", "NGramHashMapping",
        "ReduceSumInteger", "Tokenizer", "VarlenNGramHashMapping",
    )),
)  # fmt: skip
zero(NO_FLOATS, "ConvInteger", auto_pad=AUTO_PADS)
zero(NO_TENSOR, *(f"ai.onnx.ml::{name}" for name in ("CastMap", "DictVectorizer", "ZipMap")))
zero(BITS, "BitCast")
zero(
    "the result depends on shapes only",
    "Shape", "Size", "EyeLike", "RandomNormalLike", "RandomUniformLike",
)  # fmt: skip
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
zero("the result is piecewise constant: frequencies are rounded to bins", "MelWeightMatrix")
zero("a drawn sample is a constant, and it is one of few values", "Bernoulli", "Multinomial")
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

