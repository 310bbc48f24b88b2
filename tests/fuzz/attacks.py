"""Attacks: deliberate changes to a model that random mutations would hardly find."""

from __future__ import annotations

from random import Random
from string import ascii_letters

import onnx
from onnx import TensorProto, helper

from .mutations import structural
from .tree import graphs, nodes, of_type

PLACES = ("../secret.bin", "/etc/passwd", "link.bin", "inside/../../secret.bin", "data.bin", "",
          "/proc/self/mem", "/dev/zero", "missing.bin", "folder", "pipe.bin")  # fmt: skip
"""Locations of external data; the folder of a trial has the file and the links."""


@structural
def external(rng: Random, model: onnx.ModelProto) -> None:
    """Move the data of some tensor to an external file."""
    if tensors := of_type(model, TensorProto):
        tensor = rng.choice(tensors)
        for field in ("raw_data", "float_data", "int32_data", "int64_data", "double_data"):
            tensor.ClearField(field)
        tensor.data_location = TensorProto.EXTERNAL
        offset, length = (str(rng.choice((0, 8, -8, 2**40, 2**63))) for _ in range(2))
        entries = {"location": rng.choice(PLACES), "offset": offset, "length": length}
        for key in rng.sample(sorted(entries), rng.randrange(1, 4)):
            tensor.external_data.add(key=key, value=entries[key])


@structural
def recursive_functions(rng: Random, model: onnx.ModelProto) -> None:
    """Functions that call themselves, one another in a cycle, or the next one twice."""
    count, kind = rng.choice((1, 2, 5, 40)), rng.randrange(2)
    del model.functions[:]
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("my", 1)]
    for k in range(count):
        follower = (k + 1) % count if kind else k + 1
        op, domain = (f"f{follower}", "my") if kind or k + 1 < count else ("Tanh", "")
        calls = [helper.make_node(op, ["x"], ["h"], domain=domain),
                 helper.make_node(op, ["h"], ["y"], domain=domain)]  # fmt: skip
        model.functions.append(helper.make_function("my", f"f{k}", ["x"], ["y"], calls, imports))
    if all(entry.domain != "my" for entry in model.opset_import):
        model.opset_import.append(helper.make_opsetid("my", 1))
    if able := [n for n in nodes(model) if len(n.input) and len(n.output)]:
        node = rng.choice(able)
        node.op_type, node.domain = "f0", "my"
        del node.input[1:], node.output[1:], node.attribute[:]


@structural
def deep_nest(rng: Random, model: onnx.ModelProto) -> None:
    """The first node inside deeply nested branches."""
    if not model.graph.node:
        return
    true = helper.make_tensor("", 9, [], [1])
    condition = helper.make_node("Constant", [], ["deep_c"], value=true)
    node = model.graph.node[0]
    inner = onnx.NodeProto.FromString(node.SerializeToString())
    for k in range(rng.choice((1, 5, 15, 20))):
        results = [onnx.ValueInfoProto(name=name) for name in inner.output]
        body = helper.make_graph([inner], f"deep{k}", [], results)
        outputs = [f"deep{k}_{i}" for i in range(len(inner.output))]
        inner = one_branch(body, outputs)
    del inner.output[:]
    inner.output.extend(node.output)
    rest = [onnx.NodeProto.FromString(n.SerializeToString()) for n in model.graph.node[1:]]
    del model.graph.node[:]
    model.graph.node.extend([condition, inner, *rest])


def one_branch(body: onnx.GraphProto, outputs: list[str]) -> onnx.NodeProto:
    """An If whose other branch is empty."""
    empty = helper.make_graph([], "empty", [], [])
    return helper.make_node("If", ["deep_c"], outputs, then_branch=body, else_branch=empty)


