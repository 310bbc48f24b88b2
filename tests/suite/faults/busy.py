"""A process that takes products until it is interrupted: `python -m faults.busy`, for the tests.

For each kind it takes a product, prints `ready`, is interrupted, prints `interrupted`, and takes
the product again.
"""

import signal
import sys

import numpy as np
from numpy.testing import assert_allclose
from scipy.sparse.linalg import svds

import onnxjac as oj
from faults.models import CNN, deep, point_of
from onnxjac.modes.linear.products.compiled import Compiled

COLUMNS = 20_000


def small():
    model = oj.load(CNN)
    return oj.linearize(model, point_of(model))


def long():
    """J with a product of about 10¹² multiplications, already compiled."""
    J = Compiled(deep(layers=150).dag, "onnxruntime")
    J.program((COLUMNS,))
    return J


def endlessly(J):
    """Compute singular values over and over."""
    while True:
        svds(J, k=3, random_state=0)


def once(J):
    """One product with many columns, which takes far longer than the test waits."""
    J @ np.ones((J.shape[1], COLUMNS), J.dtype)
    raise SystemExit("the product was over before it was interrupted")


KINDS = {
    "lazy": (small, endlessly),
    "planned": (lambda: small().plan(), endlessly),
    "numpy": (lambda: small().compile("numpy"), endlessly),
    "onnxruntime": (lambda: small().compile("onnxruntime"), endlessly),
    "long": (long, once),
}


def interrupted(kind):
    """Check that a product after an interrupt equals the product before it."""
    make, work = KINDS[kind]
    J = make()
    v = np.linspace(-1, 1, J.shape[1]).astype(J.dtype)
    for _ in range(40):  # until planning is finished
        before = J @ v
    print("ready", kind, flush=True)
    try:
        work(J)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    for _ in range(3):
        assert_allclose(J @ v, before, rtol=1e-4, atol=1e-5 * abs(before).max())
    print("same", flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs of a shell ignore it
    for name in sys.argv[1:]:
        interrupted(name)
