"""Edge cases of the rules that no case of ONNX covers; most were found by mutants."""

from dataclasses import replace

import numpy as np
import onnx
import onnx.parser
import pytest
from numpy.testing import assert_allclose

import onnxjac as oj
from check_rule import check_rule
from models.one_node import one_node
from onnxjac.ops import Node, Step
from onnxjac.ops.numbers import numbers
from onnxjac.ops.rules import resize
from onnxjac.ops.rules.contrib.fused import skip_layer_normalization
from onnxjac.ops.rules.elementwise import dropout
from onnxjac.ops.rules.indexing import scatter_products
from onnxjac.ops.rules.layout import tensor_scatter
from onnxjac.ops.rules.quantization import per_block
from onnxjac.ops.rules.recurrent import rnn
from onnxjac.ops.rules.regions import roi_align


@pytest.mark.filterwarnings("ignore::onnxjac.OnnxJacWarning")
def test_entries_that_are_all_masked_out_have_no_softmax():
    x = np.array([[-np.inf, -np.inf], [0.0, np.log(3.0)]])
    dense = np.zeros((4, 4))
    dense[2:, 2:] = [[3 / 16, -3 / 16], [-3 / 16, 3 / 16]]
    check_rule("Softmax", [x], dense=dense)
    dense[2:, 2:] = [[3 / 4, -3 / 4], [-1 / 4, 1 / 4]]
    check_rule("LogSoftmax", [x], dense=dense)


@pytest.mark.filterwarnings("ignore::onnxjac.OnnxJacWarning")
@pytest.mark.parametrize("row", [[0.0, np.nan], [np.nan, 0.0], [-np.inf, np.nan], [np.nan] * 2])
@pytest.mark.parametrize("op_type", ["Softmax", "LogSoftmax"])
def test_a_nan_among_the_scores_is_in_j(op_type, row):
    m = oj.load(onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": 21]> f (double[2,2] x) => (double[2,2] y) '
        f"{{ y = {op_type}(x) }}"
    ))  # fmt: skip
    for engine in ("numpy", "onnxruntime"):
        J = oj.linearize(m, {"x": np.array([row, [0.0, 1.0]])}, engine=engine)
        blocks = J.tosparse().toarray().reshape(2, 2, 2, 2)
        assert np.isnan(blocks[0, :, 0]).any(axis=1).all()
        assert np.isfinite(blocks[1]).all()


def test_without_a_mask_an_output_of_zero_was_dropped():
    y = np.array([0.0, 2.0, 4.0, 0.0])
    step = Step("Dropout", "", 21, "dropout", ("x", "ratio", "training"), ("y",))
    node = Node(step, (np.arange(4.0), np.array(0.5), np.array(True)), (y, None))
    np.testing.assert_array_equal(dropout(numbers, node)[0, 0].diagonal(), [0, 2, 2, 0])


def test_a_vector_may_have_a_scale_per_entry():
    x, scale = np.int8([1, 2, 3]), np.array([0.5, 2.0, 4.0])
    step = Step("DequantizeLinear", "", 21, "q", ("x", "s"), ("y",), {"axis": 0})
    J = per_block(Node(step, (x, scale), (x * scale,)), 1, np.dtype(float))
    np.testing.assert_array_equal(J.toarray(), np.eye(3))


def test_of_two_factors_at_one_place_a_zero_stops_the_other():
    x, at = np.array([[2.0], [5.0]]), np.array([[0], [0]])
    updates = np.array([[0.0], [3.0]])
    slopes = scatter_products(numbers, x, updates, at, np.array([[0.0], [5.0]]))
    np.testing.assert_array_equal(slopes[1], [[6], [0]])


@pytest.mark.filterwarnings("ignore::onnxjac.OnnxJacWarning")
def test_a_region_outside_of_the_image_gives_zero():
    x, rois = np.ones((1, 1, 4, 4)), np.array([[0.0, 9, 9, 9, 9]])
    how = {"pooled_shape": [1, 1], "spatial_scale": 1.0}
    check_rule("MaxRoiPool", [x, rois], how, dense=np.zeros((1, 21)))


