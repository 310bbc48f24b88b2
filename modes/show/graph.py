"""Picture of the graph: tensors as points, the operators between them as arrows."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...jacobians import Dag, Edge, Jacobian
from ...jacobians.arguments import validated
from ...jacobians.errors import InputError
from ...jacobians.threads import cached_property
from ..hessian import Hessian
from ..linear.elimination.plan import eliminated
from ..linear.linearization import Linearization
from . import canvas
from .blocks import structure_kind, tensor_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAMED = 40
"""Up to this many tensors are drawn with names; in more, runs of operators become one arrow."""

DOTS = 300
"""Up to this many tensors are drawn as points; more are for `J.view()`."""

THIN, WIDE = 0.6, 3.0
"""Widths in points of arrows with no and with the most flops, on a logarithmic scale."""

GAP = 0.12
"""The gap between the tip of an arrow and its vertex, as a share of a layer."""

ASIDE = 5
"""Points between a place and the text beside it."""


@validated
def plot_graph(J: Jacobian, *, after: bool = False, ax: Axes | None = None) -> Axes:
    """The DAG whose sweep is J: the `wrt` tensors at the top, the `of` tensors at the bottom.

    Arrows are operators; their widths grow with the flops of a product. `after=True` draws the DAG
    after elimination, with which products are computed. Up to 40 tensors have names; in larger
    graphs each unbranched run of operators is one arrow; for more than 300 points there is
    `J.view()`. J is the Jacobian or the Hessian of a model; a transpose is drawn as the operator
    that was transposed.

    Shape: J is (m, n). Raises `InputError` without matplotlib, where `ax` is no Axes, for an
    operator that is not of a model, for more than 300 points, and where nothing leads from `wrt`
    to `of`.
    """
    return plotted(of_model(J), after=after, ax=ax)


def plot_elimination(J: Jacobian, *, axs: tuple[Axes, Axes] | None = None) -> tuple[Axes, Axes]:
    """The DAG before elimination and after it, side by side: see `plot_graph`.

    `J` is the Jacobian or the Hessian of a model.

    Shape: J is (m, n). Raises `InputError` without matplotlib, where `axs` are not two Axes, and
    for an operator that is not of a model.
    """
    J = of_model(J)
    both = [drawing_of(dag, tensor_names(J)) for dag in (J.dag, eliminated(J.dag))]
    layers = max(drawing.layers for drawing in both)
    if axs is None:
        size = canvas.FIGURE_INCHES, max(drawing.height for drawing in both)
        axs = canvas.pyplot().subplots(1, 2, figsize=size, layout="constrained")[1]
    if not (hasattr(axs, "__len__") and len(axs) == 2):
        raise InputError(f"axs must be two Axes, as `plt.subplots(1, 2)[1]` has them, not {axs!r}")
    before, after = axs
    return (plotted(J, after=False, ax=before, layers=layers),
            plotted(J, after=True, ax=after, layers=layers))  # fmt: skip


def of_model(J: Jacobian) -> Linearization:
    """The Jacobian to draw: J, the Jacobian that J transposes, or the Jacobian of a gradient."""
    J = J.J if isinstance(J, Hessian) else J
    if not isinstance(J, Linearization):
        raise InputError("a graph is drawn of the Jacobian or the Hessian of a model, not of "
                         f"{type(J).__name__}: it has no DAG with names; give what "
                         "`linearize` or `hessian` returned")  # fmt: skip
    if not J.dag.edges:
        raise InputError(f"nothing leads from wrt to of in {J!r}: there is no graph to draw")
    return J.T if J.transposed else J


def plotted(J: Linearization, *, after: bool, ax: Axes | None, layers: int = 0) -> Axes:
    """One of the two graphs, with room for `layers` layers."""
    dag = eliminated(J.dag) if after else J.dag
    drawing = drawing_of(dag, tensor_names(J))
    ax = canvas.given_axes(ax, drawing.height)
    when, n = "after elimination" if after else "as declared", len(dag.edges)
    title = f"{when}: {len(vertices(dag.edges)):,} tensors, {n:,} operator{'s' * (n != 1)}"
    ax.set_title(title, fontsize=9)
    draw(ax, drawing, max(drawing.layers, layers))
    return ax


# -- a drawing: which tensors and operators are drawn ----------------------------------------------

Places = dict[int, tuple[float, int]]
"""Vertex -> (x, layer)."""


class Arrow(NamedTuple):
    """The operators between two vertices: their names, their flops, how many there are."""

    start: int
    end: int
    text: str
    flops: int
    number: int = 1


@dataclass(frozen=True)
class Drawing:
    """Arrows, the names of points, and which points are sources and sinks."""

    links: list[Arrow]
    names: dict[int, str]
    sources: frozenset[int]
    sinks: frozenset[int]

    @cached_property
    def places(self) -> Places:
        """Where the points stand."""
        return place_vertices(self.links)

    @property
    def layers(self) -> int:
        return 1 + max(layer for _, layer in self.places.values())

    @property
    def height(self) -> float:
        """Inches that the drawing needs."""
        return min(11.0, 0.9 + (0.5 if self.named else 0.25) * (self.layers - 1))

    @property
    def named(self) -> bool:
        """Whether every point has a name."""
        return len(self.names) == len(self.places)


def drawing_of(dag: Dag, names: Iterable[str]) -> Drawing:
    """The drawing of a DAG, runs as one arrow where it is large; `names` names the vertices."""
    shown, ends = dict(enumerate(names)), {*dag.sources, *dag.sinks}
    links = merged(Arrow(e.start, e.end, structure_kind(repr(e.operator)), e.operator.flops)
                   for e in dag.edges)  # fmt: skip
    if len(vertices(links)) > NAMED:
        links = chained(links, ends)
    met = vertices(links)
    if len(met) > DOTS:
        raise InputError(f"a graph of {len(shown):,} tensors is too large for a picture: "
                         "J.view() is a page, to be searched and zoomed")  # fmt: skip
    named = {v: shown[v] for v in met if len(met) <= NAMED or v in ends}
    return Drawing(links, named, frozenset(dag.sources), frozenset(dag.sinks))


def vertices(links: Iterable[Arrow | Edge]) -> dict[int, None]:
    """The vertices of some links, in the order of the links."""
    return dict.fromkeys(v for link in links for v in (link.start, link.end))


# -- layers: where the vertices stand --------------------------------------------------------------


def place_vertices(links: Iterable[Arrow]) -> Places:
    """Each vertex below all its predecessors, and to the right of the vertices placed before it.

    A vertex stands under the mean of its predecessors, so that a chain is a straight line. A vertex
    without predecessors, like a weight, stands to the right, one layer above the first vertex
    that needs it.
    """
    layer = layers(links)
    before = defaultdict(list)
    for link in links:
        before[link.end].append(link.start)
    rows = defaultdict(list)
    for vertex, depth in layer.items():
        rows[depth].append(vertex)
    x: dict[int, float] = {}
    for depth in sorted(rows):
        wanted = {v: fmean(x[w] for w in before[v]) if before[v] else inf for v in rows[depth]}
        taken = -inf
        for v in sorted(rows[depth], key=lambda v: (wanted[v], v)):
            x[v] = taken = max(min(wanted[v], max(taken + 1, 0)), taken + 1)
    return {v: (x[v], depth) for v, depth in layer.items()}


def layers(links: Iterable[Arrow]) -> dict[int, int]:
    """The longest path to each vertex; sources stand just above the first vertex that needs them.

    >>> layers([Arrow(0, 1, "", 0), Arrow(1, 3, "", 0), Arrow(2, 3, "", 0)])
    {0: 0, 1: 1, 3: 2, 2: 1}
    """
    ordered = sorted(links, key=lambda link: link.end)  # edges lead to greater numbers
    depth: dict[int, int] = {}
    for link in ordered:
        depth.setdefault(link.start, 0)
        depth[link.end] = max(depth.get(link.end, 0), depth[link.start] + 1)
    ends = {link.end for link in ordered}
    first: dict[int, int] = {}
    for link in ordered:
        first[link.start] = min(first.get(link.start, depth[link.end]), depth[link.end])
    return {v: d if v in ends else first[v] - 1 for v, d in depth.items()}


# -- condensing: few arrows for thousands of operators ---------------------------------------------


def chained(links: Iterable[Arrow], kept: Iterable[int]) -> list[Arrow]:
    """The links, with each unbranched run of links as one link; runs end at `kept` vertices.

    >>> chained([Arrow(0, 1, "a", 2), Arrow(1, 2, "b", 3)], (0, 2))
    [Arrow(start=0, end=2, text='2 operators', flops=5, number=2)]
    """
    incoming, outgoing = defaultdict(list), defaultdict(list)
    for link in links:
        incoming[link.end].append(link)
        outgoing[link.start].append(link)
    through = {v for v in incoming if len(incoming[v]) == len(outgoing[v]) == 1} - set(kept)
    found = []
    for link in links:
        if link.start in through:
            continue
        run = [link]
        while run[-1].end in through:
            run.append(outgoing[run[-1].end][0])
        found.append(united((link.start, run[-1].end), run))
    return found


def merged(links: Iterable[Arrow]) -> list[Arrow]:
    """The links, with parallel ones as one."""
    groups: dict[tuple[int, int], list[Arrow]] = defaultdict(list)
    for link in links:
        groups[link.start, link.end].append(link)
    return [united(ends, found) for ends, found in groups.items()]


def united(ends: tuple[int, int], found: list[Arrow]) -> Arrow:
    """One link for several."""
    number = sum(link.number for link in found)
    text = found[0].text if len(found) == 1 else f"{number:,} operators"
    return Arrow(*ends, text, sum(link.flops for link in found), number)


# -- points and arrows -----------------------------------------------------------------------------


def draw(ax: Axes, drawing: Drawing, layers: int) -> None:
    """Points in layers downwards, with the sources on top; arrows; names; a legend below."""
    most = max(link.flops for link in drawing.links)
    for link in drawing.links:
        share = float(np.log1p(link.flops) / np.log1p(max(most, 1)))
        draw_link(ax, drawing.places, link, THIN + (WIDE - THIN) * share)
    between = drawing.places.keys() - drawing.sources - drawing.sinks
    for kind, color, text in ((drawing.sources, canvas.BLUE, "wrt"),
                              (between, canvas.foreground(), "between"),
                              (drawing.sinks, canvas.VERMILLION, "of")):  # fmt: skip
        at = np.array([drawing.places[v] for v in kind if v in drawing.places]).reshape(-1, 2)
        ax.plot(*at.T, "o", color=color, markersize=5, label=text, zorder=3)
    x = [x for x, _ in drawing.places.values()]
    ax.set_xlim(min(x) - 0.9, max(x) + 0.9)  # room for names on both sides
    ax.set_ylim(layers - 0.6, -0.4)
    ax.set_axis_off()
    ax.plot([], [], color=canvas.GREY, linewidth=WIDE, label=f"{most:,} flops")
    ax.legend(fontsize=canvas.TEXT_POINTS, loc="upper center", bbox_to_anchor=(0.5, 0), ncols=2,
              frameon=False)  # fmt: skip
    write_labels(ax, drawing)


def draw_link(ax: Axes, places: Places, link: Arrow, points: float) -> None:
    """An arrow, straight or around the points between."""
    from matplotlib.patches import FancyArrowPatch
    from matplotlib.path import Path

    start, half, end = (np.array(point_on_arrow(places, link, t)) for t in (0.0, 0.5, 1.0))
    bend, tip = (
        2 * half - (start + end) / 2,
        point_on_arrow(places, link, 1 - GAP / (end - start)[1]),
    )
    path = Path([start, bend, tip], [Path.MOVETO, Path.CURVE3, Path.CURVE3])
    ax.add_patch(FancyArrowPatch(path=path, arrowstyle="-|>", color=canvas.GREY, mutation_scale=9,
                                 linewidth=points))  # fmt: skip


def passing(places: Places, link: Arrow) -> bool:
    """Whether a straight arrow would run through other points."""
    (x0, y0), (x1, y1) = places[link.start], places[link.end]
    return x0 == x1 and y1 > y0 + 1


def point_on_arrow(places: Places, link: Arrow, t: float) -> tuple[float, float]:
    """The point at t from 0 to 1 of an arrow, which swings to the left around other points."""
    (x0, y0), (x1, y1) = places[link.start], places[link.end]
    swing = min(0.1 * (y1 - y0), 0.6) if passing(places, link) else 0.0
    return x0 + t * (x1 - x0) - 4 * t * (1 - t) * swing, y0 + t * (y1 - y0)


# -- names of points and arrows, placed without overlap where possible -----------------------------


class Spot(NamedTuple):
    """A place, and the side of it where a text stands: 1 for the right, -1 for the left."""

    x: float
    y: float
    side: int


def write_labels(ax: Axes, drawing: Drawing) -> None:
    """Names of tensors beside the points, to the left of the leftmost; operators by the arrows."""
    ax.figure.canvas.figure.draw_without_rendering()  # gives the axes their place
    (left, _), (right, _) = ax.transData.transform([(0, 0), (1, 0)])
    letters = max(6, int((right - left) / ax.figure.dpi / canvas.LETTER) - 3)
    places, taken = drawing.places, list[Any]()
    first = min(x for x, _ in places.values())
    names = canvas.shortened([*drawing.names.values()], letters)
    for v, name in zip(drawing.names, names, strict=True):
        x, y = places[v]
        spot = Spot(x, y, -1 if x == first else 1)
        write_at(ax, name, [spot], taken)
    if not drawing.named:
        return
    out = Counter(link.start for link in drawing.links)
    for link in drawing.links:
        best = label_place(places, link, alone=out[link.start] == 1)
        ways = best, *(point_on_arrow(places, link, t) for t in (0.5, 0.35, 0.65, 0.2, 0.8))
        spots = [Spot(*at, side) for at in ways for side in (1, -1)]
        (what,) = canvas.shortened([link.text], letters)
        write_at(ax, what, spots, taken, style="italic", color=canvas.GREY)


def write_at(ax: Axes, what: str, spots: list[Spot], taken: list[Any], **style: Any) -> None:
    """Write small text beside the first spot where it hides the least of the areas in `taken`.

    A translucent box fades the lines behind the text.
    """
    faded = {"facecolor": ax.figure.get_facecolor(), "alpha": 0.7, "edgecolor": "none", "pad": 0.5}
    text: Any = ax.annotate(what, (0, 0), (0, 0), textcoords="offset points", va="center",
                            bbox=faded, fontsize=canvas.TEXT_POINTS, zorder=4, **style)  # fmt: skip

    def area(spot: Spot) -> Any:
        text.xy, text.xyann = spot[:2], (ASIDE * spot.side, 0)
        text.set_horizontalalignment("left" if spot.side > 0 else "right")
        return text.get_window_extent()

    def hidden(spot: Spot) -> float:
        box = area(spot)
        shared = (box.intersection(box, other) for other in taken)
        return sum(part.width * part.height for part in shared if part)

    taken.append(area(min(spots, key=hidden) if len(spots) > 1 else spots[0]))


def label_place(places: Places, link: Arrow, *, alone: bool) -> tuple[float, float]:
    """Between two layers, where there are no names of points: below the start, or near the end."""
    (x0, y0), (x1, y1) = places[link.start], places[link.end]
    if passing(places, link):
        return point_on_arrow(places, link, ((y1 - y0) // 2 + 0.5) / (y1 - y0))
    return (
        (x0, y0 + 0.5) if alone or x0 == x1 else point_on_arrow(places, link, 1 - 0.5 / (y1 - y0))
    )
