"""Derive: an operator from one line of mathematics, entry by entry or in index notation.

SymPy differentiates every sum of the line by the tensors and sums in it. A coefficient is a product
of factors with indices, and the indices say which operator it is: a diagonal, a Kronecker product,
a contraction, a sum or a broadcast. The Jacobian is the chain of these.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from ..jacobians.errors import InputError, warn
from .graphs import Recorder, build
from .indexed import Indexed
from .node import node_of
from .registry import declare, find
from .rules.elementwise import Elementwise
from .trees import accesses


def derive(
    name: str, definition: Any, *, inputs: Sequence[str] | None = None, **attributes: float
) -> Derived:
    """An operator from its formula: y = f(x, g) or y[i, k] = sum(a[i, j]*b[j, k], j).

    `name` is `Op` or `domain::Op`. SymPy derives its values, Jacobian, adjoint and derivatives of
    any order. `definition` is text or a SymPy expression. Without indices it holds entry by entry,
    with ONNX's broadcasting; with indices, `sum(term, j)` sums over j, an index may be `2*i + k` or
    `t[i]` for integers t, and every index of y runs over all entries; `mean` stands beside `sum`,
    `*r` for any number of axes, and `...` for the last indices of y. Functions are ONNX's,
    `sigmoid`, `softplus`, `max`, `min`, `Piecewise` and `a if c else b`. Exponentials are rewritten
    so that they do not overflow, log Σ exp included; if double precision still loses the value at 0
    or ±800, there is an `OnnxJacWarning`.

    The inputs are in the order of the text, or as in `inputs`; `attributes` have these defaults.

    Raises `InputError` for a formula that cannot be read.

    >>> mish = derive("my.domain::Mish", "x*tanh(log(1 + exp(x)))")
    >>> mish.derivatives["x"]
    x*(1 - tanh(softplus(x))**2)*sigmoid(x) + tanh(softplus(x))
    >>> derive("my.domain::Leaky", "x if x > 0 else alpha*x", alpha=0.1).kinks
    ('x = 0, unless alpha = 1',)
    >>> derive("my.domain::Product", "y[i, k] = sum(a[i, j]*b[j, k], j)")
    Derived(my.domain::Product: y[i, k] = sum(a[i, j]*b[j, k], j))
    """
    from .kinks import weakness
    from .symbols import stages as reader

    head, body = reader.parted(definition)
    found = reader.names_in_text(body) - attributes.keys()
    names = tuple(sorted(found, key=lambda n: find_name(n, body)) if inputs is None else inputs)
    if set(names) != found or not names or "Y" in found or not name.rpartition("::")[0]:
        raise InputError(f"derive({name!r}, {body!r}): its inputs are "
                         f"{', '.join(sorted(found)) or 'none'}, not {', '.join(names)}; the name "
                         "is 'domain::Op', and Y is the output")  # fmt: skip
    rule: Elementwise | Indexed
    if reader.has_indices(body) or head:
        rule = Indexed(reader.line_of(definition), names, defaults=attributes)
        _ = rule.stage
    else:
        rule = Elementwise(body, names=names, defaults=attributes)
    if weak := weakness(rule.pieces):
        warn(f"derive({name!r}): double precision gives {weak}")
    declare([name], rule, definition=rule.define)
    return Derived(name, rule)


@dataclass(frozen=True)
class Derivation:
    """What a rule is derived from: `texts`, one for each kind of node if these are few, and for the
    first of them its `jacobian`, input ↦ ∂y/∂x.

    A text is a formula y = f(x), entry by entry, or lines of index notation, in which `*r` stands
    for any number of axes. Then `jacobian` is the general formula of an entry: indices of x have
    primes, `KroneckerDelta(i, i')` is 1 where i = i' and else 0, and names of lines stand for their
    values.

    >>> find_derivation("Softmax").texts
    ('y[*r, k] = exp(x[*r, k])/sum(exp(x[*r, j]), j)',)
    >>> find_derivation("MatMul").jacobian["a"]
    KroneckerDelta(i, i')*KroneckerDelta(n, n')*b[n, j', k]
    >>> find_derivation("Tanh").jacobian, find_derivation("Cast").texts
    ({'x': 1 - Y**2}, ('x',))
    """

    texts: tuple[str, ...]
    rule: Elementwise | Indexed

    @property
    def jacobian(self) -> dict[str, Any]:
        """∂y/∂x as a SymPy expression, by input."""
        if isinstance(self.rule, Elementwise):
            from .formulas import derive as differentiate
            from .formulas import parse

            expr = parse(self.texts[0])
            return {x: differentiate(expr, x, shortest=True) for x in self.rule.variables}
        from .symbols.stages import General

        form = self.rule.form
        general = General(self.rule.stages, self.rule.outputs[0], form.indices)
        found = {x: general.entry(x) for x in self.rule.variables}
        return {x: d for x, d in found.items() if d != 0}


def find_derivation(op_type: str, domain: str = "") -> Derivation | None:
    """What the rule of an operator is derived from by SymPy when it is declared; None for a rule
    that is written by hand, a definition by other operators, and a derivative that is zero.
    """
    rule = declared.rule if (declared := find(op_type, domain)) else None
    if isinstance(rule, Elementwise):
        return Derivation(tuple(rule.formulas.values()), rule)
    if isinstance(rule, Indexed):
        return Derivation(rule.texts, rule)
    return None


def find_name(name: str, text: str) -> int:
    """Where a name first occurs in a text."""
    found = re.search(rf"\b{re.escape(name)}\b", text)
    return found.start() if found else len(text)


@dataclass(frozen=True)
class Derived:
    """An operator that SymPy derived, y = f(x): its derivatives, kinks and ONNX function.

    `derive` makes it, with its `name` and its `rule`.

    >>> gate = derive("my.domain::Gate", "g*sigmoid(x)")
    >>> isinstance(gate, Derived), gate.derivatives["x"], gate.kinks, gate.function().name
    (True, Y*sigmoid(-x), (), 'Gate')
    """

    name: str
    rule: Elementwise | Indexed

    @property
    def derivatives(self) -> dict[str, Any]:
        """∂Y/∂x as SymPy expressions by input; in index notation by the names in every sum."""
        from .symbols.stages import slopes

        return slopes(self.rule.pieces)

    @property
    def kinks(self) -> tuple[str, ...]:
        """Where the derivative does not exist, found by one-sided limits."""
        from .kinks import kinks_in

        found = (kink for piece in self.rule.pieces for kink in kinks_in(piece.text))
        return tuple(dict.fromkeys(map(str, found)))

    def function(self, *shapes: tuple[int, ...], opset: int = 21) -> onnx.FunctionProto:
        """The values as an ONNX function of `opset` for any floating type and all sizes.

        Indices such as `x[i + k]` and `x[t[i]]` need `shapes`, and the function is for these.
        """
        rule, (domain, _, op_type) = self.rule, self.name.rpartition("::")
        found = tuple(accesses(rule.stage)) if isinstance(rule, Indexed) else ()
        if not shapes and not all(access.plain for access in found):
            raise InputError(f"{self}: what it selects depends on sizes: give the shapes of its "
                             "inputs, function((3, 4), (4,))")  # fmt: skip
        sizes = {a.name: (2,) * len(a.indices) for a in found}
        sizes |= dict(zip(rule.variables, shapes, strict=False))
        record, whole = Recorder({"": opset}), frozenset[str](getattr(rule, "integers", ()))
        inputs = [record.like(np.ones(sizes.get(n, (2,)), np.int64 if n in whole else float), n)
                  for n in rule.variables]  # fmt: skip
        held = {n: record.like(np.ones(()), n) for n in rule.defaults}
        (y,) = rule.define(record, node_of(op_type, inputs, held, domain, opset))
        graph = ir.to_proto(build(record, [*inputs, *held.values()], {"Y": y}, op_type)).graph
        like = next(n for n in rule.variables if n not in whole)
        nodes = [node for t in graph.initializer for node in constant_nodes(t.name, like, t)]
        nodes += [node for n in held for node in constant_nodes(n, like)]
        defaults = [onnx.helper.make_attribute(n, float(v)) for n, v in rule.defaults.items()]
        return onnx.helper.make_function(
            domain, op_type, list(rule.variables), ["Y"], [*nodes, *graph.node],
            [onnx.helper.make_opsetid("", opset)], attribute_protos=defaults,
        )  # fmt: skip

    def __repr__(self) -> str:
        return f"Derived({self.name}: {self.rule.text})"

    def _repr_latex_(self) -> str:
        from sympy import latex

        lines = (f"\\frac{{\\partial Y}}{{\\partial {x}}} &= {latex(d)}"
                 for x, d in self.derivatives.items())  # fmt: skip
        return "$$\\begin{aligned}" + r" \\ ".join(lines) + "\\end{aligned}$$"


def constant_nodes(
    name: str, like: str, value: onnx.TensorProto | None = None
) -> Iterator[onnx.NodeProto]:
    """Nodes for a number, or for the attribute of this name; floats take the type of an input."""
    if value is not None and value.data_type != onnx.TensorProto.DOUBLE:
        yield onnx.helper.make_node("Constant", [], [name], value=value)
        return
    plain = onnx.helper.make_node("Constant", [], [f"{name}_"], value=value)
    if value is None:
        kind = onnx.AttributeProto.FLOAT
        plain.attribute.append(
            onnx.AttributeProto(name="value_float", ref_attr_name=name, type=kind)
        )
    yield plain
    yield onnx.helper.make_node("CastLike", [f"{name}_", like], [name])
