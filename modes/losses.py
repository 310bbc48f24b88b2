"""Losses: PyTorch's losses as formulas, and how one is appended to a model.

A formula is written in ONNX's operators and Python's arithmetic: see `nodes`. Its last statement is
the loss of each entry or row, before it is reduced. x and the other names of `at` are tensors of
the model, y is the target; all other names are options.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import onnx_ir as ir

from ..jacobians.arguments import Natural, validated
from ..jacobians.arrays import as_array
from ..jacobians.errors import InputError, closest, not_allowed, warn
from .model.flow.nodes import Nodes
from .model.loading.patterns import recognise
from .model.primal.inputs import HEAD, TAKEN, Names, names_of
from .model.primal.model import Model, ModelLike, TensorSpec, as_model

Reduction = Literal["mean", "sum", "none", "batchmean"]


@dataclass(frozen=True)
class Loss:
    """A loss of the tensors `at` and a target: its terms by a formula, and the options of this.

    There is a term for each entry of x, for each row along the last axis or the classes, or for
    each sequence along the second axis. A mean divides by Σ `per`, where there is one, in place of
    the number of terms.
    """

    formula: str
    options: Mapping[str, Any] = field(default_factory=dict)
    target: Literal["labels", "lists", "sequences", "entries", "rows", ""] = "entries"
    at: tuple[str, ...] = ("x",)
    terms: Literal["entries", "rows", "sequences"] = "entries"
    per: str = ""


CLASSES: Mapping[str, Any] = {"axis": 1, "weight": None}
NLL = "NegativeLogLikelihoodLoss({}, y, weight, reduction='none', ignore_index=ignore_index)"
FIRST = "k = Equal(CumSum(Float(Float(y) < 0), Squeeze([1])), 0);"
IS_COUNTED = "Float(Not(Equal(y, CastLike(ignore_index, y))))"
PER = "k = {}; k if weight is None else k * Gather(weight, Where(k > 0, y, CastLike(0, y)))"
SMOOTH = "RowMean(p if weight is None else p * weight)"

LOSSES: dict[str, Loss] = {
    "cross_entropy": Loss(
        f"p = LogSoftmax(x, axis=-1); n = {NLL.format('p')};"
        f"n if label_smoothing == 0 else (1 - label_smoothing) * n - label_smoothing * "
        f"{IS_COUNTED} * {SMOOTH}",
        {**CLASSES, "ignore_index": -100, "label_smoothing": 0.0}, "labels", terms="rows",
        per=PER.format(IS_COUNTED)),
    "soft_cross_entropy": Loss(
        "p = LogSoftmax(x, axis=-1); t = y if weight is None else y * weight;"
        f"-(1 - label_smoothing) * RowSum(t * p) - label_smoothing * {SMOOTH}",
        {**CLASSES, "label_smoothing": 0.0}, terms="rows"),
    "nll": Loss(NLL.format("x"), {**CLASSES, "ignore_index": -100}, "labels", terms="rows",
                per=PER.format(IS_COUNTED)),
    "multi_margin": Loss(
        "h = Max(margin - GatherElements(x, Unsqueeze(y, [1]), axis=1) + x, 0);"
        "h = h if p == 1 else h ** p; C = Float(Squeeze(Shape(x, start=1)));"
        "m = RowMean(h) - max(margin, 0) ** p / C;"
        "m if weight is None else m * Gather(weight, y)",
        {**CLASSES, "p": 1, "margin": 1.0}, "labels", terms="rows"),
    "multilabel_margin": Loss(
        f"{FIRST} j = Where(k, y, CastLike(0, y));"
        "k = Unsqueeze(Float(k), [2]); t = k * OneHot(j, Shape(x, start=1), Float([0, 1]));"
        "h = Max(1 - Unsqueeze(GatherElements(x, j, axis=1), [2]) + Unsqueeze(x, [1]), 0);"
        "RowMean(ReduceSum(k * h, [1], keepdims=0) * (1 - ReduceMax(t, [1], keepdims=0)))",
        {"axis": 1}, "lists", terms="rows"),
    "mse": Loss("d = x - y; d * d"),
    "l1": Loss("Abs(x - y)"),
    "smooth_l1": Loss(
        "d = x - y; a = Abs(d); a if beta == 0 else"
        " Where(a < beta, d * d / (2 * beta), a - beta / 2)", {"beta": 1.0}),
    "huber": Loss("d = x - y; a = Abs(d); Where(a < delta, d * d / 2, delta * (a - delta / 2))",
                  {"delta": 1.0}),
    "bce": Loss(
        "b = -(y * Max(Log(x), -100) + (1 - y) * Max(Log(1 - x), -100));"
        "b if weight is None else b * weight", {"weight": None}),
    "bce_with_logits": Loss(
        "b = Softplus(x) - y * x if pos_weight is None else"
        " (1 - y) * x + (1 + (pos_weight - 1) * y) * Softplus(-x);"
        "b if weight is None else b * weight", {"weight": None, "pos_weight": None}),
    "multilabel_soft_margin": Loss(
        "b = Softplus(x) - y * x; RowMean(b if weight is None else b * weight)",
        {"weight": None}, terms="rows"),
    "soft_margin": Loss("Softplus(-y * x)"),
    "hinge_embedding": Loss(
        "Where(y == 1, 0, Max(margin - x, 0)) + Where(y == -1, 0, x)", {"margin": 1.0}),
    "kl_div": Loss(
        "Exp(y) * (y - x) if log_target else Where(y > 0, y * Log(Where(y > 0, y, 1)), 0) - y * x",
        {"log_target": False}),
    "poisson_nll": Loss(
        "s = Where(y > 1, y * Log(y) - y + Log(2 * pi * y) / 2, 0) if full else 0;"
        "(Exp(x) - y * x if log_input else x - y * Log(x + eps)) + s",
        {"log_input": True, "full": False, "eps": 1e-8}),
    "gaussian_nll": Loss(
        "v = Max(variance, eps); d = x - y; c = log(2 * pi) if full else 0;"
        "(Log(v) + d * d / v + c) / 2",
        {"full": False, "eps": 1e-6}, at=("x", "variance")),
    "ctc": Loss(  # s: log-probabilities of all ways to the labels e with blanks between, so far
        f"{FIRST} n = RowSum(Float(k)); e = Unsqueeze(Where(k, y, CastLike(blank, y)), [2]);"
        "e = Flatten(Concat(Expand(CastLike(blank, y), Shape(e)), e, axis=2), axis=1);"
        "e = Pad(e, [0, 0, 0, 1], CastLike(blank, y));"
        "before = Slice(Pad(e, [0, 2, 0, 0], CastLike(blank, y)), [0], [-2], [1]);"
        "skip = Where(Equal(e, before), low, 0); place = CumSum(skip * 0 + 1, Squeeze([1])) - 1;"
        "e = Expand(e, Concat(Shape(x, end=1), Shape(e), axis=0));"
        "live = Float(ConstantOfShape(Shape(x, end=2))) + 1 if mask is None else mask;"
        "s = Scan('a = Slice(Pad(s, [0, 1, 0, 0], low), [0], [-1], [1]);"
        "  b = Slice(Pad(s, [0, 2, 0, 0], low), [0], [-2], [1]) + skip; h = Max(s, a, b);"
        "  h = h + Log(Exp(s - h) + Exp(a - h) + Exp(b - h)) + p;"
        "  Where(Unsqueeze(q, [1]) > 0, h, s)',"
        " Where(place == 0, 0, low), Max(GatherElements(x, e, axis=2), low), live);"
        "s = Where(Abs(place - Unsqueeze(2 * n, [1]) + 0.5) < 1, s, low);"
        "l = -ReduceLogSumExp(s, [-1], keepdims=0);"
        "l = Where(l < -low / 2, l, 0 if zero_infinity else inf);"
        "l / Max(n, 1) if reduction == 'mean' else l",
        {"blank": 0, "zero_infinity": False}, "sequences", terms="sequences"),
    "cosine_embedding": Loss(
        "c = RowSum(x * x2) / Sqrt((RowSum(x * x) + 1e-12) * (RowSum(x2 * x2) + 1e-12));"
        "Where(y == 1, 1 - c, 0) + Where(y == -1, Max(c - margin, 0), 0)",
        {"margin": 0.0}, "rows", ("x", "x2"), terms="rows"),
    "margin_ranking": Loss("Max(margin - y * (x - x2), 0)", {"margin": 0.0}, at=("x", "x2")),
    "triplet_margin": Loss(
        "a = RowSum(Abs(x - positive + eps) ** p) ** (1 / p);"
        "b = RowSum(Abs(x - negative + eps) ** p) ** (1 / p);"
        "c = Min(b, RowSum(Abs(positive - negative + eps) ** p) ** (1 / p)) if swap else b;"
        "Max(margin + a - c, 0)",
        {"margin": 1.0, "p": 2.0, "eps": 1e-6, "swap": False}, "",
        ("x", "positive", "negative"), terms="rows"),
}  # fmt: skip
"""PyTorch's name of a loss, without `_loss` -> what it is."""

