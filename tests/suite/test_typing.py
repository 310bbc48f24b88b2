"""A user's code, checked by mypy and pyright: right uses have precise types, mistakes are reported.

`pip install "pyright[nodejs]"` for the second one; without it, its tests are skipped.
"""

import doctest
import json
import re
import shutil
import subprocess
import sys
from collections import defaultdict

import pytest

from house import ROOT

HEAD = """
import numpy as np
import scipy.sparse as sp
import onnxjac as oj
from onnxjac.jacobians import Dense, Jacobian, Op, reading

m = oj.load("model.onnx")
x = {"x": np.ones(3)}
v = np.ones(3)
J = oj.linearize(m, x)
S = sp.eye_array(3)
H = oj.hessian(m, x, of="loss")
op: Op = reading(v)
"""

ARRAY = "ndarray[tuple[Any, ...], dtype[Any]]"

RIGHT = {
    "oj.load('model.onnx', dtype='float64')": "Model",
    "oj.linearize(m, x, of='y', wrt=['x', 'w'], straight_through=True)": "Linearization",
    "oj.linearize(m, [x, x], wrt='w')": "Jacobian",
    "oj.linearize('model.onnx', x)": "Linearization",
    "J.T": "Linearization",
    "J @ v": ARRAY,
    "v @ J": ARRAY,
    "J @ S": ARRAY,
    "S @ J": ARRAY,
    "J @ J.T": "Jacobian",
    "2.0 * J": "Jacobian",
    "J / 2": "Jacobian",
    "-J": "Jacobian",
    "J + J": "Jacobian",
    "J - S": "Jacobian",
    "J['y', 'x']": "Jacobian",
    "J[:2, 1:]": "Jacobian",
    "J.shape": "tuple[int, int]",
    "J.tosparse()": "csr_array[Any, tuple[int, int]]",
    "J.spy()": "Axes",
    "J.plot()": "Axes",
    "Dense(np.ones((2, 3)))": "Dense",
    "oj.jvp(m, x, x, of='y', engine='numpy')[1]": f"dict[str, {ARRAY}]",
    "oj.vjp(m, x, checkpoint=2)[1]": "Pullback",
    "H": "Hessian",
    "H.gradient": f"dict[str, {ARRAY}]",
    "0.5 * H": "Curvature",
    "H + 0.1 * oj.identity_like(H)": "Jacobian",
    "oj.gauss_newton(m, x, of='loss', at='z')": "Symmetric",
    "oj.hessian(m, x, of='loss', reduction='mean', batch_size=8)": "Jacobian",
    "oj.hessian(m, x, of='loss', blocks='diagonal')": "Symmetric",
    "oj.kfac(m, x, at='z', likelihood='gaussian')": "KroneckerFactored",
    "oj.inverse(J.T @ J) @ v": ARRAY,
    "J.inverse(solver='lsmr')": "Jacobian",
    "oj.as_scipy(m, x, form='dense')": f"Problem[{ARRAY}]",
    "oj.as_scipy(m, x, form='dense').jac(v)": ARRAY,
    "oj.as_scipy(m, x).ode(0, v)": ARRAY,
    "oj.newton_krylov(m, x)": "OptimizeResult",
    "oj.newton_krylov(m, x).x": ARRAY,
    "oj.levenberg_marquardt(m, x).cost": "float",
    "[s.success for s in oj.implicit_euler(m, x, step=0.1, steps=3)]": "list[bool]",
    "oj.solve_ivp(m, x, (0, 1)).t": ARRAY,
    "oj.export(m, 'vjp', x)": "ModelProto",
    "oj.prove('Tanh')": "Proof",
    "op": "Vocabulary",
    "op.Softmax(v, axis=0)": "Any",
    "op.TopK(v, (1,), axis=-1)": "tuple[Any, ...]",
}
"""An expression -> its type, without the modules."""

