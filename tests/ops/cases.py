"""The node cases that come with ONNX, as points at which a rule can be checked."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import onnx
import pytest
from onnx import TensorProto, defs

from onnxjac.modes.primal import evaluate
from onnxjac.ops import find

FLOATS = {TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16}
NARROW = {*range(TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E5M2FNUZ + 1), TensorProto.FLOAT4E2M1}

SINGLE = {"DequantizeLinear"}
"""Operators that know no float64: test_quantization.py has them."""


@dataclass(frozen=True)
class Case:
    """A model of one node and the values of its inputs."""

    name: str
    op_type: str
    model: onnx.ModelProto
    feeds: dict[str, np.ndarray]


@cache
def onnx_cases() -> list[Case]:
    """The cases of every operator that has a rule or a function body."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [case_of(case) for case in collect_testcases(None) if is_covered(case.model)]


def case_of(case) -> Case:
    names = [value.name for value in case.model.graph.input]
    feeds = dict(zip(names, map(as_array, case.data_sets[0][0]), strict=True))
    op_type = case.model.graph.node[0].op_type
    model = held(case.model, feeds, "scales") if op_type == "Resize" else case.model
    return Case(case.name, op_type, model, feeds)


def held(model: onnx.ModelProto, feeds: dict[str, np.ndarray], name: str) -> onnx.ModelProto:
    """The model with an input as a constant: scales are float32 always and decide the shape."""
    if name not in feeds:
        return model
    changed = onnx.ModelProto.FromString(model.SerializeToString())
    changed.graph.initializer.append(onnx.numpy_helper.from_array(feeds.pop(name), name))
    kept = [value for value in changed.graph.input if value.name != name]
    del changed.graph.input[:]
    changed.graph.input.extend(kept)
    return changed


def as_array(value: np.ndarray | TensorProto) -> np.ndarray:
    """Types that NumPy lacks come as protobufs."""
    is_proto = isinstance(value, TensorProto)
    return onnx.numpy_helper.to_array(value) if is_proto else np.asarray(value)


def is_covered(model: onnx.ModelProto) -> bool:
    """Whether the model is one node with a floating input and output and with a derivative."""
    graph = model.graph
    types, made = ({v.type.tensor_type.elem_type for v in vs} for vs in (graph.input, graph.output))
    if len(graph.node) != 1 or not types & FLOATS or not made & FLOATS or types & NARROW:
        return False
    if graph.node[0].op_type in SINGLE:
        return False
    declared = find(graph.node[0].op_type, graph.node[0].domain)
    return has_body(model) if declared is None else declared.zero is None


def has_body(model: onnx.ModelProto) -> bool:
    """Whether the schema says by a function what the node computes."""
    node = model.graph.node[0]
    version = {i.domain: i.version for i in model.opset_import}.get(node.domain, 1)
    if not defs.has(node.op_type, version, node.domain):
        return False
    schema = defs.get_schema(node.op_type, version, node.domain)
    return schema.has_function or schema.has_context_dependent_function


def few_of_each(count: int = 3, seed: int = 0) -> list[Case]:
    """Some cases of every operator, the same ones every time."""
    groups: dict[str, list[Case]] = {}
    for case in onnx_cases():
        groups.setdefault(case.op_type, []).append(case)
    rng = np.random.default_rng(seed)
    kept = (rng.permutation(len(group))[:count] for group in groups.values())
    return [group[k] for group, ks in zip(groups.values(), kept, strict=True) for k in sorted(ks)]


def moved(case: Case, seed: int) -> dict[str, np.ndarray]:
    """The inputs, the floating ones moved off kinks and into the operator's domain."""
    rng = np.random.default_rng(seed)
    domain = DOMAINS.get(case.op_type, anything)
    return {
        name: domain(i, x + 0.1 * rng.standard_normal(x.shape)) if x.dtype.kind == "f" else x
        for i, (name, x) in enumerate(case.feeds.items())
    }


def skip_where_nothing_is_smooth(model, feeds):
    """NaN on the way, or an infinite result: there are no differences to compare with."""
    values = evaluate(model, feeds, [*model.intermediates, *model.outputs], engine="numpy")
    floats = {name: y for name, y in values.items() if getattr(y, "dtype", "O") == np.float64}
    if any(np.isnan(y).any() for y in floats.values()):
        pytest.skip("the primal passes through NaN")
    if not all(np.isfinite(floats[name]).all() for name in floats.keys() & model.outputs.keys()):
        pytest.skip("the result is not finite")


Domain = Callable[[int, np.ndarray], np.ndarray]
"""(position of the input, values) -> values of the domain near them."""


def anything(i: int, x: np.ndarray) -> np.ndarray:
    return x


def finite(i: int, x: np.ndarray) -> np.ndarray:
    return np.where(np.isfinite(x), x, 1.0)


def inside(i: int, x: np.ndarray) -> np.ndarray:
    """In (-0.9, 0.9)."""
    return 0.9 * np.tanh(x)


def positive(i: int, x: np.ndarray) -> np.ndarray:
    return np.abs(x) + 0.1


def off_zero(i: int, x: np.ndarray) -> np.ndarray:
    return np.sign(x) * (np.abs(x) + 0.5)


def only(position: int, domain: Domain) -> Domain:
    """One input has that domain, the others are any finite numbers."""
    return lambda i, x: domain(i, finite(i, x)) if i == position else finite(i, x)


DOMAINS: dict[str, Domain] = {
    "Acos": inside,
    "Acosh": lambda i, x: np.abs(x) + 1.1,
    "Asin": inside,
    "Atanh": inside,
    "BatchNormalization": only(4, positive),
    "Cast": finite,
    "CastLike": finite,
    "Div": only(1, off_zero),
    "Log": positive,
    "Mod": only(1, off_zero),
    "Pow": only(0, positive),
    "Reciprocal": off_zero,
    "ReduceLogSum": positive,
    "Sqrt": positive,
}
