"""Places: operators at ordinary points, zeros, ties, singular matrices, far out, without axes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from onnxjac.modes.verify.case import Case, ints, node_case, numbers, positive, signed
from onnxjac.modes.verify.cases import SCRIPTS

from .expressions import JAX, TENSORFLOW

FAR = (40.0, -40.0, 800.0)
"""How far out, where functions are saturated."""

RESHAPED = ("0-d", "empty")
"""The points around a case that have other shapes."""


@dataclass(frozen=True)
class Place:
    """An operator at a point, and its expression in each library."""

    operator: str
    point: str
    case: Case
    expressions: Mapping[str, str] = field(default_factory=dict)
    is_alike: bool = False
    """Whether its inputs have the shapes of the operator's ordinary point."""


Still = tuple[tuple[str, tuple[int, ...], bytes] | None, ...]
"""Of each input its dtype and shape, and its bytes unless it moves; None: it is left out."""


@dataclass(frozen=True)
class Line:
    """A place, a direction v of its floating inputs, and weights u of an output."""

    place: Place
    v: Mapping[str, np.ndarray]
    of: str
    u: np.ndarray

    @property
    def case(self) -> Case:
        return self.place.case

    @property
    def still(self) -> Still:
        """What the derivatives of all lines with these shapes share."""
        held = ((n, None if x is None else np.asarray(x))
                for n, x in zip(self.case.names, self.case.inputs, strict=True))  # fmt: skip
        return tuple(None if x is None else (str(x.dtype), x.shape, b"" if n in self.v
                                             else x.tobytes()) for n, x in held)  # fmt: skip

    @property
    def moving(self) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """x and v of the inputs that move."""
        return [np.asarray(self.case.point[n]) for n in self.v], [*self.v.values()]


def places(only: str = "") -> Iterator[Place]:
    """All places, or the places of one operator."""
    for name in [only] if only else OPERATORS:
        if name in SCRIPTS:
            text, case = SCRIPTS[name]
            words = {"torch": text, "jax": JAX.get(name), "tensorflow": TENSORFLOW.get(name)}
            held = {key: text for key, text in words.items() if text is not None}
            for point, moved in around(case):
                yield Place(name, point, moved, held, point not in RESHAPED)
        yield from SPECIAL.get(name, ())


def around(case: Case) -> Iterator[tuple[str, Case]]:
    """A case, and the same operator at other points."""
    yield "ordinary", case
    floats = [k for k, x in enumerate(case.inputs) if x is not None and x.dtype.kind == "f"]
    x = case.inputs[floats[0]] if floats else None
    if x is None or not x.size:
        return
    yield "a zero", with_input(case, floats[0], with_zeros(x, 1))
    yield "zeros", with_input(case, floats[0], np.zeros_like(x))
    yield "ties", with_input(case, floats[0], np.full_like(x, 0.75))
    for far in FAR:
        yield f"{far:+g}", with_input(case, floats[0], x + far)
    shared = [k for k in floats if np.shape(case.inputs[k]) == x.shape]
    if x.ndim == 1 and len(shared) == len(floats):
        yield "0-d", with_inputs(case, {k: np.asarray(case.inputs[k])[0] for k in shared})
    if x.ndim and len(x) > 0:
        yield "empty", with_inputs(case, {k: np.asarray(case.inputs[k])[:0] for k in shared})


def with_input(case: Case, k: int, x: np.ndarray) -> Case:
    """The case with another tensor as input k."""
    return with_inputs(case, {k: x})


def with_inputs(case: Case, other: Mapping[int, np.ndarray]) -> Case:
    """The case with other tensors as some of its inputs."""
    inputs = (other.get(k, x) for k, x in enumerate(case.inputs))
    return replace(case, inputs=tuple(x if x is None else np.asarray(x) for x in inputs))


def with_zeros(x: np.ndarray, count: int) -> np.ndarray:
    """The same tensor, its first entries zeros."""
    made = x.copy()
    made.flat[:count] = 0
    return made


# -- cases that the scripts do not have ------------------------------------------------------------

