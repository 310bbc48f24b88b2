"""Missing or incompatible packages are reported in one line; the rest works without them."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import onnxjac as oj
from house import ROOT
from onnxjac.modes.model.programs import onnxruntime as ort
from onnxjac.modes.model.programs.onnxruntime import OutdatedEngine

MODEL = Path(__file__).parents[2] / "models" / "mlp.onnx"

USES = [
    ("runtime", "J.compile('onnxruntime') @ v"),
    ("plots", "J.spy()"),
    ("torch", "J.compile('torch') @ v"),
    ("torch", "J.to_torch()"),
    ("torch", "model.to_torch()"),
    ("jax", "J.compile('jax') @ v"),
    ("jax", "J.to_jax()"),
    ("jax", "model.to_jax()"),
    ("jax2onnx", "oj.load(lambda x: x, example_inputs=np.ones(2, np.float32))"),
    ("jax2onnx", "oj.load(np.sin, example_inputs=1.0)"),
    ("lineax", "J.to_lineax()"),
    ("pylops", "J.to_pylops()"),
    ("casadi", "model.to_casadi()"),
    ("casadi", "problem.to_casadi()"),
    ("nlopt", "problem.to_nlopt()"),
    ("pyomo", "problem.to_pynumero()"),
    ("pyomo", "oj.to_pyomo(None)"),
    ("openmdao", "oj.to_openmdao(model, x)"),
    ("sundials", "oj.to_sundials(None)"),
    ("petsc", "oj.to_petsc(J)"),
    ("pytensor", "oj.to_pytensor(model)"),
]
"""An extra, and a feature that needs it."""

MODULES = (
    "onnxruntime", "matplotlib", "torch", "jax", "jax2onnx", "lineax", "pylops", "dask",
    "distributed", "onnxscript", "tqdm", "rich", "casadi", "nlopt", "cyipopt", "pyomo", "openmdao",
    "sksundae", "petsc4py", "pytensor",
)  # fmt: skip

NOT_FOR_USERS = {"notebooks", "test", "peers", "docs", "mutation"}
ONLY_OFFERED = {"completion"}  # used by the shell
BROUGHT_BY_THE_CALLER = {"distributed"}  # its client is an argument

SCRIPT = """
import sys, json
sys.modules.update(dict.fromkeys(json.loads(sys.argv[2])))
import numpy as np, onnxjac as oj
model = oj.load(sys.argv[1])
x = {n: np.ones([d if isinstance(d, int) else 2 for d in s.shape], s.dtype)
     for n, s in model.inputs.items()}
J = oj.linearize(model, x)
problem = oj.problem((model, f"{[*model.outputs][0]}[0,0]"), x)
assert oj.load(sys.argv[1]).run(x, engine="numpy")
v = np.ones(J.shape[1], J.dtype)
assert np.isfinite(J.compile() @ v).all()
said = {}
for _, use in json.loads(sys.argv[3]):
    try:
        eval(use)
    except oj.OnnxJacError as error:
        said[use] = str(error)
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def said():
    """The message of each feature where no optional package is installed."""
    arguments = [str(MODEL), json.dumps(MODULES), json.dumps(USES)]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *arguments], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(("extra", "use"), USES)
def test_a_missing_library_names_its_extra(said, extra, use):
    assert f"`pip install 'onnxjac[{extra}]'`" in said[use]
    assert "\n" not in said[use]


def test_every_extra_is_asked_for():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    others = NOT_FOR_USERS | ONLY_OFFERED | BROUGHT_BY_THE_CALLER
    extras = project["optional-dependencies"].keys() - others
    assert extras == {extra for extra, _ in USES}


@pytest.mark.parametrize("error", ["ImportError('needs NumPy 1')", "AttributeError('_ARRAY_API')"])
def test_a_runtime_that_cannot_be_imported(tmp_path, error):
    """NumPy runs the model, with one warning; requesting the engine raises an error."""
    for name in ("onnxruntime", "torch"):
        (tmp_path / f"{name}.py").write_text(f"raise {error}")
    script = f"""
import warnings
import numpy as np, onnxjac as oj
model = oj.load({str(MODEL)!r})
x = {{n: np.ones([d if isinstance(d, int) else 2 for d in s.shape], s.dtype)
     for n, s in model.inputs.items()}}
with warnings.catch_warnings(record=True) as met:
    warnings.simplefilter("always")
    model.run(x)
print(*(w.message for w in met))
J = oj.linearize(model, x, engine="numpy")
J.compile() @ np.ones(J.shape[1], J.dtype)
for engine in ("onnxruntime", "torch"):
    try:
        J.compile(engine) @ np.ones(J.shape[1], J.dtype)
    except oj.OnnxJacError as error:
        print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120,
        env={"PYTHONPATH": str(tmp_path), "PATH": ""},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    warned, runtime, torch = done.stdout.splitlines()
    assert "NumPy runs the model" in warned
    assert "pip install -U 'onnxjac[runtime]'" in warned
    assert "pip install -U 'onnxjac[runtime]'" in runtime
    assert "pip install -U 'onnxjac[torch]'" in torch


def newer():
    """A model of opset 24."""
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Tanh", ["x"], ["y"])], "g", ends[:1], ends[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=10)


SAYS = (
    "[ONNXRuntimeError] : 1 : FAIL : ONNX Runtime only *guarantees* support for models stamped "
    "with official released onnx opset versions. Opset 24 is under development",
    "[ONNXRuntimeError] : 1 : FAIL : Unsupported model IR version: 13, max supported IR version: 9",
)


@pytest.mark.parametrize("says", SAYS)
def test_a_runtime_older_than_the_model(monkeypatch, says):
    """The messages of ONNX Runtime 1.20 about opset 24, and of older ones about the IR version."""

    def too_old(*_):
        raise RuntimeError(says)

    pytest.importorskip("onnxruntime")
    monkeypatch.setattr(ort, "start_session", too_old)
    model, x = oj.load(newer()), {"x": np.ones(3, np.float32)}
    with pytest.warns(oj.OnnxJacWarning, match="NumPy runs the model.*is older than"):
        made = model.run(x)
    np.testing.assert_allclose(made["y"], np.tanh(x["x"]), rtol=1e-6)
    with pytest.raises(OutdatedEngine, match=r"pip install -U 'onnxjac\[runtime\]'"):
        model.run(x, engine="onnxruntime")
