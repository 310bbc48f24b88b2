"""The way of a product follows from counted work alone: the same products give the same bits."""

import hashlib
import pickle
import threading
from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_allclose

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


def test_a_product_is_recorded_once_the_counted_work_repays_it():
    dag, v = chain(), np.ones(5)
    J, expected = Adaptive(dag), dag @ v
    while () not in J._programs:
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
    J, v = Adaptive(chain((50, 40, 3))), np.ones(50)
    expected = J.dag @ v
    before = J @ v
    for _ in range(FIRST):
        J @ v
    assert plans
    assert len(J.structure.edges) == 1
    assert J.choice.endswith("of the plan")
    assert_allclose([before, J @ v], [expected, expected], rtol=1e-12)


def test_what_cannot_be_planned_or_recorded_goes_on_by_the_dag(monkeypatch):
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


def test_a_program_is_looked_up_without_a_choice(monkeypatch):
    monkeypatch.setattr(adaptive, "RECORDING", 0.0)
    J, v = Adaptive(chain()), np.ones(5)
    J @ v
    monkeypatch.setattr(J, "_program", None)
    count = J.count
    J @ v
    assert J.count == count + 1


@pytest.mark.parametrize("v", [np.ones(10)[::2], np.ones(5, np.float32), np.ones(5, complex)])
def test_a_program_takes_vectors_of_its_own_type(monkeypatch, v):
    monkeypatch.setattr(adaptive, "RECORDING", 0.0)
    J = Adaptive(chain())
    J @ np.ones(5)
    assert J._programs
    assert_allclose(J @ v, J.dag @ np.ones(5))


def test_numbers_of_another_type_take_the_dag(monkeypatch):
    monkeypatch.setattr(adaptive, "RECORDING", 0.0)
    J = Adaptive(chain())
    J @ np.ones(5)
    monkeypatch.setattr(J, "_programs", {(): None})
    y = J._apply(adaptive.numbers, np.ones(5, np.longdouble))
    assert_allclose(y.astype(float), J.dag @ np.ones(5))


def test_programs_have_a_limit(monkeypatch):
    monkeypatch.setattr(adaptive, "RECORDING", 0.0)
    J = Adaptive(chain())
    for k in range(1, 2 * compiled.KEPT):
        V = RNG.standard_normal((5, k))
        assert_allclose(J @ V, J.dag @ V, rtol=1e-12)
    assert len(J._programs) == compiled.KEPT
    J @ np.ones(5)
    assert () in J._programs


def test_a_pickle_leaves_programs_behind(monkeypatch):
    monkeypatch.setattr(adaptive, "RECORDING", 0.0)
    J, v = Adaptive(chain()), np.ones(5)
    expected = J @ v
    there = pickle.loads(pickle.dumps(J))
    assert not there._programs
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
