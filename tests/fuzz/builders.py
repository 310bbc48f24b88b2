"""Models that once crashed, hung, or raised something other than an `OnnxJacError`."""

from __future__ import annotations

import onnx
from onnx import TensorProto, helper, numpy_helper, parser

X = "float[2,3] x"


def text(body: str, inputs: str = X, opset: int = 21) -> onnx.ModelProto:
    """A model of one float output y, of any shape."""
    head = f'<ir_version: 10, opset_import: ["": {opset}]>'
    model = parser.parse_model(f"{head} g ({inputs}) => (float y) {{ {body} }}")
    model.graph.output[0].type.tensor_type.ClearField("shape")
    return model


def outside(location: str, kind: str) -> onnx.ModelProto:
    """y = x + w with w in an external file: an initializer or constant, in any kind of scope."""
    w = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2, 3])
    w.data_location = TensorProto.EXTERNAL
    w.external_data.add(key="location", value=location)
    if kind == "initializer":
        model = text("y = Add(x, w)", f"{X}, float[2,3] w")
        del model.graph.input[1]
        model.graph.initializer.append(w)
    elif kind == "constant":
        model = text("w = Constant<value_int=1>() y = Add(x, w)")
        model.graph.node[0].attribute[0].CopyFrom(helper.make_attribute("value", w))
    elif kind == "function":
        model = text("y = my.f(x)")
        add = helper.make_node("Add", ["a", "w"], ["b"])
        constant = helper.make_node("Constant", [], ["w"], value=w)
        imports = [helper.make_opsetid("", 21)]
        model.opset_import.add(domain="my", version=1)
        model.functions.append(
            helper.make_function("my", "f", ["a"], ["b"], [constant, add], imports)
        )
    else:
        model = text("""c = Constant<value = bool {1}>() y = If(c) <
            then_branch = p () => (float[2,3] t) { t = Add(x, w) },
            else_branch = q () => (float[2,3] e) { e = Neg(x) }>""")
        branch = model.graph.node[1].attribute[0].g
        branch.initializer.append(w)
    return model


def handed_through() -> onnx.ModelProto:
    """A function whose output is its input."""
    model = text("h = my.f(x) y = Neg(h)")
    model.opset_import.add(domain="my", version=1)
    body = [helper.make_node("Tanh", ["a"], ["t"])]
    imports = [helper.make_opsetid("", 21)]
    model.functions.append(helper.make_function("my", "f", ["a"], ["a"], body, imports))
    return model


def not_utf8() -> onnx.ModelProto:
    """A string attribute that is not UTF-8."""
    model = text('s = Constant<value_floats=[1.0,2.0]>() y = Resize<mode="linear">(x, "", s)')
    model.graph.node[1].attribute[0].s = b"\xff\xfe"
    return model


def without_type() -> onnx.ModelProto:
    """An attribute of type UNDEFINED."""
    model = text("y = Softmax<axis=1>(x)")
    model.graph.node[0].attribute[0].type = onnx.AttributeProto.UNDEFINED
    return model


def misfit(dims: list[int]) -> onnx.ModelProto:
    """A constant whose dims do not fit its data."""
    model = text("w = Constant<value = float[3] {1, 2, 3}>() y = Add(x, w)")
    model.graph.node[0].attribute[0].t.dims[:] = dims
    return model


def left_out(op_type: str) -> onnx.ModelProto:
    """A required operand, omitted by the empty name: ONNX Runtime crashes."""
    return text(f'y = {op_type}(x, x, "")')


def huge_vector() -> onnx.ModelProto:
    """The data propagation of ONNX's shape inference visits every entry of a vector."""
    return text("""n = Constant<value_ints=[1099511627776]>() s = Shape(x) r = Reshape(s, n)
        o = Constant<value_ints=[1]>() t = Concat<axis=0>(o, r) y = Reshape(x, t)""")


def negative_axis() -> onnx.ModelProto:
    """The version converter of ONNX aborts on Slice along a negative axis."""
    model = text("""a = Constant<value_ints=[0]>() b = Constant<value_ints=[1]>()
        y = Slice(x, a, b, b)""", opset=13)  # fmt: skip
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = -7
    return model


