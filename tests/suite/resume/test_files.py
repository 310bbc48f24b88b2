"""Files of other work, torn files, files of strangers: an error that says what to do, no more."""

import io
import json
import os
import tracemalloc
import zipfile

import ml_dtypes
import numpy as np
import pytest

import onnxjac as oj
from curvature.pools import made
from data.regressions import UNEVEN, W, softmax_regression
from onnxjac.jacobians.errors import InputError, OnnxJacWarning
from onnxjac.modes.resume import Work

from .works import (
    DATA,
    DEFINITE,
    RIGHT,
    SYMMETRIC,
    TOKENS,
    Interrupted,
    assert_bits,
    counted,
    killed,
)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.npz"


def density(path, A=SYMMETRIC, **options):
    given = {"steps": 6, "probes": 2, "exact": False, **options}
    return oj.estimators.spectral_density(A, resume=oj.ResumeFile(path, every=4), **given)


OTHERS = {
    "an operator": ({"A": SYMMETRIC + np.diag(np.eye(60)[0] * 1e-6)}, "another operator, by more"),
    "a shape": ({"A": SYMMETRIC[:50, :50]}, r"another shape, \[60, 60\] there and \[50, 50\] here"),
    "a dtype": ({"A": SYMMETRIC.astype(np.float32)}, "another dtype, 'float64' there"),
    "a seed": ({"seed": 1}, "another seed, 0 there and 1 here"),
    "a number of steps": ({"steps": 7}, "another steps, 6 there and 7 here"),
    "a number of probes": ({"probes": 3}, "another probes, 2 there and 3 here"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_another_estimate_is_refused(name, path):
    options, message = OTHERS[name]
    density(path)
    before = path.read_bytes()
    with pytest.raises(InputError, match=f"run.npz' keeps the state of other work, with {message}"):
        density(path, **options)
    assert path.read_bytes() == before


def test_another_kind_of_work_is_refused(path):
    density(path)
    with pytest.raises(InputError, match="another kind of work, 'spectral density' there and 'tra"):
        oj.estimators.trace(SYMMETRIC, resume=oj.ResumeFile(path))


def test_rounding_is_no_other_operator(path):
    expected = density(path)
    again = density(path, SYMMETRIC * (1 + 1e-15))
    assert_bits(again.nodes, expected.nodes)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"b": RIGHT[:, 0]}, "right-hand side"),
        ({"A": DEFINITE + 1e-3 * np.eye(60)}, "operator"),
        ({"solver": "minres"}, "solver, 'cg' there and 'minres' here"),
        ({"preconditioner": 2 * np.eye(60)}, "preconditioner"),
    ],
)
def test_another_solve_is_refused(changed, message, path):
    first = {"A": DEFINITE, "b": RIGHT[:, 1], "solver": "cg", "preconditioner": np.eye(60)}

    def solve(A, b, **options):
        return oj.inverse(A, resume=oj.ResumeFile(path), **options) @ b

    solve(**first)
    with pytest.raises(InputError, match=f"of other work, with another {message}"):
        solve(**{**first, **changed})


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"shared": {"W": 2 * W}}, "another start"),
        ({"inputs": UNEVEN[1:]}, "another value at the start"),
        ({"globalization": "line search"}, "another globalization"),
        ({"reduction": "sum"}, "another value at the start"),
    ],
)
def test_another_minimum_is_refused(changed, message, path):
    def newton(inputs=UNEVEN, **options):
        resume = oj.ResumeFile(path, every=1)
        given = {**DATA, "maxiter": 1, **options}
        oj.newton_cg(softmax_regression(), inputs, resume=resume, **given)

    newton()
    with pytest.raises(InputError, match=message):
        newton(**changed)


OTHER_BATCHES = {
    "another order": [*TOKENS[:2], *TOKENS[:1:-1]],
    "fewer of them": TOKENS[:3],
    "other numbers": [*TOKENS[:2], {**TOKENS[2], "x": 2 * TOKENS[2]["x"]}, *TOKENS[3:]],
}


