"""Exports of ONNX's node cases, run at other sizes and other integer inputs.

Each axis of the inputs is free in turn, alone or with axes of the same size, then all of them at
once; then each integer input has other values. An export must be right there, or report that a size
or a value is fixed, or refuse the point.
"""

import re
import warnings

import numpy as np
import onnx
import pytest

import onnxjac as oj
from onnxjac.modes.model.primal.inputs import is_float
from onnxjac.modes.model.programs import onnxruntime as ort
from onnxjac.modes.verify.differences import mismatch
from sweep.cases import BackendCase, moved, node_cases
from sweep.examine import plain
from sweep.slopes import is_single

from ..ops.test_contrib import CASES as CONTRIB
from ..ops.test_contrib import one_node

RANDOM = {"Bernoulli", "Dropout", "Multinomial", "RandomNormalLike", "RandomUniformLike"}
"""Operators that sample different numbers at other points."""

OPERATORS = sorted({case.op_type for case in node_cases()} - RANDOM)

KERNEL, HIDDEN = "the lengths of a kernel", "the size of a gate, which an attribute gives"
RANK, PARTS = "the rank of the result", "the real and imaginary part on the last axis"

FIXED = {
    "CausalConvWithState": KERNEL,
    "ConvTranspose": KERNEL, "DFT": PARTS, "Einsum": "of a label that repeats, behind an ellipsis",
    "Expand": RANK, "GRU": HIDDEN, "Gemm": "whether C has one row for all", "LSTM": HIDDEN,
    "MatMul": "of an axis of one that is repeated", "RNN": HIDDEN, "Reshape": RANK,
    "RotaryEmbedding": "how many angles a head has", "STFT": PARTS,
    "Slice": "how many axes are sliced", "Split": "how many parts there are",
    "SplitToSequence": "how many tensors there are",
}  # fmt: skip
"""Operator -> the sizes fixed by its export. This table may only shrink."""

HELD = {
    "AffineGrid": "size, where branches of two ranks are unrolled",
    "Compress": "condition", "CumProd": "axis", "DFT": "axis",
    "Loop": "the turns of a loop over a state that changes its shape", "Pad": "axes",
    **{f"Reduce{name}": "axes" for name in (
        "L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")},
    "Reshape": "a shape with 0 or -1", "Slice": "axes and steps", "SplitToSequence": "split",
}  # fmt: skip
"""Operator -> the values fixed by its export. This table may only shrink."""

REFUSED = {
    "CumSum": "an axis that is counted from the other end",
    "MaxPool": "whether a window begins behind the last entry, where sizes are rounded up",
    "Slice": "the direction of a step",
}  # fmt: skip
"""Operator -> the conditions by which exports refuse other points. May only shrink."""

LISTED = {"fixed": FIXED, "held": HELD, "refused": REFUSED}


