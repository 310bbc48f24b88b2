"""Exports by ONNX Runtime's C API, from C and from Fortran: the examples of the documentation.

They need the headers of ONNX Runtime, found by the compiler (`CPATH`), which no wheel has.
"""

import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

import onnxjac as oj
from house import ROOT

pytestmark = pytest.mark.peers

EXAMPLES = ROOT / "docs" / "examples"

NET = """<ir_version: 10, opset_import: ["": 21]>
net (double[3] x) => (double[2] y)
<double[3, 2] W = {0.1, 0.2, -0.3, 0.4, 0.5, -0.6}, double[2] b = {0.1, 0.3}>
{ h = MatMul (x, W)  c = Add (h, b)  a = Tanh (c)  e = Exp (a)  y = Mul (a, e) }
"""

X = np.array([0.3, -0.5, 0.7])


@pytest.fixture
def build(tmp_path):
    """What builds an example and runs it with an export."""
    runtime = pytest.importorskip("onnxruntime")
    (library,) = Path(runtime.__file__).parent.glob("capi/libonnxruntime.so.*")

    def run(*command):
        return subprocess.run([*map(str, command)], cwd=tmp_path, capture_output=True, text=True)

    def made(compiler, name, mode):
        if not all(map(shutil.which, ("gcc", compiler))):
            pytest.skip(f"no gcc or no {compiler}")
        (tmp_path / "empty.c").write_text("#include <onnxruntime_c_api.h>\n")
        if run("gcc", "-fsyntax-only", "empty.c").returncode:
            pytest.skip("no headers of ONNX Runtime")
        (tmp_path / "libonnxruntime.so.1").symlink_to(library)
        built = run("gcc", "-Wall", "-Werror", "-c", EXAMPLES / "model.c")
        assert built.returncode == 0, built.stderr
        rest = ["model.o", "libonnxruntime.so.1", f"-Wl,-rpath,{tmp_path}", "-o", "example"]
        built = run(compiler, EXAMPLES / name, *rest)
        assert built.returncode == 0, built.stderr
        onnx.save(oj.export(onnx.parser.parse_model(NET), mode, {"x": X}), tmp_path / "f.onnx")
        printed = run("./example", "f.onnx")
        assert printed.returncode == 0, printed.stderr
        return np.array([line.split() for line in printed.stdout.splitlines()], float)

    return made


@pytest.mark.parametrize(("compiler", "name", "mode"), [
    ("gcc", "jacobian.c", "jvp"), ("gfortran", "jacobian.f90", "vjp"),
])  # fmt: skip
def test_the_example_prints_the_jacobian(build, compiler, name, mode):
    J = oj.linearize(oj.load(onnx.parser.parse_model(NET)), {"x": X})
    np.testing.assert_allclose(build(compiler, name, mode), J.toarray(), rtol=1e-12)