@pytest.mark.parametrize("name", OTHER_BATCHES)
def test_other_batches_are_refused(name, path):
    file = oj.ResumeFile(path, every=1)
    with killed(4):
        made("kfac", TOKENS, resume=file)
    told = pytest.raises(InputError, match="has sums over 5 batches, which are others now: give")
    with counted() as turns, told:
        made("kfac", OTHER_BATCHES[name], resume=file)
    assert not turns, "it was told after more of them"


def test_a_batch_more_goes_on(path):
    made("kfac", TOKENS[:4], resume=oj.ResumeFile(path))
    more = made("kfac", TOKENS, resume=oj.ResumeFile(path))
    assert np.array_equal(more.toarray(), made("kfac", TOKENS).toarray())


@pytest.mark.parametrize(
    ("changed", "message"),
    [({"seed": 4}, "seed, 3 there"), ({"joint": True}, "joint"), ({"first": 2.0}, "first batch")],
)
def test_other_factors_are_refused(changed, message, path):
    def factors(first=1.0, **options):
        data = [{**TOKENS[0], "x": first * TOKENS[0]["x"]}, *TOKENS[1:]]
        given = {"fisher_type": "mc", "seed": 3, **options}
        made("ekfac", data, resume=oj.ResumeFile(path), **given)

    factors()
    with pytest.raises(InputError, match=f"another {message}"):
        factors(**changed)


