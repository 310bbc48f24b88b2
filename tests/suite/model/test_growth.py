"""Growth: work and memory are linear in the nodes of a model, and no step recurses by node.

Work is the number of calls, of Python's and of C's functions, which no other load of the machine
changes. Models of n, 2n and 4n blocks are compared by their second difference: where the work is
a + b n, the step from 2n to 4n is twice the step from n to 2n.
"""

import cProfile
import inspect
import pickle
import sys
import tracemalloc
from functools import partial

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxjac as oj
from onnxjac.modes.curvature.weights import uses
from onnxjac.modes.model.loading.load import load

SHAPE = 2, 3
X = {"x": np.linspace(-1, 1, 6).reshape(SHAPE)}
MORE = {"x": X["x"] + 0.1}
SOURCE = "pkg.torch.onnx.fx_node"
SIGNATURE = "pkg.torch.export.ExportedProgram.graph_signature"
ORIGINS = "pkg.onnxscript.optimizer.folded_from"
SPARE = 1.1
"""How much more work the second step may be than twice the first one."""


def value(name, shape=SHAPE, kind=TensorProto.DOUBLE):
    return helper.make_tensor_value_info(name, kind, shape)


def model_of(nodes, weights, functions=(), notes=()):
    """The model from x to the last node's result."""
    held = [numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "g", [value("x")], [value(nodes[-1].output[0])], held)
    for key, text in notes:
        graph.metadata_props.add(key=key, value=text)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("f", 1)]
    return helper.make_model(graph, opset_imports=opsets, functions=functions, ir_version=10)


def weight(k, *shape):
    return np.random.default_rng(k).standard_normal(shape) / 2


def in_series(blocks, make):
    """x → x1 → x2 …, where make(k, x, y) gives the nodes and the weights of a block."""
    nodes, weights = [], {}
    for k in range(blocks):
        made, held = make(k, f"x{k}" if k else "x", f"x{k + 1}")
        nodes += made
        weights |= held
    return nodes, weights


def chain(blocks):
    def make(k, x, y):
        nodes = [helper.make_node("Tanh", [x], [f"a{k}"]),
                 helper.make_node("Mul", [f"a{k}", f"w{k}"], [y])]  # fmt: skip
        return nodes, {f"w{k}": weight(k, 3)}

    return model_of(*in_series(blocks, make))


def tower(blocks, note=lambda k, nodes: None, notes=()):
    """Residual blocks y = x + tanh(x Wᵀ + b)."""

    def make(k, x, y):
        w, b = f"b.{k}.weight", f"b.{k}.bias"
        nodes = [
            helper.make_node("Transpose", [w], [f"t{k}"], perm=[1, 0]),
            helper.make_node("MatMul", [x, f"t{k}"], [f"m{k}"]),
            helper.make_node("Add", [f"m{k}", b], [f"l{k}"]),
            helper.make_node("Tanh", [f"l{k}"], [f"r{k}"]),
            helper.make_node("Add", [x, f"r{k}"], [y], name=f"/b.{k}/Add"),
        ]
        note(k, nodes)
        return nodes, {w: weight(k, 3, 3), b: weight(-k % 99, 3)}

    return model_of(*in_series(blocks, make), notes=notes)


def attention(blocks):
    def make(k, x, y):
        def node(kind, inputs, output, **attributes):
            return helper.make_node(kind, inputs.split(), [output], **attributes)

        nodes = [node("LayerNormalization", f"{x} g{k} g{k}", f"n{k}")]
        nodes += [node("MatMul", f"n{k} {s}{k}", f"n{s}{k}") for s in "qkv"]
        nodes += [
            node("Transpose", f"nk{k}", f"t{k}", perm=[1, 0]),
            node("MatMul", f"nq{k} t{k}", f"s{k}"), node("Softmax", f"s{k}", f"p{k}", axis=-1),
            node("MatMul", f"p{k} nv{k}", f"a{k}"), node("Add", f"{x} a{k}", y),
        ]  # fmt: skip
        return nodes, {f"g{k}": np.ones(3), **{f"{s}{k}": weight(k, 3, 3) for s in "qkv"}}

    return model_of(*in_series(blocks, make))


def function(name, nodes):
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("f", 1)]
    return helper.make_function("f", name, ["a"], ["b"], nodes, opsets)


def tree(blocks):
    """Functions that call the next smaller one twice: as many leaves as blocks."""
    leaf = [helper.make_node("Tanh", ["a"], ["c"]), helper.make_node("Add", ["a", "c"], ["b"])]
    made, depth = [function("F0", leaf)], (blocks - 1).bit_length()
    for k in range(depth):
        calls = [helper.make_node(f"F{k}", *ends, domain="f") for ends in (("a", "c"), ("c", "b"))]
        made.append(function(f"F{k + 1}", calls))
    return model_of([helper.make_node(f"F{depth}", ["x"], ["y"], domain="f")], {}, made)


