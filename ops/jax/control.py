"""Control flow while JAX traces: If is `lax.cond`, Loop and Scan are `lax.scan` or `while_loop`.

What is known, a NumPy array, chooses a branch by itself. A loop is a scan where its count is known
and its body only passes the condition on. A body that decides sizes by the number of its iteration
is traced once for each iteration, if these are few.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx_ir as ir
from jax import lax

from ...jacobians.errors import UnsupportedOp
from .table import Array, has_tracers, known, to_jax_array

Arrays = tuple[Array, ...]

Run = Callable[[ir.Graph, Sequence[Any]], list[Any]]
"""run(graph, arguments): the outputs of a subgraph."""

TRACED_ITERATIONS = 64
"""The most iterations that are traced one by one."""


def flow(op_type: str, attrs: Mapping[str, Any], inputs: Sequence[Any], run: Run) -> Any:
    """The outputs of an If, Loop or Scan; None where its bodies are to be run as they are."""
    compiles = isinstance(jnp.zeros(()), jax.core.Tracer)
    if not (has_tracers(inputs[:1]) if op_type == "If" else compiles or has_tracers(inputs)):
        return None
    kinds = {"If": run_branch, "Loop": loop, "Scan": scan}
    try:
        return kinds[op_type](attrs, inputs, run)
    except (UnsupportedOp, TypeError) as error:  # a size is traced, or a shape changes
        if op_type != "If" and count_turns(op_type, attrs, inputs) <= TRACED_ITERATIONS:
            return None
        if isinstance(error, UnsupportedOp):
            raise
        raise UnsupportedOp(f"{op_type} changes the shape or the dtype of a tensor, for which XLA "
                            f"has no loop or branch: {error}") from error  # fmt: skip


def count_turns(op_type: str, attrs: Mapping[str, Any], inputs: Sequence[Any]) -> float:
    """The number of iterations, infinite where it is not known."""
    if op_type == "Loop":
        known = (
            not has_tracers(inputs[:2]) and inputs[0] is not None and gives_condition(attrs["body"])
        )
        return float(np.ravel(inputs[0])[0]) if known else np.inf
    width = attrs["num_scan_inputs"]
    first = inputs[len(inputs) - width]
    return float(first.shape[attrs.get("scan_input_axes", (0,))[0]])


def as_arrays(values: Sequence[Any], like: Sequence[Any] | None = None) -> Arrays:
    """Values as arrays, in the dtypes of `like` if given; lists of them too."""
    made = tuple(jax.tree.map(lambda x: jnp.asarray(to_jax_array(x)), x) for x in values)
    return jax.tree.map(lambda x, y: x.astype(y.dtype), made, made if like is None else tuple(like))


def run_branch(attrs: Mapping[str, Any], inputs: Sequence[Any], run: Run) -> list[Any]:
    """One of two graphs; a shape that both give stays known."""
    seen: list[list[Any]] = []

    def taken(graph: ir.Graph) -> Callable[[], Arrays]:
        def call() -> Arrays:
            seen.append(run(graph, ()))
            return as_arrays(seen[-1])

        return call

    both = (taken(attrs[name]) for name in ("then_branch", "else_branch"))
    made = lax.cond(jnp.all(inputs[0]), *both)
    return [x if is_concrete(x) and is_concrete(y) and np.array_equal(x, y) else z
            for x, y, z in zip(*seen[:2], made, strict=True)]  # fmt: skip


def is_concrete(x: Any) -> bool:
    return isinstance(x, np.ndarray | np.generic)


def loop(attrs: Mapping[str, Any], inputs: Sequence[Any], run: Run) -> list[Any]:
    """body(i, go, *state) -> (go, *state, *rows) while go, at most `limit` times."""
    body, (limit, go, *state) = attrs["body"], inputs
    start = as_arrays(state)
    first, second = (len(value.shape or ()) for value in body.inputs[:2])

    def step(state: Arrays, i: Array) -> tuple[Array, Arrays, Arrays]:
        count, goes_on = jnp.reshape(i, (1,) * first), np.full((1,) * second, True)
        fresh, *made = run(body, (count, goes_on, *state))
        return fresh, as_arrays(made[: len(state)], start), as_arrays(made[len(state) :])

    if not has_tracers([limit, go]) and limit is not None and gives_condition(body):
        n = int(np.ravel(limit)[0]) if go is None or np.all(go) else 0
        end, rows = lax.scan(lambda state, i: step(state, i)[1:], start, np.arange(max(n, 0)))
        return [*end, *rows]
    if len(body.outputs) > 1 + len(state):
        raise UnsupportedOp("Loop stacks rows whose number only its run tells, and XLA's arrays "
                            "have known shapes")  # fmt: skip

    def goes_on(carry: Any) -> Array:
        i, going, _ = carry
        return going if limit is None else going & (i < jnp.ravel(limit)[0])

    def turn(carry: Any) -> Any:
        i, _, state = carry
        fresh, state, _ = step(state, i)
        return i + 1, jnp.all(fresh), state

    begun = jnp.zeros((), known(np.int64)), jnp.asarray(True if go is None else jnp.all(go)), start
    return [*lax.while_loop(goes_on, turn, begun)[2]]


def gives_condition(body: ir.Graph) -> bool:
    """Whether a Loop's body gives the condition that it is given, or true."""
    value: Any = body.outputs[0]
    while (node := value.producer()) is not None and node.op_type in ("Identity", "Cast"):
        value = node.inputs[0]
    if node is not None and node.op_type == "Constant" and "value" in node.attributes:
        return bool(node.attributes["value"].as_tensor().numpy().all())
    known = value.const_value
    return value is body.inputs[1] or (known is not None and bool(known.numpy().all()))


