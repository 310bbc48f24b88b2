"""Control flow and sequences, as plain calls of the vocabulary: If, Loop and Scan run their bodies.

Written once for every reading: the NumPy engine runs it over arrays, `unroll` over graph values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any

import numpy as np
import onnx_ir as ir

from ....jacobians import Array, Op, dtype_of, shape_of
from ....jacobians.conditions import Condition
from ....jacobians.errors import LimitError, OnnxJacError, first_line
from ....jacobians.symint import Number, at, depth_of, same
from ....ops import Recorder, Step, find
from ....ops.graphs.shapes import Sizes
from .contents import Contents
from .steps import Meter

Run = Callable[[ir.Graph, Sequence[Any]], list[Any]]
"""run(graph, arguments): the outputs of a subgraph."""

At = Callable[[Array], np.ndarray]
"""at(value): the numbers of a value at the point, on which control flow depends."""


def control(
    op: Op, step: Step, inputs: Sequence[Any], run: Run, at: At, meter: Meter
) -> list[Any]:
    """The outputs of an If, Loop or Scan."""
    made = op.flow(step.op_type, step.attrs, inputs, run)
    if made is None:
        made = CONTROL[step.op_type](op, step, inputs, run, at, meter)
    if len(made) < len(step.outputs):
        raise OnnxJacError(f"its bodies give {len(made)} outputs, not {len(step.outputs)}")
    return [*made]


def branch(op: Op, step: Step, inputs: Sequence[Any], run: Run, at: At, meter: Meter) -> list[Any]:
    """If: one of two graphs without arguments."""
    return run(step.attrs["then_branch" if np.all(at(inputs[0])) else "else_branch"], ())


def loop(op: Op, step: Step, inputs: Sequence[Any], run: Run, at: At, meter: Meter) -> list[Any]:
    """Loop: body(i, go, *state) -> (go, *state, *rows) while go, at most `limit` times."""
    body = step.attrs["body"]
    limit, go, *state = inputs
    carried, rows = len(state), []
    for i in count() if limit is None else range(int(np.ravel(at(limit))[0])):
        if go is not None and not np.all(at(go)):
            break
        go, *results = run(body, (*iteration_inputs(body, i), *state))
        state = results[:carried]
        rows.append(results[carried:])
        meter.keep(rows[-1], f"what the turns of {step} give")
    meter.drop(value for row in rows for value in row)
    return [*state, *arranged(op, step, rows, body.outputs[1 + carried :])]


def iteration_inputs(body: ir.Graph, i: int) -> tuple[np.ndarray, np.ndarray]:
    """The iteration number i and the condition, true, that a Loop passes to its body.

    Both have one element; they are vectors if declared so, as by exporters before opset 11.
    """
    first, second = (len(value.shape or ()) for value in body.inputs[:2])
    return np.full((1,) * first, i, np.int64), np.full((1,) * second, True)


def scan(op: Op, step: Step, inputs: Sequence[Any], run: Run, at: At, meter: Meter) -> list[Any]:
    """Scan: body(*state, *slices) -> (*state, *rows) over slices of the last inputs."""
    body, width = step.attrs["body"], step.attrs["num_scan_inputs"]
    if not 0 < width <= len(inputs):
        raise OnnxJacError(f"it scans num_scan_inputs={width} of {len(inputs)} inputs")
    carried = len(inputs) - width
    state, series, rows = list(inputs[:carried]), inputs[carried:], []
    axes = step.attrs.get("scan_input_axes", (0,) * width)
    back = step.attrs.get("scan_input_directions", (0,) * width)
    turns = shape_of(series[0])[axes[0]]
    for i in range(turns):
        slices = [
            op.Gather(x, np.asarray(turns - 1 - i if b else i), axis=axis)
            for x, axis, b in zip(series, axes, back, strict=True)
        ]
        results = run(body, (*state, *slices))
        state = results[:carried]
        rows.append(results[carried:])
        meter.keep(rows[-1], f"what the turns of {step} give")
    meter.drop(value for row in rows for value in row)
    return [*state, *arranged(op, step, rows, body.outputs[carried:])]


def arranged(op: Op, step: Step, rows: list[list[Any]], declared: Sequence[ir.Value]) -> list[Any]:
    """The rows of all turns as one tensor each: of a Scan, along its axis and in its direction."""
    back = step.attrs.get("scan_output_directions", (0,) * len(declared))
    axes = step.attrs.get("scan_output_axes", (0,) * len(declared))
    columns = list(zip(*rows, strict=True)) or [()] * len(declared)
    return [
        stack_parts(op, column[::-1] if b else column, axis, value)
        for column, b, axis, value in zip(columns, back, axes, declared, strict=True)
    ]


def stack_parts(op: Op, parts: Sequence[Any], axis: int, declared: ir.Value) -> Any:
    """The parts stacked along a new axis; without parts, an empty tensor as declared."""
    if parts:
        return op.Concat(*(op.Unsqueeze(part, (axis,)) for part in parts), axis=axis)
    sizes = [dim if isinstance(dim, int) else 0 for dim in declared.shape or ()]
    return np.empty((0, *sizes), (declared.dtype or ir.DataType.FLOAT).numpy())


CONTROL: dict[str, Callable[..., list[Any]]] = {"If": branch, "Loop": loop, "Scan": scan}


def begin(step: Step, held: Sequence[Any]) -> list[Any]:
    """The inputs of a body in the first iteration; zeros for the slices if there is none."""
    if step.op_type == "If":
        return []
    if step.op_type == "Loop":
        return [*iteration_inputs(step.attrs["body"], 0), *held[2:]]
    width = step.attrs["num_scan_inputs"]
    axes = step.attrs.get("scan_input_axes", (0,) * width)
    series = zip(held[len(held) - width :], axes, strict=True)
    return [*held[: len(held) - width], *(first(x, axis) for x, axis in series)]


def first(x: np.ndarray, axis: int) -> np.ndarray:
    """The first slice along an axis; zeros where there is none."""
    return x.take(0, axis) if x.shape[axis] else np.zeros(np.delete(x.shape, axis), x.dtype)


def end(step: Step, held: Sequence[Any], found: Mapping[str, Sequence[Any]]) -> list[Any]:
    """The outputs of a step, as if every iteration gave the results of the first one.

    A Loop has at least one iteration here: empty rows would tell nothing about other points.
    """
    if step.op_type == "If":
        return list(found["then_branch" if np.all(held[0]) else "else_branch"])
    if step.op_type == "Loop":
        _, *results = found["body"]
        turns = 1 if held[0] is None else max(int(np.ravel(held[0])[0]), 1)
        carried, axes = len(held) - 2, (0,) * len(results)
    else:
        results, width = list(found["body"]), step.attrs["num_scan_inputs"]
        carried = len(held) - width
        turns = held[carried].shape[step.attrs.get("scan_input_axes", (0,))[0]]
        axes = step.attrs.get("scan_output_axes", (0,) * (len(results) - carried))
    rows = zip(results[carried:], axes, strict=False)
    return results[:carried] + [repeat_row(x, turns, axis) for x, axis in rows]


def stack_outputs(step: Step, made: list[Any], found: Mapping[str, Sequence[Any]]) -> list[Any]:
    """The outputs of a step; a stack without a row gets the shape of the rows that its body gives,
    which may be declared nowhere.
    """
    if step.op_type != "Loop":
        return made
    states = len(step.attrs["body"].inputs) - 2
    rows = zip(made[states:], found["body"][1 + states :], strict=False)
    return [*made[:states], *(y if y is None or len(y) else repeat_row(x, 0, 0) for y, x in rows)]


def repeat_row(x: np.ndarray, turns: int, axis: int) -> np.ndarray:
    """The same row for every iteration, stacked."""
    return np.repeat(np.expand_dims(x, axis), turns, axis)


# -- the symbolic shapes around bodies -------------------------------------------------------------


def shape_formals(
    op: Recorder, step: Step, formals: Iterable[ir.Value], operands: Sequence[Any]
) -> None:
    """Give the inputs of a body their symbolic shapes."""
    if op.symbols is not None:
        shapes = [None if x is None else shape_of(x) for x in operands]
        for value, sizes in zip(formals, shapes_within(step, shapes), strict=False):
            if sizes is not None:
                op.shape(value, sizes)


def shape_outputs(
    op: Recorder, step: Step, graphs: Mapping[str, ir.Graph], operands: Iterable[Any],
    made: Sequence[ir.Value | None], turns: Number | None = None,
) -> None:  # fmt: skip
    """Give the outputs of a step with bodies their symbolic shapes.

    If nothing else tells the trip count, it is read off the first output stacked over iterations.
    """
    if op.symbols is None:
        return
    shapes = [None if x is None else shape_of(x) for x in operands]
    results = [[shape_of(value) for value in graph.outputs] for graph in graphs.values()]
    if step.op_type == "Scan":
        turns = turns_of_scan(step, shapes)
    elif step.op_type == "Loop" and turns is None:
        row = next(filter(None, made[max(len(shapes) - 2, 0) :]), None)
        turns = None if row is None else op.dimension(row, 0, at(shape_of(row))[0])
    found = shapes_around(step, shapes, results, turns)
    for value, sizes in zip(made, found, strict=False):
        if value is not None:
            if len(sizes) != len(shape_of(value)):
                raise OnnxJacError(f"it has no turn here, where {value.name!r} has no rows")
            op.shape(value, sizes)


def turns_of_scan(step: Step, shapes: Sequence[Any]) -> Number:
    """The trip count of a Scan with inputs of these shapes."""
    first = shapes[-step.attrs["num_scan_inputs"]]
    return first[step.attrs.get("scan_input_axes", (0,))[0]]


def shapes_within(step: Step, shapes: Sequence[Any]) -> list[Sizes | None]:
    """The shapes of the inputs of a body; None for iteration number and condition of a Loop."""
    if step.op_type == "If":
        return []
    if step.op_type == "Loop":
        return [None, None, *shapes[2:]]
    width = step.attrs["num_scan_inputs"]
    axes = step.attrs.get("scan_input_axes", (0,) * width)
    series = ((s, axis % len(s)) for s, axis in zip(shapes[-width:], axes, strict=True))
    return [*shapes[:-width], *((*s[:axis], *s[axis + 1 :]) for s, axis in series)]


def shapes_around(
    step: Step, shapes: Sequence[Any], results: Sequence[Sequence[Sizes]], turns: Any
) -> list[tuple[Any, ...]]:
    """The shapes of the outputs of a step, from the shapes of its inputs and its bodies' results.

    A size that differs between branches is None. Raises `OnnxJacError` where a state may change its
    shape between iterations.
    """
    if step.op_type == "If":
        return [*map(merged_shape, *results)]
    lost = step.op_type == "Loop"
    states = shapes[2:] if lost else shapes[: -step.attrs["num_scan_inputs"]]
    ends = results[0][lost:]
    for k, (a, b) in enumerate(zip(states, ends, strict=False)):
        if len(a) != len(b) or not all(keeps_size(n, m) for n, m in zip(a, b, strict=True)):
            raise OnnxJacError(
                f"the shape of its state {k} becomes {shape_text(b)}, from {shape_text(a)}"
            )
    rows = ends[len(states) :]
    axes = step.attrs.get("scan_output_axes", (0,) * len(rows))
    placed = ((axis % (len(row) + 1), row) for axis, row in zip(axes, rows, strict=True))
    return [*states, *((*row[:axis], turns, *row[axis:]) for axis, row in placed)]


def merged_shape(a: Sizes, b: Sizes) -> tuple[Any, ...]:
    """The shape of an output of an If, from the shapes in both branches."""
    if len(a) != len(b):
        raise OnnxJacError(f"its branches give {shape_text(a)} and {shape_text(b)}")
    return tuple(n if same(n, m) else None for n, m in zip(a, b, strict=True))


def keeps_size(n: Any, m: Any) -> bool:
    """Whether a size is the same before and after an iteration: for certain, or decided by numbers
    that are known before the first iteration.
    """
    return same(n, m) or (depth_of(m) <= depth_of(n) and bool(n == m))


def shape_text(shape: Sizes) -> str:
    """A shape at the point, as text."""
    return str([*at(shape)])


Tensors = list[Any]


# -- sequences and optionals: lists of tensors, of known length at the point -----------------------


def insert(
    op: Op, step: Step, at: Any, sequence: Tensors, tensor: Any, position: Any = None
) -> Tensors:
    made, where = list(sequence), len(sequence) if position is None else int(at(position))
    made.insert(where, tensor)
    return made


def erase(op: Op, step: Step, at: Any, sequence: Tensors, position: Any = None) -> Tensors:
    made = list(sequence)
    del made[-1 if position is None else int(at(position))]
    return made


def concat(op: Op, step: Step, at: Any, sequence: Tensors) -> Any:
    """ConcatFromSequence: along an axis, or along a new one."""
    axis = step.attrs["axis"]
    if step.attrs.get("new_axis", 0):
        sequence = [op.Unsqueeze(x, (axis,)) for x in sequence]
    return op.Concat(*sequence, axis=axis)


def split(op: Op, step: Step, at: Any, x: Any, parts: Any = None) -> Tensors:
    """SplitToSequence: in pieces of one entry, of a given length, or of given lengths."""
    axis = step.attrs.get("axis", 0)
    n = shape_of(x)[axis]
    sizes = [1] * n if parts is None else [int(k) for k in np.ravel(at(parts))]
    if parts is not None and np.ndim(at(parts)) == 0:
        (width,) = sizes
        sizes = [min(width, n - start) for start in range(0, n, width)]
    pieces = op.Split(x, np.array(sizes), axis=axis, outputs=len(sizes)) if len(sizes) > 1 else (x,)
    if parts is None and not step.attrs.get("keepdims", 1):
        pieces = tuple(op.Squeeze(piece, (axis,)) for piece in pieces)
    return list(pieces)


SEQUENCES: dict[str, Callable[..., Any]] = {
    "SequenceConstruct": lambda op, step, at, *tensors: list(tensors),
    "SequenceEmpty": lambda op, step, at: [],
    "SequenceAt": lambda op, step, at, sequence, position: sequence[int(at(position))],
    "SequenceInsert": insert,
    "SequenceErase": erase,
    "SequenceLength": lambda op, step, at, sequence: np.asarray(len(sequence), np.int64),
    "ConcatFromSequence": concat,
    "SplitToSequence": split,
    "Optional": lambda op, step, at, value=None: value,
    "OptionalGetElement": lambda op, step, at, value=None: value,
    "OptionalHasElement": lambda op, step, at, value=None: np.asarray(value is not None),
}


# -- failures: control flow that cannot be kept, and errors that name the step and its inputs ------


class NotKept(OnnxJacError):
    """Control flow that cannot be recorded as it is; `output` is the first output of its step."""

    def __init__(self, reason: str, step: Step | None = None) -> None:
        super().__init__(reason)
        self.output = None if step is None else next(filter(None, step.outputs))


class LongLoop(Exception):
    """A loop has more iterations than may be unrolled."""


def note(model: Contents, reason: NotKept) -> None:
    """Unroll the control flow of `reason` from now on; raises `reason` if that does not help."""
    if reason.output is None or reason.output in model.cache["unkept"]:
        raise reason
    model.cache["unkept"][reason.output] = Condition("unrolled", reason.output, str(reason))


@contextmanager
def kept_whole(step: Step) -> Iterator[None]:
    """Errors inside a step with bodies become a `NotKept` for this step."""
    try:
        yield
    except LimitError:
        raise
    except Exception as error:  # whatever a body does, the control flow can be unrolled
        raise NotKept(first_line(error), step) from error


@contextmanager
def explained(step: Step, values: Mapping[str, Any]) -> Iterator[None]:
    """Errors inside become an `OnnxJacError` that names the step and its tensors."""
    try:
        yield
    except (LimitError, NotKept, LongLoop):
        raise
    except OnnxJacError as error:
        raise type(error)(f"{step}: {error}") from error
    except Exception as error:  # of a kernel, or of a definition that a user declared
        said = first_line(error).removesuffix(".")
        reason = reason_of(error, (values.get(n) for n in step.inputs if n), said)
        raise OnnxJacError(
            f"{step} fails on {_described(step, values)}: {reason}. {_advice(step)}"
        ) from error


def reason_of(error: Exception, operands: Iterable[Any], said: str) -> str:
    """Why a step fails: what Python `said`, unless it counted the axes of a scalar."""
    scalar = any(getattr(x, "shape", None) == () for x in operands)
    counted = isinstance(error, IndexError | ZeroDivisionError)
    return "a scalar has no axis, Reshape gives it one" if scalar and counted else said


def _advice(step: Step) -> str:
    """Advice for the user; a definition from outside this package may itself be at fault."""
    declared = find(step.op_type, step.domain)
    told = declared and getattr(declared.definition, "__module__", None)
    if told and told.partition(".")[0] != __name__.partition(".")[0]:
        return "Its definition may only call what op has, and returns a tuple of outputs."
    return "Check what reaches it, or try engine='onnxruntime'."


def _described(step: Step, values: Mapping[str, Any]) -> str:
    names = filter(None, step.inputs)
    return ", ".join(f"{name} {_kind(values.get(name))}" for name in names) or "no inputs"


def _kind(value: Any) -> str:
    if isinstance(value, np.ndarray | np.generic):
        return f"{value.dtype}{list(value.shape)}"
    if getattr(value, "dtype", None) is not None and getattr(value, "shape", None) is not None:
        return f"{dtype_of(value)}{list(shape_of(value))}"  # a value of a graph
    return type(value).__name__