class Freed:
    """A node case whose model is in double precision and has free axes."""

    def __init__(self, case):
        self.case, self.feeds = case, {n: x for n, x in case.feeds.items() if x is not None}
        self.size = {(n, k): m for n, x in self.feeds.items()
                     for k, m in enumerate(np.shape(x)) if m}  # fmt: skip
        self.model = self.free(dict.fromkeys(self.size))
        self.of, self.wrt = (
            tuple(n for n, s in end.items() if s.dtype is not None and is_float(s.dtype))
            for end in (self.model.outputs, self.model.inputs)
        )

    def free(self, symbols):
        """The model with these axes free, each with its symbol, or unnamed for None."""
        proto = onnx.ModelProto()
        proto.CopyFrom(self.case.model)
        del proto.graph.value_info[:]
        outputs = {value.name for value in proto.graph.output}
        for value in (*proto.graph.input, *proto.graph.output):
            for k, d in enumerate(value.type.tensor_type.shape.dim):
                if value.name in outputs or (value.name, k) in symbols:
                    d.Clear()
                if symbols.get((value.name, k)):
                    d.dim_param = symbols[value.name, k]
        return self.load(proto)

    def load(self, proto):
        return oj.load(proto, dtype="float64")

    def at(self, sizes=(), feeds=None):
        """The point with axes extended to the given sizes by repetition, and moved off kinks."""
        point = {**self.feeds, **(feeds or {})}
        for (name, axis), n in dict(sizes).items():
            index = np.arange(n) % point[name].shape[axis]
            point[name] = np.take(point[name], index, axis=axis)
        point = moved(self.case.op_type, point, seed=len(sizes))
        return {n: np.asarray(x, self.model.inputs[n].dtype) for n, x in point.items()}

    def has(self, point):
        """Whether the model runs and has a derivative there."""
        try:
            values = self.model.run(point, engine="numpy")
            operator(self.model, point, self.of, self.wrt)
        except Exception:
            return False
        return all(np.isfinite(y).all() for y in values.values() if y.dtype.kind == "f")

    def grown(self, axes, more):
        """The sizes with some axes doubled, plus `more`."""
        return {a: 2 * self.size[a] + more for a in axes}

    @property
    def groups(self):
        """Groups of axes that can grow: single axes, or all axes of one size."""
        found, done = [], set()
        for a in self.size:
            alike = [b for b in self.size if self.size[b] == self.size[a] and b not in done]
            for group in ([a], alike) if a not in done else ():
                if self.has(self.at(self.grown(group, 0))):
                    found.append(group)
                    done.update(group)
                    break
        return found

    def sizes(self):
        """Triples (free axes, model, points of other sizes)."""
        groups = self.groups
        for group in groups:
            points = [self.at(self.grown(group, more)) for more in (0, 1)]
            model = self.free(dict.fromkeys(group, "N"))
            yield ", ".join(f"{n}[{k}]" for n, k in group), model, points
        grown = [
            {a: n for g, group in enumerate(groups)
             for a, n in self.grown(group, (g + more) % 2).items()} for more in (0, 1)
        ]  # fmt: skip
        symbols = {a: f"N{g}" for g, group in enumerate(groups) for a in group}
        yield "all sizes", self.free(symbols), [*map(self.at, grown)]

    def numbers(self):
        """Triples (input, model, points with other values of it)."""
        rng, model = np.random.default_rng(0), self.free({})
        for name, x in self.feeds.items():
            if x.dtype.kind not in "iub" or not x.size:
                continue
            near = [x + rng.integers(-2, 3, x.shape) for _ in range(6)] if x.dtype != bool else []
            mixed = rng.permuted(x.ravel()).reshape(x.shape)
            some = [mixed, *near, *([-x, 2 * x] if near else [~x])]
            others = {y.tobytes(): y.astype(x.dtype) for y in some if not np.array_equal(x, y)}
            points = (self.at(feeds={name: y}) for y in others.values())
            yield name, model, [p for p in points if self.has(p)][:3]


