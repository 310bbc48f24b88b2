"""Scoreboard: derivatives that are wrong without an error, here and in PyTorch, order by order.

    python -m tests.scoreboard -o docs/results/scoreboard.md

Every operator with a script for PyTorch is differentiated along a line, to the fourth order, at the
point of its proof, at zeros, at ties and far out. The truth are the values of its definition in
ONNX in 900 digits, and no derivative: see `tests.suite.jets.truth`. Points on a kink are left out,
where the values on either side say different things.
"""

from __future__ import annotations

import sys
import warnings
from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Any

import numpy as np

import onnxjac as oj
from onnxjac.modes.verify.case import Case
from onnxjac.modes.verify.cases import SCRIPTS
from onnxjac.modes.verify.check import CaseCheck

from .suite.jets.truth import along_line

ORDER = 4
WRONG = 1e-5
"""A relative error above which a derivative is wrong."""

Way = Callable[[Callable[[Any], Any], int], Any]


@dataclass(frozen=True)
class Row:
    """One derivative: what is exact, and what was found by a way of a library; None: an error."""

    operator: str
    point: str
    way: str
    order: int
    exact: float
    found: float | None

    @property
    def is_wrong(self) -> bool:
        """Whether there is a number, and the number is wrong."""
        if self.found is None:
            return False
        return not abs(self.found - self.exact) <= WRONG * (1 + abs(self.exact))


# -- points ----------------------------------------------------------------------------------------


def points(case: Case) -> Iterator[tuple[str, Case]]:
    """A case, and the same operator at other points."""
    yield "ordinary", case
    first = next((k for k, x in enumerate(case.inputs) if x is not None and x.dtype.kind == "f"), 0)
    x = case.inputs[first]
    if x is None or not x.size:
        return
    for name, moved in (("a zero", with_zero(x)), ("ties", np.full_like(x, 0.75)),
                        ("far out", 40 * np.sign(x) + x)):  # fmt: skip
        inputs = (*case.inputs[:first], moved, *case.inputs[first + 1 :])
        yield name, replace(case, inputs=inputs)


def with_zero(x: np.ndarray) -> np.ndarray:
    """The same tensor with a zero as its first entry."""
    made = x.copy()
    made.flat[0] = 0
    return made


# -- ways ------------------------------------------------------------------------------------------


def zero() -> Any:
    """t = 0."""
    import torch

    return torch.zeros((), dtype=torch.float64)


def forward(f: Callable[[Any], Any], order: int) -> Any:
    """Forward mode over forward mode, dᵏf/dtᵏ at 0."""
    import torch

    for _ in range(order):
        f = lambda t, g=f: torch.func.jvp(g, (t,), (torch.ones_like(t),))[1]  # noqa: E731
    return f(zero())


def backward(f: Callable[[Any], Any], order: int) -> Any:
    """Reverse mode over reverse mode."""
    import torch

    t = zero().requires_grad_()
    y = f(t)
    for _ in range(order):
        if not y.requires_grad:
            return torch.zeros_like(t)
        y = torch.autograd.grad(y, t, create_graph=True, allow_unused=True)[0]
        y = torch.zeros_like(t) if y is None else y
    return y.detach()


def mixed(f: Callable[[Any], Any], order: int) -> Any:
    """`torch.func.hessian`, forward over reverse: the second order alone."""
    import torch

    if order != 2:
        raise NotImplementedError
    return torch.func.hessian(f)(zero())


TORCH: dict[str, Way] = {
    "PyTorch, jvp of jvp": forward,
    "PyTorch, backward of backward": backward,
    "PyTorch, func.hessian": mixed,
}


def on_line(text: str, case: Case, v: dict[str, np.ndarray], u: np.ndarray) -> Any:
    """t ↦ Σ u f(x + t v), for the expression of a script."""
    import torch

    names = ", ".join(f"x[{k}]" for k in range(len(case.inputs)))
    code = text.format(*(f"x[{k}]" for k in range(len(case.inputs))), all=names)
    held = {"torch": torch, "F": torch.nn.functional}
    run = eval(f"lambda x: {code}", held)  # of the package's own scripts
    weights = torch.from_numpy(u)

    def f(t: Any) -> Any:
        x = [None if a is None else torch.from_numpy(np.array(a)) for a in case.inputs]
        for k, name in enumerate(case.names):
            if name in v and x[k] is not None:
                x[k] = x[k] + t * torch.from_numpy(v[name])
        y = run(x)
        y = y[0] if isinstance(y, tuple | list) else y
        return (y.reshape(-1) * weights).sum()

    return f


# -- rows ------------------------------------------------------------------------------------------


