"""matplotlib is optional: imported lazily, reported if missing, styled by the user."""

import subprocess
import sys
import threading

import pytest
from matplotlib import pyplot as plt
from matplotlib.colors import to_hex

import onnxjac as oj
from onnxjac.jacobians import Dag, progress
from onnxjac.modes.show import matrix
from show.examples import dense


def test_importing_does_not_load_matplotlib():
    code = "import onnxjac, sys; assert 'matplotlib' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_matplotlib_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(oj.InputError, match=r"^.*pip install 'onnxjac\[plots\]'.*$"):
        dense().plot()


PICTURES = {
    "plot": lambda J: J.plot(),
    "spy": lambda J: J.spy(),
    "graph": oj.plots.plot_graph,
    "elimination": lambda J: oj.plots.plot_elimination(J)[0],
    "spectrum": oj.plots.plot_spectrum,
    "density": lambda J: oj.plots.plot_density(J.T @ J),
    "sensitivity": lambda J: oj.plots.plot_sensitivity(J["y", "x"]),
}


@pytest.mark.parametrize("picture", PICTURES.values(), ids=PICTURES.keys())
def test_a_picture_is_as_wide_as_a_notebook_and_legible(picture):
    figure = picture(dense()).figure
    figure.draw_without_rendering()
    assert figure.get_figwidth() == 6.4
    texts = figure.findobj(plt.Text)
    assert min(text.get_fontsize() for text in texts if text.get_text()) >= 8


LONG = {
    "plot": lambda J, **how: J.plot(**how),
    "spy": lambda J, **how: J.spy(**how),
    "spectrum": oj.plots.plot_spectrum,
    "density": lambda J, **how: oj.plots.plot_density(J.T @ J, **how),
    "sensitivity": lambda J, **how: oj.plots.plot_sensitivity(J["y", "x"], **how),
}


@pytest.mark.parametrize("picture", LONG.values(), ids=LONG.keys())
@pytest.mark.parametrize("wanted", [True, False])
def test_a_picture_says_how_far_it_is_where_that_is_wanted(picture, wanted, monkeypatch):
    """The computations of a figure see the setting; later ones, and plans beside it, do not."""
    seen = set()
    sweep = Dag.sweep

    def watched(*given, **how):
        if threading.current_thread() is threading.main_thread():
            seen.add(progress.WANTED.get())
        return sweep(*given, **how)

    monkeypatch.setattr(Dag, "sweep", watched)
    monkeypatch.setattr(matrix, "pattern", lambda J: watched_pattern(J, seen))
    picture(dense(), progress=wanted)
    assert seen == {wanted}
    assert progress.WANTED.get() is None


def watched_pattern(J, seen):
    """A wrapper of the pattern, which needs no product."""
    seen.add(progress.WANTED.get())
    return oj.pattern(J)


def test_colours_follow_the_style():
    with plt.style.context("dark_background"):
        graph, spy = oj.plots.plot_graph(dense()), dense()["y", "x"].spy()
    assert to_hex(graph.figure.get_facecolor()) == "#000000"
    assert [to_hex(line.get_color()) for line in graph.lines[1:2]] == ["#ffffff"]
    assert to_hex(spy.images[0].cmap(0.0)) == "#ffffff"
