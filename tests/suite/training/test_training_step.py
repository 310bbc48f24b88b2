"""One step of training as a plain model: ONNX Runtime alone trains with it, as torch does."""

import json
from collections import deque
from functools import partial

import numpy as np
import onnx
import pytest
from onnx import checker, numpy_helper, parser

import onnxjac as oj
from onnxjac.modes.training import step as step_module

ort = pytest.importorskip("onnxruntime")
torch = pytest.importorskip("torch")

pytestmark = pytest.mark.peers

functional = torch.nn.functional
SIZES = (5, 1, 8, 3, 16)
"""Batch sizes, in a cycle."""


def step_of(training, engine="onnxruntime"):
    """The exported step as a function (state, batch) -> (state, outputs), run by ONNX Runtime or by
    our NumPy kernels.
    """
    proto = oj.export(training, "training_step")
    checker.check_model(proto, full_check=True)
    assert [entry.domain for entry in proto.opset_import] == [""]
    assert not proto.functions
    (bound,) = (json.loads(e.value) for e in proto.metadata_props
                if e.key == "onnxjac.update_binding")  # fmt: skip
    if engine == "numpy":
        run = partial(oj.load(proto).run, engine=engine)
    else:
        data, providers = proto.SerializeToString(), ["CPUExecutionProvider"]
        session = ort.InferenceSession(data, providers=providers)
        names = [value.name for value in session.get_outputs()]

        def run(feeds):
            return dict(zip(names, session.run(None, feeds), strict=True))

    def step(state, batch):
        found = run({**state, **batch})
        return {key: found[value] for key, value in bound.items()}, found

    return step


def with_weights(text, **arrays):
    """A model from ONNX text, with initializers."""
    proto = parser.parse_model('<ir_version: 10, opset_import: ["": 21]>\n' + text)
    proto.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in arrays.items())
    return proto


def normal(*shape, seed=0):
    rng = np.random.default_rng([seed, *shape])
    return rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]) if shape[1:] else 4)


ENTROPY = parser.parse_graph("""entropy (double[batch, 4] logits, int64[batch] label)
    => (double loss) { loss = SoftmaxCrossEntropyLoss<reduction = "mean">(logits, label) }""")


def mlp():
    """A classifier, in ONNX and in torch."""
    weights = {"w1": normal(6, 10), "b1": normal(10), "w2": normal(10, 4), "b2": normal(4)}
    proto = with_weights(
        """mlp (double[batch, 6] x) => (double[batch, 4] logits) {
        h = Gemm(x, w1, b1)
        t = Tanh(h)
        logits = Gemm(t, w2, b2) }""",
        **weights,
    )

    def loss(held, batch):
        h = torch.tanh(batch["x"] @ held["w1"] + held["b1"])
        return functional.cross_entropy(h @ held["w2"] + held["b2"], batch["label"])

    return proto, ENTROPY, weights, loss, lambda n, seed: batch_of((n, 6), seed)


def cnn():
    """Convolutions, one strided and one grouped, with a normalisation and pooling."""
    weights = {
        "k1": normal(6, 2, 3, 3), "c1": normal(6), "g": 1 + normal(6), "s": normal(6, seed=1),
        "k2": normal(8, 3, 3, 3), "w": normal(8, 4), "b": normal(4),
    }  # fmt: skip
    proto = with_weights(
        """cnn (double[batch, 2, 9, 9] x) => (double[batch, 4] logits) {
        a = Conv<pads = [1, 1, 1, 1]>(x, k1, c1)
        n = GroupNormalization<num_groups = 2, epsilon = 0.5>(a, g, s)
        r = Relu(n)
        p = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(r)
        d = Conv<strides = [2, 2], group = 2, pads = [1, 1, 1, 1]>(p, k2)
        e = Softplus(d)
        m = GlobalAveragePool(e)
        f = Flatten(m)
        logits = Gemm(f, w, b) }""",
        **weights,
    )

    def loss(held, batch):
        a = functional.conv2d(batch["x"], held["k1"], held["c1"], padding=1)
        n = functional.group_norm(a, 2, held["g"], held["s"], eps=0.5)
        p = functional.max_pool2d(torch.relu(n), 2)
        d = functional.conv2d(p, held["k2"], stride=2, groups=2, padding=1)
        m = functional.softplus(d, threshold=1e3).mean((2, 3))
        return functional.cross_entropy(m @ held["w"] + held["b"], batch["label"])

    return proto, ENTROPY, weights, loss, lambda n, seed: batch_of((n, 2, 9, 9), seed)


