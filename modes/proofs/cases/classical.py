"""Operators of `ai.onnx.ml` that compute with floats."""

from .table import case, ints, numbers

ML = "ai.onnx.ml::"

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
    case(ML + "Normalizer", numbers(0.5, 1.75, 0.25).reshape(1, 3), norm=norm, second=False)
PLAIN = {"coefficients": [0.5, -1.0], "intercepts": [0.5], "second": False}
case(ML + "LinearRegressor", (1, 2), **PLAIN)
case(ML + "LinearRegressor", (2, 2), **PLAIN)
for post in ("NONE", "LOGISTIC", "SOFTMAX"):
    how = {"coefficients": [0.5, -1.0, 0.25, 2.0], "intercepts": [0.5, 1.0], "post_transform": post}
    case(ML + "LinearRegressor", (1, 2), targets=2, second=False, **how)
    case(
        ML + "LinearClassifier",
        (1, 2),
        outputs=2,
        of=(1,),
        classlabels_ints=[0, 1],
        second=False,
        **how,
    )
for kernel in ("LINEAR", "POLY", "RBF", "SIGMOID"):
    case(
        ML + "SVMRegressor", (1, 2), kernel_type=kernel, kernel_params=[0.5, 0.25, 2.0],
        n_supports=2,
        coefficients=[0.5, -1.0], support_vectors=[1.0, 0.5, -0.25, 2.0], rho=[0.75], second=False,
    )  # fmt: skip
case(
    ML + "SVMClassifier", (1, 2), outputs=2, of=(1,), kernel_type="RBF",
    kernel_params=[0.5, 0.0, 0.0],
    coefficients=[0.5, -1.0], support_vectors=[1.0, 0.5, -0.25, 2.0], rho=[0.75],
    vectors_per_class=[1, 1], classlabels_ints=[0, 1], second=False,
)  # fmt: skip
