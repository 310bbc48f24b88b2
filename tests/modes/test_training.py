"""Optimisers as plain nodes, and models that are trained from their file alone."""

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
    """The node cases of ONNX for optimisers; making all cases overflows here and there."""
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
    onnx.save(oj.training_model(classifier(), LOSS, optimizer="Adam", learning_rate=3e-3), path)
    model, state = onnx.load(path), None
    for epoch in range(15):
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


def test_what_does_not_fit_is_refused():
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
