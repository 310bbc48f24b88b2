"""A Jacobian in other processes, forked or spawned."""

import gc
import multiprocessing
import os
import re
import threading
import time
import weakref
from pathlib import Path

import numpy as np
import pytest

import onnxjac as oj
from concurrency.workers import KINDS, check, jacobian, products, relinearized
from faults.models import point_of
from onnxjac.jacobians.threads import Lock, cached_property
from onnxjac.modes.model.programs.onnxruntime import Session

forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system does not fork")


@pytest.fixture(scope="module")
def spawned():
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        yield pool


@pytest.mark.parametrize("kind", KINDS)
def test_a_spawned_process_gets_it_as_a_pickle(spawned, kind):
    J = KINDS[kind](jacobian())
    assert spawned.apply_async(check, (products(J), J)).get(60)


def test_a_spawned_process_goes_to_another_point(spawned):
    J = jacobian()
    other = point_of(J.route.model, seed=3)
    made = spawned.apply_async(relinearized, (J, other)).get(60)
    for found, expected in zip(made, relinearized(J, other), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-5)


def forked(work, *arguments):
    """The exit status of a forked process that runs `work`."""
    process = multiprocessing.get_context("fork").Process(target=work, args=arguments)
    process.start()
    process.join(30)
    alive = process.exitcode is None
    process.kill()
    assert not alive, "the forked process hangs"
    return process.exitcode


@forks
@pytest.mark.parametrize("kind", KINDS)
def test_a_forked_process_goes_on_with_it(kind):
    """In the child, sessions of ONNX Runtime have lost their threads."""
    J = KINDS[kind](jacobian())
    expected = products(J)
    assert forked(check, expected, J) == 0
    assert check(expected, J)


def anew(J, point, expected):
    """Run the model again, at the same point and with the same session."""
    check(expected, J.relinearize(point))


@forks
def test_the_model_runs_in_a_forked_process():
    J = jacobian(engine="onnxruntime")
    point = point_of(J.route.model)
    J.relinearize(point)
    assert forked(anew, J, point, products(J)) == 0


@forks
def test_a_forked_process_has_a_session_of_its_own():
    """The session is its process ID here."""
    session = Session(os.getpid)

    def work():
        os._exit(10 + (session.here == os.getpid()))

    assert session.here == os.getpid()
    assert forked(work) == 11
    assert session.here == os.getpid()


@forks
def test_sessions_go_with_a_forked_process():
    """Destroying one of the parent's sessions in the child would crash it."""

    def let_go(held):
        held.clear()

    J = jacobian().compile("onnxruntime")
    products(J)
    assert forked(let_go, [J]) == 0


@forks
def test_garbage_from_before_stays_in_a_forked_process():
    """Freeing an array of a session may need a lock held by a thread that was not forked."""

    class Cycle:
        def __init__(self):
            self.itself = self

    def collect():
        gc.collect()
        os._exit(garbage() is not None)

    J = jacobian(engine="onnxruntime")
    gc.disable()
    try:
        garbage = weakref.ref(Cycle())
        assert forked(collect) == 1, J
    finally:
        gc.enable()


@forks
@pytest.mark.parametrize("engine", [None, "numpy"])
def test_a_fork_while_other_threads_relinearize(engine):
    """None of ten forks hangs: neither locks nor properties wait for threads of the parent."""
    J = jacobian(engine=engine)
    points = [point_of(J.route.model, seed=k) for k in range(3)]
    expected, stop = products(J.relinearize(points[0])), threading.Event()

    def go_on():
        while not stop.is_set():
            for point in points:
                products(J.relinearize(point))

    threads = [threading.Thread(target=go_on, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(10):
            time.sleep(0.05)
            assert forked(anew, J, points[0], expected) == 0
    finally:
        stop.set()
        for thread in threads:
            thread.join()


@forks
def test_a_property_that_another_thread_computes_is_computed_in_a_forked_process():
    computing, done = threading.Event(), threading.Event()

    class Slow:
        @cached_property
        def number(self):
            computing.set()
            done.wait(60)
            return 7

    def look():
        done.set()
        os._exit(Slow().number)

    thread = threading.Thread(target=lambda: Slow().number, daemon=True)
    thread.start()
    computing.wait(60)
    try:
        assert forked(look) == 7
    finally:
        done.set()
        thread.join()


@forks
def test_a_lock_held_by_the_thread_that_forks():
    """The child continues, and releases the lock there."""
    lock = Lock()
    with lock:
        child = os.fork()
        if child:
            _, status = os.waitpid(child, 0)
    if not child:
        with lock:
            os._exit(7)
    assert os.waitstatus_to_exitcode(status) == 7


def test_no_module_has_a_lock_that_a_fork_leaves_shut():
    """Only `threads.py` recreates locks after a fork, and avoids them."""
    root = Path(oj.__file__).parent
    for folder in ("jacobians", "ops", "modes"):
        for path in (root / folder).rglob("*.py"):
            text = path.read_text()
            if path.name != "threads.py":
                assert not re.search("^from threading import .*Lock", text, re.M), path
                assert not re.search("^from functools import .*cached_property", text, re.M), path


@forks
def test_a_lock_that_another_thread_holds_is_open_in_a_forked_process():
    lock, held, done = Lock(), threading.Event(), threading.Event()

    def hold():
        with lock:
            held.set()
            done.wait(60)

    def take():
        with lock:
            os._exit(7)

    threading.Thread(target=hold, daemon=True).start()
    held.wait(60)
    try:
        assert forked(take) == 7
    finally:
        done.set()


def test_a_lock_shuts_out_other_threads():
    lock, order = Lock(), []

    def work(name, seconds):
        with lock, lock:
            order.append(name)
            time.sleep(seconds)
            order.append(name)

    threads = [threading.Thread(target=work, args=(k, 0.02)) for k in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert order[::2] == order[1::2]
