"""The state of a training model: initialised, saved, and defined by bindings."""

import numpy as np
import onnx
import pytest
from onnx import checker, numpy_helper, parser

import onnxjac as oj

MODEL = parser.parse_model("""<ir_version: 10, opset_import: ["": 21]>
    line (double[batch, 2] x, double[batch] y) => (double loss)
    <double[2] w = {1, -1}, double b = {0.5}> {
    p = MatMul(x, w)
    q = Add(p, b)
    off = Sub(q, y)
    square = Mul(off, off)
    loss = ReduceMean<keepdims = 0>(square) }""")

BATCH = {"x": np.random.default_rng(0).standard_normal((7, 2)), "y": np.arange(7.0)}


def training():
    return oj.training_model(MODEL, "loss", optimizer="Momentum", learning_rate=0.125)


# -- saved -----------------------------------------------------------------------------------------


def test_a_saved_state_is_loaded_deployed_and_trained_further(tmp_path):
    first, state = training(), None
    for _ in range(3):
        state, _ = oj.train_step(first, state, BATCH)
    before = first.SerializeToString(deterministic=True)
    saved = oj.save_state(first, state)
    assert first.SerializeToString(deterministic=True) == before
    checker.check_model(saved, full_check=True)
    onnx.save(saved, tmp_path / "saved.onnx")
    again = onnx.load(tmp_path / "saved.onnx")
    found = oj.load_state(again)
    assert found.keys() == state.keys() == {"w", "b", "w_velocity", "b_velocity", "update_count"}
    for name, array in state.items():
        np.testing.assert_array_equal(found[name], array)
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
    deployed = oj.load(tmp_path / "saved.onnx").run(BATCH)
    right = oj.load(MODEL).run({**BATCH, "w": state["w"], "b": state["b"]})
    np.testing.assert_array_equal(deployed["loss"], right["loss"])
    (one, _), (other, _) = (oj.train_step(first, state, BATCH), oj.train_step(again, found, BATCH))
    for name, array in one.items():
        np.testing.assert_array_equal(other[name], array)
    for name, array in oj.initial_state(again).items():
        np.testing.assert_array_equal(array, oj.initial_state(first)[name])


def test_a_saved_state_may_be_a_part_of_it_or_have_other_initializers():
    saved = oj.save_state(training(), {"b": 2, "learning_rate": 0.5})
    assert oj.load_state(saved)["b"] == 2
    state, _ = oj.train_step(saved, None, BATCH)
    right, _ = oj.train_step(
        training(), {**oj.initial_state(training()), "learning_rate": 0.5}, BATCH
    )
    np.testing.assert_array_equal(state["w"], right["w"])


def test_a_large_state_is_saved(tmp_path):
    # about 16 MB, which are saved to an external file, and loaded as external data
    rows = 2**19
    proto = parser.parse_model("""<ir_version: 10, opset_import: ["": 21]>
        f (int64[n] at) => (float loss) {
        y = Gather(table, at)
        loss = ReduceSum<keepdims = 0>(y) }""")
    table = np.arange(rows * 8, dtype=np.float32).reshape(rows, 8)
    proto.graph.initializer.append(numpy_helper.from_array(table, "table"))
    first = oj.training_model(proto, "loss", optimizer=oj.OptimizerFunction(DESCENT))
    outside = {"save_as_external_data": True, "size_threshold": 1024}
    onnx.save(first, tmp_path / "large.onnx", **outside)
    small = onnx.load(tmp_path / "large.onnx", load_external_data=False)
    assert small.graph.initializer[0].data_location == onnx.TensorProto.EXTERNAL
    with pytest.raises(oj.LoadError, match="the data of 'table' is in a file"):
        oj.load_state(small)
    saved = oj.save_state(small, {"table": table + 1})
    assert saved.graph.initializer[0].data_location == onnx.TensorProto.DEFAULT
    onnx.save(saved, tmp_path / "saved.onnx", **outside, location="saved.data")
    found = oj.load_state(onnx.load(tmp_path / "saved.onnx"))
    np.testing.assert_array_equal(found["table"], table + 1)
    deployed = oj.load(tmp_path / "saved.onnx").run({"at": np.array([1, 3])})
    np.testing.assert_allclose(deployed["loss"], (table[[1, 3]] + 1).sum())


