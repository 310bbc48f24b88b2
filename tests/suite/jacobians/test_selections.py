"""What an operator leaves out has slope 0, in both directions and whatever lies behind it.

Behind each operator that selects stands one whose slope, at the entry that is left out, is infinite
or not a number, and before it an operator that inserts constants. The wanted matrices are central
differences of the model's values, with zeros for the entry that is left out or inserted.
"""

from functools import lru_cache

import numpy as np
import onnx
import onnx.parser
import pytest

import onnxjac as oj

pytestmark = pytest.mark.filterwarnings("ignore::onnxjac.OnnxJacWarning")

HEAD = '<ir_version: 10, opset_import: ["": 21]>'

CONSTANTS = """<double one = {1}, double half = {0.5}, double minus = {-0.5}, double[1] ones = {1},
    int64 three = {3}, int64 nought = {0}, int64 second = {1}, int64 under = {-1},
    int64[1] k0 = {0}, int64[1] k1 = {1}, int64[1] k4 = {4}, int64[1] k5 = {5}, int64[1] k6 = {6},
    int64[4] rest = {5, 2, 1, 2}, int64[5] last = {1, 2, 3, 4, 5}, int64[2] parts = {1, 5},
    int64[2] cut = {-1, 0}, int64[2] front = {1, 0}, int64[3] image = {1, 1, 6},
    int64[2] square = {2, 3}, int64[2] table = {3, 2}, int64[1] line = {-1}, int64[1] k2 = {2},
    int64[1] k3 = {3}, int64[2] column = {6, 1}, int64[3] stack = {3, 1, 2},
    int64[3] piled = {6, 1, 1}, double[1,1,1] unit = {1}, double[1,1] eye = {1},
    double[2,2] mix = {0.5, -1.5, 0.75, 1},
    double[3,3] turn = {1, -0.5, 0.25, 2, 1, -1, 0.5, 3, 1},
    double[3,2,2] mixes = {0.5, 1, 2, -1, 1, 3, -0.5, 1, 2, 1, 0.5, 1}, double[2] gain = {1.5, 0.5},
    double[1,1,2] kernel = {0.5, 1.5}, double[3,1,2] kernels = {1, 2, 0.5, 1.5, -1, 1},
    int64[2] upright = {3, 1}, int64[3] single = {1, 3, 2}>"""

POSITIVE, INSIDE = (0, 0.5, 1.2, 4, 9, 2), (1, 0.5, 0.1, -0.4, 0.9, 0.2)

POLES = {
    "Sqrt": ("s = Sqrt(p)", POSITIVE),
    "Log": ("s = Log(p)", POSITIVE),
    "Reciprocal": ("r = Reciprocal(p) s = Neg(r)", POSITIVE),
    "Div": ("r = Div(one, p) s = Neg(r)", POSITIVE),
    "Pow of a half": ("s = Pow(p, half)", POSITIVE),
    "Pow of minus a half": ("r = Pow(p, minus) s = Neg(r)", POSITIVE),
    "Asin": ("r = Asin(p) s = Neg(r)", INSIDE),
    "Acos": ("s = Acos(p)", INSIDE),
    "Acosh": ("s = Acosh(p)", (1, 1.5, 2, 4, 9, 3)),
    "Atanh": ("r = Atanh(p) s = Neg(r)", INSIDE),
    "Exp": ("r = Exp(p) s = Neg(r)", (800, *INSIDE[1:])),
    "ReduceLogSum": ("r = Unsqueeze(p, k1) s = ReduceLogSum<keepdims = 0>(r, k1)", POSITIVE),
    "Mul of Log": ("l = Log(p) m = Mul(l, p) t = Tanh(l) s = Add(m, t)", POSITIVE),
    "Sin of NaN": ("s = Sin(p)", (np.nan, 0.5, 1.1, 0.3, 0.9, 0.2)),
    "Mul of infinity": ("s = Mul(p, p)", (np.inf, 0.5, 1.1, 0.3, 0.9, 0.2)),
}  # fmt: skip
"""name -> (body, p): the slope at p[0] has no finite value; s[0] is the least of s, or NaN."""

