"""Truncated CG: a Newton step by preconditioned conjugate gradients that may end early."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class Step(NamedTuple):
    """δ, the gradient g + H δ of the quadratic model there, and whether δ is on the boundary."""

    delta: np.ndarray
    slope: np.ndarray
    cut: bool

    def promise(self, g: np.ndarray) -> float:
        """By how much the model falls: −gᵀδ − ½ δᵀHδ."""
        return -float(self.delta @ (g + self.slope)) / 2


def truncated_cg(H: Any, g: np.ndarray, M: Any, *, rtol: float, radius: float = np.inf) -> Step:
    """min gᵀδ + ½ δᵀHδ where δᵀM⁻¹δ ≤ radius², to ‖g + H δ‖_M ≤ rtol ‖g‖_M or as far as it goes.

    It ends on the boundary where an iterate leaves the region or meets negative curvature; in an
    infinite region, where it meets the latter, at the iterate before, the first time at −M g.
    Norms: ‖v‖²_M = vᵀ M v. Source: Conn, Gould, Toint, "Trust-region methods", 2000, 7.5.1.

    >>> truncated_cg(np.diag([1.0, 4.0]), np.array([-1.0, -4.0]), np.eye(2), rtol=1e-9).delta
    array([1., 1.])
    >>> truncated_cg(np.eye(2), np.array([0.0, -4.0]), np.eye(2), rtol=1e-9, radius=1.0).delta
    array([0., 1.])
    """
    delta, r, z = np.zeros_like(g), g, M @ g
    p, rz = -z, float(g @ z)
    goal = rtol**2 * rz
    length, along, reach = 0.0, 0.0, rz  # δᵀM⁻¹δ, δᵀM⁻¹p, pᵀM⁻¹p: M⁻¹ itself is never needed
    for k in range(2 * g.size):
        if rz <= goal:
            break
        Hp = H @ p
        curvature = float(p @ Hp)
        if curvature <= 0 and radius == np.inf:
            return Step(delta, r, False) if k else _moved(delta, r, p, Hp, 1.0)
        alpha = rz / curvature if curvature > 0 else np.inf
        edge = boundary(length, along, reach, radius)
        if alpha >= edge:
            return _moved(delta, r, p, Hp, edge)._replace(cut=True)
        delta, r, _ = _moved(delta, r, p, Hp, alpha)
        z = M @ r
        before, rz = rz, float(r @ z)
        beta = rz / before
        length += 2 * alpha * along + alpha**2 * reach
        along, reach = beta * (along + alpha * reach), rz + beta**2 * reach
        p = beta * p - z
    return Step(delta, r, False)


def boundary(length: float, along: float, reach: float, radius: float) -> float:
    """τ > 0 with length + 2 τ along + τ² reach = radius².

    >>> boundary(1.0, 0.0, 3.0, 2.0)
    1.0
    """
    return float((np.sqrt(along**2 + reach * (radius**2 - length)) - along) / reach)


def _moved(delta: np.ndarray, r: np.ndarray, p: np.ndarray, Hp: np.ndarray, t: float) -> Step:
    """δ + t p, and the slope there."""
    return Step(delta + t * p, r + t * Hp, False)
