"""Export: a derivative of a model as a plain ONNX model that any runtime executes."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, Literal

import onnx
import onnx_ir as ir

from ..jacobians.arguments import validated
from ..jacobians.errors import InputError, warn
from ..ops.graphs import every, nested_graphs
from .linear.derivatives.record import has_tangent, roundings, unjoined, warn_roundings, warn_zeros
from .linear.derivatives.trace import Trace
from .linear.derivatives.unroll import add_initializer
from .model.flow.contents import unique_name
from .model.flow.steps import steps_needed
from .model.loading.patterns import proto_of
from .model.primal.evaluate import evaluate
from .model.primal.inputs import Names as NamesOrNone
from .model.primal.inputs import as_model, check_inputs, names_of, not_floating, optional_inputs
from .model.primal.model import Model
from .recording.derive import Names, grad_graph, hvp_graph, jacobian_graph, jvp_graph, vjp_graph
from .recording.guarded import guarded, trace_guarded
from .training.step import training_step

Mode = Literal["jvp", "vjp", "grad", "hvp", "jacobian", "training_step"]

MODES: dict[str, Callable[..., Trace]] = {
    "jvp": jvp_graph,
    "vjp": vjp_graph,
    "grad": grad_graph,
    "hvp": hvp_graph,
    "jacobian": jacobian_graph,
}
STEP = "training_step"


@validated
def export(
    model: Model | onnx.ModelProto,
    mode: Mode,
    inputs: Any = None,
    *,
    of: NamesOrNone = None,
    wrt: NamesOrNone = None,
    engine: str | None = None,
    straight_through: bool = False,
) -> onnx.ModelProto:
    """A derivative of the model, recorded at the point `inputs`, as an ONNX model.

    | mode | further inputs | outputs |
    |---|---|---|
    | `"jvp"` | `{wrt}_tangent` | each `of`, `{of}_tangent` = J · tangents |
    | `"vjp"` | `{of}_cotangent` | each `of`, `{wrt}_cotangent` = Jᵀ · cotangents |
    | `"grad"` | | the scalar `of`, `{wrt}_grad` = ∇ of |
    | `"hvp"` | `{wrt}_tangent` | the scalar `of`, `{wrt}_grad`, `{wrt}_hvp` = H · tangents |
    | `"jacobian"` | | each `of`, `{of}_{wrt}_jacobian`, dense |
    | `"training_step"` | the state | the outputs, the new state |

    A `"training_step"` takes a training model, as `training_model` makes it, to an ONNX model of
    plain operators by which any runtime trains. The inputs of this model are the batch and the
    initializers that `update_binding` changes; initializers that an algorithm lists among its
    inputs, such as the learning rate, are inputs with their values as defaults. The outputs are the
    outputs of the model and of the algorithms. The metadata entry `onnxjac.update_binding` says in
    JSON which output is the new value of which initializer: for a model of `training_model`,
    `w_new` is the new value of `w`. `inputs` are an example of a batch, which may be left out;
    names stay as they are.

    - `model`: the model, as `load` gives it, or a training model.
    - `mode`: which derivative, from the table.
    - `of`, `wrt`: what is differentiated, and by what; by default all floating outputs and inputs.
    - `engine`: `"onnxruntime"` (default where installed), `"numpy"`, `"torch"` or `"jax"` runs
      the model.
    - `straight_through`: True lets tangents pass rounding and quantisation; see `linearize`.

    Shapes: the free dimensions of the model's inputs stay free. Where a rule decides by a size or
    by an integer of the point, the result holds where the decision is the same: one
    `OnnxJacWarning` and the metadata entry `onnxjac.guards` list these conditions. Where a rule
    needs a size as a number, the size at the point is fixed, and an `OnnxJacWarning` names the
    operator and the inputs.

    Control flow stays control flow: the derivative of an If is an If, and the derivative of a Loop
    or Scan is a Scan over the states of all turns, so that other points may take other branches and
    turns. A loop is unrolled for the point, with an `OnnxJacWarning`, where a shape changes from
    turn to turn, a state is a sequence or a body draws random numbers.

    Where an unrolled loop or branch, a shape or a rule depends on numbers of the point, the tensors
    with these numbers become constants. One `OnnxJacWarning` and the metadata entry `onnxjac.held`
    name them; inputs among them are no inputs of the result. Weights and intermediates that
    `inputs` gives become constants too, but an initializer that the file lists among its inputs is
    an input, with the given value as its default. A sample that a random operator drew is a
    constant.

    A dense Jacobian is per sample, (batch, *of, *wrt), where `of` and `wrt` have the same free
    dimension as their first axis and no operator between them mixes samples along it; else
    (*of, *wrt). Weights keep their names; other names become valid C identifiers.

    Raises `InputError` for an unknown mode or name, for a gradient of several numbers, for a tensor
    that is not floating, and for a binding of a training model that does not fit;
    `UnsupportedOp` for an operator without a rule.
    """
    if mode == STEP:
        if (of, wrt) != (None, None):
            raise InputError(f"mode={mode!r} takes no of= and wrt=: the training model says both")
        return training_step(model, inputs)
    model = as_model(model, of, wrt=wrt, straight_through=straight_through)
    of_names = names_of(model, of, model.outputs, "of")
    wrt_names = names_of(model, wrt, model.inputs, "wrt")
    point: Mapping[str, Any] = check_inputs(model, {} if inputs is None else inputs)
    given = {name: point[name] for name in optional_inputs(model) & point.keys()}
    literal = model.literal((*wrt_names, *point))
    model, point = freeze_model(literal, point, (*of_names, *wrt_names), given)
    require_floating(model, point, of_names, wrt_names)
    if mode in ("grad", "hvp"):
        require_scalar(model, point, of_names, mode)
    make = partial(MODES[mode], model, of=of_names, wrt=wrt_names, engine=engine)
    t, symbols = trace_guarded(model, point, make)
    warn_of_cuts(t, of_names)
    made = guarded(t, symbols, f"{model.name or 'model'}_{mode}", given).ir
    rename(made.graph)
    return proto_of(made)


def warn_of_cuts(t: Trace, of: Names) -> None:
    """Warn of pairs of tensors that no path joins, and of roundings that cut some of the paths."""
    first = [(dag, *ends) for ends, dag in t.known.items() if {*of}.issuperset(ends[1])]
    zeros = (unjoined(t.active, dag, wrt, ends) for dag, wrt, ends in first)
    warn_zeros(tuple(dict.fromkeys(pair for pairs in zeros for pair in pairs)))
    rounded = (roundings(t.active, dag, wrt, ends, lambda _: False) for dag, wrt, ends in first)
    warn_roundings(next(filter(None, rounded), ""))


def freeze_model(
    model: Model, point: Mapping[str, Any], names: Names, free: Collection[str]
) -> tuple[Model, Mapping[str, Any]]:
    """The model with given weights and intermediates as constants, those that are `free` as inputs,
    and the inputs.
    """
    given = [name for name in point if name not in model.inputs]
    if not given:
        return model, point
    unread = (
        steps_needed(model.steps, names)[1] - steps_needed(model.steps, names, given)[1] - {*names}
    )
    copy = model.ir.clone()
    values = ir.convenience.create_value_mapping(copy.graph, include_subgraphs=False)
    for name in given:
        old = values[name]
        copy.graph.initializers.pop(name, None)
        if name in free:
            old.const_value = None
            copy.graph.inputs.append(old)
            continue
        old.name = None
        held = add_initializer(copy.graph, name, point[name])
        ir.convenience.replace_all_uses_with(old, held, replace_graph_outputs=True)
    gone = [value for value in copy.graph.inputs if value.name in unread]
    for value in gone:
        copy.graph.inputs.remove(value)
    if gone:
        listed = ", ".join(repr(value.name) for value in gone)
        warn(f"no input any more, as what is computed from it is given: {listed}")
    made = Model(copy, model.limits)
    return made, {name: x for name, x in point.items() if name in made.inputs}


def require_floating(model: Model, point: Mapping[str, Any], of: Names, wrt: Names) -> None:
    """Raises `InputError` for a value without a tensor type, such as a sequence."""
    for role, names in (("of", of), ("wrt", wrt)):
        for name in names:
            if model.spec(name).dtype is None:
                (value,) = evaluate(model, point, [name]).values()
                if not has_tangent(value):
                    raise not_floating(role, name, getattr(value, "dtype", type(value).__name__))


def require_scalar(model: Model, point: Mapping[str, Any], of: Names, mode: str) -> None:
    """Raises `InputError` where the gradient of several numbers is asked for."""
    values = evaluate(model, point, of)
    if len(of) != 1 or values[of[0]].size != 1:
        shapes = ", ".join(f"{name} {list(value.shape)}" for name, value in values.items())
        raise InputError(f"mode={mode!r} needs one scalar output, not {shapes}: name it with of=")


def rename(graph: ir.Graph) -> None:
    """Give every value a name that is a valid and unique C identifier; weights keep theirs, but
    for those that an output repeats.
    """
    inside = [value for body in nested_graphs(graph) for value in body.inputs]
    made = [*inside, *(value for node in every(graph) for value in node.outputs)]
    weights = graph.initializers.values()
    taken = {*graph.initializers} - {v.name for v in made if v.name}
    named = (*graph.inputs, *made, *weights)
    values = {id(v): v for v in named if v.name and v.name not in taken}
    for value in values.values():
        name = unique_name(identifier(value.name or ""), taken)
        if name != value.name:
            value.name = name


def identifier(name: str) -> str:
    """The name with every other character than letters, digits and _ replaced.

    >>> identifier("gpu_0/conv.weight"), identifier("0.weight")
    ('gpu_0_conv_weight', '_0_weight')
    """
    plain = re.sub(r"[^0-9A-Za-z_]", "_", name)
    return f"_{plain}" if plain[:1].isdigit() else plain
