"""The way of a product follows from counted work alone: the same products give the same bits."""

import cProfile
import hashlib
import pickle
import threading
from functools import partial
from itertools import pairwise
from operator import matmul

import numpy as np
import pytest
from numpy.testing import assert_allclose
from onnx import numpy_helper
from onnx.parser import parse_model

import onnxjac as oj
from house import ROOT
from onnxjac.jacobians import Dag, Dense, Edge
from onnxjac.modes.linear.elimination import adaptive
from onnxjac.modes.linear.elimination.adaptive import FACTOR, FIRST, Adaptive
from onnxjac.modes.linear.elimination.cost import RECORDING
from onnxjac.modes.linear.products import compiled

RNG = np.random.default_rng(3)


def chain(sizes=(5, 4, 3)):
    """A chain of dense matrices."""
    pairs = enumerate(pairwise(sizes))
    edges = [Edge(i, i + 1, Dense(RNG.standard_normal((m, n)))) for i, (n, m) in pairs]
    return Dag(tuple((n,) for n in sizes), edges, (0,), (len(sizes) - 1,), np.dtype(float))


@pytest.fixture
def plans(monkeypatch):
    """The numbers of products for which plans are made; all of them repay."""
    asked, made = [], adaptive.planned
    monkeypatch.setattr(adaptive, "repays_decision", lambda dag, count: True)
    noted = lambda dag, count: asked.append(count) or made(dag, count)  # noqa: E731
    monkeypatch.setattr(adaptive, "planned", noted)
    return asked


def test_a_product_is_recorded_once_the_counted_work_repays_it(inside):
    dag, v = chain(), np.ones(5)
    J, expected = Adaptive(dag), dag @ v
    while () not in inside.programs(J):
        assert J.work[()] < 1.1 * RECORDING * len(dag.edges)
        assert "until the counted work" in J.choice
        assert_allclose(J @ v, expected, rtol=1e-13)
    assert J.work[()] >= RECORDING * len(dag.edges)
    assert "compiled: products by numpy" in J.choice
    assert_allclose(J @ v, expected, rtol=1e-13)


@pytest.mark.usefixtures("plans")
def test_a_plan_is_considered_at_fixed_counts(plans):
    J = Adaptive(chain())
    for _ in range(FIRST * FACTOR + 1):
        J @ np.ones(5)
    assert plans == [adaptive.AHEAD * FIRST, adaptive.AHEAD * FIRST * FACTOR]


def test_columns_count_as_products(plans):
    J, V = Adaptive(chain()), np.ones((5, 4))
    for _ in range(3):
        J @ V
    assert plans == [adaptive.AHEAD * FIRST]


def test_a_plan_replaces_the_programs_of_the_dag(plans, monkeypatch):
    monkeypatch.setattr(adaptive, "RECORDING", 0.0)
    J, v = Adaptive(chain((500, 400, 3))), np.ones(500)
    expected = J.dag @ v
    before = J @ v
    for _ in range(FIRST):
        J @ v
    assert plans
    assert len(J.structure.edges) == 1
    assert J.choice.endswith("of the plan")
    assert_allclose([before, J @ v], [expected, expected], rtol=1e-12)


def test_products_survive_a_failing_plan_or_recording(monkeypatch):
    def failing(*arguments):
        raise MemoryError

    monkeypatch.setattr(adaptive, "repays_decision", lambda dag, count: True)
    monkeypatch.setattr(adaptive, "planned", failing)
    monkeypatch.setattr(adaptive, "Compiled", failing)
    monkeypatch.setattr(adaptive, "RECORDING", 0.0)
    J, v = Adaptive(chain()), np.ones(5)
    products = [J @ v for _ in range(2 * FIRST)]
    assert_allclose(products, np.tile(J.dag @ v, (2 * FIRST, 1)))
    assert not any(np.shares_memory(products[0], y) for y in products[1:])


