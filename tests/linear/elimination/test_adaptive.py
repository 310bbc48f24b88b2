"""Products by the fastest way: alternatives are prepared in the background and timed."""

import pickle
import sys
import threading
import time
from functools import partial
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from linear.settled import settle
from onnxjac.jacobians import Dag, Dense, Edge, Jacobian, threads
from onnxjac.jacobians.threads import Background
from onnxjac.modes.linear.elimination import accumulation, adaptive
from onnxjac.modes.linear.elimination.adaptive import (
    AGAIN,
    COMPILED,
    DAG,
    ENOUGH,
    PLANNED,
    PROGRAM,
    SETTLED,
    SOON,
    TRIES,
    UNMADE,
    Adaptive,
    Clock,
)
from onnxjac.modes.linear.elimination.plan import eliminated, planned

from .chains import perceptron

RNG = np.random.default_rng(3)


@pytest.fixture(autouse=True)
def every_product_is_a_choice(monkeypatch, request):
    if "settled" not in request.node.name:
        monkeypatch.setattr(adaptive, "TURNS", 0)


def chain(sizes=(5, 4, 3)):
    """A chain of dense matrices."""
    pairs = enumerate(pairwise(sizes))
    edges = [Edge(i, i + 1, Dense(RNG.standard_normal((m, n)))) for i, (n, m) in pairs]
    return Dag(tuple((n,) for n in sizes), edges, (0,), (len(sizes) - 1,), np.dtype(float))


class Slow(Jacobian):
    """An operator that sleeps in every product."""

    def __init__(self, operator, seconds):
        super().__init__(operator.out_shape, operator.in_shape, operator.dtype)
        self.operator, self.seconds = operator, seconds

    def _apply(self, op, v):
        time.sleep(self.seconds)
        return self.operator._apply(op, v)

    def _transpose(self):
        return Slow(self.operator.T, self.seconds)


def slow(seconds):
    """A DAG whose products take at least `seconds`."""
    dag = chain()
    edges = [Edge(e.start, e.end, Slow(e.operator, seconds / 2)) for e in dag.edges]
    return Dag(dag.shapes, edges, dag.sources, dag.sinks, dag.dtype)


@pytest.fixture
def plans_repay(monkeypatch):
    """Plans always repay, since estimates ignore the time that operators sleep."""
    monkeypatch.setattr(adaptive, "repays_decision", lambda dag, count: True)


class Points:
    """The state that points share: a program that is ready, or still being built."""

    def __init__(self, program=None, cost=np.inf):
        self.made, self.cost, self.first, self.clocks = program, cost, 8, {}
        self.prepared = []

    def clock(self, columns, way, *, by_engine=False):
        return self.clocks.setdefault((columns, way), Clock(by_engine=by_engine))

    def program(self, columns):
        return self.made

    def product(self, program, tape, v):
        return program(v, tape.bound)

    def settled(self, columns):
        return self.made is not None

    def prepare(self, columns):
        self.prepared.append(columns)
        return Background(int)


def taken(J, v, count=40):
    """The ways that successive products take."""
    ways, timed = [], Clock.timed

    def noted(clock, way, v):
        names = {id(c): name for name, (c, _) in J._ways(()).items()}
        ways.append(names[id(clock)])
        return timed(clock, way, v)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Clock, "timed", noted)
        for _ in range(count):
            J @ v
    return ways


@pytest.fixture
def at_once(monkeypatch):
    """Ways are judged by `TRIES` products, however short: no engine's threads have to settle."""
    monkeypatch.setattr(adaptive, "SETTLED", 0.0)
    monkeypatch.setattr(adaptive, "SOON", 0.0)


def test_a_way_is_judged_once_the_threads_of_others_sleep():
    clock = Clock()
    while clock.spent < SETTLED:
        assert clock.order(np.inf) == 0
        clock.timed(lambda v: time.sleep(SETTLED / 8), np.ones(1))
    assert clock.tries > TRIES
    assert clock.order(np.inf) == clock.least


def test_ways_of_numpy_and_short_products_are_judged_sooner():
    """Nothing spins before NumPy's, and a hundred products are enough."""
    clock, engine, short = Clock(by_engine=False), Clock(), Clock()
    for _ in range(4):
        for each in (clock, engine):
            each.timed(lambda v: time.sleep(SOON / 4), np.ones(1))
    assert clock.judged
    assert not engine.judged
    for _ in range(ENOUGH):
        assert not short.judged
        short.timed(lambda v: v, np.ones(1))
    assert short.judged
    assert short.spent < SOON


