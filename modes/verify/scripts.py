"""Scripts: a script for PyTorch that exports an operator to ONNX and compares the Jacobians."""

from __future__ import annotations

import contextlib
import io
import runpy
import tempfile
import warnings
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from ...jacobians.threads import cached_property
from ...ops.registry import full_name
from .case import Case
from .cases import SCRIPTS
from .flow_cases import torch_module

TEMPLATE = """\
import io
import onnx
import onnxjac
import torch
import torch.nn.functional as F

{inputs}

{module}

file = io.BytesIO()
torch.onnx.export({model}, ({names},), file, input_names=[{quoted}], {how})
exported = onnx.load_from_string(file.getvalue())
{nodes}
J = onnxjac.linearize(exported, {{{point}}}, wrt=[{quoted}]).toarray()
by_torch = torch.autograd.functional.jacobian({function}, ({names},))
by_torch = torch.cat([block.reshape(len(J), -1) for block in by_torch], 1)
print("greatest difference:", (by_torch - torch.from_numpy(J)).abs().max().item())
"""

NODES = """\
print("nodes:", *(n.domain + "::" * bool(n.domain) + n.op_type for n in exported.graph.node))"""

NESTED = """\
def nodes(graph):
    for node in graph.node:
        yield node.op_type
        for held in node.attribute:
            yield from nodes(held.g)

print("nodes:", *nodes(exported.graph))"""

FUNCTION = """\
def f({names}):
    return {expression}
"""

MODULE = """\
class Model(torch.nn.Module):
    def forward(self, {names}):
        return {expression}"""

MAPPED = """
class Operator(torch.autograd.Function):
    @staticmethod
    def forward(ctx, {names}):
        return f({names})
    @staticmethod
    def symbolic(g, {names}):
{none}        return {node}
"""

LEFT_OUT = """\
        none = g.op("prim::Constant")
        none.setType(torch._C.OptionalType.ofTensor())
"""

NEWEST = 20
"""The newest opset of PyTorch's exporter; the opset of a newer operator is set after the export."""

OLD = "opset_version={opset}, dynamo=False"
"""The exporter that keeps operators, loops, branches and sequences as they are written."""


@dataclass(frozen=True)
class Script:
    """A script, and what it prints."""

    text: str

    @cached_property
    def printed(self) -> str | None:
        """What the script prints; None where PyTorch is not installed."""
        if find_spec("torch") is None:
            return None
        said = io.StringIO()
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            path = Path(folder) / "script.py"  # a file, since PyTorch reads the source of a class
            path.write_text(self.text, encoding="utf-8")
            with contextlib.redirect_stdout(said):
                runpy.run_path(str(path))
        return said.getvalue()

    @property
    def agreement(self) -> float | None:
        """The greatest difference that the script finds; None where PyTorch is not installed."""
        return None if self.printed is None else float(self.printed.rpartition(":")[2])

    @property
    def nodes(self) -> tuple[str, ...]:
        """The operators of the exported model."""
        lines = (self.printed or "").splitlines()
        return tuple(n for s in lines if s.startswith("nodes:") for n in s.split()[1:])


NONE = "none"
"""An input that is left out."""

AS_THEMSELVES = """
Abs Acos Add AffineGrid Asin Atan AveragePool BatchNormalization Cast Celu Clip Col2Im Concat
Conv ConvTranspose Cos CumSum DepthToSpace Det Div Einsum Elu Erf Exp Expand Flatten GRU Gather
GatherElements Gelu GridSample HardSwish Identity InstanceNormalization LSTM LayerNormalization
LeakyRelu Log LogSoftmax MatMul Max MaxPool Min Mod Mul Neg NegativeLogLikelihoodLoss Pad Pow
RNN Reciprocal ReduceL2 ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum Relu Reshape Resize
ScatterElements Selu Sigmoid Sin Slice Softmax SoftmaxCrossEntropyLoss Softplus Split Sqrt
Squeeze Sub Tan Tanh Tile TopK Transpose Trilu Unsqueeze Where
"""
WRITTEN = frozenset(AS_THEMSELVES.split())
"""Operators that the exporter writes as themselves; the others are mapped by `symbolic`."""


def script_of(op_type: str, domain: str = "") -> Script | None:
    """The script of an operator; None where PyTorch does not have the operator."""
    name = full_name(op_type, domain)
    if module := torch_module(name):
        return module_script(*module)
    found = SCRIPTS.get(name)
    return write_script(*found, mapped=name not in WRITTEN) if found else None


