"""Operators of `ai.onnx.ml` that compute with floats."""

from itertools import product

from .table import case, ints, numbers

ML = "ai.onnx.ml::"
POSTS = ("NONE", "LOGISTIC", "SOFTMAX")

case(ML + "Scaler", (2, 2), offset=[0.5, -1.0], scale=[2.0, 0.25])
case(
    ML + "Imputer",
    numbers(1.5, -0.5).reshape(1, 2),
    imputed_value_floats=[0.25],
    replaced_value_float=0.0,
)
case(ML + "ArrayFeatureExtractor", (2, 3), ints(2, 0))
case(ML + "FeatureVectorizer", (1, 2), (1, 1), inputdimensions=[2, 1])
for norm in ("L1", "L2", "MAX"):
    case(ML + "Normalizer", numbers(0.5, 1.75, 0.25).reshape(1, 3), norm=norm)
PLAIN = {"coefficients": [0.5, -1.0], "intercepts": [0.5]}
case(ML + "LinearRegressor", (1, 2), **PLAIN)
case(ML + "LinearRegressor", (2, 2), **PLAIN)
WHOLE = {"coefficients": [0.5, -1.0, 0.25, 2.0], "intercepts": [0.5, 1.0]}
LABELS = {"outputs": 2, "of": (1,), "classlabels_ints": [0, 1]}
for post in POSTS:
    case(ML + "LinearRegressor", (1, 2), targets=2, post_transform=post, second=post == "NONE",
         **WHOLE)  # fmt: skip
    case(ML + "LinearClassifier", (1, 2), post_transform=post, **WHOLE, **LABELS)

KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")
PAIR = {"coefficients": [0.5, -1.0], "support_vectors": [1.0, 0.5, -0.25, 2.0], "rho": [0.75]}
for kernel in KERNELS:
    how = {"kernel_type": kernel, "kernel_params": [0.5, 0.25, 3.0]}
    case(ML + "SVMRegressor", (1, 2), n_supports=2, **PAIR, **how)
    case(ML + "SVMClassifier", (1, 2), vectors_per_class=[1, 1], **PAIR, **how, **LABELS)
case(ML + "SVMRegressor", (2, 2), coefficients=[0.5, -1.0], rho=[0.75])

THREE = {
    "coefficients": [0.5, -1.0, 0.75, 1.25, -0.5, 0.25, 1.5, -0.75], "rho": [0.75, -0.25, 0.5],
    "support_vectors": [1.0, -0.25, 2.0, 0.5], "vectors_per_class": [1, 2, 1],
    "outputs": 2, "of": (1,), "classlabels_ints": [0, 1, 2],
}  # fmt: skip
for kernel, post in (*product(KERNELS, POSTS[:1]), ("LINEAR", "LOGISTIC"), ("LINEAR", "SOFTMAX")):
    case(ML + "SVMClassifier", (2, 1), kernel_type=kernel, kernel_params=[0.5, 0.25, 2.0],
         post_transform=post, **THREE)  # fmt: skip
case(ML + "SVMClassifier", (1, 2), coefficients=[0.5, -1.0, 0.25, 2.0, 1.5, -0.5], rho=[0.75],
     outputs=2, of=(1,), classlabels_ints=[0, 1, 2])  # fmt: skip
# Probabilities of three classes are fractions too long for algebra; runtimes only approach them.
case(ML + "SVMClassifier", (1, 1), vectors_per_class=[1, 1], prob_a=[-0.5], prob_b=[0.25],
     coefficients=[0.5, -2.0], support_vectors=[1.0, 0.5], rho=[0.75], second=False,
     **LABELS)  # fmt: skip
