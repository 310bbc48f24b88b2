"""Options of the wrong type or outside of their range: one error that names the option."""

import inspect
from contextlib import suppress
from types import SimpleNamespace

import numpy as np
import pytest

import onnxjac as oj
from onnxjac.jacobians import Identity, arguments

from .models import network

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


CASES = [pytest.param(function, name, id=f"{label}-{name}")
         for label, function in (*functions(), *methods()) for name in checkable(function)]


@pytest.mark.parametrize(("function", "name"), CASES)
def test_an_option_of_another_type_is_refused(function, name):
    first = [*inspect.signature(function).parameters][:2]
    given = (network(), X) if first == ["model", "inputs"] else ()
    with pytest.raises(oj.InputError, match=f"^{name}=.* (must be|is not one of) "):
        function(*given, **{name: SimpleNamespace()})


def test_there_are_cases():
    labels = {label for label, _ in functions()}
    assert {"linearize", "kfac", "estimators.trace", "preconditioners.ilu"} <= labels
    assert len(CASES) > 150


RANGES = {
    "negative seed": lambda J, A: oj.estimators.trace(A, seed=-1),
    "no products": lambda J, A: oj.estimators.condition_number(A, products=0),
    "no probes": lambda J, A: oj.estimators.spectral_density(A, probes=0),
    "half a product": lambda J, A: J.plan(products=2.5),
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
}


@pytest.mark.parametrize("case", OTHERS)
def test_other_arguments_of_the_wrong_type(case):
    run, message = OTHERS[case]
    with pytest.raises(oj.InputError, match=message):
        run(network())