def test_an_output_that_is_left_out_is_none():
    step = Step("Dropout", "", 21, "dropout", ("x",), ("y",))
    node = Node(step, (1.0,), (2.0,))
    assert (node.output(0), node.output(1), node.output(2)) == (2.0, None, None)


@pytest.mark.parametrize("exclude", [0, 1])
def test_weights_that_are_normalised_stay_so_where_the_region_moves(exclude):
    x, roi = np.array([1.0, 4.0, 2.0, 8.0, 5.0]), np.array([0.15, 0.8])
    how = {"mode": "cubic", "exclude_outside": exclude, "axes": [0],
           "coordinate_transformation_mode": "tf_crop_and_resize"}  # fmt: skip
    check_rule("Resize", [x, roi, None, np.array([4])], how)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_reflected_at_the_only_pixel(mode):
    x, grid = np.array([[[[3.0, 5.0]]]]), np.array([[[[0.25, 0.75], [-0.5, -1.5]]]])
    how = {"mode": mode, "align_corners": 1, "padding_mode": "reflection"}
    check_rule("GridSample", [x, grid], how)


def test_same_upper_pads_each_axis_by_its_stride():
    draw = np.random.default_rng(0).normal
    how = {"auto_pad": "SAME_UPPER", "strides": [1, 3]}
    check_rule("Conv", [draw(size=(1, 1, 4, 7)), draw(size=(1, 1, 2, 3))], how)


@pytest.mark.filterwarnings("ignore::onnxjac.OnnxJacWarning")
def test_a_region_of_the_second_image():
    x = np.arange(30.0).reshape(2, 1, 3, 5)
    dense = np.zeros((1, 35))
    dense[0, 15 + 5 + 2] = 1
    how = {"pooled_shape": [1, 1], "spatial_scale": 1.0}
    check_rule("MaxRoiPool", [x, np.array([[1.0, 0, 0, 2, 1]])], how, dense=dense)


def test_as_many_samples_as_a_bin_has_pixels():
    x, rois = np.random.default_rng(0).normal(size=(1, 1, 8, 8)), np.array([[1.1, 2.2, 6.3, 7.4]])
    how = {"output_height": 2, "output_width": 2}
    steps = (
        Step("RoiAlign", "", 21, "r", ("x", "r", "b"), ("y",), {**how, "sampling_ratio": ratio})
        for ratio in (0, 3)
    )
    nodes = [Node(step, (x, rois, np.array([0])), (None,)) for step in steps]
    np.testing.assert_allclose(*(roi_align(numbers, node)[0] for node in nodes))


def test_a_recurrence_in_reverse_is_one_of_the_reversed_sequence():
    draw = np.random.default_rng(0).normal
    x, w, r = draw(size=(3, 1, 2)), draw(size=(1, 2, 2)), draw(size=(1, 2, 2))
    step = Step("RNN", "", 21, "rnn", ("x", "w", "r"), ("y",))
    back = replace(step, attrs={"direction": "reverse"})
    there = rnn(numbers, Node(step, (x, w, r), (None,)))[0]
    again = rnn(numbers, Node(back, (x[::-1], w, r), (None,)))[0]
    np.testing.assert_allclose(again, there[::-1])


def test_a_kernel_that_shrinks_an_image_reaches_further():
    how = {"mode": "linear", "antialias": 1, "exclude_outside": 1, "axes": [0]}
    at = (np.arange(3) + 0.5) * 8 / 3 - 0.5
    weights = np.maximum(1 - np.abs(np.arange(8) - at[:, None]) * 3 / 8, 0)
    dense = weights / weights.sum(1, keepdims=True)
    check_rule("Resize", [np.arange(8.0) ** 2, None, None, np.array([3])], how, dense=dense)


