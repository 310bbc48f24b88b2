"""Eight threads that share a Jacobian get the same results as one."""

import sys
import time
from threading import Thread

import numpy as np
import pytest

import onnxjac as oj
from concurrency.workers import KINDS, THREADS, TIMES, jacobian, near, products, together
from data.regressions import LABELS, W, X, softmax_hessian, softmax_regression
from faults.models import CNN, MLP, point_of
from onnxjac.jacobians import threads
from onnxjac.jacobians.threads import Lock
from onnxjac.modes.linear.elimination import plan
from onnxjac.modes.model.programs import onnxruntime as ort
from onnxjac.modes.sparse import Plan
from onnxjac.modes.sparse import plan_sparse as sparse_plan
from onnxjac.ops.numbers.table import run_reference


@pytest.fixture(autouse=True)
def switching():
    """Switch threads as often as possible."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.fixture(scope="module")
def expected():
    return products(jacobian())


@pytest.mark.parametrize("kind", KINDS)
def test_products_on_eight_threads_agree_with_one(expected, kind):
    J = jacobian()
    alone = products(KINDS[kind](J)) if kind == "block" else expected
    shared = KINDS[kind](jacobian())

    def work(_):
        for _ in range(TIMES):
            near(products(shared), alone)

    together(work)


def test_elimination_runs_once_for_all_threads(monkeypatch):
    """Other threads wait for the first one instead of repeating its work."""
    made, elimination = [], plan.elimination

    def slowly(dag):
        made.append(dag)
        time.sleep(0.02)
        return elimination(dag)

    monkeypatch.setattr(plan, "elimination", slowly)
    J = jacobian()
    found = together(lambda k: plan.eliminated(J.dag.T if k % 2 else J.dag))
    assert len(made) == 1
    assert len(set(map(id, found))) == 2


def points(model, count=4):
    return [point_of(model, seed) for seed in range(count)]


@pytest.mark.parametrize(
    ("path", "engine"), [(MLP, None), (MLP, "numpy"), (CNN, None)], ids=["mlp", "numpy", "cnn"]
)
def test_threads_linearize_and_relinearize_each_at_their_points(path, engine):
    """All threads build and use templates at once, each at its own points."""
    at = points(oj.load(path))
    alone = [oj.linearize(oj.load(path), point, engine=engine) for point in at]
    expected = [products(J) for J in alone]
    model = oj.load(path)
    J = oj.linearize(model, at[0], engine=engine)

    def work(k):
        for i in range(TIMES):
            n = (k + i) % len(at)
            made = oj.linearize(model, at[n], engine=engine) if k % 2 else J.relinearize(at[n])
            near(products(made), expected[n])

    together(work)


def test_products_while_others_relinearize(expected):
    J = jacobian()
    other = point_of(J.route.model, seed=5)
    moved = products(jacobian().relinearize(other))

    def work(k):
        for _ in range(TIMES // 2):
            near(products(J.relinearize(other)), moved) if k % 2 else near(products(J), expected)

    together(work)


@pytest.mark.parametrize("engine", ["onnxruntime", "numpy"])
def test_threads_share_a_program_bound_to_a_point(engine, inside):
    model = oj.load(MLP)
    J = oj.linearize(model, point_of(model), engine=engine).relinearize(point_of(model))
    shared = inside.shared(J)
    program, names = shared.prepare(())
    program = program.bind(J.at.arrays(names))
    columns = np.random.default_rng(0).standard_normal((8, *J.in_shape)).astype(J.dtype)
    expected = [J @ v.ravel() for v in columns]

    def work(k):
        for _ in range(TIMES):
            near([program(columns[k]).ravel()], [expected[k]])

    together(work)


def test_many_routes_and_sessions():
    """More than the caches hold: a thread may evict what another one needs."""
    model = oj.load(MLP)
    point, inside = point_of(model), [*model.intermediates, *model.outputs]
    wrt = ("x",), ("0.weight",), ("x", "0.weight")
    ends = [(of, names) for of in inside for names in wrt]
    assert len(inside) > model.sessions.most
    assert len(ends) > model.cache["route"].most

    def work(k):
        for i in range(len(ends)):
            of, wrt = ends[(i + k) % len(ends)]
            J = oj.linearize(model, point, of=of, wrt=wrt, engine="onnxruntime")
            assert J.shape[0] == J.primal[of].size

    together(work)


def test_hessians_on_eight_threads_agree_with_one():
    model, point = softmax_regression(), {"x": X, "y": LABELS, "W": W}
    H = oj.hessian(model, point, of="loss", wrt="W")
    near([H.toarray()], [softmax_hessian(X) / len(X)], 1e-9)
    v = np.random.default_rng(0).standard_normal(W.size)
    expected = H @ v, oj.grad(model, point, of="loss")["W"]

    def work(_):
        for _ in range(TIMES // 2):
            mine = oj.hessian(model, point, of="loss", wrt="W")
            near([H @ v, oj.grad(model, point, of="loss")["W"]], expected, 1e-9)
            near([mine @ v], expected[:1], 1e-9)

    together(work)


class Slow:
    """An object whose destructor is slow and lets other threads run."""

    def __del__(self):
        time.sleep(1e-3)


def test_sessions_that_others_let_go(monkeypatch):
    """While a session is destroyed, other threads ask for more sessions than are kept."""
    model = oj.load(MLP)
    monkeypatch.setattr(ort, "new_session", lambda *_, **how: Slow())
    names = [step.outputs[0] for step in model.steps]
    keys = [(*names[: k % len(names) + 1], *names[:1] * (k // len(names)))
            for k in range(8 * THREADS)]  # fmt: skip

    def work(k):
        for i in range(60):
            assert ort._session(model, frozenset(), keys[(8 * k + i) % len(keys)], True)

    together(work)


def test_sparse_matrices_of_several_points():
    """One plan is kept for all points, and used only where it fits."""
    model = oj.load(MLP)
    at = points(model)
    dense = [oj.linearize(model, point).toarray() for point in at]

    def work(k):
        for i in range(TIMES // 3):
            n = (k + i) % len(at)
            near([oj.linearize(model, at[n]).tosparse().toarray()], [dense[n]])

    together(work)


def test_a_sparse_plan_that_another_thread_replaces(monkeypatch):
    """The plan that was checked is the one that is used."""
    J = jacobian(MLP)
    first = sparse_plan(J, 2**30, symmetric=False)
    fits = Plan.fits

    def replaced(self, dag):
        (key,) = known = J.route.known
        known[key] = None
        return fits(self, dag)

    monkeypatch.setattr(Plan, "fits", replaced)
    assert sparse_plan(J, 2**30, symmetric=False) is first


def test_kernels_of_the_reference_implementation():
    """Evaluators of single nodes are shared as well."""
    x = np.random.default_rng(0).standard_normal((THREADS, 3, 4)).astype(np.float32)
    alone = [run_reference("Det", [np.stack([a[:, :3]] * 2)], {}) for a in x]
    made = together(lambda k: [run_reference("Det", [np.stack([x[k][:, :3]] * 2)], {})
                               for _ in range(TIMES)])  # fmt: skip
    for k, results in enumerate(made):
        for result in results:
            np.testing.assert_array_equal(result, alone[k])


def test_an_interrupt_leaves_no_lock_held():
    """Ctrl-C at the end of a function of Python that took the lock would leave it held."""

    def interrupt(frame, event, arg):
        if event == "return":
            raise KeyboardInterrupt
        return interrupt

    def use():
        with lock:
            pass

    lock, free, before = Lock(), [], sys.gettrace()
    sys.settrace(interrupt)
    try:
        use()
    except KeyboardInterrupt:
        sys.settrace(before)

    def other():
        with lock:
            free.append(True)

    thread = Thread(target=other, daemon=True)
    thread.start()
    thread.join(10)
    assert free


def test_an_interrupt_leaves_linear_algebra_its_threads(monkeypatch):
    libraries = threads.libraries()
    limit = libraries.limit

    def interrupted(*, limits):
        made = limit(limits=limits)
        if limits == 1:
            raise KeyboardInterrupt
        return made

    with libraries.limit(limits=2):
        monkeypatch.setattr(libraries, "limit", interrupted)
        with pytest.raises(KeyboardInterrupt), threads.single_threaded():
            pass
        assert threads.cores() == 2
        assert not threads.limits
        monkeypatch.undo()
        with threads.single_threaded(), threads.single_threaded():
            assert threads.cores() == 1
        assert threads.cores() == 2
