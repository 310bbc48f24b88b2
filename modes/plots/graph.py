"""Graph: tensors as points, the operators between them as arrows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...jacobians import Dag, Jacobian
from ...jacobians.errors import InputError
from ..elimination.plan import eliminated
from ..hessian import Hessian
from ..linearization import Linearization
from ..tape.record import vertex_names
from .arrows import draw
from .canvas import WIDTH, axes, pyplot
from .drawing import Drawing, drawing_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_graph(J: Jacobian, *, after: bool = False, ax: Axes | None = None) -> Axes:
    """The DAG whose sweep is J: the tensors of `wrt` above, those of `of` at the bottom.

    Arrows are operators, the wider the more flops they take in a product. `after=True` draws what
    elimination leaves, with which products are taken. Up to 40 tensors have names; in
    larger graphs each run of operators without a branch is one arrow, and beyond 300 points what
    stands in neighbouring layers is taken together. J is of a model, a Hessian too; a
    transpose is drawn as what it is the transpose of.

    Shape: J is (m, n). Raises `InputError` without matplotlib, where `ax` is no Axes, for an
    operator that is not of a model, and where nothing leads from `wrt` to `of`.
    """
    return plotted(of_model(J), after=after, ax=ax)


def plotted(J: Linearization, *, after: bool, ax: Axes | None, layers: int | None = None) -> Axes:
    """One of the two graphs, with room for so many layers."""
    dag = eliminated(J.dag) if after else J.dag
    drawing = drawn(J, dag)
    ax = axes(ax, drawing.height)
    tensors = len({v for edge in dag.edges for v in (edge.start, edge.end)})
    when = "after elimination" if after else "as declared"
    operators = f"{len(dag.edges):,} operator{'s' * (len(dag.edges) != 1)}"
    ax.set_title(f"{when}: {tensors:,} tensors, {operators}", fontsize=9)
    draw(ax, drawing, layers)
    return ax


def plot_elimination(J: Jacobian, *, axs: tuple[Axes, Axes] | None = None) -> tuple[Axes, Axes]:
    """The DAG before elimination and after it, side by side: see `plot_graph`.

    Shape: J is (m, n). Raises `InputError` without matplotlib, where `axs` are not two Axes, and
    for an operator that is not of a model.
    """
    J = of_model(J)
    both = [drawn(J, dag) for dag in (J.dag, eliminated(J.dag))]
    if axs is None:
        size = WIDTH, max(drawing.height for drawing in both)
        axs = pyplot().subplots(1, 2, figsize=size, layout="constrained")[1]
    if not (hasattr(axs, "__len__") and len(axs) == 2):
        raise InputError(f"axs must be two Axes, as `plt.subplots(1, 2)[1]` has them, not {axs!r}")
    layers = max(drawing.layers for drawing in both)
    before, after = axs
    return (plotted(J, after=False, ax=before, layers=layers),
            plotted(J, after=True, ax=after, layers=layers))  # fmt: skip


def of_model(J: Jacobian) -> Linearization:
    """The Jacobian that has a DAG and the names of its tensors."""
    J = J.J if isinstance(J, Hessian) else J
    if not isinstance(J, Linearization):
        raise InputError("a graph is drawn of the Jacobian or the Hessian of a model, not of "
                         f"{type(J).__name__}: it has no DAG with names; give what "
                         "`linearize` or `hessian` returned")  # fmt: skip
    if not J.dag.edges:
        raise InputError(f"nothing leads from wrt to of in {J!r}: there is no graph to draw")
    return J.T if J.transposed else J


def drawn(J: Linearization, dag: Dag) -> Drawing:
    """What is shown of one DAG of J."""
    wrt, of = (tuple(spec.name for spec in side) for side in (J.domain, J.codomain))
    return drawing_of(dag, vertex_names(J.entries, wrt, of))
