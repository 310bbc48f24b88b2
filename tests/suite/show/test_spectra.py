"""Pictures of spectra: the values, and the density with its band."""

import numpy as np
import pytest
from matplotlib import pyplot as plt
from numpy.testing import assert_allclose

import onnxjac as oj
from estimators.examples import Hidden, rotated
from onnxjac.jacobians import Dense
from onnxjac.modes.show import spectra
from show.examples import RNG, curved


class Mirror(Hidden):
    """A symmetric operator that equals its own transpose."""

    def _transpose(self):
        return self


VALUES = np.array([3.0, -2.0, 1.0, -0.5, 0.0, 0.0])


def test_a_spectrum_is_drawn_as_its_singular_values():
    A = RNG.standard_normal((5, 8))
    (line,) = oj.plots.plot_spectrum(Dense(A)).lines
    assert_allclose(line.get_ydata(), np.linalg.svd(A, compute_uv=False))
    assert_allclose(line.get_xdata(), np.arange(1, 6))
    assert line.get_label() == "σ: 5"


def test_eigenvalues_of_both_signs_and_zeros():
    ax = oj.plots.plot_spectrum(Mirror(rotated(VALUES)), label="A")
    above, below, note = ax.lines
    assert_allclose(above.get_ydata(), [3, 1])
    assert_allclose(below.get_ydata(), [2, 0.5])
    assert_allclose(below.get_xdata(), [2, 4])
    assert above.get_color() != below.get_color()
    assert above.get_marker() != below.get_marker()
    assert note.get_label() == "A 2 zero"
    assert ax.get_yscale() == "log"


@pytest.mark.parametrize("kind", [Hidden, Mirror])
def test_only_the_largest_values_of_a_large_operator_are_drawn(kind, monkeypatch):
    monkeypatch.setattr(spectra, "DRAWN_VALUES", 10)
    A = rotated(np.concatenate([[-9.0, 8, 7], np.linspace(0.1, 1, 40)]))
    ax = oj.plots.plot_spectrum(kind(A), 3)
    shown = np.concatenate([line.get_ydata() for line in ax.lines[:-1]])
    assert_allclose(sorted(shown), [7, 8, 9])
    assert ax.lines[-1].get_label() == "40 not computed"


def test_as_many_values_as_there_are_are_drawn(monkeypatch):
    monkeypatch.setattr(spectra, "DRAWN_VALUES", 3)
    above, below, _ = oj.plots.plot_spectrum(Mirror(rotated(VALUES)), 100).lines
    assert_allclose([*above.get_ydata(), *below.get_ydata()], [3, 1, 2, 0.5])


def test_no_such_number_of_values():
    with pytest.raises(oj.InputError, match="k=0"):
        oj.plots.plot_spectrum(curved(), 0)


def test_the_density_agrees_with_the_estimator():
    A = Mirror(rotated(np.linspace(-1, 2, 80)))
    rho = oj.estimators.spectral_density(A, steps=10, probes=4, exact=False)
    ax = oj.plots.plot_density(rho, width=0.1)
    (line,), (band,) = ax.lines, ax.collections
    found = rho(line.get_xdata(), width=0.1)
    seen = found.value > ax.get_ylim()[0]
    assert_allclose(line.get_ydata()[seen], found.value[seen])
    top = band.get_paths()[0].vertices[:, 1].max()
    assert_allclose(top, (found.value + 2 * found.error).max())
    assert ax.get_ylabel() == "density per unit of λ"


def test_an_exact_density_has_no_band():
    ax = oj.plots.plot_density(Mirror(rotated(VALUES)))
    assert not ax.collections
    assert ax.get_legend().get_texts()[0].get_text() == "exact by products"


def test_two_densities_in_one_picture():
    ax = plt.subplots()[1]
    for label in ("first", "second"):
        oj.plots.plot_density(curved(), ax=ax, label=label)
    first, second = ax.lines
    assert first.get_color() != second.get_color()


def test_a_density_is_of_a_symmetric_operator():
    with pytest.raises(oj.InputError, match="symmetric"):
        oj.plots.plot_density(Dense(np.triu(np.ones((3, 3)))))