DESCENT = parser.parse_function("""<domain: "me", opset_import: ["": 21]>
    descent (R, T, X, G) => (X1) { d = Mul(R, G) X1 = Sub(X, d) }""")


@pytest.mark.parametrize(
    ("state", "kind", "message"),
    [
        ({"v": 1.0}, oj.UnknownTensor, "'v', no initializer. Did you mean 'w_velocity'"),
        ({"w": np.zeros(3)}, oj.InputError, r"state: 'w' is float64\[3\], .* 'w' float64\[2\]"),
        ({"update_count": 1.5}, oj.InputError, r"float64\[\], .* 'update_count' int64\[\]"),
    ],
)
def test_a_state_that_does_not_fit_is_not_saved(state, kind, message):
    with pytest.raises(kind, match=message):
        oj.save_state(training(), state)
    with pytest.raises(oj.InputError, match="no training_info"):
        oj.save_state(MODEL, {})


@pytest.mark.parametrize("state", [[1.0], 3, "w"])
def test_a_state_is_a_dict(state):
    with pytest.raises(oj.InputError, match="a state is a dict from name to array, not"):
        oj.save_state(training(), state)
    with pytest.raises(oj.InputError, match=r"state=.* must be a dict or None"):
        oj.train_step(training(), state, BATCH)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([1.0], "inputs must be a dict"),
        ({**BATCH, "x": [[1.0, 2.0], [3.0]]}, "input 'x'.* cannot be"),
        ({**BATCH, "b": 1.0}, "'b' is no input of a step: what it changes is in state="),
        ({**BATCH, "y": np.zeros(6)}, "'y'.* but batch is 7 in 'x'"),
        ({"x": BATCH["x"]}, "missing input: y"),
    ],
)
def test_inputs_of_a_step_that_do_not_fit_are_refused(inputs, message):
    oj.train_step(training(), None, BATCH)  # a cached step must not affect the checks
    with pytest.raises(oj.InputError, match=message):
        oj.train_step(training(), None, inputs)


# -- drawn -----------------------------------------------------------------------------------------

DRAW = parser.parse_function("""<domain: "me", opset_import: ["": 21]>
    draw () => (r) { r = RandomUniform<dtype = 11, shape = [1]>() }""")

DRAWN = parser.parse_graph("""first () => (double[2] w, double b, double[2] w_velocity) {
    w = RandomNormal<dtype = 11, shape = [2], scale = 0.5>()
    s = me.draw()
    t = me.draw()
    sum = Add(s, t)
    shape = Constant<value_ints: ints = []>()
    b = Reshape(sum, shape)
    w_velocity = RandomUniform<dtype = 11, shape = [2], seed = 3.0>() }""")


def drawn():
    """A training model with random initialisation, partly in a function."""
    made = oj.training_model(MODEL, "loss", optimizer="Momentum", initialization=DRAWN)
    made.functions.append(DRAW)
    made.opset_import.append(onnx.helper.make_opsetid("me", 1))
    return made


def test_the_same_seed_gives_the_same_state_and_another_seed_another():
    one, same, other = (oj.initial_state(drawn(), seed=seed) for seed in (7, 7, 8))
    for name in ("w", "b", "w_velocity"):
        np.testing.assert_array_equal(one[name], same[name])
        assert not np.any(one[name] == other[name])
    np.testing.assert_array_equal(one["b_velocity"], 0)
    assert one["w"][0] != one["w"][1]


def test_draws_have_their_distribution():
    states = [oj.initial_state(drawn(), seed=seed) for seed in range(200)]
    w = np.concatenate([state["w"] for state in states])
    sums = np.array([state["b"] for state in states])
    np.testing.assert_allclose([w.mean(), w.std()], [0, 0.5], atol=0.08)
    # two independent samples; with one sample used twice, the deviation would be 0.577
    np.testing.assert_allclose([sums.mean(), sums.std()], [1, np.sqrt(1 / 6)], atol=0.07)