def test_a_program_is_looked_up_without_a_choice(monkeypatch, inside):
    monkeypatch.setattr(adaptive, "RECORDING", 0.0)
    J, v = Adaptive(chain()), np.ones(5)
    J @ v
    inside.forbid_programs(J)
    count = J.count
    J @ v
    assert J.count == count + 1


@pytest.mark.parametrize("v", [np.ones(10)[::2], np.ones(5, np.float32), np.ones(5, complex)])
def test_a_program_takes_vectors_of_its_own_type(monkeypatch, v, inside):
    monkeypatch.setattr(adaptive, "RECORDING", 0.0)
    J = Adaptive(chain())
    J @ np.ones(5)
    assert inside.programs(J)
    assert_allclose(J @ v, J.dag @ np.ones(5))


def test_numbers_of_another_type_take_the_dag(monkeypatch, inside):
    monkeypatch.setattr(adaptive, "RECORDING", 0.0)
    J = Adaptive(chain())
    J @ np.ones(5)
    inside.programs(J)[()] = None
    y = J._apply(adaptive.numbers, np.ones(5, np.longdouble))
    assert_allclose(y.astype(float), J.dag @ np.ones(5))


def test_programs_have_a_limit(monkeypatch, inside):
    monkeypatch.setattr(adaptive, "RECORDING", 0.0)
    J = Adaptive(chain())
    for k in range(1, 2 * compiled.CACHED_PROGRAMS):
        V = RNG.standard_normal((5, k))
        assert_allclose(J @ V, J.dag @ V, rtol=1e-12)
    assert len(inside.programs(J)) == compiled.CACHED_PROGRAMS
    J @ np.ones(5)
    assert () in inside.programs(J)


def test_a_pickle_leaves_programs_behind(monkeypatch, inside):
    monkeypatch.setattr(adaptive, "RECORDING", 0.0)
    J, v = Adaptive(chain()), np.ones(5)
    expected = J @ v
    there = pickle.loads(pickle.dumps(J))
    assert not inside.programs(there)
    assert_allclose(there @ v, expected)