FUSED = {"cross_entropy": "SoftmaxCrossEntropyLoss", "nll": "NegativeLogLikelihoodLoss"}
"""The losses that are one operator of ONNX, without mask and smoothing."""

CONTAINED = {"cross_entropy": ("Softmax", "LogSoftmax"), "bce_with_logits": ("Sigmoid",),
            "soft_cross_entropy": ("Softmax", "LogSoftmax")}  # fmt: skip
"""The operators that a loss contains, and whose result it does not take."""


UNCHANGED = frozenset({"Cast", "Identity"})
"""Operators that pass numbers on, as exporters append them to outputs."""


@validated
def with_loss(
    model: ModelLike,
    kind: str,
    *,
    at: Names = None,
    target: str = "target",
    reduction: Reduction = "mean",
    mask: str | None = None,
    name: str = "loss",
    weight: Any = None,
    pos_weight: Any = None,
    axis: int | None = None,
    ignore_index: int | None = None,
    label_smoothing: float | None = None,
    beta: float | None = None,
    delta: float | None = None,
    margin: float | None = None,
    p: float | None = None,
    eps: float | None = None,
    full: bool | None = None,
    log_input: bool | None = None,
    log_target: bool | None = None,
    swap: bool | None = None,
    blank: Natural | None = None,
    zero_infinity: bool | None = None,
) -> Model:
    """The model with a loss of PyTorch after the tensor `at`: x, y ↦ loss(at(x), y).

    The loss is the only output of the result, and so the default of `of=`; all tensors keep their
    names. `at` becomes the default of `at=` in `gauss_newton`, `fisher` and `kfac`. The result has
    the opset of the model.

    `target` is a tensor of the model, such as the input of an autoencoder, or the name of a new
    input: of integers where the loss takes labels, else of the type of `at`. `mask` is a tensor or
    a new input too, with a factor for each term ℓ: a mean is then Σ mask · ℓ / Σ mask.

    | kind | options |
    |---|---|
    | `"cross_entropy"` | `weight`, `ignore_index=-100`, `label_smoothing=0`, `axis=1` |
    | `"soft_cross_entropy"`, of probabilities | `weight`, `label_smoothing=0`, `axis=1` |
    | `"nll"` | `weight`, `ignore_index=-100`, `axis=1` |
    | `"multi_margin"` | `weight`, `p=1`, `margin=1`, `axis=1` |
    | `"multilabel_margin"` | `axis=1` |
    | `"mse"`, `"l1"`, `"soft_margin"` | |
    | `"smooth_l1"`; `"huber"` | `beta=1`; `delta=1` |
    | `"bce"`; `"bce_with_logits"` | `weight`; `weight`, `pos_weight` |
    | `"multilabel_soft_margin"` | `weight` |
    | `"hinge_embedding"`; `"margin_ranking"` | `margin=1`; `margin=0` |
    | `"kl_div"` | `log_target=False` |
    | `"poisson_nll"` | `log_input=True`, `full=False`, `eps=1e-8` |
    | `"gaussian_nll"` | `full=False`, `eps=1e-6` |
    | `"cosine_embedding"` | `margin=0` |
    | `"triplet_margin"` | `margin=1`, `p=2`, `eps=1e-6`, `swap=False` |
    | `"ctc"` | `blank=0`, `zero_infinity=False` |

    The options are named as in `torch.nn.functional`; `weight` and `pos_weight` are arrays. `axis`
    is the axis of the classes: for logits [batch, tokens, words] the last one, `axis=-1`.

    - `model`: the model, as `load` gives or takes it.
    - `kind`: which loss.
    - `at`: the tensor, by default the only floating output: logits for `"cross_entropy"` and
      `"bce_with_logits"`, log-probabilities for `"nll"`, `"kl_div"` and `"ctc"`, probabilities for
      `"bce"`. Two tensors for `"gaussian_nll"` (mean, variance), `"cosine_embedding"` and
      `"margin_ranking"`, three for `"triplet_margin"` (anchor, positive, negative).
    - `reduction`: `"mean"`, `"sum"` or `"none"` as in PyTorch; `"batchmean"` is the sum by the
      length of the first axis.
    - `name`: the name of the loss.

    Shapes: for x of (N, C, ...) labels are (N, ...), and other targets are as x, for
    `"cosine_embedding"` as x without its last axis. For `"multilabel_margin"` a row of the target
    has labels, then -1. For `"ctc"` x is (T, N, C), the target (N, S) has the labels of each
    sequence, then -1, and a `mask` (T, N) is above 0 at the frames that count, the first ones. The
    loss is a scalar, with `reduction="none"` of the shape of labels or of x. Raises `InputError`
    for an unknown kind or option, and for a name, a number of tensors or an axis that does not fit.
    """
    source = as_model(model, at)
    if kind not in LOSSES:
        raise not_allowed("kind", kind, LOSSES)
    loss, chosen = LOSSES[kind], options_of(
        kind, weight=weight, pos_weight=pos_weight, axis=axis, ignore_index=ignore_index,
        label_smoothing=label_smoothing, beta=beta, delta=delta, margin=margin, p=p, eps=eps,
        full=full, log_input=log_input, log_target=log_target, swap=swap, blank=blank,
        zero_infinity=zero_infinity,
    )  # fmt: skip
    ends = tensors_of_loss(source, kind, at)
    warn_of_twice(source, kind, ends[0])
    warn_of_classes(source, kind, ends[0], axis)
    known = set(source.names)
    if name in known:
        raise InputError(f"the model has a tensor {name!r} already: give the loss another name=")
    copy = source.ir.clone()
    terms = LossTerms(copy, source.spec(ends[0]), loss, chosen, name)
    made = terms.reduced(kind, ends, target, mask, reduction)
    made.name = name
    copy.graph.outputs.clear()
    copy.graph.outputs.append(made)
    copy.metadata_props[HEAD] = ends[0]
    new = (str(value.name) for value in copy.graph.inputs if value.name not in source.inputs)
    copy.metadata_props[TAKEN] = "\n".join([*copy.metadata_props.get(TAKEN, "").splitlines(), *new])
    recognise(copy)
    return Model(copy, source.limits)


