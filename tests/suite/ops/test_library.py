"""A further array library: one subclass and one registration, and nothing else in the package."""

import numpy as np
import onnx.parser
import pytest

import onnxjac as oj
from onnxjac.jacobians import Dense, Kron, dtype_of, reading, readings
from onnxjac.jacobians.arrays import as_array, on_host
from onnxjac.jacobians.placing import HOST, Place, placed
from onnxjac.jacobians.readings import is_kept, library_of, module_of, register_library
from onnxjac.ops.library import ArrayLibrary, KernelTable
from onnxjac.ops.numbers import numbers
from onnxjac.ops.numbers.table import TENSORS


class Kind:
    """The dtype of a box."""

    def __init__(self, dtype):
        self.known = np.dtype(dtype)

    def __eq__(self, other):
        return isinstance(other, Kind) and self.known == other.known

    def __hash__(self):
        return hash(self.known)


class Box:
    """An array that NumPy cannot read and that mixes with no array of NumPy."""

    __array__ = __array_ufunc__ = None

    def __init__(self, array):
        self._array = np.array(array)
        self._array.flags.writeable = False

    shape = property(lambda self: self._array.shape)
    ndim = property(lambda self: self._array.ndim)
    size = property(lambda self: self._array.size)
    nbytes = property(lambda self: self._array.nbytes)
    dtype = property(lambda self: Kind(self._array.dtype))
    T = property(lambda self: Box(self._array.T))
    real = property(lambda self: Box(self._array.real))
    imag = property(lambda self: Box(self._array.imag))

    def reshape(self, *shape):
        return Box(self._array.reshape(*shape))

    def __getitem__(self, key):
        return Box(self._array[key])

    def __add__(self, other):
        return Box(self._array + other._array)

    def __rmul__(self, number):
        return Box(number * self._array)

    def __len__(self):
        return len(self._array)


def boxed(x):
    return x if isinstance(x, Box) else Box(x)


class Boxes(ArrayLibrary):
    """Boxes have a kernel of their own for MatMul; all other operators run on the host."""

    module, special, kind, table = None, None, Box, KernelTable()

    def dtype(self, x):
        return x.dtype.known

    def host(self, x):
        return x._array

    def device(self, x):
        return "shelf"

    def take(self, x, device):
        return boxed(x)

    def place_on(self, device):
        return Place("shelf", boxed, self, hold=boxed)

    def copy(self, x):
        return Box(x._array)


BOXES, MULTIPLIED = Boxes(), []


@BOXES.table.kernel("MatMul")
def matmul(a, b):
    MULTIPLIED.append((a.shape, b.shape))
    return Box(a._array @ b._array)


register_library(Box, lambda: BOXES)

MLP = """net (float[3,4] x, float[4,5] W, float[5] b, float[5,2] V) => (float[3,2] y)
    { h = Gemm(x, W, b)  a = Tanh(h)  y = MatMul(a, V) }"""

CONV = """net (float[2,1,6,6] x, float[3,1,3,3] w, float[27,2] V) => (float[2,2] y)
    { h = Conv<pads = [1,1,1,1]>(x, w)  r = Relu(h)
      p = MaxPool<kernel_shape = [2,2], strides = [2,2]>(r)  f = Flatten(p)  y = MatMul(f, V) }"""


def at_a_point(text):
    model = oj.load(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]>\n{text}'))
    rng = np.random.default_rng(0)
    return oj.linearize(model, {
        name: rng.standard_normal(spec.shape).astype(np.float32)
        for name, spec in model.inputs.items()
    }, wrt=[*model.inputs])  # fmt: skip


def drawn(n, *more):
    return np.random.default_rng(n).standard_normal((n, *more)).astype(np.float32)


def close(y, expected):
    assert isinstance(y, Box)
    assert y.shape == expected.shape
    np.testing.assert_allclose(y._array, expected, 1e-4, 1e-5)


@pytest.fixture(params=[MLP, CONV], ids=["MLP", "conv net"])
def J(request):
    return at_a_point(request.param)


def test_products_with_boxes_are_computed_by_their_library(J):
    m, n = J.shape
    matrix = J.toarray()
    del MULTIPLIED[:]
    close(J @ Box(drawn(n)), matrix @ drawn(n))
    close(J.T @ Box(drawn(m)), matrix.T @ drawn(m))
    close(J @ Box(drawn(n, 3)), matrix @ drawn(n, 3))
    close(J.matvec(Box(drawn(n))), matrix @ drawn(n))
    close(J.rmatvec(Box(drawn(m))), matrix.T @ drawn(m))
    assert MULTIPLIED
    assert library_of(Box(0)).on_host >= {"Reshape", "Mul"}


