"""Operators to estimate: matrices with known spectra, as operators that hide their structure."""

import numpy as np

from onnxjac.jacobians import Jacobian


class Hidden(Jacobian):
    """A dense matrix that offers nothing but products, which it counts."""

    def __init__(self, a):
        super().__init__(a.shape[:1], a.shape[1:], a.dtype)
        self.a, self.count = a, 0

    def _apply(self, op, v):
        self.count += v.reshape(-1, self.shape[1]).shape[0]
        return v @ self.a.T

    def _transpose(self):
        return HiddenTranspose(self)


class HiddenTranspose(Hidden):
    """The transpose of `Hidden`, with the same counter."""

    def __init__(self, other):
        super().__init__(other.a.T)
        self.other = other

    def _apply(self, op, v):
        self.other.count += v.reshape(-1, self.shape[1]).shape[0]
        return super()._apply(op, v)


def rotated(values, seed=0):
    """Q diag(values) Qᵀ with a random rotation Q."""
    n = len(values)
    Q, _ = np.linalg.qr(np.random.default_rng(seed).standard_normal((n, n)))
    return (Q * values) @ Q.T


def decaying(n=200, rate=0.9):
    """λᵢ = rateⁱ, typical for curvature matrices."""
    return rotated(rate ** np.arange(n))


def flat(n=200):
    """λᵢ between 1 and 3: the hard case."""
    return rotated(np.linspace(1, 3, n))
