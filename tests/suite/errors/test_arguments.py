"""Options and arguments of the wrong type or outside of their range: one error that names them."""

import inspect
from contextlib import suppress
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest

import onnxjac as oj
from onnxjac.jacobians import Identity, arguments

from ..hostile.models import model, network
from .refusals import refused

X = {"x": np.ones((2, 3))}
EXEMPT = {"defines", "derive", "jacobian", "kernel", "progress", "zero"}  # declarations, and a flag


def functions():
    """The public functions by name, with the modules of functions."""
    rooms = {"": oj, "estimators.": oj.estimators, "preconditioners.": oj.preconditioners}
    for room, module in {**rooms, "plots.": oj.plots}.items():
        for name in module.__all__:
            if inspect.isfunction(found := getattr(module, name)) and name not in EXEMPT:
                yield f"{room}{name}", found


def methods():
    """The methods of operators that take options."""
    J = oj.linearize(network("double", np.float64), X, of="y")
    H = oj.hessian(network("double", np.float64), X, of="l")
    G = oj.gauss_newton(network("double", np.float64), X, of="l", at="y")
    for label, owner in {"J": J, "H": H, "G": G, "I": Identity((3,), np.float64)}.items():
        for name in ("plan", "compile", "check", "toarray", "tosparse", "inverse", "norm"):
            if found := getattr(owner, name, None):
                yield f"{label}.{name}", found


def checkable(function):
    """The options of a function that can be checked, however it is wrapped."""
    options = inspect.signature(function).parameters
    named = {**vars(arguments), **getattr(inspect.unwrap(function), "__globals__", {})}
    for p in options.values():
        with suppress(NameError):
            found = eval(p.annotation, named) if isinstance(p.annotation, str) else p.annotation
            if p.kind == p.KEYWORD_ONLY and arguments.kinds_in(found) not in arguments.UNCHECKED:
                yield p.name


CASES = [
    pytest.param(function, name, id=f"{label}-{name}")
    for label, function in (*functions(), *methods())
    for name in checkable(function)
]


@pytest.mark.parametrize(("function", "name"), CASES)
def test_an_option_of_another_type_is_refused(function, name):
    first = [*inspect.signature(function).parameters][:2]
    given = (network(), X) if first == ["model", "inputs"] else ()
    with pytest.raises(oj.InputError, match=f"^{name}=.* (must be|is not one of) "):
        function(*given, **{name: SimpleNamespace()})


def test_functions_of_every_module_are_tried():
    labels = {label for label, _ in functions()}
    assert {"linearize", "kfac", "estimators.trace", "preconditioners.ilu"} <= labels
    assert len(CASES) > 150


RANGES = {
    "negative seed": lambda J, A: oj.estimators.trace(A, seed=-1),
    "no products": lambda J, A: oj.estimators.condition_number(A, products=0),
    "no probes": lambda J, A: oj.estimators.spectral_density(A, probes=0),
    "negative memory": lambda J, A: J.compile(memory=-1),
    "negative damping": lambda J, A: oj.preconditioners.jacobi(A, damping=-1.0),
    "damping that is no number": lambda J, A: oj.preconditioners.jacobi(A, damping=np.nan),
    "a rate that is no number": lambda J, A: oj.Adam(alpha=np.nan),
    "products that are no number": lambda J, A: J.plan(products=np.nan),
    "no damping": lambda J, A: oj.preconditioners.low_rank_plus_damping(A, 1, damping=0),
    "no rows": lambda J, A: oj.gram(network(), X, of="y", wrt="w", batch_size=0),
    "endless seed": lambda J, A: oj.estimators.trace(A, seed=np.inf),
    "an array": lambda J, A: J.plan(products=np.ones(2)),
    "several flags": lambda J, A: oj.estimators.trace(A, progress=np.ones(2)),
}


@pytest.mark.parametrize("case", RANGES)
def test_a_number_outside_of_its_range_is_refused(case):
    J = oj.linearize(network(), X, of="y")
    with pytest.raises(oj.InputError, match=r"=.* must be "):
        RANGES[case](J, Identity((3,), np.float64))


def test_numbers_of_other_types_are_taken():
    A = Identity((3,), np.float64)
    for seed in (3.0, np.int8(3), np.array(3), np.float32(3)):
        assert oj.estimators.trace(A, seed=seed, method="hutchinson").value == 3
    J = oj.linearize(network(), X, of="y")
    assert J.plan(products=np.inf).shape == J.compile(products=1e3).shape == (8, 6)
    assert oj.estimators.condition_number(A, products=1, exact=False).value == 1


def mapping_is_no_batch(m):
    return oj.kfac(m, X, at="y", wrt="w", shared=3)


@cache
def net():
    """y = tanh(x + bias) at the given rows."""
    return model(
        "s = Add(x, bias) t = Tanh(s) y = Gather(t, rows)",
        "(double[2,3] x, int64[K] rows) => (double[K,3] y)", bias=np.ones(3),
    )  # fmt: skip


POINT = {"x": np.ones((2, 3)), "rows": [0, 1, 1]}
V = np.ones((2, 3))


@cache
def J():
    return oj.linearize(net(), POINT)


def pullback(u, **options):
    return oj.vjp(net(), POINT, **options)[1](u)


