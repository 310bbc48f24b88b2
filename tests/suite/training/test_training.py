"""Optimisers as plain nodes, and training of models from their file alone."""

import warnings

import numpy as np
import onnx
import pytest
from onnx import checker, numpy_helper, parser
from onnx.backend.test.case.node import collect_testcases

import onnxjac as oj

ort = pytest.importorskip("onnxruntime")

TRAINING = "ai.onnx.preview.training"
OPTIMIZERS = (oj.Adagrad, oj.Adam, oj.Momentum)


def cases():
    """The node cases of ONNX for optimisers; generating all cases raises overflow warnings."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        collected = collect_testcases(None)
    return [case for case in collected if case.model.graph.node[0].domain == TRAINING]


CASES = cases()

every_optimizer = pytest.mark.parametrize("kind", OPTIMIZERS, ids=lambda kind: kind.__name__)


def lowered_run(proto, feeds):
    """All outputs of the lowered model in ONNX Runtime."""
    plain = oj.lower_gradients(proto)
    checker.check_model(plain, full_check=True)
    assert [entry.domain for entry in plain.opset_import] == [""]
    session = ort.InferenceSession(plain.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_node_cases_of_onnx(case):
    for inputs, outputs in case.data_sets:
        names = [value.name for value in case.model.graph.input]
        found = lowered_run(case.model, dict(zip(names, inputs, strict=True)))
        for array, right in zip(found, outputs, strict=True):
            assert array.dtype == right.dtype
            np.testing.assert_allclose(array, right, rtol=1e-5)


def test_all_node_cases_are_here():
    assert {case.name for case in CASES} == {
        "test_adagrad", "test_adagrad_multiple", "test_adam", "test_adam_multiple",
        "test_momentum", "test_momentum_multiple", "test_nesterov_momentum",
    }  # fmt: skip


def test_the_seventh_step_of_adam():
    # R' = R √(1 − βᵀ) / (1 − αᵀ) once T > 0, and the shrinking afterwards
    proto = parser.parse_model("""<ir_version: 10, opset_import: ["ai.onnx.preview.training": 1]>
        seventh (double R, int64 T, double[3] X, double[3] G, double[3] V, double[3] H)
            => (double[3] X1, double[3] V1, double[3] H1) {
            X1, V1, H1 = ai.onnx.preview.training.Adam
                <alpha = 0.5, beta = 0.75, epsilon = 0.25, norm_coefficient_post = 0.125>
                (R, T, X, G, V, H) }""")
    r, t, x, g, v, h = 0.1, 7, np.arange(3.0), np.array([1.0, -2, 3]), np.ones(3), np.ones(3)
    feeds = {"R": np.array(r), "T": np.array(t), "X": x, "G": g, "V": v, "H": h}
    v1, h1 = (v + g) / 2, 0.75 * h + 0.25 * g**2
    rate = r * np.sqrt(1 - 0.75**t) / (1 - 0.5**t)
    right = 0.875 * (x - rate * v1 / (np.sqrt(h1) + 0.25))
    for found, array in zip(lowered_run(proto, feeds), (right, v1, h1), strict=True):
        np.testing.assert_allclose(found, array)


def test_an_unknown_mode_of_momentum_is_refused():
    with pytest.raises(oj.InputError, match="mode='heavy'"):
        oj.Momentum(mode="heavy")


@pytest.mark.parametrize("given", [{"alpha": 1}, {"beta": 2}, {"beta": -0.1}])
def test_means_that_would_not_decay_are_refused(given):
    with pytest.raises(oj.InputError, match=r"=.* must be a number, at least 0 and below 1"):
        oj.Adam(**given)


@pytest.mark.parametrize("rate", [1e300, np.inf, np.nan])
def test_a_learning_rate_that_is_not_finite_is_refused(rate):
    with pytest.raises(oj.InputError, match=r"learning_rate=.* must be a"):
        oj.training_model(classifier(), LOSS, learning_rate=rate)


LOSS = parser.parse_graph("""entropy (float[batch, 10] logits, int64[batch] label) => (float loss)
    { loss = SoftmaxCrossEntropyLoss<reduction = "mean">(logits, label) }""")  # fmt: skip


def classifier(hidden=32, dtype=np.float32):
    """image → 64 · hidden · 10 → logits, at random."""
    kind = {"float32": "float", "float64": "double"}[np.dtype(dtype).name]
    proto = parser.parse_model(f"""<ir_version: 10, opset_import: ["": 21]>
        digits ({kind}[batch, 64] image) => ({kind}[batch, 10] logits) {{
        h = MatMul(image, w1)
        hb = Add(h, b1)
        r = Relu(hb)
        s = MatMul(r, w2)
        logits = Add(s, b2) }}""")
    rng = np.random.default_rng(0)
    for name, shape in {
        "w1": (64, hidden),
        "b1": (hidden,),
        "w2": (hidden, 10),
        "b2": (10,),
    }.items():
        scale = 1 / np.sqrt(shape[0]) if len(shape) == 2 else 0
        array = (scale * rng.standard_normal(shape)).astype(dtype)
        proto.graph.initializer.append(numpy_helper.from_array(array, name))
    return proto


def images(count, dtype=np.float32):
    """A batch at random."""
    rng = np.random.default_rng(1)
    image = rng.standard_normal((count, 64)).astype(dtype)
    return {"image": image, "label": rng.integers(0, 10, count)}


def test_digits_are_learnt_from_a_file_alone(tmp_path):
    datasets = pytest.importorskip("sklearn.datasets")
    pixels, labels = datasets.load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    image, label = (pixels[order] / 16).astype(np.float32), labels[order].astype(np.int64)
    path = tmp_path / "digits.onnx"
    onnx.save(oj.training_model(classifier(), LOSS, optimizer="Adam", learning_rate=1e-2), path)
    model, state = onnx.load(path), None
    for epoch in range(5):
        for at in np.random.default_rng(epoch).permutation(1376).reshape(43, 32):
            state, _ = oj.train_step(model, state, {"image": image[at], "label": label[at]})
    weights = {name: state[name] for name in ("w1", "b1", "w2", "b2")}
    logits = oj.load(path).run({"image": image[1400:], **weights})["logits"]
    assert np.mean(logits.argmax(1) == label[1400:]) > 0.95


@every_optimizer
def test_a_training_model_is_valid(kind):
    model = oj.training_model(classifier(), LOSS, optimizer=kind())
    checker.check_model(model, full_check=True)
    (info,) = model.training_info
    held = {t.name for graph in (model.graph, info.algorithm) for t in graph.initializer}
    update = {pair.key: pair.value for pair in info.update_binding}
    first = {pair.key: pair.value for pair in info.initialization_binding}
    assert update.keys() == first.keys() <= held
    assert set(update.values()) <= {value.name for value in info.algorithm.output}
    assert set(first.values()) == {value.name for value in info.initialization.output}
    assert not info.initialization.input
    ops = [node.op_type for node in info.algorithm.node]
    assert ops[-3:] == ["Gradient", kind.__name__, "Add"]


def test_a_step_is_the_formula():
    # Momentum with α = 0: X' = X − R G
    model = oj.training_model(
        classifier(dtype=np.float64),
        double(LOSS),
        optimizer=oj.Momentum(alpha=0),
        learning_rate=0.5,
    )
    feeds = images(4, np.float64)
    before = oj.initial_state(model)
    after, outputs = oj.train_step(model, None, feeds)
    again = oj.load(classifier(dtype=np.float64))
    probability = np.exp(outputs["logits"])
    probability /= probability.sum(1, keepdims=True)
    slope = (probability - np.eye(10)[feeds["label"]]) / 4
    _, pullback = oj.vjp(again, {"image": feeds["image"]}, wrt=["w1", "b1", "w2", "b2"])
    for name, gradient in pullback(slope).items():
        np.testing.assert_allclose(after[name], before[name] - 0.5 * gradient, rtol=1e-9)
        np.testing.assert_allclose(after[f"{name}_velocity"], gradient, rtol=1e-9, atol=1e-12)
    assert (before["update_count"], after["update_count"]) == (0, 1)


def double(graph):
    """The same graph in double precision."""
    text = onnx.printer.to_text(graph).replace("float", "double")
    return parser.parse_graph(text)


@every_optimizer
def test_the_loss_falls(kind):
    model = oj.training_model(classifier(), LOSS, optimizer=kind(), learning_rate=0.01)
    state, losses = None, []
    for _ in range(20):
        state, outputs = oj.train_step(model, state, images(16))
        losses.append(float(outputs["loss"]))
    assert losses[-1] < losses[0] / 2


@pytest.mark.parametrize("engine", ["onnxruntime", "numpy"])
def test_both_engines_make_the_same_step(engine):
    model = oj.training_model(classifier(), LOSS)
    right, _ = oj.train_step(model, None, images(5))
    state, _ = oj.train_step(model, None, images(5), engine=engine)
    for name, array in right.items():
        np.testing.assert_allclose(state[name], array, rtol=1e-4, atol=1e-5)


def test_only_what_is_named_is_trained():
    model = oj.training_model(classifier(), LOSS, ["w2"], oj.Adagrad())
    state, _ = oj.train_step(model, None, images(3))
    assert state.keys() == {"w2", "w2_squares", "update_count"}


def test_the_loss_may_be_a_tensor_of_the_model():
    proto = parser.parse_model("""<ir_version: 10, opset_import: ["": 21]>
        least_squares (double[n, 2] x, double[n] y) => (double loss) <double[2] w = {0, 0}> {
        p = MatMul(x, w)
        off = Sub(p, y)
        square = Mul(off, off)
        loss = ReduceMean<keepdims = 0>(square) }""")
    model = oj.training_model(proto, "loss", optimizer=oj.Momentum(), learning_rate=0.1)
    x = np.random.default_rng(0).standard_normal((30, 2))
    state = None
    for _ in range(200):
        state, _ = oj.train_step(model, state, {"x": x, "y": x @ [2.0, -1.0]})
    np.testing.assert_allclose(state["w"], [2, -1], atol=1e-4)


def test_the_state_of_the_caller_is_left_alone():
    model = oj.training_model(classifier(), LOSS)
    state = oj.initial_state(model)
    copies = {name: array.copy() for name, array in state.items()}
    oj.train_step(model, state, images(3))
    for name, array in state.items():
        np.testing.assert_array_equal(array, copies[name])


def test_the_learning_rate_may_change_from_step_to_step():
    model = oj.training_model(classifier(), LOSS, optimizer="Momentum")
    state = oj.initial_state(model)
    still, _ = oj.train_step(model, {**state, "learning_rate": np.float32(0)}, images(3))
    np.testing.assert_array_equal(still["w1"], state["w1"])


def test_without_initialization_the_initializers_are_the_first_state():
    model = oj.training_model(classifier(), LOSS)
    right = oj.initial_state(model)
    info = model.training_info[0]
    info.ClearField("initialization")
    del info.initialization_binding[:]
    for name, array in oj.initial_state(model).items():
        np.testing.assert_array_equal(array, right[name])


CUT = parser.parse_graph("cut (float[64, 32] w1) => (float l) { l = ReduceSum<keepdims = 0>(w1) }")


def test_training_model_rejects_wrong_arguments():
    proto = classifier()
    with pytest.raises(oj.UnknownTensor, match="Did you mean 'w2' or 'w1'"):
        oj.training_model(proto, LOSS, ["w"])
    with pytest.raises(oj.UnknownTensor, match="no tensor 'lost'"):
        oj.training_model(proto, "lost")
    with pytest.raises(oj.InputError, match="'Adem'"):
        oj.training_model(proto, LOSS, optimizer="Adem")
    with pytest.raises(oj.InputError, match="no training_info"):
        oj.train_step(proto, None, images(3))
    with pytest.raises(oj.UnknownTensor, match="no tensor 'w3'"):
        oj.train_step(oj.training_model(proto, LOSS), {"w3": np.zeros(3)}, images(3))
    with pytest.raises(oj.InputError, match="does not depend on 'b1'"):
        oj.training_model(proto, CUT, ["b1"])


# -- running statistics ----------------------------------------------------------------------------


def normalised(mode, outputs="n", rank=2):
    """x → BatchNormalization → w → squares; the variance of the batch is over n, not n - 1."""
    spatial = ", 4, 5" if rank == 4 else ""
    flat = "m = ReduceMean<keepdims = 0>(n, axes)" if rank == 4 else "m = Identity(n)"
    proto = parser.parse_model(f"""<ir_version: 10, opset_import: ["": 21]>
        net (double[batch, 3{spatial}] x, double[batch, 2] t) => (double loss)
        <double[3] scale = {{1, 2, 0.5}}, double[3] bias = {{0, 0.1, -0.2}},
         double[3] mean = {{0.5, 0, -1}}, double[3] var = {{1, 2, 3}}, int64[2] axes = {{2, 3}},
         double[3, 2] w = {{1, 2, 3, -1, 0.5, 1}}> {{
        {outputs} = BatchNormalization<training_mode = {mode}, momentum = 0.75, epsilon = 1e-3>
            (x, scale, bias, mean, var)
        {flat}
        y = MatMul(m, w)
        off = Sub(y, t)
        square = Mul(off, off)
        loss = ReduceMean<keepdims = 0>(square) }}""")
    rng = np.random.default_rng(3)
    batch = {
        "x": rng.standard_normal((6, 3, 4, 5)[:rank]) * 2 + 1,
        "t": rng.standard_normal((6, 2)),
    }
    return proto, batch


STATISTICS = {"mean", "var"}


@pytest.mark.peers
@pytest.mark.parametrize("rank", [2, 4])
@pytest.mark.parametrize("outputs", ["n", "n, seen, spread"])
def test_running_statistics_follow_the_batches_as_in_torch(outputs, rank):
    torch = pytest.importorskip("torch")
    proto, batch = normalised(1, outputs, rank)
    trained = oj.training_model(proto, "loss", optimizer=oj.Momentum(alpha=0), learning_rate=0.1)
    checker.check_model(trained, full_check=True)
    state = oj.initial_state(trained)
    held = {name: torch.tensor(state[name]) for name in ("scale", "bias", "w", "mean", "var")}
    leaves = [held[name].requires_grad_() for name in ("scale", "bias", "w")]
    assert {name for name in state if name.endswith("_velocity")} == {
        "scale_velocity", "bias_velocity", "w_velocity",
    }  # fmt: skip
    for step in range(4):
        x, t = batch["x"] + step, batch["t"] * step
        state, outcome = oj.train_step(trained, state, {"x": x, "t": t})
        X, before = torch.tensor(x), held["var"].clone()
        n = torch.nn.functional.batch_norm(
            X, held["mean"], held["var"], leaves[0], leaves[1], True, 0.25, 1e-3
        )
        count = X.numel() // 3  # torch divides the variance of a batch by count - 1
        held["var"] = 0.75 * before + (held["var"] - 0.75 * before) * (count - 1) / count
        y = (n.mean((2, 3)) if rank == 4 else n) @ leaves[2]
        loss = ((y - torch.tensor(t)) ** 2).mean()
        slopes = torch.autograd.grad(loss, leaves)
        with torch.no_grad():
            for leaf, slope in zip(leaves, slopes, strict=True):
                leaf -= 0.1 * slope
        np.testing.assert_allclose(outcome["loss"], loss.item(), rtol=1e-6)
        for name, value in held.items():
            np.testing.assert_allclose(state[name], value.detach(), rtol=1e-6, err_msg=name)


def test_running_statistics_that_a_node_only_reads_stay_as_they_are():
    proto, batch = normalised(0)
    trained = oj.training_model(proto, "loss", optimizer="Adam")
    first = oj.initial_state(trained)
    assert STATISTICS.isdisjoint(first)
    state, _ = oj.train_step(trained, None, batch)
    assert STATISTICS.isdisjoint(state)
    assert not np.allclose(state["scale"], first["scale"])


@pytest.mark.parametrize("mode", [0, 1])
def test_running_statistics_are_not_trained_if_asked_for(mode):
    with pytest.raises(oj.InputError, match="'var' is a running statistic"):
        oj.training_model(normalised(mode)[0], "loss", ["w", "var"])


def test_running_statistics_of_two_nodes_are_refused():
    proto, _ = normalised(1)
    again = proto.graph.node.add()
    again.CopyFrom(proto.graph.node[0])
    again.output[:] = ["n2"]
    with pytest.raises(oj.InputError, match="of two BatchNormalization nodes"):
        oj.training_model(proto, "loss")


def test_running_statistics_in_a_branch_are_refused():
    proto = parser.parse_model("""<ir_version: 10, opset_import: ["": 21]>
        net (double[4, 3] x, bool c) => (double loss)
        <double[3] s = {1, 1, 1}, double[3] b = {0, 0, 0}, double[3] m = {0, 0, 0},
         double[3] v = {1, 1, 1}> {
        y = If (c) <then_branch = yes () => (double[4, 3] p) {
                p = BatchNormalization<training_mode = 1>(x, s, b, m, v) },
            else_branch = no () => (double[4, 3] q) { q = Mul(x, s) }>
        loss = ReduceSum<keepdims = 0>(y) }""")
    with pytest.raises(oj.InputError, match="in a subgraph"):
        oj.training_model(proto, "loss")


@pytest.mark.peers
def test_a_model_with_a_loop_is_trained_as_torch_trains_it():
    """Trip count and branch are data; a training step is one plain file."""
    torch = pytest.importorskip("torch")
    text = """<ir_version: 10, opset_import: ["": 21]>
        recurrent (double[batch,3] x, int64 n, double[batch,4] target) => (double[batch,4] h)
        <double[3,4] U = {0.3,-0.2,0.1,0.5,-0.4,0.2,0.6,-0.1,0.2,0.3,-0.5,0.4}, bool yes = {1},
         double[4,4] W = {0.1,0.2,-0.3,0.4,0.5,-0.1,0.2,0.3,-0.2,0.4,0.1,-0.5,0.3,0.2,0.1,0.6},
         double zero = {0}> {
        p = MatMul(x, U)  start = Tanh(p)
        h = Loop (n, yes, start) <body = t (int64 i, bool a, double[batch,4] s)
          => (bool c, double[batch,4] k) {
            c = Identity(a)  q = MatMul(s, W)  sum = ReduceSum<keepdims = 0>(q)
            up = Greater(sum, zero)
            k = If (up) <then_branch = y () => (double[batch,4] g) { r = Add(q, p)  g = Tanh(r) },
                         else_branch = z () => (double[batch,4] e) { e = Sin(q) }> }> }"""
    loss = parser.parse_graph("""loss (double[batch,4] h, double[batch,4] target) => (double loss) {
        off = Sub(h, target)  square = Mul(off, off)  loss = ReduceMean<keepdims = 0>(square) }""")
    model = oj.training_model(
        parser.parse_model(text), loss, ["U", "W"], oj.Momentum(alpha=0.875), learning_rate=0.25
    )
    weights = {n: torch.tensor(v) for n, v in oj.initial_state(model).items() if n in ("U", "W")}
    speeds, state = {n: torch.zeros_like(w) for n, w in weights.items()}, None
    rng = np.random.default_rng(0)
    for step in range(12):
        batch, n = 2 + step % 3, (3, 0, 6, 1)[step % 4]
        x, target = rng.standard_normal((batch, 3)), rng.standard_normal((batch, 4))
        feeds = {"x": x, "n": np.array(n), "target": target}
        state, outputs = oj.train_step(model, state, feeds)
        U, W = (weights[n].clone().requires_grad_() for n in ("U", "W"))
        p = torch.tensor(x) @ U
        h = torch.tanh(p)
        for _ in range(n):
            q = h @ W
            h = torch.tanh(q + p) if q.sum() > 0 else torch.sin(q)
        value = torch.mean((h - torch.tensor(target)) ** 2)
        slopes = torch.autograd.grad(value, (U, W), materialize_grads=True)
        for name, slope in zip(("U", "W"), slopes, strict=True):
            speeds[name] = 0.875 * speeds[name] + slope if step else slope
            weights[name] = weights[name] - 0.25 * speeds[name]
            np.testing.assert_allclose(state[name], weights[name].numpy(), atol=1e-10)
        np.testing.assert_allclose(outputs["loss"], value.item(), atol=1e-12)
