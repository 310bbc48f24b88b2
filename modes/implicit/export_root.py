"""Export root: a root and its adjoint as plain ONNX, Loops of Newton's method and of BiCGSTAB."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, final

import numpy as np
import onnx
from onnx import helper, numpy_helper, parser

from ...jacobians import dtype_of
from ...jacobians.errors import InputError
from ..exports.export import export, identifier
from ..exports.together import MODES, as_functions
from ..model.primal.inputs import Names, distinct
from ..model.primal.model import ModelLike, as_model

KINDS = {np.dtype(np.float32): "float", np.dtype(np.float64): "double"}

SOLVE = """
{b}_bb = ReduceSumSquare <keepdims = 0> ({b})
{b}_solved, {b}_r, {b}_p, {b}_rho = Loop (solves, {go}, zeros, {b}, {b}, {b}_bb) <body = {b}_body (
    int64 i, bool on, {T}[] s, {T}[] r, {T}[] p, {T} rho
) => (bool goes, {T}[] s2, {T}[] r2, {T}[] p2, {T} rho2) {{
    {Ap}
    bAp = Mul ({b}, Ap)
    bAps = ReduceSum <keepdims = 0> (bAp)
    alpha = Div (rho, bAps)
    aAp = Mul (alpha, Ap)
    q = Sub (r, aAp)
    {Aq}
    qAq = Mul (q, Aq)
    qAqs = ReduceSum <keepdims = 0> (qAq)
    AqAq = ReduceSumSquare <keepdims = 0> (Aq)
    some = Max (AqAq, tiny)
    omega = Div (qAqs, some)
    ap = Mul (alpha, p)
    oq = Mul (omega, q)
    s2 = Sum (s, ap, oq)
    oAq = Mul (omega, Aq)
    r2 = Sub (q, oAq)
    br = Mul ({b}, r2)
    rho2 = ReduceSum <keepdims = 0> (br)
    ratio = Div (rho2, rho)
    step = Div (alpha, omega)
    beta = Mul (ratio, step)
    oAp = Mul (omega, Ap)
    back = Sub (p, oAp)
    turned = Mul (beta, back)
    p2 = Add (r2, turned)
    rr = ReduceSumSquare <keepdims = 0> (r2)
    goal = Mul (squared, {b}_bb)
    goes = Greater (rr, goal)
}}>
"""
"""A s = b from s = 0, to ‖b − A s‖ ≤ rtol ‖b‖. Source: van der Vorst, "Bi-CGSTAB", 1992."""

NEWTON = """
zeros = Sub ({x}, {x})
{x}_root, {x}_residual = Loop (steps, yes, {x}, tiny) <body = newton (
    int64 k, bool onwards, {T}[] at, {T} before
) => (bool going, {T}[] next, {T} size) {{
    F = {value}
    down = Neg (F)
    xx = ReduceSumSquare <keepdims = 0> (at)
    scale = Add (xx, one)
    least = Mul (squared, scale)
    FF = ReduceSumSquare <keepdims = 0> (F)
    size = Sqrt (FF)
    going = Greater (FF, least)
    {solve}
    next = Add (at, down_solved)
}}>
"""
"""x + δ with ∂F/∂x δ = −F, to ‖F‖ ≤ rtol √(1 + ‖x‖²)."""


def export_root(
    root: Any, loss: ModelLike | None, inputs: Mapping[str, Any], of: str | None, wrt: Names,
    rtol: float, maxiter: int,
) -> onnx.ModelProto:  # fmt: skip
    """See `Root.export`."""
    e, p, dtype = root.equations, tuple(spec.name for spec in root.J.domain), exported_dtype(root)
    own = () if loss is None or wrt is None else distinct(wrt, "wrt")
    heads = tuple(name for name, value in inputs.items() if value is root)
    options: dict[str, Any] = {"of": e.of, "engine": e.engine}
    made = {
        "value": export(e.model, "value", root.point, wrt=e.x, **options),
        "push": export(e.model, "jvp", root.point, wrt=e.x, **options),
        "pull": export(e.model, "vjp", root.point, wrt=(*e.x, *p), **options),
    }
    weights = {*e.model.initializers}
    if loss is not None:
        model = as_model(loss, of, wrt=wrt)
        if twice := weights & model.initializers.keys():
            raise InputError(f"both models have weights named {sorted(twice)}: rename some")
        given = {n: root.tensors[e.x[0]] if n in heads else y for n, y in inputs.items()}
        made["loss"] = export(model, "grad", given, of=of, wrt=(*heads, *own))
        weights |= {*model.initializers}
    calls = FunctionCalls(as_functions(made, weights), identifier(e.x[0]), heads, dtype)
    x, (_, _, *slopes) = calls.x, (value.name for value in made["pull"].graph.output)
    value, seed, *rest = ["", f"{x}_cotangent"] if loss is None else [
        output.name for output in made["loss"].graph.output]  # fmt: skip
    results = [f"{identifier(n)}_{'cotangent' if loss is None else 'grad'}" for n in p]
    backward = "" if loss is None else f"{value}, {', '.join([seed, *rest])} = {calls.of('loss')}"
    text = f"""{calls.newton()} {backward}
        against = Neg ({seed}) {calls.solve("against", "yes", calls.pulled)}
        {", ".join(["left", "unread", *results])} = {calls.of("pull", "against_solved")}"""
    free = {x: x, seed: x} if loss is None else {x: x}
    ends = {name: name for name in (value, *rest) if name}
    ends |= {f"{x}_root": x, f"{x}_residual": "", **dict(zip(results, slopes, strict=True))}
    return calls.assembled(text, (*p, *own), free, ends, constants_of_loops(dtype, rtol, maxiter))


@final
class FunctionCalls:
    """Calls of the functions of `whole` at the root of x, in ONNX's text format.

    `heads` are inputs of the loss that are x, and `dtype` is the type of x.
    """

    def __init__(
        self, whole: onnx.ModelProto, x: str, heads: tuple[str, ...], dtype: np.dtype
    ) -> None:  # fmt: skip
        self.whole, self.x, self.heads, self.dtype = whole, x, heads, dtype
        self.inputs = {node.op_type: [*node.input] for node in whole.graph.node}
        self.outputs = {f.name: len(f.output) for f in whole.functions}

    def of(self, mode: str, seed: str = "", at: str = "") -> str:
        """A call, at the root or at another x, on a tangent or cotangent."""
        at = at or f"{self.x}_root"
        names = [at if n == self.x or (mode == "loss" and n in self.heads) else
                 seed if n == self.seed(mode) else n for n in self.inputs[mode]]  # fmt: skip
        return f"{MODES}.{mode} ({', '.join(names)})"

    def seed(self, mode: str) -> str:
        """The input of a function for a tangent or cotangent; none of others."""
        if mode not in ("push", "pull"):
            return ""
        return next(name for name in self.inputs[mode] if name not in self.inputs["value"])

    def pushed(self, v: str) -> str:
        """A v, for Newton's method."""
        return f"{v}_F, A{v} = {self.of('push', v, 'at')}"

    def pulled(self, v: str) -> str:
        """Aᵀ v, for the adjoint."""
        unread = (f", {v}_{k}" for k in range(self.outputs["pull"] - 2))
        return f"{v}_F, A{v}{''.join(unread)} = {self.of('pull', v)}"

    def solve(self, b: str, go: str, product: Callable[[str], str]) -> str:
        """The solution of a linear system, `{b}_solved`."""
        return SOLVE.format(b=b, go=go, T=KINDS[self.dtype], Ap=product("p"), Aq=product("q"))

    def newton(self) -> str:
        """The root."""
        solve = self.solve("down", "going", self.pushed)
        return NEWTON.format(
            x=self.x, T=KINDS[self.dtype], value=self.of("value", at="at"), solve=solve
        )

    def assembled(
        self, text: str, trained: tuple[str, ...], free: Mapping[str, str],
        ends: Mapping[str, str], numbers: Mapping[str, np.ndarray],
    ) -> onnx.ModelProto:  # fmt: skip
        """The model of this text; `free` and `ends` are inputs and outputs, with whose type."""
        graph, header = self.whole.graph, f'<ir_version: 10, opset_import: ["{MODES}": 1, "": 21]>'
        body = parser.parse_model(f"{header} root () => () {{ {text} }}").graph
        types = {value.name: value.type for value in (*graph.input, *graph.output)}
        scalar = helper.np_dtype_to_tensor_dtype(self.dtype)
        types[""] = helper.make_tensor_type_proto(scalar, ())
        for tensor in graph.initializer:
            kind = helper.make_tensor_type_proto(tensor.data_type, tensor.dims)
            types.setdefault(tensor.name, kind)
        entries = dict.fromkeys([*(value.name for value in graph.input), *trained])
        gone = {self.seed("push"), self.seed("pull"), *self.heads, *free}
        inputs = {**{name: name for name in entries if name not in gone}, **free}
        constants = [numpy_helper.from_array(array, name) for name, array in numbers.items()]
        graph.CopyFrom(helper.make_graph(
            body.node, "root",
            [helper.make_value_info(name, types[like]) for name, like in inputs.items()],
            [helper.make_value_info(name, types[like]) for name, like in ends.items()],
            [*graph.initializer, *constants],
        ))  # fmt: skip
        return self.whole


def exported_dtype(root: Any) -> np.dtype:
    """The type of the root; raises `InputError` for what an export cannot have."""
    e, tensors = root.equations, [*root.tensors.values()]
    (x, *others), F = tensors, root.result.fun
    if root.sources or others or len(e.of) > 1 or np.size(F) != np.size(x):
        raise InputError("a root is exported where its equations are one tensor of the shape of x, "
                         f"not {[*e.of]} in {[*e.x]}, of numbers and weights")  # fmt: skip
    if dtype_of(x) not in KINDS:
        raise InputError(f"a root is exported in float32 or float64, not in {dtype_of(x)}")
    return dtype_of(x)


def constants_of_loops(dtype: np.dtype, rtol: float, maxiter: int) -> dict[str, np.ndarray]:
    """The constants of the Loops."""
    tiny = np.finfo(dtype).tiny
    return {
        "tiny": np.array(tiny, dtype), "one": np.array(1, dtype), "yes": np.array(True),
        "squared": np.array(max(rtol**2, tiny), dtype), "steps": np.array(maxiter),
        "solves": np.array(20 * maxiter),
    }  # fmt: skip
