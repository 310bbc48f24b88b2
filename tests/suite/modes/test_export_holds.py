"""Exports at points and sizes other than the recorded ones: correct, or declared invalid."""

import numpy as np
import onnx
import pytest

import onnxjac as oj

from .test_export import run

HEAD = '<ir_version: 10, opset_import: ["": 21]>\n'
SIZES = (1, 2, 5, 8, 20)


def load(text):
    return oj.load(onnx.parser.parse_model(HEAD + text))


def random(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def dims(proto, name):
    """The declared shape of an input or an output."""
    (value,) = (v for v in (*proto.graph.input, *proto.graph.output) if v.name == name)
    return [d.dim_param or d.dim_value for d in value.type.tensor_type.shape.dim]


def metadata(proto):
    return {p.key: p.value for p in proto.metadata_props}


def agree(model, proto, point, mode, of="y", wrt="x"):
    """Check the exported file in ONNX Runtime against the operator at that point."""
    J = oj.linearize(model, point, of=of, wrt=wrt)
    feeds = {v.name: point[v.name] for v in proto.graph.input if v.name in point}
    if mode == "jacobian":
        found = run(proto, feeds)[f"{of}_{wrt}_jacobian"]
        wanted = J.toarray().reshape(J.codomain[0].shape + J.domain[0].shape)
    elif mode == "jvp":
        v = random(*J.domain[0].shape, seed=1)
        found = run(proto, {**feeds, f"{wrt}_tangent": v})[f"{of}_tangent"]
        wanted = J.apply({wrt: v})[of]
    else:
        u = random(*J.codomain[0].shape, seed=1)
        found = run(proto, {**feeds, f"{of}_cotangent": u})[f"{wrt}_cotangent"]
        wanted = J.T.apply({of: u})[wrt]
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9)


MIXED = {
    "a running sum": "(double[N,2] x)=>(double[N,2] y) <int64 a={0}> {y=CumSum(x,a)}",
    "the first sample": """(double[N,2] x)=>(double[N,2] y) <int64[1] a={0}, int64[1] b={1}>
        {f=Slice(x,a,b,a) y=Sub(x,f)}""",
    "a softmax over samples": "(double[N,2] x)=>(double[N,2] y) {y=Softmax<axis=0>(x)}",
    "the mean": """(double[N,2] x)=>(double[N,2] y) <int64[1] a={0}>
        {m=ReduceMean(x,a) y=Mul(x,m)}""",
    "a sum that shows at no point": """(double[N,2] x)=>(double[N,2] y)
        <int64 a={0}, double c={1000}> {s=CumSum(x,a) t=Sub(s,c) r=Relu(t) y=Add(r,x)}""",
    "an order": """(double[N,2] x)=>(double[N,2] y)
        {n=Shape<start=0,end=1>(x) y,i=TopK<axis=0>(x,n)}""",
}


@pytest.mark.parametrize("case", MIXED)
@pytest.mark.parametrize("same", [False, True])
def test_a_jacobian_between_samples_is_whole(case, same):
    """Also at a point whose samples are all the same."""
    model = load(f"mixed {MIXED[case]}")
    point = {"x": np.ones((3, 2)) if same else random(3, 2)}
    proto = oj.export(model, "jacobian", point)
    assert dims(proto, "y_x_jacobian") == ["N", 2, "N", 2]
    for n in SIZES:
        agree(model, proto, {"x": random(n, 2, seed=2)}, "jacobian")