def operator(model, point, of, wrt):
    """J at a point."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", oj.OnnxJacWarning)
        return oj.linearize(model, point, of=of, wrt=wrt, engine="numpy")


def outcome(freed, mode, model, points):
    """The outcome of an export at other points, and its warnings."""
    of, wrt = freed.of, freed.wrt
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        proto = oj.export(model, mode, freed.at(), of=of, wrt=wrt, engine="numpy")
    told = " ".join(str(w.message) for w in said if w.category is oj.OnnxJacWarning)
    owners = ", ".join(re.findall(r" of (.*?) is fixed at ", told))
    if any(repr(name) in owners for name in freed.feeds):
        return "fixed", told
    program, here = oj.load(proto), freed.at()
    gone = [n for n in here if renamed(n) not in program.inputs]
    held = {n for p in proto.metadata_props if p.key == "onnxjac.held" for n in p.value.split(", ")}
    for point in points:
        if held - here.keys() or any(not np.array_equal(point[n], here[n]) for n in gone):
            return "held", told
        try:
            error = mistake(operator(freed.model, point, of, wrt), program, mode, point)
        except oj.InputError as refusal:
            if "was recorded for points" not in str(refusal):
                raise
            return "refused", told
        if error > (1e-2 if is_single(model) else 1e-6):
            return "wrong", f"by {error:.1e} {told}"
    return "free", told


def renamed(name):
    """The name of a tensor in an export."""
    return re.sub(r"\W", "_", name)


def mistake(J, program, mode, point):
    """The largest error of a program at a point, relative to J there."""
    K, kind = (J, "tangent") if mode == "jvp" else (J.T, "cotangent")
    rng = np.random.default_rng(2)
    seeds = {s.name: np.asarray(rng.standard_normal(s.shape), s.dtype) for s in K.domain}
    given = {**point, **{f"{n}_{kind}": x for n, x in seeds.items()}}
    feeds = {renamed(n): x for n, x in given.items() if renamed(n) in program.inputs}
    try:
        found = program.run(feeds, engine="onnxruntime")
    except ort.EngineError:  # it may lack a kernel
        found = program.run(feeds, engine="numpy")
    pairs = ((found[renamed(f"{n}_{kind}")], y) for n, y in K.apply(seeds).items())
    return max(mismatch(x.astype(float), y.astype(float), floor=1.0) for x, y in pairs)


def results(case, rng=None):
    """Tuples (free axes, mode, outcome, warnings) of exports of a case.

    With a generator: all sizes at once, and one random axis and input.
    """
    try:
        freed = Freed(plain(case))
    except oj.OnnxJacError:
        return
    if not freed.of or not freed.wrt or not freed.has(freed.at()):
        return
    sizes, numbers = (list(problems) for problems in (freed.sizes(), freed.numbers()))
    if rng is not None:
        drawn = [p[rng.integers(len(p))] for p in (sizes[:-1], numbers) if p]
        sizes, numbers = [*drawn, sizes[-1]], []
    for what, model, points in (*sizes, *numbers):
        points = [point for point in points if freed.has(point)]
        for mode in ("vjp", "jvp") if rng is None else (rng.choice(["vjp", "jvp"]),):
            if points:
                try:
                    yield case.name, what, mode, *outcome(freed, mode, model, points)
                except Exception as error:
                    yield case.name, what, mode, "fails", f"{type(error).__name__}: {error}"


@pytest.mark.sampled(0.4)
@pytest.mark.parametrize("op_type", OPERATORS)
def test_exports_at_other_points_of(op_type, request):
    """One case of each operator; with --whole all cases, which must need every listed exception."""
    cases = [case for case in node_cases() if case.op_type == op_type]
    whole, rng = request.config.getoption("--whole"), np.random.default_rng(0)
    if whole:
        found = [r for case in cases for r in results(case)]
    else:
        found = [*results(cases[rng.integers(len(cases))], rng)]
    listed = {kind for kind, held in LISTED.items() if op_type in held}
    assert [r for r in found if r[3] not in ("free", *listed)] == []
    assert not whole or listed <= {kind for _, _, _, kind, _ in found}


@pytest.mark.parametrize("name", ["MultiHeadAttention with masks", "MultiHeadAttention causal",
                                  "GroupQueryAttention turned and packed", "RotaryEmbedding"])
def test_fused_operators_at_other_points(name):
    """Batch size and length are free; a guard may refuse changes of all sizes at once."""
    case = BackendCase(name, "node", CONTRIB[name][0], *one_node(*CONTRIB[name]), {})
    found = {(what, kind) for _, what, _, kind, _ in results(case)}
    assert {kind for what, kind in found if what != "all sizes"} <= {"free", "fixed"}
    assert any("x0[1]" in what and kind == "free" for what, kind in found)


@pytest.mark.filterwarnings("error::onnxjac.OnnxJacWarning")
def test_a_convolution_holds_for_all_batches():
    """How much a correlation gathers at once is decided by known sizes alone."""
    text = """<ir_version: 10, opset_import: ["": 21]> g (double[b,1,6,6] x, double[2,1,3,3] w) =>
        (double[b,2,4,4] y) { y = Conv(x, w) }"""
    model = oj.load(onnx.parser.parse_model(text))
    rng = np.random.default_rng(0)
    point = {"x": rng.standard_normal((1, 1, 6, 6)), "w": rng.standard_normal((2, 1, 3, 3))}
    made = oj.load(oj.export(model, "vjp", point, wrt="w"))
    other = {**point, "x": rng.standard_normal((80, 1, 6, 6))}
    u = rng.standard_normal((80, 2, 4, 4))
    found = made.run({**other, "y_cotangent": u})["w_cotangent"]
    J = oj.linearize(model, other, wrt="w")
    np.testing.assert_allclose(found.ravel(), J.T @ u.ravel(), rtol=1e-10)