def options_of(kind: str, **options: Any) -> dict[str, Any]:
    """The options of a loss, with its defaults where they are None."""
    defaults = LOSSES[kind].options
    given = {name: value for name, value in options.items() if value is not None}
    for name in given.keys() - defaults.keys():
        raise InputError(f"the loss {kind!r} has no option {name!r}.{closest(name, defaults)}")
    return {**defaults, **given}


def tensors_of_loss(model: Model, kind: str, at: Names) -> tuple[str, ...]:
    """The tensors that a loss takes."""
    ends, wanted = names_of(model, at, model.outputs, "at"), LOSSES[kind].at
    if len(ends) != len(wanted):
        raise InputError(f"{kind!r} is a loss of {len(wanted)} tensor{'s' * (len(wanted) > 1)}, "
                         f"not of {', '.join(map(repr, ends[:8]))}: name by at= what stands for "
                         f"{', '.join(wanted)}")  # fmt: skip
    return ends


def warn_of_twice(model: Model, kind: str, at: str) -> None:
    """Warn where a tensor was made by an operator that the loss contains."""
    makers, name = {name: step for step in model.steps for name in step.outputs}, at
    while name in makers and makers[name].op_type in UNCHANGED:
        name = str(makers[name].inputs[0])
    step = makers.get(name)
    if step is not None and step.op_type in CONTAINED.get(kind, ()):
        warn(f"{kind!r} contains {step.op_type}, of which {at!r} is the result: it is taken twice, "
             f"unless at={step.inputs[0]!r}")  # fmt: skip


