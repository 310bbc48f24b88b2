"""The work of other threads and processes, in a module that they can import."""

import importlib.util
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np

import onnxjac as oj
from faults.models import CNN, point_of

THREADS = 8
TIMES = 8

KINDS = {
    "lazy": lambda J: J,
    "planned": lambda J: J.plan(),
    "numpy": lambda J: J.compile("numpy"),
    "onnxruntime": lambda J: J.compile("onnxruntime"),
    "block": lambda J: J[J.codomain[0].name, J.domain[-1].name],
}
OPTIONAL = ("onnxruntime",)  # not available for every Python
KINDS = {k: made for k, made in KINDS.items() if k not in OPTIONAL or importlib.util.find_spec(k)}


def jacobian(path=CNN, engine=None):
    """J of a freshly loaded model, by its input and two weights."""
    model = oj.load(path)
    weights = [n for n, spec in model.initializers.items() if spec.dtype.kind == "f"][:2]
    return oj.linearize(model, point_of(model), wrt=[*model.inputs, *weights], engine=engine)


def together(work, threads=THREADS):
    """Run work(k) in all threads, started together; raises the first error."""
    gate = threading.Barrier(threads)

    def begin(k):
        gate.wait(60)
        return work(k)

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(begin, range(threads)))


def vectors(J):
    """A vector for J, and one for its transpose."""
    rng = np.random.default_rng(1)
    return tuple(rng.standard_normal(n).astype(J.dtype) for n in J.shape[::-1])


def products(J):
    """J v, Jᵀ u and two columns at once."""
    v, u = vectors(J)
    return J @ v, J.T @ u, J @ np.stack([v, 2 * v], axis=1)


def near(found, expected, rtol=2e-5):
    """Equal up to the order of summation, which a plan may change."""
    for a, b in zip(found, expected, strict=True):
        assert np.linalg.norm(np.ravel(a - b)) <= rtol * np.linalg.norm(np.ravel(b))


def check(expected, J):
    """Check that J gives the expected products in this process."""
    signal.alarm(60)  # ends a process that hangs
    near(products(J), expected)
    signal.alarm(0)
    return True


def relinearized(J, point):
    """The products at another point."""
    return products(J.relinearize(point))
