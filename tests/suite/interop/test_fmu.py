"""FMUs of onnx2fmu with derivatives by the example of the documentation, asked by fmpy.

onnx2fmu builds with a release of ONNX Runtime that it downloads once; without it, nothing is run.
"""

import json
import runpy
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

import onnxjac as oj
from house import ROOT

pytest.importorskip("onnx2fmu")
fmpy = pytest.importorskip("fmpy")
pytestmark = pytest.mark.peers

if not [*Path("/tmp/onnxruntime").glob("onnxruntime-linux-*.tgz")]:  # onnx2fmu's own place
    pytest.skip("onnx2fmu has no release of ONNX Runtime", allow_module_level=True)

NET = """<ir_version: 10, opset_import: ["": 21]>
net (float[1, 3] x, float[2] s) => (float[1, 2] y, float[1, 1] z)
<float[3, 2] W = {0.1, 0.2, -0.3, 0.4, 0.5, -0.6}>
{ h = MatMul (x, W)  a = Tanh (h)  y = Mul (a, s)  z = ReduceSumSquare (y) }
"""

POINT = {"x": np.array([[0.3, -0.5, 0.7]], np.float32), "s": np.array([1.2, 0.8], np.float32)}


def asked(path, version):
    """J by directional and by adjoint derivatives of an FMU, before and after the point is set."""
    description, folder = fmpy.read_model_description(path), fmpy.extract(path)
    module = getattr(__import__(f"fmpy.fmi{version}"), f"fmi{version}")
    fmu = getattr(module, f"FMU{version}Slave")(
        guid=description.guid, unzipDirectory=folder, instanceName="it",
        modelIdentifier=description.coSimulation.modelIdentifier,
    )  # fmt: skip
    fmu.instantiate()
    if version == 2:
        fmu.setupExperiment(startTime=0.0)
    fmu.enterInitializationMode()
    known, unknown = [*range(1, 6)], [*range(6, 9)]
    for x in (np.ones(5), np.concatenate([POINT["x"].ravel(), POINT["s"]])):
        (fmu.setReal if version == 2 else fmu.setFloat32)(known, x.tolist())
        yield np.array([fmu.getDirectionalDerivative(unknown, [k], [1.0]) for k in known]).T
        yield fmu.getDirectionalDerivative(unknown, known, [1.0, 2.0, 3.0, 4.0, 5.0])
        if version == 3:
            yield fmu.getAdjointDerivative(unknown, known, [1.0, -1.0, 2.0], 5)
    fmu.exitInitializationMode()
    fmu.terminate()
    fmu.freeInstance()


@pytest.mark.parametrize("version", [2, 3])
def test_derivatives_of_an_fmu_agree_with_its_model(version, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = onnx.parser.parse_model(NET)
    onnx.save(model, "net.onnx")
    sides = ({"inputs": "xs", "outputs": "yz"}).items()
    names = {side: [{"name": name, "description": ""} for name in each] for side, each in sides}
    head = {"name": "net", "description": "", "FMIVersion": f"{version}.0"}
    Path("net.json").write_text(json.dumps(head | names))
    runpy.run_path(str(ROOT / "docs" / "examples" / "fmu.py"))["make_fmu"]("net.onnx", "net.json")
    expected = []
    for point in ({name: np.ones_like(x) for name, x in POINT.items()}, POINT):
        J = oj.linearize(model, point).toarray()
        expected += [J, J @ np.arange(1, 6)] + [J.T @ [1, -1, 2]] * (version == 3)
    found = [*asked("net.fmu", version)]
    assert fmpy.validation.validate_fmu("net.fmu") == []
    for a, e in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, e, rtol=1e-5, atol=1e-6)
