"""A pytest plugin: run only every n-th test, so that a sample of the whole suite costs little."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """The stride."""
    parser.addoption("--every", type=int, default=1, metavar="N", help="run only every N-th test")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the first test of every N."""
    stride = config.getoption("--every")
    config.hook.pytest_deselected(items=[x for i, x in enumerate(items) if i % stride])
    items[:] = items[::stride]
