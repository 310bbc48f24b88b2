"""Gradient nodes nested with loops, branches, functions and sequences, against PyTorch.

A program is a word of wrappers around sin² u. Each wrapper is written in ONNX and in PyTorch.
"""

import itertools

import numpy as np
import onnx
import pytest
from onnx import parser

import onnxjac as oj

torch = pytest.importorskip("torch")
ort = pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.peers

HEAD = '<ir_version: 10, opset_import: ["": 21, "me": 1, "ai.onnx.preview.training": 1]>\n'
IMPORTS = '<domain: "me", opset_import: ["": 21, "me": 1, "ai.onnx.preview.training": 1]>\n'


class Program:
    """r = f(a) on vectors of three numbers, as text and as a function of tensors; p is a bool."""

    def __init__(self, word):
        self.count, self.functions, self.word = itertools.count(), [], word
        self.text = self.wrapped(word, "x", "y")

    def name(self, stem):
        return f"{stem}{next(self.count)}"

    def wrapped(self, word, a, r):
        """Nodes that compute r from a."""
        if not word:
            s = self.name("s")
            return f"{s} = Sin({a}) {r} = Mul({s}, {s})"
        return getattr(self, word[0])(word[1:], a, r)

    def gradient(self, word, a, r):
        h, q = self.name("h"), self.name("q")
        inner = self.wrapped(word, a, h)  # p is read where a branch is inside
        zs, given = (', zs=["p"]', ", p") if "branch" in word else ("", "")
        node = f'ai.onnx.preview.training.Gradient<xs=["{a}"]{zs}, y="{h}">({a}{given})'
        return f"{inner} {q} = {node} {r} = Identity({q})"

    def loop(self, word, a, r):
        i, k, k2, u, u2, n, t = map(self.name, ("i", "k", "kk", "u", "v", "n", "t"))
        inner = self.wrapped(word, u, u2)
        return f"""{n} = Constant<value_int=2>() {t} = Constant<value = bool {{1}}>()
            {r} = Loop({n}, {t}, {a}) <body = b{i} (int64 {i}, bool {k}, double[3] {u})
            => (bool {k2}, double[3] {u2}) {{ {k2} = Identity({k}) {inner} }}>"""

    def rows(self, word, a, r):
        """The sum of the rows that a loop stacks, times weights of a known size."""
        i, k, k2, u, u2, n, t, w, o, m, z, c = map(self.name, tuple("ikluvntwomzc"))
        return f"""{n} = Constant<value_int=2>() {t} = Constant<value = bool {{1}}>()
            {m}, {o} = Loop({n}, {t}, {a}) <body = b{i} (int64 {i}, bool {k}, double[3] {u})
            => (bool {k2}, double[3] {u2}, double[3] {w}) {{ {k2} = Identity({k})
            {self.wrapped(word, u, u2)} {w} = Mul({u}, {u2}) }}>
            {c} = Constant<value = double[2,1] {{0.5, -1.5}}>() {z} = Mul({o}, {c})
            {i}_0 = Constant<value_ints=[0]>() {r} = ReduceSum<keepdims=0>({z}, {i}_0)"""

    def branch(self, word, a, r):
        g, e = self.name("g"), self.name("e")
        return f"""{r} = If(p) <then_branch = t{g} () => (double[3] {g}) {{
            {self.wrapped(word, a, g)} }}, else_branch = e{e} () => (double[3] {e}) {{
            {e} = Cos({a}) }}>"""

    def function(self, word, a, r):
        f, u, v = map(self.name, ("f", "u", "v"))
        self.functions.append(f"{IMPORTS}{f} ({u}, p) => ({v}) {{ {self.wrapped(word, u, v)} }}")
        return f"{r} = me.{f}({a}, p)"

    def sequence(self, word, a, r):
        """A loop appends f to a sequence that began with its argument, which is summed."""
        i, k, k2, u, u2, n, t, s, q, o, m, z = map(self.name, tuple("ikluvntsqomz"))
        return f"""{n} = Constant<value_int=2>() {t} = Constant<value = bool {{1}}>()
            {s} = SequenceConstruct({a})
            {m}, {o} = Loop({n}, {t}, {a}, {s}) <body = b{i} (int64 {i}, bool {k}, double[3] {u},
            seq(double[3]) {q}) => (bool {k2}, double[3] {u2}, seq(double[3]) {z})
            {{ {k2} = Identity({k}) {self.wrapped(word, u, u2)} {z} = SequenceInsert({q}, {u2}) }}>
            {i}_1 = ConcatFromSequence<axis=0, new_axis=1>({o})
            {i}_0 = Constant<value_ints=[0]>() {r} = ReduceSum<keepdims=0>({i}_1, {i}_0)"""

    def model(self):
        graph = f"g (double[3] x, bool p) => (double[3] y) {{ {self.text} }}\n"
        return parser.parse_model(HEAD + graph + "\n".join(self.functions))


def there(word, p):
    """The program as a function of tensors."""
    if not word:
        return lambda u: torch.sin(u) ** 2
    kind, f = word[0], there(word[1:], p)

    def gradient(x):
        with torch.enable_grad():
            u = x if x.requires_grad else x.clone().requires_grad_()
            y = f(u).sum()
            (d,) = torch.autograd.grad(y, u, create_graph=True, allow_unused=True)
        return torch.zeros_like(x) if d is None else d

    def turns(x):
        states = [x]
        for _ in range(2):
            states.append(f(states[-1]))
        return states

    def rows(x):
        (a, b, c) = turns(x)
        return 0.5 * a * b - 1.5 * b * c

    made = {"gradient": gradient, "loop": lambda x: turns(x)[-1], "rows": rows, "function": f,
            "branch": f if p else torch.cos, "sequence": lambda x: sum(turns(x))}  # fmt: skip
    return made[kind]


KINDS = ("loop", "rows", "branch", "function", "sequence", "gradient")
WORDS = [
    word for n in (2, 3, 4, 5) for word in itertools.product(KINDS, repeat=n)
    if word[0] == "gradient" and len(set(word)) >= len(word) - 1 and word.count("gradient") <= 3
]  # fmt: skip
ORDERS = [("gradient",) * n + around for n in (2, 3) for around in (
    ("loop", "function"), ("branch", "function", "loop"), ("sequence", "function"),
    ("function", "rows"), ("loop", "gradient", "loop"), ("loop", "gradient", "rows"))
    if n + around.count("gradient") <= 3]  # fmt: skip
CASES = [*ORDERS, *WORDS]


@pytest.mark.sampled(0.04)
@pytest.mark.parametrize("word", CASES, ids="-".join)
def test_nested_gradients_are_those_of_torch(word):
    proto = Program(word).model()
    lowered = oj.lower_gradients(proto)
    onnx.checker.check_model(lowered, full_check=True)
    session = ort.InferenceSession(lowered.SerializeToString(), providers=["CPUExecutionProvider"])
    for seed, p in enumerate((True, False) if "branch" in word else (True,)):
        x = np.random.default_rng(seed).uniform(0.2, 0.8, 3)
        given = {"x": x, "p": np.array(p)}
        names = [v.name for v in session.get_inputs()]
        (found,) = session.run(None, {n: given[n] for n in names})
        right = there(word, p)(torch.tensor(x, requires_grad=True)).detach().numpy()
        np.testing.assert_allclose(found, right, rtol=1e-9, atol=1e-9 * abs(right).max())
