"""Inputs that once crashed or hung the process, each tried in a process of its own."""

import multiprocessing
import os
import socket
import string
import time
from itertools import combinations, pairwise

import numpy as np
import onnx
import pytest
from onnx import parser

import onnxjac as oj
from fuzz.builders import outside
from onnxjac.ops.numbers.pointwise import MATCHED_LETTERS, count_matches

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system does not fork")

SECONDS = 60


def apart(work, tries=3):
    """The result of a function, or the `OnnxJacError` that it raises, within a minute.

    A fork of a process with threads may find a library's lock held; then it is retried.
    """
    ours, theirs = multiprocessing.get_context("fork").Pipe()

    def tell():
        try:
            theirs.send(work())
        except oj.OnnxJacError as error:
            theirs.send(error)

    process = multiprocessing.get_context("fork").Process(target=tell)
    process.start()
    theirs.close()
    try:
        if ours.poll(SECONDS):
            return ours.recv()
        assert tries > 1, "it hangs"
    except EOFError:
        process.join()
        pytest.fail(f"the process ended with status {process.exitcode}")
    finally:
        process.kill()
        process.join()
    return apart(work, tries - 1)


def text(graph, opset=21):
    return parser.parse_model(f'<ir_version: 10, opset_import: ["": {opset}]> {graph}')


LEAST = {kind: np.iinfo(kind).min for kind in ("int8", "int16", "int32", "int64")}

DIVISIONS = {
    "inputs": "g ({0}[3] a, {0}[3] b) => ({0}[3] y) {{ y = Div(a, b) }}",
    "constant": "g ({0}[3] a) => ({0}[3] y) <{0}[3] b = {{-1, 3, -1}}> {{ y = Div(a, b) }}",
    "folded": "g () => ({0}[3] y) <{0}[3] a = {{{1}, 7, -8}}, {0}[3] b = {{-1, 3, -1}}>"
              "{{ y = Div(a, b) }}",
    "node": "g ({0}[3] a) => ({0}[3] y) {{ b = Constant<value = {0}[3] {{-1, 3, -1}}>()"
            "y = Div(a, b) }}",
    "loop": """g ({0}[3] a, {0}[3] b) => ({0}[3] y) <int64 n = {{1}}, bool c = {{1}}> {{
        y = Loop(n, c, a) <body = body (int64 i, bool go, {0}[3] s) => (bool on, {0}[3] t) {{
            on = Identity(go) t = Div(s, b) }}> }}""",
    "function": """g ({0}[3] a, {0}[3] b) => ({0}[3] y) {{ y = own.part(a, b) }}
        <opset_import: ["": 21], domain: "own"> part (p, q) => (r) {{ r = Div(p, q) }}""",
}  # fmt: skip


@pytest.mark.parametrize("engine", [None, "onnxruntime", "numpy"])
@pytest.mark.parametrize("kind", LEAST)
@pytest.mark.parametrize("where", DIVISIONS)
def test_the_least_integer_divided_by_minus_one(where, kind, engine):
    model = text(DIVISIONS[where].format(kind, LEAST[kind]))
    if where == "function":
        model.opset_import.add(domain="own", version=1)
    point = {"a": np.array([LEAST[kind], 7, -8], kind), "b": np.array([-1, 3, -1], kind)}
    point = {value.name: point[value.name] for value in model.graph.input}
    y = apart(lambda: oj.load(model).run(point, engine=engine)["y"])
    assert y.dtype == kind
    assert y.tolist() == [LEAST[kind], 2, 8]