def single(net):
    """A network with its loss in single precision."""
    proto, loss, weights, peer, batches = net
    texts = (onnx.printer.to_text(part).replace("double", "float") for part in (bare(proto), loss))
    weights = {name: array.astype(np.float32) for name, array in weights.items()}
    model, graph = next(texts), parser.parse_graph(next(texts))
    proto = parser.parse_model(model)
    proto.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in weights.items())

    def batch(n, seed):
        drawn = batches(n, seed)
        return {**drawn, "x": drawn["x"].astype(np.float32)}

    return proto, graph, weights, peer, batch


def bare(proto):
    """The model without its initializers."""
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    del copy.graph.initializer[:]
    return copy


def batch_of(shape, seed):
    rng = np.random.default_rng(seed)
    return {"x": rng.standard_normal(shape), "label": rng.integers(0, 4, shape[0])}


def assert_same_run(net, optimizer, rate, peer, steps=20, engine="onnxruntime", tolerance=1e-10):
    """Check a run of the exported step against torch, step by step, at several batch sizes."""
    proto, loss, weights, peer_loss, batches = net
    training = oj.training_model(proto, loss, list(weights), optimizer, learning_rate=rate)
    step, state = step_of(training, engine), oj.initial_state(training)
    held = {name: torch.tensor(array, requires_grad=True) for name, array in weights.items()}
    trainer = peer(list(held.values()))
    for turn in range(steps):
        batch = batches(SIZES[turn % len(SIZES)], turn)
        state, outputs = step(state, batch)
        trainer.zero_grad()
        value = peer_loss(held, {name: torch.tensor(array) for name, array in batch.items()})
        value.backward()
        trainer.step()
        np.testing.assert_allclose(outputs["loss"], value.item(), rtol=tolerance)
        for name, tensor in held.items():
            found, right = state[name], tensor.detach().numpy()
            np.testing.assert_allclose(found, right, rtol=tolerance, atol=tolerance, err_msg=name)
    assert state["update_count"] == steps
    moved = max(np.max(np.abs(state[name] - weights[name])) for name in weights)
    assert moved > 1e-3
    return training, state


# -- optimisers of one's own -----------------------------------------------------------------------

SGD = parser.parse_function("""<domain: "me", opset_import: ["": 21]>
    sgd <momentum, decay> (R, T, X, G, V) => (X1, V1) {
    m = Constant<value_float: float = @momentum>()
    l = Constant<value_float: float = @decay>()
    mx = CastLike(m, X)
    lx = CastLike(l, X)
    pull = Mul(lx, X)
    slope = Add(G, pull)
    old = Mul(mx, V)
    V1 = Add(old, slope)
    d = Mul(R, V1)
    X1 = Sub(X, d) }""")

RMSPROP = parser.parse_function("""<domain: "me", opset_import: ["": 21]>
    rmsprop <alpha, epsilon> (R, T, X, G, S) => (X1, S1) {
    a = Constant<value: tensor = @alpha>()
    e = Constant<value: tensor = @epsilon>()
    i = Constant<value_float = 1.0>()
    one = CastLike(i, X)
    b = Sub(one, a)
    old = Mul(a, S)
    square = Mul(G, G)
    new = Mul(b, square)
    S1 = Add(old, new)
    root = Sqrt(S1)
    under = Add(root, e)
    way = Div(G, under)
    d = Mul(R, way)
    X1 = Sub(X, d) }""")