WITHOUT = {
    "torchvision has it, PyTorch alone does not": "DeformConv MaxRoiPool",
    "its result is rounded, and PyTorch has no operator for that":
        "com.microsoft::DynamicQuantizeMatMul DynamicQuantizeLinear",
    "PyTorch has the operator between dequantised operands only":
        "com.microsoft::QAttention com.microsoft::QEmbedLayerNormalization com.microsoft::QGemm",
    "the exporter writes a Loop over SequenceAt for a list that is mapped": "SequenceMap",
    "PyTorch has no optional tensors in a graph": "Optional OptionalGetElement",
    "PyTorch trains by its own classes outside the graph":
        "ai.onnx.preview.training::Gradient ai.onnx.preview.training::Momentum "
        "ai.onnx.preview.training::Adagrad ai.onnx.preview.training::Adam",
}  # fmt: skip
"""Why PyTorch has no script -> operators."""

NO_OPERATOR = "PyTorch has no such operator"


def why_no_script(op_type: str, domain: str = "") -> str:
    """Why an operator has no script."""
    name = full_name(op_type, domain)
    return next((why for why, names in WITHOUT.items() if name in names.split()), NO_OPERATOR)


def write_script(text: str, case: Case, *, mapped: bool = False) -> Script:
    """The script that exports an expression of PyTorch and compares its Jacobian at a case."""
    wrt = case.floating(case.wrt)
    names = ", ".join(wrt)
    expression = text.format(*case.names, all=", ".join(case.names))
    module = MODULE.format(names=names, expression=expression)
    if mapped:
        parts = (FUNCTION.format(names=names, expression=expression),
                 MAPPED.format(names=names, none=LEFT_OUT * any(x is None for x in case.inputs),
                               node=node_expression(case, wrt)),
                 MODULE.format(names=names, expression=f"Operator.apply({names})"))  # fmt: skip
        module = "\n".join(part.strip("\n") + "\n" for part in parts).rstrip()
    how = OLD.format(opset=NEWEST if case.domain else min(NEWEST, case.version))
    if case.domain:
        how += f', custom_opsets={{"{case.domain}": {case.version}}}'
    since = case.schema.since_version if case.schema and not case.domain else 0
    newer = (f"exported.opset_import[0].version = {since}  # the exporter knows {NEWEST} at most\n"
             if since > NEWEST and mapped else "")  # fmt: skip
    function = "f" if mapped else "Model()"
    return fill_template(case.point, wrt, module, "Model()", function, how, newer + NODES)


def module_script(text: str, case: Case, how: str) -> Script:
    """The script of a module that is written out, with loops, branches or lists."""
    wrt = case.floating(case.wrt)
    model = "torch.jit.script(Model())" if "dynamo=False" in how else "Model()"
    point = {n: case.point[n] for n in wrt}
    return fill_template(point, wrt, text, model, "Model()", how, NESTED)


def fill_template(
    inputs: Any, wrt: tuple[str, ...], module: str, model: str, function: str, how: str, nodes: str
) -> Script:  # fmt: skip
    """The template with its parts."""
    names = ", ".join(wrt)
    return Script(TEMPLATE.format(
        inputs="\n".join(f"{name} = {tensor_expression(x)}" for name, x in inputs.items()),
        nodes=nodes,
        module=module, model=model, names=names, function=function, how=how,
        quoted=", ".join(f'"{n}"' for n in wrt),
        point=", ".join(f'"{n}": {n}.numpy()' for n in wrt),
    ))  # fmt: skip


def node_expression(case: Case, wrt: tuple[str, ...]) -> str:
    """The node of a case as a call of the exporter's graph."""
    given = [NONE if x is None else n if n in wrt else f'g.op("Constant", value_t={n})'
             for n, x in zip(case.names, case.inputs, strict=True)]  # fmt: skip
    while given[-1] == NONE:
        given.pop()
    said = [f'"{full_name(case.op_type, case.domain)}"', *given]
    for name, value in case.attrs.items():
        one = value[0] if isinstance(value, list | tuple) and value else value
        kind = "i" if isinstance(one, int | np.integer) else "s" if isinstance(one, str) else "f"
        said.append(f"{name}_{kind}={value!r}")
    made = (case.of or (0,))[0]
    if case.outputs > 1:
        return f"g.op({', '.join(said)}, outputs={case.outputs})[{made}]"
    return f"g.op({', '.join(said)})"


def tensor_expression(x: np.ndarray) -> str:
    """A tensor as an expression of PyTorch; floats have double precision."""
    kind = f", dtype=torch.{'float64' if x.dtype.kind == 'f' else x.dtype.name}"
    return f"torch.tensor({x.tolist()}{kind if x.dtype.name not in ('bool', 'int64') else ''})"