def test_a_jacobian_of_samples_alone_stays_one_of_samples():
    """Also at a point whose samples are all the same, and through other shapes."""
    text = """(double[N,4,3] x)=>(double[N,2] y) <double[3,3] W={1,2,0,1,0,1,3,1,1},
        double[12,2] V={1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7,8,9,1,2,3,4,5,6}, int64[2] rows={-1,3},
        int64[2] flat={-1,12}>
        {r=Reshape(x,rows) h=MatMul(r,W) s=Softmax<axis=1>(h) f=Reshape(s,flat) y=MatMul(f,V)}"""
    model = load(f"alone {text}")
    proto = oj.export(model, "jacobian", {"x": np.ones((3, 4, 3))})
    assert dims(proto, "y_x_jacobian") == ["N", 2, 4, 3]
    for n in SIZES:
        x = random(n, 4, 3)
        whole = oj.linearize(model, {"x": x}).toarray().reshape(n, 2, n, 4, 3)
        blocks = np.stack([whole[k, :, k] for k in range(n)])
        np.testing.assert_allclose(run(proto, {"x": x})["y_x_jacobian"], blocks, atol=1e-12)


FOLLOWING = {
    "half": """(double[N,2] x)=>(double[K,2] y) <int64[1] a={2}, int64[1] z={0}>
        {n=Shape<start=0,end=1>(x) h=Div(n,a) q=Slice(x,z,h,z) y=Mul(q,q)}""",
    "at most 6": """(double[N,2] x)=>(double[K,2] y) <int64[1] a={6}, int64[1] z={0}>
        {n=Shape<start=0,end=1>(x) h=Min(n,a) q=Slice(x,z,h,z) y=Mul(q,q)}""",
    "at most 700": """(double[N,2] x)=>(double[K,2] y) <int64[1] a={700}, int64[1] z={0}>
        {q=Slice(x,z,a,z) y=Mul(q,q)}""",
    "odd or even": """(double[N,2] x)=>(double[N,2] y) <int64[1] a={2}>
        {n=Shape<start=0,end=1>(x) h=Mod(n,a) c=Cast<to=11>(h) q=Mul(x,x) y=Mul(q,c)
         }""",
    "a product": """(double[N,2] x)=>(double[2] y) <int64[1] a={0}>
        {y=ReduceProd<keepdims=0>(x,a)}""",
    "a running product": "(double[N,2] x)=>(double[N,2] y) <int64 a={0}> {y=CumProd(x,a)}",
    "all that is one": "(double[N,3,1] x)=>(double[N,3] y) {t=Tanh(x) y=Squeeze(t)}",
    "a branch": """(double[N,2] x)=>(double[N,2] y) <int64[1] a={500}>
        {n=Shape<start=0,end=1>(x) c=Less(n,a)
         y=If(c)<then_branch=t()=>(double[N,2] p){p=Sin(x)},
                 else_branch=e()=>(double[N,2] q){q=Cos(x)}>}""",
}
DECIDING = {
    "a product": ("N <= 4096", SIZES), "a running product": ("N <= 4096", SIZES),
    "all that is one": ("N != 1", (2, 5, 20)),
}  # fmt: skip
"""Graphs that depend on the size: the condition, and sizes that meet it."""


@pytest.mark.parametrize("mode", ["vjp", "jvp"])
@pytest.mark.parametrize("case", FOLLOWING)
def test_a_size_that_is_not_in_proportion_to_the_batch_is_followed(case, mode):
    text = FOLLOWING[case]
    head = HEAD.replace("21", "26") if "CumProd" in text else HEAD
    model = oj.load(onnx.parser.parse_model(f"{head} sized {text}"))
    inner, (guard, sizes) = list(model.inputs["x"].shape[1:]), DECIDING.get(case, ("", SIZES))
    if guard:
        with pytest.warns(oj.OnnxJacWarning, match=f"holds only where.*{guard}"):
            proto = oj.export(model, mode, {"x": random(3, *inner)})
        assert guard in metadata(proto)["onnxjac.guards"].split("\n")
    else:
        proto = oj.export(model, mode, {"x": random(3, *inner)})
    assert dims(proto, "x") == ["N", *inner]
    for n in sizes:
        agree(model, proto, {"x": random(n, *inner, seed=2)}, mode)


