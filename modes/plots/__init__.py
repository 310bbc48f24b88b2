"""Pictures of a Jacobian. The extra `plots` brings matplotlib, loaded at the first picture.

Each function takes `ax=`, makes a figure as wide as a notebook where none is given, and returns
the axes that it drew on.
"""

from __future__ import annotations

from .density import plot_density
from .graph import plot_elimination, plot_graph
from .jacobian import plot_jacobian
from .sensitivity import plot_sensitivity
from .spectrum import plot_spectrum
from .spy import spy

__all__ = [
    "plot_density", "plot_elimination", "plot_graph", "plot_jacobian", "plot_sensitivity",
    "plot_spectrum", "spy",
]  # fmt: skip
