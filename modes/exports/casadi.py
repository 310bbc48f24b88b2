"""CasADi's files: a model and its derivatives as ONNX files that CasADi's own reader finds by name.

That reader takes a tensor of rank 2 as a matrix and any other as a column, and K seeds of an r × c
matrix as one r × K c matrix, side by side.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from ...jacobians import Shape, size
from ...jacobians.arguments import validated
from ...jacobians.errors import OnnxJacWarning
from ...ops.graphs import every, nested_graphs
from ..interop.casadi import casadi_name, dims, example_point
from ..model.flow.contents import unique_name
from ..model.flow.nodes import Nodes
from ..model.loading.patterns import proto_of
from ..model.primal.evaluate import evaluate
from ..model.primal.inputs import Names, check_inputs, names_of
from ..model.primal.model import Model, ModelLike, as_model
from ..model.save import Target, save
from ..recording.derive import SEVERAL
from .export import export, freeze_model, require_floating

COUNTS = {"fwd_": ("nfwd",), "adj_": ("nadj",), "fwd_adj_": ("nfwd", "nadj")}
"""What CasADi puts before names, and the numbers of seeds, outermost first."""

Derived = tuple[str, str]
"""What CasADi puts before a name, and the name of a tensor of f."""


@validated
def export_casadi(
    model: ModelLike, path: Target, inputs: Any = None, *, of: Names = None, wrt: Names = None,
    engine: str | None = None,
) -> list[Path]:  # fmt: skip
    """y = f(x) and its derivatives as files for `casadi.GraphBuilder("f.onnx").create("f")`.

    | file | further inputs | outputs |
    |---|---|---|
    | `f.onnx` | | y |
    | `fwd_f.onnx` | `fwd_x` | y, `fwd_y` = J · `fwd_x` |
    | `adj_f.onnx` | `adj_y` | y, `adj_x` = Jᵀ · `adj_y` |
    | `fwd_adj_f.onnx` | `adj_y`, `fwd_x`, `fwd_adj_y` | `adj_x`, `fwd_adj_x`, its change |
    | `jac_f.onnx` | | y, `jac_y_x` = J, dense |

    CasADi runs them by ONNX Runtime, without Python: the environment variable
    `CASADI_ONNXRUNTIME_LIB` is the path of that library. It takes every Jacobian as full;
    `Model.to_casadi` has their sparsity. The paths of the files are returned.

    - `model`: the model, as `load` gives it.
    - `path`: where f goes; the others go beside it, by the same name after `fwd_` and so on.
    - `inputs`: examples, arrays by name, which free sizes need; ones by default.
    - `of`, `wrt`: y and x, by default all floating outputs and inputs. Weights in `wrt` are inputs
      of f, and so are all inputs of the model. Names become those that CasADi allows.
    - `engine`: `"onnxruntime"` (default where installed), `"numpy"`, `"torch"` or `"jax"` runs
      the model.

    Shapes: those at `inputs`; a tensor of rank 2 is a matrix of CasADi, any other a column, its
    entries row by row. K seeds of an r × c matrix are r × K c, for any K. Raises `InputError` for a
    free size without an example and for a name that does not fit, `UnsupportedOp` for an operator
    without a rule, and `OnnxJacError` where a file cannot be written.
    """
    model = as_model(model, of, wrt=wrt)
    of_names = names_of(model, of, model.outputs, "of")
    wrt_names = names_of(model, wrt, model.inputs, "wrt")
    point = check_inputs(model, example_point(model, (*model.inputs, *wrt_names), inputs))
    files = derivatives_of(as_function(model, point, of_names, wrt_names, engine))
    paths = [Path(path).with_name(f"{kind}{Path(path).name}") for kind in files]
    for target, proto in zip(paths, files.values(), strict=True):
        save(proto, target)
    return paths


@dataclass(frozen=True)
class CasadiFile:
    """f as a file, the names of y and x in it, the shapes of all its tensors, and a point."""

    proto: onnx.ModelProto
    of: list[str]
    wrt: list[str]
    shapes: Mapping[str, Shape]
    point: Mapping[str, Any]
    engine: str | None

    def derivative(self, mode: Any, **more: Any) -> onnx.ModelProto:
        """An export of f, whose outputs begin with y."""
        return export(self.proto, mode, self.point, of=self.of, wrt=self.wrt, engine=self.engine,
                      **more)  # fmt: skip


def as_function(
    model: Model, point: Mapping[str, Any], of: tuple[str, ...], wrt: tuple[str, ...],
    engine: str | None,
) -> CasadiFile:  # fmt: skip
    """f with the sizes of the point, and with the tensors of `wrt` as inputs."""
    model, _ = freeze_model(model.literal((*of, *wrt, *point)), point, (*of, *wrt), ())
    require_floating(model, point, of, wrt)
    inputs = [*dict.fromkeys((*model.inputs, *wrt))]
    graph = ir.convenience.extract(model.ir.graph, inputs, of)
    whole = ir.Model(graph, ir_version=model.ir.ir_version)
    nodes = Nodes(whole, np.dtype(np.float32), "end")
    for k, value in enumerate(graph.outputs):
        if value.producer() is None:
            graph.outputs[k] = nodes.add("Identity", value)
    given = {**evaluate(model, point, of, engine=engine), **point}
    ends, arrays = [*graph.inputs, *graph.outputs], [given[name] for name in (*inputs, *of)]
    for value, array in zip(ends, arrays, strict=True):
        graph.initializers.pop(str(value.name), None)
        value.const_value, value.shape = None, ir.Shape(np.shape(array))
    names = claim(graph, ends, [casadi_name(name) for name in (*inputs, *of)])
    known = dict(zip(names, arrays, strict=True))
    return CasadiFile(
        proto_of(whole), names[len(inputs) :], [names[inputs.index(name)] for name in wrt],
        {name: np.shape(array) for name, array in known.items()},
        {name: known[name] for name in names[: len(inputs)]}, engine,
    )  # fmt: skip


def claim(graph: ir.Graph, values: Sequence[ir.Value], names: Sequence[str]) -> list[str]:
    """Give values these names, numbered where two are the same; all others make room."""
    used, mine = set[str](), {*values}
    new = [unique_name(name, used) for name in names]
    bodies = (value for body in nested_graphs(graph) for value in body.inputs)
    made = (value for node in every(graph) for value in node.outputs)
    others = [value for value in (*graph.inputs, *graph.initializers.values(), *made, *bodies)
              if value not in mine and value.name]  # fmt: skip
    taken = used | {str(value.name) for value in others}
    for value in others:
        if value.name in used:
            value.name = unique_name(str(value.name), taken)
    for value, name in zip(values, new, strict=True):
        value.name = name
    return new


def derivatives_of(f: CasadiFile) -> dict[str, onnx.ModelProto]:
    """f and its derivatives, by what CasADi puts before their names."""
    x, y, tangent = f.wrt, f.of, f.derivative("jvp", tangents="nfwd")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*zero blocks", OnnxJacWarning)  # said by the tangent
        adjoint, full = f.derivative("vjp", tangents="nadj"), dense_jacobian(f)
        seeds = [value.name for value in adjoint.graph.input[-len(y) :]]
        slopes = [value.name for value in adjoint.graph.output[len(y) :]]
        ones = {seed: np.ones((SEVERAL, *f.shapes[o])) for seed, o in zip(seeds, y, strict=True)}
        second = export(adjoint, "jvp", {**f.point, **ones}, of=slopes, wrt=[*x, *seeds],
                        tangents="nfwd", engine=f.engine)  # fmt: skip
    inner = [*ends("adj_", y), *ends("fwd_", x), *ends("fwd_adj_", y)]
    return {
        "": f.proto,
        "fwd_": in_columns(f, tangent, ends("fwd_", x), ends("fwd_", y)),
        "adj_": in_columns(f, adjoint, ends("adj_", y), ends("adj_", x)),
        "fwd_adj_": in_columns(f, second, inner, [*ends("adj_", x), *ends("fwd_adj_", x)]),
        "jac_": full,
    }


def ends(kind: str, names: Sequence[str]) -> list[tuple[str, str]]:
    """Derivatives of a kind of CasADi, and the tensors that they belong to."""
    return [(kind, name) for name in names]


def in_columns(
    f: CasadiFile, proto: onnx.ModelProto, given: Sequence[Derived], found: Sequence[Derived]
) -> onnx.ModelProto:
    """A derivative whose last inputs and outputs are matrices side by side in place of stacks."""
    whole = ir.from_proto(proto)
    graph, nodes = whole.graph, Nodes(whole, np.dtype(np.float32), "side")
    stacks, seeds, inside = graph.inputs[-len(given) :], [], dict[Derived, ir.Value]()
    for stack, (kind, name) in zip(stacks, given, strict=True):
        seed = ir.Value(type=stack.type)
        inner = inside.get(("adj_", name)) if kind == "fwd_adj_" else None
        new = inside[kind, name] = as_stack(nodes, seed, f.shapes[name], inner)
        ir.convenience.replace_all_uses_with(stack, new, replace_graph_outputs=True)
        seeds.append(seed)
    pairs = zip(graph.outputs[-len(found) :], found, strict=True)
    products = [as_columns(nodes, stack, f.shapes[name], len(COUNTS[kind]))
                for stack, (kind, name) in pairs]  # fmt: skip
    graph.inputs[-len(given) :], graph.outputs[-len(found) :] = seeds, products
    matrices, names = [*seeds, *products], [*given, *found]
    for value, (kind, name) in zip(matrices, names, strict=True):
        rows, columns = dims(f.shapes[name])
        count = "_".join([*COUNTS[kind], *([] if columns == 1 else [str(columns)])])
        value.shape = ir.Shape([rows, count])
    claim(graph, matrices, [kind + name for kind, name in names])
    graph.sort()
    return proto_of(whole)


def as_stack(nodes: Nodes, matrix: ir.Value, shape: Shape, inner: ir.Value | None) -> ir.Value:
    """Matrices side by side as an array (K, *shape), or (K, L, *shape) with the L of `inner`."""
    rows, columns = dims(shape)
    sizes: Any = np.array([rows, -1, columns])
    if inner is not None:
        count = nodes.add("Shape", inner, end=1)
        sizes = nodes.add("Concat", np.array([rows, -1]), count, np.array([columns]), axis=0)
    k = 1 if inner is None else 2
    parted = nodes.add("Reshape", matrix, sizes)
    stack = nodes.add("Transpose", parted, perm=[*range(1, k + 1), 0, k + 1])
    return nodes.add("Reshape", stack, np.array([*[0] * k, *shape], int))


def as_columns(nodes: Nodes, stack: ir.Value, shape: Shape, k: int) -> ir.Value:
    """An array (K, *shape), or (K, L, *shape) for k = 2, as matrices side by side."""
    rows, columns = dims(shape)
    parted = nodes.add("Reshape", stack, np.array([*[0] * k, rows, columns]))
    turned = nodes.add("Transpose", parted, perm=[k, *range(k), k + 1])
    return nodes.add("Reshape", turned, np.array([rows, -1]))


def dense_jacobian(f: CasadiFile) -> onnx.ModelProto:
    """x ↦ (y, J), whose rows and columns are the columns of matrices one below the other."""
    whole = ir.from_proto(f.derivative("jacobian"))
    graph, nodes = whole.graph, Nodes(whole, np.dtype(np.float32), "dense")
    pairs, blocks = [(o, w) for o in f.of for w in f.wrt], []
    for block, (o, w) in zip(graph.outputs[len(f.of) :], pairs, strict=True):
        m, n = len(f.shapes[o]), len(f.shapes[w])
        turned = nodes.add("Transpose", block, perm=[*by_columns(0, m), *by_columns(m, n)])
        sizes = np.array([size(f.shapes[o]), size(f.shapes[w])])
        blocks.append(nodes.add("Reshape", turned, sizes))
    graph.outputs[len(f.of) :] = blocks
    claim(graph, blocks, [f"jac_{o}_{w}" for o, w in pairs])
    return proto_of(whole)


def by_columns(first: int, rank: int) -> list[int]:
    """The axes of a tensor in the order in which CasADi reads its entries.

    >>> by_columns(1, 2), by_columns(0, 3)
    ([2, 1], [0, 1, 2])
    """
    axes = [*range(first, first + rank)]
    return axes[::-1] if rank == 2 else axes