ADAMW = parser.parse_function("""<domain: "me", opset_import: ["": 21]>
    adamw <beta1, beta2, epsilon, decay> (R, T, X, G, M, S) => (X1, M1, S1) {
    b1 = Constant<value: tensor = @beta1>()
    b2 = Constant<value: tensor = @beta2>()
    e = Constant<value: tensor = @epsilon>()
    l = Constant<value: tensor = @decay>()
    i = Constant<value_float = 1.0>()
    one = CastLike(i, X)
    before = CastLike(T, X)
    t = Add(before, one)
    rl = Mul(R, l)
    keep = Sub(one, rl)
    shrunk = Mul(X, keep)
    c1 = Sub(one, b1)
    c2 = Sub(one, b2)
    m_old = Mul(b1, M)
    m_new = Mul(c1, G)
    M1 = Add(m_old, m_new)
    g2 = Mul(G, G)
    s_old = Mul(b2, S)
    s_new = Mul(c2, g2)
    S1 = Add(s_old, s_new)
    p1 = Pow(b1, t)
    p2 = Pow(b2, t)
    k1 = Sub(one, p1)
    k2 = Sub(one, p2)
    mean = Div(M1, k1)
    square = Div(S1, k2)
    root = Sqrt(square)
    under = Add(root, e)
    way = Div(mean, under)
    d = Mul(R, way)
    X1 = Sub(shrunk, d) }""")


