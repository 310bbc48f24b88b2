"""Bad input: one clear error of onnxjac's own, which says what to do next."""

import inspect
import re
import warnings

import numpy as np
import onnx
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from onnx import TensorProto, helper, numpy_helper, parser

import onnxjac as oj

X = np.random.default_rng(0).standard_normal((2, 3))


def model(body, signature="(double[2,3] x) => (double[2,3] y)", imports="", **weights):
    """A loaded model in ONNX's text format, with initializers."""
    text = f'<ir_version: 10, opset_import: ["": 21{imports}]> g {signature} {{ {body} }}'
    proto = parser.parse_model(text)
    for name, array in weights.items():
        proto.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
    return oj.load(proto)


@pytest.fixture
def net():
    """y = tanh(x + bias) at the given rows."""
    return model("s = Add(x, bias) t = Tanh(s) y = Gather(t, rows)",
                 "(double[2,3] x, int64[K] rows) => (double[K,3] y)", bias=np.ones(3))


POINT = {"x": X, "rows": [0, 1, 1]}


# -- inputs ----------------------------------------------------------------------------------------

INPUTS = {
    "unknown name": ({**POINT, "bais": X}, r"no input 'bais'. Did you mean 'bias'\?"),
    "wrong rank": ({**POINT, "x": X[0]}, r"'x', declared as float64\[2,3\], .*shape \[3\]"),
    "wrong shape": ({**POINT, "x": X.T}, r"'x', declared as float64\[2,3\], .*shape \[3, 2\]"),
    "wrong dtype": ({**POINT, "rows": np.ones(1)}, r"'rows', declared as int64\[K\], .*float64"),
    "integers for floats": ({**POINT, "x": X.astype(int)}, r"'x', declared as float64.*int64"),
    "complex": ({**POINT, "x": X + 0j}, "'x', declared as float64.*complex128"),
    "text": ({**POINT, "x": "hello"}, "'x'"),
    "ragged": ({**POINT, "x": [[1.0, 2.0], [3.0]]}, "'x', .*cannot be made of the given value"),
    "none": ({**POINT, "x": None}, "'x'"),
    "missing": ({"x": X}, r"missing input: rows int64\[K\]"),
    "nothing": ({}, "missing input: x"),
    "no dict": (X, "inputs must be a dict from name to array, not ndarray"),
}


@pytest.mark.parametrize("case", INPUTS)
@pytest.mark.parametrize("call", [oj.linearize, oj.vjp, oj.Model.run])
def test_inputs_that_do_not_fit(net, case, call):
    point, message = INPUTS[case]
    with pytest.raises(oj.InputError, match=message):
        call(net, point)


def test_inputs_that_are_left_out(net):
    slopes = (lambda net: oj.grad(net, of="s"), lambda net: oj.value_and_grad(net, of="s")())
    for call in (oj.linearize, oj.hessian, oj.gram, oj.vjp, *slopes):
        with pytest.raises(oj.InputError, match=r"missing input: x float64\[2,3\], rows int64"):
            call(net)
    bare = model("y = Mul(w, w)", "() => (double[2] y)", w=[1.0, 3.0])
    assert_allclose(oj.linearize(bare, wrt="w").toarray(), np.diag([2.0, 6.0]))


@pytest.mark.parametrize("case", INPUTS)
def test_relinearize_checks_its_point_too(net, case):
    point, message = INPUTS[case]
    J = oj.linearize(net, POINT)
    with pytest.raises(oj.InputError, match=message):
        J.relinearize(point)


def test_an_index_out_of_range(net):
    for engine in ("numpy", None):
        with pytest.raises(oj.OnnxJacError, match="Gather"):
            oj.linearize(net, {"x": X, "rows": [5]}, engine=engine)


def test_an_unknown_engine(net):
    with pytest.raises(oj.InputError, match="engine='xla' is not one of"):
        oj.linearize(net, POINT, engine="xla")


def test_a_number_of_segments(net):
    with pytest.raises(oj.InputError, match=r"checkpoint=-2 must be .*a whole number, at least 0"):
        oj.linearize(net, POINT, checkpoint=-2)