@pytest.mark.usefixtures("at_once")
def test_a_way_is_judged_after_some_products_and_tried_again_later():
    clock = Clock()
    for _ in range(TRIES):
        assert clock.order(np.inf) == 0
        clock.timed(lambda v: v, np.ones(1))
    assert 0 < clock.order(np.inf) == clock.least
    clock.wait(AGAIN * TRIES * clock.least / 2)
    assert clock.order(np.inf) > 0
    clock.wait(AGAIN * TRIES * clock.least)
    assert clock.order(np.inf) == 0


def test_a_way_far_slower_than_another_is_not_tried_to_the_end():
    """A product by the DAG of a large network took six times as long as one by the program."""
    points = Points()
    J = Adaptive(slow(0.2), shared=points, tape=SimpleNamespace(bound={}, place=None))
    J @ np.ones(5)
    points.made = lambda v, arrays: v[:3]
    assert taken(J, np.ones(5), 20) == [PROGRAM] * 20


@pytest.mark.usefixtures("plans_repay", "at_once")
def test_a_plan_is_taken_where_it_is_quicker(monkeypatch):
    dag, quick = slow(2e-3), chain()
    monkeypatch.setattr(adaptive, "planned", lambda dag, count: quick)
    J, v = Adaptive(dag), np.ones(5)
    while J._planned is None:
        assert_allclose(J @ v, dag @ v)
        settle(J)
    assert set(taken(J, v)[-10:]) <= {PLANNED, COMPILED}


@pytest.mark.usefixtures("plans_repay", "at_once")
def test_a_plan_that_gains_nothing_is_left_and_comes_later_at_the_next_point(monkeypatch):
    dag = slow(1e-3)
    monkeypatch.setattr(adaptive, "planned", lambda dag, count: Slow(dag, 5e-3))
    points = Points()
    J, v = Adaptive(dag, shared=points), np.ones(5)
    while J._planned is None:
        J @ v
        settle(J)
    assert taken(J, v, 20)[-10:] == [DAG] * 10
    assert J._next >= points.first >= 32
    again = Adaptive(dag, shared=points)
    for _ in range(16):
        again @ v
    assert again._ahead is None or again._ahead.value is None


@pytest.mark.usefixtures("plans_repay", "at_once")
def test_a_plan_that_pays_is_made_as_early_at_the_next_point(monkeypatch):
    dag, quick, points = slow(2e-3), chain(), Points()
    monkeypatch.setattr(adaptive, "planned", lambda dag, count: quick)
    J, v = Adaptive(dag, shared=points), np.ones(5)
    while J._planned is None:
        J @ v
        settle(J)
    begun = J._begun_at
    assert points.first == 4 * begun  # not measured yet
    taken(J, v, 2 * TRIES)
    assert points.first == begun


@pytest.mark.usefixtures("plans_repay", "at_once")
def test_a_plan_that_has_not_repaid_its_making_is_not_made_as_early(monkeypatch):
    """A loop of ten products at each point made a plan for the last two of them."""
    dag, quick, points = slow(2e-3), chain(), Points()
    monkeypatch.setattr(adaptive, "planned", lambda dag, count: time.sleep(0.1) or quick)
    J, v = Adaptive(dag, shared=points), np.ones(5)
    while J._planned is None:
        J @ v
        settle(J)
    begun = J._begun_at
    assert set(taken(J, v, 2 * TRIES)) <= {PLANNED}
    assert points.first == 4 * begun
    taken(J, v, 100)
    assert points.first == begun


@pytest.mark.usefixtures("at_once")
def test_the_program_of_other_points_is_taken_from_the_first_product_on():
    dag = slow(2e-3)
    asked = []

    def program(v, residuals):
        asked.append(residuals)
        return v @ np.ones((5, 3))

    J = Adaptive(dag, shared=Points(program), tape=SimpleNamespace(bound={7: "held"}, place=None))
    assert_allclose(J @ np.ones(5), 5 * np.ones(3))
    assert asked == [{7: "held"}]
    ways = taken(J, np.ones(5))
    assert ways.count(DAG) == 1  # far slower
    assert DAG not in ways[-10:]