def adamw():
    coefficients = {"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8, "decay": 0.01}
    doubles = {name: np.array(value) for name, value in coefficients.items()}
    return oj.OptimizerFunction(ADAMW, {"mean": 0.0, "squares": 0.0}, doubles)


OPTIMIZERS = {
    "SGD": (
        oj.OptimizerFunction(SGD, {"velocity": 0.0}, {"momentum": 0.75, "decay": 0.125}),
        0.1, lambda xs: torch.optim.SGD(xs, 0.1, momentum=0.75, weight_decay=0.125),
    ),
    "RMSprop": (
        oj.OptimizerFunction(
            RMSPROP, {"squares": 0.0}, {"alpha": np.array(0.99), "epsilon": np.array(1e-8)}
        ),
        0.01, lambda xs: torch.optim.RMSprop(xs, 0.01, alpha=0.99, eps=1e-8),
    ),
    "AdamW": (adamw(), 0.02, lambda xs: torch.optim.AdamW(xs, 0.02)),
    "Momentum": (
        oj.Momentum(alpha=0.75, norm_coefficient=0.125),
        0.1, lambda xs: torch.optim.SGD(xs, 0.1, momentum=0.75, weight_decay=0.125),
    ),
    "Nesterov": (
        oj.Momentum(alpha=0.75, mode="nesterov"),
        0.1, lambda xs: torch.optim.SGD(xs, 0.1, momentum=0.75, nesterov=True),
    ),
    "Adagrad": (
        oj.Adagrad(decay_factor=0.125, epsilon=2.0**-20),
        0.1, lambda xs: torch.optim.Adagrad(xs, 0.1, lr_decay=0.125, eps=2.0**-20),
    ),
}  # fmt: skip
"""name -> (optimizer, learning rate, the same in torch)."""


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_in_onnx_runtime_agrees_with_torch(name):
    assert_same_run(mlp(), *OPTIMIZERS[name], steps=12)


@pytest.mark.parametrize("name", ["Nesterov", "AdamW"])
@pytest.mark.parametrize(("net", "engine"), [(mlp, "onnxruntime"), (cnn, "numpy")])
def test_a_whole_run_agrees_with_torch(net, engine, name):
    # ONNX Runtime has no Conv in double precision
    assert_same_run(net(), *OPTIMIZERS[name], engine=engine)


def test_a_run_of_a_cnn_in_onnx_runtime_agrees_with_torch_in_single_precision():
    assert_same_run(single(cnn()), *OPTIMIZERS["Nesterov"], tolerance=2e-5)


def test_the_learning_rate_is_an_input_with_a_default():
    proto, loss, *_, batches = mlp()
    training = oj.training_model(proto, loss, optimizer="Momentum", learning_rate=0.25)
    exported = oj.export(training, "training_step")
    session = ort.InferenceSession(exported.SerializeToString())
    (rate,) = session.get_overridable_initializers()
    assert (rate.name, rate.shape) == ("learning_rate", [])
    (default,) = (t for t in exported.graph.initializer if t.name == "learning_rate")
    assert numpy_helper.to_array(default) == 0.25
    state, batch = oj.initial_state(training), batches(3, 0)
    for given in ({}, {"learning_rate": np.array(0.5)}):
        (found,) = session.run(["w1_new"], {**state, **batch, **given})
        right, _ = oj.train_step(training, {**state, **given}, batch)
        np.testing.assert_allclose(found, right["w1"], rtol=1e-12)


def test_a_step_follows_all_open_sizes():
    proto = with_weights(
        """f (double[batch, time, 3] x) => (double loss) {
        y = MatMul(x, w)
        z = Sin(y)
        loss = ReduceSum<keepdims = 0>(z) }""",
        w=normal(3, 2),
    )
    training = oj.training_model(proto, "loss", optimizer="Momentum")
    exported = oj.export(training, "training_step", {"x": normal(2, 5, 3)})
    assert oj.load(exported).inputs["x"].shape == ("batch", "time", 3)
    state, held = oj.initial_state(training), numpy_helper.to_array(proto.graph.initializer[0])
    for shape in ((4, 5, 3), (2, 7, 3), (3, 5, 3)):  # train_step supports every size
        x = normal(*shape)
        slope = np.einsum("bti,btj->ij", x, np.cos(x @ held))
        found, _ = oj.train_step(training, state, {"x": x})
        np.testing.assert_allclose(found["w_velocity"], slope, rtol=1e-12)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("size", [1, 4, 5])
@pytest.mark.parametrize("net", [mlp, cnn])
def test_the_same_step_runs_for_all_batch_sizes(net, size, monkeypatch):
    proto, loss, *_, batches = net()
    training = oj.training_model(proto, loss)
    monkeypatch.setattr(step_module, "STEPS", deque())
    exported, make, state = [], step_module.training_step, None
    monkeypatch.setattr(step_module, "training_step", lambda *a: exported.append(a) or make(*a))
    for n in (size, *SIZES):
        state, _ = oj.train_step(training, state, batches(n, n))
    assert len(exported) == 1


@pytest.mark.parametrize("changed", ["b2", "w1"])
def test_a_step_is_kept_by_all_but_the_numbers_that_a_state_holds(changed, monkeypatch):
    proto, loss, *_, batches = mlp()
    training = oj.training_model(proto, loss, trainable=["w1"], optimizer="Momentum")
    state, made, make = oj.initial_state(training), [], step_module.training_step
    _, before = oj.train_step(training, state, batches(3, 0))
    monkeypatch.setattr(step_module, "training_step", lambda *a: made.append(a) or make(*a))
    held = {tensor.name: tensor for tensor in training.graph.initializer}[changed]
    held.CopyFrom(numpy_helper.from_array(normal(*held.dims, seed=9), changed))
    _, after = oj.train_step(training, state, batches(3, 0))
    frozen = changed == "b2"
    assert len(made) == frozen
    assert (after["loss"] != before["loss"]) == frozen


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"of": "loss"}, "takes the model and inputs= alone"),
        ({"inputs": {"x": np.zeros((2, 6))}}, "missing input: label"),
        ({"inputs": {"x": np.zeros((2, 7)), "label": np.zeros(2, int)}}, r"'x'.*\[2, 7\]"),
        ({"inputs": {"y": np.zeros(2)}}, "no input 'y'"),
    ],
)
def test_an_export_that_does_not_fit_is_refused(given, message):
    training = oj.training_model(*mlp()[:2])
    with pytest.raises(oj.InputError, match=message):
        oj.export(training, "training_step", **given)


def test_an_export_of_no_training_model_is_refused():
    proto = mlp()[0]
    with pytest.raises(oj.InputError, match="no training_info"):
        oj.export(proto, "training_step")
    with pytest.raises(oj.InputError, match=r"not Model: pass what training_model made"):
        oj.export(oj.load(proto), "training_step")


# -- optimisers with other memory, and what is no optimiser ----------------------------------------

KEPT = 3
"""The number of pairs of differences that L-BFGS keeps."""