COUNTS = {
    "products": lambda J, count: J.plan(products=count) @ np.ones(J.shape[1]),
    "maxiter": lambda J, count: (J @ J.T).inverse(solver="cg", maxiter=count),
    "rank": lambda J, count: oj.preconditioners.low_rank_plus_damping(J @ J.T, count, damping=1.0),
    "blocks": lambda J, count: oj.preconditioners.block_jacobi(J @ J.T, count),
    "keep": lambda J, count: oj.gram(J.route.model, [POINT], keep=count),
}


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize("count", ["3", 2.5, -1])
def test_counts_must_be_whole_numbers(net, name, count):
    with pytest.raises(oj.InputError, match=f"{name}={count!r} must be a whole number"):
        COUNTS[name](oj.linearize(net, POINT), count)


# -- wrt and of ------------------------------------------------------------------------------------

NAMES = {
    "unknown wrt": ({"wrt": "bais"}, oj.UnknownTensor, r"no tensor 'bais'. Did you mean 'bias'\?"),
    "unknown of": ({"of": ["y", "zzz"]}, oj.UnknownTensor, r"no tensor 'zzz'\. There are: 'x'"),
    "integer wrt": ({"wrt": ["x", "rows"]}, oj.InputError,
                    "wrt='rows' is a tensor of int64: only floating tensors have derivatives"),
    "integer of": ({"of": "rows"}, oj.InputError, "of='rows' is a tensor of int64"),
    "empty wrt": ({"wrt": []}, oj.InputError, "wrt is empty"),
    "empty name": ({"wrt": ""}, oj.UnknownTensor, "no tensor ''"),
    "no name": ({"of": [0]}, oj.InputError, "of must name tensors of the model, not be 0"),
    "an array": ({"wrt": [np.zeros((40, 40))]}, oj.InputError, r"not be array\(\[\[0.*…$"),
    "a name twice": ({"wrt": ["x", "x"]}, oj.InputError, "wrt names 'x' twice: name each"),
    "no names": ({"of": 3}, oj.InputError, "of must name tensors of the model, not be 3"),
}  # fmt: skip


@pytest.mark.parametrize("case", NAMES)
@pytest.mark.parametrize("call", [oj.linearize, oj.vjp])
def test_names_that_do_not_fit(net, case, call):
    names, kind, message = NAMES[case]
    with pytest.raises(kind, match=message):
        call(net, POINT, **names)


def test_a_model_without_weights():
    plain = model("y = Tanh(x)")
    with pytest.raises(oj.InputError, match=r"no floating initializer: name .* such as 'x'"):
        oj.kfac(plain, {"x": X}, at="y")


def test_an_integer_that_shows_only_at_the_point():
    """The file does not declare the type of an intermediate; the values show it."""
    proto = helper.make_model(
        helper.make_graph(
            [
                helper.make_node("Thing", ["x"], ["n"], domain="my"),
                helper.make_node("Neg", ["x"], ["y"]),
            ],
            "g", [helper.make_tensor_value_info("x", TensorProto.DOUBLE, [3])],
            [helper.make_tensor_value_info("y", TensorProto.DOUBLE, [3])],
        ),
        opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("my", 1)], ir_version=10,
    )  # fmt: skip
    m = oj.load(proto)
    assert m.spec("n").dtype is None
    with pytest.raises(oj.InputError, match="of='n' is a tensor of int64"):
        oj.linearize(m, {"x": X[0], "n": np.arange(3)}, of="n")


def test_a_model_without_floating_inputs():
    m = model("y = Cast<to=11>(n)", "(int64[2,3] n) => (double[2,3] y)")
    with pytest.raises(oj.InputError, match=r"no floating input, but n int64.2,3.; no other"):
        oj.linearize(m, {"n": np.zeros((2, 3), int)})


# -- tangents and cotangents -----------------------------------------------------------------------


def test_tangents_that_do_not_fit(net):
    J = oj.linearize(net, POINT)
    for apply, name in ((J.apply, "x"), (J.T.apply, "y")):
        with pytest.raises(oj.InputError, match=rf"'{name}' has shape \[3\], not \[\d, 3\]"):
            apply({name: X[0]})
        with pytest.raises(oj.UnknownTensor, match="'q' is not on this side of"):
            apply({"q": X})
        with pytest.raises(oj.InputError, match=f"the tensor for '{name}' cannot be made of"):
            apply({name: [[1.0], [2.0, 3.0]]})
        with pytest.raises(oj.InputError, match=f"the tensor for '{name}' cannot be made of"):
            apply({name: X + 1j})
        with pytest.raises(oj.InputError, match="a dict from name to array, not ndarray"):
            apply(X)
        with pytest.raises(oj.UnknownTensor, match="'rows' is not on this side"):
            apply({"rows": [0, 1, 2]})


