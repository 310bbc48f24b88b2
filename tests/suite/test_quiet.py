"""No network, telemetry, subprocesses or unpickling, and no code of a model is executed."""

import ast
import subprocess
import sys

import pytest

from house import ROOT, modules

FORBIDDEN = {
    *("eval", "exec", "compile", "__import__", "sympify", "parse_expr", "lambdify"),
    *("os.system", "os.popen", "pickle.load", "pickle.loads", "torch.load", "joblib.load"),
}
MODULES = {
    *("socket", "ssl", "urllib", "urllib3", "http", "requests", "httpx", "aiohttp", "ftplib"),
    *("smtplib", "webbrowser", "subprocess", "pickle", "cloudpickle", "dill", "marshal", "shelve"),
    "runpy",
}
EXCEPTIONS = {
    ("ops/formulas.py", "sympify"): "reads the formulas that rules declare, not a model's",
    ("ops/formulas.py", "lambdify"): "compares a stable form with the expression parsed",
    ("ops/symbols/pointwise.py", "lambdify"): "evaluates such formulas over SymPy's numbers",
    ("modes/show/kinks.py", "lambdify"): "makes a function of a kink that a rule declares",
    ("modes/verify/check.py", "lambdify"): "finds where a condition of a declared rule changes",
    ("modes/model/programs/numpy.py", "exec"): "calls kernels; its lines hold numbers alone",
    ("modes/verify/scripts.py", "runpy"): "runs a proof's script, assembled from our own lines",
    ("modes/data/comm.py", "pickle"): "objects between the processes of one program, by JAX",
    ("modes/data/comm.py", "pickle.loads"): "the same: mpi4py and PyTorch send them so too",
}
RUN = """
import sys
FORBIDDEN = ("socket.", "subprocess.", "os.system", "os.exec", "os.fork", "os.posix_spawn",
             "pickle.find_class", "marshal.loads", "urllib.", "http.", "ftplib.", "smtplib.")
seen = []
import onnx, onnx.reference, onnxruntime, scipy.sparse.linalg, sympy
armed = True
sys.addaudithook(lambda event, _: seen.append(event) if armed else None)
import numpy as np
import onnxjac as oj
model = oj.load(sys.argv[1])
point = {name: np.ones([4 if isinstance(n, str) else n for n in spec.shape], spec.dtype)
         for name, spec in model.inputs.items()}
for engine in ("numpy", "onnxruntime"):
    J = oj.linearize(model, point).compile(engine)
    J.T @ (J @ np.ones(J.shape[1]))
oj.export(model, "vjp", point)
J.explain(), J.diagonal, repr(J)
EXTRA
armed = False
print(*sorted({event for event in seen if event.startswith(FORBIDDEN)}))
"""
BENIGN = {"marshal.loads"}  # the import system reads compiled modules with it


def names(source: str) -> set[str]:
    """The forbidden names that a source calls and the forbidden modules that it imports."""
    return {name for node in ast.walk(ast.parse(source)) for name in found(node)}


def found(node: ast.AST) -> list[str]:
    """The forbidden names and modules in one node of a source."""
    if isinstance(node, ast.Import):
        return [a.name for a in node.names if a.name.split(".")[0] in MODULES]
    if isinstance(node, ast.ImportFrom):
        module = node.module or ""
        imported = [f"{module}.{a.name}" for a in node.names]
        outside = node.level == 0 and module.split(".")[0] in MODULES
        return [module] if outside else [name for name in imported if name in FORBIDDEN]
    if isinstance(node, ast.Call):
        called = ast.unparse(node.func).removeprefix("sp.").removeprefix("sympy.")
        unsafe = [k for k in node.keywords if k.arg == "allow_pickle" and not is_false(k.value)]
        return [called] * (called in FORBIDDEN) + ["allow_pickle"] * bool(unsafe)
    return []


def is_false(node: ast.AST) -> bool:
    """Whether an argument is the literal False."""
    return isinstance(node, ast.Constant) and node.value is False


@pytest.mark.parametrize("path", modules().values(), ids=modules().keys())
def test_no_module_reaches_out_or_executes_data(path):
    place = str(path.relative_to(ROOT))
    assert {(place, name) for name in names(path.read_text())} <= EXCEPTIONS.keys()


def test_every_exception_is_still_one():
    for place, name in EXCEPTIONS:
        assert name in names((ROOT / place).read_text())


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import urllib.request", {"urllib.request"}),
        ("def f():\n from socket import socket", {"socket"}),
        ("from . import requests", set()),
        ("from torch import load\nimport numpy", {"torch.load"} & FORBIDDEN),
        ("np.load(f, allow_pickle=True)", {"allow_pickle"}),
        ("np.load(f, allow_pickle=False)", set()),
        ("x = eval(text)", {"eval"}),
        ("module.eval()", set()),
        ("sp.sympify(text)", {"sympify"}),
    ],
)
def test_the_reader_finds_names(source, expected):
    assert names(source) == expected


def events(extra: str = "") -> set[str]:
    """The audit events of Python, other than for computing, while a model is loaded and used."""
    script = RUN.replace("EXTRA", extra)
    model = str(ROOT / "tests/models/mlp.onnx")
    run = subprocess.run(
        [sys.executable, "-c", script, model], capture_output=True, text=True, check=True
    )
    return set(run.stdout.split()) - BENIGN


def test_using_a_model_opens_no_socket_and_starts_no_process():
    assert events() == set()


def test_the_watch_sees_a_socket():
    assert "socket.__new__" in events("import socket; socket.socket().close()")