def lbfgs():
    """L-BFGS steps: two loops over pairs (s, y), the oldest first, zeros at the start.

    Each tensor has its own direction, torch has one for all: they agree for a single tensor.
    """
    lines, last = [], KEPT - 1
    for k in range(KEPT):
        lines += [
            f"at{k} = Constant<value_int = {k}>()",
            f"s{k} = Gather(S1, at{k})", f"y{k} = Gather(Y1, at{k})",
            f"sy{k} = Mul(s{k}, y{k})", f"dot{k} = ReduceSum<keepdims = 0>(sy{k})",
            f"there{k} = Greater(dot{k}, zero)", f"safe{k} = Where(there{k}, dot{k}, one)",
        ]  # fmt: skip
    before = "down"
    for k in reversed(range(KEPT)):
        lines += [
            f"sq{k} = Mul(s{k}, {before})", f"sum{k} = ReduceSum<keepdims = 0>(sq{k})",
            f"al{k} = Div(sum{k}, safe{k})", f"ay{k} = Mul(al{k}, y{k})",
            f"q{k} = Sub({before}, ay{k})",
        ]  # fmt: skip
        before = f"q{k}"
    lines += [
        f"yy = Mul(y{last}, y{last})", "norm = ReduceSum<keepdims = 0>(yy)",
        f"safe_norm = Where(there{last}, norm, one)", f"ratio = Div(safe{last}, safe_norm)",
        f"r = Mul(ratio, {before})",
    ]  # fmt: skip
    before = "r"
    for k in range(KEPT):
        lines += [
            f"yr{k} = Mul(y{k}, {before})", f"rsum{k} = ReduceSum<keepdims = 0>(yr{k})",
            f"be{k} = Div(rsum{k}, safe{k})", f"ab{k} = Sub(al{k}, be{k})",
            f"as{k} = Mul(ab{k}, s{k})", f"r{k} = Add({before}, as{k})",
        ]  # fmt: skip
        before = f"r{k}"
    text = f"""<domain: "me", opset_import: ["": 21]>
        lbfgs (R, T, X, G, P, D, S, Y) => (X1, P1, D1, S1, Y1) {{
        i = Constant<value_float = 1.0>()
        one = CastLike(i, X)
        zero = Sub(one, one)
        first = Constant<value_ints = [0]>()
        second = Constant<value_ints = [1]>()
        end = Constant<value_ints = [1000]>()
        y = Sub(G, P)
        sy = Mul(D, y)
        dot = ReduceSum<keepdims = 0>(sy)
        good = Greater(dot, zero)
        S_rest = Slice(S, second, end, first)
        Y_rest = Slice(Y, second, end, first)
        s_row = Unsqueeze(D, first)
        y_row = Unsqueeze(y, first)
        S_new = Concat<axis = 0>(S_rest, s_row)
        Y_new = Concat<axis = 0>(Y_rest, y_row)
        S1 = Where(good, S_new, S)
        Y1 = Where(good, Y_new, Y)
        down = Neg(G)
        {chr(10).join(lines)}
        size = Abs(G)
        total = ReduceSum<keepdims = 0>(size)
        share = Div(one, total)
        small = Min(one, share)
        t = CastLike(T, X)
        begun = Greater(t, zero)
        scale = Where(begun, one, small)
        rate = Mul(R, scale)
        D1 = Mul(rate, {before})
        P1 = Identity(G)
        X1 = Add(X, D1) }}"""

    def none(x):
        return np.zeros((KEPT, *x.shape))

    memory = {"slope": 0.0, "step": 0.0, "steps": none, "slopes": none}
    return oj.OptimizerFunction(parser.parse_function(text), memory)