def test_jvp_and_vjp_with_what_does_not_fit(net):
    with pytest.raises(oj.InputError, match="'x' has shape"):
        oj.jvp(net, POINT, {"x": X.T})
    with pytest.raises(oj.InputError, match="wrt='rows' is a tensor of int64"):
        oj.jvp(net, POINT, {"rows": [0, 1, 2]})
    with pytest.raises(TypeError, match="unexpected keyword argument 'wrt'"):
        oj.jvp(net, POINT, {"x": X}, wrt="x")  # the tangents name these tensors
    with pytest.raises(oj.InputError, match="a dict from name to array, not ndarray"):
        oj.jvp(net, POINT, X)
    _, pullback = oj.vjp(net, POINT)
    with pytest.raises(oj.InputError, match=r"'y' has shape \[2, 3\], not \[3, 3\]"):
        pullback(X)
    _, pullback = oj.vjp(net, POINT, of=["y", "t"])
    with pytest.raises(oj.InputError, match=r"cotangents by name, for any of \['y', 't'\]"):
        pullback(X)


def test_blocks_that_are_not_there(net):
    J = oj.linearize(net, POINT)
    with pytest.raises(oj.UnknownTensor, match=r"'x' is not on this side .* There are: 'y'"):
        J["x", "y"]
    with pytest.raises(oj.UnknownTensor, match=r"'xx' is not .* (Did you mean|There are:) 'x'"):
        J["y", "xx"]


def test_flat_vectors_of_a_wrong_length(net):
    J = oj.linearize(net, POINT)
    for vector in (np.ones(5), np.ones((5, 2)), np.ones((2, 3))):
        with pytest.raises(ValueError, match="mismatch"):
            J @ vector


# -- operators without a rule ----------------------------------------------------------------------


def custom(op_type, domain, version, kind=TensorProto.DOUBLE, **attributes):
    """y = op(-x), a node of a domain of its own."""
    nodes = [
        helper.make_node("Neg", ["x"], ["a"]),
        helper.make_node(op_type, ["a"], ["y"], "special", domain=domain, **attributes),
    ]
    x, y = (helper.make_tensor_value_info(name, kind, [2, 3]) for name in "xy")
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(domain, version)]
    graph = helper.make_graph(nodes, "g", [x], [y])
    return oj.load(helper.make_model(graph, opset_imports=opsets, ir_version=10))


@pytest.mark.parametrize("engine", [None, "numpy"])
def test_an_operator_that_cannot_be_run(engine):
    m = custom("Twice", "my.domain", 4)
    message = (
        r"my\.domain::Twice .*'special', opset 4.*"
        r"@onnxjac\.defines\('my\.domain::Twice'\).*constants"
    )
    with pytest.raises(oj.UnsupportedOp, match=message):
        oj.linearize(m, {"x": X}, engine=engine)
    J = oj.linearize(m, {"x": X, "y": 2 * X}, of="a", engine=engine)
    assert_array_equal(J["a", "x"].toarray(), -np.eye(6))


@pytest.mark.parametrize("wrong", [lambda op, node: op.Abs(node.x), lambda op, node: (None - 1,)])
def test_a_definition_at_fault(clean_registry, wrong):
    """An error in a user's definition is distinguished from one of an unsupported operator."""
    oj.defines("my.domain::Wrong")(wrong)
    message = r"'special', opset 1\) fails on a float64\[2, 3\]: .+\. Its definition may only call"
    with pytest.raises(oj.OnnxJacError, match=message):
        oj.linearize(custom("Wrong", "my.domain", 1), {"x": X})
    with pytest.raises(oj.InputError, match="defines takes names"):
        oj.defines(wrong)