def graph(name, nodes, inputs=(), outputs=()):
    return helper.make_graph(nodes, name, inputs, outputs)


def ifs(blocks):
    """Branches that the point chooses."""

    def make(k, x, y):
        bodies = {
            f"{side}_branch": graph(side, [helper.make_node(kind, [x], [f"{side}{k}"])],
                                    outputs=[value(f"{side}{k}")])
            for side, kind in (("then", "Tanh"), ("else", "Sin"))
        }  # fmt: skip
        return [
            helper.make_node("ReduceSum", [x], [f"s{k}"], keepdims=0),
            helper.make_node("Greater", [f"s{k}", "zero"], [f"c{k}"]),
            helper.make_node("If", [f"c{k}"], [y], **bodies),
        ], {"zero": 0.0}

    return model_of(*in_series(blocks, make))


def loop(x, y, *nodes):
    """A Loop that is kept, from the state s to t."""
    state = [value("i", (), TensorProto.INT64), value("go", (), TensorProto.BOOL), value("s")]
    nodes = [helper.make_node("Identity", ["go"], ["on"]), *nodes]
    body = graph("body", nodes, state, [value("on", (), TensorProto.BOOL), value("t")])
    return helper.make_node("Loop", ["n", "", x], [y], body=body)


def loops(blocks):
    def make(k, x, y):
        return [loop(x, y, helper.make_node("Sin", ["s"], ["t"]))], {"n": 51}

    return model_of(*in_series(blocks, make))


def bodies(blocks):
    """Sums of a captured tensor in a body, on 2ⁿ paths."""
    nodes = [helper.make_node("Add", 2 * [f"d{k}" if k else "x"], [f"d{k + 1}"])
             for k in range(blocks)]  # fmt: skip
    nodes.append(helper.make_node("Mul", [f"d{blocks}", "share"], ["m"]))
    nodes.append(helper.make_node("Mul", ["m", "s"], ["p"]))
    nodes.append(helper.make_node("Sin", ["p"], ["t"]))
    ends = [helper.make_node("Cos", ["x"], ["z"]), loop("z", "y", *nodes)]
    return model_of(ends, {"n": 51, "share": 0.5**blocks})


def arms(blocks):
    """Parallel paths, added two by two."""
    nodes, weights = [], {}
    for k in range(blocks):
        nodes.append(helper.make_node("Mul", ["x", f"w{k}"], [f"m{k}"]))
        nodes.append(helper.make_node("Add", [f"y{k - 1}" if k else "x", f"m{k}"], [f"y{k}"]))
        weights[f"w{k}"] = weight(k, 3)
    return model_of(nodes, weights)


def branches(blocks, last, **attributes):
    """Branches that read one tensor: tanh(x w)."""
    nodes = [helper.make_node("Mul", ["x", f"w{k}"], [f"m{k}"]) for k in range(blocks)]
    nodes += [helper.make_node("Tanh", [f"m{k}"], [f"t{k}"]) for k in range(blocks)]
    nodes.append(helper.make_node(last, [f"t{k}" for k in range(blocks)], ["y"], **attributes))
    return model_of(nodes, {f"w{k}": weight(k, 3) for k in range(blocks)})


def fan(blocks):
    """Branches that are added at once."""
    return branches(blocks, "Sum")


def rows(blocks):
    """Branches that are joined, and their sum."""
    made = branches(blocks, "Concat", axis=0)
    made.graph.node[-1].output[0] = "c"
    made.graph.node.append(helper.make_node("Reshape", ["c", "shape"], ["r"]))
    made.graph.node.append(helper.make_node("ReduceSum", ["r", "first"], ["y"], keepdims=0))
    made.graph.initializer.append(numpy_helper.from_array(np.array([-1, *SHAPE]), "shape"))
    made.graph.initializer.append(numpy_helper.from_array(np.array([0]), "first"))
    return made


GRAPHS = {f.__name__: f for f in (chain, tower, attention, tree, ifs, loops, bodies, arms, fan,
                                  rows)}  # fmt: skip


# -- what exporters note ---------------------------------------------------------------------------


def call(name, function, *arguments):
    """The text of a node in a graph of PyTorch."""
    operands = ", ".join(f"%{argument}" for argument in arguments)
    return (f"%{name} : [num_users=1] = call_function[target=torch.ops.aten.{function}.default]"
            f"(args = ({operands}), kwargs = {{}})")  # fmt: skip


