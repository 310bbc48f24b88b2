"""View: the graph of a model as one HTML page, with the blocks of its Jacobian on the edges.

The page holds the data as JSON, a template, and dagre, which lays the graph out; it loads nothing.
Names come from model files: they are text in the JSON and in the page, never markup or code, and
the page's policy lets no script run but its own.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterator, Sequence
from hashlib import sha256
from html import escape
from importlib.resources import files
from itertools import islice
from math import isfinite
from typing import Any

import numpy as np

from ...jacobians import Convolution, Diagonal, Jacobian, prod_text
from ...jacobians.contraction import EINSUMS
from ...jacobians.errors import OnnxJacError
from ...jacobians.hooks import view as hook
from ...jacobians.progress import counted
from ...jacobians.text import bytes_text, clipped, time_text
from ...ops import Step
from ..estimators.norms import frobenius_norm
from ..linear.elimination.cost import seconds
from ..linear.linearization import Linearization
from ..model.markup import Page
from ..model.primal.evaluate import evaluate
from ..sparse.sweep import everything_in
from .blocks import Held, end_names, held_in, sign_meanings, structure_kind
from .explain import mathematics, mathml

NORM_PRODUCTS = 12
"""Products for the norm of a block, where its structure does not give the norm."""


@hook.register(Linearization)
def view(J: Linearization, title: str = "") -> Page:
    """The graph of J's model; runs the model once, and takes up to 12 products of each block.

    - `title`: what stands above it, such as the name of the file (the name of the model).
    """
    text = (files(__package__) / "view.html").read_text("utf-8")
    layout = (files(__package__) / "dagre.min.js").read_text("utf-8").partition("//# source")[0]
    text = text.replace("/* dagre */", layout)
    script = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)[0]
    policy = b64encode(sha256(script.encode()).digest()).decode()
    told = contents(J.T if J.transposed else J, title)
    data = json.dumps(told, ensure_ascii=True, allow_nan=False).replace("<", "\\u003c")
    head = escape(told["title"])
    return Page(text.replace("$policy", policy).replace("$title", head).replace("$data", data))


# -- data: tensors, nodes, rules and blocks, by number ---------------------------------------------


def contents(J: Linearization, title: str = "") -> dict[str, Any]:
    """All that the page says."""
    route, point = J.route.flat(J.point)
    steps, model, (wrt, of) = route.steps, route.model, end_names(J)
    names = dict.fromkeys(n for s in steps for n in s.tensors)
    names |= dict.fromkeys((*model.inputs, *model.outputs, *wrt, *of))
    values = evaluate(model, point, list(names))
    number = {name: k for k, name in enumerate(names)}
    kinds: dict[Any, Step] = {}
    for step in steps:
        kinds.setdefault(formula_key(step), step)
    place, at = {kind: k for k, kind in enumerate(kinds)}, {s.key: k for k, s in enumerate(steps)}
    held = [h for h in held_in(J) if h.step.key in at]
    made = {name for step in steps for name in step.outputs}
    return {
        "title": title or model.name or "model", "about": repr(J), "flops": J.flops,
        "nodes": [
            {"op": step.op_type, "name": step.name, "scope": scope,
             "rule": place[formula_key(step)],
             "in": [number.get(n or "") for n in step.inputs],
             "out": [number.get(n or "") for n in step.outputs]}
            for step, scope in zip(steps, scopes(steps), strict=True)
        ],
        "tensors": [[name, *shape_and_type(values.get(name)), name in model.initializers]
                    for name in names],
        "inputs": [number[n] for n in dict.fromkeys((*model.inputs, *wrt)) if n not in made],
        "outputs": [number[n] for n in dict.fromkeys((*model.outputs, *of))],
        "wrt": [number[n] for n in wrt], "of": [number[n] for n in of],
        "rules": [rule_of_step(step) for step in kinds.values()],
        "blocks": [block(h, at[h.step.key]) for h in counted(held, "view", "blocks")],
        "signs": [text.split(": ", 1) for text in sign_meanings(repr(h.operator) for h in held)],
    }  # fmt: skip


def shape_and_type(value: Any) -> tuple[str, str]:
    """The shape and the type of a tensor at the point."""
    if not hasattr(value, "shape"):
        return "", type(value).__name__ if value is not None else ""
    return prod_text(np.shape(value)), str(value.dtype)


def formula_key(step: Step) -> tuple[Any, ...]:
    """What a formula depends on: the operator, and its attributes that are numbers or words."""
    plain = {name: v for name, v in step.attrs.items() if isinstance(v, int | float | str)}
    return step.op_type, step.domain, *sorted(plain.items())


def rule_of_step(step: Step) -> dict[str, Any]:
    """The rule of a step: where it comes from, and its formulas as text or as MathML."""
    found, markup = mathematics(step), mathml(step)
    return {"source": found.source, "text": found.formulas[len(markup):], "mathml": markup}


def block(held: Held, node: int) -> dict[str, Any]:
    """An edge of the graph: ∂output/∂input of a step."""
    J, (output, given) = held.operator, held.key
    cost = seconds(J)
    return {
        "node": node, "in": given, "out": output, "kind": structure_kind(clipped(repr(J), 400)),
        "structure": clipped(repr(J), 200), "family": family(J),
        "shape": f"{prod_text(J.out_shape)} ← {prod_text(J.in_shape)}", "norm": block_norm(J),
        "flops": J.flops, "bytes": bytes_text(J.nbytes), "seconds": cost, "time": time_text(cost),
    }  # fmt: skip


def family(J: Jacobian) -> str:
    """What takes most of a product: convolution, matrix, diagonal, or moves alone."""
    kinds = (("convolution", Convolution), ("diagonal", Diagonal), ("matrix", EINSUMS))
    held = [next((name for name, kind in kinds if isinstance(part, kind)), "moves")
            for part in everything_in(J)]  # fmt: skip
    return next((f for f in ("convolution", "matrix", "diagonal") if f in held), "moves")


def block_norm(J: Jacobian) -> str:
    """‖block‖_F with three digits, with its standard error where it is an estimate."""
    composed = next(islice(everything_in(J), 1, None), None) is not None
    exact = False if composed else None
    try:
        found = frobenius_norm(J, exact=exact, products=NORM_PRODUCTS, progress=False)
    except OnnxJacError:
        return ""
    if not isfinite(found.value):
        return str(found.value)
    return f"{found.value:.3g}" + (f" ± {found.error:.1g}" if found.error else "")


# -- scopes: what can be folded --------------------------------------------------------------------


def scopes(steps: Sequence[Step]) -> list[list[str]]:
    """The scopes of each step, outermost first: of its name, or blocks of repeated operators."""
    named = [scope_of(step.name or next(filter(None, step.outputs), "")) for step in steps]
    if sum(map(bool, named)) * 2 > len(steps):
        return named
    return list(repeated([step.op_type if step.inputs else "" for step in steps]))


def scope_of(name: str) -> list[str]:
    """The scopes in a name with slashes or dots.

    >>> scope_of("/layer1/layer1.0/conv1/Conv"), scope_of("encoder.0.Add"), scope_of("n3")
    (['layer1', 'layer1.0', 'conv1'], ['encoder', '0'], [])
    """
    return [part for part in name.split("/" if "/" in name else ".") if part][:-1]


def repeated(ops: Sequence[str]) -> Iterator[list[str]]:
    """Scopes of operators that repeat: the longest runs of equal blocks. No block begins with "",
    an operator without inputs, since constants in a row are no block.

    >>> list(repeated(["Conv", "Gemm", "Relu", "Gemm", "Relu"]))
    [[], ['block 1'], ['block 1'], ['block 2'], ['block 2']]
    >>> list(repeated(["", "", "", "", "Relu", "Exp", "Relu", "Exp"]))[3:6]
    [[], ['block 1'], ['block 1']]
    """
    at = number = 0
    while at < len(ops):
        counts = dict.fromkeys(range(2, 65), 1)  # of blocks of so many operators
        for n in counts:
            while ops[at + n * counts[n] :][:n] == ops[at : at + n] and at + n < len(ops):
                counts[n] += 1
        n = max(counts, key=lambda n: (counts[n] > 1) * n * counts[n])
        if counts[n] == 1 or not ops[at]:
            at += 1
            yield []
            continue
        for _ in range(counts[n]):
            number += 1
            yield from ([f"block {number}"] for _ in range(n))
        at += n * counts[n]
