"""The first product with an installed package: `python tests/supply/product.py`.

The file stands on its own, so that any environment runs it: nothing of the checkout is imported.
"""

from pathlib import Path

import numpy as np

import onnxjac as oj

MODEL = Path(__file__).parents[1] / "models" / "mlp.onnx"

model = oj.load(MODEL)
point = {name: np.ones([4 if isinstance(n, str) else n for n in spec.shape], spec.dtype)
         for name, spec in model.inputs.items()}  # fmt: skip
J = oj.linearize(model, point)
v, u = np.ones(J.shape[1]), np.ones(J.shape[0])
assert np.isfinite(J @ v).all()
assert np.isclose(u @ (J @ v), (J.T @ u) @ v, rtol=1e-4)
print(f"{oj.__file__}: J is {J.shape}, of version {oj.__version__}")
