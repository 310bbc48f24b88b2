"""Using the library changes no global state."""

import os
import random
import warnings

import mpmath
import numpy as np
import pytest

import onnxjac as oj
from concurrency.tables import contents
from concurrency.workers import KINDS, jacobian, products
from faults.models import MLP, point_of
from onnxjac.ops.registry import DECLARATIONS


def state():
    """The state that Python and NumPy keep per process or thread."""
    return {
        "tables": contents(),  # first: it imports PyTorch, which adds filters
        "errors": np.geterr(),
        "printing": repr(np.get_printoptions()),
        "filters": list(warnings.filters),
        "showwarning": warnings.showwarning,
        "environment": dict(os.environ),
        "random": random.getstate(),
        "numpy.random": repr(np.random.get_state()),
        "folder": os.getcwd(),
        "rules": dict(DECLARATIONS),
        "digits": mpmath.mp.dps,
    }


def everything():
    """Use a bit of every part of the library."""
    model = oj.load(MLP)
    J = oj.linearize(model, point_of(model))
    J.check()
    J.tosparse()
    J.toarray()
    repr(J), J._repr_html_(), str(J.explain())
    oj.prove("Tanh")
    oj.export(model, "vjp", point_of(model))


def test_nothing_of_the_process_is_changed():
    before = state()
    everything()
    for kind in KINDS.values():
        products(kind(jacobian()))
    after = state()
    for name, value in before.items():
        assert after[name] == value, name


def test_an_error_leaves_nothing_behind():
    before = state()
    model = oj.load(MLP)
    with pytest.raises(oj.OnnxJacError):
        oj.linearize(model, {"x": np.ones((2, 3), np.float32)})
    with pytest.raises(oj.OnnxJacError):
        oj.load(b"no model")
    assert state() == before


def test_results_do_not_share_memory():
    """Overwriting a result changes neither other results nor the Jacobian."""
    for kind in KINDS.values():
        J = kind(jacobian(MLP))
        first = products(J)
        kept = [np.array(x) for x in first]
        for x in first:
            if x.flags.writeable:
                x[...] = np.nan
        for found, expected in zip(products(J), kept, strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
