"""Figures are drawn off-screen, and closed after each test."""

import matplotlib
import pytest
from matplotlib import pyplot as plt


@pytest.fixture(autouse=True)
def _no_screen():
    backend = matplotlib.get_backend()
    plt.switch_backend("Agg")
    yield
    plt.close("all")
    plt.switch_backend(backend)