def logistic():
    """A convex loss of one vector."""
    weights = {"w": normal(7)}
    proto = with_weights(
        """f (double[batch, 7] x, double[batch] label) => (double loss)
        <double tenth = {0.1}, double one = {1}> {
        z = MatMul(x, w)
        e = Exp(z)
        f = Add(one, e)
        s = Log(f)
        p = Mul(z, label)
        l = Sub(s, p)
        mean = ReduceMean<keepdims = 0>(l)
        q = Mul(w, w)
        n = ReduceSum<keepdims = 0>(q)
        m = Mul(tenth, n)
        loss = Add(mean, m) }""",
        **weights,
    )

    def loss(held, batch):
        z = batch["x"] @ held["w"]
        mean = (functional.softplus(z, threshold=1e3) - z * batch["label"]).mean()
        return mean + 0.1 * (held["w"] ** 2).sum()

    def batches(n, seed):
        batch = batch_of((20, 7), 0)  # full batch at every step
        return {**batch, "label": (batch["label"] % 2).astype(float)}

    return proto, "loss", weights, loss, batches


class Once(torch.optim.LBFGS):
    """L-BFGS whose step uses the existing gradient."""

    def step(self):
        def closure():
            return torch.zeros(())

        return super().step(closure)


def test_the_direction_of_lbfgs_agrees_with_torch():
    def peer(xs):
        return Once(xs, 0.5, max_iter=1, history_size=KEPT)

    _, state = assert_same_run(logistic(), lbfgs(), 0.5, peer, steps=12)
    assert state["w_steps"].shape == (KEPT, 7)


def test_a_function_of_onnxscript_is_an_optimizer():
    script = pytest.importorskip("onnxscript")
    op = script.opset21

    @script.script(script.values.Opset("me", 1), default_opset=op)
    def descent(R, T, X, G):
        return X - R * G

    optimizer = oj.OptimizerFunction(descent)
    assert_same_run(mlp(), optimizer, 0.5, lambda xs: torch.optim.SGD(xs, 0.5), steps=3)


def test_the_learning_rate_has_the_type_of_each_tensor():
    proto = parser.parse_model("""<ir_version: 10, opset_import: ["": 21]>
        f (double[n] x) => (double loss) <double w = {1}, float v = {1}> {
        c = Cast<to = 11>(v) s = Add(w, c) y = Mul(s, x) loss = ReduceSum<keepdims = 0>(y) }""")
    descent = parser.parse_function("""<domain: "me", opset_import: ["": 21]>
        descent (R, T, X, G) => (X1) { d = Mul(R, G) X1 = Sub(X, d) }""")
    training = oj.training_model(
        proto, "loss", optimizer=oj.OptimizerFunction(descent), learning_rate=0.5
    )
    state, _ = oj.train_step(training, None, {"x": np.array([1.0, 2.0])})
    assert (state["w"], state["v"]) == (-0.5, -0.5)
    assert (state["w"].dtype, state["v"].dtype) == (np.float64, np.float32)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("sgd",), "is a FunctionProto, not str"),
        ((SGD,), r"sgd maps \(R, T, X, G, V\) to \(X1, V1\), not \(R, T, X, G\) to \(X\)"),
        ((SGD, {"v": 0.0}, {"momentum": 0.5}), "sgd needs the attribute 'decay'"),
        ((SGD, {"v": 0.0}, {"momentun": 0.5}), "no attribute 'momentun'. Did you mean 'momentum'"),
    ],
)
def test_optimizer_function_rejects_wrong_arguments(arguments, message):
    with pytest.raises(oj.InputError, match=message):
        oj.OptimizerFunction(*arguments)


def test_memory_that_changes_its_shape_is_refused():
    growing = parser.parse_function("""<domain: "me", opset_import: ["": 21]>
        growing (R, T, X, G, M) => (X1, M1) { X1 = Identity(X) M1 = Concat<axis = 0>(M, M) }""")
    optimizer = oj.OptimizerFunction(growing, {"seen": 0.0})
    training = oj.training_model(*mlp()[:2], ["b1"], optimizer)
    with pytest.raises(oj.InputError, match=r"'b1_seen_new' is float64\[20\], .* float64\[10\]"):
        oj.export(training, "training_step")