def test_an_operator_of_another_domain(clean_registry):
    """ONNX Runtime runs it; its derivative is unknown until registered."""
    pytest.importorskip("onnxruntime")
    from onnxjac.jacobians import Diagonal

    del clean_registry["QuickGelu", "com.microsoft"]  # as if unknown
    m = custom("QuickGelu", "com.microsoft", 1, TensorProto.FLOAT, alpha=1.5)
    message = (
        r"com\.microsoft::QuickGelu \(node 'special', opset 1\) has neither a rule nor a function "
        r"body: register one with @onnxjac\.jacobian\('com\.microsoft::QuickGelu'\).*"
        r"a float32\[2, 3\], y float32\[2, 3\]"
    )
    with pytest.raises(oj.UnsupportedOp, match=message):
        oj.linearize(m, {"x": X})

    @oj.jacobian("com.microsoft::QuickGelu")
    def quick_gelu(op, node):
        s = op.Sigmoid(op.Mul(node.x, np.float32(node.alpha)))
        slope = op.Add(s, op.Mul(op.Mul(node.y, np.float32(node.alpha)), op.Sub(np.float32(1), s)))
        return {(0, 0): Diagonal(slope)}

    assert oj.linearize(m, {"x": X}).check()


def test_an_operator_of_onnx_without_rule(clean_registry):
    m = model("a = Neg(x) y = Tanh(a)")
    del clean_registry["Tanh", ""]
    message = (
        r"Tanh \(node 'Tanh_1', opset 21\) has neither a rule nor a function body: register "
        r"one with @onnxjac\.jacobian\('Tanh'\).*a float64\[2, 3\], y float64\[2, 3\]"
    )
    with pytest.raises(oj.UnsupportedOp, match=message):
        oj.linearize(m, {"x": X})
    J = oj.linearize(m, {"x": X}, of="a")  # the rest of the model is still differentiable
    assert_array_equal(J.toarray(), -np.eye(6))


@pytest.mark.usefixtures("clean_registry")
def test_a_rule_that_fails_says_where():
    m = model("y = Tanh(x)")

    @oj.jacobian("Tanh")
    def broken(op, node):
        return {(0, 0): op.MatMul(node.x, node.x)}

    message = r"the rule of Tanh \(node 'Tanh_0', opset 21\) failed on x float64\[2, 3\], y"
    with pytest.raises(oj.OnnxJacError, match=message):
        oj.linearize(m, {"x": X})


@pytest.mark.usefixtures("clean_registry")
@pytest.mark.parametrize("wrong", ["shape", "kind", "key"])
def test_a_rule_that_returns_nonsense_says_where(wrong):
    from onnxjac.jacobians import Identity

    m = model("y = Tanh(x)")
    nonsense = {"shape": {(0, 0): Identity((3, 2), np.float64)}, "kind": {(0, 0): X}, "key": X}

    @oj.jacobian("Tanh")
    def careless(op, node):
        return nonsense[wrong]

    with pytest.raises(oj.OnnxJacError, match=r"the rule of Tanh \(node 'Tanh_0', opset 21\)"):
        oj.linearize(m, {"x": X})


def test_tensors_captured_by_a_branch_have_a_path():
    """The branch of an If captures x, which is a path too."""
    m = model("""c = Constant<value = bool {1}>() y = If(c) <
        then_branch = yes () => (double[2,3] a) { a = Mul(x, x) },
        else_branch = no () => (double[2,3] b) { b = Identity(x) }>""")
    assert_allclose(oj.linearize(m, {"x": X}).diagonal(), 2 * X.ravel())


# -- NaN and infinity ----------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["numpy", None])
def test_a_point_that_is_not_finite_is_one_warning(engine):
    m = model("s = Sub(x, x) l = Log(s) e = Exp(x) y = Add(l, e)")
    with pytest.warns(oj.OnnxJacWarning) as caught:
        oj.linearize(m, {"x": X}, engine=engine)
    (warning,) = caught
    text = str(warning.message)
    assert "'y' is not finite at this point" in text
    assert "Log (node 'Log_1'" in text
    assert "s in [0, 0]" in text
    assert warning.filename == __file__


def test_an_input_that_is_not_finite():
    with pytest.warns(oj.OnnxJacWarning, match="'x' was given so") as caught:
        oj.linearize(model("y = Neg(x)"), {"x": X * np.nan})
    assert len(caught) == 1


def test_infinities_that_do_not_arrive_are_no_matter():
    m = model("z = Sub(x, x) i = Reciprocal(z) y = Atan(i)")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        oj.linearize(m, {"x": X})


# -- size ------------------------------------------------------------------------------------------