PASSING = {
    "a sum": "(double[N,3] x, double[N,3] b)=>(double[N,3] y) {y=Add(x,b)}",
    "a difference": "(double[N,3] b, double[N,3] x)=>(double[N,3] y) {y=Sub(x,b)}",
    "a sum with a product": """(double[N,3] x, double[N,2] b)=>(double[N,3] y)
        <double[2,3] W={1,2,3,4,5,6}> {h=MatMul(b,W) y=Add(x,h)}""",
}


@pytest.mark.parametrize("mode", ["vjp", "jvp"])
@pytest.mark.parametrize("case", PASSING)
def test_a_cotangent_that_passes_unchanged_keeps_the_batch_free(case, mode):
    model = load(f"passing {PASSING[case]}")
    wide = model.inputs["b"].shape[1]
    proto = oj.export(model, mode, {"x": random(3, 3), "b": random(3, wide)}, wrt="x")
    assert dims(proto, "x") == ["N", 3]
    for n in SIZES:
        agree(model, proto, {"x": random(n, 3), "b": random(n, wide)}, mode)


def test_a_batch_may_have_a_least_size():
    """The model does not run below it, and its export is right from there on."""
    text = "(double[N,2] x)=>(double[K,2] y) <int64[2] i={5,2}> {t=Tanh(x) y=Gather(t,i)}"
    model = load(f"rows {text}")
    proto = oj.export(model, "vjp", {"x": random(7, 2)})
    assert dims(proto, "x") == ["N", 2]
    for n in (6, 7, 20):
        agree(model, proto, {"x": random(n, 2)}, "vjp")


MASK = np.array([True, False, True, True])
ROWS = "(double[4,2] x, {} s)=>(double[K,L] y)"
NUMBERS = {
    "Slice": ("int64[1]", "<int64[1] e={9}> {r=Slice(x,s,e) y=Mul(r,r)}", [1], [[0], [3], [-2]]),
    "a sum of starts": ("int64[1]", """<int64[1] e={9}>
        {o=Add(s,s) r=Slice(x,o,e) y=Mul(r,r)}""", [1], [[0], [-1]]),
    "Trilu": ("int64", "{r=Trilu(x,s) y=Mul(r,r)}", 0, [1, -1]),
    "CumSum": ("int64", "{r=CumSum(x,s) y=Mul(r,r)}", 1, [0]),
    "Pad": ("int64[4]", "{r=Pad(x,s) y=Mul(r,r)}", [1, 0, 0, 2], [[0, 0, 1, 1], [2, 3, 0, 0]]),
    "TopK": ("int64[1]", "{r,i=TopK<axis=0>(x,s) y=Mul(r,r)}", [2], [[1], [4]]),
    "Reshape": ("int64[2]", "{r=Reshape(x,s) y=Mul(r,r)}", [2, 4], [[8, 1], [4, 2]]),
    "Expand": ("int64[3]", "{r=Expand(x,s) y=Mul(r,r)}", [3, 4, 2], [[1, 1, 2], [5, 4, 1]]),
    "Tile": ("int64[2]", "{r=Tile(x,s) y=Mul(r,r)}", [2, 1], [[1, 3], [1, 1]]),
    "ReverseSequence": ("int64[4]", """
        {r=ReverseSequence<batch_axis=0,time_axis=1>(x,s) y=Mul(r,r)}""",
        [2, 1, 2, 2], [[1, 1, 1, 1], [2, 2, 0, 1]]),
    "the rows of a mask": ("bool[4]", """
        {i=NonZero(s) t=Transpose(i) r=GatherND(x,t) y=Mul(r,r)}""", MASK, [~MASK]),
}
"""The kind of s, the graph, s at the point and elsewhere."""


@pytest.mark.parametrize("mode", ["vjp", "jvp", "jacobian"])
@pytest.mark.parametrize("case", NUMBERS)
@pytest.mark.filterwarnings("ignore:the derivative holds only where")
def test_numbers_that_are_followed_stay_inputs(case, mode):
    kind, text, here, others = NUMBERS[case]
    model = load(f"followed {ROWS.format(kind)} {text}")
    point = {"x": random(4, 2), "s": np.array(here)}
    proto = oj.export(model, mode, point, of="y", wrt="x")
    assert "onnxjac.held" not in metadata(proto)
    for s in (here, *others):
        agree(model, proto, {"x": random(4, 2, seed=3), "s": np.array(s)}, mode)


