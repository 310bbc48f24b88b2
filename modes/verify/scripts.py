"""Scripts: the derivative of each operator by PyTorch, method 1 of ONNX's guide to proofs."""

from __future__ import annotations

import contextlib
import io
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np

from ...jacobians.cached import cached_property
from ...ops.registry import full_name
from ..linearize import linearize
from .cases import SCRIPTS
from .transcriptions.case import Case

TEMPLATE = """\
import torch
import torch.nn.functional as F
from torch.autograd.functional import jacobian

{inputs}

def f({names}):
    return {expression}

by_torch = jacobian(f, ({names},))
by_onnxjac = (
{blocks}
)
worst = max(
    (a.reshape(b.shape) - b).abs().max().item() for a, b in zip(by_torch, by_onnxjac)
)
print("greatest difference:", worst)
"""


@dataclass(frozen=True)
class Script:
    """A script, and what it prints."""

    text: str

    @cached_property
    def agreement(self) -> float | None:
        """The greatest difference that the script finds; None where PyTorch is not installed."""
        if find_spec("torch") is None:
            return None
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(self.text, "<script>", "exec"), {})
        return float(printed.getvalue().rpartition(":")[2])


def script_of(op_type: str, domain: str = "") -> Script | None:
    """The script of an operator; None where PyTorch does not have the operator."""
    text, case = SCRIPTS.get(full_name(op_type, domain), ("#", None))
    return None if case is None or text.startswith("#") else written(text, case)


def written(text: str, case: Case) -> Script:
    """The script that compares a case with an expression of PyTorch."""
    wrt, of = case.floating(case.wrt), case.results[(case.of or (0,))[0]]
    J = linearize(case.model, case.point, of=of, wrt=wrt, engine="numpy")
    blocks = (tensor(J[of, name].toarray()) for name in wrt)
    return Script(TEMPLATE.format(
        inputs="\n".join(f"{name} = {tensor(x)}" for name, x in case.point.items()),
        names=", ".join(wrt), expression=text.format(*case.names, all=", ".join(case.names)),
        blocks="\n".join(f"    {block}," for block in blocks),
    ))  # fmt: skip


def tensor(x: np.ndarray) -> str:
    """A tensor as an expression of PyTorch; floats have double precision."""
    kind = ", dtype=torch.float64" if x.dtype.kind == "f" else ""
    return f"torch.tensor({x.tolist()}{kind})"
