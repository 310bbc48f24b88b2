"""One script of products, solvers and curvature, which prints a hash of each result: `test_bits`
compares its runs.
"""

import hashlib

import numpy as np
import onnx.parser
from scipy.sparse.linalg import cg, eigsh

import onnxjac as oj

TEXT = """<ir_version: 10, opset_import: ["" : 21]>
net (float[N, 20] x, int64[N] label) => (float loss)
<float[20, 256] W0, float[256] b0, float[256, 256] W1, float[256, 10] W2> {
  a = MatMul(x, W0)
  c = Add(a, b0)
  h = Tanh(c)
  d = MatMul(h, W1)
  e = Softplus(d)
  logits = MatMul(e, W2)
  loss = SoftmaxCrossEntropyLoss(logits, label)
}"""

PRODUCTS = 1000
"""The products with each of J, Jᵀ and J at further points."""


def digest(*arrays) -> str:
    """A hash of the bytes of some arrays."""
    made = hashlib.sha256()
    for array in arrays:
        made.update(np.ascontiguousarray(array).tobytes())
    return made.hexdigest()[:16]


def main() -> None:
    rng = np.random.default_rng(0)
    weights = {"W0": (20, 256), "b0": (256,), "W1": (256, 256), "W2": (256, 10)}
    held = {n: (rng.standard_normal(s) / s[0] ** 0.5).astype("f4") for n, s in weights.items()}
    proto = onnx.parser.parse_model(TEXT)
    del proto.graph.initializer[:]
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(x, n) for n, x in held.items())
    model = oj.load(proto)
    point = {"x": rng.standard_normal((64, 20)).astype("f4"), "label": rng.integers(0, 10, 64)}

    J = oj.linearize(model, point, of="logits", wrt=["W0", "b0"])
    v, u = (rng.standard_normal(n).astype("f4") for n in J.shape[::-1])
    print("products", digest(*(J @ v for _ in range(PRODUCTS))))
    print("transposed", digest(*(J.T @ u for _ in range(PRODUCTS))))
    moved = J
    for k in range(20):
        moved = moved.relinearize({**point, "x": point["x"] * (1 + k / 100)})
        print("moved", digest(*(moved @ v for _ in range(PRODUCTS // 20))))

    H = oj.hessian(model, point, of="loss", wrt=["W0"])
    G = oj.gauss_newton(model, point, of="loss", at="logits", wrt=["W2"])
    w = rng.standard_normal(G.shape[0]).astype("f4")
    print("cg", digest(cg(G + 0.1 * oj.jacobians.Identity(G.in_shape, G.dtype), w, maxiter=60)[0]))
    values, vectors = eigsh(H, k=3, v0=np.ones(H.shape[0], "f4"), maxiter=200, tol=1e-3)
    print("eigsh", digest(values, vectors))
    found = oj.newton_cg(model, point, of="loss", wrt=["W2"], maxiter=5)
    print("newton_cg", digest(found.x))
    K = oj.kfac(model, point, of="loss", at="logits", wrt=["W0", "W1", "W2"])
    print("kfac", digest(oj.inverse(K + 0.1 * oj.jacobians.Identity(K.in_shape, K.dtype))
                         @ rng.standard_normal(K.shape[0]).astype("f4")))  # fmt: skip
    found = oj.estimators.spectral_density(H, steps=12, probes=2)
    print("density", digest(found.nodes, found.weights))


if __name__ == "__main__":
    main()
