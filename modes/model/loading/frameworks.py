"""Frameworks: PyTorch modules and JAX functions as ONNX models with the names of their weights.

The exporter folds the transpose of a linear layer's weight into a constant such as `val_3` or
`onnx::MatMul_16`. Such a constant gets the weight's name back where the file identifies the weight:
by the call that the exporter notes beside a node, or by the bias that is added to the product.
"""

from __future__ import annotations

import inspect
import io
import json
import logging
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import cache, partial
from hashlib import sha256
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper, numpy_helper

from ....jacobians.arrays import as_array, is_foreign
from ....jacobians.errors import LoadError, closest, first_line, optional, warn
from ....jacobians.text import joined
from ..flow.contents import CHANGED, nodes
from ..primal.inputs import PARAMETERS

NUMBER = re.compile(r"-?\d+\.\d*(?:e[-+]?\d+)?|-?\d+e[-+]?\d+")
"""A floating number, as Python writes it."""


def exported(source: Any, examples: Any, batch: Batch, shapes: Any = None) -> Any:
    """The exported module or function, the proto of an exported program, or the source itself."""
    source = getattr(source, "model_proto", source)
    source = getattr(source, "_orig_mod", source)  # of torch.compile
    if is_module(source):
        return module_proto(source, examples, batch, shapes)
    if shapes is not None:
        raise LoadError(
            f"dynamic_shapes are for a torch.nn.Module, not for a {type(source).__name__}: "
            "dynamic_batch=True frees the batch of a file"
        )
    if is_program(source) and examples is None:
        with _quiet():  # of torch.export
            return _first_names(_converted(source), source.module())
    if is_source(source):
        return function_proto(source, examples, batch)
    if examples is not None:
        kind = type(source).__name__
        raise LoadError(f"example_inputs are for a module or a function, not for a {kind}.")
    return source


def is_program(source: Any) -> bool:
    """Whether this is a program of `torch.export`."""
    return hasattr(source, "graph_signature")


def is_source(source: Any) -> bool:
    """Whether this is a module or a function, which is exported at examples."""
    source = getattr(getattr(source, "model_proto", source), "_orig_mod", source)
    function = callable(source) and not isinstance(source, type) and not is_program(source)
    return is_module(source) or function