def warn_of_classes(model: Model, kind: str, at: str, axis: int | None) -> None:
    """Warn where axis 1 has one class, or an open size and the last axis has none."""
    shape = model.spec(at).shape or ()
    if axis is not None or LOSSES[kind].options.get("axis") != 1 or len(shape) < 2:
        return
    if shape[1] == 1:
        warn(f"{kind!r} of one class is the same for every {at!r}: 'bce' is the loss of a "
             f"probability, 'bce_with_logits' of a logit")  # fmt: skip
    elif len(shape) > 2 and not isinstance(shape[1], int) and isinstance(shape[-1], int):
        warn(f"the classes of {kind!r} are along axis 1 of {at!r}, whose size is open; if they are "
             f"the {shape[-1]} along the last axis, say axis=-1")  # fmt: skip


class LossTerms:
    """The terms of a loss of a tensor x and of further ones, behind the graph of a model."""

    def __init__(
        self, model: ir.Model, spec: TensorSpec, loss: Loss, options: Mapping[str, Any], name: str
    ) -> None:
        if spec.dtype is None:
            raise InputError(f"the model does not say of which type {spec.name!r} is")
        self.spec, self.loss, self.options = spec, loss, dict(options)
        self.nodes = Nodes(model, spec.dtype, name)
        self.add = self.nodes.add
        self.rank = None if spec.shape is None else len(spec.shape)
        if loss.terms == "sequences" and self.rank not in (None, 3):
            raise InputError(f"{spec} is not (frames, samples, classes), of which this loss is")
        self.axis = self._axis()

    def _axis(self) -> int:
        """The axis of the classes, or the last one: 1, or counted from the end."""
        axis = int(self.options.get("axis", -1))
        if self.rank is None or (axis == 1 and self.rank > 1):
            return axis
        if self.rank == 1 and axis == 1:  # one sample
            return -1
        if not -self.rank <= axis < self.rank:
            raise InputError(f"axis={axis} is no axis of {self.spec}")
        return 1 if axis % self.rank == 1 else axis % self.rank - self.rank

    def reduced(
        self, kind: str, ends: tuple[str, ...], target: str, mask: str | None, reduction: Reduction
    ) -> ir.Value:
        """The loss, reduced."""
        nodes, loss = self.nodes, self.loss
        known: dict[str, Any] = {n: nodes.values[e] for n, e in zip(loss.at, ends, strict=True)}
        x = known["x"]
        if loss.target:
            known["y"] = self._target(target)
        if mask is not None:
            shape = self.spec.shape if loss.terms == "entries" else self._rows()
            known["mask"] = nodes.floating(nodes.entered(mask, shape, self.spec.dtype))
        y, whole = known.get("y", x), self.options | {"mask": None, "reduction": reduction}
        whole["low"] = -1e4 if self.spec.dtype == np.float16 else -1e30
        for name in {"weight", "pos_weight"} & whole.keys():
            if whole[name] is not None:
                whole[name] = nodes.value(as_array(whole[name], self.spec.dtype))
        fused = kind in FUSED and mask is None and not whole.get("label_smoothing")
        fused = fused and self.axis == 1 and reduction != "batchmean"
        if flat := "axis" in whole and not fused and not (self.rank == 2 and self.axis == 1):
            known = {name: self._matrix(name, value) for name, value in known.items()}
        if fused:
            made = self.add(FUSED[kind], known["x"], known["y"], whole["weight"],
                            reduction=reduction, ignore_index=whole["ignore_index"])  # fmt: skip
        else:
            made = self._total({**whole, **known}, y, reduction)
        if reduction == "none" and flat:
            made = self.add("Reshape", made, self._row_sizes(x, y))
        scalar = reduction != "none"
        sizes = () if scalar else self.spec.shape if loss.terms == "entries" else self._rows()
        sizes = sizes[1:] if sizes and loss.terms == "sequences" else sizes
        made.shape = None if sizes is None else ir.Shape(sizes)
        return made

    def _target(self, name: str) -> ir.Value:
        """The target, in the type that the loss takes."""
        kind, rows = self.loss.target, self._rows()
        labels = kind in ("labels", "lists", "sequences")
        shape = self.spec.shape if kind in ("entries", "lists") else rows
        shape = (*rows[1:], None) if rows and kind == "sequences" else shape
        y = self.nodes.entered(name, shape, np.int64 if labels else self.spec.dtype)
        if not labels:
            return self.nodes.floating(y)
        if y.dtype is not None and y.dtype.is_floating_point():
            raise InputError(f"the target {name!r} is floating, and labels are integers: for "
                             "probabilities take 'soft_cross_entropy'")  # fmt: skip
        wide = y.dtype in (ir.DataType.INT64, ir.DataType.INT32)
        return y if wide else self.add("Cast", y, to=ir.DataType.INT64)

    def _rows(self) -> tuple[Any, ...] | None:
        """The shape of x without the axis of the classes, or without the last one."""
        shape = self.spec.shape
        if shape is None or self.rank is None:
            return None
        return tuple(n for k, n in enumerate(shape) if k != self.axis % self.rank)

    def _row_sizes(self, x: ir.Value, y: ir.Value) -> ir.Value:
        """The shape of the rows as a tensor."""
        if self.loss.target == "labels" or self.rank is None:
            return self.add("Shape", y)
        kept = [k for k in range(self.rank) if k != self.axis % self.rank]
        return self.add("Gather", self.add("Shape", x), np.array(kept, np.int64))

    def _matrix(self, name: str, x: ir.Value) -> ir.Value:
        """A tensor of classes as a matrix, one row for each term; others as a vector."""
        if name != "x" and not (name == "y" and self.loss.target in ("entries", "lists")):
            return self.add("Reshape", x, np.array([-1]))
        if self.axis != -1:
            if self.rank is None:
                raise InputError(f"the model does not say how many axes {self.spec.name!r} has: "
                                 "only axis=-1 and the plain loss can be taken")  # fmt: skip
            axes = [k for k in range(self.rank) if k != self.axis % self.rank]
            x = self.add("Transpose", x, perm=[*axes, self.axis % self.rank])
        return self.add("Flatten", x, axis=-1)

    def _total(self, known: dict[str, Any], y: ir.Value, reduction: Reduction) -> ir.Value:
        """Σ mask · ℓ of the terms ℓ, as it is reduced."""
        loss = self.loss
        mask = None if loss.terms == "sequences" else known["mask"]  # which the formula takes
        each = self.nodes.formula(loss.formula, known)
        weighted = each if mask is None else self.add("Mul", each, mask)
        if reduction == "none":
            return weighted
        if reduction == "mean" and mask is None and not loss.per:
            return self.add("ReduceMean", each, keepdims=0)
        total = self.add("ReduceSum", weighted, keepdims=0)
        if reduction == "sum":
            return total
        if reduction == "batchmean":
            count = self.add("Squeeze", self.add("Shape", y, end=1))
            return self.add("Div", total, self.nodes.floating(count))
        per = self.nodes.formula(loss.per or "mask", known)
        if loss.per and mask is not None:
            per = self.add("Mul", per, mask)
        if not loss.per:  # it may be broadcast
            per = self.add("Expand", per, self.add("Shape", each))
        return self.add("Div", total, self.add("ReduceSum", per, keepdims=0))