HELD = {
    "Compress": (ROWS.format("bool[4]") + " {r=Compress<axis=0>(x,s) y=Mul(r,r)}", MASK),
    "ReduceSum": (ROWS.format("int64[1]") + " {r=ReduceSum(x,s) y=Mul(r,r)}", np.array([1])),
    "Dropout": (ROWS.format("bool") + """ <float r={0.5}> {d=Dropout<seed=1>(x,r,s) y=Mul(d,d)}""",
                np.array(True)),
    "Dropout, a computed mode": (ROWS.format("bool") + """ <float r={0.5}>
        {m=Not(s) d=Dropout<seed=1>(x,r,m) y=Mul(d,d)}""", np.array(False)),
}


@pytest.mark.parametrize("mode", ["vjp", "jvp", "jacobian"])
@pytest.mark.parametrize("case", HELD)
def test_an_input_whose_numbers_are_taken_is_no_input_any_more(case, mode):
    text, s = HELD[case]
    model = load(f"held {text}")
    shape = model.inputs["x"].shape
    with pytest.warns(oj.OnnxJacWarning, match=r"numbers.*'s' \(no input any more"):
        proto = oj.export(model, mode, {"x": random(*shape), "s": s}, of="y", wrt="x")
    assert "s" not in {v.name for v in proto.graph.input}
    assert metadata(proto)["onnxjac.held"].split(", ")[0] == "s"
    if "Dropout" not in case:  # which draws again
        agree(model, proto, {"x": random(*shape, seed=3), "s": s}, mode)


FLOW = {
    "Loop": (ROWS.format("int64") + """ <bool c={1}>
        {y=Loop(s,c,x)<body=b(int64 i, bool d, double[4,2] h)=>(bool g, double[4,2] k)
         {g=Identity(d) k=Mul(h,x)}>}""", np.array(3)),
    "If": (ROWS.format("bool") + """
        {y=If(s)<then_branch=t()=>(double[4,2] p){p=Sin(x)},
                 else_branch=e()=>(double[4,2] q){q=Cos(x)}>}""", np.array(True)),
}  # fmt: skip


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("mode", ["vjp", "jvp", "jacobian"])
@pytest.mark.parametrize(("case", "others"), [("Loop", (1, 0, 7)), ("If", (False, True))])
def test_conditions_of_control_flow_stay_inputs(case, others, mode):
    text, s = FLOW[case]
    model = load(f"flow {text}")
    shape = model.inputs["x"].shape
    proto = oj.export(model, mode, {"x": random(*shape), "s": s}, of="y", wrt="x")
    for k, other in enumerate(others):
        agree(model, proto, {"x": random(*shape, seed=k), "s": np.asarray(other)}, mode)


def test_a_loaded_derivative_refuses_points_that_it_was_not_recorded_for():
    model = load("""f (double[N,3] x, int64 a)=>(double[N,3] y) {s=Squeeze(x) y=CumSum(s, a)}""")
    with pytest.warns(oj.OnnxJacWarning, match="only where N != 1"):
        vjp = oj.load(oj.export(model, "vjp", {"x": random(4, 3), "a": np.array(1)}, wrt="x"))
    for n, axis in ((2, 1), (5, 0)):
        vjp.run({"x": random(n, 3), "a": np.array(axis), "y_cotangent": random(n, 3)})
    with pytest.raises(oj.InputError, match="points where N != 1, which is not so here"):
        vjp.run({"x": random(1, 3), "a": np.array(1), "y_cotangent": random(1, 3)})
    with pytest.raises(oj.InputError, match=r"where a\[0\] < 2, which is not so here"):
        vjp.run({"x": random(4, 3), "a": np.array(2), "y_cotangent": random(4, 3)})


GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


@pytest.mark.sampled(0.3)
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("mode", ["vjp", "jvp", "jacobian"])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("kind", GATES)
def test_recurrent_networks_stay_loops(kind, direction, mode):
    """For any batch size, sequence length and vector of lengths."""
    D, G, states = 1 + (direction == "bidirectional"), GATES[kind], "h, c"[: 4 * (kind == "LSTM")]
    model = load(f"""net (double[t,b,2] x, int32[b] s, double[{D},b,3] h, double[{D},b,3] c,
        double[{D},{3 * G},2] W, double[{D},{3 * G},3] R, double[{D},{6 * G}] B)
        => (double[t,{D},b,3] y, double[{D},b,3] z)
        {{ y, z = {kind}<hidden_size=3, direction="{direction}">(x, W, R, B, s, {states or "h"}) }}
        """)
    held = {n: random(*model.inputs[n].shape) for n in "WRB"}
    for of, wrt in (("y", "x"), ("z", "R"), ("y", "h")):
        proto = None
        for t, lengths in ((4, [2, 4]), (7, [7, 0, 3]), (1, [1])):
            b = len(lengths)
            point = held | {"x": random(t, b, 2), "s": np.array(lengths, np.int32),
                            "h": random(D, b, 3), "c": random(D, b, 3, seed=1)}  # fmt: skip
            proto = proto or oj.export(model, mode, point, of=of, wrt=wrt)
            assert len(proto.graph.node) < 160 * D
            agree(model, proto, point, mode, of, wrt)


FORMS = {
    "RNN": ("RNN", ""),
    "RNN that clips": ("RNN", ", clip=0.5"),
    "GRU": ("GRU", ""),
    "GRU, reset after the product": ("GRU", ", linear_before_reset=1"),
    "LSTM": ("LSTM", ""),
    "LSTM without a forget gate": ("LSTM", ", input_forget=1"),
    "LSTM that clips": ("LSTM", ", clip=0.5"),
}


@pytest.mark.sampled(0.3)
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("layout", [0, 1])
@pytest.mark.parametrize("direction", ["reverse", "bidirectional"])
@pytest.mark.parametrize("form", FORMS)
def test_recurrent_operators_compute_the_forward_pass(form, direction, layout):
    """At other lengths and batch sizes, the exported derivatives in float32 agree with float64."""
    kind, attributes = FORMS[form]
    D, G = 1 + (direction == "bidirectional"), GATES[kind]
    more, states = ("", "h") if kind != "LSTM" else (f", T[{D},9] P", "h, c, P")
    x, h = ("b,t,2", f"b,{D},3") if layout else ("t,b,2", f"{D},b,3")
    text = f"""net (T[{x}] x, int32[b] s, T[{h}] h, T[{h}] c, T[{D},{3 * G},2] W,
        T[{D},{3 * G},3] R, T[{D},{6 * G}] B{more}) => (T y, T z) {{ y, z = {kind}
        <hidden_size=3, layout={layout}, direction="{direction}"{attributes}>(x,W,R,B,s,{states}) }}
        """
    model, single = (load(text.replace("T[", f"{t}[").replace("T y, T z", f"{t} y, {t} z"))
                     for t in ("double", "float"))  # fmt: skip
    held = {n: random(*model.inputs[n].shape) for n in "WRBP" if n in model.inputs}
    of, wrt = ("y", "z"), ("x", "R", "h", "B")
    files = {}
    for t, lengths in ((4, [2, 4]), (6, [6, 0, 3])):
        b = len(lengths)
        axes = (b, t, 2) if layout else (t, b, 2)
        start = (b, D, 3) if layout else (D, b, 3)
        point = held | {"x": random(*axes), "s": np.array(lengths, np.int32),
                        "h": random(*start), "c": random(*start, seed=1)}  # fmt: skip
        small = {n: x.astype("f4") if x.dtype == float else x for n, x in point.items()}
        J = oj.linearize(model, point, of=of, wrt=wrt)
        for mode, K in (("jvp", J), ("vjp", J.T)):
            proto = files.setdefault(mode, oj.export(single, mode, small, of=of, wrt=wrt))
            by_kernel = form != "LSTM that clips"  # which ONNX Runtime does in another way
            assert [n.op_type for n in proto.graph.node].count(kind) == by_kernel
            suffix = "tangent" if mode == "jvp" else "cotangent"
            seeds = {end.name: random(*end.shape, seed=2) for end in K.domain}
            given = small | {f"{n}_{suffix}": x.astype("f4") for n, x in seeds.items()}
            found = run(proto, {n.name: given[n.name] for n in proto.graph.input})
            for name, wanted in K.apply(seeds).items():
                np.testing.assert_allclose(found[f"{name}_{suffix}"], wanted, rtol=1e-3, atol=1e-4)


