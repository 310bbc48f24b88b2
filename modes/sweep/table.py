"""Table: the results as records, and as a page that is the same for the same results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import onnx

from ..proofs.coverage import BODY, DOMAINS, RULE, schemas, status
from .examine import Result
from .paths import DIFFERENTIABLE, NONE, UNKNOWN

HEAD = """\
# The sweep

Every case that onnx {version} ships to test its backends, differentiated.
`onnxjac sweep -o SWEEP.md` writes this page. A case passes where, at a point moved off kinks,
between all its floating inputs and outputs,

- J v is the slope of the model in double precision, by central differences of fourth order;
- ⟨u, J v⟩ = ⟨Jᵀ u, v⟩;
- J v and Jᵀ u, recorded as graphs, run in ONNX Runtime in the precision of the case, or by NumPy in
  double precision where ONNX Runtime lacks a kernel, a type or the opset, and give the same;
- the Hessian, the linearisation of the recorded gradient, is symmetric.
"""

COLUMNS = "| {} | cases | tagged | unknown | other | passed | of them in ONNX Runtime | |"


def records(results: Sequence[Result]) -> list[dict[str, Any]]:
    """A record of each case, with the error of each check over the error that it allows."""
    return [{**asdict(r), **plain(r)} for r in results]


def plain(r: Result) -> dict[str, Any]:
    """The errors of a result, null where they are not finite, and which of them are too large."""
    errors = {name: float(e) if np.isfinite(e) else None for name, e in r.errors.items()}
    return {"errors": errors, "failed": r.failed}


def page(results: Sequence[Result]) -> str:
    """Totals, a table of the operators, a table of the whole models, the failures."""
    nodes = [r for r in results if r.kind == "node"]
    models = [r for r in results if r.kind != "node"]
    parts = [HEAD.format(version=onnx.__version__)]
    if nodes:
        parts += [totals(nodes), table("operator", nodes, [r.op_type for r in nodes])]
    if models:
        parts += ["Whole models:\n", table("kind", models, [r.kind for r in models])]
    return "\n".join((*parts, *exceptions(results)))


def totals(results: Sequence[Result]) -> str:
    """How many there are of each tag, and how many of these pass."""
    said = {
        DIFFERENTIABLE: "have a path from a floating input to a floating output along ports that "
        "ONNX tags differentiable",
        UNKNOWN: "more count if ports of unknown kind do",
        NONE: "others have no such path; those with floating tensors on both ends are checked too",
    }
    lines = [f"{len(results)} cases, of which:\n"]
    for tag, text in said.items():
        held = [r for r in results if r.tag == tag]
        checked = [r for r in held if r.checked or r.failed]
        passed = sum(not r.failed for r in checked)
        lines.append(f"- {len(held)} {text}: **{passed} of {len(checked)} pass**")
    zero = sum(r.zero for r in results if r.tag != NONE)
    lines.append(
        f"\nOf those with a path, {zero} have J = 0, as they compute what is piecewise constant"
    )
    lines.append("or have an empty tensor.")
    return "\n".join(lines) + "\n"


def table(title: str, results: Sequence[Result], keys: Sequence[str]) -> str:
    """A line for every key."""
    lines = [COLUMNS.format(title), "|---|" + "--:|" * 6 + "---|"]
    for key in sorted(set(keys), key=str.lower):
        group = [r for r, k in zip(results, keys, strict=True) if k == key]
        lines.append(f"| {key} | {' | '.join(map(str, counts(group)))} | {remark(key, group)} |")
    return "\n".join(lines) + "\n"


def counts(group: Sequence[Result]) -> Iterator[int]:
    """The numbers of a line."""
    yield len(group)
    for tag in (DIFFERENTIABLE, UNKNOWN, NONE):
        yield sum(r.tag == tag for r in group)
    passed = [r for r in group if r.checked and not r.failed]
    yield len(passed)
    yield sum(r.engine == "onnxruntime" for r in passed)


def remark(key: str, group: Iterable[Result]) -> str:
    """Why the derivative is zero or there is none, or which checks failed."""
    failed = sorted({check for r in group for check in r.failed})
    if failed:
        return f"**fails: {', '.join(failed)}**"
    domain = next((d for d in DOMAINS if (key, d) in schemas()), None)
    if domain is None:
        return ""
    if not domain and schemas()[key, domain].deprecated:
        return "deprecated: raised to what replaces it when a model is loaded"
    kind, reason = status(key, domain)
    return "" if kind in (RULE, BODY) else reason


def exceptions(results: Sequence[Result]) -> Iterator[str]:
    """One line for every exception with its cases, and for every case that fails."""
    for note in sorted({r.note for r in results if r.note}):
        yield f"- {', '.join(r.name for r in results if r.note == note)}: {note}."
    for r in results:
        if r.failed:
            errors = ", ".join(f"{name} {r.errors[name]:.1e}" for name in r.failed)
            yield f"- {r.name} fails ({errors} times what is allowed): {r.message}"