def test_workers_keep_no_state(path):
    with pytest.raises(InputError, match=r"the workers of client= keep no state.*Leave out resume"):
        made("kfac", TOKENS, client=object(), resume=oj.ResumeFile(path))


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.99])
def test_a_torn_file_is_refused(share, path):
    density(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(InputError, match="is no file that a ResumeFile wrote, or not all of one"):
        density(path)


def test_a_changed_bit_is_found(path):
    density(path)
    whole = bytearray(path.read_bytes())
    whole[len(whole) // 3] ^= 1  # in the numbers of a basis
    path.write_bytes(whole)
    with pytest.raises(InputError, match="it is damaged"):
        density(path)


def saved(path, write=np.savez, **arrays):
    write(path, **arrays)


FOREIGN = {
    "text": lambda path: path.write_text("epoch 3"),
    "a folder": lambda path: path.mkdir(),
    "arrays": lambda path: saved(path, x=np.ones(3)),
    "compressed arrays": lambda path: saved(path, np.savez_compressed, x=np.ones(3)),
    "pickles": lambda path: saved(path, about=np.array([print], object)),
    "another description": lambda path: saved(path, about=np.frombuffer(b"[3]", np.uint8)),
    "no JSON": lambda path: saved(path, about=np.frombuffer(b"{{", np.uint8)),
    "another format": lambda path: saved(path, about=np.frombuffer(b'{"format": 2}', np.uint8)),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_a_foreign_file_is_refused(name, path):
    FOREIGN[name](path)
    with pytest.raises(InputError, match="is no file that a ResumeFile wrote, or not all of one"):
        density(path)


def changed(path, change):
    """Change the members of a file, name -> array, and its description."""
    with np.load(path) as held:
        arrays = dict(held)
    about = json.loads(arrays["about"].tobytes())
    change(arrays, about)
    arrays["about"] = np.frombuffer(json.dumps(about).encode(), np.uint8)
    np.savez(path, **arrays)


def longer(arrays, about):
    arrays["2.2"] = np.zeros((2, 7, 10**6))


def of_objects(arrays, about):
    arrays["0.1"] = np.array([None])


def renamed(arrays, about):
    about["loops"][0][0] = "other"


def of_another_type(arrays, about):
    arrays["0.1"] = arrays["0.1"].astype(np.float32)


@pytest.mark.parametrize("change", [longer, of_objects, renamed, of_another_type])
def test_states_that_do_not_fit_are_refused(change, path):
    with killed(8):
        density(path)
    changed(path, change)
    with pytest.raises(InputError, match=r"no state of this work|no file that a ResumeFile wrote"):
        density(path)


def test_a_size_that_a_file_claims_takes_no_memory(path):
    """A header of 10¹² numbers over 8 bytes."""
    with killed(8):
        density(path)
    changed(path, lambda arrays, about: None)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    header = io.BytesIO()
    shape = {"descr": "<f8", "fortran_order": False, "shape": (10**6, 10**6)}
    np.lib.format.write_array_header_1_0(header, shape)
    members["2.2.npy"] = header.getvalue() + bytes(8)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    tracemalloc.start()
    with pytest.raises(InputError, match="is no file that a ResumeFile wrote, or not all of one"):
        density(path)
    assert tracemalloc.get_traced_memory()[1] < 2**22
    tracemalloc.stop()


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match="is in no folder that exists: make it first"):
        density(tmp_path / "none" / "run.npz")


def test_a_full_disk_ends_no_work(path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    expected = density(path)
    path.unlink()
    monkeypatch.setattr(os, "fsync", full)
    with pytest.warns(OnnxJacWarning, match="No space left on device: the work goes on"):
        found = density(path)
    assert_bits(found.nodes, expected.nodes)
    assert not path.exists()


def test_a_file_tells_nothing_of_when_it_was_written(tmp_path):
    first, second = tmp_path / "a.npz", tmp_path / "b.npz"
    density(first)
    density(second)
    assert first.read_bytes() == second.read_bytes()


def test_a_link_leads_to_the_file(path, tmp_path):
    path.symlink_to(tmp_path / "elsewhere.npz")
    density(path)
    assert path.is_symlink()
    assert (tmp_path / "elsewhere.npz").is_file()


CUBE = np.arange(24.0).reshape(2, 3, 4)
LAYOUTS = {
    "rows": CUBE[0], "columns": np.asfortranarray(CUBE[0]), "axes in another order":
    CUBE.transpose(1, 0, 2), "every second": CUBE[:, ::2], "a number": np.float32(0.1),
    "bfloat16": CUBE[0].astype(ml_dtypes.bfloat16), "no number": np.array([np.nan, -0.0, np.inf]),
    "bits": np.array([True, False]), "nothing": np.zeros((0, 3)), "a flag": True, "a count": 2**60,
    "a float": 0.1,
}  # fmt: skip


@pytest.mark.parametrize("name", LAYOUTS)
def test_arrays_come_back_in_their_layout(name, path):
    """Products round by it."""
    x = LAYOUTS[name]
    given = oj.ResumeFile(path, every=1)
    work = Work(given, "layout")
    work.loop("one", 0, x).step(1, x, products=1)
    start = np.zeros(x.shape, x.dtype) if isinstance(x, np.ndarray) else type(x)(0)
    turns, found = Work(given, "layout").loop("one", 0, start).state
    assert turns == 1
    assert type(found) is type(x)
    assert np.asarray(found).tobytes() == np.asarray(x).tobytes()
    if isinstance(x, np.ndarray) and x.size:
        order = np.argsort([-n for n in x.strides], kind="stable")
        assert np.array_equal(order, np.argsort([-n for n in found.strides], kind="stable"))


def test_a_part_is_put_where_the_whole_will_be(path):
    given = oj.ResumeFile(path, every=1)
    basis = np.arange(12.0).reshape(3, 4)
    Work(given, "part").loop("one", basis).step(basis[:, :2], products=1)
    (found,) = Work(given, "part").loop("one", np.zeros((3, 4))).state
    assert np.array_equal(found, basis * [1, 1, 0, 0])


def test_work_raises_an_interrupt(path):
    with pytest.raises(Interrupted), Work(oj.ResumeFile(path), "work").going_on():
        raise Interrupted