def scan(attrs: Mapping[str, Any], inputs: Sequence[Any], run: Run) -> list[Any]:
    """body(*state, *slices) -> (*state, *rows) over slices of the last inputs."""
    body, width = attrs["body"], attrs["num_scan_inputs"]
    carried = len(inputs) - width
    start, series = as_arrays(inputs[:carried]), as_arrays(inputs[carried:])
    count = len(body.outputs) - carried
    sides = ("in", width), ("out", count)
    ins, outs = (attrs.get(f"scan_{side}put_axes", (0,) * n) for side, n in sides)
    back, forth = (attrs.get(f"scan_{side}put_directions", (0,) * n) for side, n in sides)
    whole = all((*back, *forth))  # else, what goes the other way is reversed by itself

    def step(state: Arrays, slices: Arrays) -> tuple[Arrays, Arrays]:
        made = run(body, (*state, *slices))
        return as_arrays(made[:carried], start), as_arrays(made[carried:])

    series = tuple(in_direction(jnp.moveaxis(x, axis, 0), b and not whole)
                   for x, axis, b in zip(series, ins, back, strict=True))  # fmt: skip
    end, rows = lax.scan(step, start, series, reverse=whole)
    return [*end, *(jnp.moveaxis(in_direction(y, b and not whole), 0, axis)
                    for y, axis, b in zip(rows, outs, forth, strict=True))]  # fmt: skip


def in_direction(x: Array, reverse: Any) -> Array:
    """x, or x from its last entry to its first."""
    return jnp.flip(x, 0) if reverse else x


def scanned(turn: Callable[..., Any], state: Arrays, series: Arrays, backward: bool) -> Any:
    """The final state, and the rows of all iterations in the order of the entries."""
    start = as_arrays(state)

    def step(state: Arrays, slices: Arrays) -> tuple[Arrays, Array]:
        fresh, row = turn(state, slices)
        return as_arrays(fresh, start), *as_arrays([row])

    return lax.scan(step, start, as_arrays(series), reverse=backward)