def test_a_recurrent_network_reads_three_axes():
    model = load("""net (double[2,1,1,3] x)=>(double[k,1,1,1] y)
        <double[1,1,3] W={1,2,3}, double[1,1,1] R={1}> {y=RNN<hidden_size=1>(x,W,R)}""")
    with pytest.raises(oj.OnnxJacError, match=r"RNN.*\[2, 1, 1, 3\].*must have three axes"):
        oj.linearize(model, {"x": random(2, 1, 1, 3)})


@pytest.mark.filterwarnings("error")
def test_second_derivatives_of_a_recurrent_network_stay_loops():
    model = load("""net (double[t,b,2] x, double[1,12,2] W, double[1,12,3] R)=>(double f)
        {y,z=LSTM<hidden_size=3>(x,W,R) q=Mul(y,y) f=ReduceSum<keepdims=0>(q)}""")
    point = {n: random(*s) for n, s in {"x": (4, 2, 2), "W": (1, 12, 2), "R": (1, 12, 3)}.items()}
    hvp = oj.load(oj.export(model, "hvp", point, wrt="W"))
    v = random(1, 12, 2, seed=1)
    for t, b in ((4, 2), (9, 3), (1, 1)):
        point["x"] = random(t, b, 2)
        wanted = oj.hessian(model, point, wrt="W") @ v.ravel()
        found = hvp.run({**point, "W_tangent": v})["W_hvp"].ravel()
        np.testing.assert_allclose(found, wanted, atol=1e-12)


def test_second_derivatives_follow_numbers_too():
    text = """(double[4,2] x, int64[1] s)=>(double y) <int64[1] e={9}>
        {r=Slice(x,s,e) c=Mul(r,r) d=Mul(c,r) y=ReduceSum<keepdims=0>(d)}"""
    model = load(f"second {text}")
    proto = oj.export(model, "hvp", {"x": random(4, 2), "s": np.array([1])}, wrt="x")
    x, v = random(4, 2, seed=2), random(4, 2, seed=3)
    for s in ([1], [0], [-3]):
        found = run(proto, {"x": x, "s": np.array(s), "x_tangent": v})
        H = oj.hessian(model, {"x": x, "s": np.array(s)}, wrt="x")
        np.testing.assert_allclose(found["x_hvp"], H.apply({"x": v})["x"], atol=1e-12)


