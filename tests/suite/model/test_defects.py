"""Each row of the table of ONNX Runtime's defects is still needed: the runtime itself, in processes
of its own, ends, hangs or departs. A row whose test fails is mended there: it says until which
version it is needed, and goes with its remedy once no supported version has it.
"""

import json
import os
import pkgutil
import re
import resource
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import parser

from onnxjac.ops.graphs.defects import DEFECTS

onnxruntime = pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system does not fork")

F = np.float32
CANARIES = {}
ROOT = Path(__file__).parents[3]


def version(text):
    """Major and minor number."""
    return tuple(map(int, text.split(".")[:2]))


def canary(name, graph, *inputs, wrong=None, opset=21):
    """Enter a model and its inputs under the name of a row; `wrong` judges the first result, and
    where it is left out, the process must end or hang.
    """
    header = f'<ir_version: 10, opset_import: ["": {opset}, "com.microsoft": 1, "ai.onnx.ml": 3]>'
    CANARIES[name] = f"{header} {graph}", inputs, wrong


def differs(expected):
    """The result is not this one, up to 1e-12."""
    return lambda y, inputs: not np.allclose(y, expected, rtol=1e-12, atol=0)


def accepted(y, inputs):
    return True


def varies(y, inputs, seen=[]):  # noqa: B006 - the results of earlier runs
    """The result is not the one of the first run."""
    seen.append(y)
    return not np.array_equal(y, seen[0])


canary("empty_batch", "g (float[2,0,2] x, float[1,12,2] w, float[1,12,3] r) => (float[a,b,c,d] y) "
       "{ y = LSTM<hidden_size = 3>(x, w, r) }",
       np.zeros((2, 0, 2), F), np.zeros((1, 12, 2), F), np.zeros((1, 12, 3), F))
canary("empty_operand", "g (float[0,2,2] x, float[1,9,2] w, float[1,9,3] r) => (float[a,b,c,d] y) "
       "{ y = GRU<hidden_size = 3>(x, w, r) }",
       np.zeros((0, 2, 2), F), np.zeros((1, 9, 2), F), np.zeros((1, 9, 3), F))
canary("empty_slices", "g (float[2,0] x) => (float[a,b] y) { y = Unique<axis = 0>(x) }",
       np.zeros((2, 0), F))
canary("empty_volume", "g (float[1,1,0,2,2] x, float[1,1,1,1,1] w) => (float[a,b,c,d,e] y) "
       "{ y = ConvTranspose(x, w) }", np.zeros((1, 1, 0, 2, 2), F),
       np.ones((1, 1, 1, 1, 1), F))
canary("empty_window", "g (float[1,1,3] x, float[1,1,0] w) => (float[a,b,c] y) { y = Conv(x, w) }",
       np.ones((1, 1, 3), F), np.ones((1, 1, 0), F))
canary("empty_frame", "g (float[1,8,1] x, int64 s, float[0] w) => (float[a,b,c,d] y) "
       "{ y = STFT(x, s, w) }",
       np.ones((1, 8, 1), F), np.array(2), np.ones(0, F))
canary("empty_in_contrib", "g (float[1,1,2] x, float[0,1,2] s, float[2] w) => (float[a,b,c] y) "
       "{ y = com.microsoft.SkipLayerNormalization(x, s, w) }",
       np.ones((1, 1, 2), F), np.ones((0, 1, 2), F), np.ones(2, F))
canary("few_labels", "g (float[2,3] x, int64[2] t, float[2] w) => (float l) "
       "{ l = NegativeLogLikelihoodLoss(x, t, w) }",
       np.ones((2, 3), F), np.array([0, 1]), np.ones(2, F), wrong=accepted)
canary("left_out_parameters", "g (float[1,1,1] x, float[1,1,1] w) => (float[a,b,c,d] y) "
       '{ y = RNN<hidden_size = 1, activations = ["ThresholdedRelu"]>(x, w, w) }',
       np.full((1, 1, 1), 0.5, F), np.ones((1, 1, 1), F), wrong=differs(0))
