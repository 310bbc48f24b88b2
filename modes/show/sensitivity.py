"""Picture of sensitivity: which pixels or features the outputs depend on."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np

from ...jacobians import prod_text, shape_of, size
from ...jacobians.arrays import host
from ...jacobians.errors import InputError
from ...jacobians.progress import progress as watched
from ..estimators.estimate import probing
from ..estimators.exact import column_squares
from ..linear.linearization import Linearization
from ..model.primal.evaluate import evaluate
from .canvas import BLUE, MAGNITUDES, SMALL, WIDTH, axes, bar

if TYPE_CHECKING:
    from matplotlib.axes import Axes

UNIT = "output per input"


def plot_sensitivity(
    J: Linearization, *, entry: Any = None, sample: int = 0, features: Sequence[str] | None = None,
    ax: Axes | None = None, progress: bool | None = None,
) -> Axes:  # fmt: skip
    """sⱼ = √(Σᵢ (∂yᵢ/∂xⱼ)²), how far the outputs move with pixel or feature j of one sample.

    `J` = ∂y/∂x, of `linearize`, has one output y and one input x. `entry` picks entries of y by any
    NumPy index: for logits (N, C), `entry=(0, 3)` is the fourth logit of the first sample, and s =
    |∂y/∂x|; by default all entries count. x is a batch of images (N, C, H, W), of which one is
    drawn in grey or colour beside its map, a norm over channels; or a table (N, features) or one
    row of it, drawn as bars with the names in `features`. The unit is a unit of y per unit of x.
    Returns the axes of the map or of the bars. `progress` is as for `onnxjac.progress`.

    Shapes: x is (N, C, H, W), (N, features) or (features,); s is (H, W) or (features,). Raises
    `InputError` without matplotlib, where `ax` is no Axes, where J is of several tensors or of an x
    of another shape, and for an `entry`, a `sample` or `features` that x or y does not have.

    Source: Simonyan, Vedaldi, Zisserman, "Deep inside convolutional networks", 2014.
    """
    name, shape = checked(J, sample, features)
    with watched(progress):
        moves = sensitivity(J, entry, sample)
    picked = "" if entry is None else f"[{str(entry).strip('()')}]"
    title = f"‖∂{J.codomain[0].name}{picked}/∂{name}‖"
    if len(shape) == 4:
        image = evaluate(J.route.model, J.point, [name], engine=J.route.engine)[name][sample]
        return draw_image(axes(ax, WIDTH / 2), image, moves, (f"{name}[{sample}]", title))
    height = 3.0 if features is None else min(9.0, 0.8 + 0.2 * len(features))
    return draw_bars(axes(ax, height), moves, features, f"{title}, sample {sample}")


def checked(
    J: Linearization, sample: int, features: Sequence[str] | None
) -> tuple[str, tuple[int, ...]]:
    """The name and the shape of the only input; raises `InputError` for what cannot be drawn."""
    if not isinstance(J, Linearization) or J.transposed:
        raise InputError("sensitivity is drawn of a Jacobian that `linearize` gave, not of "
                         f"{J!r}")  # fmt: skip
    if len(J.domain) != 1 or len(J.codomain) != 1:
        raise InputError(f"sensitivity is of one tensor by one other: take a block of {J!r}, "
                         f'as in J["{J.codomain[0].name}", "{J.domain[0].name}"]')  # fmt: skip
    name, shape = J.domain[0].name, shape_of(J.domain[0])
    if len(shape) not in (1, 2, 4):
        raise InputError(f"{name!r} has shape {prod_text(shape)}, of {len(shape)} axes: images "
                         "have four, (N, C, H, W), tables one or two, (N, features)")  # fmt: skip
    batch = shape[0] if len(shape) > 1 else 1
    if not (isinstance(sample, Integral) and -batch <= sample < batch):
        raise InputError(f"{name!r} has {batch} samples: there is no sample={sample!r}")
    if features is not None and len(shape) == 4:
        raise InputError(f"features= names the columns of a table, not images {prod_text(shape)}")
    if features is not None and len(features) != shape[-1]:
        raise InputError(f"there are {shape[-1]} features, and {len(features)} names for them")
    return name, shape


def sensitivity(J: Linearization, entry: Any, sample: int) -> np.ndarray:
    """√(Σᵢ Jᵢⱼ²) over the picked rows, in the shape of one sample of the input."""
    y, shape = shape_of(J.codomain[0]), shape_of(J.domain[0])
    try:
        rows = np.arange(size(y)).reshape(y)[() if entry is None else entry]
    except IndexError as error:
        raise InputError(
            f"entry={entry!r} is not in {J.codomain[0].name!r}, of shape {prod_text(y)}: {error}; "
            f"entry={(0,) * len(y)} is the first"
        ) from error
    columns = np.arange(size(shape)).reshape(shape if len(shape) > 1 else (1, *shape))[sample]
    with probing(J[np.ravel(rows), columns.ravel()], "sensitivity") as P:
        squares, _ = column_squares(P)
    return np.sqrt(host(squares)).reshape(columns.shape)


def draw_image(ax: Axes, image: np.ndarray, moves: np.ndarray, titles: tuple[str, str]) -> Axes:
    """The image on the left, and on the right the map, the norm over all channels.

    An image (C, H, W) of three channels has colours, scaled to 0 … 1; others show their mean.
    """
    low, high = image.min(), image.max()
    colours = np.moveaxis((image - low) / max(high - low, np.finfo(float).tiny), 0, -1)
    ax.set_axis_off()
    left, right = (ax.inset_axes((x, 0, 0.42, 0.92)) for x in (0.0, 0.45))
    left.imshow(colours if len(image) == 3 else image.mean(axis=0), cmap="gray")
    shown = right.imshow(np.linalg.norm(moves, axis=0), MAGNITUDES, vmin=0)
    for part, title in zip((left, right), titles, strict=True):
        part.set_title(title, fontsize=SMALL + 1)
        part.set(xticks=[], yticks=[])
    bar(shown, UNIT, right.inset_axes((1.03, 0, 0.05, 1)))
    return right


def draw_bars(ax: Axes, moves: np.ndarray, features: Sequence[str] | None, title: str) -> Axes:
    """One bar for each feature, the first on top where they have names."""
    at = np.arange(len(moves))
    if features is None:
        ax.bar(at, moves, color=BLUE)
        ax.locator_params(axis="x", integer=True)
        ax.set(xlabel="feature", ylabel=UNIT)
    else:
        ax.barh(at, moves, color=BLUE)
        ax.set_yticks(at, list(features), fontsize=SMALL)
        ax.invert_yaxis()
        ax.set_xlabel(UNIT)
    ax.set_title(title, fontsize=SMALL + 1)
    return ax