def too_few_rows() -> onnx.ModelProto:
    """A Scan with more outputs than its body."""
    return text("""s = Constant<value = float[3] {0, 0, 0}>()
        last, y = Scan(s, x) <num_scan_inputs = 1, body = b (float[3] s, float[3] v)
            => (float[3] r) { r = Add(s, v) }>""")


def scans_many() -> onnx.ModelProto:
    """A Scan over more inputs than it has, or than fit into memory."""
    return text("""s = Constant<value = float[3] {0, 0, 0}>()
        last, y = Scan(s, x) <num_scan_inputs = 1099511627776, body = b (float[3] s, float[3] v)
            => (float[3] r, float[3] o) { r = Add(s, v) o = Exp(r) }>""")


def labels() -> onnx.ModelProto:
    """More labels than scores: ONNX Runtime accepts them."""
    model = text('y = NegativeLogLikelihoodLoss<reduction="none">(x, t)', "float[1,3] x")
    model.graph.initializer.append(numpy_helper.from_array(LABELS, "t"))
    return model


def normalized(body: str) -> onnx.ModelProto:
    """ONNX's shape inference truncates axes to 32 bits, so that they become negative."""
    return text(f"y, mean, deviation = {body}", f"{X}, float[2,3] w", opset=17)


def handed(value: onnx.AttributeProto, formal: str) -> onnx.ModelProto:
    """An attribute passed to a function whose body declares another type for it."""
    model = normalized("my.f(x, w)")
    model.opset_import.add(domain="my", version=1)
    model.graph.node[0].attribute.append(value)
    op_type, outputs = "LayerNormalization", ["y", "m", "d"]
    node = helper.make_node(op_type, ["x", "w"], outputs)
    node.attribute.add(name="axis", ref_attr_name="k", type=formal)
    imports = [helper.make_opsetid("", 17)]
    model.functions.append(
        helper.make_function("my", "f", ["x", "w"], outputs, [node], imports, ["k"])
    )
    return model


def without_results() -> onnx.ModelProto:
    """A SequenceMap whose body has no outputs, which ONNX's inliner does not expect."""
    return text("""q = SequenceConstruct(x) r = SequenceMap(q)
        <body = b (float[2,3] v) => () { w = Exp(v) }> y = ConcatFromSequence<axis=0>(r)""")


def without_kind() -> onnx.ModelProto:
    """An input of undefined type."""
    model = text("y = Exp(x)", f"{X}, float[1] like")
    model.graph.input[1].type.tensor_type.elem_type = TensorProto.UNDEFINED
    return model


LABELS = numpy_helper.to_array(helper.make_tensor("t", TensorProto.INT64, [3], [1, 0, 2]))