def test_a_division_beside_a_derivative():
    """The Jacobian and its compiled product use separate sessions."""
    model = text("""g (float[3] x, int64[3] a, int64[3] b) => (float[3] y) {
        q = Div(a, b) f = Cast<to = 1>(q) y = Mul(x, f) }""")
    point = {"a": np.array([-(2**63), 7, -8]), "b": np.array([-1, 3, -1])}
    point["x"] = np.ones(3, np.float32)

    def work():
        J = oj.linearize(oj.load(model), point, wrt=["x"])
        return J.toarray(), J.relinearize(point).compile("onnxruntime") @ np.ones(3, np.float32)

    dense, product = apart(work)
    np.testing.assert_array_equal(np.diag(dense), np.float32([-2.0**63, 2, 8]))
    np.testing.assert_array_equal(product, np.float32([-2.0**63, 2, 8]))


@pytest.mark.parametrize("like", ["", "Like"])
@pytest.mark.parametrize(("draw", "match"), [
    ("RandomUniform{}<low = 2.0{}>", "low=2 and high=1"),
    ("RandomUniform{}<high = -1.0{}>", "low=0 and high=-1"),
    ("RandomNormal{}<scale = -1.0{}>", "scale=-1"),
    ("RandomNormal{}<scale = 0.0{}>", "scale=0"),
])  # fmt: skip
@pytest.mark.parametrize("where", ["graph", "branch"])
def test_a_draw_without_a_range_is_refused(draw, match, like, where):
    made = draw.format(like, "" if like else ", shape = [3]") + ("(x)" if like else "()")
    body = f"y = {made}"
    if where == "branch":
        body = f"""c = Constant<value = bool {{1}}>() y = If(c) <
            then_branch = p () => (float[3] t) {{ t = {made} }},
            else_branch = q () => (float[3] e) {{ e = Neg(x) }}>"""
    model = text(f"g (float[3] x) => (float[3] y) {{ {body} }}")
    x = np.ones(3, np.float32)
    error = apart(lambda: oj.load(model).run({"x": x}, engine="onnxruntime"))
    assert isinstance(error, oj.LoadError)
    assert match in str(error)


@pytest.mark.parametrize("number", ["low", "high", "scale"])
def test_a_draw_of_a_range_that_is_no_number(number):
    operator = "RandomNormal" if number == "scale" else "RandomUniform"
    model = text(f"g () => (float[3] y) {{ y = {operator}<{number} = 1.0, shape = [3]>() }}")
    attribute = next(a for a in model.graph.node[0].attribute if a.name == number)
    attribute.f = np.nan
    assert isinstance(apart(lambda: oj.load(model).run({})), oj.LoadError)


def socket_at(path):
    socket.socket(socket.AF_UNIX).bind(str(path))


def link_to_pipe(path):
    os.mkfifo(f"{path}.pipe")
    path.symlink_to(f"{path}.pipe")


NO_FILES = {"pipe": os.mkfifo, "link to a pipe": link_to_pipe, "folder": os.mkdir,
            "socket": socket_at, "device": lambda path: path.symlink_to("/dev/zero")}  # fmt: skip