BY_POSITION = {
    "Slice": "y = Slice(s, k1, k6)",
    "Gather": "y = Gather(s, rest)",
    "Gather of one": "y = Gather(s, three)",
    "Gather at the point": "y = Gather(s, given)",
    "GatherElements": "y = GatherElements(s, rest)",
    "GatherND": "i = Unsqueeze(rest, k1) y = GatherND(s, i)",
    "Split": "u, y = Split(s, parts)",
    "Compress": "y = Compress(s, kept)",
    "NonZero + GatherND": "n = NonZero(kept) i = Transpose(n) y = GatherND(s, i)",
    "Where": "y = Where(kept, s, one)",
    "Pad": "y = Pad(s, cut)",
    "CenterCropPad": "y = CenterCropPad<axes = [0]>(s, k4)",
    "ScatterElements": "y = ScatterElements(s, k0, ones)",
    "ScatterND": "i = Unsqueeze(k0, k1) y = ScatterND(s, i, ones)",
    "Trilu": "c = Reshape(s, square) u = Trilu<upper = 0>(c, under) y = Reshape(u, line)",
    "SplitToSequence": "q = SplitToSequence(s, parts) y = SequenceAt(q, second)",
    "through a layout": "c = Reshape(s, table) e = Transpose(c) u = Slice(e, k1, k6, k1) "
                        "v = Concat<axis = 1>(u, u) y = Reshape(v, line)",
}  # fmt: skip
ROWS = {
    "MatMul": "g = MatMul(c, mix)",
    "Gemm": "g = Gemm<transB = 1>(c, mix, gain)",
    "two layers": "a = MatMul(c, mix) h = Tanh(a) g = MatMul(h, mix)",
    "batched MatMul": "b = Reshape(c, stack) h = MatMul(b, mixes) g = Reshape(h, table)",
    "Einsum": 'g = Einsum<equation = "ij,ijk->ik">(c, mixes)',
    "Conv": "b = Reshape(c, stack) g = Conv(b, kernel)",
    "ConvTranspose": "b = Reshape(c, stack) g = ConvTranspose(b, kernel)",
    "CumSum": "g = CumSum(c, second)",
    "CumSum to the left": "g = CumSum<reverse = 1>(c, nought)",
    "DFT": "b = Unsqueeze(c, k2) g = DFT(b, , second)",
    "Softmax": "g = Softmax(c)",
    "LogSoftmax": "g = LogSoftmax(c)",
    "LayerNormalization": "g = LayerNormalization(c, gain)",
    "batched MatMul of itself": "b = Reshape(c, stack) d = Transpose<perm = [0, 2, 1]>(b) "
                                "h = MatMul(b, d) g = Reshape(h, upright)",
    "MatMul by itself turned": "d = Transpose(c) h = MatMul(c, d) g = Slice(h, k1, k3, k1)",
    "Mul as an outer product": "f = Reshape(c, line) d = Reshape(c, column) h = Mul(d, f) "
                               "g = Slice(h, k1, k6, k1)",
    "Einsum with itself": 'h = Einsum<equation = "ij,kj->ik">(c, c) g = Slice(h, k1, k3, k1)',
    "Conv of itself": "b = Reshape(c, stack) h = Conv(b, b) g = Slice(h, k1, k3, k1)",
    "ConvTranspose of itself": "b = Reshape(c, stack) d = Reshape(c, single) "
                               "h = ConvTranspose(b, d) g = Slice(h, k1, k3, k1)",
}  # fmt: skip
"""name -> c to g, where the first row of c, with the first two entries, reaches that of g alone."""
COLUMNS = {
    "MatMul on the left": "g = MatMul(turn, c)",
    "Einsum that turns": 'g = Einsum<equation = "ij,ki->kj">(c, turn)',
    "Conv per channel": "b = Reshape(c, single) g = Conv<group = 3>(b, kernels)",
}  # fmt: skip
LINES = {
    "Conv": "b = Reshape(c, image) g = Conv(b, kernel)",
    "Conv with pads and strides": "b = Reshape(c, image) "
                                  "g = Conv<pads = [1, 1], strides = [2]>(b, kernel)",
    "Conv by a part of itself": "b = Reshape(c, image) w = Slice(b, k4, k6, k2) g = Conv(b, w)",
    "ConvTranspose": "b = Reshape(c, image) "
                     "g = ConvTranspose<pads = [1, 0], strides = [2]>(b, kernel)",
    "AveragePool": "b = Reshape(c, image) g = AveragePool<kernel_shape = [2], strides = [2]>(b)",
    "LpPool": "b = Reshape(c, image) g = LpPool<kernel_shape = [2], strides = [2]>(b)",
}  # fmt: skip
"""name -> c to g, where the first entry of c reaches the first one of g alone, on the last axis."""
LINES = {f"{name} along its axis": body for name, body in LINES.items()}
for found, axis in ((ROWS, 0), (COLUMNS, 1), (LINES, 2)):
    BY_POSITION |= {
        f"behind {name}": f"c = Reshape(s, table) {body} u = Slice(g, k1, k3, k{axis}) "
                          "y = Reshape(u, line)" for name, body in found.items()
    }  # fmt: skip
