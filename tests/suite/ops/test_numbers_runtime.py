"""The NumPy kernels against ONNX Runtime, on random, unusual attributes."""

import zlib

import numpy as np
import onnx
import pytest
from onnx import helper

from onnxjac.modes.verify.cases import CASES
from onnxjac.ops.numbers import numbers as op

ort = pytest.importorskip("onnxruntime")

rng = np.random.default_rng()
TRIES = range(25)


@pytest.fixture(autouse=True)
def _seed(request):
    """Seed the generator by the name of the test."""
    global rng
    rng = np.random.default_rng(zlib.crc32(request.node.name.encode()))


def run_runtime(op_type, inputs, attrs, outputs=1):
    """The outputs of one node at opset 21, computed by ONNX Runtime."""
    feeds = {f"x{i}": x for i, x in enumerate(inputs) if x is not None}
    names = [f"x{i}" if x is not None else "" for i, x in enumerate(inputs)]
    node = helper.make_node(op_type, names, [f"y{i}" for i in range(outputs)], **attrs)
    types = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for name, x in feeds.items()
    ]
    results = [onnx.ValueInfoProto(name=name) for name in node.output]
    graph = helper.make_graph([node], "one", types, results)
    opset = [helper.make_opsetid("", 21)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=10)
    options = ort.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    return ort.InferenceSession(model.SerializeToString(), options).run(None, feeds)


