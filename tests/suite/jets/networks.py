"""Small models with closed forms, and networks whose derivatives mpmath and PyTorch give."""

from itertools import pairwise

import numpy as np
import onnx
import onnx.helper as h
import onnx.parser
from onnx import numpy_helper

import onnxjac as oj

HEAD = '<ir_version: 10, opset_import: ["": 21]> g '


def parse(text):
    return oj.load(onnx.parser.parse_model(HEAD + text))


def mlp(widths, seed=0, activation="Tanh", dtype=np.float64):
    """A network u(x) with its weights: (model, [(W, b), ...])."""
    rng = np.random.default_rng(seed)
    weights = [(rng.standard_normal((a, b)).astype(dtype) / a**0.5,
                rng.standard_normal(b).astype(dtype) / 4)
               for a, b in pairwise(widths)]  # fmt: skip
    nodes, held, x = [], [], "x"
    for k, (W, b) in enumerate(weights):
        last = k == len(weights) - 1
        held += [numpy_helper.from_array(W, f"W{k}"), numpy_helper.from_array(b, f"b{k}")]
        nodes += [h.make_node("MatMul", [x, f"W{k}"], [f"m{k}"]),
                  h.make_node("Add", [f"m{k}", f"b{k}"], ["u" if last else f"z{k}"])]  # fmt: skip
        if not last:
            nodes.append(h.make_node(activation, [f"z{k}"], [f"h{k}"]))
            x = f"h{k}"
    kind = h.np_dtype_to_tensor_dtype(np.dtype(dtype))
    ends = [h.make_tensor_value_info(n, kind, ["n", k]) for n, k in (("x", widths[0]), ("u", 1))]
    graph = h.make_graph(nodes, "mlp", ends[:1], ends[1:], held)
    proto = h.make_model(graph, opset_imports=[h.make_opsetid("", 21)], ir_version=10)
    return oj.load(proto), weights


def electrons(count, widths=(64, 16), layers=3, determinants=2, dtype=np.float64, seed=0):
    """log |ψ| of a network of electrons as FermiNet's, with its weights: (model, weights by name).

    One-electron features meet the means of all others in each layer, those of pairs stay apart. The
    two halves have determinants of their own, as the two spins do; without determinants, the sum of
    all orbitals' sines is given instead of log |ψ|.
    """
    rng, real = np.random.default_rng(seed), "double" if dtype == np.float64 else "float"
    N, A, (one, two), D = count, 2, widths, determinants or 2
    weights = {"R": np.array([[0.0, 0.0, -0.7], [0.0, 0.0, 0.7]])}

    def drawn(name, inputs, *shape):
        weights[name] = rng.standard_normal((inputs, *shape)) / inputs**0.5

    held = {"eye": np.eye(N)[:, :, None], "apart": 1 - np.eye(N)[:, :, None]}
    integers = {"xyz": [-1], "first": [1], "second": [2], "nuclei": [0, N, 4 * A],
                "every": [1, N, 1], "orbitals": [0, 2, N // 2, D, N // 2],
                "up": 0, "down": 1, "both_axes": [1, 2]}  # fmt: skip
    lines = ["X = Unsqueeze(x, second)", "ae = Sub(X, R)", "ae2 = Mul(ae, ae)",
             "re2 = ReduceSum<keepdims = 1>(ae2, xyz)", "re = Sqrt(re2)",
             "aes = Concat<axis = 3>(ae, re)", "h0 = Reshape(aes, nuclei)",
             "Y = Unsqueeze(x, first)", "ee = Sub(X, Y)", "ee2 = Mul(ee, ee)",
             "rr2 = ReduceSum<keepdims = 1>(ee2, xyz)", "safe = Add(rr2, eye)",
             "rr1 = Sqrt(safe)", "rr = Mul(rr1, apart)",
             "g0 = Concat<axis = 3>(ee, rr)"]  # fmt: skip
    width, pairs = 4 * A, 4
    for k in range(layers):
        drawn(f"W{k}", 2 * width + pairs, one)
        drawn(f"V{k}", pairs, two)
        lines += [f"m{k} = ReduceMean<keepdims = 1>(h{k}, first)", f"mm{k} = Expand(m{k}, every)",
                  f"n{k} = ReduceMean<keepdims = 0>(g{k}, second)",
                  f"f{k} = Concat<axis = 2>(h{k}, mm{k}, n{k})", f"a{k} = MatMul(f{k}, W{k})",
                  f"t{k} = Tanh(a{k})", f"b{k} = MatMul(g{k}, V{k})",
                  f"s{k} = Tanh(b{k})"]  # fmt: skip
        for new, old, same in (("h", "t", width == one), ("g", "s", pairs == two)):
            made = f"Add({old}{k}, {new}{k})" if same else f"Identity({old}{k})"
            lines.append(f"{new}{k + 1} = {made}")
        width, pairs = one, two
    drawn("O", width, D * N // 2)
    weights["decay"] = (1 + rng.uniform(size=(A, D * N // 2))) / 4
    lines += [f"o = MatMul(h{layers}, O)", "far = Squeeze(re, xyz)", "fall = MatMul(far, decay)",
              "less = Neg(fall)", "envelope = Exp(less)", "oe = Mul(o, envelope)"]  # fmt: skip
    lines += ["split = Reshape(oe, orbitals)",
              "M = Transpose<perm = [0, 1, 3, 2, 4]>(split)", "dets = Det(M)",
              "spin = Gather<axis = 1>(dets, up)", "other = Gather<axis = 1>(dets, down)",
              "both = Mul(spin, other)", "total = ReduceSum<keepdims = 0>(both, xyz)",
              "size = Abs(total)", "y = Log(size)"] if determinants else [
              "waves = Sin(oe)", "y = ReduceSum<keepdims = 0>(waves, both_axes)"]  # fmt: skip
    graph = onnx.parser.parse_graph(
        f"electrons ({real}[n, {N}, 3] x) => ({real}[n] y) {{ {'  '.join(lines)} }}")  # fmt: skip
    arrays = {name: value.astype(dtype) for name, value in {**weights, **held}.items()}
    arrays |= {name: np.array(value, np.int64) for name, value in integers.items()}
    graph.initializer.extend(numpy_helper.from_array(value, name)
                             for name, value in arrays.items())  # fmt: skip
    proto = h.make_model(graph, opset_imports=[h.make_opsetid("", 21)], ir_version=10)
    return oj.load(proto), arrays