BY_VALUE = {
    "TopK": "y, i = TopK(s, k5)",
    "MaxPool": "c = Reshape(s, image) u = MaxPool<kernel_shape = [2], strides = [2]>(c) "
               "y = Reshape(u, line)",
    "GlobalMaxPool": "c = Reshape(s, image) u = GlobalMaxPool(c) y = Reshape(u, line)",
    "Unique": "u = Unique<sorted = 0>(s) y = Slice(u, k1, k6)",
    "Clip": "y = Clip(s, low)",
    "Max": "y = Max(s, low)",
    "ReduceMax": "y = ReduceMax(s)",
    "Relu": "u = Slice(s, k1, k6) y = Relu(u)",
}  # fmt: skip
INSERTIONS = {
    "Concat": "u = Slice(x, k1, k6) p = Concat<axis = 0>(bad, u)",
    "Pad": "u = Slice(x, k1, k6) b = Squeeze(bad) p = Pad(u, front, b)",
    "Where": "p = Where(kept, x, bad)",
    "ScatterElements": "p = ScatterElements(x, k0, bad)",
    "ScatterND into constants": "c = Expand(bad, k6) i = Unsqueeze(last, k1) "
                                "u = Gather(x, last) p = ScatterND(c, i, u)",
    "SequenceInsert": "n = SplitToSequence(x, parts) g = SequenceErase(n, nought) "
                      "h = SequenceInsert(g, bad, nought) p = ConcatFromSequence<axis = 0>(h)",
}  # fmt: skip
INSERTIONS |= {
    f"{name} of Concat": f"v = Slice(x, k1, k6) q = Concat<axis = 0>(bad, v) {body}"
    for name, body in {
        "batched MatMul by itself": "c = Reshape(q, piled) g = MatMul(c, c) p = Reshape(g, line)",
        "MatMul": "c = Reshape(q, column) g = MatMul(c, eye) p = Reshape(g, line)",
        "MatMul on the left": "c = Unsqueeze(q, k0) g = MatMul(eye, c) p = Reshape(g, line)",
        "Conv": "c = Reshape(q, piled) g = Conv(c, unit) p = Reshape(g, line)",
        "CumSum": "c = Reshape(q, column) g = CumSum(c, second) p = Reshape(g, line)",
        "Einsum": 'c = Reshape(q, column) g = Einsum<equation = "ij,jk->ki">(c, eye) '
                  "p = Reshape(g, line)",
    }.items()
}  # fmt: skip
HELD = "Mul of infinity"
"""The pole where operators by themselves hold what has no finite value."""
NO_ORDER = "Mul of Log", "Sin of NaN", "Mul of infinity"

CASES = [
    *((how, pole) for how in BY_POSITION | BY_VALUE for pole in POLES
      if how in BY_POSITION or pole not in NO_ORDER),
    *((f"{how} before", pole) for how in INSERTIONS for pole in POLES),
]  # fmt: skip

UNIT = np.eye(6)


