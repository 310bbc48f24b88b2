"""Pictures of the matrix: entries, norms of blocks or tiles, sparsity; and what y depends on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np

from ...jacobians import Jacobian, hooks, prod_text, shape_of, size
from ...jacobians.arguments import Natural, validated
from ...jacobians.arrays import host
from ...jacobians.base import CHUNK_BYTES
from ...jacobians.errors import InputError
from ...jacobians.progress import Tick, counting
from ...jacobians.progress import progress as watched
from ..estimators.estimate import mean_and_error, probing
from ..estimators.exact import column_squares
from ..linear.linearization import Linearization
from ..model.primal.evaluate import evaluate
from ..sparse import pattern
from . import canvas
from .canvas import BLUE, FIGURE_INCHES, MAGNITUDES, TEXT_POINTS, bar, given_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DRAWN_ENTRIES = 2**16
"""A matrix of up to this many entries is drawn entry by entry."""

BLOCK_TENSORS = 32
"""Up to this many tensors have a row or column each; more are merged."""

TILES = 24
"""Parts of each side of a large block."""

Edges = tuple[int, ...]


@hooks.plot.register(Jacobian)
@validated
def plot_jacobian(
    J: Jacobian, *, entries: bool | None = None, ax: Axes | None = None, seed: Natural = 0,
    progress: bool | None = None,
) -> Axes:  # fmt: skip
    """J as a picture: rows downwards, columns to the right, colours for magnitudes.

    Several tensors are drawn as blocks, `of` by `wrt`, coloured by Frobenius norm; one small block,
    of up to 65,536 entries, entry by entry; a larger one in 24 × 24 tiles. `entries=True`
    always draws the entries, within the limits of `toarray`, and `entries=False` never does. Norms
    come from products: exact where there are few rows, else estimates with their standard error
    in the title. Names and shapes are on the axes; numbers are in the units of the tensors,
    ∂of per ∂wrt. `progress` is as for `onnxjac.progress`. `J.plot()` is the same.

    - `J`: an operator of onnxjac.
    - `seed`: the seed of the estimates of norms.

    Shape: J is (m, n), with m and n at least 1. Raises `InputError` without matplotlib, where `ax`
    is no Axes, and where J is no operator of onnxjac or has no entries; `LimitError` where
    `entries=True` needs more than `toarray` may take.
    """
    canvas.check_jacobian(J)
    rows, columns = canvas.matrix_sides(J)
    single = len(rows.labels) == len(columns.labels) == 1
    few = single and J.shape[0] * J.shape[1] <= DRAWN_ENTRIES
    with watched(progress):
        if entries or (entries is None and few):
            return plot_entries(J, ax)
        return plot_tiles(J, ax, seed) if single else plot_blocks(J, ax, seed)


def plot_entries(J: Jacobian, ax: Axes | None) -> Axes:
    """Every entry, red above zero and blue below."""
    matrix = np.asarray(J.toarray(), float)
    ax, options = canvas.matrix_axes(J, ax)
    most = float(np.abs(matrix).max())
    canvas.bar(ax.imshow(matrix, canvas.SIGNED, vmin=-most, vmax=most, **options), "entry")
    canvas.mark(ax, J)
    return ax


def plot_blocks(J: Jacobian, ax: Axes | None, seed: int) -> Axes:
    """‖∂of/∂wrt‖_F for every pair of tensors; a block that is zero stays empty."""
    rows, columns = (side.merged(BLOCK_TENSORS) for side in canvas.matrix_sides(J))
    norms = block_norms(J, rows.edges, columns.edges, seed=seed)
    ax = canvas.given_axes(
        ax, min(5.0, 1.7 + 0.25 * len(rows.labels)) + canvas.below(columns.labels)
    )
    image = coloured(ax, norms.values, aspect="auto")
    ax.set_xticks(range(len(columns.labels)), columns.labels)
    ax.set_yticks(range(len(rows.labels)), rows.labels, fontsize=canvas.TEXT_POINTS)
    canvas.slant(ax, len(columns.labels))
    ax.set(xlabel=columns.title, ylabel=rows.title)
    if len(columns.labels) <= 10:  # there is room for numbers
        write_numbers(ax, image, norms.values)
    return finished(ax, image, "Frobenius norm", norms)


def plot_tiles(J: Jacobian, ax: Axes | None, seed: int) -> Axes:
    """√(Σ J² / entries) for every tile of a large matrix."""
    rows, columns = (side.tiled(TILES) for side in canvas.matrix_sides(J))
    norms = block_norms(J, rows.edges, columns.edges, probes=8, seed=seed)
    counts = np.outer(np.diff(rows.edges), np.diff(columns.edges))
    ax, options = canvas.matrix_axes(J, ax)
    image = coloured(ax, norms.values / np.sqrt(counts), **options)
    canvas.mark(ax, J)
    return finished(ax, image, "root mean square of entries", norms)


def finished(ax: Axes, image: Any, label: str, norms: BlockNorms) -> Axes:
    """The axes with a colour bar, and the standard error of estimates as the title."""
    canvas.bar(image, label)
    if norms.error:
        text = f"from {norms.products} products, standard error up to {norms.error:.0%}"
        ax.set_title(text, fontsize=canvas.TEXT_POINTS + 1)
    return ax


def coloured(ax: Axes, values: np.ndarray, **options: Any) -> Any:
    """Magnitudes as colours, on a log scale where they differ much; zero has no colour."""
    from matplotlib.colors import LogNorm, Normalize

    shown = np.ma.masked_equal(values, 0)
    low, high = (float(f(shown)) if shown.count() else 1.0 for f in (np.min, np.max))
    norm = LogNorm(low, high) if high > 30 * low else Normalize(0, high)
    return ax.imshow(shown, canvas.MAGNITUDES, norm=norm, **options)


def write_numbers(ax: Axes, image: Any, values: np.ndarray) -> None:
    """Two digits in every cell, dark on light and light on dark; "0" where there is no colour."""
    from matplotlib.colors import to_rgb

    for (i, j), value in np.ndenumerate(values):
        color = image.cmap(image.norm(value)) if value else ax.get_facecolor()
        dark = np.dot((0.299, 0.587, 0.114), to_rgb(color)) < 0.5  # brightness by ITU-R BT.601
        ax.text(j, i, two_digits(value), ha="center", va="center", fontsize=canvas.TEXT_POINTS,
                color="white" if dark else "black")  # fmt: skip


def two_digits(value: float) -> str:
    """A norm in as few letters as there is room for.

    >>> [two_digits(v) for v in (0, 0.0123, 4.56, 1234.5, 1.2e5)]
    ['0', '0.012', '4.6', '1200', '1e+05']
    """
    if value and not 1e-3 <= value < 1e5:
        return f"{value:.0e}"
    return np.format_float_positional(value, 2, fractional=False, trim="-")


# -- norms of blocks -------------------------------------------------------------------------------


@dataclass(frozen=True)
class BlockNorms:
    """‖Jᵢⱼ‖_F of all blocks, the largest relative standard error, and the number of products."""

    values: np.ndarray
    error: float
    products: int


def block_norms(
    J: Jacobian, rows: Edges, columns: Edges, *, probes: int = 32, seed: int = 0
) -> BlockNorms:
    """‖Jᵢⱼ‖_F² = Σ_k ‖Jᵢⱼᵀ e_k‖² = E ‖Jᵢⱼᵀ u‖² for u of random signs, (rows, columns).

    One product with Jᵀ serves all blocks of a row. A block with no more than `probes` rows takes
    unit vectors and is exact. J takes the place of Jᵀ where it needs fewer products.
    """
    if _count(columns, probes) < _count(rows, probes):
        found = block_norms(J.T, columns, rows, probes=probes, seed=seed)
        return BlockNorms(found.values.T, found.error, found.products)
    rng = np.random.default_rng(seed)
    with counting("norms of blocks", "products", _count(rows, probes)) as tick:
        parts = [_squares(J.T, span, columns, probes, rng, tick) for span in pairwise(rows)]
    squares, errors = map(np.array, zip(*parts, strict=True))
    relative = np.divide(errors, 2 * squares, out=np.zeros_like(errors), where=squares > 0)
    return BlockNorms(np.sqrt(squares), float(relative.max(initial=0)), _count(rows, probes))


def _count(edges: Edges, probes: int) -> int:
    """The number of products for the blocks along one side."""
    return sum(min(stop - start, probes) for start, stop in pairwise(edges))


def _squares(
    A: Jacobian, span: tuple[int, int], parts: Edges, probes: int, rng: np.random.Generator,
    tick: Tick,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Squared norms of the parts of A[:, span], and their standard errors.

    The products are taken as many at a time as memory allows.
    """
    width = span[1] - span[0]
    exact = width <= probes
    tried = np.eye(width) if exact else rng.choice((-1.0, 1.0), (width, probes))
    samples = np.zeros((len(parts) - 1, tried.shape[1]))
    step = max(1, CHUNK_BYTES // (8 * max(A.shape)))
    for start in range(0, tried.shape[1], step):
        some = tried[:, start : start + step]
        v = np.zeros((A.shape[1], some.shape[1]))
        v[slice(*span)] = some
        squares = np.asarray(A @ v, float) ** 2
        tick(some.shape[1])
        norms = [squares[a:b].sum(axis=0) for a, b in pairwise(parts)]
        samples[:, start : start + step] = norms
    return (samples.sum(axis=1), np.zeros(len(samples))) if exact else mean_and_error(samples)


# -- sparsity --------------------------------------------------------------------------------------


@hooks.spy.register(Jacobian)
@validated
def spy(J: Jacobian, *, ax: Axes | None = None, progress: bool | None = None) -> Axes:
    """J[i, j] ≠ 0 at some point: the pattern of `onnxjac.pattern`, rows downwards.

    Up to 200 × 200 entries are drawn one by one. A larger matrix is rasterised: the colour of a
    tile is the share of its entries that may be nonzero, so that a lone entry is still
    seen. A dense J is a pale square that says so. `progress` is as for `onnxjac.progress`.
    `J.spy()` is the same.

    Shape: J is (m, n), with m and n at least 1. Raises `InputError` without matplotlib, where `ax`
    is no Axes, and where J is no operator of onnxjac or has no entries; `LimitError` where the
    pattern takes more than 2 GiB.
    """
    canvas.check_jacobian(J)
    with watched(progress):
        found = pattern(J)
    ax, options = canvas.matrix_axes(J, ax)
    from matplotlib.colors import ListedColormap

    m, n = J.shape
    shares, options["interpolation"] = tiles(found), "nearest"
    if found.nnz == m * n > 1:
        ax.imshow([[1]], ListedColormap([canvas.foreground()]), alpha=0.12, **options)
        ax.text(0.5, 0.5, "dense: every entry may be nonzero\nplot() shows how large they are",
                ha="center", va="center", fontsize=9, transform=ax.transAxes)  # fmt: skip
    elif shares.shape == J.shape:  # the colour of text is visible on any background
        ax.imshow(np.ma.masked_equal(shares, 0), ListedColormap([canvas.foreground()]), **options)
    else:
        canvas.bar(coloured(ax, shares, **options), "share of entries in a tile")
    canvas.mark(ax, J)
    ax.set_title(
        f"{found.nnz:,} of {m:,} × {n:,} entries{entries_percent(found.nnz, m * n)}", fontsize=9
    )
    return ax


def entries_percent(count: int, of: int) -> str:
    """A share in percent, with two digits; empty for no entries and for all entries.

    >>> [entries_percent(k, 3000) for k in (0, 1, 100, 2000, 2999, 3000)]
    ['', ', 0.033%', ', 3.3%', ', 67%', ', over 99%', '']
    """
    if count in (0, of):
        return ""
    percent = 100 * count / of
    return f", {percent:.2g}%" if percent < 99 else ", over 99%"


def tiles(found: Any) -> np.ndarray:
    """The share of each tile that the pattern fills, (rows, columns), 200 of each at most."""
    rows, columns = (canvas.cut_evenly(n, 200) for n in found.shape)
    heights, widths = np.diff(rows), np.diff(columns)
    tile = np.repeat(np.arange(len(widths)), widths)
    counts = [np.bincount(tile[found.indices[a:b]], minlength=len(widths))
              for a, b in pairwise(found.indptr[list(rows)])]  # fmt: skip
    return np.array(counts) / np.outer(heights, widths)


# -- sensitivity: which pixels or features the outputs depend on -----------------------------------

UNIT = "output per input"


@validated
def plot_sensitivity(
    J: Linearization, *, entry: Any = None, sample: int = 0, features: Sequence[str] | None = None,
    ax: Axes | None = None, progress: bool | None = None,
) -> Axes:  # fmt: skip
    """sⱼ = √(Σᵢ (∂yᵢ/∂xⱼ)²), how far the outputs move with pixel or feature j of one sample.

    `J` = ∂y/∂x, of `linearize`, has one output y and one input x. `entry` picks entries of y by any
    NumPy index: for logits (N, C), `entry=(0, 3)` is the fourth logit of the first sample, and s =
    |∂y/∂x|; by default all entries count. x is a batch of images (N, C, H, W), of which one is
    drawn in grey or colour beside its map, a norm over channels; or a table (N, features) or one
    row of it, drawn as bars with the names in `features`; or embedded tokens (N, tokens, width),
    with a bar for each token, a norm over its width. The unit is a unit of y per unit of x.
    Returns the axes of the map or of the bars. `progress` is as for `onnxjac.progress`.

    Shapes: x is (N, C, H, W), (N, features), (features,) or (N, tokens, width); s is (H, W),
    (features,) or (tokens,). Raises
    `InputError` without matplotlib, where `ax` is no Axes, where J is of several tensors or of an x
    of another shape, and for an `entry`, a `sample` or `features` that x or y does not have.

    Source: Simonyan, Vedaldi, Zisserman, "Deep inside convolutional networks", 2014.
    """
    name, shape = check_sensitivity(J, sample, features)
    with watched(progress):
        moves = sensitivity(J, entry, sample)
    picked = "" if entry is None else f"[{str(entry).strip('()')}]"
    title = f"‖∂{J.codomain[0].name}{picked}/∂{name}‖"
    if len(shape) == 4:
        image = evaluate(J.route.model, J.point, [name], engine=J.route.engine)[name][sample]
        axes = given_axes(ax, FIGURE_INCHES / 2)
        return draw_image(axes, image, moves, (f"{name}[{sample}]", title))
    kind = "feature"
    if len(shape) == 3:
        kind, moves = "token", np.linalg.norm(moves, axis=-1)
    height = 3.0 if features is None else min(9.0, 0.8 + 0.2 * len(features))
    return draw_bars(given_axes(ax, height), moves, features, f"{title}, sample {sample}", kind)


def check_sensitivity(
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
    if len(shape) not in (1, 2, 3, 4):
        raise InputError(f"{name!r} has shape {prod_text(shape)}, of {len(shape)} axes: images "
                         "have four, (N, C, H, W), embedded tokens three, (N, tokens, width), and "
                         "tables one or two, (N, features)")  # fmt: skip
    batch = shape[0] if len(shape) > 1 else 1
    if not (isinstance(sample, Integral) and -batch <= sample < batch):
        raise InputError(f"{name!r} has {batch} samples: there is no sample={sample!r}")
    if features is not None and len(shape) == 4:
        raise InputError(f"features= names the columns of a table, not images {prod_text(shape)}")
    count, kind = (shape[1], "tokens") if len(shape) == 3 else ((*shape, 0)[-2], "features")
    if features is not None and len(features) != count:
        raise InputError(f"there are {count} {kind}, and {len(features)} names for them")
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
        part.set_title(title, fontsize=TEXT_POINTS + 1)
        part.set(xticks=[], yticks=[])
    bar(shown, UNIT, right.inset_axes((1.03, 0, 0.05, 1)))
    return right


def draw_bars(
    ax: Axes, moves: np.ndarray, features: Sequence[str] | None, title: str, kind: str
) -> Axes:
    """One bar for each feature or token, the first on top where they have names."""
    at = np.arange(len(moves))
    if features is None:
        ax.bar(at, moves, color=BLUE)
        ax.locator_params(axis="x", integer=True)
        ax.set(xlabel=kind, ylabel=UNIT)
    else:
        ax.barh(at, moves, color=BLUE)
        ax.set_yticks(at, list(features), fontsize=TEXT_POINTS)
        ax.invert_yaxis()
        ax.set_xlabel(UNIT)
    ax.set_title(title, fontsize=TEXT_POINTS + 1)
    return ax
