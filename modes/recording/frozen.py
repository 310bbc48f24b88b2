"""Frozen: the tensors whose numbers at the point a recording has taken for good.

A rule that is told a number writes it into what it records; a branch or the turns of a loop are
recorded for the numbers that decide them; and so are sizes. These tensors become constants, so that
what is recorded is the derivative of the model that it computes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import onnx_ir as ir

from ...ops.graphs import every, reachable
from ..flow.steps import needed
from ..naming.names import is_float
from ..tape.moving import moving
from .derive import Draft


def hold(draft: Draft, pinned: Mapping[str, str]) -> Draft:
    """The draft with pinned tensors as constants; `held` says which they are, and why.

    An input that nothing reads any more is no input any more. What is differentiated cannot be a
    constant, nor can floating numbers that are computed.
    """
    found = {n: why for t in draft.traces for n, why in {**pinned, **t.asked}.items()
             if n in moving(t.behind, [str(v.name) for v in t.inputs])}  # fmt: skip
    if found:
        before = read_by(draft)
        for name in found:
            fill(draft, name)
        after, computed = read_by(draft), behind(draft, found)
        gone = {str(v.name): v for v in draft.inputs if v not in after and v not in draft.wrt
                and (v in before or v.name in computed)}  # fmt: skip
        draft.inputs = [value for value in draft.inputs if value.name not in gone]
        why = ", ".join(dict.fromkeys(found.values()))
        parted = {n: f"no input any more: {found.get(n, why)}" for n in gone}
        draft.held = {**parted, **{n: why for n, why in found.items() if n not in gone}}
    return draft


def fill(draft: Draft, name: str) -> None:
    """Make a constant of the tensor of that name, where it is in the draft and can be one."""
    t = draft.traces[-1]
    value, number = t.values.get(name), t.numbers.get(name)
    if value is None or value in draft.wrt or value.const_value is not None:
        return
    if value.producer() is not None and is_float(getattr(number, "dtype", np.dtype(object))):
        return
    constant = draft.recorder.initializer(np.asarray(number))
    for node in every(draft.recorder.nodes):
        for k, operand in enumerate(node.inputs):
            if operand is value:
                node.replace_input_with(k, constant)


def read_by(draft: Draft) -> set[ir.Value]:
    """The values that the outputs of a draft need, and the tensors that it is differentiated in."""
    results = [*(draft.recorder.value(array) for array in draft.outputs.values()), *draft.wrt]
    return set(reachable(draft.recorder, [v for v in results if v is not None])[1])


def behind(draft: Draft, names: Iterable[str]) -> set[str]:
    """The tensors from which others are computed."""
    wanted = tuple(names)
    return {n for t in draft.traces for n in needed(t.behind, wanted)[1]}
