"""Exports through integers, run at other sizes and other values than at the point of recording.

Each node case of ONNX with integer or boolean tensors stands between doubles here: an integer
operand is a cast of a double one, and an integer result, cast to double, is multiplied by an input
of its shape. So a Jacobian has the integers as its entries. Axes are free, and an export computes
the integers of every point, or reports by name what is fixed at the point.
"""

from dataclasses import replace
from zlib import crc32

import numpy as np
import onnx
import pytest
from onnx import helper

import onnxjac as oj
from sweep.cases import BackendCase, node_cases
from sweep.examine import plain

from ..ops.test_contrib import ROUNDED, one_node
from .test_export_sizes import RANDOM, Freed, outcome

DOUBLE = onnx.TensorProto.DOUBLE
WHOLE = "biu"
"""The kinds of NumPy's integers and truth values."""


def is_whole(x):
    """Whether an array holds integers that a double holds too."""
    return isinstance(x, np.ndarray) and x.dtype.kind in WHOLE and not np.any(
        x.astype(float).astype(x.dtype) != x)  # fmt: skip


class Between(Freed):
    """A case with its integers between doubles."""

    def __init__(self, case):
        kept = {n: x for n, x in case.feeds.items() if x is not None}
        self.cast = {f"{n}_d": x.dtype for n, x in kept.items() if is_whole(x)}
        self.partners = {f"{n}_z": n for n, y in case.results.items() if is_whole(y)}
        feeds = {f"{n}_d" if is_whole(x) else n: x.astype(float) if is_whole(x) else x
                 for n, x in kept.items()}  # fmt: skip
        bare = self.opened(case.model)
        whole = self.multiplied(bare, case.results)
        clear(bare.graph.input, bare.graph.output)
        self.bare = loaded(bare)
        super().__init__(replace(case, model=whole, feeds=feeds))
        self.wrt = tuple(n for n in self.wrt if n not in self.cast)

    def load(self, proto):
        return loaded(proto)

    def opened(self, model):
        """The model with doubles for its integer inputs."""
        proto, casts = onnx.ModelProto(), []
        proto.CopyFrom(model)
        del proto.graph.value_info[:]
        for value in proto.graph.input:
            if f"{value.name}_d" in self.cast:
                name, kind = value.name, value.type.tensor_type.elem_type
                casts.append(helper.make_node("Cast", [f"{name}_d"], [name], to=kind))
                value.name, value.type.tensor_type.elem_type = f"{name}_d", DOUBLE
        for entry in proto.opset_import:  # an older Cast has another attribute
            entry.version = max(entry.version, 13) if not entry.domain else entry.version
        nodes = [*casts, *proto.graph.node]
        del proto.graph.node[:]
        proto.graph.node.extend(nodes)
        return proto

    def multiplied(self, bare, results):
        """The model with its integer results cast and multiplied by their partners."""
        proto = onnx.ModelProto()
        proto.CopyFrom(bare)
        for value in proto.graph.output:
            if (y := value.name) in self.partners.values():
                proto.graph.node.append(helper.make_node("Cast", [y], [f"{y}_c"], to=DOUBLE))
                proto.graph.node.append(helper.make_node("Mul", [f"{y}_c", f"{y}_z"], [f"{y}_y"]))
                value.name, value.type.tensor_type.elem_type = f"{y}_y", DOUBLE
                free = [None] * results[y].ndim
                proto.graph.input.append(helper.make_tensor_value_info(f"{y}_z", DOUBLE, free))
        return proto

    def at(self, sizes=(), feeds=None):
        """The point with extended axes and permuted integers, and with partners that fit it.

        None where the model does not run.
        """
        point, rng = {**self.feeds, **(feeds or {})}, np.random.default_rng(len(dict(sizes)))
        for (name, axis), n in dict(sizes).items():
            index = np.arange(n) % point[name].shape[axis]
            point[name] = np.take(point[name], index, axis=axis)
        for name in self.cast if sizes else ():
            point[name] = rng.permuted(point[name].ravel()).reshape(point[name].shape)
        point = {n: np.asarray(x, self.bare.inputs[n].dtype) for n, x in point.items()}
        try:
            made = self.bare.run(point, engine="numpy")
        except oj.OnnxJacError:
            return None
        return point | {z: rng.standard_normal(made[y].shape) for z, y in self.partners.items()}

    def has(self, point):
        return point is not None and super().has(point)

    def numbers(self):
        """Other values of each of the integer inputs, with all sizes as they are."""
        model, rng = self.free({}), np.random.default_rng(0)
        for name, kind in self.cast.items():
            x = self.feeds[name]
            near = 1 - x if kind.kind == "b" else x + rng.integers(-1, 2, x.shape)
            near = np.abs(near) if kind.kind == "u" else near
            points = (self.at(feeds={name: y})
                      for y in (rng.permuted(x.ravel()).reshape(x.shape), near))
            yield name, model, [p for p in points if self.has(p)]


def clear(*ends):
    """Leave all sizes open."""
    for value in (v for end in ends for v in end):
        for d in value.type.tensor_type.shape.dim:
            d.Clear()


