"""Inputs, tangents and cotangents of any array library, left unchanged; results are NumPy."""

import array

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import onnxjac as oj
from interop.operators import MODEL, POINT, WRT, linearization
from onnxjac.jacobians.arrays import as_array


class Exchanged:
    """An array that supports DLPack only."""

    def __init__(self, a):
        self.a = a

    def __dlpack__(self, **options):
        return self.a.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.a.__dlpack_device__()


class Guarded:
    """An array that must be detached first, like a tensor that requires a gradient."""

    device = "cpu"

    def __init__(self, a):
        self.a, self.dtype = a, a.dtype

    def detach(self):
        return Detached(self.a, self.device)

    def __array__(self, *args, **options):
        raise RuntimeError("detach me first")


class Detached(Guarded):
    def __init__(self, a, device):
        super().__init__(a)
        self.device = device

    def numpy(self, *, force):
        if not force:
            raise TypeError(f"cannot convert a tensor on {self.device}.\nDetails follow.")
        return self.a


class OnDevice(Guarded):
    device = "cuda:0"


def frozen(a):
    a = np.array(a)
    a.flags.writeable = False
    return a


KINDS = {
    "read-only": frozen,
    "lists": np.ndarray.tolist,
    "tuples": lambda a: tuple(map(tuple, a)) if a.ndim > 1 else tuple(a.tolist()),
    "dlpack": Exchanged,
    "guarded": Guarded,
    "lists of arrays": list,
}

every_kind = pytest.mark.parametrize("kind", KINDS)


def converted(kind):
    """The point with all arrays converted to one kind."""
    return {name: KINDS[kind](a) for name, a in POINT.items()}


def untouched(point):
    return {k: np.array(v.a if hasattr(v, "a") else v) for k, v in point.items()}


@every_kind
def test_points_of_any_library_linearize_alike_and_stay_unchanged(kind):
    point = converted(kind)
    before = untouched(point)
    J = oj.linearize(MODEL, point, of="logits", wrt=["x", *WRT])
    assert_allclose(J.toarray(), linearization().toarray(), rtol=1e-13, atol=1e-15)
    moved = J.relinearize(point)
    assert_allclose(moved.toarray(), J.toarray(), rtol=1e-13, atol=1e-15)
    assert_array_equal(MODEL.run(point)["loss"], MODEL.run(POINT)["loss"])
    for name, a in untouched(point).items():
        assert_array_equal(a, before[name])


@every_kind
def test_tangents_and_cotangents_of_any_library_are_taken(kind):
    make, J = KINDS[kind], linearization()
    dW, u = np.full((5, 4), 0.5), np.arange(18.0).reshape(6, 3)
    assert_array_equal(
        J.apply({"fc1": make(dW)})["logits"], J.apply({"fc1": dW})["logits"]
    )
    _, dy = oj.jvp(MODEL, converted(kind), {"fc1": make(dW)}, of="logits")
    assert_allclose(dy["logits"], J.apply({"fc1": dW})["logits"], rtol=1e-13)
    _, pullback = oj.vjp(MODEL, converted(kind), of="logits", wrt="fc1")
    assert_allclose(pullback(make(u))["fc1"], J.T.apply({"logits": u})["fc1"], rtol=1e-13)
    _, product = oj.hvp(MODEL, converted(kind), {"fc1": make(dW)}, of="loss")
    _, expected = oj.hvp(MODEL, POINT, {"fc1": dW}, of="loss")
    assert_allclose(product["fc1"], expected["fc1"], rtol=1e-13)


@every_kind
def test_flat_vectors_of_any_library_give_products_of_numpy(kind):
    make, J = KINDS[kind], linearization()
    v, u, V = np.arange(59.0), np.arange(18.0), np.arange(118.0).reshape(59, 2)
    for product in (J @ make(v), J.dot(make(v)), J.matvec(make(v))):
        assert type(product) is np.ndarray
        assert_allclose(product, J @ v, rtol=1e-13)
    assert_allclose(J @ make(V), J @ V, rtol=1e-13)
    assert_allclose(J.matmat(make(V)), J @ V, rtol=1e-13)
    assert_allclose(J.T @ make(u), J.T @ u, rtol=1e-13)
    assert_allclose(J.rmatvec(make(u)), J.T @ u, rtol=1e-13)
    assert_allclose(J.rmatmat(make(np.stack([u, u], 1)))[:, 1], J.T @ u, rtol=1e-13)


def test_an_array_on_the_left_multiplies_by_the_transpose():
    J, u = linearization(), np.arange(18.0)
    assert_allclose(Exchanged(u) @ J, J.T @ u, rtol=1e-13)


def test_subclasses_of_arrays_are_copied():
    x = np.array(POINT["x"])
    J = oj.linearize(MODEL, {**POINT, "x": Guarded(x)}, of="logits", wrt="fc1")
    before = J.toarray()
    x[:] = 0
    assert_array_equal(J.relinearize(J.point).toarray(), before)


def test_other_devices_are_refused():
    x = OnDevice(POINT["x"])
    with pytest.raises(oj.InputError, match=r"input 'x'.* on cuda:0 cannot be read.* to the CPU"):
        oj.linearize(MODEL, {**POINT, "x": x}, of="logits")
    with pytest.raises(oj.InputError, match="on cuda:0 cannot be read"):
        linearization() @ OnDevice(np.ones(59))
    with pytest.raises(oj.InputError, match=r"'fc1' cannot be made of this.*cuda:0"):
        linearization().apply({"fc1": OnDevice(np.ones((5, 4)))})


def test_scalars_and_buffers_are_read_and_ragged_lists_refused():
    assert as_array(2.5) == 2.5
    assert_array_equal(as_array(array.array("d", [1, 2])), [1.0, 2.0])
    with pytest.raises(oj.InputError, match="cannot be read as an array"):
        as_array([[1, 2], [3]])
