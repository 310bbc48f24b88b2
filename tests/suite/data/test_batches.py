"""Batches: every kind of data gives the same batches in every pass, and reads no more."""

from zipfile import ZipFile

import numpy as np
import pytest

from onnxjac.jacobians.errors import InputError
from onnxjac.modes.curvature.kfac import kfac
from onnxjac.modes.data.batches import batches_of, is_data, map_npz, samples

from ..curvature.models import parsed

X = np.arange(14.0).reshape(7, 2)
Y = np.arange(7)
ARRAYS = {"x": X, "y": Y, "rate": np.array(0.5)}
CUT = [{"x": X[i : i + 3], "y": Y[i : i + 3], "rate": np.array(0.5)} for i in (0, 3, 6)]


def archive(folder):
    np.savez(folder / "data.npz", **ARRAYS)
    return folder / "data.npz"


def on_disk(folder):
    np.save(folder / "x.npy", X)
    return {**ARRAYS, "x": np.load(folder / "x.npy", mmap_mode="r")}


KINDS = {
    "list": lambda folder: (CUT, None),
    "generator function": lambda folder: (lambda: iter(CUT), None),
    "loader": lambda folder: (Loader(), None),
    "arrays": lambda folder: (ARRAYS, 3),
    "memory-mapped": lambda folder: (on_disk(folder), 3),
    "npz": lambda folder: (archive(folder), 3),
}


class Loader:
    """A re-iterable that is not a list."""

    def __iter__(self):
        return iter(CUT)


def assert_same(found, expected):
    found = list(found)
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert one.keys() == other.keys()
        for name in one:
            np.testing.assert_array_equal(one[name], other[name])


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_gives_the_same_batches_twice(kind, tmp_path):
    batches = batches_of(*KINDS[kind](tmp_path))
    for _ in range(2):
        assert_same(batches, CUT)


@pytest.mark.parametrize("kind", KINDS)
def test_parts_are_successive_batches(kind, tmp_path):
    batches = batches_of(*KINDS[kind](tmp_path))
    assert_same(batches.part(1, 3), CUT[1:])
    assert_same(batches.part(1, 3).part(1, 2), CUT[2:])
    assert_same(batches.part(0, 1), CUT[:1])


def test_an_archive_is_mapped_and_not_read(tmp_path):
    held = {"c": X, "f": np.asfortranarray(X), "none": np.zeros((0, 3)), "i": Y.astype(np.int16)}
    np.savez(tmp_path / "data.npz", **held)
    found = map_npz(str(tmp_path / "data.npz"))
    assert_same([found], [held])
    assert {name for name, a in found.items() if isinstance(a, np.memmap)} == {"c", "f", "i"}
    assert {a.dtype for a in found.values()} == {a.dtype for a in held.values()}


def test_a_batch_of_mapped_arrays_is_a_view(tmp_path):
    batch = next(iter(batches_of(archive(tmp_path), 3)))
    assert isinstance(batch["x"], np.memmap)


def test_one_mapping_is_one_batch():
    assert not is_data(ARRAYS)
    assert is_data(ARRAYS, 3)
    assert is_data([ARRAYS])
    assert_same(batches_of(ARRAYS), [ARRAYS])


@pytest.mark.parametrize(
    ("data", "batch_size", "message"),
    [
        (iter(CUT), None, "can be read once only"),
        (CUT, 3, "other data is cut"),
        ("data.npz", None, "needs batch_size="),
        ("nowhere.npz", 3, "not an .npz file"),
        (7, None, "a dict, a list, a function or a path"),
    ],
)
def test_other_data_is_refused(data, batch_size, message):
    with pytest.raises(InputError, match=message):
        list(batches_of(data, batch_size))


def test_compressed_archives_are_refused(tmp_path):
    np.savez_compressed(tmp_path / "data.npz", x=X)
    with pytest.raises(InputError, match=r"write the file with np\.savez"):
        list(batches_of(tmp_path / "data.npz", 3))


def test_samples_need_one_first_axis():
    with pytest.raises(InputError, match="size="):
        samples({"x": np.zeros((3, 2)), "w": np.zeros((2, 2))})
    with pytest.raises(InputError, match="only scalars"):
        samples({"rate": np.array(0.5)})


def test_a_batch_of_a_loader_has_no_names():
    with pytest.raises(InputError, match=r"not tuple: a point is .* a function, lambda"):
        samples((np.ones((2, 3)), np.ones(2)))
    model = parsed("g (double[n, 2] x, double[2, 3] W) => (double[n, 3] z) { z = MatMul(x, W) }")
    with pytest.raises(InputError, match="not tuple"):
        kfac(model, [(X, X)], wrt="W")


def test_members_that_are_no_arrays_are_refused(tmp_path):
    with ZipFile(archive(tmp_path), "a") as file:
        file.writestr("readme.txt", "x are inputs, y are labels")
    with pytest.raises(InputError, match=r"'readme.txt' in '.*data.npz' is no array: .*np\.savez"):
        list(batches_of(tmp_path / "data.npz", 3))


def test_python_objects_are_refused(tmp_path):
    np.savez(tmp_path / "data.npz", x=X, names=np.array([{}, "a"], object))
    with pytest.raises(InputError, match=r"'names.npy' in '.*data.npz' holds Python objects"):
        list(batches_of(tmp_path / "data.npz", 3))