canary("order_of_two_bits", "g (float[1,64] x, uint8[1,4,4] w, float[1,4] s, int32[64] g) => "
       "(float[a,b] y) { y = com.microsoft.MatMulNBits<K = 64, N = 1, bits = 2, block_size = 16>"
       '(x, w, s, "", g) }', np.ones((1, 64), F), np.zeros((1, 4, 4), np.uint8),
       np.ones((1, 4), F), np.zeros(64, np.int32), wrong=differs(-128))
N = np.arange(5)
canary("single_window", "g (int64 n) => (double[a] y) "
       "{ y = HammingWindow<output_datatype = 11>(n) }", np.array(5),
       wrong=differs(25 / 46 - 21 / 46 * np.cos(2 * np.pi * N / 5)))
canary("single_shrink", "g (double[1] x) => (double[1] y) "
       "{ y = Shrink<bias = 0.5, lambd = 0.5>(x) }",
       np.array([1 + 1e-9]), wrong=differs([0.5 + 1e-9]))
canary("single_point", "g (float[1,2,3] t, int64[4] s) => (float[a,b,c,d] y) "
       "{ y = AffineGrid<align_corners = 1>(t, s) }",
       np.array([[[1, 0, 0], [0, 1, 0]]], F), np.array([1, 1, 1, 1]),
       wrong=differs(np.zeros((1, 1, 1, 2))))
canary("mirrored", "g (float[1,3,2] x, int64 n) => (float[a,b,c] y) "
       "{ y = DFT<inverse = 1, onesided = 1>(x, n) }",
       np.array([[[3, 0], [0, np.sqrt(3)], [5, 2]]], F), np.array(3), opset=20,
       wrong=lambda y, xs: not np.allclose(y.ravel(), [1, 0, 2], atol=1e-5))
canary("given_shape", "g (float[1,1,2,2] x, int64[1,1,2,2] i, int64[4] s) => (float[a,b,c,d] y) "
       "{ y = MaxUnpool<kernel_shape = [2, 2], strides = [2, 2]>(x, i, s) }",
       np.ones((1, 1, 2, 2), F), np.array([[[[5, 7], [13, 15]]]]), np.array([1, 1, 5, 5]),
       wrong=lambda y, xs: y[0, 0, [1, 1, 3, 3], [1, 3, 1, 3]].sum() != 4)
canary("leaps", 'g (float[1,1,3] x) => (float[a,b,c] y) { y = MaxPool<auto_pad = "SAME_UPPER", '
       "strides = [3], dilations = [2], kernel_shape = [1]>(x) }",
       np.array([[[1, 2, 3]]], F), wrong=differs([[[1]]]))
canary("kept_sizes", 'g (float[1,1,1,3] x, float[4] s) => (float[a,b,c,d] y) { y = Resize<mode = '
       '"linear", coordinate_transformation_mode = "asymmetric">(x, "", s) }',
       np.array([[[[0, 1, 2]]]], F), np.array([1, 1, 1, 1.2], F),
       wrong=lambda y, xs: not np.allclose(y.ravel(), [0, 1 / 1.2, 2 / 1.2], rtol=1e-5))
canary("single_length", "g (double[1,9,2] x) => (double[a,b,c] y) { y = DFT<inverse = 1>(x) }",
       np.ones((1, 9, 2)), opset=20,
       wrong=lambda y, xs: abs(y[0, 0, 0] - 1) > 1e-12)
canary("single_groups", "g (double[1,2,2] x, double[2] s, double[2] b) => (double[a,b,c] y) "
       "{ y = GroupNormalization<num_groups = 1, epsilon = 0.0>(x, s, b) }",
       np.array([[[1, 2], [3, 4.0]]]), np.ones(2), np.zeros(2),
       wrong=lambda y, xs: abs((y * y).sum() - 4) > 1e-12)
canary("single_results", "g (double[1,2] x) => (float[a,b] y) "
       '{ y = ai.onnx.ml.Normalizer<norm = "L2">(x) }', np.ones((1, 2)), wrong=accepted)