def test_without_a_seed_the_file_says_what_is_drawn():
    one, other = oj.initial_state(drawn()), oj.initial_state(drawn())
    np.testing.assert_array_equal(one["w_velocity"], other["w_velocity"])
    assert np.all((one["w_velocity"] > 0) & (one["w_velocity"] < 1))


def test_initialization_of_a_constant_is_refused():
    with pytest.raises(oj.UnknownTensor, match="initialization gives 'w', which no step changes"):
        oj.training_model(MODEL, "loss", ["b"], initialization=DRAWN)


def test_a_seed_changes_nothing_where_nothing_is_random():
    for name, array in oj.initial_state(training()).items():
        np.testing.assert_array_equal(oj.initial_state(training(), seed=1)[name], array)


# -- bindings --------------------------------------------------------------------------------------


def broken(change):
    """A training model after a change to its training info."""
    model = training()
    change(model, model.training_info[0])
    return model


def rebound(kind, place, **pair):
    """A binding changed."""

    def change(model, info):
        for part, name in pair.items():
            setattr(getattr(info, kind)[place], part, name)

    return change


def misshapen(model, info):
    node = next(n for n in info.algorithm.node if n.op_type == "Momentum")
    node.output[0] = "w_next"
    info.algorithm.node.add(op_type="Unsqueeze", input=["w_next", "one_axis"], output=["w_new"])
    axis = numpy_helper.from_array(np.array([0]), "one_axis")
    info.algorithm.initializer.append(axis)
    info.algorithm.output[0].type.tensor_type.ClearField("shape")


def of_the_batch(model, info):
    info.algorithm.node.add(op_type="Identity", input=["p"], output=["p_new"])
    info.algorithm.output.append(onnx.helper.make_tensor_value_info("p_new", 11, None))
    info.update_binding[0].value = "p_new"


def initialised_otherwise(dtype, shape):
    def change(model, info):
        value = numpy_helper.from_array(np.zeros(shape, dtype))
        node = onnx.helper.make_node("Constant", [], ["other"], value=value)
        info.initialization.node.append(node)
        kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        made = onnx.helper.make_tensor_value_info("other", kind, shape)
        info.initialization.output.append(made)
        info.initialization_binding[1].value = "other"

    return change


def without(kind):
    def change(model, info):
        nodes = [node for node in info.algorithm.node if node.op_type != kind]
        del info.algorithm.node[:]
        info.algorithm.node.extend(nodes)

    return change