@pytest.mark.parametrize(
    ("optimizer", "message"),
    [
        (oj.OptimizerFunction(SGD, {"gradient": 0.0}, {"momentum": 0.5, "decay": 0.0}),
         "'b1_gradient' would be in the training step twice"),
        (oj.OptimizerFunction(SGD, {"rate": 0.0}, {"momentum": 0.5, "decay": 0.0}),
         "'b1_rate' would be in the training step twice"),
    ],
)  # fmt: skip
def test_memory_whose_name_is_taken_is_refused(optimizer, message):
    with pytest.raises(oj.InputError, match=message):
        oj.training_model(*mlp()[:2], ["b1"], optimizer)


def test_a_model_that_has_a_tensor_of_the_step_is_refused():
    proto = with_weights(
        """f (double[n] learning_rate) => (double loss) {
        y = Mul(w, learning_rate)
        loss = ReduceSum<keepdims = 0>(y) }""",
        w=np.array(1.0),
    )
    with pytest.raises(oj.InputError, match="'learning_rate' would be in the training step twice"):
        oj.training_model(proto, "loss")


def test_an_optimizer_is_a_name_or_an_optimizer():
    with pytest.raises(oj.InputError, match="is no FunctionProto: name it, or make an Optimizer"):
        oj.training_model(*mlp()[:2], optimizer=SGD)


def test_a_loss_of_gradients_in_a_function_that_is_called_twice():
    slope = parser.parse_function("""<domain: "me",
        opset_import: ["": 21, "ai.onnx.preview.training": 1]>
        slope (x) => (d) {
            s = Mul(x, x)
            y = Mul(s, x)
            d = ai.onnx.preview.training.Gradient <xs = ["x"], y = "y"> (x) }""")
    proto = parser.parse_model("""<ir_version: 10,
        opset_import: ["": 21, "me": 1, "ai.onnx.preview.training": 1]>
        f (double[batch] x) => (double loss) <double w = {0.75}> {
        y = Mul(w, x)
        s = me.slope(y)
        d = me.slope(s)
        loss = ReduceMean<keepdims = 0>(d) }""")
    proto.functions.append(slope)
    training = oj.training_model(proto, "loss", optimizer=oj.Momentum(alpha=0), learning_rate=0.01)
    step, state, w = step_of(training), oj.initial_state(training), 0.75
    for turn, n in enumerate(SIZES):  # d = 3 s², s = 3 y²
        x = normal(n, seed=turn)
        state, outputs = step(state, {"x": x})
        np.testing.assert_allclose(outputs["loss"], np.mean(27 * (w * x) ** 4), rtol=1e-10)
        w -= 0.01 * np.mean(27 * 4 * w**3 * x**4)
        np.testing.assert_allclose(state["w"], w, rtol=1e-10)


@pytest.mark.filterwarnings("error")
def test_dropout_draws_at_every_step_and_its_gradient_has_the_same_mask():
    proto = with_weights(
        """f (double[batch, 6] x) => (double loss, double[batch, 6] h)
        <float ratio = {0.5}, bool training = {1}> {
        h = Dropout(x, ratio, training)
        z = Mul(h, w)
        loss = ReduceSum<keepdims = 0>(z) }""",
        w=normal(6),
    )
    training = oj.training_model(proto, "loss", ["w"], oj.Momentum(alpha=0), learning_rate=1.0)
    step, state, seen = step_of(training), oj.initial_state(training), []
    for n in (*SIZES, 3):
        new, outputs = step(state, {"x": np.ones((n, 6))})
        np.testing.assert_allclose(state["w"] - new["w"], outputs["h"].sum(0), rtol=1e-12)
        assert set(np.unique(outputs["h"])) <= {0, 2}
        seen.append(outputs["h"])
    assert not np.array_equal(seen[3], seen[-1])


@pytest.mark.parametrize("opset", [18, 23])
def test_an_optimizer_of_another_opset_is_refused(opset):
    function = onnx.FunctionProto()
    function.CopyFrom(SGD)
    function.opset_import[0].version = opset
    optimizer = oj.OptimizerFunction(function, {"v": 0.0}, {"momentum": 0.5, "decay": 0.0})
    with pytest.raises(oj.InputError, match=f"sgd is written for opset {opset}, .* at 21: write"):
        oj.training_model(*mlp()[:2], optimizer=optimizer)