def is_module(source: Any) -> bool:
    """Whether this is a module of PyTorch, without importing PyTorch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(source, torch.nn.Module)


def module_proto(
    module: Any, examples: Any, batch: Batch, shapes: Any = None
) -> onnx.ModelProto:  # fmt: skip
    """The module in evaluation mode, with the input names of `forward` and its weight names.

    A module that the exporter cannot handle is traced, with a warning: the model then takes the
    same branches at every point as at the examples.
    """
    optional("onnxscript", "torch")  # required by the exporter
    bound = arguments_of(module.forward, examples)
    dynamic = batched(bound.arguments, batch)
    for name, value in bound.arguments.items():
        bound.arguments[name] = map_leaves(partial(_example, module, name in dynamic), value)
    with _evaluating(module), _quiet():
        try:
            return _first_names(_exported(module, bound, dynamic, shapes), module)
        except Exception as error:
            reason = first_line(error)
            if shapes is not None:
                raise LoadError(f"PyTorch cannot export {type(module).__name__} with these "
                                f"dynamic_shapes: {reason}") from error  # fmt: skip
            proto = _first_names(_traced(module, bound, dynamic, reason), module)
    warn(f"PyTorch's exporter failed ({reason}): the module was traced instead, with its branches "
         "as they are at example_inputs")  # fmt: skip
    return proto


def _exported(
    module: Any, bound: inspect.BoundArguments, dynamic: frozenset[str], given: Any = None
) -> onnx.ModelProto:
    torch = optional("torch", "torch")
    if given is not None:
        return _converted(module, bound.args, kwargs=bound.kwargs, dynamic_shapes=given)
    dim = torch.export.Dim("batch")

    def axes(free: bool, leaf: Any) -> dict[int, Any] | None:
        return {0: dim} if free and is_input(leaf) and leaf.ndim else None

    shapes = {name: map_leaves(partial(axes, name in dynamic), value)
              for name, value in bound.arguments.items()}  # fmt: skip
    return _converted(module, bound.args, kwargs=bound.kwargs,
                      dynamic_shapes=shapes if dynamic else None)  # fmt: skip


def _converted(source: Any, args: tuple[Any, ...] = (), **options: Any) -> onnx.ModelProto:
    """The model of a module or an exported program; not optimised, so weights keep their names."""
    export = optional("torch", "torch").onnx.export
    program = export(source, args, dynamo=True, verbose=False, optimize=False, **options)
    proto: onnx.ModelProto = program.model_proto
    keep_doubles(proto)
    return proto


def keep_doubles(proto: onnx.ModelProto) -> None:
    """Store Python numbers that are cast to double precision as the doubles that they are.

    The exporter rounds them to single precision, and notes the call of each node.
    """
    types = {v.type.tensor_type.elem_type for v in proto.graph.input}
    if onnx.TensorProto.DOUBLE not in types | {t.data_type for t in proto.graph.initializer}:
        return
    casts: dict[str, list[onnx.NodeProto]] = {}
    for node in nodes(proto):
        for name in node.input:
            casts.setdefault(name, []).append(node)
    for node in nodes(proto):
        used = casts.get(node.output[0], []) if node.op_type == "Constant" else []
        if not used or any(user.op_type not in ("Cast", "CastLike") for user in used):
            continue
        (attribute,), call = node.attribute, {p.key: p.value for p in node.metadata_props}.get(CALL)
        if attribute.name == "value":
            value = numpy_helper.to_array(attribute.t)
        else:
            value = np.asarray(attribute.f if attribute.name == "value_float" else 0)
        said = {float(text) for text in NUMBER.findall(call or "")}
        exact = {x for x in said if np.float32(x) == value} if value.shape == () else set()
        if value.dtype.kind == "f" and len(exact) == 1:
            tensor = numpy_helper.from_array(np.array(exact.pop()))
            attribute.CopyFrom(helper.make_attribute("value", tensor))


def _traced(
    module: Any, bound: inspect.BoundArguments, dynamic: frozenset[str], reason: str
) -> onnx.ModelProto:
    """The module exported by the older exporter, which traces one run."""
    torch = optional("torch", "torch")
    names = [name for name, value in bound.arguments.items() if is_input(value)]
    axes = {name: {0: "batch"} for name in names if name in dynamic}
    options = {"do_constant_folding": False, "input_names": names, "dynamic_axes": axes or None}
    file = io.BytesIO()
    try:
        torch.onnx.export(module, bound.args, file, kwargs=bound.kwargs, dynamo=False, **options)
    except Exception as error:
        raise LoadError(
            f"PyTorch cannot export {type(module).__name__}: {reason}; traced, {first_line(error)}"
        ) from error
    return onnx.load_from_string(file.getvalue())


def _first_names(proto: onnx.ModelProto, module: Any) -> onnx.ModelProto:
    """Rename every weight with several names to its name in `named_parameters`."""
    first = {id(p): name for name, p in module.named_parameters()}
    every = module.named_parameters(remove_duplicate=False)
    names = {name: first[id(p)] for name, p in every if first[id(p)] != name}
    for held in proto.graph.metadata_props:
        if held.key == SIGNATURE:
            held.value = TARGET.sub(lambda found: names.get(found[0], found[0]), held.value)
    stored = {tensor.name for tensor in proto.graph.initializer}
    renamed = {a: b for a, b in names.items() if a in stored and b not in stored}
    for value in (*proto.graph.initializer, *proto.graph.value_info):
        value.name = renamed.get(value.name, value.name)
    for node in nodes(proto):
        node.input[:] = [renamed.get(name, name) for name in node.input]
    return proto


def _example(module: Any, dynamic: bool, leaf: Any) -> Any:
    """A leaf as a tensor; a dynamic axis of length 1, which the exporter would fix, is doubled."""
    torch = optional("torch", "torch")
    if not is_input(leaf):
        return leaf
    like = next((p for p in module.parameters() if p.is_floating_point()), torch.zeros(()))
    given = isinstance(leaf, torch.Tensor)
    leaf = leaf.detach() if given else torch.tensor(as_array(leaf), device=like.device)
    if leaf.is_floating_point() and (not given or like.dtype == torch.float64):
        leaf = leaf.to(like.dtype)  # also where the module would refuse what the exporter takes
    return torch.cat([leaf, leaf]) if dynamic and leaf.shape[:1] == (1,) else leaf


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the output of the exporter; errors are raised as usual."""
    before, said = logging.root.manager.disable, io.StringIO()
    logging.disable(logging.ERROR)
    try:
        with redirect_stdout(said), redirect_stderr(said), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