def test_threads_share_a_program(monkeypatch):
    monkeypatch.setattr(adaptive, "RECORDING", 0.0)
    made, program = [], compiled.Compiled.program
    noted = lambda C, *key: made.append(key) or program(C, *key)  # noqa: E731
    monkeypatch.setattr(compiled.Compiled, "program", noted)
    J, v, found = Adaptive(chain()), np.ones(5), []
    threads = [threading.Thread(target=lambda: found.append(J @ v)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert_allclose(found, np.tile(J.dag @ v, (8, 1)))


def test_the_same_products_give_the_same_bits():
    """Six hundred products at one point and ten at each of ten others, by the model loaded anew."""
    def bits():
        J = oj.linearize(oj.load(MODEL), {"image": IMAGES[:1]}, of="logits", wrt="image")
        v, found = np.linspace(-1, 1, J.shape[1], dtype=np.float32), hashlib.sha256()
        for _ in range(600):
            found.update((J @ v).tobytes())
        for k in range(len(IMAGES)):
            J = J.relinearize({"image": IMAGES[k : k + 1]})
            for _ in range(10):
                found.update((J @ v).tobytes())
        found.update(str(J.explain()).encode())
        return found.hexdigest()

    assert bits() == bits()


MODEL = ROOT / "notebooks" / "models" / "digits.onnx"
IMAGES = np.load(ROOT / "notebooks" / "models" / "digits_samples.npz")["image"]


# -- products that are noted and replayed ----------------------------------------------------------


def network(kind, layers):
    """J of a chain of small layers: dense, residual, with branches by the point, or in parallel."""
    step = {
        "dense": "m{k} = MatMul(a{k}, w) s{k} = Add(m{k}, b) a{n} = Tanh(s{k})",
        "residual": "m{k} = MatMul(a{k}, w) t{k} = Tanh(m{k}) r{k} = Mul(t{k}, m{k}) "
                    "a{n} = Add(a{k}, r{k})",
        "branches": "r{k} = ReduceSum<keepdims=0>(a{k}) c{k} = Greater(r{k}, zero) "
                    "m{k} = MatMul(a{k}, w) a{n} = If(c{k}) <"
                    "then_branch = t{k} () => (tt{k}) {{ tt{k} = Tanh(m{k}) }}, "
                    "else_branch = e{k} () => (ee{k}) {{ ee{k} = Sin(m{k}) }}>",
        "parallel": "m{k} = MatMul(x, w) t{k} = Tanh(m{k}) a{n} = Add(a{k}, t{k})",
        "split": "p{k}, q{k} = Split<axis=1, num_outputs=2>(a{k}) s{k} = Sin(p{k}) "
                 "j{k} = Concat<axis=1>(s{k}, q{k}) a{n} = MatMul(j{k}, w)",
    }[kind]  # fmt: skip
    body = " ".join(step.format(k=k, n=k + 1) for k in range(layers))
    proto = parse_model(f"""<ir_version: 10, opset_import: ["": 21]>
        g (float[1,8] x) => (float[1,8] y)
        <float[8] b = {{1,2,3,4,5,6,7,8}}, float zero = {{0}}>
        {{ a0 = Identity(x) {body} y = Identity(a{layers}) }}""")
    w = np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32) / 3
    proto.graph.initializer.append(numpy_helper.from_array(w, "w"))
    return oj.linearize(oj.load(proto), {"x": np.linspace(-1, 1, 8, dtype=np.float32)[None]})


def calls(task):
    """The number of calls of Python's functions, and the result."""
    profile = cProfile.Profile()
    y = profile.runcall(task)
    return sum(e.callcount for e in profile.getstats() if not isinstance(e.code, str)), y


@pytest.mark.parametrize("layers", [20, 100])
@pytest.mark.parametrize("kind", ["dense", "residual", "branches", "parallel", "split"])
def test_the_second_to_thirtieth_product_make_few_calls(kind, layers):
    """At most four of Python's for each operator, with the same bits as a sweep."""
    J, rng = network(kind, layers), np.random.default_rng(1)
    for A in (J, J.T):
        A @ np.ones(8, np.float32)
        for _ in range(2, 31):
            v = rng.standard_normal(8).astype(np.float32)
            made, y = calls(partial(matmul, A, v))
            assert made <= 4 * len(J.dag.edges) + 60
            assert np.array_equal(y, A.dag._apply(adaptive.numbers, v).ravel())
            y[...] = np.nan  # the caller's own


class Peeking(Dense):
    """A matrix whose product looks at the entries of v."""

    def _apply(self, op, v):
        return super()._apply(op, np.asarray(v) if np.any(v) else v)


class Bypassing(Dense):
    """A matrix whose product is not made of calls of the vocabulary."""

    def _apply(self, op, v):
        return v @ self.a.T


@pytest.mark.parametrize("kind", [Peeking, Bypassing])
def test_operators_of_others_are_not_replayed(kind):
    edges = [Edge(k, k + 1, kind(RNG.standard_normal((3, 3)))) for k in range(3)]
    J = Adaptive(Dag(((3,),) * 4, edges, (0,), (3,), np.dtype(float)))
    for _ in range(4):
        v = RNG.standard_normal(3)
        assert_allclose(J @ v, np.linalg.multi_dot([e.operator.a for e in edges[::-1]]) @ v)


def test_threads_replay_their_own_vectors():
    J, found = network("residual", 20), {}
    vectors = RNG.standard_normal((8, 8)).astype(np.float32)
    threads = [threading.Thread(target=lambda k=k: found.update({k: J @ vectors[k]}))
               for k in range(8)]  # fmt: skip
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for k, y in found.items():
        assert np.array_equal(y, J.dag._apply(adaptive.numbers, vectors[k]).ravel())
