"""PyTorch: a module becomes an ONNX model, by PyTorch's own exporter."""

from __future__ import annotations

import inspect
import io
import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import partial
from typing import Any

import onnx

from ...jacobians.errors import LoadError, warn
from ...jacobians.foreign import as_array
from ..support.optional import optional
from .examples import Batch, arguments_of, batched, is_array, mapped
from .messages import first_line
from .protos import nodes

SETTINGS = {"optimize": False, "verbose": False}
"""Unoptimised, so that every weight keeps its name; `load` does what has to be done."""


def is_module(source: Any) -> bool:
    """Whether this is a module of PyTorch, which is then loaded already."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(source, torch.nn.Module)


def module_proto(module: Any, examples: Any, batch: Batch) -> onnx.ModelProto:
    """The module in evaluation, as it is now: inputs are called as in `forward`, weights as in it.

    What the exporter cannot follow is traced, with a warning: it does at every point what it does
    at the examples.
    """
    optional("onnxscript", "torch")  # which the exporter is made of
    bound = arguments_of(module.forward, examples)
    dynamic = batched(bound.arguments, batch)
    for name, value in bound.arguments.items():
        bound.arguments[name] = mapped(partial(_example, module, name in dynamic), value)
    with _evaluating(module), _quiet():
        try:
            return _first_names(_exported(module, bound, dynamic), module)
        except Exception as error:
            reason = first_line(error)
            proto = _first_names(_traced(module, bound, dynamic, reason), module)
    warn(f"PyTorch's exporter failed ({reason}): the module was traced instead, with its branches "
         "as they are at example_inputs")  # fmt: skip
    return proto


def _exported(
    module: Any, bound: inspect.BoundArguments, dynamic: frozenset[str]
) -> onnx.ModelProto:
    torch = optional("torch", "torch")

    dim = torch.export.Dim("batch")
    shapes = {
        name: mapped(partial(_shape, dim if name in dynamic else None), value)
        for name, value in bound.arguments.items()
    }
    options = {**SETTINGS, "dynamic_shapes": shapes if dynamic else None}
    program = torch.onnx.export(module, bound.args, kwargs=bound.kwargs, dynamo=True, **options)
    proto: onnx.ModelProto = program.model_proto
    return proto


def _shape(dim: Any, leaf: Any) -> Any:
    """Which axes of a leaf are of any size."""
    return {0: dim} if dim is not None and is_array(leaf) and leaf.ndim else None


def _traced(
    module: Any, bound: inspect.BoundArguments, dynamic: frozenset[str], reason: str
) -> onnx.ModelProto:
    """By the older exporter, which follows one run."""
    torch = optional("torch", "torch")

    names = [name for name, value in bound.arguments.items() if is_array(value)]
    axes = {name: {0: "batch"} for name in names if name in dynamic}
    options = {"do_constant_folding": False, "input_names": names, "dynamic_axes": axes or None}
    file = io.BytesIO()
    try:
        torch.onnx.export(module, bound.args, file, kwargs=bound.kwargs, dynamo=False, **options)
    except Exception as error:
        raise LoadError(
            f"PyTorch cannot export {type(module).__name__}: {reason}; traced, {first_line(error)}"
        ) from error
    return onnx.load_from_string(file.getvalue())


def _first_names(proto: onnx.ModelProto, module: Any) -> onnx.ModelProto:
    """A weight with several names gets the one that `named_parameters` gives it."""
    first = {id(p): name for name, p in module.named_parameters()}
    every = module.named_parameters(remove_duplicate=False)
    names = {name: first[id(p)] for name, p in every if first[id(p)] != name}
    stored = {tensor.name for tensor in proto.graph.initializer}
    renamed = {a: b for a, b in names.items() if a in stored and b not in stored}
    for value in (*proto.graph.initializer, *proto.graph.value_info):
        value.name = renamed.get(value.name, value.name)
    for node in nodes(proto):
        node.input[:] = [renamed.get(name, name) for name in node.input]
    return proto


def _example(module: Any, dynamic: bool, leaf: Any) -> Any:
    """A leaf as PyTorch takes it; an axis of any size must not be 1, which the exporter keeps."""
    torch = optional("torch", "torch")

    if not is_array(leaf):
        return leaf
    if not isinstance(leaf, torch.Tensor):
        like = next((p for p in module.parameters() if p.is_floating_point()), torch.zeros(()))
        leaf = torch.tensor(as_array(leaf), device=like.device)
        leaf = leaf.to(like.dtype) if leaf.is_floating_point() else leaf
    leaf = leaf.detach()
    return torch.cat([leaf, leaf]) if dynamic and leaf.shape[:1] == (1,) else leaf


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what the exporter says of itself; why it failed is in what it raises."""
    before, said = logging.root.manager.disable, io.StringIO()
    logging.disable(logging.ERROR)
    try:
        with redirect_stdout(said), redirect_stderr(said), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


@contextmanager
def _evaluating(module: Any) -> Iterator[None]:
    """Every part in evaluation, and afterwards again as it was."""
    before = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, training in before:
            part.training = training