def test_the_least_variance_of_a_skipped_layer_is_tiny():
    x, gamma = np.array([[[1.0, 2.0, 4.0]]]), np.ones(3)
    step = Step("SkipLayerNormalization", "com.microsoft", 1, "n", ("x", "s", "g"), ("y",))
    node = Node(step, (x, np.zeros_like(x), gamma), (x,))
    y = skip_layer_normalization(numbers, node)[0]
    np.testing.assert_allclose(y, (x - x.mean()) / x.std(), rtol=1e-9)


SCATTERS = {
    "ScatterElements": ("<axis = 0, reduction = {}>", [[0, 1], [0, 1], [2, 1], [-3, 0]]),
    "ScatterND": ("<reduction = {}>", [[0], [0], [2], [-3]]),
}


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
@pytest.mark.parametrize("name", SCATTERS)
def test_an_entry_that_is_written_twice_is_as_its_value_says(name, reduction):
    """Against central differences of ONNX Runtime: at the point, relinearised, and exported."""
    options, rows = SCATTERS[name]
    again, apart = np.array(rows), np.array([[1], [0], [2], [2]]) + 0 * np.array(rows)
    width = again.shape[1]
    m = oj.load(onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": 21]> f (double[3,2] x, double[4,2] u, '
        f"int64[4,{width}] i) => (double[3,2] y) "
        f"{{ y = {name}{options.format(repr(reduction).replace(chr(39), chr(34)))}(x, i, u) }}"
    ))  # fmt: skip
    draw = np.random.default_rng(3)
    inputs = {"x": draw.uniform(1, 2, (3, 2)), "u": draw.uniform(1, 2, (4, 2)), "i": again}
    columns = []
    for k in ("x", "u"):
        for d in np.eye(inputs[k].size).reshape(-1, *inputs[k].shape) * 1e-6:
            ends = (m.run({**inputs, k: inputs[k] + s * d})["y"] for s in (1, -1))
            columns.append(np.subtract(*ends).ravel() / 2e-6)
    wanted = np.transpose(columns)
    J = oj.linearize(m, inputs, wrt=["x", "u"])
    K = oj.linearize(m, {**inputs, "i": apart}, wrt=["x", "u"])
    K = K.relinearize({**inputs, "i": apart, "x": inputs["x"] + 1})
    for matrix in (J.toarray(), J.T.toarray().T, K.relinearize(inputs).toarray()):
        np.testing.assert_allclose(matrix, wanted, atol=1e-8)
    vjp = oj.load(oj.export(m, "vjp", {**inputs, "i": apart}, wrt=["x", "u"]))
    cotangents = vjp.run({**inputs, "y_cotangent": np.arange(6.0).reshape(3, 2)})
    found = np.concatenate([cotangents[f"{k}_cotangent"].ravel() for k in ("x", "u")])
    np.testing.assert_allclose(found, wanted.T @ np.arange(6.0), atol=1e-7)


def test_a_cache_is_written_round_and_round():
    """With more updates than cache positions, the last ones remain."""
    J = tensor_scatter(numbers, Node(
        Step("TensorScatter", "", 24, "n", ("x", "u", "i"), ("y",), {"mode": "circular"}),
        (np.zeros((1, 3, 2)), np.zeros((1, 5, 2)), np.array([1])), (np.zeros((1, 3, 2)),),
    ))[0, 1]  # fmt: skip
    y = (J @ np.arange(1.0, 11)).reshape(3, 2)
    np.testing.assert_array_equal(y, [[5, 6], [7, 8], [9, 10]])


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize(("op_type", "gates"), [("RNN", 1), ("GRU", 3), ("LSTM", 4)])
def test_the_last_state_of_an_empty_sequence_is_zero(op_type, gates, direction):
    """As in ONNX Runtime, in values and derivatives; ONNX does not specify it."""
    n, extra = 1 + (direction == "bidirectional"), op_type == "LSTM"
    m = oj.load(onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": 21]> f (float[3,2,2] x, float[{n},{2 * gates},2] w, '
        f"float[{n},{2 * gates},2] r, int32[2] l, float[{n},2,2] h, float[{n},2,2] c) => "
        f"(float[{n},2,2] z) {{ y, z = {op_type} <hidden_size = 2, direction = \"{direction}\"> "
        f"(x, w, r, , l, h{', c' * extra}) }}"
    ))  # fmt: skip
    draw = np.random.default_rng(1)
    inputs = {k: draw.standard_normal(s.shape).astype("f4") for k, s in m.inputs.items()}
    inputs["l"] = np.int32([2, 0])
    J = oj.linearize(m, inputs, of="z", wrt="h")
    assert not J.primal["z"][:, 1].any()
    np.testing.assert_allclose(
        J.primal["z"], oj.linearize(m, inputs, of="z", wrt="h", engine="numpy").primal["z"], 1e-5
    )
    blocks = J.toarray().reshape(n, 2, 2, n, 2, 2)
    assert not blocks[:, 1].any()
    assert blocks[:, 0].any()


