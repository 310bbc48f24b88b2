"""No engine writes to what it is given: inputs, weights and intermediates that others read.

Every node case of ONNX, and the proofs' cases of `com.microsoft` and of the optimisers, run twice
by each engine with writeable and with read-only inputs, with weights in place of inputs, with one
weight for equal shapes as exporters merge equal ones, and on intermediates. All bytes stay, and the
second run gives what the first one gave.
"""

from copy import deepcopy
from itertools import groupby

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

import onnxjac as oj
from onnxjac.modes.verify.cases import CASES
from onnxjac.ops.registry import traits_of

from .cases import node_cases

ENGINES = ("onnxruntime", "numpy", "torch")

STATEFUL = ("Attention", "BatchNorm", "RNN", "LSTM", "GRU", "Adam", "Adagrad", "Momentum")
"""Operators with states that a kernel may update in place; all others are sampled."""


def cases():
    """(operator, model, inputs): one operator on tensors, without chance."""
    found = [(c.op_type, c.model, c.feeds) for c in node_cases() if "_expanded" not in c.name]
    proved = (c for (_, domain), group in CASES.items() for c in group if domain)
    found += [(f"{c.domain}::{c.op_type}", c.proto, dict(c.point)) for c in proved]
    for op_type, proto, feeds in found:
        arrays = all(isinstance(x, np.ndarray) and x.dtype.kind in "fiub" for x in feeds.values())
        outputs = all(v.type.HasField("tensor_type") for v in proto.graph.output)
        late = all(e.version > 12 for e in proto.opset_import if not e.domain)  # Cast takes numbers
        chance = any(traits_of(node).random for node in proto.graph.node)
        if arrays and outputs and late and not chance:
            yield op_type, proto, feeds


GROUPS = {name: [*group] for name, group in groupby(sorted(cases(), key=lambda c: c[0]),
                                                    key=lambda c: c[0])}  # fmt: skip


def read_inside(proto):
    """The model with its outputs read by another node: those of a graph are never in place."""
    made = deepcopy(proto)
    names = [value.name for value in made.graph.output]
    del made.graph.output[:]
    for name in names:
        add_output(made, name)
    return made


def add_output(proto, name):
    """Another output with the numbers of a tensor, in double."""
    proto.graph.node.append(helper.make_node("Cast", [name], [f"{name}_read"], to=11))
    proto.graph.output.append(
        helper.make_tensor_value_info(f"{name}_read", TensorProto.DOUBLE, None)
    )


def with_weights(proto, feeds, *, merged):
    """All inputs but the first as weights; `merged`, equal shapes have one."""
    made, kept, held = deepcopy(proto), list(proto.graph.input), {}
    _, *others = (name for name in feeds if feeds[name].dtype.kind == "f")
    for name in others:
        x = feeds[name]
        same = held.setdefault((x.shape, x.dtype) if merged else name, name)
        for node in made.graph.node:
            node.input[:] = [same if n == name else n for n in node.input]
        if same == name:
            made.graph.initializer.append(numpy_helper.from_array(x, name))
    del made.graph.input[:]
    made.graph.input.extend(v for v in kept if v.name not in others)
    return made, {n: x for n, x in feeds.items() if n not in others}


def on_intermediates(proto, feeds):
    """Each floating input times 1 in its place, which is read after the operator, too."""
    made = deepcopy(proto)
    names = [n for n, x in feeds.items() if x.dtype.kind == "f"]
    for node in made.graph.node:
        node.input[:] = [f"{n}_used" if n in names else n for n in node.input]
    for name in names:
        one = f"{name}_one"
        made.graph.node.insert(0, helper.make_node("Mul", [name, one], [f"{name}_used"]))
        kind = helper.np_dtype_to_tensor_dtype(feeds[name].dtype)
        made.graph.input.append(helper.make_tensor_value_info(one, kind, []))
        feeds = {**feeds, one: np.ones((), feeds[name].dtype)}
        add_output(made, f"{name}_used")
    return made, feeds


