"""Constants: inputs in which there is no derivative, as the shape of the result jumps with them."""

from __future__ import annotations

from dataclasses import replace

import onnx
from onnx import numpy_helper

from .cases import Case

SHAPING = {"Resize": "scales", "Upsample": "scales"}
"""Operator -> the floating input that decides the shape of its result."""


def with_constants(case: Case) -> Case:
    """The case with such an input as an initializer of the model."""
    name = SHAPING.get(case.op_type)
    if name not in case.feeds:
        return case
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    model.graph.initializer.append(numpy_helper.from_array(case.feeds[name], name))
    kept = [value for value in model.graph.input if value.name != name]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    feeds = {key: x for key, x in case.feeds.items() if key != name}
    return replace(case, model=model, feeds=feeds)
