"""A pytest plugin: which test runs which line, and how long each passing test takes.

Run it as `coverage run -m pytest -p mutation.contexts --durations-file FILE ...`: each test becomes
a context in coverage's data, and FILE maps the ids of passing tests to seconds. With `--cases N`
only N cases of every test function run, evenly spread over them.
"""

import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import coverage
import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options for the file of durations and for the number of cases."""
    parser.addoption("--durations-file", type=Path, required=True)
    parser.addoption("--cases", type=int, default=0)


def pytest_configure(config: pytest.Config) -> None:
    """Start with no durations."""
    config.stash[SECONDS] = {}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep some cases of every function."""
    most = config.getoption("--cases")
    cases: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        cases[item.nodeid.partition("[")[0]].append(item)
    if most:
        items[:] = [item for same in cases.values() for item in same[:: -(-len(same) // most)]]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Name coverage's context after the test while it and its fixtures run."""
    measuring = coverage.Coverage.current()
    measuring.switch_context(item.nodeid)
    try:
        return (yield)
    finally:
        measuring.switch_context("")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Record the seconds of a passing test."""
    report = yield
    if report.when == "call" and report.passed:
        item.config.stash[SECONDS][report.nodeid] = round(report.duration, 4)
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the durations, and the data, which a process that crashes at its end would lose."""
    coverage.Coverage.current().save()
    path: Path = session.config.getoption("--durations-file")
    path.write_text(json.dumps(session.config.stash[SECONDS]))


SECONDS = pytest.StashKey[dict[str, float]]()
