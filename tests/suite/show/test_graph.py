"""Pictures of graphs: which tensors and operators are drawn, and where."""

from itertools import combinations

import numpy as np
import pytest
from matplotlib import pyplot as plt
from matplotlib.patches import FancyArrowPatch
from matplotlib.transforms import Bbox

import onnxjac as oj
from onnxjac.jacobians import Dense
from onnxjac.modes.show.blocks import tensor_names
from onnxjac.modes.show.graph import DOTS, Arrow, chained, drawing_of, place_vertices
from show.examples import curved, dense, steps


def written(ax):
    return {text.get_text() for text in ax.texts}


def named(ax):
    """The positions of the names."""
    return {text.get_text(): text.xy for text in ax.texts}


def arrows(ax):
    return [patch for patch in ax.patches if isinstance(patch, FancyArrowPatch)]


def points(ax):
    """The number of points of each kind."""
    return {line.get_label(): len(line.get_xdata()) for line in ax.lines[:3]}


def test_tensors_and_operators_are_drawn_with_names():
    J = dense()
    ax = oj.plots.plot_graph(J)
    assert {"x", "W", "a", "y", "z", "diag"} <= written(ax)
    assert len(arrows(ax)) == len(J.dag.edges) == 4
    assert points(ax) == {"wrt": 2, "between": 1, "of": 2}
    assert ax.get_title() == "as declared: 5 tensors, 4 operators"
    assert named(oj.plots.plot_graph(J.T)) == named(ax)


def test_elimination_is_drawn_before_and_after():
    before, after = oj.plots.plot_elimination(steps(3, residual=True))
    assert before.get_title() == "as declared: 8 tensors, 10 operators"
    assert after.get_title() == "after elimination: 2 tensors, 1 operator"
    assert after.get_ylim() == before.get_ylim()
    assert len(arrows(after)) == 1


@pytest.mark.parametrize("J", [curved(), dense(), steps(3, residual=True)], ids=repr)
def test_no_name_hides_another(J):
    """Labels do not overlap when drawn, up to a line width."""
    for ax in oj.plots.plot_elimination(J):
        ax.figure.draw_without_rendering()
        boxes = {text: text.get_window_extent() for text in ax.texts}
        for one, other in combinations(boxes, 2):
            shared = Bbox.intersection(boxes[one], boxes[other])
            assert shared is None or min(shared.width, shared.height) <= 2


def test_given_axes_are_used():
    pair = plt.subplots(1, 2)[1]
    assert oj.plots.plot_elimination(dense(), axs=pair) == tuple(pair)


def test_arrows_are_as_wide_as_their_work():
    ax = oj.plots.plot_graph(dense())
    widths = {arrow.get_linewidth() for arrow in arrows(ax)}
    assert min(widths) < max(widths) == 3.0


def test_hessians_have_a_graph():
    assert "W_cotangent" in written(oj.plots.plot_graph(curved()))


def test_every_point_is_below_what_leads_to_it():
    links = [Arrow(0, 2, "", 0), Arrow(1, 2, "", 0), Arrow(2, 4, "", 0), Arrow(3, 4, "", 0),
             Arrow(0, 4, "", 0)]  # fmt: skip
    found = place_vertices(links)
    assert all(found[link.start][1] < found[link.end][1] for link in links)
    assert len(set(found.values())) == 5
    assert found[3][1] == found[4][1] - 1
    assert found[0][0] == found[2][0] == found[4][0]


def test_a_chain_of_thousands_is_one_arrow():
    J = steps(1000, residual=False)
    drawing = drawing_of(J.dag, tensor_names(J))
    assert [(link.number, link.text) for link in drawing.links] == [(1001, "1,001 operators")]
    assert list(drawing.names.values()) == ["x", "y"]


def test_an_end_in_the_middle_of_a_chain_is_kept():
    links = [Arrow(0, 1, "", 0), Arrow(1, 2, "", 0), Arrow(2, 3, "", 0)]
    assert [(k.start, k.end) for k in chained(links, (0, 1, 3))] == [(0, 1), (1, 3)]


def test_thousands_of_branches_are_for_the_page():
    J = steps(500, residual=True)
    assert len(J.dag.shapes) > DOTS
    with pytest.raises(oj.InputError, match=r"1,002 tensors .* J.view\(\)"):
        oj.plots.plot_graph(J)


def test_hundreds_are_points_without_names():
    J = steps(60, residual=True)
    drawing = drawing_of(J.dag, tensor_names(J))
    assert len(drawing.places) == 61 + 1
    assert set(drawing.names.values()) == {"x", "y"}


def test_plots_reject_operators_without_a_graph():
    with pytest.raises(oj.InputError, match="no DAG"):
        oj.plots.plot_graph(Dense(np.eye(2)))
    with pytest.raises(oj.InputError, match="two Axes"):
        oj.plots.plot_elimination(dense(), axs=plt.subplots()[1])
    with pytest.raises(oj.InputError, match="nothing leads"):
        oj.plots.plot_graph(dense()["z", "W"])


def test_parallel_operators_are_one_arrow():
    J = dense()
    twice = J.dag.edges[0]
    drawing = drawing_of(type(J.dag)(J.dag.shapes, (*J.dag.edges, twice), J.dag.sources,
                                     J.dag.sinks, J.dtype), "xWayz")  # fmt: skip
    assert sorted(link.number for link in drawing.links) == [1, 1, 1, 2]
