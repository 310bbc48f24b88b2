"""The node cases that come with ONNX, as points at which a rule can be checked."""

from functools import cache

import numpy as np
import onnx
import pytest
from onnx import TensorProto, defs

from onnxjac.modes.model.primal.evaluate import evaluate
from onnxjac.ops import find
from sweep import cases as onnx_made
from sweep.cases import BackendCase, node_cases, with_constants

FLOATS = {TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16}
NARROW = {*range(TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E5M2FNUZ + 1), TensorProto.FLOAT4E2M1}

SINGLE = {"DequantizeLinear"}
"""Operators without float64, which test_quantization.py covers."""


@cache
def onnx_cases() -> list[BackendCase]:
    """The cases of every operator that has a rule or a function body."""
    return [with_constants(case) for case in node_cases() if is_covered(case.model)]


def is_covered(model: onnx.ModelProto) -> bool:
    """Whether the model is one differentiable node with a floating input and output."""
    graph = model.graph
    types, made = ({v.type.tensor_type.elem_type for v in vs} for vs in (graph.input, graph.output))
    if len(graph.node) != 1 or not types & FLOATS or not made & FLOATS or types & NARROW:
        return False
    if graph.node[0].op_type in SINGLE:
        return False
    declared = find(graph.node[0].op_type, graph.node[0].domain)
    return has_body(model) if declared is None else declared.zero is None


def has_body(model: onnx.ModelProto) -> bool:
    """Whether the schema of the node has a function body."""
    node = model.graph.node[0]
    version = {i.domain: i.version for i in model.opset_import}.get(node.domain, 1)
    if not defs.has(node.op_type, version, node.domain):
        return False
    schema = defs.get_schema(node.op_type, version, node.domain)
    return schema.has_function or schema.has_context_dependent_function


def few_of_each(count: int = 3, seed: int = 0) -> list[BackendCase]:
    """A fixed sample of the cases of every operator."""
    groups: dict[str, list[BackendCase]] = {}
    for case in onnx_cases():
        groups.setdefault(case.op_type, []).append(case)
    rng = np.random.default_rng(seed)
    kept = (rng.permutation(len(group))[:count] for group in groups.values())
    return [group[k] for group, ks in zip(groups.values(), kept, strict=True) for k in sorted(ks)]


def moved(case: BackendCase, seed: int) -> dict[str, np.ndarray]:
    """The inputs, the floating ones moved off kinks and into the operator's domain."""
    return onnx_made.moved(case.op_type, case.feeds, seed)


def skip_where_nothing_is_smooth(model, feeds):
    """Skip the test where intermediates are NaN or results infinite, since differences fail."""
    values = evaluate(model, feeds, [*model.intermediates, *model.outputs], engine="numpy")
    floats = {name: y for name, y in values.items() if getattr(y, "dtype", "O") == np.float64}
    if any(np.isnan(y).any() for y in floats.values()):
        pytest.skip("the primal passes through NaN")
    if not all(np.isfinite(floats[name]).all() for name in floats.keys() & model.outputs.keys()):
        pytest.skip("the result is not finite")