UPDATE, FIRST = "update_binding", "initialization_binding"
BROKEN = {
    "no initializer": (
        rebound(UPDATE, 0, key="v"), oj.UnknownTensor,
        r"training_info\[0\]\.update_binding 'v' <- 'w_new': 'v' is no .* mean '._velocity'",
    ),
    "no output": (
        rebound(UPDATE, 1, value="b_now"), oj.UnknownTensor,
        r"update_binding 'b' <- 'b_now': 'b_now' is no output of the algorithm. Did you mean 'b_n",
    ),
    "bound twice": (
        rebound(UPDATE, 1, key="w"), oj.InputError,
        r"update_binding 'w' <- 'b_new': 'w' is bound twice, before by .* 'w' <- 'w_new'",
    ),
    "another shape": (
        misshapen, oj.InputError,
        r"update_binding 'w' <- 'w_new': 'w_new' is float64\[1, 2\], .* 'w' float64\[2\]",
    ),
    "the size of the batch": (
        of_the_batch, oj.InputError, r"'w' <- 'p_new': 'p_new' is float64\[batch\], .* 'w' fl",
    ),
    "another type": (
        rebound(UPDATE, -1, value="b_new"), oj.InputError,
        r"'update_count' <- 'b_new': 'b_new' is float64\[\], .* 'update_count' int64\[\]",
    ),
    "nothing is bound": (
        lambda model, info: info.ClearField(UPDATE), oj.InputError,
        "training_info has no update_binding",
    ),
    "the optimizer is missing": (
        without("Momentum"), oj.LoadError, "the model with its algorithm: .*w_new",
    ),
    "the gradient is missing": (
        without("Gradient"), oj.LoadError, "the model with its algorithm: .*w_gradient",
    ),
    "no algorithm": (
        lambda model, info: info.ClearField("algorithm"), oj.UnknownTensor, "'w_new' is no output",
    ),
    "no first initializer": (
        rebound(FIRST, 0, key="v"), oj.UnknownTensor,
        r"initialization_binding 'v' <- 'w_first': 'v' is no initializer",
    ),
    "no first output": (
        rebound(FIRST, 0, value="w_1st"), oj.UnknownTensor,
        r"'w' <- 'w_1st': 'w_1st' is no output of the initialization. Did you mean 'w_first'",
    ),
    "first twice": (
        rebound(FIRST, 1, key="w"), oj.InputError, "initialization_binding 'w' <- .* bound twice",
    ),
    "first of another shape": (
        initialised_otherwise(np.float64, [3]), oj.InputError,
        r"initialization_binding 'b' <- 'other': 'other' is float64\[3\], .* 'b' float64\[\]",
    ),
    "first of another type": (
        initialised_otherwise(np.float32, []), oj.InputError, r"'other' is float32\[\], .* 'b' fl",
    ),
    "an initialization with an input": (
        lambda model, info: info.initialization.input.append(model.graph.input[0]),
        oj.InputError, r"training_info\[0\].initialization has an input 'x'",
    ),
    "a broken initialization": (
        lambda model, info: info.initialization.node.pop(0), oj.LoadError,
        r"training_info\[0\].initialization: .*w_first",
    ),
}  # fmt: skip
"""name -> (change, kind of error, message)."""


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_training_model_is_refused(name):
    change, kind, message = BROKEN[name]
    model = broken(change)
    with pytest.raises(oj.OnnxJacError, match=message) as caught:
        oj.train_step(model, None, BATCH)
    assert type(caught.value) is kind


@pytest.mark.parametrize("others", [0, 1])
def test_an_initialization_alone_is_a_training_info(others):
    """Before or behind an algorithm, too, whose step it does not change."""
    model = training() if others else onnx.ModelProto()
    if not others:
        model.CopyFrom(MODEL)
    info = model.training_info.add()
    info.initialization.CopyFrom(parser.parse_graph("""first () => (double[2] drawn) {
        drawn = RandomNormal<dtype = 11, shape = [2]>() }"""))
    key = "one" if others else "w"
    if others:
        model.graph.initializer.append(numpy_helper.from_array(np.zeros(2), key))
    info.initialization_binding.add(key=key, value="drawn")
    checker.check_model(model)
    start = oj.initial_state(model, seed=3)
    assert np.any(start[key])
    assert key in oj.load_state(model)
    saved = oj.save_state(model, start)
    np.testing.assert_array_equal(oj.load_state(saved)[key], start[key])
    if others:
        state, _ = oj.train_step(model, None, BATCH)
        right, _ = oj.train_step(training(), None, BATCH)
        for name, array in right.items():
            np.testing.assert_array_equal(state[name], array)
    else:
        with pytest.raises(oj.InputError, match="has no update_binding: a step changes nothing"):
            oj.train_step(model, start, BATCH)


def test_lowered_gradients_leave_the_training_of_a_model(tmp_path):
    """The model itself has a Gradient; tensors that only the algorithm reads stay."""
    text = onnx.printer.to_text(MODEL).replace("(double loss)", "(double loss, double[2] d)")
    node = 'd = ai.onnx.preview.training.Gradient<xs=["w"], zs=["x", "y", "b"], y="loss">(w,x,y,b)'
    head, _, rest = text.rpartition("}")
    proto = parser.parse_model(head.replace('"" : 21', '"" : 21, "ai.onnx.preview.training" : 1')
                               + node + "}" + rest)  # fmt: skip
    made = oj.training_model(proto, "square", optimizer="Momentum", learning_rate=0.125)
    lowered = oj.lower_gradients(made)
    assert {node.domain for node in lowered.graph.node} == {""}
    assert [*lowered.training_info] == [*made.training_info]
    checker.check_model(lowered)
    onnx.save(made, tmp_path / "made.onnx")
    for source in (tmp_path / "made.onnx", made.SerializeToString()):
        assert oj.lower_gradients(source).training_info == lowered.training_info
    state = other = None
    for _ in range(2):
        (state, outputs), (other, again) = (
            oj.train_step(m, s, BATCH) for m, s in ((made, state), (lowered, other)))
        for found, right in ((other, state), (again, outputs)):
            for name, array in right.items():
                np.testing.assert_allclose(found[name], array, rtol=1e-12)
    old = onnx.ModelProto()
    old.CopyFrom(made)
    old.opset_import[0].version = 18
    with pytest.warns(oj.OnnxJacWarning, match="training_info is left out: .* opset, 21"):
        assert not oj.lower_gradients(old).training_info