RESIZE = """<ir_version: 10, opset_import: ["": 19]>
g (float[1,1,3,5] x) => (float[1,1,h,w] y)
<float[8] region = {0, 0, 0.1, 0.2, 1, 1, 0.9, 0.7}, float[4] scales = {1, 1, %s}>
{ y = Resize<mode="%s", coordinate_transformation_mode="%s", nearest_mode="%s">(x, region, scales) }
"""


@pytest.mark.parametrize("scales", ["2.5, 0.85", "1.3, 1.1"])
@pytest.mark.parametrize("rounding", resize.ROUNDED)
@pytest.mark.parametrize("transformation", resize.TRANSFORMS)
def test_resize_by_every_transformation(transformation, rounding, scales):
    """Resize is linear in x, so J x = y. Scales that keep the size may still change values."""
    x = np.arange(15, dtype=np.float32).reshape(1, 1, 3, 5) ** 2
    for mode in ("nearest", "linear", "cubic"):
        how = scales, mode, transformation, rounding
        model = oj.load(onnx.parser.parse_model(RESIZE % how))
        expected = model.run({"x": x}, engine="numpy")["y"]
        J = oj.linearize(model, {"x": x})
        np.testing.assert_allclose(J.primal["y"], expected, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(J @ x.ravel(), expected.ravel(), rtol=1e-4, atol=1e-4)


def test_the_half_pixel_of_the_nearest_neighbour_in_tensorflow():
    """Entry j of y is entry ⌊(j + ½) / 2⌋ of x."""
    how = {"coordinate_transformation_mode": "tf_half_pixel_for_nn", "nearest_mode": "floor"}
    x = np.arange(4.0).reshape(1, 1, 4)
    dense = np.eye(4)[[1, 3]]
    inputs = [x, None, np.float32([1, 1, 0.5])]
    model = oj.load(one_node("Resize", inputs, how, 1, 19), dtype="float64")
    J = oj.linearize(model, {"x0": x, "x2": inputs[2]}, wrt="x0", engine="numpy")
    np.testing.assert_array_equal(J.toarray(), dense)


@pytest.mark.parametrize("index", [[0, 1], [-1, -3]])
def test_one_entry_that_is_gathered_is_a_scalar(index):
    check_rule("GatherND", [np.arange(6.0).reshape(2, 3), np.array(index)])


@pytest.mark.parametrize(
    ("index", "structure"),
    [(1, "slice"), (-3, "slice"), ([1], "take"), ([[1, 2]], "take"), ([2, 0], "take"), ([], "")],
)
@pytest.mark.parametrize("axis", [0, 1])
def test_a_known_row_is_a_slice(index, structure, axis):
    x, index = np.arange(9.0).reshape(3, 3), np.array(index, np.int64)
    check_rule("Gather", [x, index], {"axis": axis}, dense=np.eye(9)[
        np.take(np.arange(9).reshape(3, 3), index, axis).ravel()])  # fmt: skip
    model = oj.load(one_node("Gather", [x, index], {"axis": axis}, 1, 13))
    J = oj.linearize(model, {"x0": x, "x1": index}, wrt="x0")
    assert structure in repr(J.dag.edges[0].operator) if index.size else not J.dag.edges


@pytest.mark.parametrize("training", [0, 1])
def test_a_batch_of_numbers_has_one_channel(training):
    one = np.array([0.5])
    inputs = [np.arange(4.0), one, 2 * one, 3 * one, 4 * one]
    outputs = 3 if training else 1
    check_rule("BatchNormalization", inputs, {"training_mode": training}, outputs=outputs)


SECOND = {
    "LayerNormalization": ([(2, 3), (3,), (3,)], {"axis": 1}, 3),
    "BatchNormalization": ([(2, 3), *[(3,)] * 4], {"training_mode": 1}, 3),
    "Attention": ([(1, 2, 3, 4)] * 3 + [(3, 5)] + [(1, 2, 2, 4)] * 2, {"softcap": 2.0}, 4),
    "RNN": ([(3, 2, 2), (1, 3, 2), (1, 3, 3)], {"hidden_size": 3}, 2),
    "GRU": ([(3, 2, 2), (1, 9, 2), (1, 9, 3)], {"hidden_size": 3}, 2),
    "LSTM": ([(3, 2, 2), (1, 12, 2), (1, 12, 3)], {"hidden_size": 3}, 3),
    "Unique": ([(5,)], {}, 4),
}


@pytest.mark.parametrize("op_type", SECOND)
def test_all_outputs_have_derivatives(op_type):
    shapes, how, outputs = SECOND[op_type]
    draw = np.random.default_rng(0).random
    check_rule(op_type, [draw(shape) for shape in shapes], how, outputs=outputs, opset=23)


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
def test_all_outputs_of_a_loss_have_derivatives(reduction):
    x, labels = np.random.default_rng(0).random((2, 3)), np.array([0, 2])
    check_rule("SoftmaxCrossEntropyLoss", [x, labels], {"reduction": reduction}, outputs=2)


@pytest.mark.parametrize("op_type", ["L1", "L2", "LogSum", "LogSumExp", "Mean", "Sum", "SumSquare"])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.filterwarnings("ignore::onnxjac.OnnxJacWarning")
def test_reductions_of_an_empty_tensor_that_drop_the_axis(op_type, axis):
    proto = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["": 21]>
        g (double[3,0] x) => (double[n] y) <int64[1] a = {{{axis}}}>
        {{ y = Reduce{op_type}<keepdims = 0>(x, a) }}""")
    J = oj.linearize(oj.load(proto), {"x": np.zeros((3, 0))})
    assert J.toarray().shape == J.shape == ((0, 0) if axis == 0 else (3, 0))


@pytest.mark.parametrize(("shape", "axis"), [
    ((0,), None), ((2, 0), None), ((0, 2), 0), ((2, 0), 0), ((0, 2), 1), ((2, 0), 1),
], ids=str)  # fmt: skip
@pytest.mark.filterwarnings("ignore::onnxjac.OnnxJacWarning")
def test_unique_entries_and_slices_of_an_empty_tensor_have_an_empty_jacobian(shape, axis):
    sizes, how = ",".join(map(str, shape)), "" if axis is None else f"<axis = {axis}>"
    model = model_of(f"g (double[{sizes}] x) => (double[{'n' if axis is None else 'n,m'}] y) "
                     f"{{ y = Unique{how}(x) }}")  # fmt: skip
    J = oj.linearize(model, {"x": np.zeros(shape)}, engine="numpy")
    assert J.toarray().shape == J.shape == (0, 0)


def model_of(text):
    return oj.load(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> {text}'))


@pytest.mark.parametrize("sizes", [(2, 1, 1, 2), (2, 1, 2, 2)])
def test_a_single_point_between_aligned_corners(sizes):
    """Its place is 0 by ONNX, where ONNX Runtime gives -1."""
    model = model_of("g (double[2,2,3] t, int64[4] z) => (double[n,h,w,2] o) "
                     "{ o = AffineGrid<align_corners=1>(t, z) }")  # fmt: skip
    point = {"t": np.arange(12.0).reshape(2, 2, 3), "z": np.array(sizes)}
    J = oj.linearize(model, point, wrt="t")
    assert_allclose(J.primal["o"], model.run(point, engine="numpy")["o"])
    assert_allclose(J @ point["t"].ravel(), J.primal["o"].ravel(), atol=1e-12)


@pytest.mark.parametrize("n", [1, 3, 4, 6])
def test_a_onesided_spectrum_is_turned_back_to_any_length(n):
    model = model_of(f"g (double[1,3,2] x) => (double[1,k,1] o) <int64 n={{{n}}}, int64 a={{1}}> "
                     "{ o = DFT<inverse=1, onesided=1>(x, n, a) }")  # fmt: skip
    x = np.random.default_rng(0).standard_normal((1, 3, 2))
    J = oj.linearize(model, {"x": x})
    assert_allclose(J.primal["o"].ravel(), np.fft.irfft(x @ [1, 1j], n).ravel(), atol=1e-12)
    assert_allclose(J @ x.ravel(), J.primal["o"].ravel(), atol=1e-12)


def test_half_a_spectrum_of_one_entry_is_turned_back_to_nothing():
    """Without a length, 2 (n - 1) = 0 numbers."""
    model = model_of("g (float[1,1,2] x) => (float[1,k,1] o) {"
                     "o = DFT<inverse=1, onesided=1>(x) }")  # fmt: skip
    J = oj.linearize(model, {"x": np.ones((1, 1, 2), np.float32)}, engine="onnxruntime")
    assert J.toarray().shape == (0, 2)


def test_a_product_over_an_empty_axis():
    model = model_of("g (double[2,3,0] a, double[0,4] b) => (double[2,3,4] y) { y = MatMul(a, b) }")
    J = oj.linearize(model, {"a": np.zeros((2, 3, 0)), "b": np.zeros((0, 4))})
    assert J.toarray().shape == (24, 0)


@pytest.mark.parametrize("start", [-(2**31), -(2**63), -5, 2**31])
@pytest.mark.parametrize("n", [0, 3])
def test_a_slice_backwards_that_starts_far_away(n, start):
    model = model_of("g (double[n] x, int64[1] s, int64[1] e, int64[1] t) => (double[k] y) "
                     "{ y = Slice(x, s, e, , t) }")  # fmt: skip
    point = {"x": np.arange(float(n)), "s": np.array([start]), "e": np.array([-9]),
             "t": np.array([-1])}  # fmt: skip
    J = oj.linearize(model, point, wrt="x")
    expected = np.arange(float(n))[max(start, -n) if n else 0 : -9 : -1]
    assert_allclose(J.primal["y"], expected)
    assert_allclose(J @ point["x"], expected)


def test_an_einsum_of_nothing_does_not_end_the_process():
    """ONNX Runtime divides by the length of the axis."""
    model = model_of('g (double[2,0] x, double[3,0] y, double[3,2] z) => (double[2,2] o) '
                     '{ o = Einsum<equation="ij,kj,kl->il">(x, y, z) }')  # fmt: skip
    point = {"x": np.ones((2, 0)), "y": np.ones((3, 0)), "z": np.ones((3, 2))}
    assert not oj.linearize(model, point).toarray().any()
    with pytest.raises(oj.OnnxJacError, match="ends the process"):
        model.run(point, engine="onnxruntime")


FATAL = {
    "GRU": ("y, z = GRU<hidden_size = 2>(x, w, r)", (3, 0, 1), 6),
    "LSTM": ("y, z = LSTM<hidden_size = 2>(x, w, r)", (3, 0, 1), 8),
    "Unique": ("y, i, j, z = Unique<axis = 0>(x)", (3, 0, 1), 1),
}


@pytest.mark.parametrize("op", FATAL)
def test_an_empty_operand_does_not_end_the_process(op):
    body, shape, gates = FATAL[op]
    model = model_of(f"g (float[a,b,c] x, float[1,{gates},1] w, float[1,{gates},2] r) "
                     f"=> (float[d,e,f,g] y) {{ {body} }}")  # fmt: skip
    point = {"x": np.ones(shape, np.float32), "w": np.ones((1, gates, 1), np.float32),
             "r": np.ones((1, gates, 2), np.float32)}  # fmt: skip
    assert oj.linearize(model, point, wrt="x").shape == (0, 0)
    with pytest.raises(oj.OnnxJacError, match="ends the process"):
        model.run(point, engine="onnxruntime")


@pytest.mark.parametrize("engine", ["numpy", None])
@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
@pytest.mark.parametrize(("op", "gates"), [("RNN", 1), ("GRU", 3), ("LSTM", 4)])
def test_recurrences_over_no_time_steps_end_in_zero_states(op, gates, direction, engine):
    """The last states are 0, as in ONNX Runtime, whatever the initial ones."""
    d = 2 if direction == "bidirectional" else 1
    model = model_of(
        f"g (float[t,3,2] x, float[{d},{2 * gates},2] w, float[{d},{2 * gates},2] r, "
        f"float[{d},3,2] h) => (float[t,{d},3,2] y, float[{d},3,2] z) "
        f'{{ y, z = {op}<hidden_size = 2, direction = "{direction}">(x, w, r, , , h) }}'
    )
    rng = np.random.default_rng(0)
    sizes = {"x": (0, 3, 2), "w": (d, 2 * gates, 2), "r": (d, 2 * gates, 2), "h": (d, 3, 2)}
    point = {name: rng.standard_normal(n).astype(np.float32) for name, n in sizes.items()}
    with pytest.warns(oj.OnnxJacWarning, match="'z' does not depend"):
        J = oj.linearize(model, point, engine=engine)
    assert J.primal["y"].shape == (0, d, 3, 2)
    assert_allclose(J.primal["z"], np.zeros((d, 3, 2)))
    for K in (J, J.compile()):
        assert not K.toarray().any()
        assert not K.T.toarray().any()
    longer = J.relinearize({**point, "x": np.ones((2, 3, 2), np.float32)})
    assert longer.toarray().any()


def test_a_resize_to_sizes_has_no_scales():
    model = model_of("g (double[1,4] x, float[0] s, int64[2] n) => (double[1,k] y) "
                     "{ y = Resize<mode=\"linear\">(x, , s, n) }")  # fmt: skip
    point = {"x": np.arange(4.0)[None], "s": np.zeros(0, np.float32), "n": np.array([1, 7])}
    J = oj.linearize(model, point, wrt=["s", "x"], engine="numpy")
    assert_allclose(J @ point["x"].ravel(), J.primal["y"].ravel())


@pytest.mark.parametrize("mode", ["avg", "max"])
def test_a_jacobian_of_no_regions_has_no_rows(mode):
    point = {"x": np.ones((1, 2, 5, 5)), "r": np.zeros((0, 4)), "i": np.zeros(0, np.int64)}
    model = model_of("g (double[1,2,5,5] x, double[n,4] r, int64[n] i) => (double[n,2,1,1] y) "
                     f"{{ y = RoiAlign<mode=\"{mode}\">(x, r, i) }}")  # fmt: skip
    assert oj.linearize(model, point, engine="numpy").toarray().shape == (0, 50)


@pytest.mark.filterwarnings("ignore::onnxjac.OnnxJacWarning")
@pytest.mark.parametrize("op_type", ["NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"])
def test_a_mean_over_ignored_labels_alone_has_no_derivative(op_type):
    """The mean is 0 / 0, and its derivative 0, as in PyTorch."""
    x, weights = np.arange(6.0).reshape(2, 3), np.array([1.0, 2.0, 3.0])
    how = {"ignore_index": 1, "reduction": "mean"}
    check_rule(op_type, [x, np.array([1, 1]), weights], how, dense=np.zeros((1, 9)))