class Chosen:
    """A model with a pole that counts for nothing, at a point, with the wanted derivatives."""

    def __init__(self, how, pole):
        body, values = POLES[pole]
        inserts = how.endswith(" before")
        before = INSERTIONS[how.removesuffix(" before")] if inserts else "p = Identity(x)"
        after = "y = Identity(s)" if inserts else (BY_POSITION | BY_VALUE)[how]
        self.text = (
            "(double[6] x, bool[6] kept, int64[3] given, double low, double[1] bad) => "
            f"(double[K] y, double loss, double[6] s) {CONSTANTS} "
            f"{{ {before} {body} {after} z = Sin(y) loss = ReduceSum<keepdims = 0>(z) }}"
        )
        self.model, self.exported = self.loaded(), {}
        x, self.regular = np.array(values, float), np.array([np.mean(values[1:3]), *values[1:]])
        masks = {"kept": np.array([0, 1, 1, 1, inserts, 1], bool), "given": np.array([5, 1, 2])}
        x = self.regular if inserts else x
        self.point = {"x": x, "bad": np.array(values[:1], float), "low": np.zeros(()), **masks}
        self.point["low"] += np.sort(self.run(x)["s"][1:])[0] - 0.01
        self.J, self.H = self.differences()
        self.slopes = np.cos(self.run(x)["y"].ravel()) @ self.J

    def loaded(self):
        return oj.load(onnx.parser.parse_model(f"{HEAD} f {self.text}"))

    def at(self, x):
        return {**self.point, "x": x}

    def run(self, x):
        """The outputs; zeros for numbers that are not finite."""
        found = self.model.run(self.at(x), engine="numpy")
        y = np.nan_to_num(found["y"], nan=0, posinf=0, neginf=0)
        return {"y": y, "loss": np.sin(y).sum(), "s": found["s"]}

    def differences(self):
        """∂y/∂x and ∂²loss/∂x² by central differences; zeros for the entry that is left out."""
        x, h = self.point["x"], 1e-6
        J, H = np.zeros((self.run(x)["y"].size, 6)), np.zeros((6, 6))
        for k in range(1, 6):
            ends = (self.run(x + step * UNIT[k])["y"].ravel() for step in (h, -h))
            J[:, k] = np.subtract(*ends) / (2 * h)
        h = 1e-4
        for i in range(1, 6):
            for j in range(1, i + 1):
                e, f = h * UNIT[[i, j]]
                corners = [self.run(x + a * e + b * f)["loss"]
                           for a, b in ((1, 1), (1, -1), (-1, 1), (-1, -1))]  # fmt: skip
                H[i, j] = H[j, i] = np.dot([1, -1, -1, 1], corners) / (4 * h * h)
        return J, H


chosen = lru_cache(1)(Chosen)


def products(s):
    """J in every way at the point, and at the end of a path of other points."""
    J = oj.linearize(s.model, s.point, of="y", wrt="x")
    elsewhere = oj.linearize(s.loaded(), s.at(s.regular), of="y", wrt="x")
    elsewhere.tosparse()
    for k in range(2):
        elsewhere = elsewhere.relinearize(s.at(s.regular + k / 64))
    rows = np.eye(J.shape[0])
    convolves = "Conv" in s.text or "Pool" in s.text
    runtime = None if convolves else "onnxruntime"  # which convolves no doubles
    for K in (J, elsewhere.relinearize(s.point)):
        yield from (K @ UNIT, (K.T @ rows).T, K.toarray(), K.T.toarray().T, K["y", "x"] @ UNIT)
        yield from (K.tosparse().toarray(), K.T.tosparse().toarray().T)
        yield from (np.stack([K @ v for v in UNIT], -1), np.stack([K.T @ u for u in rows]))
        yield np.stack([K.apply({"x": v})["y"].ravel() for v in UNIT], -1)
        for L in (K.plan(products=5000), K.compile("numpy"), K.compile(runtime)):
            yield from (L @ UNIT, (L.T @ rows).T)
        if K.shape[0] == 6:
            yield np.where(UNIT, K.diagonal(), K.toarray())
    pullback = oj.vjp(s.model, s.point, of="y", wrt="x")[1]
    shape = J.codomain[0].shape
    yield np.stack([pullback({"y": u.reshape(shape)})["x"] for u in rows])
    pushed = (oj.jvp(s.model, s.point, {"x": v}, of="y")[1]["y"] for v in UNIT)
    yield np.stack([tangent.ravel() for tangent in pushed], -1)