def bytes_of(arrays):
    return {name: np.asarray(x).tobytes() for name, x in arrays.items()}


def check(proto, feeds, *, writeable=True):
    """Two runs by each engine that has the operator leave all bytes, and give the same."""
    model = oj.load(proto)
    point = {name: np.array(x) for name, x in feeds.items()}
    for x in point.values():
        x.flags.writeable = writeable
    before, ran = (bytes_of(point), bytes_of(model.constants)), 0
    for engine in ENGINES:
        try:
            first = bytes_of(model.run(point, engine=engine))
        except oj.OnnxJacError:  # it has no kernel for it, or merged weights do not fit
            continue
        ran += 1
        assert bytes_of(model.run(point, engine=engine)) == first, engine
        assert (bytes_of(point), bytes_of(model.constants)) == before, engine
        for name in feeds:
            if f"{name}_used_read" in first:
                assert first[f"{name}_used_read"] == np.array(feeds[name], float).tobytes(), engine
    return ran


def check_all(proto, feeds):
    proto = read_inside(proto)
    check(proto, feeds)
    check(proto, feeds, writeable=False)
    if any(x.dtype.kind == "f" for x in feeds.values()):
        check(*with_weights(proto, feeds, merged=False))
        check(*with_weights(proto, feeds, merged=True))
        check(*on_intermediates(proto, feeds))


def is_stateful(name):
    return any(word in name for word in STATEFUL)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [*filter(is_stateful, GROUPS)])
def test_operators_with_states(name):
    for _, proto, feeds in GROUPS[name][-1:]:
        check_all(proto, feeds)


@pytest.mark.sampled(0.02)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", GROUPS)
def test_every_operator(name):
    for _, proto, feeds in GROUPS[name]:
        check_all(proto, feeds)


NORMAL = "y, m2, v2 = BatchNormalization<training_mode = 1, momentum = 0.5>(x, s, b, m, s)"

WHERE = {
    "graph": f"{NORMAL} l = ReduceSumSquare<keepdims = 0>(v2)",
    "branch": f"""l = If(c) <then_branch = t () => (double p) {{ {NORMAL}
        p = ReduceSumSquare<keepdims = 0>(v2) }},
        else_branch = e () => (double q) {{ q = ReduceSum<keepdims = 0>(m) }}>""",
    "body": f"""k = Loop(n, "", m) <body = o (int64 j, bool g, double[2] m) =>
        (bool h, double[2] w) {{ h = Identity(g) {NORMAL} w = Add(m2, v2) }}>
        l = ReduceSumSquare<keepdims = 0>(k)""",
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("where", WHERE)
def test_exports_of_batch_normalization_in_training(where):
    """The file writes to nothing either, wherever ONNX Runtime runs it; s is scale and variance."""
    ort = pytest.importorskip("onnxruntime")
    model = oj.load(parser.parse_model(f"""<ir_version: 10, opset_import: ["": 21]>
        g (double[4,2] x, double[2] m, bool c) => (double l)
        <double[2] s = {{1, 2}}, double[2] b = {{0, 1}}, int64 n = {{3}}> {{ {WHERE[where]} }}"""))
    x = np.random.default_rng(0).standard_normal((4, 2))
    point = {"x": x, "m": np.ones(2), "c": np.array(True)}
    expected = oj.grad(model, point, of="l", wrt="x", engine="numpy")["x"]
    exported = oj.export(model, "grad", point, of="l", wrt=["x"])
    for proto in (exported, read_inside(exported)):
        session = ort.InferenceSession(proto.SerializeToString())
        feeds = {v.name: point[v.name] for v in session.get_inputs()}
        for _ in range(2):
            *_, found = session.run(None, feeds)
            np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)
        np.testing.assert_array_equal(point["m"], 1)