USED = {
    "indices": "{r=Gather(x,s) y=Mul(r,r)}",
    "a count": "{b=Cast<to=9>(s) i=NonZero(b) n=Size(i) c=Cast<to=11>(n) y=Div(x,c)}",
    "factors": "{c=Cast<to=11>(s) r=Mul(x,x) y=Mul(r,c)}",
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("mode", ["vjp", "jvp"])
@pytest.mark.parametrize("case", USED)
def test_integers_that_are_data_stay_inputs(case, mode):
    model = load(f"used (double[3] x, int64[3] s)=>(double[3] y) {USED[case]}")
    proto = oj.export(model, mode, {"x": random(3), "s": np.array([2, 0, 1])}, of="y", wrt="x")
    agree(model, proto, {"x": random(3, seed=1), "s": np.array([0, 2, 2])}, mode)


WHILE = """(double x)=>(double y) <double top={100}, bool yes={1}>
    {y=Loop(,yes,x)<body=b(int64 i, bool d, double h)=>(bool g, double k)
     {k=Mul(h,x) g=Less(k,top)}>}"""
CHOICE = """(double x)=>(double y) <double zero={0}>
    {c=Greater(x,zero) y=If(c)<then_branch=t()=>(double p){p=Mul(x,x)},
     else_branch=e()=>(double q){q=Neg(x)}>}"""
PICKED = """(double[4] x)=>(double[K] y) <double zero={0}>
    {c=Greater(x,zero) r=Compress<axis=0>(x,c) y=Mul(r,r)}"""


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("text", [WHILE, CHOICE])
def test_a_branch_and_the_end_of_a_loop_are_chosen_anew(text):
    model = load(f"chosen {text}")
    proto = oj.export(model, "vjp", {"x": np.asarray(2.0)})
    for x in (2.05, 3.0, -2.0):
        agree(model, proto, {"x": np.asarray(x)}, "vjp")


def test_a_loop_whose_body_has_weights_of_its_own_stays_a_loop():
    model = load("""g (double[3] x) => (double[3] y) <int64 turns = {60}, bool go = {1}> {
        y = Loop(turns, go, x)<body = b (int64 i, bool before, double[3] s)
            => (bool on, double[3] z) <double[3] w = {1.9, 1.8, 1.7}> {
            on = Identity(before)  m = Mul(s, w)  z = Sin(m) }> }""")
    point = {"x": random(3)}
    proto = oj.export(model, "vjp", point)
    assert {"Loop", "Scan"} <= {node.op_type for node in proto.graph.node}
    agree(model, proto, {"x": random(3, seed=1)}, "vjp")


def test_a_choice_that_the_point_makes_is_named():
    """The export is right at other points that make the same choice."""
    model = load(f"chosen {PICKED}")
    with pytest.warns(oj.OnnxJacWarning, match=r"'c' \(Compress"):
        proto = oj.export(model, "vjp", {"x": np.array([1.0, -1, 2, -3])})
    agree(model, proto, {"x": np.array([2.0, -3, 1, -2])}, "vjp")


def test_a_choice_is_made_once_for_values_and_derivative():
    """Where x would choose other rows, values and derivative still belong to one function."""
    model = load(f"chosen {PICKED}")
    with pytest.warns(oj.OnnxJacWarning, match="'c'"):
        proto = oj.export(model, "vjp", {"x": np.array([1.0, -1, 2, -3])})
    found = run(proto, {"x": np.array([-1.0, 5, 4, 3]), "y_cotangent": np.ones(2)})
    np.testing.assert_array_equal(found["y"], [1, 16])
    np.testing.assert_array_equal(found["x_cotangent"], [-2, 0, 8, 0])


@pytest.mark.parametrize("name", ["W", "t"])
def test_weights_and_intermediates_of_the_point_are_constants(name):
    text = "(double[2] x)=>(double[2] y) <double[2] W={2,3}> {t=Mul(x,W) u=Sin(t) y=Mul(u,t)}"
    model = load(f"given {text}")
    point = {"x": random(2), name: np.array([5.0, 7.0])}
    proto = oj.export(model, "vjp", point, wrt="W" if name == "W" else "t")
    wrt = "W" if name == "W" else "t"
    feeds = {"x": point["x"]} if name == "W" else {}
    found = run(proto, {**feeds, "y_cotangent": np.ones(2)})[f"{wrt}_cotangent"]
    wanted = oj.linearize(model, point, wrt=wrt).T @ np.ones(2)
    np.testing.assert_allclose(found, wanted, rtol=1e-12)


def test_empty_tensors_have_empty_exported_jacobians():
    text = "(double[2,0] x, double[3] b)=>(double[2,0] y, double[3] z) {y=Tanh(x) z=Tanh(b)}"
    proto = oj.export(load(f"empty {text}"), "jacobian", {"x": random(2, 0), "b": random(3)})
    shapes = {"y_x": [2, 0, 2, 0], "y_b": [2, 0, 3], "z_x": [3, 2, 0], "z_b": [3, 3]}
    found = run(proto, {"x": random(2, 0), "b": random(3)})
    assert {k: list(found[f"{k}_jacobian"].shape) for k in shapes} == shapes


@pytest.mark.parametrize("mode", ["vjp", "jvp", "jacobian"])
def test_a_sequence_has_no_derivative_to_export(mode):
    text = "(float[4] x, int64 s)=>(seq(float[K]) y) {y=SplitToSequence(x,s)}"
    model = load(f"pieces {text}")
    with pytest.raises(oj.InputError, match="of='y' is a tensor of list"):
        oj.export(model, mode, {"x": np.ones(4, np.float32), "s": np.array(2)}, of="y")


@pytest.mark.parametrize("n", [2, 3])
def test_halves_of_any_length_are_exported_once(n):
    """The derivative's recording keeps the symbolic lengths of the first recording."""
    text = """(double[N] x) => (double loss) {
        a, b = Split<axis=0, num_outputs=2>(x) loss=ReduceSumSquare<keepdims=0>(a)
    }"""
    proto = oj.export(load(f"halves {text}"), "hvp", {"x": random(n)})
    for length in (1, 2, 3, 6, 7):
        x, v = random(length), random(length)
        found, first = run(proto, {"x": x, "x_tangent": v}), np.arange(length) < (length + 1) // 2
        np.testing.assert_allclose(found["x_hvp"], 2 * first * v)


def test_lengths_that_are_not_followed_are_fixed():
    """Abs of a length is not tracked symbolically, so it is fixed."""
    body = """{
        s = Shape(x) h = Div(s, two) a = Abs(h) e = Expand(c, a) f = Expand(c, h)
        p = Mul(e, f) q = ReduceSum<keepdims=0>(p) r = ReduceSumSquare<keepdims=0>(x)
        loss = Mul(q, r)
    }"""
    text = f"(double[N] x) => (double loss) <double[1] c={{2.0}}, int64[1] two={{2}}> {body}"
    with pytest.warns(oj.OnnxJacWarning, match="'N' of 'x' is fixed at 2"):
        proto = oj.export(load(f"unknown {text}"), "grad", {"x": random(2)})
    assert proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value == 2


def test_rows_that_another_point_masks_out():
    """Softmax rows that are -∞ throughout at another point only, and that the model replaces."""
    model = oj.load(onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 21]>
        g (double[2,3] x, bool[2,3] kept, double[3] v) => (double[2] y) <double low = {-inf}> {
            s = Where(kept, x, low)  p = Softmax(s)  lost = IsNaN(p)
            zero = Constant<value_float = 0.0>()  zeros = CastLike(zero, p)
            q = Where(lost, zeros, p)  y = MatMul(q, v)
        }"""))
    x, v, u = np.array([[0.5, -1.0, 2.0], [1.0, 0.0, 3.0]]), np.array([1.0, 2.0, -1.0]), np.ones(2)
    here, there = np.ones((2, 3), bool), np.array([[True, True, False], [False] * 3])
    program = oj.load(oj.export(model, "vjp", {"x": x, "kept": here, "v": v}, wrt=["x", "v"]))
    point = {"x": x, "kept": there, "v": v}
    wanted = oj.vjp(model, point, wrt=["x", "v"])[1](u)
    for engine in ("numpy", None):
        found = program.run({**point, "y_cotangent": u}, engine=engine)
        for name in ("x", "v"):
            np.testing.assert_allclose(found[f"{name}_cotangent"], wanted[name], atol=1e-12)
            assert np.isfinite(wanted[name]).all()