def calls(k, nodes, linear=True):
    """Note the calls of PyTorch that a block is made of."""
    before = f"add_{k - 1}" if k else "x"
    if linear:
        texts = [call(f"linear_{k}", "linear", before, f"p_b_{k}_weight", f"p_b_{k}_bias")] * 3
    else:
        texts = [call(f"t_{k}", "t", f"p_b_{k}_weight"),
                 *[call(f"addmm_{k}", "addmm", f"p_b_{k}_bias", before, f"t_{k}")] * 2]  # fmt: skip
    texts.append(call(f"tanh_{k}", "tanh", f"linear_{k}"))
    texts.append(call(f"add_{k}", "add", before, f"tanh_{k}"))
    for node, text in zip(nodes, texts, strict=True):
        node.metadata_props.add(key=SOURCE, value=text)
        node.metadata_props.add(key="namespace", value=f": M/b.{k}: Linear/{text[1:9]}")
        node.metadata_props.add(key="pkg.torch.onnx.name_scopes", value=f"['', 'b.{k}']")
        node.metadata_props.add(key="pkg.torch.onnx.stack_trace", value="File: m.py\n" * 5)


def signature(blocks):
    return [(SIGNATURE, "\n".join(
        f"p_b_{k}_{part}: PARAMETER target='b.{k}.{part}'"
        for k in range(blocks) for part in ("weight", "bias")))]  # fmt: skip


def by_torch(blocks):
    return tower(blocks, calls, signature(blocks))


def by_decomposition(blocks):
    """Exported after `run_decompositions`: transposes are calls of their own."""
    return tower(blocks, lambda k, nodes: calls(k, nodes, linear=False), signature(blocks))


def folded(blocks, name, notes=True):
    """The transposes folded into constants; every second weight is gone."""
    made = by_decomposition(blocks) if notes else tower(blocks)
    for k in reversed(range(blocks)):
        node = made.graph.node[5 * k]
        made.graph.node[5 * k + 1].input[1] = name(k)
        tensor = made.graph.initializer[2 * k]
        turned = numpy_helper.from_array(numpy_helper.to_array(tensor).T.copy(), name(k))
        entry = helper.make_tensor_value_info(name(k), TensorProto.DOUBLE, (3, 3))
        entry.metadata_props.add(key=ORIGINS, value=f"['{node.input[0]}']")
        made.graph.value_info.append(entry)
        made.graph.initializer.append(turned)
        if k % 2:
            del made.graph.initializer[2 * k]
        del made.graph.node[5 * k]
    return made


def by_optimizer(blocks):
    made = folded(blocks, lambda k: f"t_{k}")
    for node in made.graph.node:
        node.metadata_props.add(key="pkg.onnxscript.rewriter.rule_name", value="FuseGemm")
    return made


def by_tracing(blocks):
    """Exported with `dynamo=False`, which folds constants and tells nothing but their uses."""
    return folded(blocks, lambda k: f"onnx::MatMul_{k}", notes=False)


def by_merging(blocks):
    """Equal weights merged into the first one: calls name parameters that are not in the file."""
    made = by_torch(blocks)
    kept = [t for t in made.graph.initializer if not t.name.endswith("weight")]
    kept.append(made.graph.initializer[0])
    del made.graph.initializer[:]
    made.graph.initializer.extend(kept)
    for node in made.graph.node:
        if node.op_type == "Transpose":
            node.input[0] = "b.0.weight"
            del node.metadata_props[:]  # of no call, as what this package adds
    return made


def by_fusing(blocks):
    """Constants of no call, each made of all before."""
    made = by_merging(blocks)
    for k, node in enumerate(node for node in made.graph.node if node.op_type == "Transpose"):
        node.op_type = "Max"
        node.input[:] = [f"t{k - 1}" if k else "b.0.weight", f"b.{k}.bias"]
        del node.attribute[:]
    return made


def by_tensorflow(blocks):
    def note(k, nodes):
        for node in nodes:
            node.name = f"StatefulPartitionedCall/model/b_{k}/{node.op_type}"
            node.doc_string = f"tf2onnx: {node.name}"

    return tower(blocks, note)


def by_jax(blocks):
    def note(k, nodes):
        for node in nodes:
            node.name = f"{node.op_type}_{k}"
            node.metadata_props.add(key="pkg.jax2onnx.callsite", value=f"f:{k}")
            node.metadata_props.add(key="pkg.jax2onnx.stacktrace", value="m.py, in f\n" * 5)

    return tower(blocks, note)