@contextmanager
def _evaluating(module: Any) -> Iterator[None]:
    """Put the module in evaluation mode; afterwards the mode of every submodule is restored."""
    before = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, training in before:
            part.training = training


def function_proto(function: Callable[..., Any], examples: Any, batch: Batch) -> onnx.ModelProto:
    """The function as ONNX; a pytree of arrays becomes inputs such as `params.layer.w`."""
    bound = arguments_of(function, examples)
    dynamic = batched(bound.arguments, batch)
    torch = sys.modules.get("torch")
    if torch and any(isinstance(value, torch.Tensor) for value in bound.arguments.values()):
        raise LoadError("only functions of JAX are taken, not of PyTorch's tensors: give a "
                        "torch.nn.Module, whose forward may call the function")  # fmt: skip
    to_onnx, jax = optional("jax2onnx", "jax2onnx").to_onnx, optional("jax", "jax2onnx")
    paths, tree = jax.tree_util.tree_flatten_with_path(dict(bound.arguments))
    names = [jax.tree_util.keystr(path, simple=True, separator=".") for path, _ in paths]
    arrays = [as_array(leaf) for _, leaf in paths]
    double = any(a.dtype == np.float64 for a in arrays) and jax.config.jax_enable_x64

    def flat(*leaves: Any) -> Any:
        bound.arguments.update(tree.unflatten(leaves))
        return function(*bound.args, **bound.kwargs)

    structs = [_struct(jax, name, a, dynamic) for name, a in zip(names, arrays, strict=True)]
    try:
        options = {"input_names": names, "enable_double_precision": double}
        proto: onnx.ModelProto = to_onnx(flat, structs, **options)
        return proto
    except Exception as error:
        name = getattr(function, "__name__", "the function")
        raise LoadError(f"jax2onnx cannot convert {name}: {first_line(error)}") from error


def _struct(jax: Any, name: str, array: np.ndarray, dynamic: frozenset[str]) -> Any:
    dtype = jax.dtypes.canonicalize_dtype(array.dtype)
    shape: tuple[Any, ...] = array.shape
    if name in dynamic and shape:
        shape = jax.export.symbolic_shape("batch, ...", like=shape)
    return jax.ShapeDtypeStruct(shape, dtype)


Batch = bool | Iterable[str]
"""Which arguments have a dynamic first axis: all, none, or some names."""


def arguments_of(function: Callable[..., Any], examples: Any) -> inspect.BoundArguments:
    """Example inputs by the parameter names of the function.

    >>> dict(arguments_of(lambda x, *, scale=1: x, {"x": 3}).arguments)
    {'x': 3}
    """
    if examples is None:
        raise LoadError("a module or function needs example_inputs=(x, ...) to be traced with")
    try:
        signature = inspect.signature(function)
    except ValueError as error:
        raise LoadError(f"{function!r} does not say which arguments it takes: give the module, or "
                        "a function, that it is made of") from error  # fmt: skip
    try:
        if isinstance(examples, Mapping):
            return signature.bind(**examples)
        return signature.bind(*(examples if isinstance(examples, tuple | list) else (examples,)))
    except TypeError as error:
        raise LoadError(f"example_inputs do not fit {signature}: {error}.") from error


