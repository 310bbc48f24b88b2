"""The page of the sweep: the same results give the same page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from functools import cache
from typing import Any

import numpy as np
import onnx

from onnxjac.jacobians.errors import UnsupportedOp
from onnxjac.modes.model.loading.upgrade import MICROSOFT
from onnxjac.modes.model.programs import onnxruntime as ort
from onnxjac.modes.verify.coverage import BODY, DOMAINS, REFUSED, RULE, operators, schemas, status

from .cases import DIFFERENTIABLE, NONE, UNKNOWN
from .examine import Result

HEAD = """\
# The sweep

Every case that onnx {version} ships to test its backends, differentiated.
`python -m tests.sweep -o docs/results/sweep.md` writes this page. A case passes where, at a point
moved off kinks, between all its floating inputs and outputs,

- J v is the slope of the model in double precision, by central differences of fourth order;
- ⟨u, J v⟩ = ⟨Jᵀ u, v⟩;
- J v and Jᵀ u, recorded as graphs, run in ONNX Runtime in the precision of the case, or by NumPy in
  double precision where ONNX Runtime lacks a kernel, a type or the opset, and give the same;
- the Hessian, the linearisation of the recorded gradient, is symmetric.
"""

COLUMNS = "| {} | cases | tagged | unknown | other | passed | of them in ONNX Runtime | |"

TAGS = {
    DIFFERENTIABLE: "have a path from a floating input to a floating output along ports that "
    "ONNX tags differentiable",
    UNKNOWN: "more count if ports of unknown kind do",
    NONE: "others have no such path; those with floating tensors on both ends are checked too",
}


def records(results: Sequence[Result]) -> list[dict[str, Any]]:
    """A record of each case, with errors over allowed errors; null where they are not finite."""
    return [
        {**asdict(r), "failed": r.failed,
         "errors": {name: float(e) if np.isfinite(e) else None for name, e in r.errors.items()}}
        for r in results
    ]  # fmt: skip


def page(results: Sequence[Result]) -> str:
    """Totals, a table of the operators, a table of the whole models, the failures."""
    nodes = [r for r in results if r.kind == "node"]
    models = [r for r in results if r.kind != "node"]
    parts = [HEAD.format(version=onnx.__version__)]
    if nodes:
        parts += [totals(nodes), table("operator", nodes, [r.op_type for r in nodes])]
        parts += [other_domains()] if ort.installed() else []
    if models:
        parts += ["Whole models:\n", table("kind", models, [r.kind for r in models])]
    return "\n".join((*parts, *exceptions(results))).rstrip() + "\n"


BEYOND = """\
Operators outside ONNX's default domain, among them {com} of com.microsoft in ONNX Runtime
{version}, and how each is differentiated. A derivative that would pass a refused operator raises
`UnsupportedOp`.

| domain | operator | derivative | |
|---|---|---|---|
{rows}
"""


def other_domains() -> str:
    """A table of the operators of other domains, by how they are differentiated."""
    found = list(beyond())
    count = sum(domain == MICROSOFT for domain, *_ in found)
    rows = "\n".join(f"| {' | '.join(row)} |" for row in found)
    return BEYOND.format(com=count, version=ort.runtime().__version__, rows=rows)


def totals(results: Sequence[Result]) -> str:
    """The number of cases with each tag, and how many of these pass."""
    lines = [f"{len(results)} cases, of which:\n"]
    for kind, text in TAGS.items():
        held = [r for r in results if r.tag == kind]
        checked = [r for r in held if r.checked or r.failed]
        passed = sum(not r.failed for r in checked)
        lines.append(f"- {len(held)} {text}: **{passed} of {len(checked)} pass**")
    zero = sum(r.zero for r in results if r.tag != NONE)
    said = f"\nOf those with a path, {zero} have J = 0, as they compute what is piecewise constant"
    return "\n".join([*lines, said, "or have an empty tensor."]) + "\n"


def table(title: str, results: Sequence[Result], keys: Sequence[str]) -> str:
    """A table with a row for every key."""
    lines = [COLUMNS.format(title), "|---|" + "--:|" * 6 + "---|"]
    for key in sorted(set(keys), key=str.lower):
        group = [r for r, k in zip(results, keys, strict=True) if k == key]
        passed = [r for r in group if r.checked and not r.failed]
        counts = (len(group), *(sum(r.tag == kind for r in group) for kind in TAGS), len(passed),
                  sum(r.engine == "onnxruntime" for r in passed))  # fmt: skip
        lines.append(f"| {key} | {' | '.join(map(str, counts))} | {remark(key, group)} |")
    return "\n".join(lines) + "\n"


def remark(key: str, group: Iterable[Result]) -> str:
    """The checks that failed; else why the derivative is zero or does not exist."""
    failed = sorted({check for r in group for check in r.failed})
    if failed:
        return f"**fails: {', '.join(failed)}**"
    known = schemas()
    domain = next((d for d in DOMAINS if (key, d) in known), None)
    if domain is None:
        return ""
    if not domain and known[key, domain].deprecated:
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


@cache
def runtime_operators() -> dict[str, bool]:
    """Operators of com.microsoft in ONNX Runtime -> whether it has a kernel for CPUs."""
    from onnxruntime.capi import onnxruntime_pybind11_state as runtime

    kernels = {k.op_name for k in runtime.get_all_opkernel_def()
               if k.domain == MICROSOFT and k.provider.startswith("CPU")}  # fmt: skip
    found = {s.name for s in runtime.get_all_operator_schema() if s.domain == MICROSOFT}
    return {name: name in kernels for name in sorted(found)}


def beyond() -> Iterator[tuple[str, str, str, str]]:
    """(domain, operator, kind, reason) of every operator outside ONNX's default domain."""
    for domain in DOMAINS[1:]:
        for op_type in operators(domain):
            yield domain, op_type, *status(op_type, domain)
    for op_type, runs in runtime_operators().items():
        try:
            yield MICROSOFT, op_type, *status(op_type, MICROSOFT)
        except UnsupportedOp:
            why = "it has no rule yet" if runs else "ONNX Runtime has no kernel of it for CPUs"
            yield MICROSOFT, op_type, REFUSED, why
