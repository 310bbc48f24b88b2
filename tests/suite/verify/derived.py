"""Derived: which rules SymPy derives, from a formula or from index notation, and why not others."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from math import prod
from string import ascii_lowercase
from typing import Any

import numpy as np
import sympy as sp

from onnxjac.jacobians import label_sizes
from onnxjac.modes.verify.case import Case
from onnxjac.modes.verify.cases import CASES
from onnxjac.modes.verify.check import CaseCheck, Verdict
from onnxjac.modes.verify.definition import block_slices, symbolic_matrix
from onnxjac.modes.verify.derivation import derived_from
from onnxjac.ops import find
from onnxjac.ops.derive import Indexed
from onnxjac.ops.node import Node
from onnxjac.ops.registry import full_name
from onnxjac.ops.rules.matmul import expand_equation
from onnxjac.ops.rules.reductions import SUMS
from onnxjac.ops.symbols.stages import names_in_text, parted

FORMULA, INDICES, PARTS, LINEAR, NOT = "formula", "index notation", "composition", "linear", "no"

BY_HAND = {
    "index notation has sums, but no maximum and no order of entries":
        "GlobalMaxPool MaxPool ReduceMax ReduceMin TopK Unique",
    "it samples between entries, at places that are computed, and an index is a whole number":
        "DeformConv GridSample Resize",
    "index notation has sums over an index, but no products": "CumProd ReduceProd",
    "it writes y at t[i], and index notation reads there only": "ScatterElements ScatterND",
    "a formula gives the derivative to one of the inputs that tie": "Max Min",
    "its bounds may be left out, and a formula names all its inputs": "Clip",
    "in training it has a mask that was drawn, which a formula does not name": "Dropout",
    "the slopes that SymPy finds, y/x xʸ and log(x) xʸ, are NaN at x = 0": "Pow",
    "the number of its entries depends on its inputs": "Range",
    "the index of y is s·i + t, and index notation computes indices of inputs only":
        "ConvTranspose",
    "its windows of channels are cut off at both ends": "LRN",
    "an attribute is the length of its windows, and no input has that length": "LpPool",
    "channels within groups are two indices of one axis": "GroupNormalization",
    "SymPy takes minutes over a derivation from indices, and does not prove it equal":
        "MeanVarianceNormalization",
    "its factors cos(2π k t / n) have indices as numbers": "STFT",
    "its sum has n! terms, one for each order of n columns": "Det",
    "its entries are quotients of sums of n! terms": "com.microsoft::Inverse",
    "its coefficients are lists of attributes, and index notation has tensors as inputs":
        "ai.onnx.ml::Imputer ai.onnx.ml::LinearClassifier ai.onnx.ml::LinearRegressor "
        "ai.onnx.ml::SVMClassifier ai.onnx.ml::SVMRegressor",
}  # fmt: skip
"""Why SymPy does not derive a rule -> operators."""

REASONS = {name: why for why, names in BY_HAND.items() for name in names.split()}

Text = Callable[..., str]

TEXTS: dict[str, Text] = {}
"""op_type -> its definition in index notation, for the shapes and attributes of a case."""


def text(*names: str) -> Callable[[Text], Text]:
    """Register a function of a case and the names of its inputs."""

    def enter(function: Text) -> Text:
        TEXTS.update(dict.fromkeys(names, function))
        return function

    return enter


def labels(rank: int, but: str = "") -> list[str]:
    """The names of some indices."""
    return [c for c in ascii_lowercase if c not in but][:rank]


def entry(name: str, over: Sequence[str]) -> str:
    """The entry of a tensor at some indices."""
    return f"{name}[{', '.join(over)}]"


def at(name: str, shape: tuple[int, ...], over: list[str], full: tuple[int, ...]) -> str:
    """A tensor broadcast to an indexed shape: index 0 along its axes of length 1."""
    pairs = zip(shape, full[len(full) - len(shape) :], over[len(over) - len(shape) :], strict=True)
    return entry(name, ["0" if n == 1 != m else i for n, m, i in pairs]) if shape else name


def shapes(case: Case) -> list[tuple[int, ...]]:
    return [np.shape(x) for x in case.inputs if x is not None]


@text("Gemm")
def gemm(case: Case, a: str, b: str, c: str = "") -> str:
    """y[i, j] = α Σₖ a[i, k] b[k, j] + β c[i, j]."""
    s, t = shapes(case)[:2]
    get = case.attrs.get
    left, right = ("k, i" if get("transA") else "i, k"), ("j, k" if get("transB") else "k, j")
    full = (s[1 if get("transA") else 0], t[0 if get("transB") else 1])
    offset = f" + {get('beta', 1)}*{at(c, shapes(case)[2], ['i', 'j'], full)}" if c else ""
    return f"y[i, j] = {get('alpha', 1)}*sum({a}[{left}]*{b}[{right}], k){offset}"


@text("Einsum", "MatMul")
def einsum(case: Case, *names: str) -> str:
    """Σ ∏ xₖ over the labels that the output lacks."""
    ranks = tuple(map(len, shapes(case)))
    rows, columns = ("i" if ranks[0] > 1 else ""), ("j" if ranks[-1] > 1 else "")
    dots = ["..." * (rank > 1) for rank in (ranks[0], ranks[-1], max(ranks))]
    product = "{}{i}k,{}k{j}->{}{i}{j}".format(*dots, i=rows, j=columns)
    terms, out = expand_equation(case.attrs.get("equation", product), ranks)
    sizes = label_sizes(tuple(shapes(case)), terms)
    parts = [at(n, s, list(t), tuple(sizes[c] for c in t))
             for n, s, t in zip(names, shapes(case), terms, strict=True)]  # fmt: skip
    gone = "".join(f", {c}" for c in sizes if c not in out)
    product = "*".join(parts)
    return f"{entry('y', out)} = {f'sum({product}{gone})' if gone else product}"


@text("ReduceMean", "GlobalAveragePool", *SUMS)
def reduction(case: Case, x: str, axes: str = "") -> str:
    """y = outer(Σ inner(x)), or the mean, over some axes or over space."""
    full, space = shapes(case)[0], case.op_type[0] == "G"
    rank, over = len(full), labels(len(full), "xs")
    given: Any = range(2, rank) if space else case.inputs[1] if axes else ()
    some = range(0 if case.attrs.get("noop_with_empty_axes") else rank)
    chosen = {int(a) % rank for a in np.ravel(given)} or set(some)
    kept = [i for k, i in enumerate(over) if k not in chosen]
    gone = [i for i in over if i not in kept]
    outer, inner = SUMS.get(case.op_type, ("s", "x"))
    n = 1 if case.op_type in SUMS else prod(full[k] for k in chosen)
    term = re.sub(r"\bx\b", entry(x, over), inner)
    total = f"sum({term}, {', '.join(gone)})" if gone else f"({term})"
    return f"{entry('y', kept)} = " + re.sub(r"\bs\b", total, outer) + f"/{n}"


def normal(case: Case, x: str, over: list[str], gone: list[str], centred: bool) -> str:
    """(x - μ) / √(σ² + ε) with the moments over some indices."""
    n = prod(shapes(case)[0][over.index(i)] for i in gone)
    new = {i: i.upper() for i in gone}
    other = entry(x, [new.get(i, i) for i in over])
    again = entry(x, [i.upper() * 2 if i in gone else i for i in over])
    spans = [", ".join(i.upper() * k for i in gone) for k in (1, 2)]
    mean = f"sum({other}, {spans[0]})/{n}" if centred else "0"
    inner = f"sum({again}, {spans[1]})/{n}" if centred else "0"
    eps = case.attrs.get("epsilon", 1e-5)
    return f"({entry(x, over)} - {mean})/sqrt(sum(({other} - {inner})**2, {spans[0]})/{n} + {eps})"


@text("LayerNormalization", "RMSNormalization", "InstanceNormalization")
def normalization(case: Case, x: str, scale: str, bias: str = "") -> str:
    """The entries standardised over some axes, times a scale, plus a bias."""
    full = shapes(case)[0]
    over = labels(len(full), "xswvb")
    by_channel = case.op_type == "InstanceNormalization"
    first = 2 if by_channel else case.attrs.get("axis", -1) % len(full)
    parts = [entry(n, over[1:2]) if by_channel else at(n, s, over, full)
             for n, s in zip((scale, bias), shapes(case)[1:], strict=False) if n]  # fmt: skip
    inner = normal(case, x, over, over[first:], case.op_type[0] != "R")
    return f"{entry('y', over)} = {inner}*{parts[0]}" + "".join(f" + {p}" for p in parts[1:])


@text("BatchNormalization")
def batch_normalization(case: Case, x: str, s: str, b: str, mean: str, variance: str) -> str:
    """(x - μ) / √(σ² + ε) · s + b, with given moments."""
    if case.attrs.get("training_mode"):
        return ""
    over, eps = labels(len(shapes(case)[0]), "xswtpv"), case.attrs.get("epsilon", 1e-5)
    c = over[1]
    return (f"{entry('y', over)} = ({entry(x, over)} - {mean}[{c}])"
            f"/sqrt({variance}[{c}] + {eps})*{s}[{c}] + {b}[{c}]")  # fmt: skip


@text("Softmax", "LogSoftmax")
def softmax(case: Case, x: str) -> str:
    """exp(x) / Σ exp(x) along an axis, or its logarithm."""
    over = labels(len(shapes(case)[0]), "xk")
    inner = list(over)
    inner[case.attrs.get("axis", -1)] = "k"
    total, here = f"sum(exp({entry(x, inner)}), k)", entry(x, over)
    value = f"{here} - log({total})" if case.op_type[0] == "L" else f"exp({here})/{total}"
    return f"{entry('y', over)} = {value}"


@text("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
def loss(case: Case, x: str, t: str, w: str = "") -> str:
    """-Σ w[tₙ] p[n, tₙ], with p = x or log softmax(x)."""
    if "ignore_index" in case.attrs:
        return ""
    logs = f" - log(sum(exp({x}[n, k]), k))" if case.op_type[0] == "S" else ""
    weight = f"{w}[{t}[n]]" if w else "1"
    one, how = f"-{weight}*({x}[n, {t}[n]]{logs})", case.attrs.get("reduction", "mean")
    if how == "none":
        return f"y[n] = {one}"
    total = f"sum({weight}, n)" if w else str(shapes(case)[1][0])
    return f"y = sum({one}, n)" + (f"/{total}" if how == "mean" else "")


@text("LpNormalization", "GlobalLpPool", "ai.onnx.ml::Normalizer")
def norms(case: Case, x: str) -> str:
    """‖x‖ₚ = (Σ |x|ᵖ)^(1/p) over space, or x / ‖x‖ₚ along an axis."""
    norm = case.attrs.get("norm", "MAX") if case.domain else f"L{case.attrs.get('p', 2)}"
    if norm == "MAX":
        return ""
    over, p = labels(len(shapes(case)[0]), "x"), norm[1:]
    along = over[2:] if case.op_type[0] == "G" else [over[case.attrs.get("axis", -1)]]
    term = f"abs({entry(x, [i.upper() if i in along else i for i in over])})**{p}"
    total = f"sum({term}, {', '.join(along).upper()})**(1/{p})"
    if case.op_type[0] == "G":
        return f"{entry('y', over[:2])} = {total}"
    return f"{entry('y', over)} = {entry(x, over)}/{total}"


@text("Conv")
def conv(case: Case, x: str, w: str, b: str = "") -> str:
    """Σ w[m, c, t] x[n, c, stride · o + dilation · t], without padding: a sum over windows."""
    get, rank = case.attrs.get, len(shapes(case)[0]) - 2
    if get("group", 1) != 1 or any(get("pads") or ()) or get("auto_pad"):
        return ""
    out = labels(rank, "xwtbcnm")
    taps = [c.upper() for c in out]
    steps = zip(get("strides", [1] * rank), out, get("dilations", [1] * rank), taps, strict=True)
    places = ["n", "c", *(f"{s}*{o} + {d}*{t}" for s, o, d, t in steps)]
    term = f"{entry(w, ['m', 'c', *taps])}*{entry(x, places)}"
    total = f"sum({term}, c, {', '.join(taps)})" + (f" + {b}[m]" if b else "")
    return f"{entry('y', ['n', 'm', *out])} = {total}"


def derived_rule(case: Case) -> Indexed | None:
    """The rule that SymPy derives for a case, if it has a definition in index notation."""
    make = TEXTS.get(full_name(case.op_type, case.domain))
    names = [n for n, x in zip(case.names, case.inputs, strict=True) if x is not None]
    if make is None or not (made := make(case, *names)):
        return None
    out, body = parted(made)
    return Indexed(body, out, [n for n in names if n in names_in_text(body)])


def compared(case: Case) -> list[Verdict]:
    """The derived Jacobian of the first output against SymPy's derivative of the definition."""
    rule, check = derived_rule(case), CaseCheck(case)
    assert rule is not None
    values = check.reading.values
    inputs = tuple(values[n] for n in rule.variables)
    made = rule(check.op, Node(case.model.steps[0], inputs, (None,) * case.outputs))
    places = {
        k: v for k, v in block_slices(values, check.of, check.wrt).items() if k[0] == check.of[0]
    }
    found = sp.zeros(*check.truth.shape)
    for (_, i), J in made.items():
        if (pair := (check.of[0], rule.variables[i])) in places:
            found[places[pair]] = symbolic_matrix(J, check.op)
    return check.compare(found, check.truth, places)


def derivation(op_type: str, domain: str = "") -> tuple[str, str]:
    """How the rule of an operator is derived, or why it is not.

    >>> derivation("Tanh"), derivation("Transpose")[0], derivation("MaxPool")[0]
    (('formula', 'tanh(x)'), 'linear', 'no')
    """
    declared, cases = find(op_type, domain), CASES.get((op_type, domain), [])
    if text := derived_from(op_type, domain):
        return FORMULA, text
    if declared is None or declared.is_composed:
        return PARTS, "the rules of the operators that define it"
    texts = [case for case in cases if derived_rule(case)]
    if texts and all(compared(case) and all(compared(case)) for case in texts):
        kept = "" if len(texts) == len(cases) else f", in {len(texts)} of {len(cases)} cases"
        return INDICES, derived_rule(texts[0]).text + kept  # type: ignore[union-attr]
    name = full_name(op_type, domain)
    if name in REASONS or any(CaseCheck(case).truth.free_symbols for case in cases):
        return NOT, REASONS.get(name, "")
    return LINEAR, "y is linear: the rule is the operator itself, which moves or adds entries"