def batched(arguments: Mapping[str, Any], batch: Batch) -> frozenset[str]:
    """The names of the arguments whose first axis is dynamic."""
    if isinstance(batch, bool):
        return frozenset(arguments if batch else ())
    names = frozenset([batch] if isinstance(batch, str) else batch)
    for name in names - arguments.keys():
        raise LoadError(f"dynamic_batch names no argument {name!r}.{closest(name, arguments)}")
    return names


def is_input(value: Any) -> bool:
    """Whether a leaf of the examples becomes an input; numbers, text and None are constants."""
    return is_foreign(value) or type(value).__module__ == "numpy"


def map_leaves(change: Callable[[Any], Any], value: Any) -> Any:
    """A nested structure of tuples, lists and dicts with `change` applied to every leaf.

    >>> map_leaves(str, (1, [2, {"a": 3}]))
    ('1', ['2', {'a': '3'}])
    """
    if isinstance(value, tuple | list):
        return type(value)(map_leaves(change, part) for part in value)
    if isinstance(value, dict):
        return {key: map_leaves(change, part) for key, part in value.items()}
    return change(value)


SIGNATURE = "pkg.torch.export.ExportedProgram.graph_signature"
CALL, RULE = "pkg.torch.onnx.fx_node", "pkg.onnxscript.rewriter.rule_name"
SOURCES = "pkg.onnxscript.optimizer.folded_from"

PARAMETER = re.compile(r"^(\w+): PARAMETER target='(.+)'$", re.M)
TARGET = re.compile(r"(?<=target=')[^'\n]+(?=')")
LINEAR = re.compile(r"aten\.linear\.default\]\(args = \(%\w+, %(\w+)")
VALUE, QUOTED = re.compile(r"%(\w+)"), re.compile(r"'(.*?)'")
TURNED = re.compile(r"(t|permute|transpose)(_\d+)?")
CREATED = re.compile(r"scalar_tensor|clone|full|zeros|ones")
TRACED = re.compile(r"onnx::MatMul_\d+")
ARGUMENT = r"(\[[^]]*\]|[^],[)]+)"
IGNORED = {
    name: re.compile(rf"aten\.({call})\.default\]\(args = \((?:{ARGUMENT}, ){{{k}}}{ARGUMENT}\)")
    for name, call, k in (("label_smoothing", "cross_entropy_loss", 5),
                          ("divisor_override", r"avg_pool\dd", 6))
}  # fmt: skip
"""Arguments that the exporter ignores: argument k of a call."""


def name_layers(model: ir.Model) -> None:
    """Name the weights of linear layers; warn of arguments that the exporter left out, and note the
    parameters that are gone, merged or folded, of which `names_of` warns.
    """
    graph = model.graph
    if ignored := ignored_arguments(graph):
        warn(f"PyTorch's exporter leaves out {list_names(ignored)}: values and derivatives are "
             "as without it. Have the module compute it by other operations.")  # fmt: skip
    listed = dict(PARAMETER.findall(graph.metadata_props.get(SIGNATURE, "")))
    if listed:
        model.metadata_props[PARAMETERS] = "\n".join(listed.values())
    matrices, known = cache(partial(by_content, graph)), set(listed.values())
    for node in list(graph):
        weight = node.inputs[1] if node.op_type == "MatMul" and len(node.inputs) == 2 else None
        if weight is None or weight.name not in graph.initializers or node.domain:
            continue
        call = LINEAR.search(node.metadata_props.get(CALL, ""))
        name = listed.get(call[1]) if call else traced(graph, matrices, node, weight)
        if name and name != weight.name:
            transpose_weight(graph, matrices, weight, name)
    for constant in filter(TURNED.fullmatch, folded_results(graph, listed)):
        value = graph.initializers[constant]
        lost = {n for n in folded_from(value) & known if n not in graph.initializers}
        if name := untied(graph, matrices, value) or (lost.pop() if len(lost) == 1 else None):
            transpose_weight(graph, matrices, value, name)
    holders, folded = merged_parameters(graph, listed), made_of_parameters(graph, listed)
    if gone := [name for name in listed.values() if name not in graph.initializers]:
        found = ", ".join(n.metadata_props[RULE] for n in graph if RULE in n.metadata_props)
        why = f" by {', '.join(sorted(set(found.split(', '))))}" if found else ""
        into = (
            f" So the derivatives by {list_names(holders)} are not the module's." if holders else ""
        )
        text = (f"{len(gone)} of {len(listed)} parameters of the module are not in the file: "
                f"{list_names(gone)}. Either no output depends on these parameters, or the same "
                f"tensor has a second name, or the exporter merged or folded them{why}.{into} "
                f"{ADVICE}")  # fmt: skip
        note_parameters(model, [*gone, *holders], text)
    if folded:
        text = ("derivatives by parameters may miss what the exporter folded into constants: "
                f"{list_names(sorted(set().union(*folded.values())))}. {ADVICE}")  # fmt: skip
        note_parameters(model, folded, text)
    if equal := equal_parameters(graph):
        text = (
            "the exporter merged parameters that were equal: a derivative by "
            f"{list_names(equal)} is the sum of the derivatives by all of them. {ADVICE}"
        )
        note_parameters(model, equal, text)


