"""Random small models: nodes that move, join, multiply and add tensors with several uses."""

import numpy as np
from onnx import helper, numpy_helper

SHAPES = [(2, 3), (3, 2), (2, 2, 3), (1, 2, 3), (4, 3), (2, 2), (3, 3)]
STEPS = 9


class Model:
    """A model under construction; `shapes` has every tensor on a differentiable path."""

    def __init__(self, seed, dtype):
        self.rng, self.dtype = np.random.default_rng(seed), np.dtype(dtype)
        self.nodes, self.constants, self.steps = [], [], []
        self.point = {name: self.draw(self.pick(SHAPES)) for name in ("x", "z")}
        self.shapes = {name: value.shape for name, value in self.point.items()}
        while len(self.steps) < STEPS:
            name = self.any()
            self.pick(ALL)(self, name, self.shapes[name])

    def draw(self, shape):
        return self.rng.standard_normal(shape).astype(self.dtype)

    def pick(self, options):
        return options[int(self.rng.integers(len(options)))]

    def any(self, fits=lambda shape: True):
        """A tensor that fits, more likely a late one."""
        names = [name for name, shape in self.shapes.items() if fits(shape)]
        return names[int(len(names) * self.rng.random() ** 0.6)]

    def constant(self, array, name=None):
        name = name or f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def weight(self, *shape):
        name = self.constant(self.draw(shape), f"w{len(self.constants)}")
        self.shapes[name] = shape
        return name

    def add(self, op_type, inputs, *shapes, **attributes):
        outputs = [f"t{len(self.steps) + k}" for k in range(len(shapes))]
        self.steps += outputs
        self.shapes.update(zip(outputs, shapes, strict=True))
        self.nodes.append(helper.make_node(op_type, inputs, outputs, **attributes))

    def proto(self):
        read = {name for node in self.nodes for name in node.input}
        ends = self.point, [name for name in self.steps if name not in read]
        kind = helper.np_dtype_to_tensor_dtype(self.dtype)
        told = ([helper.make_tensor_value_info(name, kind, self.shapes[name]) for name in side]
                for side in ends)  # fmt: skip
        graph = helper.make_graph(self.nodes, "random", *told, self.constants)
        opsets = [helper.make_opsetid("", 21)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)

    def ends(self):
        """(of, wrt): random tensors, possibly ancestors of each other, or in both lists."""
        of = [self.steps[-1], *self.rng.choice(self.steps, self.rng.integers(0, 4)).tolist()]
        wrt = ["x", *self.rng.choice([*self.shapes], self.rng.integers(1, 4)).tolist()]
        if self.rng.random() < 0.2:
            of.append(wrt[-1])
        return tuple(dict.fromkeys(of)), tuple(dict.fromkeys(wrt))


def map_entries(model, x, shape):
    model.add(model.pick(["Tanh", "Sin", "Sigmoid", "Neg", "Identity"]), [x], shape)


def combine(model, x, shape):
    other = model.any(lambda s: s == shape[len(shape) - len(s) :])
    inputs = [x, other] if model.rng.random() < 0.5 else [other, x]
    model.add(model.pick(["Add", "Add", "Sub", "Mul"]), inputs, shape)


def weigh(model, x, shape):
    m = model.pick([1, 2, 3])
    model.add("MatMul", [x, model.weight(shape[-1], m)], (*shape[:-1], m))


def turn(model, x, shape):
    perm = model.rng.permutation(len(shape)).tolist()
    model.add("Transpose", [x], tuple(shape[k] for k in perm), perm=perm)


def reshape(model, x, shape):
    alike = [s for s in SHAPES if np.prod(s) == np.prod(shape)]
    new = model.pick([shape[::-1], (1, int(np.prod(shape))), (int(np.prod(shape)), 1), *alike])
    model.add("Reshape", [x, model.constant(np.array(new))], new)


def backwards(model, x, shape):
    cut = (model.constant(np.array([n])) for n in (-1, -100, model.pick(range(len(shape))), -1))
    model.add("Slice", [x, *cut], shape)


def join(model, x, shape):
    axis = model.pick(range(len(shape)))
    other = model.any(lambda s: len(s) == len(shape)
                      and s[:axis] + s[axis + 1 :] == shape[:axis] + shape[axis + 1 :])  # fmt: skip
    inputs = model.pick([[x, other], [other, x], [x, other, x]])
    length = sum(model.shapes[name][axis] for name in inputs)
    if length < 9:
        model.add("Concat", inputs, (*shape[:axis], length, *shape[axis + 1 :]), axis=axis)


def split(model, x, shape):
    axis = model.pick(range(len(shape)))
    if shape[axis] > 1:
        sizes = [1, shape[axis] - 1]
        parts = [(*shape[:axis], n, *shape[axis + 1 :]) for n in sizes]
        model.add("Split", [x, model.constant(np.array(sizes))], *parts, axis=axis)


def add_up(model, x, shape):
    axis = model.pick(range(len(shape)))
    kept = (*shape[:axis], 1, *shape[axis + 1 :])
    model.add(model.pick(["ReduceSum", "ReduceMean"]), [x, model.constant([axis])], kept)


def frame(model, x, shape):
    if np.prod(shape) < 30:
        pads = model.rng.integers(0, 2, (2, len(shape)))
        larger = tuple((pads.sum(axis=0) + shape).tolist())
        model.add("Pad", [x, model.constant(pads.ravel())], larger)


def gather(model, x, shape):
    axis = model.pick(range(len(shape)))
    index = model.rng.integers(0, shape[axis], 3)
    taken = (*shape[:axis], 3, *shape[axis + 1 :])
    model.add("Gather", [x, model.constant(index)], taken, axis=axis)


def gather_elements(model, x, shape):
    axis = model.pick(range(len(shape)))
    index = model.constant(model.rng.integers(0, shape[axis], shape))
    model.add("GatherElements", [x, index], shape, axis=axis)


def convolve(model, x, shape):
    if len(shape) == 3:
        m, k, pad = model.pick([1, 2, 3]), model.pick([1, 3]), model.pick([0, 1])
        if shape[2] + 2 * pad >= k:
            made = (shape[0], m, shape[2] + 2 * pad - k + 1)
            model.add("Conv", [x, model.weight(m, shape[1], k)], made, pads=[pad, pad])


def spread(model, x, shape):
    if len(shape) == 3 and shape[2] < 8:
        made = (shape[0], 2, shape[2] + 1)
        model.add("ConvTranspose", [x, model.weight(shape[1], 2, 2)], made)


def normalize(model, x, shape):
    model.add("Softmax", [x], shape, axis=model.pick(range(len(shape))))


def choose(model, x, shape):
    mask, other = model.constant(model.rng.random(shape) < 0.5), model.any(lambda s: s == shape)
    model.add("Where", [mask, x, other], shape)


def contract(model, x, shape):
    if len(shape) == 2:
        other = model.any(lambda s: len(s) == 2 and s[1] == shape[1])
        made = shape[0], model.shapes[other][0]
        model.add("Einsum", [x, other], made, equation="ij,kj->ik")


ALL = [map_entries, combine, combine, combine, weigh, turn, turn, reshape, backwards, join, split,
       add_up, frame, gather, gather_elements, convolve, spread, normalize, choose,
       contract]  # fmt: skip