EXPORTERS = {f.__name__: f for f in (
    by_torch, by_decomposition, by_optimizer, by_tracing, by_merging, by_fusing, by_tensorflow,
    by_jax,
)}  # fmt: skip


# -- work ------------------------------------------------------------------------------------------


def work(task):
    """The number of calls."""
    profile = cProfile.Profile()
    profile.enable()
    try:
        task()
    finally:
        profile.disable()
    return sum(entry.callcount for entry in profile.getstats())


def memory(task):
    """The most bytes that are held at once."""
    tracemalloc.start()
    try:
        task()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def assert_linear(make, blocks):
    """`make` gives the task for a number of blocks."""
    make(2)()  # what is imported and cached once
    few, some, many = (work(make(n)) for n in (blocks, 2 * blocks, 4 * blocks))
    assert many - some <= 2 * SPARE * (some - few), (few, some, many)


@pytest.mark.filterwarnings("ignore::onnxjac.OnnxJacWarning")
@pytest.mark.parametrize("exporter", EXPORTERS)
def test_loading_what_exporters_note(exporter):
    make = EXPORTERS[exporter]
    assert_linear(lambda n: partial(load, make(n).SerializeToString()), 3)
    assert_linear(lambda n: partial(load, make(n)), 50 if exporter == "by_torch" else 8)


@pytest.mark.parametrize("kind", GRAPHS)
def test_the_work_of_loading_is_linear_in_nodes(kind):
    assert_linear(lambda n: partial(load, GRAPHS[kind](n)), 8)


TASKS = {
    "run": lambda m: m.run(X),
    "linearize": lambda m: oj.linearize(m, X) @ np.ones(6),
    "linearize by weights": lambda m: oj.linearize(m, X, wrt=floats(m)).T @ np.ones(6),
    "relinearize": lambda m: oj.linearize(m, X).relinearize(MORE) @ np.ones(6),
    "jvp": lambda m: oj.export(m, "jvp", inputs=X),
    "vjp": lambda m: oj.export(m, "vjp", inputs=X, wrt=floats(m)),
    "hvp": lambda m: oj.hessian(m, X, weights=np.ones(SHAPE)) @ np.ones(6),
    "tosparse": lambda m: oj.linearize(m, X).tosparse(),
    "explain": lambda m: str(oj.linearize(m, X).explain()),
    "check": lambda m: oj.linearize(m, X).check(),
    "pickle": lambda m: pickle.loads(pickle.dumps(oj.linearize(m, X))),
}


def floats(m):
    return ["x", *(n for n, a in m.constants.items() if a.dtype.kind == "f" and a.size > 1)]


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("kind", GRAPHS)
@pytest.mark.sampled(0.2)
def test_work(kind, task):
    def made(n):
        return partial(TASKS[task], load(GRAPHS[kind](n)))

    assert_linear(made, {"attention": 2, "loops": 1, "rows": 12}.get(kind, 4))


def test_uses_of_the_weights_of_a_fan():
    def made(n):
        m = load(fan(n))
        return partial(uses, oj.linearize(m, X, wrt=floats(m)[1:]))

    assert_linear(made, 32)


@pytest.mark.parametrize("task", ["linearize", "jvp", "tosparse"])
def test_the_memory_of_a_task_is_linear_in_nodes(task):
    def made(n):
        return partial(TASKS[task], load(tower(n)))

    made(2)()
    few, many = (memory(made(n)) for n in (8, 32))
    assert many < 5 * few  # dictionaries and sets grow by leaps


@pytest.mark.parametrize("task", TASKS)
def test_no_step_recurses_by_node(task):
    """A chain of 160 nodes with room for 120 calls inside each other."""
    m = load(chain(80))
    before = sys.getrecursionlimit()
    TASKS[task](load(chain(2)))  # what is imported once
    sys.setrecursionlimit(len(inspect.stack(0)) + 120)
    try:
        TASKS[task](m)
    finally:
        sys.setrecursionlimit(before)


def test_functions_that_call_each_other_in_a_long_chain():
    """Their order is found before the limit of their depth speaks."""

    def made(n):
        functions = [function("F0", [helper.make_node("Tanh", ["a"], ["b"])])]
        functions += [function(f"F{k}", [helper.make_node(f"F{k - 1}", ["a"], ["b"], domain="f")])
                      for k in range(1, n)]  # fmt: skip
        last = helper.make_node(f"F{n - 1}", ["x"], ["y"], domain="f")
        proto = model_of([last], {}, functions[::-1])

        def task():
            if n > 32:
                with pytest.raises(oj.LimitError, match="depth"):
                    load(proto)

        return task

    assert_linear(made, 500)
