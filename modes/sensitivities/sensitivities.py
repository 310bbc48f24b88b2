"""Sensitivities: what rounding a weight to few bits costs in the loss, by its derivatives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ...jacobians import hooks, prod_text
from ...jacobians.arguments import NonNegative, Positive, validated
from ...jacobians.arrays import host
from ...jacobians.errors import InputError, not_allowed
from ...jacobians.hooks import Shown
from ...jacobians.text import Table, clipped
from ..curvature.kfac import kfac
from ..curvature.over_data import stated_reduction
from ..curvature.reductions import Reduction
from ..data.batches import batches_of
from ..data.comm import as_comm
from ..linear.symmetric import Curvature
from ..model.markup import Page
from ..model.primal.inputs import Names, name_of
from ..model.primal.model import Model, ModelLike, as_model
from ..model.save import Target, drafts
from .choice import Allocation, Pruning, allocate_bits, least_scores
from .rounding import (
    MATRICES,
    channel_axis,
    chosen_weights,
    meetings_of_weights,
    operators_met,
    with_weights,
)
from .weighed import CURVATURES, WeighedLoss

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Cost = Literal["cost", "first", "second", "measured"]
Score = Literal["magnitude", "taylor", "obd"]


@dataclass(frozen=True)
class RoundingCost:
    """What it costs to round the weight `name` of `shape`, which `operator` takes, to `bits`.

    `error` is ‖Δ‖ / ‖W‖, `first` is ⟨g, Δ⟩ and `second` is ½ Δᵀ C Δ, in the units of the loss;
    `measured` is the change of the loss itself, NaN until `Sensitivities.measured`.
    """

    name: str
    operator: str
    shape: tuple[int, ...]
    bits: int
    error: float
    first: float
    second: float
    measured: float = np.nan

    @property
    def cost(self) -> float:
        """⟨g, Δ⟩ + ½ Δᵀ C Δ, the change of the loss to second order."""
        return self.first + self.second


@dataclass(frozen=True, repr=False)
class Sensitivities(Shown):
    """The result of `sensitivities`: a `RoundingCost` for each weight and width.

    `rows` are ordered by weight, as in the file, then by width, the widest first. `weighed` is the
    loss over the data as a function of the weights, which further calls evaluate.
    """

    rows: tuple[RoundingCost, ...]
    weighed: WeighedLoss

    @property
    def loss(self) -> float:
        """The loss over the data, before any rounding."""
        return float(self.weighed.slopes[0])

    @property
    def table(self) -> Table:
        """A row for each weight: its cost at each width, with the measured one after a slash."""
        n = len(self.weighed.bits)
        rows = tuple((clipped(r.name, 40), r.operator, prod_text(r.shape) or "1",
                      *map(cost_text, self.rows[k : k + n]))
                     for k, r in enumerate(self.rows) if k % n == 0)  # fmt: skip
        widths = tuple(f"{b} bits" for b in self.weighed.bits)
        return Table("", ("weight", "operator", "shape", *widths), rows, widths)

    @validated
    def costs(self, by: Cost = "cost") -> np.ndarray:
        """The costs, (weights, widths): `by` both terms, by one of them, or as `measured`."""
        return np.array([getattr(r, by) for r in self.rows]).reshape(-1, len(self.weighed.bits))

    @property
    def rank_correlation(self) -> float:
        """Spearman's ρ of costs and measured changes, over weights and widths; NaN unmeasured."""
        from scipy.stats import spearmanr

        return float(spearmanr(self.costs().ravel(), self.costs("measured").ravel()).statistic)

    def measured(self) -> Sensitivities:
        """The same with the change of the loss when each weight is rounded alone: a run each."""
        changes = self.weighed.average("runs of rounded weights", self.weighed.changes).ravel()
        rows = (replace(row, measured=float(x)) for row, x in zip(self.rows, changes, strict=True))
        return replace(self, rows=tuple(rows))

    @validated
    def allocate(
        self, bits: NonNegative | None = None, *, bytes: NonNegative | None = None,
        by: Cost = "second",
    ) -> Allocation:  # fmt: skip
        """argmin Σₖ cost(k, bₖ) with Σₖ nₖ bₖ within a budget: a width for each weight.

        Exact, as if the costs of several weights added up. Scales are not counted.

        - `bits`, `bytes`: the budget, as mean bits of a number or as bytes of all weights.
        - `by`: which costs count, as for `costs`: by default the second order, since what is left
          of the gradient of a trained model is noise, which rewards errors of its sign.

        Raises `InputError` where no width fits, and without a budget.
        """
        if (bits is None) == (bytes is None):
            raise InputError("give a budget: bits= of a number, or bytes= of all weights")
        f, costs = self.weighed, self.costs(by)
        sizes, widths = np.array([W.size for W in f.weights.values()]), np.array(f.bits)
        room = bytes * 8 if bits is None and bytes is not None else (bits or 0) * sizes.sum()
        chosen = allocate_bits(costs, sizes, widths, float(room))
        total, cost = float(sizes @ widths[chosen]), costs[np.arange(len(sizes)), chosen].sum()
        found = dict(zip(f.weights, widths[chosen].tolist(), strict=True))
        return Allocation(found, total / float(sizes.sum()), total / 8, float(cost))

    def rounded(self, bits: int | Mapping[str, int], model: Any = None) -> Model:
        """The model with its weights rounded, in floating numbers.

        - `bits`: a width, or widths by name, such as `allocate(bits=4).bits`; weights without one
          stay as they are.
        - `model`: another model with the same weights, such as the one before `with_loss`.
        """
        f = self.weighed
        widths = bits if isinstance(bits, Mapping) else dict.fromkeys(f.weights, bits)
        if unknown := [name for name in widths if name not in f.weights]:
            raise InputError(f"{unknown[0]!r} is none of the weights {', '.join(f.weights)}")
        new = {name: f.rounded(name, check_width(b)) for name, b in widths.items()}
        return with_weights(f.model if model is None else as_model(model), new)

    @validated
    def scores(self, by: Score = "obd") -> dict[str, np.ndarray]:
        """A number for each entry w of the weights, by name: what its removal costs.

        `by` says how: `"magnitude"`, |w|; `"taylor"`, |g w|, as in SNIP; `"obd"`, ½ hᵢᵢ w² with the
        diagonal of the curvature over the data. Sources: Lee, Ajanthan, Torr, "SNIP", 2019; LeCun,
        Denker, Solla, "Optimal brain damage", 1990.
        """
        f = self.weighed
        weights = {name: W.astype(np.float64) for name, W in f.weights.items()}
        if by == "obd":
            return {name: f.diagonal[name] * W**2 / 2 for name, W in weights.items()}
        slopes = f.gradient if by == "taylor" else dict.fromkeys(weights, 1.0)
        return {name: abs(slopes[name] * W) for name, W in weights.items()}

    @validated
    def prune(self, sparsity: NonNegative, *, by: Score = "obd") -> Pruning:
        """Masks without the entries of least score, a share `sparsity` of all weights.

        - `by`: the score, as for `scores`.

        Raises `InputError` for a `sparsity` above 1.
        """
        if sparsity > 1:
            raise InputError(f"sparsity={sparsity} is a share of the weights, from 0 to 1")
        scores = self.scores(by)
        return Pruning(least_scores(scores, sparsity), scores, self.weighed.model)

    def hessians(self) -> dict[str, np.ndarray]:
        """2 X Xᵀ / n of each matrix and kernel W, as GPTQ takes it: ∂²/∂W² of ‖W X − Y‖² / n.

        X are the inputs of the operator, a column for each of n samples and positions: for a
        convolution the patches, in the order of `W.reshape(outputs, -1)`. Shapes: (inputs, inputs),
        for several groups (groups, inputs, inputs). Where a weight is used several times, each use
        has its own, `name[k]`. Source: Frantar et al., "GPTQ", 2023.
        """
        f = self.weighed
        names = [*dict.fromkeys(r.name for r in self.rows
                                if MATRICES.issuperset(r.operator.split(", ")))]  # fmt: skip
        if not names:
            raise InputError(f"no weight is one of a {', '.join(sorted(MATRICES))} alone: name "
                             "some by wrt=")  # fmt: skip
        K = kfac(f.model, f.batches, at=f.at, wrt=names, fisher_type="forward-only",
                 engine=f.engine, comm=f.comm)  # fmt: skip
        return {name + f"[{k}]" * (len(uses) > 1): 2 * host(use.left.squeeze(0) if
                len(use.left) == 1 else use.left)
                for name, uses in K.factors.items() for k, use in enumerate(uses)}  # fmt: skip

    def save_hessians(self, path: Target) -> None:
        """Write `hessians` as an npz file at `path`."""
        found = self.hessians()
        with drafts(path) as draft, draft.open("wb") as file:
            np.savez(file, allow_pickle=False, **found)

    def plot(self, *, ax: Axes | None = None) -> Axes:
        """The costs of all weights, a curve for each width, and crosses where they were measured.

        `ax` are axes of matplotlib, new ones by default. Raises `InputError` without matplotlib.
        """
        drawn: Axes = hooks.plot(self, ax=ax)
        return drawn

    def view(self, title: str = "Sensitivities") -> Page:
        """The table and the picture as an HTML page: `save("bits.html")` writes it.

        - `title`: what stands above it, such as the name of the file.
        """
        page: Page = hooks.view(self, title)
        return page

    def to_dict(self) -> dict[str, Any]:
        """All numbers."""
        return {"loss": self.loss, "weights": [{**asdict(r), "cost": r.cost} for r in self.rows]}

    def __str__(self) -> str:
        return f"{self!r}\n{self.table}"

    def __repr__(self) -> str:
        f, ρ = self.weighed, ""
        count = sum(W.size for W in f.weights.values())
        if not np.isnan(self.rows[0].measured):
            ρ = f"; rank correlation with the measured ones {self.rank_correlation:.3f}"
        C = f.curvature if isinstance(f.curvature, str) else f.curvature.formula
        return (f"changes of {f.of} = {self.loss:.4g} by rounding {len(f.weights)} weights, "
                f"{count:,} numbers, to second order by {C}{ρ}")  # fmt: skip