def note_parameters(model: ir.Model, names: Iterable[str], text: str) -> None:
    """Note what is to be known of parameters, in the metadata of the model."""
    notes = json.loads(model.metadata_props.get(CHANGED, "{}"))
    notes.update((name, f"{notes[name]} {text}" if name in notes else text) for name in names)
    model.metadata_props[CHANGED] = json.dumps(notes)


FOLLOWED = 16
"""The most initializers of one constant that are followed, so that loading takes linear time."""

ADVICE = "torch.onnx.export(..., optimize=False) neither merges nor folds."


def ignored_arguments(graph: ir.Graph) -> list[str]:
    """The arguments of PyTorch's calls that the exporter ignored: the call became one node."""
    calls = Counter(node.metadata_props.get(CALL, "") for node in graph)
    return [
        f"{name}={found[found.lastindex or 0]} of {found[1]}"
        for name, pattern in IGNORED.items()
        for call, count in calls.items()
        if count == 1 and (found := pattern.search(call))
    ]


def list_names(names: list[str]) -> str:
    return joined(names, ", ", width=200)


def merged_parameters(graph: ir.Graph, listed: dict[str, str]) -> list[str]:
    """The parameters that stand for others as well, which the exporter merged into them.

    The nodes of one call of PyTorch use all parameters that the call names, and no others; a node
    of no call makes constants of those that it reads.
    """
    calls: dict[str, set[str]] = {}
    made = {name: frozenset([name]) for name in graph.initializers}
    for node in graph:
        parts = [made.get(str(x.name) if x else "", frozenset()) for x in node.inputs]
        if call := node.metadata_props.get(CALL):
            calls.setdefault(call, set()).update(*parts)
        elif parts and all(parts) and len(whole := frozenset().union(*parts)) <= FOLLOWED:
            made.update((str(y.name), whole) for y in node.outputs)
    holders, known = set[str](), set(listed.values())
    for call, used in calls.items():
        named = {listed[each] for each in VALUE.findall(call) if each in listed}
        if not named <= graph.initializers.keys():
            holders |= (used & known) - named
    return sorted(holders)


def made_of_parameters(graph: ir.Graph, listed: dict[str, str]) -> dict[str, set[str]]:
    """The parameters in the file from which the exporter computed constants, with the constants.

    Exporters before the end of 2025 do not note what a constant was folded from: then every
    computed constant may be made of parameters.
    """
    values, known = graph.initializers, graph.initializers.keys() & listed.values()
    found: dict[str, set[str]] = {}
    for name, value in values.items():
        for parameter in known & folded_from(value):
            found.setdefault(parameter, set()).add(name)
    if not any(map(folded_from, values.values())):
        for name in folded_results(graph, listed):
            held = values[name].const_value
            if held and held.dtype.is_floating_point() and not CREATED.match(name):
                for parameter in known:
                    found.setdefault(parameter, set()).add(name)
    return found