GELU = 0.25 * (1 + np.tanh(np.sqrt(2 / np.pi) * (0.5 + 0.044715 / 8)))
canary("single_tanh", 'g (double[1] x) => (double[1] y) { y = Gelu<approximate = "tanh">(x) }',
       np.array([0.5]), wrong=differs(GELU))
canary("single_factors", "g (double[1] x) => (double[1] y) { y = com.microsoft.FastGelu(x) }",
       np.array([0.5]), wrong=differs(GELU))
canary("large_exponentials", "g (double[2] x) => (double y) "
       "{ y = ReduceLogSumExp<keepdims = 0>(x) }",
       np.array([800.0, 0]), opset=28, wrong=differs(800))
canary("overflow", "g (int64[1] a, int64[1] b) => (int64[1] y) { y = Div(a, b) }",
       np.array([-(2**63)]), np.array([-1]))
canary("race", "g (float[2] x, int64[n,1] i, float[n] u) => (float[2] y) "
       '{ y = ScatterND<reduction = "add">(x, i, u) }', np.zeros(2, F),
       np.zeros((2**20, 1), np.int64), np.ones(2**20, F), wrong=differs([2**20, 0]))
canary("training", "g (float[2,1] x, float[1] m) => (float l) "
       "<float[1] s = {1}, float[1] b = {0}> { "
       "y, r, q = BatchNormalization<training_mode = 1>(x, s, b, m, m) "
       "l = ReduceSum<keepdims = 0>(r) }",
       np.array([[1], [3]], F), np.ones(1, F),
       wrong=lambda y, xs: xs[1][0] != 1)
canary("advancing_seed", "g () => (float[4] y) { y = RandomNormal<seed = 1.0, shape = [4]>() }",
       wrong=varies)
canary("rounded_tail", "g (float[4] x) => (float[4] y) { y = Sigmoid(x) }", np.full(4, -40, F),
       wrong=lambda y, xs: not np.all(y > 0))
canary("double_softplus", "g (double[4] x) => (double[4] y) { y = Softplus(x) }", np.ones(4))
canary("subset_of_pads", "g (float[2,3] x) => (float[a,b] y) "
       "<int64[2] p = {1, 0}, int64[1] k = {0}, float z = {0}> { "
       "t = Transpose<perm = [1, 0]>(x) y = Pad(t, p, z, k) }", np.ones((2, 3), F),
       wrong=lambda y, xs: y.shape != (4, 2))
canary("dilated_same", 'g (float[1,1,5] x, float[1,1,2] w) => (float[a,b,c] y) '
       '{ y = Conv<auto_pad = "SAME_UPPER", dilations = [2]>(x, w) }',
       np.ones((1, 1, 5), F), np.ones((1, 1, 2), F))
canary("omitted_output", 'g (float[4] x) => (float[a] y) { "", y = Split<num_outputs = 2>(x) }',
       np.ones(4, F))
canary("nested_branches", """g () => (double[a] y) <double[3] w2 = {-1, -1, 1}> {
    b3__1 = ReduceSum<keepdims = 0>(w2) b4__1 = Constant<value = double {5}>()
    b5__1 = Less(b3__1, b4__1) t41 = If(b5__1) <
    else_branch = e () => (double[] b39__1) { b39__1 = Identity(w2) },
    then_branch = t () => (double[3] b27__1) {
        b6__1 = ReduceSum<keepdims = 0>(w2) b7__1 = Constant<value = double {6}>()
        b8__1 = Less(b6__1, b7__1) b27__1 = If(b8__1) <
        else_branch = f () => (double[3] b26__1) { b26__1 = Identity(w2) },
        then_branch = u () => (double[] b22__1) {
            b16__1 = Constant<value = int64 {1}>() b17__1 = Constant<value = bool {1}>()
            b19__1, b20__1 = Loop(b16__1, b17__1, w2) <
            body = b (int64 b9__1, bool b10__1, double[] b11__1) =>
                (bool b15__1, double[] b14__1, double[] b18__1) {
                b15__1 = Identity(b10__1) b14__1 = Identity(w2) b18__1 = Identity(w2) }>
            _v_9 = Constant<value = int64[1] {0}>() b21__1 = Identity(w2) b22__1 = Identity(w2)
        }> }>
    y = Identity(w2) }""")  # it depends on the names
