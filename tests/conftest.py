"""Options of the test run."""


def pytest_addoption(parser):
    parser.addoption(
        "--all-models", action="store_true", help="check the large networks in full as well"
    )