def folded_from(value: ir.Value) -> set[str]:
    """The names of all values that a constant was computed from, as the exporter notes them."""
    return set(QUOTED.findall(value.metadata_props.get(SOURCES, "")))


def equal_parameters(graph: ir.Graph) -> list[str]:
    """Parameters of one value everywhere, such as fresh biases, that several modules share.

    The tracing exporter names nodes by their modules, and merges parameters that are equal.
    """
    return [
        name for name, value in graph.initializers.items()
        if "." in name and len({str(u.node.name).rpartition("/")[0] for u in value.uses()}) > 1
        and (held := value.const_value) and held.size and held.dtype.is_floating_point()
        and not np.ptp(held.numpy())
    ]  # fmt: skip


def folded_results(graph: ir.Graph, listed: dict[str, str]) -> set[str]:
    """The initializers that are results of calls of PyTorch, which the exporter folded."""
    calls = " ".join(node.metadata_props.get(CALL, "") for node in graph)
    return set(VALUE.findall(calls)) & graph.initializers.keys() - set(listed.values())


def traced(
    graph: ir.Graph, matrices: Matrices, node: ir.Node, weight: ir.Value
) -> str | None:
    """`fc.weight`, for a constant of the tracing exporter: its transpose, or `fc.bias` is added."""
    if not TRACED.fullmatch(str(weight.name)) or weight.const_value is None:
        return None
    if name := untied(graph, matrices, weight):
        return name
    used = list(node.outputs[0].uses())
    if len(used) != 1 or used[0].node.op_type != "Add":
        return None
    names = [str(value.name) for value in used[0].node.inputs if value and value.const_value]
    return re.sub(r"\.bias$", ".weight", names[0]) if names and names[0].endswith(".bias") else None


Matrices = Callable[[], dict[Any, list[str]]]
"""The names of the initializers of each content."""


def by_content(graph: ir.Graph) -> dict[Any, list[str]]:
    """Content -> the names of the matrices among the initializers that have it."""
    found: dict[Any, list[str]] = {}
    for name, value in graph.initializers.items():
        if value.const_value is not None and len(value.const_value.shape) == 2:
            found.setdefault(content_key(value.const_value.numpy()), []).append(name)
    return found


def content_key(array: np.ndarray) -> tuple[Any, ...]:
    """What is equal for equal arrays."""
    return array.shape, array.dtype.str, sha256(array.tobytes()).digest()


def untied(graph: ir.Graph, matrices: Matrices, constant: ir.Value) -> str | None:
    """The name of an initializer of which a constant is the transpose."""
    if constant.const_value is None:
        return None
    names = matrices().get(content_key(constant.const_value.numpy().T), [])
    while names and names[0] not in graph.initializers:  # it was turned
        names.pop(0)
    return next((name for name in names if name != constant.name), None)


def transpose_weight(graph: ir.Graph, matrices: Matrices, old: ir.Value, name: str) -> None:
    """Replace an initializer by the transpose of the named one, which is new if there is none."""
    tensor = old.const_value
    if tensor is None or len(tensor.shape) != 2:
        return
    array, weight = tensor.numpy().T, graph.initializers.get(name)
    if weight is None:
        held = ir.Tensor(array, dtype=tensor.dtype, name=name)
        weight = ir.Value(name=name, const_value=held, shape=ir.Shape(array.shape), type=old.type)
        graph.register_initializer(weight)
        matrices().setdefault(content_key(array), []).append(name)
    elif weight.const_value is None or not np.array_equal(weight.const_value.numpy(), array):
        return
    turned = ir.Value(name=old.name, shape=old.shape, type=old.type)
    made = ir.node("Transpose", [weight], attributes={"perm": [1, 0]}, outputs=[turned])
    graph.initializers.pop(str(old.name))
    ir.convenience.replace_all_uses_with(old, turned)
    graph.insert_before(graph[0], made)
