"""Curvature is tested as users run it: linear algebra has two threads, whatever the machine has."""

import pytest

from onnxjac.jacobians.threads import libraries


@pytest.fixture(autouse=True)
def two_threads():
    with libraries().limit(limits=2):
        yield
