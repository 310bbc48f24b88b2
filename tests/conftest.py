"""Options of the test run."""


def pytest_addoption(parser):
    parser.addoption(
        "--all-models", action="store_true", help="check the large networks in full as well"
    )
    parser.addoption(
        "--all-cases", action="store_true", help="record the derivatives of every node case of ONNX"
    )