def test_products_of_complex_numbers(J):
    v = drawn(J.shape[1]) + 1j * drawn(J.shape[1])[::-1]
    close(J @ Box(v), J.toarray() @ v)


def test_a_box_is_multiplied_by_name(J):
    name = J.domain[1].name
    v = drawn(*J.domain[1].shape)
    (expected,), (y,) = J.apply({name: v}).values(), J.apply({name: Box(v)}).values()
    close(y, expected)
    u = drawn(*J.codomain[0].shape)
    pulled, found = J.T.apply({"y": u}), J.T.apply({"y": Box(u)})
    assert pulled.keys() == found.keys()
    for name, expected in pulled.items():
        close(found[name], expected)


def test_blocks_and_slices_multiply_boxes(J):
    for spec in J.domain:
        block = J["y", spec.name]
        close(block @ Box(drawn(block.shape[1])), block.toarray() @ drawn(block.shape[1]))
    close(J[1:3, ::2] @ Box(drawn(J[1:3, ::2].shape[1])),
          J.toarray()[1:3, ::2] @ drawn(J[1:3, ::2].shape[1]))  # fmt: skip


@pytest.mark.parametrize("engine", ["numpy", "onnxruntime"])
def test_products_of_planned_and_compiled_operators(J, engine):
    if engine == "onnxruntime":
        pytest.importorskip("onnxruntime")
    v = drawn(J.shape[1])
    close(J.plan() @ Box(v), J.toarray() @ v)
    close(J.compile(engine) @ Box(v), J.toarray() @ v)


def test_many_products_and_another_point(J):
    v = drawn(J.shape[1])
    for _ in range(80):  # past the program and the plan of NumPy's products
        J @ v
    close(J @ Box(v), J.toarray() @ v)
    K = J.relinearize({name: 2 * x for name, x in J.point.items()})
    close(K @ Box(v), K.toarray() @ v)


def test_operators_that_hold_boxes_multiply_arrays_of_either_kind():
    """An operator may hold arrays of the library: products of NumPy's arrays go there and back."""
    a, v = drawn(3, 4), drawn(8)
    K = Kron(Box(a), np.eye(2, dtype=np.float32), ())
    assert K.place.name == "shelf"
    close(K @ Box(v), np.kron(a, np.eye(2)) @ v)
    y = Dense(Box(a)) @ v[:4]
    assert isinstance(y, np.ndarray)
    np.testing.assert_allclose(y, a @ v[:4], 1e-5)
    assert placed(Dense(a), library_of(Box(a)).place(Box(a))).place.name == "shelf"
    assert placed(Dense(Box(a)), HOST).place is None


@pytest.mark.peers
def test_boxes_times_an_operator_of_tensors():
    """Two libraries meet: the operator's arrays go where the vector is."""
    torch = pytest.importorskip("torch")
    J = at_a_point(MLP)
    point = {name: torch.from_numpy(np.array(x)) for name, x in J.point.items()}
    K, v = oj.linearize(J.route.model, point, wrt=[*point], engine="torch"), drawn(J.shape[1])
    for _ in range(80):  # past the program over tensors
        K @ torch.from_numpy(v)
    close(K @ Box(v), J.toarray() @ v)
    assert isinstance(K @ torch.from_numpy(v), torch.Tensor)
    assert isinstance(K @ v, np.ndarray)


def test_points_of_boxes_give_the_same_jacobian():
    J = at_a_point(MLP)
    K = oj.linearize(J.route.model, {name: Box(x) for name, x in J.point.items()}, wrt="W")
    assert (K.toarray() == J["y", "W"].toarray()).all()


def test_a_library_describes_its_arrays():
    box = Box(drawn(3))
    assert reading(box) is BOXES
    assert is_kept(box)
    assert not is_kept(drawn(3))
    assert not is_kept([1])
    assert dtype_of(box) == np.float32
    assert (as_array(box) == drawn(3)).all()
    assert on_host([box])[0] is box
    assert on_host(box) is box._array
    assert module_of(drawn(3)) is np
    with pytest.raises(TypeError, match="no reading of the vocabulary is registered for object"):
        reading(object())


def test_the_library_registered_last_is_asked_first(monkeypatch):
    """Also where an array of the kind was met before, and its first library goes again."""
    monkeypatch.setattr(readings, "KINDS", [*readings.KINDS])
    monkeypatch.setattr(readings, "KNOWN", {})

    class Crate(Box):
        pass

    assert reading(Crate(drawn(3))) is BOXES
    with monkeypatch.context() as inner:
        inner.setattr(readings, "KINDS", [*readings.KINDS])
        inner.setattr(readings, "KNOWN", {})
        later = type(BOXES)()
        register_library(Crate, lambda: later)
        assert reading(Crate(drawn(3))) is later
    assert reading(Crate(drawn(3))) is BOXES