@pytest.mark.usefixtures("at_once")
def test_points_of_ten_products_do_not_make_the_dag_to_decide_on_plans(monkeypatch):
    """Each point made and eliminated its DAG at the eighth product, and then used the program."""
    monkeypatch.setattr(adaptive, "repays_decision", lambda dag, count: False)
    made, dag = [], chain()
    points = Points(lambda v, residuals: v @ np.ones((5, 3)))
    points.dag_at = lambda tape: made.append(tape) or dag
    for _ in range(12):
        J = Adaptive(None, dag, points, SimpleNamespace(bound={}, place=None))
        for _ in range(10):
            J @ np.ones(5)
        made.append("a point")
    assert made[-6:] == ["a point"] * 6


def test_a_program_is_begun_once_products_have_taken_as_long():
    points = Points(cost=0.05)
    J, v = Adaptive(slow(1e-2), shared=points), np.ones(5)
    for _ in range(12):
        J @ v
        assert bool(points.prepared) == (points.clock((), DAG).total >= 0.05)
    assert set(points.prepared) == {()}


def test_a_dag_that_is_made_for_a_product_is_timed_apart():
    """Products that find it made would else seem as quick at a new point, where it is not."""
    points, dag = Points(), chain()
    points.dag_at = lambda tape: time.sleep(0.05) or dag
    J = Adaptive(None, dag, points, SimpleNamespace(bound={}, place=None))
    J @ np.ones(5)
    J @ np.ones(5)
    assert [points.clock((), kind).tries for kind in (UNMADE, DAG)] == [1, 1]
    assert points.clock((), UNMADE).total >= 0.05


def test_what_is_compiled_gives_the_same(monkeypatch):
    monkeypatch.setattr(adaptive, "RECORDING", 0.0)
    monkeypatch.setattr(adaptive, "FIRST", 10**6)  # a plan would make the program useless
    dag = chain()
    J, v = Adaptive(dag), RNG.standard_normal(5)
    for _ in range(4):
        assert_allclose(J @ v, dag @ v, rtol=1e-13)
        settle(J)
    assert COMPILED in J._ways(())
    assert COMPILED in taken(J, v)
    assert_allclose(J @ v, dag @ v, rtol=1e-13)
    assert COMPILED in J.choice


@pytest.mark.usefixtures("plans_repay")
def test_products_go_on_while_a_plan_is_made(monkeypatch):
    begun, ready = threading.Event(), threading.Event()
    monkeypatch.setattr(
        adaptive, "planned", lambda dag, count: begun.set() or (ready.wait(30) and dag)
    )
    J, v = Adaptive(slow(1e-3)), np.ones(5)
    while not begun.is_set():
        J @ v
    for _ in range(5):
        J @ v
    assert J._ahead.going
    ready.set()
    settle(J)
    assert J._planned is not None


@pytest.mark.usefixtures("plans_repay")
def test_what_cannot_be_prepared_is_left_out(monkeypatch):
    asked = []

    def failing(dag, count):
        asked.append(count)
        raise MemoryError

    monkeypatch.setattr(adaptive, "planned", failing)
    dag = slow(1e-3)
    J, v = Adaptive(dag), np.ones(5)
    while not asked:
        assert_allclose(J @ v, dag @ v)
        settle(J)
    assert_allclose(J @ v, dag @ v)
    assert J._planned is None


def test_numbers_of_another_type_take_the_dag():
    dag = chain()
    program = lambda v, residuals: pytest.fail("a program takes its own type only")  # noqa: E731
    J = Adaptive(dag, shared=Points(program), tape=SimpleNamespace(bound={}, place=None))
    v = np.ones(5, np.longdouble)
    assert_allclose(J._apply(adaptive.numbers, v).astype(float), dag @ np.ones(5))


def test_a_pickle_leaves_programs_behind():
    points = Points(lambda v, residuals: v)
    J = Adaptive(chain(), shared=points, tape=SimpleNamespace(bound={}, place=None))
    there = pickle.loads(pickle.dumps(J))
    assert_allclose(there @ np.ones(5), J.dag @ np.ones(5))


def test_work_that_nobody_waits_for_ends():
    begun, ended = threading.Event(), threading.Event()

    def make():
        begun.set()
        try:
            while not ended.wait(0.001):
                threads.check_wanted()
        finally:
            ended.set()

    task = Background(make)
    assert begun.wait(30)
    assert not ended.wait(0.1)
    del task
    assert ended.wait(30)