SPECIAL: dict[str, list[Place]] = {}
"""domain::op_type -> places beside those around its script."""


def special(name: str, point: str, *inputs: object, torch: str = "", jax: str = "", tf: str = "",
            **how: object) -> None:  # fmt: skip
    """Enter a place; {0}, {1}, ... are its inputs."""
    words = {"torch": torch, "jax": jax, "tensorflow": tf}
    held = {key: text for key, text in words.items() if text}
    SPECIAL.setdefault(name, []).append(Place(name, point, node_case(name, *inputs, **how), held))


DET = {"torch": "torch.linalg.det({0})", "jax": "jnp.linalg.det({0})", "tf": "tf.linalg.det({0})"}
special("Det", "3×3", (3, 3), **DET)
for rank, matrix in {
    "singular, rank 1": [[1, 2], [2, 4]], "zeros, 3×3": np.zeros((3, 3)),
    "singular, rank 2": [[1, 2, 3], [4, 5, 6], [7, 8, 9]],
    "singular, rank 1, 3×3": [[1, 2, 3], [2, 4, 6], [3, 6, 9]],
    "nearly singular": [[1, 2], [2, 4 + 2**-20]],
}.items():  # fmt: skip
    special("Det", rank, np.array(matrix, float), **DET)
special("Det", "0×0", np.zeros((0, 0)), **DET)
INVERSE = {"torch": "torch.linalg.inv({0})", "jax": "jnp.linalg.inv({0})",
           "tf": "tf.linalg.inv({0})"}  # fmt: skip
special("com.microsoft::Inverse", "nearly singular", np.array([[1, 2], [2, 4 + 2**-10]]), **INVERSE)
special("com.microsoft::Inverse", "3×3", signed(3, 3) + 4 * np.eye(3), **INVERSE)

PROD = {"torch": "{0}.prod(-1, keepdim=True)", "jax": "jnp.prod({0}, -1, keepdims=True)",
        "tf": "tf.reduce_prod({0}, -1, keepdims=True)"}  # fmt: skip
CUMPROD = {"torch": "{0}.cumprod(-1)", "jax": "jnp.cumprod({0}, -1)",
           "tf": "tf.math.cumprod({0}, -1)"}  # fmt: skip
for count in (1, 2, 3):
    named = ("one zero of 4", "two zeros of 4", "three zeros of 4")[count - 1]
    special("ReduceProd", named, with_zeros(signed(4), count), ints(-1), **PROD)
    special("CumProd", named, with_zeros(signed(4), count), np.array(-1), **CUMPROD)

special("BatchNormalization", "in training", (3, 1), (1,), (1,), (1,), positive(1), epsilon=0.125,
        outputs=3, of=(0,), training_mode=1, wrt=(0, 1, 2),
        torch="F.batch_norm({0}, None, None, {1}, {2}, training=True, eps=0.125)",
        jax="nn.standardize({0}, 0, epsilon=0.125) * {1} + {2}",
        tf="(lambda m: tf.nn.batch_normalization({0}, *m, {2}, {1}, 0.125))"
           "(tf.nn.moments({0}, [0], keepdims=True))")  # fmt: skip
special("LayerNormalization", "4 entries", (2, 4), (4,), (4,), epsilon=0.125,
        torch="F.layer_norm({0}, {1}.shape, {1}, {2}, 0.125)",
        jax="nn.standardize({0}, -1, epsilon=0.125) * {1} + {2}",
        tf="(lambda m: tf.nn.batch_normalization({0}, *m, {2}, {1}, 0.125))"
           "(tf.nn.moments({0}, [-1], keepdims=True))")  # fmt: skip