def test_toarray_has_a_limit():
    m = model("y = Neg(x)", "(double[N] x) => (double[N] y)")
    J = oj.linearize(m, {"x": np.ones(40_000)})
    with pytest.raises(oj.LimitError, match=r"40000×40000 .*11.92 GiB.*limit of 2.00 GiB.*limit="):
        J.toarray()
    small = oj.linearize(m, {"x": np.ones(8)})
    with pytest.raises(oj.LimitError, match="take a block"):
        small.toarray(limit=511)
    assert_array_equal(small.toarray(limit=512), -np.eye(8))


@pytest.mark.parametrize("engine", [None, "onnxruntime", "numpy"])
@pytest.mark.parametrize("loss", ["NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"])
@pytest.mark.parametrize(("labels", "weights"), [(1, 3), (2, 2)])
def test_a_loss_refuses_labels_and_weights_that_do_not_fit(loss, labels, weights, engine):
    """ONNX Runtime accepts any number of labels."""
    model = oj.load(onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["": 21]>
        f (double[N, 3] x, int64[M] t, double[K] w) => (double y) {{ y = {loss}(x, t, w) }}"""))
    point = {"x": np.ones((2, 3)), "t": np.zeros(labels, np.int64), "w": np.ones(weights)}
    with pytest.raises(oj.OnnxJacError, match=loss):
        model.run(point, engine=engine)
    fitting = {**point, "t": np.zeros(2, np.int64), "w": np.ones(3)}
    assert np.isfinite(model.run(fitting, engine=engine)["y"]).all()


def test_arguments_that_go_by_name(net):
    point = {"x": X, "rows": np.array([0])}
    for function in (oj.linearize, oj.hessian, oj.grad):
        said = f"{function.__name__} takes model, inputs by position"
        with pytest.raises(oj.InputError, match=said):
            function(net, point, "y")


@pytest.mark.parametrize("divisor", [0, 0.0, False, np.float32(0), 0j, None, np.ones(3), [1.0]])
def test_a_divisor_is_a_number_other_than_0(divisor):
    with pytest.raises(oj.InputError, match=r"J / c takes a number c other than 0, not .*: "):
        oj.asoperator(np.eye(3)) / divisor


def takes_arguments(function):
    """Whether a function has a positional parameter without a default."""
    kinds = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    found = inspect.signature(function).parameters.values()
    return any(p.kind in kinds and p.default is p.empty for p in found)


FUNCTIONS = {name: f for name in oj.__all__ if inspect.isfunction(f := getattr(oj, name))}


@pytest.mark.parametrize("name", [n for n, f in FUNCTIONS.items() if takes_arguments(f)])
def test_a_call_without_arguments_names_the_function(name):
    with pytest.raises(TypeError, match=rf"^{name}\(\) missing"):
        FUNCTIONS[name]()


def test_a_number_is_no_operator():
    J = oj.asoperator(np.eye(2))
    for sum_ in (lambda: J + 1.0, lambda: 1.0 + J, lambda: J.T @ J - 2):
        with pytest.raises(oj.InputError, match=r"c \* identity_like\(J\) adds c I"):
            sum_()


@pytest.mark.parametrize("node", [
    "Softmax(x)", "LogSoftmax(x)", "LpNormalization(x)", "CumSum(x, axis)", "Hardmax(x)",
    "LayerNormalization(x, x)", "Gather(x, axis)",
])  # fmt: skip
def test_an_axis_of_a_scalar(node):
    """An answer, or a refusal that is no text of Python's."""
    net = model(f"y = {node}", "(double x) => (double y)", axis=np.array(0))
    said = ""
    try:
        assert not oj.linearize(net, {"x": np.array(0.5)}, engine="numpy").toarray().any()
    except oj.OnnxJacError as error:
        said = str(error)
    assert not re.search("ZeroDivision|IndexError|modulo|out of range", said)


def test_arrays_of_strings_are_taken():
    net = model("e = Equal(s, t) z = Cast<to=11>(e) y = Mul(x, z)",
                "(double[2] x, string[2] s, string[2] t) => (double[2] y)")  # fmt: skip
    point = {"x": np.ones(2), "s": np.array(["a", "b"]), "t": np.array(["a", "c"])}
    assert_array_equal(oj.linearize(net, point, wrt="x").diagonal(), [1, 0])