def agree(op_type, inputs, attrs, outputs=1):
    """Both engines return the same types, shapes and values, and inputs stay unchanged."""
    expected = run_runtime(op_type, inputs, attrs, outputs)
    for x in inputs:
        if x is not None:
            x.flags.writeable = False
    actual = op.run(op_type, inputs, attrs, outputs=outputs)
    for a, b in zip(actual, expected, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def pick(low, high, count=None):
    """A random integer, or a list of them, from low to high − 1."""
    value = rng.integers(low, high, count)
    return int(value) if count is None else value.tolist()


def normal(*shape):
    return rng.normal(size=shape).astype(np.float32)


def sliding(rank):
    """A kernel shape and strides, dilations and padding that fit it.

    Where a stride exceeds a kernel, ONNX Runtime's pooling with SAME uses negative padding, unlike
    its convolutions and the kernels here: such cases are excluded.
    """
    kernel, attrs = pick(1, 4, rank), {}
    auto_pad = str(rng.choice(["NOTSET", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"]))
    if auto_pad.startswith("SAME"):
        attrs["strides"] = [pick(1, k + 1) for k in kernel]
    else:
        attrs["strides"], attrs["dilations"] = pick(1, 4, rank), pick(1, 3, rank)
    if auto_pad == "NOTSET":
        attrs["pads"] = [pick(0, k) for k in kernel + kernel]
    return kernel, {**attrs, "auto_pad": auto_pad}


@pytest.mark.parametrize("seed", TRIES)
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_convolutions(rank, seed):
    kernel, attrs = sliding(rank)
    group, depth, space = pick(1, 4), pick(1, 4), pick(7, 11, rank)
    attrs["group"] = group
    filters = group * pick(1, 4)
    x = normal(2, group * depth, *space)
    agree("Conv", [x, normal(filters, depth, *kernel), normal(filters)], attrs)
    attrs["output_padding"] = [pick(0, s) for s in attrs["strides"]]
    agree("ConvTranspose", [x, normal(group * depth, pick(1, 4), *kernel), None], attrs)


@pytest.mark.parametrize("seed", TRIES)
def test_transposed_convolution_to_a_given_shape(seed):
    x, w = normal(1, 2, 5, 6), normal(2, 3, 3, 3)
    attrs = {"strides": pick(1, 3, 2), "auto_pad": str(rng.choice(["SAME_UPPER", "SAME_LOWER"]))}
    full = [(n - 1) * s + 3 for n, s in zip((5, 6), attrs["strides"], strict=True)]
    agree("ConvTranspose", [x, w], {**attrs, "output_shape": [n - pick(0, 3) for n in full]})


@pytest.mark.parametrize("seed", TRIES)
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_pools(rank, seed):
    kernel, attrs = sliding(rank)
    attrs |= {"kernel_shape": kernel, "ceil_mode": pick(0, 2)}
    x = normal(2, 3, *pick(7, 11, rank))
    agree("MaxPool", [x], attrs)
    agree("MaxPool", [x], {**attrs, "storage_order": pick(0, 2)}, outputs=2)
    agree("AveragePool", [x], {**attrs, "count_include_pad": pick(0, 2)})
    agree("LpPool", [x], {**attrs, "p": pick(1, 4)})


def test_ties_in_a_maximum_pool():
    x = rng.integers(0, 3, (2, 3, 8, 8)).astype(np.float32)
    agree("MaxPool", [x], {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}, outputs=2)


@pytest.mark.parametrize("size", [1, 3, 5])
def test_lrn(size):
    agree("LRN", [normal(2, 6, 3, 4)], {"size": size, "alpha": 0.5, "bias": 2.0})


EQUATIONS = {
    "ij,jk": [(3, 4), (4, 5)],
    "bij, bjk -> bik": [(2, 3, 4), (2, 4, 5)],
    "...ij,...jk->...ik": [(2, 3, 3, 4), (2, 3, 4, 5)],
    "...ij->...ji": [(2, 3, 4)],
    "ii->i": [(4, 4)],
    "ii": [(4, 4)],
    "iji->j": [(3, 4, 3)],
    "ij->": [(4, 5)],
    "i,j->ij": [(4,), (5,)],
    "ab,bc,cd->ad": [(20, 30), (30, 4), (4, 50)],
    "bnqd,bnkd->bnqk": [(2, 3, 20, 8), (2, 3, 30, 8)],
    "aBc,cD->aBD": [(2, 3, 4), (4, 5)],
}


@pytest.mark.parametrize("equation", EQUATIONS)
def test_einsum(equation):
    agree("Einsum", [normal(*s) for s in EQUATIONS[equation]], {"equation": equation})


@pytest.fixture(params=TRIES)
def tensor(_seed, request):
    """A tensor of random shape."""
    return normal(*pick(2, 6, pick(1, 5)))


def test_pad(tensor):
    widths = np.array(pick(-1, 3, 2 * tensor.ndim))
    agree("Pad", [tensor, widths, np.array(1.5, np.float32)], {"mode": "constant"})
    inside = np.array([pick(0, n) for n in tensor.shape * 2])
    for mode in ("reflect", "edge", "wrap"):
        agree("Pad", [tensor, inside], {"mode": mode})
    agree("Pad", [tensor, np.array([2, 1]), None, np.array([-1])], {})


def test_slice(tensor):
    axes = rng.permutation(tensor.ndim)[: pick(1, tensor.ndim + 1)]
    starts, ends = rng.integers(-8, 9, (2, len(axes)))
    steps = rng.choice([-2, -1, 1, 2], len(axes))
    limit = np.iinfo(np.int64)
    ends[0] = rng.choice([ends[0], limit.max if steps[0] > 0 else limit.min])
    signed = axes - tensor.ndim * rng.integers(0, 2, len(axes))
    agree("Slice", [tensor, starts, ends, signed, steps], {})


def test_gather_and_scatter_elements(tensor):
    axis = pick(-tensor.ndim, tensor.ndim)
    shape = [pick(1, n + 1) for n in tensor.shape]
    shape[axis], length = pick(1, 7), tensor.shape[axis]
    indices = rng.integers(-length, length, shape)
    agree("Gather", [tensor, indices], {"axis": axis})
    agree("GatherElements", [tensor, indices], {"axis": axis})
    for reduction in ("add", "mul", "max", "min"):
        attrs = {"axis": axis, "reduction": reduction}
        agree("ScatterElements", [tensor, indices, normal(*shape)], attrs)
    once = np.argsort(normal(*tensor.shape), axis)
    agree("ScatterElements", [tensor, once, normal(*tensor.shape)], {"axis": axis})


@pytest.mark.parametrize("count", [2, 100])
def test_gather_and_scatter_nd(tensor, count):
    batch = pick(0, tensor.ndim)
    lengths = tensor.shape[batch : batch + pick(1, tensor.ndim - batch + 1)]
    lead = (*tensor.shape[:batch], 2, 3)
    indices = np.stack([rng.integers(-n, n, lead) for n in lengths], -1)
    agree("GatherND", [tensor, indices], {"batch_dims": batch})
    lengths = tensor.shape[: pick(1, tensor.ndim + 1)]
    indices = np.stack([rng.integers(-n, n, (count, 2)) for n in lengths], -1)
    updates = normal(count, 2, *tensor.shape[len(lengths) :])
    for reduction in ("add", "mul", "max", "min"):
        agree("ScatterND", [tensor, indices, updates], {"reduction": reduction})
    agree("ScatterND", [tensor, indices[:1, :1], updates[:1, :1]], {})


def test_top_k(tensor):
    axis = pick(-tensor.ndim, tensor.ndim)
    k = np.array([pick(1, tensor.shape[axis] + 1)])
    for x in (tensor, np.round(tensor)):
        for largest in (0, 1):
            agree("TopK", [x, k], {"axis": axis, "largest": largest}, outputs=2)


def test_reversed_sequences():
    x = normal(4, 3, 2)
    agree("ReverseSequence", [x, np.array([4, 0, 2])], {"time_axis": 0, "batch_axis": 1})
    agree("ReverseSequence", [x, np.array([3, 1, 2, 0])], {"time_axis": 1, "batch_axis": 0})


@pytest.mark.parametrize("case", CASES["MaxRoiPool", ""], ids=str)
def test_regions(case):
    """The cases of the proof, which takes the same definition as NumPy does."""
    agree("MaxRoiPool", [x.astype(np.float32) for x in case.inputs], case.attrs)


REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")


def test_reductions(tensor):
    axes = np.array(rng.permutation(tensor.ndim)[: pick(1, tensor.ndim + 1)]) - tensor.ndim
    attrs = {"keepdims": pick(0, 2), "noop_with_empty_axes": pick(0, 2)}
    for name in REDUCTIONS:
        x = abs(tensor) + np.float32(0.1) if name == "LogSum" else tensor
        agree("Reduce" + name, [x, axes], attrs)
        agree("Reduce" + name, [x], attrs)
        agree("Reduce" + name, [x.reshape(-1)[:1].reshape(())], attrs)
    axis = pick(-tensor.ndim, tensor.ndim)
    attrs = {"axis": axis, "select_last_index": pick(0, 2), "keepdims": pick(0, 2)}
    agree("ArgMax", [np.round(tensor)], attrs)
    agree("ArgMin", [np.round(tensor)], attrs)
    attrs = {"exclusive": pick(0, 2), "reverse": pick(0, 2)}
    agree("CumSum", [tensor, np.array(axis)], attrs)


def test_normalizations(tensor):
    axis = pick(-tensor.ndim, tensor.ndim)
    for name in ("Softmax", "LogSoftmax", "Hardmax"):
        agree(name, [tensor], {"axis": axis})
    scale, shift = normal(*tensor.shape[axis:]), normal(*tensor.shape[axis:])
    agree("LayerNormalization", [tensor, scale, shift], {"axis": axis}, outputs=3)