TWICE = ints([1, 1])
for reduction, word in {"mul": "prod", "add": "sum"}.items():
    verb = {"mul": "multiply", "add": "add"}[reduction]
    special("ScatterElements", f"{reduction}, an index twice", (1, 3), TWICE, (1, 2), axis=1,
            reduction=reduction, torch=f"{{0}}.scatter_reduce(1, {{1}}, {{2}}, '{word}')",
            jax=f"{{0}}.at[0, {{1}}].{verb}({{2}})")  # fmt: skip
    special("ScatterElements", f"{reduction}, indices once", (1, 3), ints([2, 0]), (1, 2), axis=1,
            reduction=reduction, torch=f"{{0}}.scatter_reduce(1, {{1}}, {{2}}, '{word}')",
            jax=f"{{0}}.at[0, {{1}}].{verb}({{2}})")  # fmt: skip
special("ScatterElements", "mul, of zeros", np.zeros((1, 3)), TWICE, (1, 2), axis=1,
        reduction="mul", torch="{0}.scatter_reduce(1, {1}, {2}, 'prod')",
        jax="{0}.at[0, {1}].multiply({2})")  # fmt: skip

POW = {"torch": "torch.pow({0}, {1})", "jax": "jnp.power({0}, {1})", "tf": "tf.pow({0}, {1})"}
special("Pow", "whole exponents", signed(4), numbers(2, 3, 1, 0), wrt=(0,), **POW)
special("Pow", "whole exponents, at zeros", np.zeros(4), numbers(2, 3, 1, 0), wrt=(0,), **POW)

PRODUCT = {"torch": "{0} @ {1}", "jax": "{0} @ {1}", "tf": "tf.matmul({0}, {1})"}
special("MatMul", "an empty sum", np.zeros((2, 0)), np.zeros((0, 3)), **PRODUCT)
special("MatMul", "zeros", np.zeros((2, 2)), np.zeros((2, 2)), **PRODUCT)
special("Gemm", "an empty sum", np.zeros((2, 0)), np.zeros((0, 2)), (2,),
        torch="torch.addmm({2}, {0}, {1})", jax="{0} @ {1} + {2}",
        tf="tf.matmul({0}, {1}) + {2}")  # fmt: skip
special("Concat", "beside an empty tensor", np.zeros((0, 2)), (2, 2), axis=0,
        torch="torch.cat(({all}))", jax="jnp.concatenate(({all}))",
        tf="tf.concat([{all}], 0)")  # fmt: skip

for large in (800.0, -800.0):
    where = np.array([[large, large + 0.5, large - 1.25]])
    special("Softmax", f"one far from the others, {large:+g}", np.array([[large, 0.5, -0.25]]),
            torch="torch.softmax({0}, -1)", jax="nn.softmax({0})",
            tf="tf.nn.softmax({0})")  # fmt: skip
    special("LogSoftmax", f"one far from the others, {large:+g}", np.array([[large, 0.5, -0.25]]),
            torch="torch.log_softmax({0}, -1)", jax="nn.log_softmax({0})",
            tf="tf.nn.log_softmax({0})")  # fmt: skip
    special("ReduceLogSumExp", f"all near {large:+g}", where, ints(-1),
            torch="torch.logsumexp({0}, -1, keepdim=True)",
            jax="special.logsumexp({0}, -1, keepdims=True)",
            tf="tf.reduce_logsumexp({0}, -1, keepdims=True)")  # fmt: skip
for name, words in {
    "Softplus": ("F.softplus({0})", "nn.softplus({0})", "tf.nn.softplus({0})"),
    "Sigmoid": ("torch.sigmoid({0})", "nn.sigmoid({0})", "tf.sigmoid({0})"),
    "Mish": ("F.mish({0})", "nn.mish({0})", "{0} * tf.tanh(tf.nn.softplus({0}))"),
    "Swish": ("F.silu({0})", "nn.silu({0})", "tf.nn.silu({0})"),
    "Tanh": ("torch.tanh({0})", "jnp.tanh({0})", "tf.tanh({0})"),
}.items():
    special(name, "-800 and 800", numbers(-800, 800), torch=words[0], jax=words[1], tf=words[2])
    special(name, "near 20", numbers(19.5, -20.5, 12.25), torch=words[0], jax=words[1], tf=words[2])

OPERATORS = sorted({*SCRIPTS, *SPECIAL})
"""The operators that have places."""