def cost_text(row: RoundingCost) -> str:
    """A cost, and what was measured."""
    return f"{row.cost:.1e}" + ("" if np.isnan(row.measured) else f" / {row.measured:.1e}")


def check_width(bits: Any) -> int:
    """A whole number of bits from 2 to 16; raises `InputError`."""
    if isinstance(bits, bool) or not isinstance(bits, int | np.integer) or not 2 <= bits <= 16:
        raise InputError(f"bits={bits!r} must be a whole number from 2 to 16: a symmetric grid of "
                         "one bit has the number 0 alone")  # fmt: skip
    return int(bits)


@validated
def sensitivities(
    model: ModelLike, data: Any, *, of: str | None = None, at: str | None = None, wrt: Names = None,
    bits: Sequence[int] = (8, 6, 4, 3, 2), per_channel: bool = False,
    curvature: Any = "gauss_newton", reduction: Reduction = "mean",
    batch_size: Positive | None = None, engine: str | None = None, comm: Any = None,
) -> Sensitivities:  # fmt: skip
    """⟨g, Δ⟩ + ½ Δᵀ C Δ for each weight W and width: what rounding W costs in the loss.

    Δ = round(W) − W to the nearest of 2ᵇ − 1 numbers, symmetric around 0; g is the gradient of the
    loss over the data, C its curvature, of which the block of a weight counts as a whole, by one
    product a width. The result has a table and a picture, allots widths under a budget, scores
    weights for pruning, and gives the model with rounded weights.

    | `curvature` | C |
    |---|---|
    | `"gauss_newton"` | Jᵀ H J |
    | `"fisher"` | the Fisher matrix of a softmax over the last axis of `at`, whatever the loss |
    | `"kfac"`, `"ekfac"` | its Kronecker factors |
    | `"hessian"` | the second derivative of the loss, which may be indefinite |
    | `"diagonal"` | the diagonal of Jᵀ H J |
    | an operator | a curvature over the weights, such as `oj.empirical_fisher` of the data |

    - `model`: the model with its loss, as `with_loss` gives it, or a file.
    - `data`: one point, a list of points, a function that returns an iterator over them, or arrays
      or an npz file with `batch_size`.
    - `of`, `at`: the loss, a scalar, and the tensor before it; not needed after `with_loss`.
    - `wrt`: the weights, by name; by default the floating ones of two axes or more that meet a
      MatMul, a Gemm, a convolution, a lookup, an Einsum or a recurrent layer.
    - `bits`: the widths, from 2 to 16.
    - `per_channel`: one scale for each output channel, in place of one for each weight.
    - `reduction`: how the loss reduces over the samples of a batch, `"mean"` or `"sum"`.
    - `batch_size`: the rows of a batch.
    - `engine`: `"onnxruntime"` (default where installed), `"numpy"`, `"torch"` or `"jax"` runs
      the model.
    - `comm`: a communicator of ranks that all call this, each with data of its own: see `ranked`.
      All of them call what reads the data later: `measured`, `scores` and `hessians`.

    Shapes: a number for each weight and width, in the units of the loss. Raises `InputError` for a
    model without a scalar loss or floating weights, and for a width that is none; `UnsupportedOp`
    for an operator without a rule, and with Kronecker factors for a weight that is no matrix.

    Source: Dong et al., "HAWQ-V2: Hessian aware trace-weighted quantization", 2020.
    """
    model = as_model(model, of, at, wrt=wrt)
    loss = name_of(model, of, model.outputs, "of")
    if any(n != 1 for n in model.spec(loss).shape or ()):
        raise InputError(f"{model.spec(loss)} is no scalar, and so no loss: append one, as in "
                         "oj.with_loss(model, 'cross_entropy'), or name it by of=")  # fmt: skip
    met, widths = meetings_of_weights(model), tuple(sorted(map(check_width, {*bits}))[::-1])
    weights = chosen_weights(model, wrt, met)
    if not widths:
        raise InputError("bits is empty: name at least one width")
    if not isinstance(curvature, Curvature) and curvature not in [*CURVATURES]:
        raise not_allowed("curvature", curvature, [*CURVATURES])
    held = weights if isinstance(curvature, str) else [spec.name for spec in curvature.domain]
    if lacking := [name for name in weights if name not in held]:
        raise InputError(f"the curvature is not over {lacking[0]!r}: name wrt= of both")
    axes = {name: channel_axis(met[name], W.ndim) if per_channel else None
            for name, W in weights.items()}  # fmt: skip
    batches = batches_of(data, batch_size)
    one = comm is None and batches.count == 1
    stated_reduction(None if one else reduction, model, of=loss, wrt=[*weights])
    f = WeighedLoss(model, loss, at, weights, axes, widths, batches, reduction, curvature, engine,
                    None if comm is None else as_comm(comm))  # fmt: skip
    rows = []
    for (name, W), second in zip(weights.items(), f.forms(), strict=True):
        D, operator = f.deltas(name), ", ".join(operators_met(met[name]))
        errors = np.linalg.norm(D, axis=0) / (np.linalg.norm(W.astype(np.float64)) or 1.0)
        numbers = zip(widths, errors, f.gradient[name].ravel() @ D, second, strict=True)
        rows += [RoundingCost(name, operator, W.shape, b, *map(float, x)) for b, *x in numbers]
    return Sensitivities(tuple(rows), f)