OTHERS = {
    "a model": (lambda m: oj.kfac(3, X), "what `load` gives"),
    "a model with a loss": (lambda m: oj.gauss_newton(3, X, of="l", at="y"), "what `load`"),
    "an axis": (lambda m: oj.fisher(m, X, at="y", wrt="w", axis=3), "axis=3 is no axis of 'y'"),
    "an axis of K-FAC": (lambda m: oj.kfac(m, X, at="y", wrt="w", axis=2), "axis=2 is no axis"),
    "inputs that are shared": (mapping_is_no_batch, "a batch is a dict"),
    "inputs of batches": (lambda m: oj.linearize(m, X, shared=3), "a batch is a dict"),
    "a function of no batches": (lambda m: oj.gram(m, lambda: 1), "returned int"),
    "weights by other names": (lambda m: oj.hessian(m, X, of="l", weights={"k": 1.0}), "no 'l'"),
    "tangents": (lambda m: oj.hvp(m, X, 3, of="l"), "tangents are a dict"),
    "an operator": (lambda m: oj.estimators.trace("A"), "not of str"),
    "an operator with a pattern": (lambda m: oj.pattern(3), "int is no operator"),
    "an operator with a unit": (lambda m: oj.identity_like(3), "int is no operator"),
    "a format": (lambda m: oj.linearize(m, X, of="y").tosparse("crs"), "Did you mean 'csr'"),
    "limits": (lambda m: oj.load(m.ir, limits=3), "must be Limits"),
    "an engine": (lambda m: oj.linearize(net(), POINT, engine="xla"), "='xla' is not one of"),
    "segments": (lambda m: oj.linearize(net(), POINT, checkpoint=-2),
                 r"checkpoint=-2 must be .*a whole number, at least 0"),
    "no weights": (lambda m: oj.kfac(model("y = Tanh(x)", "(double[2,3] x) => (double[2,3] y)"),
                                     X, at="y"), r"no floating initializer: name .* such as 'x'"),
    "a tangent's shape": (lambda m: oj.jvp(net(), POINT, {"x": V.T}), "'x' has shape"),
    "an integer's tangent": (lambda m: oj.jvp(net(), POINT, {"rows": [0, 1, 2]}),
                             "wrt='rows' is a tensor of int64"),
    "no dict of tangents": (lambda m: oj.jvp(net(), POINT, V),
                            "a dict from name to array, not ndarray"),
    "a cotangent's shape": (lambda m: pullback(V), r"'y' has shape \[2, 3\], not \[3, 3\]"),
    "cotangents": (lambda m: pullback(V, of=["y", "t"]),
                   r"cotangents by name, for any of \['y', 't'\]"),
    "a block's row": (lambda m: J()["x", "y"], r"'x' is not on this side .* There are: 'y'"),
    "a block's column": (lambda m: J()["y", "xx"],
                         r"'xx' is not .* (Did you mean|There are:) 'x'"),
    "a vector too short": (lambda m: J() @ np.ones(5), "mismatch"),
    "a matrix too low": (lambda m: J() @ np.ones((5, 2)), "mismatch"),
    "a tensor": (lambda m: J() @ V, "mismatch"),
    "J + 1": (lambda m: J() + 1.0, r"c \* identity_like\(J\) adds c I"),
    "1 + J": (lambda m: 1.0 + J(), r"c \* identity_like\(J\) adds c I"),
    "JᵀJ - 2": (lambda m: J().T @ J() - 2, r"c \* identity_like\(J\) adds c I"),
    **{f"{f.__name__} by position": (
        lambda m, f=f: f(net(), POINT, "y"), f"{f.__name__} takes model, inputs by position")
       for f in (oj.linearize, oj.hessian, oj.grad)},
}  # fmt: skip


@pytest.mark.parametrize("case", OTHERS)
def test_other_arguments_of_the_wrong_type(case):
    run, message = OTHERS[case]
    with pytest.raises(oj.InputError, match=message):
        run(network())


TANGENTS = {
    "shape": (lambda name: {name: V[0]}, r"'{}' has shape \[3\], not \[\d, 3\]"),
    "unknown name": (lambda name: {"q": V}, "'q' is not on this side of"),
    "integers": (lambda name: {"rows": [0, 1, 2]}, "'rows' is not on this side"),
    "ragged": (lambda name: {name: [[1.0], [2.0, 3.0]]}, "the tensor for '{}' cannot be made of"),
    "complex": (lambda name: {name: V + 1j}, "the tensor for '{}' cannot be made of"),
    "no dict": (lambda name: V, "a dict from name to array, not ndarray"),
}


@pytest.mark.parametrize("case", TANGENTS)
@pytest.mark.parametrize("side", ["x", "y"])
def test_tangents_that_do_not_fit(side, case):
    """Of J at x, and of Jᵀ at y."""
    make, message = TANGENTS[case]
    error = oj.UnknownTensor if "this side" in message else oj.InputError
    refused(error, message.replace("{}", side),
            lambda: {"x": J(), "y": J().T}[side].apply(make(side)))  # fmt: skip


def test_jvp_takes_no_wrt():
    with pytest.raises(TypeError, match="unexpected keyword argument 'wrt'"):
        oj.jvp(net(), POINT, {"x": V}, wrt="x")  # the tangents name these tensors


COUNTS = {
    "products": lambda J, count: J.plan(products=count) @ np.ones(J.shape[1]),
    "maxiter": lambda J, count: (J @ J.T).inverse(solver="cg", maxiter=count),
    "rank": lambda J, count: oj.preconditioners.low_rank_plus_damping(J @ J.T, count, damping=1.0),
    "blocks": lambda J, count: oj.preconditioners.block_jacobi(J @ J.T, count),
    "keep": lambda J, count: oj.gram(J.route.model, [POINT], keep=count),
}


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize("count", ["3", 2.5, -1])
def test_counts_must_be_whole_numbers(name, count):
    with pytest.raises(oj.InputError, match=f"{name}={count!r} must be a whole number"):
        COUNTS[name](J(), count)


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
def test_names_that_do_not_fit_are_refused(case, call):
    names, kind, message = NAMES[case]
    refused(kind, message, lambda: call(net(), POINT, **names))


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
