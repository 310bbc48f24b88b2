"""Deflation: a randomised basis of the range of A, and the same basis without each of its probes.

Y = A Ω = Q R. Let sᵢ be the unit vector along R⁻ᵀ eᵢ: then Q (I - sᵢ sᵢᵀ) Qᵀ projects on the
range of Y without column i, for every i at once. Source: Epperly, Tropp and Webber, "XTrace: making
the most of every sample in stochastic trace estimation", SIAM J. Matrix Anal. Appl. 45, 2024.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular

from .probes import Probed


@dataclass(frozen=True)
class Deflated:
    """Ω, Y = A Ω, its basis Q with Y = Q R, and as columns of S the directions left out."""

    probes: np.ndarray
    Y: np.ndarray
    Q: np.ndarray
    R: np.ndarray
    S: np.ndarray | None

    @property
    def full(self) -> bool:
        """Whether Q has all of A's range, because A has a smaller rank than there are probes."""
        return self.S is None

    def left(self, value: Any, eps: float, size: float = 1.0) -> float:
        """What a full Q leaves out, 0 where that is rounding: ‖(I - QQᵀ) A‖_F, about, times a size.

        E ‖(I - QQᵀ) A ω‖² is its square, and the last diagonal entry of R one such length.
        """
        found = size * float(np.abs(np.diag(self.R)).min())
        return found if found > len(self.R.T) * 10 * eps * float(np.abs(value).max()) else 0.0


def deflated(P: Probed, probes: np.ndarray) -> Deflated:
    """One product with A for each probe."""
    Y = P @ probes
    Q, R = np.linalg.qr(Y)
    size = np.abs(np.diag(R))
    if size.min() <= len(Y) * P.eps * size.max():
        return Deflated(probes, Y, Q, R, None)
    S = solve_triangular(R, np.eye(len(R)), trans="T")
    return Deflated(probes, Y, Q, R, S / np.linalg.norm(S, axis=0))


def without_own(S: np.ndarray, X: np.ndarray) -> np.ndarray:
    """Column i of X less its component along column i of S: (I - sᵢ sᵢᵀ) xᵢ."""
    return X - S * np.sum(S * X, axis=0)