@pytest.mark.parametrize("mmap", [False, True])
@pytest.mark.parametrize("kind", ["initializer", "constant", "branch", "function"])
@pytest.mark.parametrize("what", NO_FILES)
def test_external_data_that_is_no_file(what, kind, mmap, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the name of a socket must be short
    NO_FILES[what]((tmp_path / "data").relative_to(tmp_path))
    onnx.save(outside("data", kind), tmp_path / "m.onnx")
    error = apart(lambda: oj.load(tmp_path / "m.onnx", mmap=mmap))
    assert isinstance(error, oj.LoadError)
    assert "is no regular file" in str(error)


def matches(pattern, texts, engine):
    made = f'RegexFullMatch<pattern = "{pattern}">(s)'
    model = text(f"g (string[N] s) => (bool[N] y) {{ y = {made} }}")
    return apart(lambda: oj.load(model).run({"s": np.array(texts, object)}, engine=engine)["y"])


@pytest.mark.parametrize("pattern", [
    "(a|a)*b", "(a*)*b", "(a+)+b", "(a|aa)+b", "(.*a){12}b", "a*a*a*a*a*a*a*b", "((a?){9}){9}b",
    "(?:a|a)*b", "(?P<n>a|a)*b", "([a-z]*)*b",
])  # fmt: skip
def test_a_pattern_of_exponentially_many_ways(pattern):
    error = matches(pattern, ["a" * 60], "numpy")
    assert isinstance(error, oj.OnnxJacError)
    assert "too many ways" in str(error)


@pytest.mark.parametrize("pattern", [
    "(" * 5000 + "a" + ")" * 5000, "(?:" * 5000 + "a" + ")" * 5000, "(a", "a)", "[a", "*a",
])  # fmt: skip
def test_a_pattern_that_is_too_deep_or_broken(pattern):
    error = matches(pattern, ["a"], "numpy")
    assert isinstance(error, oj.OnnxJacError)
    assert "cannot be read" in str(error)
    assert len(str(error)) < 500


@pytest.mark.parametrize("pattern", [
    r"[a-z0-9]+@[a-z]+[.](com|org)", "(ab)*", "a{2,3}b?", "[]a]*", "([(]a|b)?[)]?", "x|yz", "",
    ".*-.*-.*", "(?i)AB*",
])  # fmt: skip
def test_a_pattern_that_is_matched(pattern):
    texts = ["me9@there.org", "abab", "aab", "]a]", "x", "yz", "", "a-b-c-", "aBb", "no"]
    expected = matches(pattern, texts, "onnxruntime")
    np.testing.assert_array_equal(matches(pattern, texts, "numpy"), expected)


def test_ways_are_at_least_as_many_as_there_are():
    assert count_matches("(a|b)(c|d|e)?x{2,4}", 10) >= 2 * 4 * 3
    assert count_matches("(a|a)*", 5) >= 2**5
    assert count_matches("(((a|b)*)*)*", 1000) > MATCHED_LETTERS


def chain(operands, out=""):
    """The full sum over a chain of 2×2 matrices."""
    labels = string.ascii_letters
    terms = ",".join(labels[k % 52] + labels[(k + 1) % 52] for k in range(operands))
    names = [f"x{k}" for k in range(operands)]
    inputs = ", ".join(f"float[2,2] {name}" for name in names)
    model = text(f"""g ({inputs}) => (float y) {{
        y = Einsum<equation = "{terms}->{out}">({", ".join(names)}) }}""")
    return model, {name: np.eye(2, dtype=np.float32) for name in names}


@pytest.mark.parametrize("engine", [None, "numpy"])
@pytest.mark.parametrize("operands", [5, 9, 20, 31, 47])
def test_an_einsum_of_many_operands(operands, engine):
    model, point = chain(operands)

    def work():
        J = oj.linearize(oj.load(model), point, engine=engine)
        return J.primal["y"], J @ np.ones(J.shape[1], J.dtype), (J.T @ np.ones(1, J.dtype)).sum(), (
            J.compile("numpy") @ np.ones(J.shape[1], J.dtype))  # fmt: skip

    y, forward, back, compiled = apart(work)
    assert y == 2
    assert forward == back == compiled == 4 * operands  # each matrix of ones gives 1ᵀ 1 = 4


def test_an_einsum_of_as_many_labels_as_there_are():
    model, point = chain(60)
    assert apart(lambda: oj.load(model).run(point, engine="numpy")["y"]) == 2
    error = apart(lambda: oj.linearize(oj.load(model), point))
    assert isinstance(error, oj.UnsupportedOp)
    assert "52 labels" in str(error)


def test_entries_of_an_einsum_of_many_labels():
    model, point = chain(40)
    matrix = apart(lambda: oj.linearize(oj.load(model), point).tosparse())
    assert (matrix.nnz, matrix.sum()) == (160, 160)


def outer(vectors):
    """Vectors times a tensor of each pair of labels: 2**vectors numbers from left to right."""
    labels = string.ascii_letters[:vectors]
    equation = ",".join([*labels, *(a + b for a, b in pairwise(labels))])
    shapes = ["float[2]"] * vectors + ["float[2,2]"] * (vectors - 1)
    names = [f"x{k}" for k in range(len(shapes))]
    inputs = ", ".join(map(" ".join, zip(shapes, names, strict=True)))
    model = text(f"""g ({inputs}) => (float y) {{
        y = Einsum<equation = "{equation}->">({", ".join(names)}) }}""")
    one = np.eye(2, dtype=np.float32)
    return model, {name: one if k >= vectors else one[0] for k, name in enumerate(names)}


def test_an_einsum_that_grows_from_left_to_right():
    """NumPy contracts in another order; ONNX Runtime would exhaust the memory."""
    model, point = outer(30)
    small = oj.Limits(bytes=2**20)
    assert apart(lambda: oj.load(model, limits=small).run(point)["y"]) == 1
    error = apart(lambda: oj.load(model, limits=small).run(point, engine="onnxruntime"))
    assert "from left to right" in str(error)


def test_an_einsum_whose_products_are_too_large_in_any_order():
    """All pairs of eleven labels, so that any order has a huge intermediate product."""
    pairs = [a + b for a, b in combinations("abcdefghijk", 2)]
    inputs = ", ".join(f"float[16,16] x{k}" for k in range(len(pairs)))
    names = ", ".join(f"x{k}" for k in range(len(pairs)))
    model = text(f"""g ({inputs}) => (float y) {{
        y = Einsum<equation = "{",".join(pairs)}->">({names}) }}""")
    point = {f"x{k}": np.ones((16, 16), np.float32) for k in range(len(pairs))}
    error = apart(lambda: oj.load(model, limits=oj.Limits(bytes=2**20)).run(point))
    assert isinstance(error, oj.LimitError)


def length_of(n):
    """A length as protobuf writes it."""
    return bytes([n]) if n < 128 else bytes([n & 127 | 128]) + length_of(n >> 7)


def message(number, *parts):
    """A field that holds a message."""
    data = b"".join(parts)
    return length_of(number << 3 | 2) + length_of(len(data)) + data


HEAD = onnx.ModelProto(ir_version=10, opset_import=[onnx.helper.make_opsetid("", 21)])
MANY = 10**6
EMPTY = {
    "nodes": message(7, message(1) * MANY),
    "nodes in a branch": message(7, message(1, message(5, message(6, message(1) * MANY)))),
    "nodes of a function": message(25, message(7) * MANY),
    "nodes behind a group": message(7, b"\x9b\x06\x9c\x06", message(1) * MANY),
    "graphs with nodes": message(7, message(1)) * (MANY // 4),
    "initializers": message(7, message(5) * MANY),
    "types": message(7, message(13) * MANY),
    "names of inputs": message(7, message(1, message(1) * MANY)),
    "attributes": message(7, message(1, message(5) * MANY)),
    "functions": message(25) * MANY,
    "metadata": message(14) * MANY,
}


@pytest.mark.parametrize("source", ["bytes", "file"])
@pytest.mark.parametrize("what", EMPTY)
def test_a_million_empty_parts_reach_the_limit_early(what, source, tmp_path):
    """Each part takes two bytes in the file, but would take a thousand in memory."""
    data = HEAD.SerializeToString() + EMPTY[what]
    path = tmp_path / "m.onnx"
    path.write_bytes(data)

    def work():
        begin = time.process_time()
        try:
            oj.load(data if source == "bytes" else path, limits=oj.Limits(nodes=20_000))
        except oj.LimitError as error:
            return str(error), time.process_time() - begin

    text, seconds = apart(work)
    assert "20,000 nodes" in text
    assert seconds < 10


def test_nodes_of_a_model_that_is_parsed_are_counted_before_they_are_copied():
    model = onnx.ModelProto.FromString(HEAD.SerializeToString() + EMPTY["nodes"])
    error = apart(lambda: oj.load(model, limits=oj.Limits(nodes=20_000)))
    assert isinstance(error, oj.LimitError)
