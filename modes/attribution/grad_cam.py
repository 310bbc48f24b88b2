"""Grad-CAM: which places of a convolutional layer speak for an output."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...jacobians import size
from ...jacobians.arguments import validated
from ...jacobians.arrays import host
from ...jacobians.errors import InputError
from ..linear.derivatives.record import active_steps
from ..model.primal.evaluate import evaluate
from ..model.primal.inputs import may_float
from ..model.primal.model import ModelLike
from .attribution import Attribution
from .target import AttributionTarget, target_of

MAKES = re.compile("Conv|Pool|Resize|Upsample")
"""Operators whose results of four axes are images (N, C, H, W)."""

MIXES = frozenset({"MatMul", "Gemm", "Einsum", "Transpose", "Reshape", "Softmax"})
"""Operators whose results are no images, though they may have the same places."""


@validated
def grad_cam(
    model: ModelLike, inputs: Mapping[str, Any], *, of: str | None = None, layer: str | None = None,
    relu: bool = True, engine: str | None = None,
) -> Attribution:  # fmt: skip
    """max(Σ_c α_c A_c, 0) with α_c the mean of ∂f/∂A_c over places: where layer A speaks for f.

    f is the entry that `of` names, such as `"logits[0,3]"`; `"logits[:,3]"` is that class in each
    sample of a batch. Without an index it is the largest entry of each sample.

    - `model`: the model, as `load` gives it.
    - `inputs`: the point, an array by name for every input.
    - `of`: the entry; by default of the only floating output.
    - `layer`: A, a tensor (N, C, *places); by default the last images that convolutions and pools
      make on the way to f, with more than one place.
    - `relu`: False keeps places that speak against f, below 0.
    - `engine`: `"onnxruntime"` (default where installed), `"numpy"`, `"torch"` or `"jax"` runs
      the model.

    Shapes: the map has the shape (N, 1, *places). Raises `InputError` where a name, an index, a
    shape or a dtype does not fit, where no layer has such a form, and `UnsupportedOp` for an
    operator without a rule.

    Source: Selvaraju et al., "Grad-CAM: visual explanations from deep networks via gradient-based
    localization", 2017.
    """
    wrt = None if layer is None else (layer,)
    f = target_of(model, inputs, of, wrt, engine)
    if layer is None:
        f = target_of(model, inputs, of, (last_image(f),), engine)
    (name,) = f.wrt
    values, slopes = f.here()
    A = f.inputs()[name]
    if A.ndim < 3:
        raise InputError(f"layer={name!r} has shape {list(A.shape)}: Grad-CAM needs channels and "
                         "places, (N, C, H, W)")  # fmt: skip
    alpha = slopes[name].mean(axis=tuple(range(2, A.ndim)), keepdims=True)
    found = (alpha * A).sum(axis=1, keepdims=True)
    images = {
        n: host(x) for n, x in f.point.items()
        if n in f.model.inputs and np.ndim(x) == 4 and may_float(f.model.inputs[n])
    }  # fmt: skip
    return Attribution("Grad-CAM", f.text, {name: np.maximum(found, 0) if relu else found},
                       {name: A}, values, not relu, images=images)  # fmt: skip


def last_image(f: AttributionTarget) -> str:
    """The last tensor of images on the way to f: from a convolution or pool, step by step."""
    steps = active_steps(f.model.steps, f.wrt, (f.of,))
    names = [n for step in steps for n in step.outputs if n and n != f.of]
    made = evaluate(f.model, f.point, names, engine=f.engine)
    shapes = {n: tuple(x.shape) for n, x in made.items() if hasattr(x, "shape")}
    places = {n: s[2:] for n, s in shapes.items() if len(s) == 4 and s[0] == len(f.weights)}
    images: dict[str, tuple[int, ...]] = {}
    for step in steps:
        kept = [images[n] for n in step.inputs if n in images and step.op_type not in MIXES]
        for name in step.outputs:
            if name in places and (MAKES.search(step.op_type) or places[name] in kept):
                images[name] = places[name]
    found = [name for name, shape in images.items() if size(shape) > 1]
    if not found:
        raise InputError("no layer is made of images by convolutions or pools: name another one "
                         "with layer=, or take integrated_gradients")  # fmt: skip
    return found[-1]