def loaded(proto):
    """In double precision, unless a kernel has one precision only, or reads bits."""
    bits = any(node.op_type == "BitCast" for node in proto.graph.node)
    try:
        return oj.load(proto, dtype=None if bits else "float64")
    except oj.OnnxJacError:
        return oj.load(proto)


def quantized(name):
    """A case of ONNX Runtime's own operators whose results are rounded."""
    op_type, (inputs, attrs) = name.split()[0], ROUNDED[name]
    place = {"QLinearConcat": 1, "QLinearConv": 7}.get(op_type, -1)
    proto, feeds = one_node(op_type, inputs, attrs, 1, np.asarray(inputs[place]).dtype)
    made = oj.load(proto).run(feeds, engine="numpy")
    return BackendCase(name, "node", f"com.microsoft.{op_type}", proto, feeds, made)


STRINGS = "test_ai_onnx_ml_label_encoder_tensor_mapping"
"""Its keys are a tensor of strings in an attribute."""

CASES = [
    *(case for case in node_cases()
      if case.op_type not in RANDOM and "_expanded" not in case.name and case.name != STRINGS
      and any(map(is_whole, case.results.values()))),
    *map(quantized, ROUNDED),
]  # fmt: skip

def results(case, rng=None):
    """Tuples (case, what is free, mode, outcome, warnings); one of them, with a generator."""
    freed = Between(plain(case))
    if not freed.has(freed.at()):
        return
    problems = [(what, model, [p for p in points if freed.has(p)])
                for what, model, points in (*freed.sizes(), *freed.numbers())]  # fmt: skip
    problems = [problem for problem in problems if problem[-1]]
    if rng is not None:
        problems = [problems[rng.integers(len(problems))]] if problems else []
    for what, model, points in problems:
        for mode in ("jvp", "vjp") if rng is None else (rng.choice(["jvp", "vjp"]),):
            try:
                yield case.name, what, mode, *outcome(freed, mode, model, points)
            except Exception as error:
                yield case.name, what, mode, "fails", f"{type(error).__name__}: {error}"


@pytest.mark.sampled(0.3)
@pytest.mark.filterwarnings("ignore::onnxjac.OnnxJacWarning")
@pytest.mark.parametrize("op_type", sorted({case.op_type for case in CASES}))
def test_integers_are_computed_at_each_point_by(op_type, request):
    """One free axis or operand of one case of each operator; with --whole all of all cases."""
    cases = [case for case in CASES if case.op_type == op_type]
    if request.config.getoption("--whole"):
        found = [r for case in cases for r in results(case)]
    else:
        rng = np.random.default_rng(crc32(op_type.encode()))
        found = [*results(cases[rng.integers(len(cases))], rng)]
    assert [r for r in found if r[3] != "free" or "numbers" in r[4]] == []


HEAD = '<ir_version: 10, opset_import: ["": 21]> g '
SIZED = {
    "the numbers of ConvInteger": """(float[1,1,n] x, uint8[1,1,1] w) => (float[1,1,k] y)
        { q = Cast<to=2>(x) i = ConvInteger(q, w) c = Cast<to=1>(i) y = Mul(x, c) }""",
    "the numbers of QLinearConv": """(float[1,1,n] x, uint8[1,1,1] w) => (float[1,1,k] y)
        <float s = {1}, uint8 z = {0}> { q = Cast<to=2>(x)
        i = QLinearConv(q, s, z, w, s, z, s, z) c = Cast<to=1>(i) y = Mul(x, c) }""",
    "integers and floats of a size that depends on numbers": """(float[1,1,n] x, uint8[1,1,1] w)
        => (float[m] y) { q = Cast<to=2>(x) i = NonZero(q) t = Transpose(i) r = GatherND(x, t)
        s = Shape(x) f = Reshape(x, s) o = Constant<value_ints=[-1]>() v = Reshape(f, o)
        c = Cast<to=1>(w) p = ReduceSum<keepdims=0>(c) e = Mul(r, p) y = Mul(e, v) }""",
}


@pytest.mark.parametrize("mode", ["jvp", "vjp"])
@pytest.mark.parametrize("case", SIZED)
def test_a_condition_on_a_size_leaves_the_numbers_free(case, mode, recwarn):
    """Whether the tensor of that size holds integers or floats; nothing is said to be held."""
    model = oj.load(onnx.parser.parse_model(HEAD + SIZED[case]))
    here, w = np.array([[[1, 2, 3]]], np.float32), np.array([[[3]]], np.uint8)
    program = oj.load(oj.export(model, mode, {"x": here, "w": w}, wrt="x"))
    assert not [r for r in recwarn if "numbers" in str(r.message)]
    for x in (here + 3, np.array([[[7, 5, 3, 2, 1]]], np.float32)):
        J = oj.linearize(model, {"x": x, "w": w}, wrt="x")
        K, seed = (J, "x_tangent") if mode == "jvp" else (J.T, "y_cotangent")
        v = np.arange(1, x.size + 1, dtype=np.float32).reshape(K.domain[0].shape)
        found = program.run({"x": x, "w": w, seed: v})[K.codomain[0].name + seed[1:]]
        np.testing.assert_array_equal(found.ravel(), K @ v.ravel())