CASES = {
    "MaxPool": ((None,), {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1)}),
    "AveragePool": ((None,), {"kernel_shape": (3, 2), "pads": (1, 0, 1, 0)}),
    "LpPool": ((None,), {"kernel_shape": (2, 2)}),
    "LRN": ((None,), {"size": 3}),
    "Pad": ((None, (0, 0, 1, 2, 0, 0, 0, 1), 1.5), {}),
    "Transpose": ((None,), {"perm": (0, 2, 1, 3)}),
    "Concat": ((None, None), {"axis": 1}),
    "CumSum": ((None, (1,)), {"exclusive": 1}),
    "ArgMax": ((None,), {"axis": 1, "select_last_index": 1}),
    "Gelu": ((None,), {}),
    "Shrink": ((None,), {"bias": 0.25}),
    "LayerNormalization": ((None, np.ones(6, np.float32), np.ones(6, np.float32)), {"outputs": 3}),
    "DepthToSpace": ((None,), {"blocksize": 2}),
    "Expand": ((None, (3, 2, 4, 6, 6)), {}),
    "Trilu": ((None, 1), {}),
}
"""Operator -> inputs, of which None is a tensor of 2×4×6×6, and attributes."""


@pytest.fixture
def jax(monkeypatch):
    """JAX, whose arrays have a reading with all kernels that take any library, in this test."""
    jax = pytest.importorskip("jax")
    jnp, special = pytest.importorskip("jax.numpy"), pytest.importorskip("jax.scipy.special")

    class Arrays(ArrayLibrary):
        module, kind, table, writes = jnp, jax.Array, KernelTable(), False

        def dtype(self, x):
            return np.dtype(x.dtype)

        def host(self, x):
            return np.asarray(x)

        def device(self, x):
            return "cpu"

        def take(self, x, device):
            return jnp.asarray(x)

        def cast(self, x, dtype):
            return x.astype(dtype)

        def place_on(self, device):
            return Place("jax", jnp.asarray, self, module=jnp, hold=jnp.asarray)

    Arrays.special = special
    library = Arrays()
    for name in TENSORS:
        library.table.share(name)
    library.table.kernel("MatMul")(jnp.matmul)
    for name, function in {"Add": jnp.add, "Mul": jnp.multiply, "Tanh": jnp.tanh}.items():
        library.table.kernel(name)(function)
    library.table.kernel("ReduceSum", hosted=True)(
        lambda x, axes=None, keepdims=1: jnp.sum(x, axes, keepdims=bool(keepdims))
    )
    monkeypatch.setattr(readings, "KINDS", [*readings.KINDS])
    monkeypatch.setattr(readings, "KNOWN", {})
    register_library("jax.Array", lambda: library)
    return jax


@pytest.mark.peers
def test_arrays_of_jax_give_arrays_of_jax(J, jax):
    v, u = drawn(J.shape[1]), drawn(J.shape[0])
    for y, expected in ((J @ jax.numpy.array(v), J @ v), (J.T @ jax.numpy.array(u), J.T @ u)):
        assert isinstance(y, jax.Array)
        np.testing.assert_allclose(y, expected, 1e-4, 1e-5)
    name = J.domain[1].name
    tangent = drawn(*J.domain[1].shape)
    y, expected = J.apply({name: jax.numpy.array(tangent)})["y"], J.apply({name: tangent})["y"]
    assert isinstance(y, jax.Array)
    np.testing.assert_allclose(y, expected, 1e-4, 1e-5)


@pytest.mark.peers
def test_a_traced_product_is_compiled_by_jax(jax):
    """A product whose operators have kernels is a function that JAX can trace."""
    J = at_a_point(MLP)
    v = drawn(J.shape[1])
    product = jax.jit(lambda v: J @ v)
    np.testing.assert_allclose(product(jax.numpy.array(v)), J @ v, 1e-4, 1e-5)


@pytest.mark.peers
@pytest.mark.parametrize("name", sorted(name for name in CASES if name in TENSORS))
def test_a_shared_kernel_over_arrays_of_jax(name, jax):
    x = drawn(2, 4, 6, 6)
    inputs, attrs = CASES[name]
    inputs = [x if given is None else given for given in inputs]
    given = [jax.numpy.array(y) if isinstance(y, np.ndarray) else y for y in inputs]
    library = library_of(jax.numpy.array(x))
    both = getattr(library, name)(*given, **attrs), getattr(numbers, name)(*inputs, **attrs)
    assert name not in library.on_host
    for y, z in zip(*(y if isinstance(y, tuple) else (y,) for y in both), strict=True):
        np.testing.assert_allclose(np.asarray(y), z, 1e-4, 1e-5)
        assert isinstance(y, jax.Array)