WRONG = (
    "oj.load()",
    "oj.load('model.onnx', type='float64')",
    "oj.linearize(m)",
    "oj.linearize(x, m)",
    "oj.linearize(3, x)",
    "oj.linearize(m, x, off='y')",
    "oj.linearize(m, x, wrt=3)",
    "oj.linearize(m, x, straight_through='yes')",
    "oj.linearize(m, [x], batchsize=3)",
    "oj.jvp(m, x)",
    "oj.jvp(m, x, x, engin='numpy')",
    "oj.vjp(m, x, chekpoint=True)",
    "oj.grad(m, x, of=['y', 'z'])",
    "oj.grad(m, x, straight=True)",
    "oj.hessian(m, x, off='loss')",
    "oj.fisher(m, x, likelyhood='gaussian')",
    "oj.kfac(m, x, likelyhood='gaussian')",
    "oj.shampoo(m, x, power='half')",
    "oj.ntk(m, x, batchsize=3)",
    "oj.export(m, x)",
    "oj.inverse(J, solvr='cg')",
    "oj.inverse(m)",
    "oj.to_torch(m, of=1)",
    "m.run(x, engin='numpy')",
    "m.to_torch(off='y')",
    "oj.hvp(m, x, of='loss')",
    "oj.linearise(m, x)",
    "J + 1",
    "J.gradient",
    "J.tosparse('cssr')",
    "oj.export(m, 'vpj')",
    "oj.coloring(np.eye(3), 'starr')",
    "J.plot(axes=None)",
    "J.inverse(solvr='cg')",
    "oj.linearize(J, x)",
    "oj.implicit_euler(m, x, step=0.1, steps=3, maxit=7)",
    "oj.solve_ivp(m, x, (0, 1), method='LSODA')",
    "oj.preconditioners.ilu(J, droptol=0.1)",
    "oj.newton_cg(m, x).sucess",
    "oj.as_scipy(m, x, form='csc')",
    "oj.as_scipy(m, x).jacobian",
    "op.Matmul(v, v)",
    "op.MatMul(v)",
    "op.Transpose(v, (1, 0))",
    "op.Softmax(v, axes=1)",
)

FOREIGN = re.compile(
    r"svds\(|slope\.ravel|state\[|\.grad\.|\.terminal = |compute_totals|CVODE\(|IDA\(|PETSc"
    r"|pytensor|allclose\(slope|plant\.|diffeqsolve|cyipopt|held\[|l\.round"
)
"""Lines of the pages at which the types of other libraries are not precise."""

# Errors of the package are not asked for, which spares the bodies of its functions.
MYPY = """[mypy]
mypy_path = {path}
check_untyped_defs = True
allow_redefinition = True
disable_error_code = var-annotated
ignore_missing_imports = True
[mypy-onnxjac.*]
ignore_errors = True
[mypy-torch.*,dask.*,distributed.*,IPython.*,PIL.*]
follow_imports = skip
"""


def mypy(folder):
    """(file, line number, severity, message) for what mypy reports."""
    config = folder / "mypy.ini"
    config.write_text(MYPY.format(path=ROOT / ".ci"))
    command = [sys.executable, "-m", "mypy", "--config-file", config, folder]
    run = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
    return re.findall(r"(\w+)\.py:(\d+): (error|note): (.*)", run.stdout)


def pyright(folder):
    """The same, for what pyright reports."""
    if not (program := shutil.which("pyright")):
        pytest.skip("needs pyright")
    (folder / "pyrightconfig.json").write_text(json.dumps({"extraPaths": [str(ROOT / ".ci")]}))
    command = [program, "--outputjson", "--pythonpath", sys.executable, "-p", folder]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    found = json.loads(run.stdout)["generalDiagnostics"]
    return [(re.search(r"(\w+)\.py$", d["file"])[1], d["range"]["start"]["line"] + 1,
             d["severity"], d["message"]) for d in found]  # fmt: skip


@pytest.fixture(scope="module", params=[mypy, pyright])
def said(request, tmp_path_factory):
    """What a checker says of each line of a user's file, and of the pages, in one run."""
    folder = tmp_path_factory.mktemp("typing")
    lines = {"user": [*HEAD.splitlines(), *(f"reveal_type({each})" for each in RIGHT), *WRONG]}
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        examples = doctest.DocTestParser().get_examples(page.read_text(encoding="utf-8"))
        name = re.sub(r"\W", "_", page.relative_to(ROOT).as_posix())
        lines[name] = "".join(example.source for example in examples).splitlines()
    for name, each in lines.items():
        (folder / f"{name}.py").write_text("\n".join(each), encoding="utf-8")
    found = defaultdict(list)
    for file, at, severity, text in request.param(folder):
        if file in lines:  # not what a checker with other settings says of the package
            found[file, lines[file][int(at) - 1]].append((severity, text))
    assert found["user", "reveal_type(J.T)"]
    return found


@pytest.mark.parametrize("expression", RIGHT)
def test_a_right_use_has_its_type(said, expression):
    ((severity, text),) = said["user", f"reveal_type({expression})"]
    assert severity != "error"
    kind = re.search(r' is "(.*)"$', text)[1]
    kind = kind.replace(", *tuple[Any, ...]", "")  # from SciPy 1.18 on, operators come in stacks
    assert re.sub(r"(\w+\.)+(?=\w)", "", kind) == RIGHT[expression]


@pytest.mark.parametrize("line", WRONG)
def test_a_mistake_is_reported(said, line):
    assert "error" in {severity for severity, _ in said["user", line]}


def test_the_head_and_the_pages_are_right(said):
    errors = [
        (file, line, text)
        for (file, line), found in said.items()
        for severity, text in found
        if severity == "error" and not (file == "user" and line in WRONG)
    ]
    left = [each for each in errors if not FOREIGN.search(each[1])]
    assert not left, "\n".join(map(str, left))