def test_a_plan_for_a_jacobian_that_is_gone_is_given_up(monkeypatch):
    def gone():
        raise threads.Abandoned

    monkeypatch.setattr(accumulation, "check_wanted", gone)
    with pytest.raises(threads.Abandoned):
        planned(perceptron((64, 64, 64, 2), batch=256), 10**4)


def test_turns_that_somebody_changes_meanwhile_stay_as_they_are():
    while threads.working:
        time.sleep(0.01)
    started, ready = threading.Event(), threading.Event()
    task = Background(lambda: started.set() or ready.wait(30))
    started.wait(30)
    sys.setswitchinterval(4e-3)
    ready.set()
    task.wait()
    found = sys.getswitchinterval()
    sys.setswitchinterval(5e-3)
    assert abs(found - 4e-3) < 1e-6


def test_turns_are_short_while_something_is_prepared():
    while threads.working:  # left over from earlier tests
        time.sleep(0.01)
    sys.setswitchinterval(5e-3)  # Python's default, whatever other tests have set
    before, seen = sys.getswitchinterval(), []
    started, ready = threading.Barrier(3), threading.Event()

    def make(k):
        started.wait(30)
        ready.wait(30)
        return k

    both = [Background(partial(make, k)) for k in (1, 2)]
    started.wait(30)
    seen.append(sys.getswitchinterval())
    ready.set()
    assert [task.wait() for task in both] == [1, 2]
    assert seen[0] < before == sys.getswitchinterval()


@pytest.mark.usefixtures("plans_repay")
def test_a_product_waits_for_the_background_as_long_as_the_fastest_took(monkeypatch):
    waited = []
    monkeypatch.setattr(Background, "wait", lambda self, seconds=None: waited.append(seconds))
    monkeypatch.setattr(adaptive, "planned", lambda dag, count: time.sleep(0.2))
    J, v = Adaptive(slow(2e-3)), np.ones(5)
    for _ in range(12):
        J @ v
    total = J._clocks[(), DAG].total
    assert waited
    assert max(waited) <= total
    assert max(waited) > 0


def settled_program():
    """An operator whose compiled program has been judged, and a vector."""
    A, v = Adaptive(chain()), np.ones(5)
    A._compiled = adaptive.Compiled(A.dag, "numpy")
    A._compiled.program(())
    eliminated(A.dag)
    A._next, A._begun = 10**9, {()}
    for name, least in ((DAG, 1.0), (COMPILED, 1e-6)):
        A._clocks[(), name] = Clock(least, least * 100, 100, 1.0)
    return A, v


def test_a_settled_program_is_chosen_once_for_many_products(monkeypatch):
    A, v = settled_program()
    chosen = []
    monkeypatch.setattr(A, "_ways", lambda columns, f=A._ways: chosen.append(0) or f(columns))
    products = [A @ v for _ in range(2 * (adaptive.TURNS + 1))]
    assert len(chosen) == 2
    A @ v
    assert A.count == len(products) + 1
    assert_allclose(products, np.tile(A.dag @ v, (len(products), 1)))
    assert not any(np.shares_memory(products[0], y) for y in products[1:])


@pytest.mark.parametrize(("shape", "looked"), [((5,), [1, 8]), ((5, 4), [4, 12])])
def test_a_settled_program_is_kept_until_a_plan_is_due(monkeypatch, shape, looked):
    A, _ = settled_program()
    A._compiled.program(shape[1:])
    for name, least in ((DAG, 1.0), (COMPILED, 1e-6)):
        A._clocks[shape[1:], name] = Clock(least, least * 100, 100, 1.0)
    A._next, found = 7, []
    monkeypatch.setattr(A, "_look_ahead", lambda *_: found.append(A.count))
    while A.count < looked[-1]:
        A @ np.ones(shape)
    assert found == looked


@pytest.mark.parametrize("v", [np.ones(10)[::2], np.ones(5, np.float32), np.ones(5, complex)])
def test_a_settled_program_takes_vectors_of_its_own_type(v):
    A, ones = settled_program()
    A @ ones
    assert A._kept
    assert_allclose(A @ v, A.dag @ np.ones(5))


def test_a_pickle_leaves_a_settled_program_behind():
    A, v = settled_program()
    expected = A @ v
    assert_allclose(pickle.loads(pickle.dumps(A)) @ v, expected)