@structural
def endless(rng: Random, model: onnx.ModelProto) -> None:
    """A loop that never stops, or one that doubles its state."""
    graph = rng.choice(graphs(model))
    if not graph.node or not graph.node[-1].output:
        return
    state, count = graph.node[-1].output[0], rng.choice((2, 30, 2**20, 2**62, None))
    grown = ["s", "s"] if rng.random() < 0.5 else ["s"]
    body = helper.make_graph(
        [helper.make_node("Identity", ["c"], ["d"]),
         helper.make_node("Concat", grown, ["r"], axis=0)], "endless",
        [helper.make_tensor_value_info("i", 7, []), helper.make_tensor_value_info("c", 9, []),
         onnx.ValueInfoProto(name="s")],
        [helper.make_tensor_value_info("d", 9, []), onnx.ValueInfoProto(name="r"),
         *([onnx.ValueInfoProto(name="s")] if rng.random() < 0.3 else [])],
    )  # fmt: skip
    go = helper.make_node("Constant", [], ["go"], value=helper.make_tensor("", 9, [], [1]))
    limit = [helper.make_node("Constant", [], ["count"], value_int=count)] if count else []
    outputs = ["looped", *["rows"] * (len(body.output) - 2)]
    graph.node.extend([go, *limit])
    inputs = ["count" if count else "", "go", state]
    graph.node.append(helper.make_node("Loop", inputs, outputs, body=body))
    if graph.output:
        graph.output[0].name = rng.choice(outputs)
        graph.output[0].type.tensor_type.ClearField("shape")


@structural
def outer_products(rng: Random, model: onnx.ModelProto) -> None:
    """y becomes y yᵀ, flattened, several times: sizes are squared without any explicit shape."""
    if not model.graph.node or not model.graph.node[-1].output or not model.graph.output:
        return
    name = model.graph.node[-1].output[0]
    for side, shape in (("column", [-1, 1]), ("row", [1, -1])):
        model.graph.initializer.append(helper.make_tensor(side, 7, [2], shape))
    for k in range(rng.choice((1, 2, 3, 5, 8))):
        column = helper.make_node("Reshape", [name, "column"], [f"column{k}"])
        row = helper.make_node("Reshape", [name, "row"], [f"row{k}"])
        name = f"outer{k}"
        op = rng.choice(("Mul", "Add", "MatMul", "Max", "Where"))
        given = [f"column{k}", f"row{k}"]
        model.graph.node.extend([column, row, helper.make_node(op, given, [name])])
    model.graph.output[0].name = name
    model.graph.output[0].type.tensor_type.ClearField("shape")


@structural
def many_factors(rng: Random, model: onnx.ModelProto) -> None:
    """y becomes an Einsum of many copies of itself with random labels."""
    if not model.graph.node or not model.graph.node[-1].output or not model.graph.output:
        return
    name, rank = model.graph.node[-1].output[0], rng.choice((1, 2, 3))
    count, known = rng.choice((3, 8, 20, 60)), ascii_letters[: rng.choice((3, 20, 52))]
    terms = ["".join(rng.choice(known) for _ in range(rank)) for _ in range(count)]
    equation = ",".join(terms) + "->" + rng.choice(("", terms[0][:1], terms[-1]))
    node = helper.make_node("Einsum", [name] * count, ["factors"], equation=equation)
    model.graph.node.append(node)
    model.graph.output[0].name = "factors"
    model.graph.output[0].type.tensor_type.ClearField("shape")


@structural
def many_nodes(rng: Random, model: onnx.ModelProto) -> None:
    """A long chain, or a tower of diamonds."""
    if not model.graph.node or not model.graph.node[-1].output or not model.graph.output:
        return
    name, width = model.graph.node[-1].output[0], rng.choice((1, 2))
    for k in range(rng.choice((30, 300, 3000))):
        op = "Add" if width == 2 else "Tanh"
        model.graph.node.append(helper.make_node(op, [name] * width, [f"long{k}"]))
        name = f"long{k}"
    model.graph.output[0].name = name
    model.graph.output[0].type.tensor_type.ClearField("shape")


@structural
def nothing(rng: Random, model: onnx.ModelProto) -> None:
    """Set an input axis, or all of the same length, to length 0; drop the shapes of outputs."""
    given = [v.type.tensor_type for v in model.graph.input if v.type.HasField("tensor_type")]
    if axes := [axis for kind in given for axis in kind.shape.dim if axis.dim_value > 0]:
        axis = rng.choice(axes)
        length, alone = axis.dim_value, rng.random() < 0.5
        for other in [axis] if alone else [a for a in axes if a.dim_value == length]:
            other.dim_value = 0
        for value in model.graph.output:
            if value.type.HasField("tensor_type"):
                value.type.tensor_type.ClearField("shape")
