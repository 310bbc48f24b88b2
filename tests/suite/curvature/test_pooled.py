"""Factors over batches equal those of all samples, and no two batches are in memory at once."""

import gc
import io
import weakref

import numpy as np
import pytest
from numpy.testing import assert_allclose

import onnxjac as oj
from curvature.pools import (
    MAKERS,
    UNEVEN,
    WEIGHTS,
    WHOLE,
    X,
    Y,
    assert_equal,
    made,
    model,
    of_other_weights,
)
from onnxjac.jacobians import progress
from onnxjac.modes.curvature.batch_sums import GradientMaker

TIGHT = {"rtol": 1e-12, "atol": 1e-13}
TYPES = [(f, r) for f in ("type-2", "empirical") for r in ("mean", "sum")]


@pytest.fixture(params=["list", "generator", "arrays", "file"])
def data(request, tmp_path):
    """Batches of 3, 3 and 1 samples in every form, with the options that each form needs."""
    path = str(tmp_path / "data.npz")
    np.savez(path, **WHOLE)
    forms = {"list": (UNEVEN, {}), "generator": (lambda: iter(UNEVEN), {}),
             "arrays": (WHOLE, {"batch_size": 3}), "file": (path, {"batch_size": 3})}  # fmt: skip
    return forms[request.param]


@pytest.mark.parametrize("name", MAKERS)
def test_every_form_of_data_gives_the_curvature_of_the_whole(name, data):
    batches, options = data
    assert_equal(made(name, batches, **options), made(name, WHOLE))


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize(("fisher_type", "reduction"), TYPES)
@pytest.mark.parametrize("joint", [False, True])
def test_uneven_batches_are_one(name, reduction, fisher_type, joint):
    options = {"reduction": reduction, "fisher_type": fisher_type, "joint": joint}
    K, all_at_once = made(name, UNEVEN, **options), made(name, WHOLE, **options)
    assert [list(f.parts) for f in K.blocks] == (
        [["V", "c"], ["W", "b"]] if joint else [["V"], ["c"], ["W"], ["b"]]
    )
    assert_equal(K, all_at_once)


@pytest.mark.parametrize("approximation", ["expand", "reduce"])
def test_forward_only_has_inputs_alone(approximation):
    """A is the same as for other Fisher types; B = I for both reductions."""
    options = {"approximation": approximation}
    K = made("kfac", UNEVEN, fisher_type="forward-only", **options)
    for f, other in zip(K.blocks, made("kfac", WHOLE, **options).blocks, strict=True):
        assert_allclose(f.left, other.left, **TIGHT)
        assert_allclose(f.right[0], np.eye(f.right.shape[-1]), **TIGHT)
    for name in ("ekfac", "shampoo"):
        with pytest.raises(oj.InputError, match="forward-only"):
            made(name, UNEVEN, fisher_type="forward-only")


def test_drawn_labels_are_others_in_every_batch_and_the_same_in_every_pass():
    twice = [UNEVEN[0], {"x": X[:3], "y": Y[3:6]}]
    options = {"fisher_type": "mc", "reduction": "sum", "samples": 2}
    assert_equal(made("ekfac", twice, **options), made("ekfac", twice[::-1], **options))
    alone = [made("kfac", [b], **options).block("b").toarray() for b in twice]
    assert not np.allclose(*alone)
    exact = made("kfac", WHOLE, reduction="sum").toarray()
    many = made("kfac", UNEVEN, fisher_type="mc", reduction="sum", samples=20_000).toarray()
    assert np.linalg.norm(many - exact) < 0.03 * np.linalg.norm(exact)


def test_the_trace_of_ekfac_over_batches_agrees_with_the_fisher():
    options = {"at": "z", "wrt": list(WEIGHTS), "likelihood": "gaussian", "shared": WEIGHTS}
    F = oj.fisher(model("Mean"), UNEVEN, **options)
    assert_allclose(made("ekfac", UNEVEN).trace(), np.trace(F.toarray()), rtol=1e-12)


@pytest.mark.parametrize("name", MAKERS)
def test_one_batch_is_alive_at_a_time(name, monkeypatch):
    alive, counts, own = [], [], GradientMaker.__call__

    def linearized(self, *args):
        gc.collect()
        counts.append(sum(one() is not None for one in alive))
        J = own(self, *args)
        alive.append(weakref.ref(J))
        return J

    monkeypatch.setattr(GradientMaker, "__call__", linearized)
    K = made(name, UNEVEN)
    assert counts == [0] * (6 if name == "ekfac" else 3)
    counts.clear()
    made(name, UNEVEN, keep=2**20)
    assert len(counts) == 3
    gc.collect()
    assert K.shape == (32, 32)


def test_a_terminal_sees_the_batches(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setattr(progress, "DELAY", 0.0)
    made("kfac", UNEVEN)
    assert "K-FAC" in screen.getvalue()


def test_data_of_no_batches_is_refused():
    with pytest.raises(oj.InputError, match="no batches"):
        made("kfac", [])


def test_batches_of_other_weights_are_refused():
    with pytest.raises(oj.InputError, match="batch 1 uses the weights in another way than batch 0"):
        of_other_weights()