def rows_of(name: str, text: str, case: Case, point: str) -> Iterator[Row]:
    """The derivatives of an operator at a point, in every way."""
    check = CaseCheck(case)
    if not check.wrt or not check.of:
        return
    of = check.of[:1]
    rng = np.random.default_rng(0)
    v = {n: rng.integers(-8, 9, case.point[n].shape) / 8 for n in check.wrt}
    truth = along_line(check, case.point, v, of[0], ORDER)
    if truth is None:
        return
    u = rng.integers(1, 9, truth.shape[1]) / 8
    exact = truth @ u
    series = {n: np.stack([x, *np.zeros((ORDER - 1, *x.shape))]) for n, x in v.items()}
    _, found = oj.jet(case.model, case.point, series, of=of, engine="numpy")
    own = found[of[0]].reshape(ORDER, -1) @ u
    for k in range(ORDER):
        yield Row(name, point, "onnxjac, jet", k + 1, exact[k], float(own[k]))
    H = oj.hessian(case.model, case.point, of=of[0], wrt=[*check.wrt],
                   weights=u.reshape(found[of[0]].shape[1:]), engine="numpy")  # fmt: skip
    flat = np.concatenate([v[n].ravel() for n in check.wrt])
    yield Row(name, point, "onnxjac, hessian", 2, exact[1], float(flat @ (H @ flat)))
    f = on_line(text, case, v, u)
    value = sum(case.model.run(case.point)[of[0]].ravel() * u)
    if attempt(lambda f, _: abs(float(f(zero())) - value) < WRONG * (1 + abs(value)), f, 0) != 1:
        return  # the script is of another case
    for way, take in TORCH.items():
        for k in range(ORDER):
            yield Row(name, point, way, k + 1, exact[k], attempt(take, f, k + 1))


def attempt(take: Way, f: Any, order: int) -> float | None:
    """A derivative, or None where there is an error."""
    try:
        return float(take(f, order))
    except Exception:  # of whatever kind: it is not silent
        return None


def sweep(only: str = "") -> Iterator[Row]:
    """All rows, operator by operator."""
    for name, (text, case) in sorted(SCRIPTS.items()):
        if only and only != name:
            continue
        for point, moved in points(case):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    found = [*rows_of(name, text, moved, point)]
            except Exception as error:  # the point is outside of the operator's domain
                said = f"{type(error).__name__}: {str(error)[:90]}"
                print(f"{name}, {point}: {said}", file=sys.stderr)
                continue
            yield from found


# -- the page --------------------------------------------------------------------------------------


def page(rows: list[Row]) -> str:
    """The counts, and a line for each number that is wrong."""
    ways = list(dict.fromkeys(row.way for row in rows))
    lines = [HEAD.format(torch=version("torch"), count=len({row.operator for row in rows}))]
    lines += ["| way | right | wrong, without an error | an error |", "|---|--:|--:|--:|"]
    for way in ways:
        own = [row for row in rows if row.way == way]
        wrong, failed = (sum(map(test, own)) for test in
                         (lambda row: row.is_wrong, lambda row: row.found is None))  # fmt: skip
        lines.append(f"| {way} | {len(own) - wrong - failed} | {wrong} | {failed} |")
    lines += ["", "## Wrong without an error", "",
              "| operator | point | way | order | exact | found | onnxjac |",
              "|---|---|---|--:|--:|--:|--:|"]  # fmt: skip
    ours = {(row.operator, row.point, row.order): row.found for row in rows if "jet" in row.way}
    for row in rows:
        if row.is_wrong:
            mine = ours[row.operator, row.point, row.order]
            lines.append(f"| {row.operator} | {row.point} | {row.way} | {row.order} "
                         f"| {row.exact:.9g} | {row.found:.9g} | {mine:.9g} |")  # fmt: skip
    return "\n".join(lines) + "\n"


HEAD = """# Scoreboard: derivatives that are wrong without an error

Written by `python -m tests.scoreboard -o docs/results/scoreboard.md`, with PyTorch {torch}.

{count} operators, each along one line through four points: the point of its proof, the same with
a zero, with all entries of the first input equal, and 40 further out. "Exact" is the derivative of
the weighted sum of its first output, from the values of its definition in ONNX in 900 digits at
places 1e-40 apart, so that nobody's rule is used. Where the two sides of a point say different
things, it is on a kink and left out. A number is wrong where it differs by more than 1e-5 of
1 + |exact|. The expression in PyTorch is the one that `onnxjac prove` prints; where its value is
another one, it is not compared.
"""


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output")
    parser.add_argument("--only", default="", help="one operator")
    args = parser.parse_args()
    made = page([*sweep(args.only)])
    if args.output:
        with open(args.output, "w", encoding="utf-8") as file:
            file.write(made)
    else:
        print(made, end="")


if __name__ == "__main__":
    main()
