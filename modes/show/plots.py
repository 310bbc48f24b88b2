"""Pictures of a Jacobian. The extra `plots` brings matplotlib, loaded at the first picture.

Each function takes `ax=`, makes a figure as wide as a notebook where none is given, and returns
the axes that it drew on.
"""

from __future__ import annotations

from .graph import plot_elimination, plot_graph
from .matrix import plot_jacobian, plot_sensitivity, spy
from .spectra import plot_density, plot_spectrum

__all__ = [
    "plot_density", "plot_elimination", "plot_graph", "plot_jacobian", "plot_sensitivity",
    "plot_spectrum", "spy",
]  # fmt: skip