def tensors(s):
    """J times tensors of PyTorch, by each engine."""
    torch = pytest.importorskip("torch")
    for engine in (None, "torch"):
        J = oj.linearize(s.model, s.point, of="y", wrt="x", engine=engine)
        yield (J @ torch.eye(6).double()).numpy()
        yield (J.T @ torch.eye(J.shape[0]).double()).numpy().T


def gradients(s):
    """∂loss/∂x in every way."""
    yield oj.grad(s.model, s.point, of="loss", wrt="x")["x"]
    for engine in (None, "numpy"):
        f = oj.value_and_grad(s.loaded(), of="loss", wrt="x", engine=engine)
        f(s.at(s.regular))
        yield f(s.point)[1]["x"]
    yield by_runtime(s, "grad", of="loss")["x_grad"]


def hessians(s):
    """∂²loss/∂x² in every way."""
    H = oj.hessian(s.model, s.point, of="loss", wrt="x")
    for K in (H, H.compile("numpy")):
        yield from (K @ UNIT, K.toarray(), K.tosparse().toarray())
        yield np.where(UNIT, K.diagonal(), K.toarray())
    elsewhere = oj.hessian(s.model, s.at(s.regular), of="loss", wrt="x")
    yield elsewhere.relinearize(s.point) @ UNIT
    yield np.stack([by_runtime(s, "hvp", of="loss", x_tangent=v)["x_hvp"] for v in UNIT], -1)


def exports(s):
    """∂y/∂x by ONNX Runtime, recorded at another point."""
    shape, n = np.shape(s.run(s.regular)["y"]), s.J.shape[0]
    yield np.reshape(by_runtime(s, "jacobian")["y_x_jacobian"], (n, 6))
    pushed = (by_runtime(s, "jvp", x_tangent=v)["y_tangent"] for v in UNIT)
    yield np.stack([tangent.ravel() for tangent in pushed], -1)
    pulled = (by_runtime(s, "vjp", y_cotangent=u.reshape(shape)) for u in np.eye(n))
    yield np.stack([back["x_cotangent"] for back in pulled])


def by_runtime(s, kind, of="y", **seeds):
    """The results, at the point, of a derivative exported at another one.

    NumPy runs what ONNX Runtime has no kernel for.
    """
    if kind not in s.exported:
        s.exported[kind] = oj.load(oj.export(s.model, kind, s.at(s.regular), of=of, wrt="x"))
    made = s.exported[kind]
    return made.run({name: x for name, x in {**s.point, **seeds}.items() if name in made.inputs})


FACES = {"products": (products, "J"), "tensors": (tensors, "J"), "gradients": (gradients, "slopes"),
         "hessians": (hessians, "H"), "exports": (exports, "J")}  # fmt: skip
"""name -> (the ways, the attribute with what they give)."""


OTHERS = [face for face in FACES if face != "products"]


def faces_of(k, how):
    """How the k-th operator is always checked; a graph knows no numbers of a normalisation."""
    if " of Concat" in how:
        return ["products"]
    if "behind" in how:
        return ["exports" if "Norm" in how or "max" in how else [*FACES][k % len(FACES)]]
    return ["products", OTHERS[k % len(OTHERS)]]


ALWAYS = {
    (how, pole, face)
    for k, how in enumerate(dict.fromkeys(how for how, _ in CASES))
    for pole in [HELD if "itself" in how else [p for h, p in CASES if h == how][k % 12]]
    for face in faces_of(k, how)
}  # fmt: skip
"""Of each operator that selects or inserts, one case by products and by another face, and one case
behind each operator that mixes entries."""


def marks(case):
    return () if case in ALWAYS else pytest.mark.sampled(0.002)


@pytest.mark.parametrize(("how", "pole", "face"), [
    pytest.param(*case, marks=marks(case)) for case in
    ((how, pole, face) for how, pole in CASES for face in FACES)
])  # fmt: skip
def test_entries_left_out_have_slope_0(how, pole, face):
    s, (ways, wanted) = chosen(how, pole), FACES[face]
    for k, found in enumerate(ways(s)):
        np.testing.assert_allclose(found, getattr(s, wanted), 1e-4, 5e-5, err_msg=f"way {k}")