REFUSED = {
    "attribute that is not text": (not_utf8, "UTF-8"),
    "attribute without a type": (without_type, "has no type"),
    "constant with too few dims": (lambda: misfit([2]), "cannot be read"),
    "constant with a dim of -1": (lambda: misfit([-1]), "cannot be read"),
    "constant with huge dims": (lambda: misfit([2**62, 2**62]), "cannot be read"),
    "operand of Min left out": (lambda: left_out("Min"), "leaves out"),
    "operand of Mean left out": (lambda: left_out("Mean"), "leaves out"),
    "maximum of padding alone": (
        lambda: text("y = MaxPool<kernel_shape=[1, 3], pads=[2, 2, 2, 2]>(x)", "float[1,1,4,4] x"),
        "nothing but padding"),
    "negative axis": (negative_axis, "axis of -7"),
    "axis of 64 bits": (
        lambda: normalized("LayerNormalization<axis=9223372036854775807>(x, w)"), "many axes"),
    "axis of 64 bits, handed on": (
        lambda: handed(helper.make_attribute("k", 2**63 - 1), "INT"), "many axes"),
    "graph handed on": (lambda: handed(helper.make_attribute("k", 1), "GRAPH"), "attribute type"),
    "graphs handed on": (lambda: handed(helper.make_attribute("k", 1), "GRAPHS"), "attribute type"),
    "groups of no channels": (
        lambda: text("y = Conv<group=0>(x, w)", "float[2,0,8] x, float[4,1,4] w"), "group=0"),
    "body without results": (without_results, "has no body"),
    "signal of four axes": (
        lambda: text("n = Constant<value_int=8>() y = STFT(x, n)", "float[1,32,1,32] x"),
        r"STFT \(.*takes \[batch, length, parts\], not x \[1, 32, 1, 32\]"),
    "recurrent layer of many steps": (
        lambda: text("y = RNN<hidden_size=1>(x, w, r)",
                     "float[2001,1,1] x, float[1,1,1] w, float[1,1,1] r"), "2,001 steps"),
    "input of no type": (without_kind, "missing input: like"),
    "huge vector of a shape": (huge_vector, ""),
    "body with too few outputs": (too_few_rows, "gives? 1 outputs, not 2"),
    "more scanned inputs than inputs": (scans_many, "num_scan_inputs=1099511627776 of 2"),
    "empty tensor with a size beyond counting": (
        lambda: text("s = Constant<value_ints=[0, 4611686018427387904, 4611686018427387904]>() "
                     "r = Reshape<allowzero=1>(x, s) y = Transpose<perm=[1, 0, 2]>(r)"),
        "cannot reshape"),
    "window with negative pads": (
        lambda: text("y = AveragePool<kernel_shape=[3], pads=[0, -1]>(x)", "float[1,2,8] x"),
        r"pads=\[0, -1\]: it must be 0 or more"),
    "window that goes back": (
        lambda: text("y = Conv<dilations=[-1]>(x, w)", "float[1,2,8] x, float[1,2,3] w"),
        r"dilations=\[-1\]: it must be 1 or more"),
    "more parts than outputs": (
        lambda: text("y = Split<axis=0, num_outputs=4611686018427387904>(x)", opset=18),
        "it gives 1"),
    "fewer parts than outputs": (
        lambda: text("y, z, r = Split<axis=0, num_outputs=2>(x)", "float[6] x", opset=18),
        "it gives 3"),
    "axes that are no permutation": (
        lambda: text("y = Transpose<perm=[1, 0, -2]>(x)", "float[1,2,3] x"), "each axis once"),
    "labels that do not fit": (labels, "labels have shape"),
    "weights that are no vector": (
        lambda: text("y = NegativeLogLikelihoodLoss(p, t, w)",
                     "float[64,2,64,64] p, int64[64,64,64] t, float[2,1,1] w"), "weights have"),
    "function that gives what it is given": (handed_through, "breaks ONNX's rules"),
    "kernel that does not fit": (
        lambda: text("i = Unsqueeze(x, o) y = ConvTranspose<group=2>(i, w)",
                     "float[1,2,3] x, int64[1] o, float[1,1,1,2] w"), ""),
    "sequences longer than time": (
        lambda: text("n = Constant<value_ints=[9,1,1]>() y = ReverseSequence(x, n)"), "time axis|"),
    "numbers in 64 parts": (lambda: text("y = DFT(x)", "float[1,8,64] x", 20), ""),
    "samples of a region": (
        lambda: text("y = RoiAlign<sampling_ratio=32768>(x, r, i)",
                     "float[1,1,10,10] x, float[3,4] r, int64[3] i"), "limit"),
    "padding that is cropped": (
        lambda: text("y = ConvTranspose<strides=[1099511627776]>(x, w)",
                     "float[1,1,3] x, float[1,1,1] w"), "limit"),
    "sizes that overflow": (
        lambda: text("n = Constant<value_ints=[2,4611686018427387904]>() y = Tile(x, n)"), "limit"),
    "sizes that overflow to 0": (
        lambda: text("n = Constant<value_ints=[2,4611686018427387904]>() y = Tile(x, n)",
                     "float[2,4] x"), "limit"),
    "signal without an axis to move along": (
        lambda: text("y = Conv(x, x)", "float[3,3] x"), "no axis that a kernel moves along"),
    "pool put back without an axis of its kernel": (
        lambda: text("i = Constant<value = int64[1,1,2,2] {0, 1, 2, 3}>() "
                     "y = MaxUnpool<kernel_shape=[2,2]>(x, i)", "float[1,1,2,2,1] x"),
        "have one shape"),
}  # fmt: skip
"""Models that must be refused, and a part of the message."""
