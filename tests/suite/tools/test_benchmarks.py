"""The benchmarks run on a small workload, and wrong results do not count as fast."""

import doctest
import json
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import chain
from multiprocessing import get_context

import numpy as np
import pytest

from benchmarks import algebra, contenders, picture, table
from benchmarks.agreement import results
from benchmarks.document import record
from benchmarks.limits import arithmetic, traffic
from benchmarks.report import Outcome, library, rows
from benchmarks.rounds import Measured, measure, workers
from benchmarks.targets import Target
from benchmarks.workloads import HIDDEN, find
from benchmarks.workloads.dense import mlp
from house import ROOT

FORESEEN = ("Absent", "ImportError", "ModuleNotFoundError")


def run(folder, workloads, names):
    """The JSON and the page that the command line writes for some workloads."""
    where = {"--json": folder / "out.json", "--markdown": folder / "out.md"}
    files = [part for pair in where.items() for part in map(str, pair)]
    short = ["--rounds", "1", "--budget", "1e-4", "--only", *workloads, "--contenders", *names]
    command = [sys.executable, "-m", "tests.benchmarks", *short, *files]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=500)
    return json.loads(where["--json"].read_text()), where["--markdown"].read_text()


def test_the_command_measures_ours(tmp_path):
    names = ("tiny", "tiny/reaction")
    record, page = run(tmp_path, names, ["onnxjac numpy"])
    found = record["outcomes"]
    products = {(o["workload"], o["product"]) for o in found}
    assert products == {(name, p) for name in names for p in find(name).products}
    for outcome in found:
        assert outcome["limit"] > 0
        assert [c["contender"] for c in outcome["contenders"]] == ["onnxjac numpy"]
        assert outcome["contenders"][0]["median"] > 0
        assert 2**24 < outcome["contenders"][0]["memory"] < 2**40
        assert all((c["absent"] or "Absent").startswith(FORESEEN) for c in outcome["contenders"])
    assert "| tiny | hvp | onnxjac numpy |" in page


def test_the_algebra_is_measured_without_peers(monkeypatch):
    """A library that is missing is left out; the answers of ours are SciPy's."""
    for name in ("cola", "pylops", "lineax", "linear_operator"):
        monkeypatch.setitem(sys.modules, name, None)
    for name in algebra.OURS:
        assert {*dict(algebra.contenders(name))} == {"onnxjac", "scipy"}
        _, log = algebra.OURS[name]().slogdet()
        np.testing.assert_allclose(log, algebra.scipy_logdet(name), rtol=1e-8)


@pytest.fixture
def elsewhere(monkeypatch):
    """A separate process, which imports every library once and isolates their settings."""
    monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")  # compiling takes longer than running
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        yield process


PEERS = {**dict.fromkeys(("kfac", "factors", "ekfac"), "curvlinops"), "diagonal": "backpack"}

DEEP = {"tiny/deep", "tiny/resnet"}
"""Workloads that JAX compiles for ten seconds: with --whole only."""


@pytest.mark.peers
def test_peers_give_the_products_they_are_timed_for(elsewhere, request):
    pytest.importorskip("backpack")
    pytest.importorskip("jax")
    pytest.importorskip("torch")
    names = [name for name in contenders.MODULES if name not in ("torch compile", "machine")]
    kept = HIDDEN if request.config.getoption("--whole") else HIDDEN.keys() - DEEP
    for outcome in chain(*elsewhere.map(partial(results, contenders=names), kept)):
        there = [m for m in outcome.found if m.absent is None]
        peer = PEERS.get(outcome.product, "jax")
        assert {library(m) for m in there} >= {"onnxjac", peer}
        assert all(outcome.error(m) < 1e-12 for m in there), outcome


def outcome(**results):
    """An outcome in which contender number i took i seconds."""
    found = [
        Measured(name.replace("_", " "), result=np.array(result, float), seconds=[1.0 + i])
        for i, (name, result) in enumerate(results.items())
    ]
    return Outcome("w", "jvp", 1e-9, found, limit=0.5)


def test_the_page_in_a_minute_is_drawn_from_measurements(tmp_path):
    """Experts are left out; a ratio is that of the rounds, and the fastest engine is named."""
    found = outcome(jax_expert=[1, 3], jax=[1, 3], onnxjac_numpy=[1, 3], onnxjac=[1, 3])
    measured = picture.lines(record([found], rounds=1, threads=2)["outcomes"])
    assert measured == [
        ("w", "jvp", {"onnxjac numpy": 3 / 2, "onnxjac": 4 / 2}, ("onnxjac numpy", 3), ("jax", 2),
         None)
    ]
    assert "| w | J v | 2 | NumPy | 3e+03 | jax | 2e+03 | 1.5 |" in picture.table(measured)
    assert "| NumPy | 1 | 1.5 | 0 | 0 |" in picture.summary(measured)
    picture.draw(measured, tmp_path / "picture.svg")
    assert "NumPy" in (tmp_path / "picture.svg").read_text()


def test_who_is_wrong_is_not_the_best_peer():
    (row,) = rows(outcome(fast=[1, 2], slow=[1, 3], jax=[1, 3], onnxjac=[1, 3]))
    assert row.peer.contender == "slow"
    assert (row.ratio, row.share) == (4 / 2, 0.5 / 4)


def test_who_is_wrong_meets_no_target():
    (right,) = rows(outcome(onnxjac=[3, 3], jax=[3, 3], torch=[3, 3]))
    (wrong,) = rows(outcome(onnxjac=[3, 2], jax=[3, 3], torch=[3, 3]))
    (other,) = rows(outcome(onnxjac=[3], jax=[3, 3], torch=[3, 3]))
    met = [replace(row, target=Target(0.9)).met for row in (right, wrong, other)]
    assert met == [True, False, False]
    assert replace(right, target=Target(0.4)).met is False


def test_an_expert_is_compared_apart():
    peer, expert = rows(outcome(jax_expert=[1], jax=[1], onnxjac=[1]))
    assert (peer.peer.contender, expert.peer.contender) == ("jax", "jax expert")


def test_a_process_that_ends_is_absent():
    with workers(["onnxjac", "onnxjac"]) as (gone, here):
        here.ask("workload", "tiny")
        gone.process.kill()
        absent, present = measure([gone, here], "jvp", rounds=3, budget=1e-3)
    assert absent.absent == "the process ended"
    assert len(present.seconds) == 3
    assert present.absent is None


def test_the_least_arithmetic_of_an_mlp():
    """6 L - 4 matrix products for a Hessian, 2 L - 1 for a Jacobian, L with a narrow output."""
    workload = mlp(batch=8, widths=(8, 8, 8, 8))
    wide = replace(workload, narrow=False)
    counts = {p: arithmetic(wide, p) / (2 * 8**3) for p in ("jvp", "vjp", "hvp", "jvp×16")}
    assert counts == {"jvp": 5, "vjp": 5, "hvp": 14, "jvp×16": 80}
    assert arithmetic(workload, "ggn") == 2 * 3 * 2 * 8**3
    assert traffic(workload, "jvp", 64) == 4 * (3 * (64 + 8) + 64)


def test_examples_of_the_table_run():
    failed, tried = doctest.testmod(table)
    assert tried
    assert not failed
