"""Method 1 of ONNX's guide: a script that asks an existing framework, here PyTorch."""

from __future__ import annotations

import contextlib
import io
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec

import numpy as np

from ..linearize import linearize
from .case import Case
from .expressions import TORCH

TEMPLATE = """\
import torch
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


def script_of(op_type: str, cases: tuple[Case, ...]) -> Script | None:
    """The script of the first case without attributes, where PyTorch has the operator."""
    plain = [c for c in cases if not c.attrs and not c.domain] or list(cases[:1])
    if op_type not in TORCH or not plain:
        return None
    case = plain[0]
    wrt = case.floating(case.wrt)
    if len(wrt) != len(case.point):
        return None
    J = linearize(case.model, case.point, engine="numpy")
    held = {name: J["y", name].toarray() for name in wrt}
    return Script(TEMPLATE.format(
        inputs="\n".join(f"{n} = {tensor(case.point[n])}" for n in wrt),
        names=", ".join(wrt), expression=expression(TORCH[op_type], wrt),
        blocks="\n".join(f"    {tensor(held[n])}," for n in wrt),
    ))  # fmt: skip


def expression(text: str, names: tuple[str, ...]) -> str:
    """The expression in the names of the inputs: {0}, {1}, or {all} of them."""
    return text.format(*names, all=", ".join(names))


def tensor(x: np.ndarray) -> str:
    """A tensor of double precision as PyTorch reads it."""
    return f"torch.tensor({np.asarray(x, np.float64).tolist()}, dtype=torch.float64)"