# -- several algorithms ----------------------------------------------------------------------------


def block(name, others, rate, algorithm):
    """One algorithm: gradient descent in one weight.

    The other weight must be listed in zs only if an earlier algorithm changes it.
    """
    listed, given = f', "{others}"' if others else "", f", {others}" if others else ""
    made = parser.parse_graph(
        f"""block () => (double[{2 if name == "w" else ""}] {name}_next,
        int64 {name}_count_next) <double rate = {{{rate}}}, int64 {name}_count = {{0}},
            int64 one = {{1}}> {{
        slope = ai.onnx.preview.training.Gradient <xs = ["{name}"],
            zs = ["x", "y"{listed}], y = "loss"> ({name}, x, y{given})
        way = Mul(rate, slope)
        {name}_next = Sub({name}, way)
        {name}_count_next = Add({name}_count, one) }}""".replace("double[] ", "double ")
    )
    algorithm.CopyFrom(made)


def test_several_algorithms_follow_each_other():
    model = onnx.ModelProto()
    model.CopyFrom(MODEL)
    model.opset_import.append(onnx.helper.make_opsetid("ai.onnx.preview.training", 1))
    rates = {"w": 0.125, "b": 0.25}
    for name, other in (("w", ""), ("b", "w")):
        info = model.training_info.add()
        block(name, other, rates[name], info.algorithm)
        for key in (name, f"{name}_count"):
            info.update_binding.add(key=key, value=f"{key}_next")
    checker.check_model(oj.export(model, "training_step"), full_check=True)
    state, w, b = None, np.array([1.0, -1]), 0.5
    for turn in range(1, 4):
        off = BATCH["x"] @ w + b - BATCH["y"]
        before = np.mean(off**2)
        w = w - 0.125 * 2 / 7 * BATCH["x"].T @ off
        off = BATCH["x"] @ w + b - BATCH["y"]  # the second algorithm sees the new w
        between = np.mean(off**2)
        b = b - 0.25 * 2 * np.mean(off)
        state, outputs = oj.train_step(model, state, BATCH)
        np.testing.assert_allclose(state["w"], w, rtol=1e-12)
        np.testing.assert_allclose(state["b"], b, rtol=1e-12)
        np.testing.assert_allclose(outputs["loss"], before, rtol=1e-12)
        np.testing.assert_allclose(outputs["loss_1"], between, rtol=1e-12)
        assert state["w_count"] == state["b_count"] == turn
    assert state.keys() == {"w", "b", "w_count", "b_count"}


def test_drawn_tensors_that_no_step_changes_are_used():
    first = parser.parse_graph("""first () => (double[2] w_drawn) {
        w_drawn = RandomNormal<dtype = 11, shape = [2]>() }""")
    made = oj.training_model(MODEL, "loss", ["b"], oj.Momentum(alpha=0), learning_rate=0.5)
    info = made.training_info[0]
    info.initialization.node.extend(first.node)
    info.initialization.output.extend(first.output)
    info.initialization_binding.add(key="w", value="w_drawn")
    start = oj.initial_state(made, seed=3)
    state, _ = oj.train_step(made, start, BATCH)
    off = BATCH["x"] @ start["w"] + 0.5 - BATCH["y"]
    np.testing.assert_allclose(state["b"], 0.5 - 0.5 * 2 * np.mean(off), rtol=1e-12)
    np.testing.assert_array_equal(state["w"], start["w"])
