"""A reaction–diffusion residual on a grid: a sparse Jacobian with five diagonals."""

from __future__ import annotations

from typing import Any

import numpy as np

from .workload import Tensors, Workload

DIFFUSION = 0.1


def residual(nn: Any, t: Tensors) -> Any:
    """F(u) = D (u_N + u_S + u_W + u_E − 4 u) + u − u³, zero outside the grid."""
    u = t["u"]
    wide = nn.pad(u, 1)
    inner, before, after = slice(1, -1), slice(0, -2), slice(2, None)
    around = wide[before, inner] + wide[after, inner] + wide[inner, before] + wide[inner, after]
    return DIFFUSION * (around - 4.0 * u) + u - u * u * u


def reaction(n: int = 256, products: tuple[str, ...] = ("jvp", "sparse", "gmres")) -> Workload:
    """Reaction and diffusion at 256×256 points in double precision, around the steady state 1.

    −∂F/∂u is definite there.
    """
    u = 1 + 0.1 * np.random.default_rng(12).standard_normal((n, n))
    settings = {"input": "u", "kept": n * n, "stencil": True}
    return Workload({"u": u}, residual, ("u",), products, **settings)
