"""Options of the test run, and what all of it shares."""

import gc

import pytest


@pytest.fixture
def clean_registry():
    """Declarations to change, put back afterwards."""
    from onnxjac.ops.registry import DECLARATIONS

    before = dict(DECLARATIONS)
    yield DECLARATIONS
    DECLARATIONS.clear()
    DECLARATIONS.update(before)


def pytest_addoption(parser):
    parser.addoption(
        "--whole", action="store_true",
        help="check every node case of ONNX in every way, and the large networks in full",
    )  # fmt: skip


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """No garbage is looked for among the tests and the modules, which stay until the end.

    They are a million objects: a look at all of them takes longer than most tests.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