canary("omitted_last_input", 'g (float[1,2] x, float[2] s) => (float[a,b] y) '
       '{ y = LayerNormalization(x, s, "") }', np.ones((1, 2), F), np.ones(2, F))
canary("no_width", "g () => (float[9] y) "
       "{ y = RandomUniform<low = 1.0, high = 0.0, shape = [9]>() }")
canary("no_turn", "g (float[0] x, float s) => (float y) { y = Scan<num_scan_inputs = 1, "
       "body = b (float a, float e) => (float c) { c = Add(a, e) }>(s, x) }",
       np.zeros(0, F), np.ones((), F))
canary("unrounded_halves", "g (double[1] x) => (double[1] y) "
       "{ a = Cast<to = 10>(x) b = Neg(a) y = Cast<to = 11>(b) }",
       np.array([1.00001]), wrong=differs([-1]))
canary("left_to_right", 'g (float[n] a, float[m] b) => (float[n] y) '
       '{ y = Einsum<equation = "i,j,i,j->i">(a, b, a, b) }',
       np.ones(60000, F), np.ones(60000, F))
canary("no_present", "g (float[1,1,2] q, float[1,1,2] k, float[1,1,2] v, float[1,1,1,2] p, "
       "float[1,1,1,2] s, int32[1] n) => (float[a,b,c] y) "
       "{ y = com.microsoft.DecoderMaskedMultiHeadAttention<num_heads = 1>(q, k, v, , , p, s, n) }",
       *[np.ones((1, 1, 2), F)] * 3, *[np.ones((1, 1, 1, 2), F)] * 2, np.ones(1, np.int32))


# -- in a process of its own, which forks for each -------------------------------------------------

SECONDS, TRIES = 1, 10


def is_wrong(name):
    """Whether the runtime still fails, unless it ends this process."""
    import onnxruntime as ort

    graph, inputs, wrong = CANARIES[name]
    proto = parser.parse_model(graph)
    options = ort.SessionOptions()
    options.log_severity_level = 4
    signal.alarm(SECONDS)
    resource.setrlimit(resource.RLIMIT_AS, (2**32, 2**32))
    try:
        session = ort.InferenceSession(proto.SerializeToString(), options)
        feeds = {v.name: x for v, x in zip(session.get_inputs(), inputs, strict=True)}
        runs = (session.run(None, feeds) for _ in range(TRIES))
        return any(wrong is not None and wrong(y, inputs) for y, *_ in runs)
    except Exception:
        return wrong is None


def main():
    """Print the names of the rows that are still needed, and of the others."""
    found = {}
    for name in CANARIES:
        child = os.fork()
        if not child:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            os._exit(0 if is_wrong(name) else 1)
        found[name] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 1
    print(json.dumps(found))


@pytest.fixture(scope="module")
def needed():
    told = subprocess.run([sys.executable, __file__], capture_output=True, text=True, check=True)
    return json.loads(told.stdout)


@pytest.mark.parametrize("row", DEFECTS.values(), ids=list(DEFECTS))
def test_onnx_runtime_still_has_the_defect(needed, row):
    if not version(onnxruntime.__version__) <= version(row.seen):
        pytest.skip(f"it was mended after {row.seen}, which users may still have")
    assert needed[row.name], "it is mended: write into the row which version had it last"


def test_users_may_have_each_version():
    """A row goes once no supported version has the defect."""
    lowest = re.search(r"onnxruntime>=([0-9.]+)", (ROOT / "pyproject.toml").read_text())[1]
    assert all(version(lowest) <= version(row.seen) for row in DEFECTS.values())


def test_each_canary_has_a_row():
    assert set(CANARIES) == set(DEFECTS)


@pytest.mark.parametrize("row", DEFECTS.values(), ids=list(DEFECTS))
def test_the_remedy_of_a_row_exists(row):
    if row.remedy:
        assert callable(pkgutil.resolve_name(f"onnxjac.{row.remedy}"))


if __name__ == "__main__":
    main()
