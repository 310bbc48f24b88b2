"""Models with sparse Jacobians: a stencil, written in two ways, and finite elements."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def model(nodes, constants, shape, *, name="u", dtype=TensorProto.DOUBLE):
    """A model from one tensor `u` to one `f` of the same shape."""
    ends = [helper.make_tensor_value_info(n, dtype, shape) for n in (name, "f")]
    held = [numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items()]
    graph = helper.make_graph([helper.make_node(*n[:3], **dict(n[3:])) for n in nodes],
                              "model", ends[:1], ends[1:], held)  # fmt: skip
    opsets = [helper.make_opsetid("", 21)]
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10)


REACTION = [("Sub", ["one", "u"], ["v"]), ("Mul", ["u", "v"], ["r"]),
            ("Add", ["laplacian", "r"], ["f"])]  # fmt: skip
"""f = Δu + u (1 - u)"""


def stencil_by_slices(n):
    """Reaction and diffusion on an n×n grid, with neighbours as slices of the padded grid."""
    constants = {"one": 1.0, "pads": [1, 1, 1, 1], "zero": 0.0, "axes": [0, 1], "minus4": -4.0}
    nodes = [("Pad", ["u", "pads", "zero"], ["wide"])]
    for k, (i, j) in enumerate(((0, 1), (2, 1), (1, 0), (1, 2))):
        constants |= {f"start{k}": [i, j], f"end{k}": [i + n, j + n]}
        nodes.append(("Slice", ["wide", f"start{k}", f"end{k}", "axes"], [f"u{k}"]))
    nodes += [("Sum", ["u0", "u1", "u2", "u3"], ["around"]), ("Mul", ["u", "minus4"], ["centre"]),
              ("Add", ["around", "centre"], ["laplacian"])]  # fmt: skip
    return model(nodes + REACTION, constants, (n, n))


def stencil_by_convolution(n):
    """Reaction and diffusion with a 3×3 convolution, whose corners are zero."""
    kernel = np.array([[[[0.0, 1, 0], [1, -4, 1], [0, 1, 0]]]])
    constants = {"one": 1.0, "image": [1, 1, n, n], "grid": [n, n], "kernel": kernel}
    nodes = [("Reshape", ["u", "image"], ["x"]),
             ("Conv", ["x", "kernel"], ["y"], ("pads", [1, 1, 1, 1])),
             ("Reshape", ["y", "grid"], ["laplacian"])]  # fmt: skip
    return model(nodes + REACTION, constants, (n, n))


def finite_elements(n):
    """-∇·(k(u) ∇u) with linear triangles on n×n nodes, k the mean of u² over the corners."""
    at = np.arange(n * n).reshape(n, n)
    a, b, c, d = (at[i : n - 1 + i, j : n - 1 + j].ravel() for i, j in np.ndindex(2, 2))
    corners = np.concatenate([np.stack([a, b, c], 1), np.stack([d, c, b], 1)])
    stiffness = np.array([[1, -0.5, -0.5], [-0.5, 0.5, 0], [-0.5, 0, 0.5]])
    constants = {"corners": corners, "stiffness": stiffness, "rows": corners.reshape(-1, 1),
                 "none": np.zeros(n * n), "one": [1], "flat": [-1]}  # fmt: skip
    nodes = [("Gather", ["u", "corners"], ["ue"]), ("MatMul", ["ue", "stiffness"], ["flow"]),
             ("Mul", ["ue", "ue"], ["square"]),
             ("ReduceMean", ["square", "one"], ["k"], ("keepdims", 1)),
             ("Mul", ["k", "flow"], ["re"]), ("Reshape", ["re", "flat"], ["updates"]),
             ("ScatterND", ["none", "rows", "updates"], ["f"], ("reduction", "add"))]  # fmt: skip
    return model(nodes, constants, (n * n,))


def largest_neighbour(n):
    """The maximum of each pair, twice; its position depends on the point."""
    nodes = [("MaxPool", ["u"], ["top"], ("kernel_shape", [2]), ("strides", [2])),
             ("Concat", ["top", "top"], ["f"], ("axis", 2))]  # fmt: skip
    return model(nodes, {}, (1, 1, n))
