"""Method 1 of ONNX's guide: a script that asks an existing framework, here PyTorch."""

from __future__ import annotations

import contextlib
import io
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np

from ...jacobians.cached import cached_property
from ..linearize import linearize
from .case import Case
from .expressions import TORCH
from .scripted import SCRIPTED

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


def script_of(op_type: str, domain: str, cases: tuple[Case, ...]) -> Script | None:
    """The script of an operator, where PyTorch has it."""
    found = scripted(op_type, domain, cases)
    if found is None:
        return None
    text, case = found
    wrt, of = case.floating(case.wrt), case.results[(case.of or (0,))[0]]
    J = linearize(case.model, case.point, of=of, wrt=wrt, engine="numpy")
    blocks = (tensor(J[of, name].toarray()) for name in wrt)
    return Script(TEMPLATE.format(
        inputs="\n".join(f"{name} = {tensor(x)}" for name, x in case.point.items()),
        names=", ".join(wrt), expression=expression(text, case.names),
        blocks="\n".join(f"    {block}," for block in blocks),
    ))  # fmt: skip


def scripted(op_type: str, domain: str, cases: tuple[Case, ...]) -> tuple[str, Case] | None:
    """(expression, case): a case of its own, or the first one without attributes."""
    if own := SCRIPTED.get(f"{domain}::{op_type}" if domain else op_type):
        return own
    plain = [case for case in cases if not case.attrs] or list(cases[:1])
    return (TORCH[op_type], plain[0]) if not domain and op_type in TORCH and plain else None


def expression(text: str, names: tuple[str, ...]) -> str:
    """The expression in the names of the inputs: {0}, {1}, or {all} of them."""
    return text.format(*names, all=", ".join(names))


def tensor(x: np.ndarray) -> str:
    """A tensor as PyTorch reads it; floats have double precision."""
    kind = ", dtype=torch.float64" if x.dtype.kind == "f" else ""
    return f"torch.tensor({x.tolist()}{kind})"
